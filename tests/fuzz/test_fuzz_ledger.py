"""Ledger files of any bytes, and rows that say anything: refused, or every task as it was written."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fuzz.fuzzer import campaign
from tests.fuzz.ledger import LedgerBytes, LedgerRows

INPUTS = 25


@pytest.mark.parametrize("kind", [LedgerBytes, LedgerRows])
def test_P44_spoiled_ledgers_are_refused_or_tell_the_truth(kind: Any) -> None:
    door = kind()
    try:
        tally = campaign(door, 1, inputs=INPUTS)
    finally:
        door.close()
    print(tally)
    assert not tally.failures, tally.told()
    assert tally.refused + tally.accepted == INPUTS
    assert min(tally.refused, tally.accepted) > 0
