"""The search in which each process is everywhere it could be: all that a keeper can live through. See `exhaustive`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from wolfpack.sim.exhaustive_search import Bounds, Left, Progress, Result, Search, State
from wolfpack.sim.exhaustive_tables import Broken, Move, bits, name_of
from wolfpack.sim.exhaustive_words import EVERYBODY

APART = 20_000  # states: so far a search goes for a better story


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


def cover(bounds: Bounds | None = None, progress: Progress = lambda _: None) -> Result:
    """Searches all that the keeper can live through, whatever its units do; stops where an invariant breaks."""
    result = Cover(bounds or Bounds(), joined=True).run(progress)
    if result.finding is None:
        return result
    apart = Cover(replace(result.bounds, states=APART), joined=False).run()  # its story is that of one history
    return apart if apart.finding is not None else result
