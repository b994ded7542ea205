"""Plans that once broke a promise, each made small by `wolfpack sim sweep --out`: they keep it now."""

from __future__ import annotations

from pathlib import Path

import pytest

from wolfpack.sim.replay import replay

PLANS = sorted((Path(__file__).parent / "once_broken").glob("*.json"))


@pytest.mark.parametrize("path", PLANS, ids=[path.stem for path in PLANS])
def test_a_plan_that_once_broke_a_promise_keeps_it(path: Path) -> None:
    assert replay(path).violation is None


def test_there_are_plans() -> None:
    assert len(PLANS) >= 3
