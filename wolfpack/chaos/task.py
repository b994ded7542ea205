"""The checked task. It runs in the hands of units, so this module imports nothing heavy.

Its answer is a function of its key, so a wrong or mixed-up result shows. It carries the number of the lease it ran
under, so two results of one task differ, and it shows if one was replaced by another. Each start and each end leaves a
line in one file, whatever the den believes about it: a line is written by a single `write` in append mode, which Linux
does not mix with others, and it stays when the process is killed the moment after.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import wolfpack

BEGAN, ENDED = "began", "ended"


class Result(NamedTuple):
    """What a checked task returns."""

    answer: str
    lease_no: int
    host: str


class Line(NamedTuple):
    """One line of the record of starts."""

    what: str  # BEGAN or ENDED
    key: str
    lease_no: int
    unit: str
    pid: int


def answer_to(key: str) -> str:
    """What a task with this key must answer."""
    return hashlib.blake2b(key.encode(), digest_size=8).hexdigest()


def checked(record: str, key: str, seconds: float) -> Result:
    """Takes its time and answers; leaves its lines in the file `record` if that is on this machine."""
    task = wolfpack.current()
    note(record, Line(BEGAN, key, task.lease_no, task.unit, os.getpid()))
    time.sleep(seconds)
    note(record, Line(ENDED, key, task.lease_no, task.unit, os.getpid()))
    return Result(answer_to(key), task.lease_no, socket.gethostname())


def note(record: str, line: Line) -> None:
    """Adds a line to the record, which must be there: on another machine it is not, and nothing is written."""
    try:
        file = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.write(file, (" ".join(map(str, line)) + "\n").encode())
    finally:
        os.close(file)


def read_record(record: Path) -> list[Line]:
    """All lines of a record."""
    return list(parse(record.read_text().splitlines()))


def parse(lines: Iterable[str]) -> Iterator[Line]:
    for text in lines:
        what, key, lease_no, unit, pid = text.split(" ")
        yield Line(what, key, int(lease_no), unit, int(pid))
