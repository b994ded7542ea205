"""Every history of a small pack: breadth-first over all interleavings of the real succession and the real book.

    python -m wolfpack.sim.exhaustive                     # every history with few alarms
    python -m wolfpack.sim.exhaustive --everywhere        # any number of alarms

Theory of operation. Three units, a keeper, one task. A transition lets one of them do one thing: read a letter, ring
an alarm, make a turn, finish the task. What was said stays readable for ever, so each letter arrives at once, late, out
of order, again and again, or never: loss, doubling, reordering, delay and lost replies need no transitions of their
own. Nor does a crash: a process that crashed is one that never moves again, and its unit may be born anew while the old
process still moves (a crash that was none). Alarms ring at any moment and in any order, and the keeper holds any
incumbent for silent when it likes, so whatever clocks and pauses do is covered too. After Lamport's specification of
Paxos (a set of messages that only grows) and its checker, TLC.

Two searches, each complete within its `Bounds` unless it says otherwise:

- `explore`: states are what each process is, what the keeper is, and what was said. Alarms are bounded: the processes
  multiply each other. A state is dropped if another one covers it, with the same parts and no less said or left.
- `cover`: states are what the keeper is and what was said. Each process is everywhere it could have got to by reading
  what was said, with any number of alarms, and says all it could say there; histories that make the same keeper are
  one. That is more than real ones allow (a process may be in two places), so what holds here holds in all of them; only
  a finding could be spurious.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from operator import le
from typing import Any, NamedTuple

from wolfpack.core.wire import Claim
from wolfpack.errors import CallerError
from wolfpack.sim.exhaustive_keeper import EXPIRED, ROUSED
from wolfpack.sim.exhaustive_process import Process
from wolfpack.sim.exhaustive_tables import Broken, Move, Tables, bits, name_of
from wolfpack.sim.exhaustive_words import EVERYBODY, KEEPER, Hello

Progress = Callable[[int], object]
PROGRESS_S = 1.0
APART = 20_000  # states: so far a search goes for a better story


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


class Explore(Search):
    """Every history: each process is in one place."""

    def _successors(self, at: int) -> list[tuple[int, Move, State]]:
        """All that can happen next. If something only adds to what was said, that alone: it covers this state."""
        state, found = self.states[at], []
        for slot in range(-1, len(state.processes)):
            for move, after in self._keeper_successors(state) if slot < 0 else self._process_successors(state, slot):
                if after.left is state.left and after[:2] == state[:2]:
                    return [(slot, move, after)]
                found.append((slot, move, after))
        return found

    def _process_successors(self, state: State, slot: int) -> Iterator[tuple[Move, State]]:
        tables, left = self.tables, state.left
        number = state.processes[slot]
        process = tables.processes[number]
        mail = tables.readable(EVERYBODY, 0) | tables.readable(process.unit, process.boot)
        for letter in bits((state.said & mail | self._talk(state)) & ~tables.idle[number]):
            yield from self._process_does(state, slot, Move("reads", letter), left)
            if tables.may_age(process, letter):
                yield from self._process_does(state, slot, Move("reads late", letter), left)
        if left.alarms:
            for alarm in process.alarms():
                yield from self._process_does(state, slot, Move("rings", alarm), left.less("alarms"))
        if process.lease:
            yield from self._process_does(state, slot, Move("works"), left)
        if process.leads and process.turns < self.bounds.turns:
            yield from self._process_does(state, slot, Move("turns"), left)
        if process.leads and left.leaves:
            yield from self._process_does(state, slot, Move("leaves"), left.less("leaves"))

    def _process_does(self, state: State, slot: int, move: Move, left: Left) -> Iterator[tuple[Move, State]]:
        before = state.processes[slot]
        number, said = self.tables.process_move(move, before)
        if number == before and said | state.said == state.said:
            return
        self.tables.check_crowns(said & ~state.said, state.keeper, move, slot)
        processes = (*state.processes[:slot], number, *state.processes[slot + 1 :])
        yield move, State(processes, state.keeper, state.said | said, left)

    def _tell(self, at: int, broken: Broken) -> tuple[str, ...]:
        story = [self._line(self.states[at], broken.slot, broken.move, None)]
        while (parent := self._parents[at])[0] >= 0:
            story.append(self._line(self.states[parent[0]], parent[1], parent[2], self.states[at]))
            at = parent[0]
        return tuple(reversed(story))

    def _line(self, before: State, slot: int, move: Move, after: State | None) -> str:
        processes = self.tables.processes
        who = "The keeper" if slot < 0 else name_of(processes[before.processes[slot]])
        if after is None:
            return self.tables.line(who, move) + ": here it breaks"
        now = processes[after.processes[slot]] if slot >= 0 else None
        return self.tables.line(who, move, after.said & ~before.said, now)


class Cover(Search):
    """Each process is everywhere it could be. `joined`: all histories that make the same keeper are one."""

    def __init__(self, bounds: Bounds, *, joined: bool) -> None:
        self._joined = joined
        self._whole: dict[tuple[tuple[int, ...], int, Left], int] = {}
        self._reached: dict[int, tuple[int, tuple[int, ...]]] = {}  # of a state the letters read, and who got where
        self._may_leave = bounds.leaves > 0
        super().__init__(replace(bounds, alarms=0, leaves=0))

    def _add(self, state: State, parent: int, slot: int, move: Move) -> bool:
        """Takes a state in; joined, it adds what was said to the one that is known with the same keeper."""
        key = state.processes, state.keeper, state.left
        number = self._whole.get(key) if self._joined else None
        if number is None:
            added = super()._add(state, parent, slot, move)
            if added:
                self._whole[key] = len(self.states) - 1
            return added
        said = self.states[number].said
        if state.said | said == said:
            return False
        self.states[number] = state._replace(said=state.said | said)
        self._covered[number] = 0
        self._queues[self._all_left - sum(state.left)].append(number)
        return True

    def _successors(self, at: int) -> list[tuple[int, Move, State]]:
        """The processes say all they can say; then the keeper moves."""
        state = self.states[at]
        closed = self._close(state, at)
        if closed.said != state.said:
            return [(-1, Move("waits"), closed)]
        return [(-1, move, after) for move, after in self._keeper_successors(state)]

    def _close(self, state: State, at: int) -> State:
        """What was said, and all that can be said because of it. What was read on the way here is not read again."""
        tables, said = self.tables, state.said
        talk = self._talk(state)
        seen, reached = 0, [0] * len(state.processes)
        origin = at if at in self._reached else self._parents[at][0]
        if origin in self._reached:
            seen, known = self._reached[origin]
            reached[: len(known)] = known
        fresh = [1 << number for number in state.processes]  # of each slot the processes that did not move yet
        fresh = [new & ~old for new, old in zip(fresh, reached, strict=True)]
        while True:
            news = (said | talk) & ~seen
            before = said
            for slot, birth in enumerate(state.processes):
                who = tables.processes[birth]
                mail = tables.readable(EVERYBODY, 0) | tables.readable(who.unit, who.boot)
                for number in bits(reached[slot]):
                    for move in self._reads(number, news & mail):
                        after, more = self._step(state, slot, number, move, said)
                        said |= more
                        fresh[slot] |= 1 << after & ~reached[slot]
                while fresh[slot]:
                    number = (fresh[slot] & -fresh[slot]).bit_length() - 1
                    reached[slot] |= 1 << number
                    fresh[slot] &= ~reached[slot]
                    for move in (*self._reads(number, (seen | news) & mail), *self._acts(number)):
                        after, more = self._step(state, slot, number, move, said)
                        said |= more
                        fresh[slot] |= 1 << after & ~reached[slot]
            seen |= news
            if said == before:
                break
        self._reached[at] = seen, tuple(reached)
        return state._replace(said=said)

    def _step(self, state: State, slot: int, number: int, move: Move, said: int) -> tuple[int, int]:
        after, more = self.tables.process_move(move, number)
        if more & ~said:
            self.tables.check_crowns(more & ~said, state.keeper, move, slot)
        return after, more

    def _reads(self, number: int, letters: int) -> Iterator[Move]:
        tables = self.tables
        for letter in bits(letters & ~tables.idle[number]):
            yield Move("reads", letter)
            if tables.may_age(tables.processes[number], letter):
                yield Move("reads late", letter)

    def _acts(self, number: int) -> Iterator[Move]:
        process = self.tables.processes[number]
        yield from (Move("rings", alarm) for alarm in process.alarms())
        if process.lease:
            yield Move("works")
        if process.leads and process.turns < self.bounds.turns:
            yield Move("turns")
        if process.leads and self._may_leave:
            yield Move("leaves")

    # --- telling --------------------------------------------------------------------------------------------------

    def _tell(self, at: int, broken: Broken) -> tuple[str, ...]:
        path = [at]
        while self._parents[path[-1]][0] >= 0:
            path.append(self._parents[path[-1]][0])
        path.reverse()
        story: list[str] = []
        for before, after in pairwise(path):
            _, move, state = self._parents[after][1], self._parents[after][2], self.states[before]
            if move.verb != "waits":
                story += self._why(state, move)
                story.append(self.tables.line("The keeper", move, self.states[after].said & ~state.said))
        if broken.slot < 0:
            story += self._why(self.states[at], broken.move)
            story.append(self.tables.line("The keeper", broken.move) + ": here it breaks")
        else:
            story += self._way(self.states[at], broken.slot, None, broken.move)
        return tuple(story)

    def _why(self, state: State, move: Move) -> list[str]:
        """How the letter that the keeper reads came to be written: one way of its sender's through its states."""
        if not move.verb.startswith("reads"):
            return []
        letter = self.tables.letters[move.what]
        boot = letter.what.boot
        for slot, birth in enumerate(state.processes):
            if self.tables.processes[birth].who == (letter.by, boot):
                return self._way(state, slot, move.what, None)
        return []

    def _way(self, state: State, slot: int, letter: int | None, last: Move | None) -> list[str]:
        """The shortest way of a process to say this letter, or to make this last move."""
        tables, birth = self.tables, state.processes[slot]
        who = tables.processes[birth]
        mail = tables.readable(EVERYBODY, 0) | tables.readable(who.unit, who.boot)
        queue, ways = deque([birth]), {birth: list[str]()}
        name = f"  {name_of(who)}"
        while queue:
            number = queue.popleft()
            for move in (*self._reads(number, (state.said | self._talk(state)) & mail), *self._acts(number)):
                after, more = tables.process_move(move, number)
                way = [*ways[number], tables.line(name, move, 0, tables.processes[after])]
                if move == last and more & tables.crowns:
                    return [*way[:-1], tables.line(name, move, more) + ": here it breaks"]
                if letter is not None and more >> letter & 1:
                    return [*way[:-1], tables.line(name, move, 1 << letter)]
                if after not in ways:
                    ways[after] = way
                    queue.append(after)
        return []


