"""What both exhaustive searches share: bounds, states, what was found, and the search itself. See `exhaustive`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from operator import le
from typing import Any, NamedTuple

from wolfpack.core.wire import Claim
from wolfpack.errors import CallerError
from wolfpack.sim.exhaustive_keeper import EXPIRED, ROUSED
from wolfpack.sim.exhaustive_process import Process
from wolfpack.sim.exhaustive_tables import Broken, Move, Tables, bits
from wolfpack.sim.exhaustive_words import KEEPER, Hello

CHOICES_MOST = 1000  # of one kind in a history
Progress = Callable[[int], object]


def _bound(default: int, text: str, *, least: int = 0) -> Any:
    return field(default=default, metadata={"help": text, "least": least})


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How far a search goes. The first six are numbers of choices over one whole history.

    Raises:
        CallerError: a bound is below the least that it can be.
    """

    alarms: int = _bound(
        1, "rings of any unit's alarm (silence, answer, retry, claim, ...); no bound with --everywhere"
    )
    leaves: int = _bound(0, "an alpha goes on purpose and hands over; with --everywhere any number may, or none")
    hints: int = _bound(0, "hints of a process' death, true or not: to the keeper and to the pack")
    births: int = _bound(0, "new boots of a unit that a hint ended; its old process may live on")
    ticks: int = _bound(0, "of the keeper: one kind asks somebody to lead, the other ends leases that were not listed")
    restarts: int = _bound(0, "deaths of the keeper; the next one knows what was committed")
    turns: int = _bound(1, "turns of each process")
    terms: int = _bound(2, "claims of later terms are not sent", least=1)
    states: int = _bound(1_000_000, "give up after so many states; the search is then not complete", least=1)

    def __post_init__(self) -> None:
        for bound in fields(self):
            value, least = getattr(self, bound.name), bound.metadata["least"]
            if value < least:
                raise CallerError(f"{bound.name} must be at least {least}, not {value}")
            if value > CHOICES_MOST and bound.name != "states":
                raise CallerError(f"{bound.name} must be at most {CHOICES_MOST}, not {value}")
        if self.births and not self.hints:
            raise CallerError("births needs hints of at least 1: only a unit that a hint ended is born anew")


class Left(NamedTuple):
    """What is left of the choices."""

    alarms: int
    leaves: int
    hints: int
    births: int
    ticks: int
    restarts: int

    def less(self, choice: str) -> Left:
        return self._replace(**{choice: getattr(self, choice) - 1})


