"""Whatever a file holds, reading it ends in a DenSpec or in a ConfigError with places, and a good den stays itself."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from wolfpack.config import load, schema
from wolfpack.errors import ConfigError
from wolfpack.model import DenSpec

DEFAULT = (Path(__file__).parent.parent / "pack.yaml").read_text(encoding="utf-8")
GOOD = yaml.safe_load(DEFAULT)

_PARTS = [schema(), *schema()["$defs"].values()]
KEYS = sorted({key for part in _PARTS for key in part.get("properties", {})})

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.dates()
    | st.sampled_from(["cpu", "wolf", "werewolf", "a:b", "memory://", "sqlite:///x", "sqlite:///", "fast", "wait"])
)
NAMES = st.sampled_from(KEYS) | st.text(max_size=5) | st.integers() | st.booleans() | st.none()
VALUES = st.recursive(
    SCALARS, lambda part: st.lists(part, max_size=3) | st.dictionaries(NAMES, part, max_size=4), max_leaves=12
)
# A busy machine is no fault of the reader.
patient = settings(deadline=None)
# For tests whose every example reads the whole default file.
brief = settings(deadline=None, max_examples=25)
# Pieces of YAML, put together without regard for grammar.
PIECES = st.sampled_from(
    [
        "den", ": ", "units", "\n", "  ", "- ", "[", "]", "{", "}", ", ", "&a ", "*a", "<<", "\t", "'", '"', "|", ">",
        "?", "#", "---", "...", "%YAML 1.2", "\\U", '"\\UFFFFFFFF"', "0x", "1", ".nan", "1:2", "=", "~", "2024-99-99",
        "!x ", "!!int ", "!!float ", "!!binary ", "!!timestamp ", "!!set ", "!!omap ", "!!python/none ",
        "\u2028", "\ufeff", "é",
    ]
)  # fmt: skip


def outcome_of(content: bytes) -> DenSpec | ConfigError:
    """Reads the content as a file; anything raised that is no ConfigError fails the test."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pack.yaml")
        file.write_bytes(content)
        try:
            return load(file)
        except ConfigError as error:
            lines = str(error).splitlines()
            assert lines
            for line in lines:
                assert line.startswith(f"{file}:")
            return error


@patient
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    outcome_of(content)


@patient
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(content: str) -> None:
    outcome_of(content.encode("utf-8", "surrogatepass"))


@patient
@given(st.lists(PIECES, max_size=25).map("".join))
def test_any_pieces_of_yaml_are_read_or_refused(content: str) -> None:
    outcome_of(content.encode())


@patient
@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_any_mapping_is_read_or_refused(content: dict[Any, Any]) -> None:
    outcome_of(yaml.safe_dump(content).encode())


@brief
@given(st.data())
def test_a_good_file_with_one_value_replaced_is_read_or_refused(data: st.DataObject) -> None:
    changed = yaml.safe_load(DEFAULT)
    part: Any = changed
    while True:
        places = list(part) if isinstance(part, dict) else list(range(len(part)))
        place = data.draw(st.sampled_from(places))
        inner = part[place]
        if not isinstance(inner, (dict, list)) or not inner or data.draw(st.booleans()):
            break
        part = inner
    part[place] = data.draw(VALUES)
    outcome_of(yaml.safe_dump(changed).encode())


@brief
@given(st.integers(0, len(DEFAULT) - 1), st.characters(exclude_categories=["Cs"]))
def test_a_good_file_with_one_character_replaced_is_read_or_refused(place: int, character: str) -> None:
    outcome_of((DEFAULT[:place] + character + DEFAULT[place + 1 :]).encode())


@brief
@given(st.sampled_from(["block", "flow"]), st.randoms(use_true_random=False))
def test_neither_style_nor_order_of_keys_changes_what_a_file_means(style: str, random: Any) -> None:
    keys = list(GOOD)
    random.shuffle(keys)
    text = yaml.safe_dump({key: GOOD[key] for key in keys}, default_flow_style=style == "flow", sort_keys=False)
    one, two = outcome_of(text.encode()), outcome_of(DEFAULT.encode())
    assert isinstance(one, DenSpec)
    assert isinstance(two, DenSpec)
    assert one.cards == two.cards
    assert one.packs == two.packs
    assert one.timing == two.timing
