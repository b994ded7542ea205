"""The tables of the exhaustive model: every letter, process and keeper ever met, and what each move makes of it.

A part is known by a number, so a state of the whole is a handful of numbers and a set of letters (one bit each). A
move of a part is computed once, by the real code, and looked up from then on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from wolfpack.core.howls import Howl, HowlKind
from wolfpack.core.wire import Claim
from wolfpack.sim.exhaustive_keeper import EXPIRED, Keeper, first_keeper
from wolfpack.sim.exhaustive_process import Process, newborn
from wolfpack.sim.exhaustive_words import EVERYBODY, PACK, TALK, Letter, Violation, tell

UNITS = "abc"


class Move(NamedTuple):
    """What one part does. The verbs are those of `Process` and `Keeper`."""

    verb: str
    what: Any = None  # number of a letter, an alarm, a process, an instant


class Broken(Exception):
    """A move broke an invariant."""

    def __init__(self, move: Move, violation: Violation, slot: int = -1) -> None:
        super().__init__(str(violation))
        self.move, self.violation, self.slot = move, violation, slot  # slot: which process, -1: the keeper


class Tables:
    """`terms`: claims that would need a later one are not sent."""

    def __init__(self, terms: int) -> None:
        self.terms = terms
        self.letters: list[Letter] = []
        self._letter_ids: dict[Letter, int] = {}
        self._to: dict[tuple[str, int], int] = {}  # of each reader the letters it can read
        self._talk: dict[tuple[int, tuple[tuple[str, int], ...]], int] = {}
        self.crowns = 0  # the letters that say "I lead"
        self.processes: list[Process] = []
        self._process_ids: dict[object, int] = {}
        self._process_moves: list[dict[Move, tuple[int, int]]] = []
        self.idle: list[int] = []  # of each process the letters that never change anything
        self.keepers: list[Keeper] = []
        self._keeper_ids: dict[object, int] = {}
        self._keeper_moves: list[dict[Move, tuple[int, int]]] = []
        keeper, peers = first_keeper(UNITS)
        self.first_keeper = self._keeper_id(keeper)
        self.first_processes = tuple(self.process_id(newborn(unit, peers)) for unit in UNITS)

    def readable(self, to: str, boot: int) -> int:
        return self._to.get((to, boot), 0)

    def talk(self, grants: int, crowd: tuple[tuple[str, int], ...]) -> int:
        """The howls that anybody may hear at any time: of every process, in every term that was granted."""
        known = self._talk.get((grants, crowd))
        if known is None:
            known = self._talk[grants, crowd] = self.say([
                Letter(EVERYBODY, 0, Howl(kind=kind, pack=PACK, term=term, unit=unit, boot=boot))
                for unit, boot in crowd
                for term in range(grants + 1)
                for kind in sorted(TALK)
            ])  # fmt: skip
        return known

    def process_move(self, move: Move, number: int) -> tuple[int, int]:
        """What becomes of the process, and what it says."""
        known = self._process_moves[number].get(move)
        if known is None:
            process = self.processes[number]
            after, letters = self._step_process(process, move)
            known = number if after is process else self.process_id(after), self.say(letters)
            self._process_moves[number][move] = known
            if move.verb == "reads" and known == (number, 0) and not self.may_age(process, move.what):
                self.idle[number] |= 1 << move.what
        return known

    def may_age(self, process: Process, letter: int) -> bool:
        """Whether it matters if the process has forgotten a hint that the sender died."""
        what = self.letters[letter].what
        return isinstance(what, Howl) and process.knows_lost(what.unit)

    def keeper_move(self, move: Move, number: int) -> tuple[int, int]:
        """What becomes of the keeper, and what it says.

        Raises:
            Broken: an invariant does not hold afterwards.
        """
        known = self._keeper_moves[number].get(move)
        if known is None:
            try:
                after, letters = self._step_keeper(self.keepers[number], move)
            except Violation as violation:
                raise Broken(move, violation) from violation
            known = self._keeper_moves[number][move] = self._keeper_id(after), self.say(letters)
        return known

    def check_crowns(self, said: int, keeper: int, move: Move, slot: int) -> None:
        """I6: who says that it leads a term was granted it.

        Raises:
            Broken: it was not.
        """
        grants = self.keepers[keeper].chronicle.grants
        for number in bits(said & self.crowns):
            howl = self.letters[number].what
            granted = grants[howl.term - 1] if 0 < howl.term <= len(grants) else "nobody"
            if granted != (howl.unit, howl.boot):
                text = (
                    f"{howl.unit} (boot {howl.boot}) says that it leads term {howl.term}, which {granted} was granted"
                )
                raise Broken(move, Violation("I6", text), slot)

    def process_id(self, process: Process) -> int:
        number = self._process_ids.setdefault(process.key, len(self.processes))
        if number == len(self.processes):
            self.processes.append(process)
            self._process_moves.append({})
            self.idle.append(0)
        return number

    def _keeper_id(self, keeper: Keeper) -> int:
        number = self._keeper_ids.setdefault(keeper.key, len(self.keepers))
        if number == len(self.keepers):
            self.keepers.append(keeper)
            self._keeper_moves.append({})
        return number

    def say(self, letters: list[Letter]) -> int:
        said = 0
        for letter in letters:
            if isinstance(letter.what, Claim) and letter.what.prev_term >= self.terms:
                continue
            number = self._letter_ids.setdefault(letter, len(self.letters))
            if number == len(self.letters):
                self.letters.append(letter)
                reader = (letter.to, letter.boot)
                self._to[reader] = self._to.get(reader, 0) | 1 << number
                if isinstance(letter.what, Howl) and letter.what.kind is HowlKind.COORDINATOR:
                    self.crowns |= 1 << number
            said |= 1 << number
        return said

    def _step_process(self, process: Process, move: Move) -> tuple[Process, list[Letter]]:
        match move.verb:
            case "reads":
                return process.read(self.letters[move.what].what)
            case "reads late":
                return process.read(self.letters[move.what].what, aged=True)
            case "rings":
                return process.ring(move.what)
            case "turns":
                return process.turn()
            case "works":
                return process.work()
            case "leaves":
                return process.leave()
            case _:
                raise ValueError(f"no process {move.verb}")

    def _step_keeper(self, keeper: Keeper, move: Move) -> tuple[Keeper, list[Letter]]:
        match move.verb:
            case "reads":
                return keeper.read(self.letters[move.what])
            case "reads, the alpha being silent,":
                return keeper.read(self.letters[move.what], silent=True)
            case "ticks":
                return keeper.tick(move.what)
            case "holds for dead":
                return keeper.lose(*move.what)
            case "wakes":
                return keeper.wake(move.what)
            case "is born again":
                return keeper.restart()
            case _:
                raise ValueError(f"no keeper {move.verb}")

    # --- telling --------------------------------------------------------------------------------------------------

    def line(self, who: str, move: Move, said: int = 0, after: Process | None = None) -> str:
        """One step of a story: who did what, what became of it, what it said."""
        line = f"{who} {move.verb}{self._object(move)}"
        if after is not None and after.machine is not None:
            line += f": {after.machine.role} in term {after.machine.term}"
            line += f", holds lease {after.lease}" if after.lease else ""
        news = [tell(self.letters[number]) for number in bits(said)]
        return line + (f"; says {'; '.join(news)}" if news else "")

    def _object(self, move: Move) -> str:
        what = move.what
        match move.verb:
            case "reads" | "reads late" | "reads, the alpha being silent,":
                return f" {tell(self.letters[what])}"
            case "rings":
                return f" its alarm {str(what)!r}"
            case "ticks":
                return " and ends leases that were not listed" if what is EXPIRED else " and looks for somebody to lead"
            case "holds for dead":
                return f" {what[0]} (boot {what[1]})"
            case _:
                return "" if what is None else f" {what}"


def name_of(process: Process) -> str:
    return process.unit if process.boot == 1 else f"{process.unit} (boot {process.boot})"


def bits(number: int) -> Iterator[int]:
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low
