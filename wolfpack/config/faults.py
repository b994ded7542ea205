"""A fault of a pack.yaml: where it is, and one sentence for the person who must mend it.

All faults of a file are collected before anything is raised, and shown in the order of the file, one a line:
`pack.yaml:12:7: units.grey.natur: unknown key; did you mean 'nature'?`. Lines and columns count from 1. A field path
joins keys with dots and shows places in lists in brackets; a key that is not plain text is shown quoted, so that a
fault never takes more than its one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, NamedTuple

from wolfpack.errors import ConfigError

FieldPath = tuple[str | int, ...]

_PLAIN_KEY = re.compile(r"[\w-]{1,80}")
_SHOWN_CHARS = 60
_SHOWN_NAMES = 20


class Spot(NamedTuple):
    line: int
    column: int


class Fault(NamedTuple):
    spot: Spot
    path: FieldPath
    text: str

    def line_of(self, file: str) -> str:
        where = f"{file}:{self.spot.line}:{self.spot.column}: "
        return where + (f"{dotted(self.path)}: " if self.path else "") + " ".join(self.text.split())


def config_error(file: str, faults: Iterable[Fault]) -> ConfigError:
    """All faults in one error, in the order of the file."""
    return ConfigError("\n".join(fault.line_of(file) for fault in sorted(faults, key=lambda fault: fault.spot)))


def dotted(path: FieldPath) -> str:
    """`units.grey.offers[0]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if _PLAIN_KEY.fullmatch(part) else _cut(repr(part)))
    return text


def did_you_mean(word: str, known: Iterable[str], what: str = "known here") -> str:
    """The nearest known word, or, where none is near, all of them; empty where nothing is known."""
    names = list(known)
    near = get_close_matches(word, names, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    if not names:
        return ""
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return f"; {what}: {', '.join(names[:_SHOWN_NAMES])}{more}"


def shown(value: Any) -> str:
    """A value as the person who wrote it would name it."""
    match value:
        case None:
            return "nothing (null)"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the text {_cut(repr(value))}"
        case int() | float():
            return f"the number {value}"
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."
