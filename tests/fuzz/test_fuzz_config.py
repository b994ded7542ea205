"""pack.yaml of any bytes: read into a den that can be kept, or refused with every place."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fuzz.config import GOOD, Config, laughs, merges
from tests.fuzz.fuzzer import campaign
from wolfpack.config import load
from wolfpack.errors import ConfigError

INPUTS = 80


def test_spoiled_files_are_read_or_refused_and_counted() -> None:
    door = Config()
    try:
        tally = campaign(door, 1, inputs=INPUTS)
    finally:
        door.close()
    print(tally)
    assert not tally.failures, tally.told()
    assert tally.refused + tally.accepted == INPUTS
    assert min(tally.refused, tally.accepted) > 0


def test_the_good_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "pack.yaml").write_bytes(GOOD)
    assert "timber" == load(tmp_path / "pack.yaml").den


@pytest.mark.parametrize(
    "content",
    [laughs(9, 30), merges(400), b"a: &a [*a]\n", b"a: &a {<<: *a}\n", b"[" * 200_000, b"? " * 90_000, b"- " * 90_000],
    ids=["laughs", "merges", "a list in itself", "a mapping in itself", "brackets", "keys", "dashes"],
)
def test_a_file_that_means_more_than_it_holds_is_refused_in_time(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "pack.yaml"
    file.write_bytes(content)
    began = time.process_time()
    with pytest.raises(ConfigError):
        load(file)
    assert time.process_time() - began < 10.0


def test_a_ledger_that_can_lie_nowhere_is_a_fault_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "pack.yaml"
    file.write_bytes(GOOD.replace(b".wolfpack/timber.db", b"9" * 300))
    with pytest.raises(ConfigError, match=r"pack\.yaml:2:9: ledger: no ledger can lie there"):
        load(file)
