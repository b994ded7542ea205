"""The shared fuzzer: nearly valid inputs, spoiled by chance, given to a door, and counted.

A `Door` makes the input number N of a seed and tries it. Chance comes from (seed, door, N) alone, so each input can be
made again: `python -m tests.fuzz --door NAME --seed S --only N`. What a door may do with an input is to take it or to
refuse it with an error of the right kind; everything else, and to think about it for too long, is a failure.
"""

from __future__ import annotations

import random
import shlex
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from types import FrameType
from typing import Any, NamedTuple, Protocol

PATIENCE_S = 20.0  # an input that takes longer hangs its door
FAILURES_KEPT = 20


class Door(Protocol):
    """Something that takes inputs from anybody."""

    name: str
    refusals: tuple[type[Exception], ...]  # of the right kind

    def make(self, rng: random.Random) -> Any:
        """One input, from chance alone."""

    def attempt(self, given: Any) -> None:
        """Gives the input in, and looks that nothing is silently wrong. What it raises of `refusals` is a refusal."""


class Hung(BaseException):
    """The input keeps its door busy for too long."""


class Failure(NamedTuple):
    number: int  # of the input, for `--only`
    given: str
    trouble: str


@dataclass(slots=True)
class Tally:
    door: str
    seed: int
    inputs: int = 0
    refused: int = 0
    accepted: int = 0
    failures: list[Failure] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.door} (seed {self.seed}): {self.inputs} inputs, {self.refused} refused, {self.accepted} accepted, "
            f"{len(self.failures)} failures"
        )

    def told(self) -> str:
        """The failures, each with how to see it again."""
        return "\n".join(
            f"python -m tests.fuzz --door {shlex.quote(self.door)} --seed {self.seed} --only {each.number}\n"
            f"given: {each.given}\n{each.trouble}"
            for each in self.failures
        )


