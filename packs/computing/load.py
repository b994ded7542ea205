"""When tasks arrive: schedules as plain lists of offsets in seconds, one a task, in rising order.

`burst` is all at once, `steady` is evenly spread, `trace` follows a real day: the arrivals of one day of the NASA Ames
iPSC/860 log of 1993 (Parallel Workloads Archive, see `data/README.md`), with the day compressed into `seconds`. A day
in one minute is a factor of 1440. Day 67 is a busy one: 620 jobs, most of them between 8:00 and 20:00, nearly none at
night. Where the number of tasks is not the number of jobs, the tasks take the quantiles of the same curve, so its
shape stays.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

DAY_S = 86_400
LOG_NAME = "NASA-iPSC-1993-3.1-cln.swf.gz"


class SwfJob(NamedTuple):
    """One job of a Standard Workload Format log: the fields that a replay needs; -1 where the log does not know."""

    number: int
    submit_s: int  # since the log began
    run_s: int
    processors: int


def parse_swf(lines: Iterable[str]) -> Iterator[SwfJob]:
    """Reads jobs from the lines of an SWF log; comments (`;`) and empty lines are passed over.

    Raises:
        ValueError: a line has fewer than five fields, or one of the five is no number; it names the line.
    """
    for number, line in enumerate(lines, start=1):
        fields = line.split()
        if not fields or fields[0].startswith(";"):
            continue
        try:
            job_number, submit_s, _wait_s, run_s, processors = (int(float(item)) for item in fields[:5])
        except ValueError as exc:
            raise ValueError(
                f"line {number} of the log is no job in Standard Workload Format: {line.strip()!r}"
            ) from exc
        yield SwfJob(job_number, submit_s, run_s, processors)


@cache
def read_log() -> tuple[SwfJob, ...]:
    """All jobs of the NASA Ames iPSC/860 log that comes with this pack."""
    packed = (files("packs.computing") / "data" / LOG_NAME).read_bytes()
    return tuple(parse_swf(gzip.decompress(packed).decode("utf-8").splitlines()))


def arrivals_of(jobs: Iterable[SwfJob], day: int) -> list[int]:
    """Seconds since midnight at which the jobs of one day arrived, sorted; day 0 is the log's first."""
    return sorted(job.submit_s - day * DAY_S for job in jobs if job.submit_s // DAY_S == day)


def quantiles(values: Sequence[float], n: int) -> list[float]:
    """`n` values with the same distribution as the sorted `values`, by linear interpolation between neighbours.

    The first and last stay the first and last; for `n == len(values)` the values themselves come back, for `n == 1` the
    median (Hyndman and Fan 1996, definition 7).
    """
    last = len(values) - 1
    positions = [last / 2] if n == 1 else [index * last / (n - 1) for index in range(n)]
    picked = []
    for position in positions:
        low = int(position)
        high = min(low + 1, last)
        picked.append(values[low] + (values[high] - values[low]) * (position - low))
    return picked


def burst(n: int) -> list[float]:
    """All tasks at once."""
    return [0.0] * n


def steady(n: int, seconds: float = 60.0) -> list[float]:
    """Evenly spread: the first at once, and one every `seconds / n`."""
    return [index * seconds / n for index in range(n)]


def trace(n: int, seconds: float = 60.0, day: int = 67) -> list[float]:
    """The arrivals of one day of the NASA log, midnight to midnight compressed into `seconds`.

    Raises:
        ValueError: nothing arrived on that day.
    """
    arrivals = arrivals_of(read_log(), day)
    if not arrivals:
        raise ValueError(f"the log {LOG_NAME} has no jobs on day {day}; its days are 0 to 91")
    return [at * seconds / DAY_S for at in quantiles(arrivals, n)] if n else []


SCHEDULES = {"burst": burst, "steady": steady, "trace": trace}
