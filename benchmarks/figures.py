"""What both benchmarks share: medians and percentiles, and the den they measure."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import wolfpack

# Units take no logical CPUs, so that plain Ray tasks find the same free machine.
PACK_YAML = """
den: {den}
ledger: sqlite:///{den}.db
units:
  grey: {{count: {units}, offers: [cpu], awake_min: {units}, ray: {{num_cpus: 0}}}}
packs:
  bench: {{size: [{units}, {units}], needs: [cpu]}}
"""


@contextmanager
def open_den(den: str, units: int) -> Iterator[wolfpack.Den]:
    """A den with one pack, `bench`, whose units are all awake and members, and a ledger on the local disk."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pack.yaml")
        file.write_text(PACK_YAML.format(den=den, units=units))
        with wolfpack.open(str(file)) as opened:
            wait_until(lambda: has_members(opened.pack("bench"), units), 60, f"{units} members and an alpha")
            yield opened


def has_members(pack: wolfpack.Pack, count: int) -> bool:
    """Whether so many units are in the pack, one of them its alpha."""
    members = [unit for unit in pack.den.units() if unit.pack == pack.name and unit.readiness == "awake"]
    return len(members) >= count and any(unit.role == "alpha" for unit in members)


def wait_until(holds: Callable[[], bool], patience_s: float, what: str, every_s: float = 0.02) -> None:
    """Waits for a condition.

    Raises:
        TimeoutError: it did not come true in time.
    """
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {patience_s:g} s: {what}")
        time.sleep(every_s)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of all values do not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def spread(values: Sequence[float], digits: int = 4) -> dict[str, Any]:
    """Median, least and greatest, and every value in the order measured."""
    return {
        "median": round(statistics.median(values), digits),
        "min": round(min(values), digits),
        "max": round(max(values), digits),
        "values": [round(value, digits) for value in values],
    }