def campaign(
    door: Door, seed: int, *, inputs: int | None = None, seconds: float | None = None, only: int | None = None
) -> Tally:
    """Tries inputs 0, 1, 2 and so on, up to a number of them or for some time, or one alone."""
    tally = Tally(door.name, seed)
    end = time.monotonic() + seconds if seconds is not None else float("inf")
    numbers: Iterable[int] = (only,) if only is not None else count() if inputs is None else range(inputs)
    for number in numbers:
        if time.monotonic() >= end or len(tally.failures) >= FAILURES_KEPT:
            break
        given = door.make(random.Random(f"{seed}:{door.name}:{number}"))
        tally.inputs += 1
        try:
            with time_limit(PATIENCE_S):
                door.attempt(given)
        except door.refusals as exc:
            if str(exc).strip():
                tally.refused += 1
            else:
                tally.failures.append(Failure(number, repr(given)[:1000], f"a refusal that says nothing: {exc!r}"))
        except (Exception, Hung):
            tally.failures.append(Failure(number, repr(given)[:1000], traceback.format_exc()[-3000:]))
        else:
            tally.accepted += 1
    return tally


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises `Hung` in the middle of whatever takes longer; only where signals reach: in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_alarm(_: int, frame: FrameType | None) -> None:
        raise Hung(f"still busy after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, on_alarm)
    former_s, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    began = time.monotonic()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if former_s:  # somebody else's limit on this test goes on
            signal.setitimer(signal.ITIMER_REAL, max(0.001, former_s - (time.monotonic() - began)))


# --- bytes --------------------------------------------------------------------------------------------------------

EXTREMES = (
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b"\xfe\xff",
)


def spoil_bytes(rng: random.Random, data: bytes, other: bytes = b"") -> bytes:
    """One to a few changes: flip, set, cut, cut out, insert, double, splice with another, swap, zero, extremes."""
    spoiled = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(spoiled) + 1)
        most = rng.choice((1, 4, 16, 256, 4096))
        part = slice(at, at + rng.randint(1, most))
        match rng.randrange(11):
            case 0 if at < len(spoiled):
                spoiled[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(spoiled):
                spoiled[at] = rng.randrange(256)
            case 2:
                del spoiled[at:]
            case 3:
                del spoiled[part]
            case 4:
                spoiled[at:at] = rng.randbytes(rng.randint(1, min(most, 64)))
            case 5:
                spoiled[at:at] = spoiled[part] * rng.choice((1, 1, 2, 10))
            case 6:
                start = rng.randrange(len(other) + 1)
                spoiled[part] = other[start : start + most]
            case 7:
                to = rng.randrange(len(spoiled) + 1)
                piece = spoiled[part]
                del spoiled[part]
                spoiled[to:to] = piece
            case 8:
                size = len(spoiled[part])
                spoiled[part] = bytes(size)
            case 9:
                extreme = rng.choice(EXTREMES)
                spoiled[at : at + len(extreme)] = extreme
            case _:
                spoiled[at:at] = rng.choice(EXTREMES) * rng.choice((1, 3, 100))
    return bytes(spoiled)


# --- values -------------------------------------------------------------------------------------------------------


def deep(levels: int) -> Any:
    """A list in a list in a list."""
    value: Any = ()
    for _ in range(levels):
        value = (value,)
    return value


# What no field expects: of every type, the ends of every range.
HOSTILE: tuple[Callable[[random.Random], Any], ...] = (
    lambda rng: None,
    lambda rng: rng.random() < 0.5,
    lambda rng: rng.choice((0, 1, -1, 2**31, 2**53, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))),
    lambda rng: rng.choice((0.0, -0.0, 1e308, -1e308, 5e-324, 0.1)),
    lambda rng: rng.choice((float("nan"), float("inf"), float("-inf"))),
    lambda rng: rng.choice(
        ("", " ", "\x00", "a\x00b", "\ud800", "²", "٣", "a" * 300, "x" * 70_000, "../../etc/passwd")
    ),
    lambda rng: rng.choice(("{}", "[]", "null", "NaN", "1e999", '{"a":', "[" * 2000 + "]" * 2000, "[" * 30_000)),
    lambda rng: rng.choice(("\u202eabc", "\x1b[2J", "a:b", "grey-0", "p", "DONE", "pack:p", "1" * 5000, "os:system")),
    lambda rng: rng.choice((b"", b"\x00", b"\xff" * 9, b"x" * 5000, b"\xc1", b"\x80\x05.")),
    lambda rng: (),
    lambda rng: ((),) * rng.choice((1, 2, 12, 1000)),
    lambda rng: rng.choice(({}, {"a": 1}, {"": None})),
    lambda rng: deep(rng.choice((1, 10, 400))),
    lambda rng: tuple(range(rng.choice((1, 2, 10, 5000)))),
)


def hostile(rng: random.Random) -> Any:
    return rng.choice(HOSTILE)(rng)


def spoil_value(rng: random.Random, value: Any) -> Any:
    """The value with one to three of its parts, at any depth, replaced, taken out, doubled, swapped or wrapped."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        value = _spoil_one(rng, value)
    return value


def _spoil_one(rng: random.Random, value: Any) -> Any:
    if isinstance(value, tuple) and value and rng.random() < 0.85:
        parts = list(value)
        at = rng.randrange(len(parts))
        if rng.random() < 0.8:
            parts[at] = _spoil_one(rng, parts[at])
        else:
            match rng.randrange(5):
                case 0:
                    del parts[at]
                case 1:
                    parts[at:at] = [parts[at]] * rng.choice((1, 2, 50))
                case 2:
                    other = rng.randrange(len(parts))
                    parts[at], parts[other] = parts[other], parts[at]
                case 3:
                    parts[at] = (parts[at],)
                case _:
                    parts.append(hostile(rng))
        return tuple(parts)
    if isinstance(value, str) and value and rng.random() < 0.3:
        at = rng.randrange(len(value) + 1)
        return value[:at] + rng.choice(("\x00", "\ud800", "}", '"', "\u202e", "9" * 40, "²", " ")) + value[at:]
    if type(value) in (int, float) and rng.random() < 0.4:
        return rng.choice((-value, value + 1, value * 2**40, float(value), str(value), -1))
    return hostile(rng)
