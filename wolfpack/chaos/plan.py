"""Which fault is given when: drawn from a seed alone, so a run can be made again with the same faults.

Each kind of fault has a stream of chance of its own: one more kill of a unit does not move the kills of the alpha.
A fault becomes due at a share of the work done, not at a time, so a slow machine sees the same faults as a fast one.
Which process it meets is also drawn here, as a number from 0 to 1 that picks among those there are when it is given.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")

# The first faults wait for the first results, and the last ones leave work to survive them.
FIRST_SHARE, LAST_SHARE = 0.02, 0.95
FREEZE_LEAST_S, FREEZE_MOST_S = 1.0, 4.0
TASK_LEAST_S, TASK_MOST_S = 0.001, 0.050


class Kind(StrEnum):
    """What a fault does. The values are the options of the command, without dashes."""

    ALPHA = "kill_alpha"  # SIGKILL to the unit that leads
    UNIT = "kill_units"  # SIGKILL to a unit that does not lead
    HANDS = "kill_hands"  # SIGKILL to a process in which user code runs
    FREEZE = "freeze"  # SIGSTOP to a unit, and SIGCONT after a while
    KEEPER = "kill_keeper"  # SIGKILL to the keeper


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    kind: Kind
    # Given when this share of the tasks asked for has ended.
    share: float
    # From 0 to 1: which of the possible targets.
    draw: float
    # FREEZE: for so long; and whether it meets the alpha, if it can.
    freeze_s: float = 0.0
    at_alpha: bool = False


def plan_faults(counts: Mapping[Kind, int], seed: int) -> tuple[Fault, ...]:
    """All faults of a run, in the order in which they become due."""
    faults: list[Fault] = []
    for kind, count in counts.items():
        chance = random.Random(f"{seed}/{kind.value}")
        for _ in range(count):
            share, draw = chance.uniform(FIRST_SHARE, LAST_SHARE), chance.random()
            freeze_s, at_alpha = chance.uniform(FREEZE_LEAST_S, FREEZE_MOST_S), chance.random() < 0.5
            is_freeze = kind is Kind.FREEZE
            faults.append(
                Fault(
                    kind=kind, share=share, draw=draw, freeze_s=freeze_s if is_freeze else 0.0,
                    at_alpha=at_alpha and is_freeze,
                )
            )  # fmt: skip
    return tuple(sorted(faults, key=lambda fault: (fault.share, fault.kind)))


def choose(targets: Sequence[T], draw: float) -> T | None:
    """The target that a draw from 0 to 1 means; None where there is none."""
    return targets[min(int(draw * len(targets)), len(targets) - 1)] if targets else None


def task_seconds(seed: int, number: int) -> float:
    """How long the task of this number takes."""
    return random.Random(f"{seed}/task/{number}").uniform(TASK_LEAST_S, TASK_MOST_S)