class State(NamedTuple):
    processes: tuple[int, ...]  # what each is; of `cover`: what each was at its birth
    keeper: int
    said: int  # a set of letters
    left: Left


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A broken invariant, and a history that breaks it: the fewest choices first, then the fewest steps."""

    invariant: str
    text: str
    story: tuple[str, ...]

    def __str__(self) -> str:
        steps = "\n".join(f"{number:3d}. {line}" for number, line in enumerate(self.story, 1))
        return f"Broken: {self.text}\n{steps}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    bounds: Bounds
    states: int
    transitions: int
    depth: int  # of the longest of the shortest histories
    complete: bool
    parts: tuple[int, int, int]  # distinct processes, keepers and letters
    wall_s: float
    finding: Finding | None = None

    def __str__(self) -> str:
        processes, keepers, letters = self.parts
        if self.finding is not None:
            end = str(self.finding)
        elif self.complete:
            end = "Complete: I1 to I8 hold in every history within the bounds."
        else:
            end = "Not complete: I1 to I8 hold as far as the search went."
        return (
            f"{self.states} states, {self.transitions} transitions, {self.depth} steps deep, {self.wall_s:.1f} s\n"
            f"({processes} states of a process, {keepers} of the keeper, {letters} letters)\n{end}"
        )


class Search:
    """What both searches share: the queue, the states that cover others, and the keeper's moves."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.tables = Tables(bounds.terms)
        left = Left(*(getattr(bounds, name) for name in Left._fields))
        self.states: list[State] = []
        self._parents: list[tuple[int, int, Move]] = []  # state, which process or -1 for the keeper, its move
        self._depths: list[int] = []
        self._covered = bytearray()  # states that another one covers
        self._alike: dict[tuple[tuple[int, ...], int], list[int]] = {}  # states not covered, by their parts
        self._queues: list[deque[int]] = [deque() for _ in range(sum(left) + 1)]  # by choices spent
        self._all_left = sum(left)
        self._add(State(self.tables.first_processes, self.tables.first_keeper, 0, left), -1, -1, Move("begins"))

    def run(self, progress: Progress = lambda _: None) -> Result:
        """Explores until nothing new is found, an invariant breaks, or `states` are known.

        Args:
            progress: called before each step, with how many states are known.
        """
        started = time.perf_counter()
        transitions, finding = 0, None
        while (at := self._next()) is not None and len(self.states) < self.bounds.states:
            progress(len(self.states))
            try:
                for slot, move, after in self._successors(at):
                    transitions += 1
                    self._add(after, at, slot, move)
            except Broken as broken:
                finding = Finding(
                    invariant=broken.violation.invariant, text=str(broken.violation), story=self._tell(at, broken)
                )
                break
        tables = self.tables
        return Result(
            bounds=self.bounds, states=len(self.states), transitions=transitions, depth=max(self._depths),
            complete=finding is None and at is None,
            parts=(len(tables.processes), len(tables.keepers), len(tables.letters)),
            wall_s=time.perf_counter() - started, finding=finding,
        )  # fmt: skip

    def _next(self) -> int | None:
        """The state to look at next: of those that spent the fewest choices the one that was found first."""
        for queue in self._queues:
            while queue:
                number = queue.popleft()
                if not self._covered[number]:
                    return number
        return None

    def _add(self, state: State, parent: int, slot: int, move: Move) -> bool:
        """Takes a state in, unless one that is known covers it: the same parts, and no less was said or is left."""
        alike = self._alike.setdefault((state.processes, state.keeper), [])
        said, left = state.said, state.left
        for number in alike:
            known = self.states[number]
            if said | known.said == known.said and all(map(le, left, known.left)):
                return False
        for number in alike[:]:
            known = self.states[number]
            if said | known.said == said and all(map(le, known.left, left)):
                self._covered[number] = 1
                alike.remove(number)
        alike.append(len(self.states))
        self._queues[self._all_left - sum(left)].append(len(self.states))
        self._depths.append(self._depths[parent] + 1 if parent >= 0 else 0)
        self._parents.append((parent, slot, move))
        self._covered.append(0)
        self.states.append(state)
        return True

    def _successors(self, at: int) -> list[tuple[int, Move, State]]:
        raise NotImplementedError

    def _tell(self, at: int, broken: Broken) -> tuple[str, ...]:
        raise NotImplementedError

    def _keeper_successors(self, state: State) -> Iterator[tuple[Move, State]]:
        left, tables = state.left, self.tables
        keeper = tables.keepers[state.keeper]
        for letter in bits(state.said & tables.readable(KEEPER, 0)):
            yield from self._keeper_does(state, Move("reads", letter), left)
            if isinstance(tables.letters[letter].what, Claim):
                yield from self._keeper_does(state, Move("reads, the alpha being silent,", letter), left)
        if left.ticks:
            for at in (ROUSED, EXPIRED):
                yield from self._keeper_does(state, Move("ticks", at), left.less("ticks"))
        if left.hints:
            for who in keeper.living:
                yield from self._keeper_does(state, Move("holds for dead", who), left.less("hints"))
        if left.births:
            for unit in keeper.asleep:
                yield from self._keeper_does(state, Move("wakes", unit), left.less("births"))
        if left.restarts:
            yield from self._keeper_does(state, Move("is born again"), left.less("restarts"))

    def _keeper_does(self, state: State, move: Move, left: Left) -> Iterator[tuple[Move, State]]:
        number, said = self.tables.keeper_move(move, state.keeper)
        if number == state.keeper and said | state.said == state.said:
            return
        processes = state.processes
        if move.verb == "wakes":
            (hello,) = (self.tables.letters[bit].what for bit in bits(said))
            assert isinstance(hello, Hello)
            processes = (*processes, self.tables.process_id(Process(unit=hello.unit, boot=hello.boot)))
        yield move, State(processes, number, state.said | said, left)

    def _talk(self, state: State) -> int:
        grants = len(self.tables.keepers[state.keeper].chronicle.grants)
        return self.tables.talk(grants, tuple(self.tables.processes[number].who for number in state.processes))