def explore(bounds: Bounds | None = None, progress: Progress = lambda _: None) -> Result:
    """Searches every history within the bounds; stops at the first that breaks an invariant."""
    return Explore(bounds or Bounds()).run(progress)


def cover(bounds: Bounds | None = None, progress: Progress = lambda _: None) -> Result:
    """Searches all that the keeper can live through, whatever its units do; stops where an invariant breaks."""
    result = Cover(bounds or Bounds(), joined=True).run(progress)
    if result.finding is None:
        return result
    apart = Cover(replace(result.bounds, states=APART), joined=False).run()  # its story is that of one history
    return apart if apart.finding is not None else result


class Told:
    """How many states are known, on one line of a terminal."""

    def __init__(self) -> None:
        self.states = 0
        self._shown = sys.stderr.isatty()
        self._next = time.monotonic() + PROGRESS_S

    def __call__(self, states: int) -> None:
        self.states = states
        if self._shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_S
            print(f"\r{states:,} states so far", end="", file=sys.stderr, flush=True)

    def wipe(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m wolfpack.sim.exhaustive", description=str(__doc__).split("\n")[0])
    parser.add_argument("--everywhere", action="store_true", help="each process is everywhere it could be: any alarms")
    for bound in fields(Bounds):
        text = f"{bound.metadata['help']} (default: {bound.default})"
        parser.add_argument(f"--{bound.name}", type=int, default=bound.default, metavar="N", help=text)
    options = vars(parser.parse_args(argv))
    search = cover if options.pop("everywhere") else explore
    try:
        bounds = Bounds(**options)
    except CallerError as exc:
        parser.error(f"argument --{exc}")
    told = Told()
    try:
        result = search(bounds, told)
    except KeyboardInterrupt:
        told.wipe()
        print(f"Interrupted after {told.states:,} states; the search is not complete.", file=sys.stderr)
        return 130
    told.wipe()
    print(result)
    if result.finding is not None:
        return 1
    return 0 if result.complete else 3


if __name__ == "__main__":
    sys.exit(main())
