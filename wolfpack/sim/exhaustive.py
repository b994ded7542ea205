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
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import fields

from wolfpack.errors import CallerError
from wolfpack.sim.exhaustive_cover import cover
from wolfpack.sim.exhaustive_search import Bounds, Left, Progress, Result, Search, State
from wolfpack.sim.exhaustive_tables import Broken, Move, bits, name_of
from wolfpack.sim.exhaustive_words import EVERYBODY

PROGRESS_S = 1.0


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


def explore(bounds: Bounds | None = None, progress: Progress = lambda _: None) -> Result:
    """Searches every history within the bounds; stops at the first that breaks an invariant."""
    return Explore(bounds or Bounds()).run(progress)


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
    try:
        print(result, flush=True)
    except BrokenPipeError:  # whoever read it has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if result.finding is not None:
        return 1
    return 0 if result.complete else 3


if __name__ == "__main__":
    sys.exit(main())
