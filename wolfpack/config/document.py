"""Reads a YAML file into plain values and remembers where each key and value stands.

PyYAML parses the text into a graph of nodes, each with its place; we walk that graph ourselves, because its own
constructor drops the places, keeps the last of two equal keys in silence, and follows aliases without limit. Only what
a pack.yaml can mean is accepted: mappings with text keys, lists, text, numbers, true, false and null. Everything YAML
could do beyond that (dates, sets, Python objects) is a fault with its place.

Three limits keep a hostile or mistaken file cheap: its size, its depth, and the number of values after all aliases and
merges (`<<`) are followed.

What makes reading on pointless (no file, no text, no YAML) raises at once. The rest becomes faults of the document, so
that they are shown together with those of later checks; a faulty value stays in place as far as it can be told.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from wolfpack.config.faults import Fault, FieldPath, Spot, config_error, did_you_mean
from wolfpack.errors import ConfigError

MAX_BYTES = 256 * 1024
MAX_DEPTH = 40
MAX_VALUES = 50_000

_LARGEST_INT = 2**63 - 1  # what a ledger row and a message can carry
_TAG = "tag:yaml.org,2002:"
_SCALARS = {_TAG + name for name in ("str", "int", "float", "bool", "null")}
_MERGE = _TAG + "merge"
_START = Spot(1, 1)


@dataclass(slots=True, kw_only=True)
class Document:
    """Plain values, and the places of their keys and of themselves by field path."""

    file: str
    value: dict[str, Any] = field(default_factory=dict)
    keys: dict[FieldPath, Spot] = field(default_factory=dict)
    values: dict[FieldPath, Spot] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    _told: set[FieldPath] = field(default_factory=set)
    _faulty: set[FieldPath] = field(default_factory=set)
    _around_faults: set[FieldPath] = field(default_factory=set)

    def spot(self, path: FieldPath, *, of_key: bool = False) -> Spot:
        """Where the value of a field, or its key, stands; of a field that is not there, where its parent begins."""
        while path:
            first, second = (self.keys, self.values) if of_key else (self.values, self.keys)
            found = first.get(path) or second.get(path)
            if found:
                return found
            path, of_key = path[:-1], True
        return _START

    def add_fault(self, path: FieldPath, text: str, *, of_key: bool = False) -> None:
        """Adds a fault, unless the field already has one: the first one found is the cause of the others."""
        if path not in self._told:
            self._told.add(path)
            self.add_fault_at(self.spot(path, of_key=of_key), path, text)

    def add_fault_at(self, spot: Spot, path: FieldPath, text: str) -> None:
        self.faults.append(Fault(spot, path, text))
        self._faulty.add(path)
        self._around_faults.update(path[:length] for length in range(len(path) + 1))

    def is_clean(self, *paths: FieldPath) -> bool:
        """Whether no fault touches these fields: neither they, nor what they hold, nor what holds them."""
        return not any(
            path in self._around_faults or any(path[:length] in self._faulty for length in range(len(path)))
            for path in paths
        )


def read_document(path: str | os.PathLike[str]) -> Document:
    """Reads the file.

    Raises:
        ConfigError: it cannot be read, is too large, or is not one YAML mapping.
    """
    file = os.fsdecode(path)
    text = _text_of(file, _bytes_of(file))
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        _refuse(file, Spot(mark.line + 1, mark.column + 1) if mark else _START, _parse_trouble(error))
    except yaml.reader.ReaderError as error:
        _refuse(
            file,
            _spot_after(text[: error.position]),
            f"the character U+{ord(text[error.position]):04X} cannot stand in YAML",
        )
    except (yaml.YAMLError, ValueError, ArithmeticError, LookupError) as error:
        # PyYAML lets a few errors of its parts through, such as chr() of the number in a wrong "\U..." escape.
        _refuse(file, _START, f"this is not YAML: {error}")
    if root is None or root.tag == _TAG + "null":
        _refuse(file, _START, "the file is empty; it must describe a den (see docs/pack-yaml.md)")
    if not isinstance(root, yaml.MappingNode):
        _refuse(file, _spot_of(root), "the file must be a mapping of keys such as 'den', 'units' and 'packs'")
    document = Document(file=file)
    walk = _Walk(document, loader)
    value = walk.value_of(root, ())
    if isinstance(value, dict):
        document.value = value
    return document


def _refuse(file: str, spot: Spot, text: str) -> NoReturn:
    raise config_error(file, [Fault(spot, (), text)]) from None


def _bytes_of(file: str) -> bytes:
    try:
        kind = Path(file).stat().st_mode
        if stat.S_ISREG(kind):
            with open(file, "rb") as opened:
                data = opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        folder = Path(file).parent
        near = did_you_mean(Path(file).name, _yaml_files_in(folder), f"YAML files in {folder}")
        raise ConfigError(f"{file}: there is no such file{near}") from None
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"{file}: cannot be read: {reason}") from error
    if stat.S_ISDIR(kind):
        raise ConfigError(f"{file}: this is a folder; name the file in it, such as {Path(file, 'pack.yaml')}")
    if not stat.S_ISREG(kind):
        raise ConfigError(f"{file}: this is not a regular file")
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{file}: larger than {MAX_BYTES // 1024} KiB, which no pack.yaml needs")
    return data


def _yaml_files_in(folder: Path) -> list[str]:
    try:
        return sorted(one.name for one in folder.iterdir() if one.suffix in (".yaml", ".yml"))
    except OSError:
        return []


def _text_of(file: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig")
        spot = _spot_after(before)
        _refuse(file, spot, f"the byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8")


def _parse_trouble(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or error.context or "it cannot be parsed"
    if "'\\t'" in problem:
        return "a tab stands where YAML wants spaces; indent with spaces"
    if isinstance(error, _TooDeep):
        return problem
    context = f" ({error.context})" if error.context and error.problem else ""
    return f"this is not YAML: {problem}{context}"


def _spot_after(before: str) -> Spot:
    return Spot(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def _spot_of(node: yaml.Node) -> Spot:
    return Spot(node.start_mark.line + 1, node.start_mark.column + 1)


class _TooDeep(yaml.MarkedYAMLError):
    pass


class _Loader(yaml.SafeLoader):
    """SafeLoader with a limit on depth: its composer calls itself once a level."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self._depth >= MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise _TooDeep(None, None, f"values lie more than {MAX_DEPTH} levels deep", mark)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


class _Walk:
    """Turns nodes into values, one call a node and path."""

    def __init__(self, document: Document, loader: _Loader) -> None:
        self._document = document
        self._loader = loader
        self._left = MAX_VALUES
        self._open: set[int] = set()  # nodes we are inside of: meeting one again means an alias to its own parent

    def value_of(self, node: yaml.Node, path: FieldPath) -> Any:
        self._document.values[path] = _spot_of(node)
        self._left -= 1
        if self._left < 0:
            spot = _spot_of(node)
            _refuse(self._document.file, spot, f"more than {MAX_VALUES} values, counting what aliases repeat")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._open or len(path) > MAX_DEPTH:
            self._document.add_fault(path, "an alias repeats what it stands in")
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
                return [self.value_of(part, (*path, place)) for place, part in enumerate(node.value)]
            if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
                return self._mapping(node, path)
        finally:
            self._open.discard(id(node))
        self._document.add_fault(path, f"the YAML tag {_short(node.tag)} has no meaning here")
        return None

    def _scalar(self, node: yaml.ScalarNode, path: FieldPath) -> Any:
        if node.tag not in _SCALARS:
            self._document.add_fault(path, f"YAML reads this as {_short(node.tag)}; if text is meant, put it in quotes")
            return node.value
        try:
            value = self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError, ArithmeticError, LookupError):
            self._document.add_fault(path, f"YAML cannot read this as {_short(node.tag)}")
            return node.value
        if isinstance(value, int) and abs(value) > _LARGEST_INT:
            self._document.add_fault(path, f"the number is larger than {_LARGEST_INT}")
            return None
        return value

    def _mapping(self, node: yaml.MappingNode, path: FieldPath) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                merged = self._merge(value_node, path) | merged
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self._key(key_node, path)
            if key is None:
                continue
            here = (*path, key)
            if key in own:
                first = self._document.keys[here]
                text = f"this key is given twice, first in line {first.line}"
                self._document.add_fault_at(_spot_of(key_node), here, text)
                continue
            self._document.keys[here] = _spot_of(key_node)
            own[key] = self.value_of(value_node, here)
        return merged | own

    def _key(self, node: yaml.Node, path: FieldPath) -> str | None:
        if isinstance(node, yaml.ScalarNode) and node.tag == _TAG + "str":
            return str(node.value)
        if isinstance(node, yaml.ScalarNode):
            path = (*path, str(node.value))
            text = f"YAML reads this key as {_short(node.tag)}; put it in quotes"
        else:
            text = "a key must be text, not a list or a mapping"
        self._document.add_fault_at(_spot_of(node), path, text)
        return None

    def _merge(self, node: yaml.Node, path: FieldPath) -> dict[str, Any]:
        """What `<<` brings in; of several mappings the earlier one wins, as YAML has it."""
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for source in reversed(sources):
            if not isinstance(source, yaml.MappingNode):
                self._document.add_fault_at(_spot_of(source), path, "'<<' needs a mapping to merge")
                continue
            at = self._document.values.get(path)
            brought = self.value_of(source, path)
            if at:
                self._document.values[path] = at
            if isinstance(brought, dict):
                merged |= brought
        return merged


def _short(tag: str) -> str:
    name = tag.removeprefix(_TAG)
    words = {"bool": "true or false", "timestamp": "a date", "int": "a whole number", "float": "a number"}
    return words.get(name, name)
