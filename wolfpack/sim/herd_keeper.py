"""The keeper of a herd: the real book over the ledger in memory, for terms and places only.

A herd has no tasks. Its keeper grants terms by the book's own rules, notes the alpha's turns, and knows which boot of a
unit is the living one. It judges no clock but the silence of an alpha whose term is claimed: the units of a herd send
it no reports, so their silence says nothing here. A turn is answered when the next one comes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from wolfpack.core.book import Book, Instant
from wolfpack.core.howls import Peer
from wolfpack.core.memory_ledger import MemoryDisk, MemoryLedger
from wolfpack.core.rows import Writes
from wolfpack.core.succession import DeposedBy, Event, Granted, Refused
from wolfpack.core.wire import Claim, Turn, TurnReply
from wolfpack.errors import Deposed
from wolfpack.model import Card, PackSpec, Readiness, Timing

PACK = "herd"
WALL_0 = 1_000_000.0  # wall-clock seconds at virtual time 0
NEVER_BEHIND = 1 << 62  # a roster version that has nothing to learn


class HerdKeeper:
    """Takes what units ask at virtual time `now`; each change is committed before its answer is returned.

    Attributes:
        grants: (term, unit, boot) of every term, in the order of granting.
        faults: what broke an invariant of terms (I1 to I4), in words.
    """

    def __init__(self, peers: Iterable[Peer], timing: Timing, rng: random.Random) -> None:
        self.timing = timing
        self.grants: list[tuple[int, str, int]] = []
        self.faults: list[str] = []
        self._written = 0  # the highest term that wrote
        self._disk = MemoryDisk()
        self._rng = rng
        self._open(0.0, create=True)
        cards = [Card(unit=p.unit, kind="herd", lead=p.lead, can_lead=p.can_lead) for p in peers]
        self.book.describe(_at(0.0), cards, [PackSpec(name=PACK, most=max(1, len(cards)))])
        self._commit()

    def _open(self, now: float, *, create: bool) -> None:
        self._ledger = MemoryLedger(self._disk)
        self.book = Book(self.timing, self._rng)
        self.book.load(_at(now), self._ledger.open(create=create))

    # --- places -------------------------------------------------------------------------------------------------

    def settle_in(self, now: float, units: Iterable[str]) -> None:
        """The first boots of these units are awake members, as a keeper finds them that opens an old ledger.

        One by one each would be told all members, which for ten thousand are a hundred million.
        """
        rows = [self.book.units[unit].row() for unit in units]
        awake = Readiness.AWAKE.value
        settled = [row._replace(boot=1, readiness=awake, pack=PACK, pid=1, node="node") for row in rows]
        self._ledger.commit(Writes(units=settled))
        self._ledger.kill()
        self._open(now, create=False)

    def birth(self, now: float, unit: str) -> int:
        """A new process of this unit says hello as a member of the pack; returns its boot."""
        at, row = _at(now), self.book.units[unit]
        if row.boot:
            self.book.lose(at, unit, row.boot, "it is born again")
        self.book.desk.wake(at, row, PACK, "it belongs to the herd")
        self.book.hello(at, unit, row.boot, 1, "node")
        self._commit()
        return row.boot

    def lose(self, now: float, unit: str, boot: int) -> None:
        """Its process is known to be dead, or said goodbye."""
        self.book.lose(_at(now), unit, boot, "it is gone")
        self._commit()

    # --- terms --------------------------------------------------------------------------------------------------

    @property
    def term(self) -> int:
        return self.book.packs[PACK].term

    @property
    def alpha(self) -> tuple[str, int] | None:
        pack = self.book.packs[PACK]
        return None if pack.alpha is None else (pack.alpha, pack.alpha_boot)

    def claim(self, now: float, prev_term: int, unit: str, boot: int) -> Event:
        before = self.book.packs[PACK].term
        verdict = self.book.claim(_at(now), Claim(PACK, prev_term, unit, boot, 0))
        self._commit()
        if not verdict.granted:
            return Refused(verdict.term, verdict.alpha, verdict.alpha_boot)
        if verdict.term != before:
            if self.grants and verdict.term <= self.grants[-1][0]:
                self.faults.append(f"I2: term {verdict.term} was granted after term {self.grants[-1][0]}")
            self.grants.append((verdict.term, unit, boot))
        elif (verdict.term, unit, boot) != self.grants[-1]:
            self.faults.append(f"I4: term {verdict.term} was granted to {unit} and to {self.grants[-1][1]}")
        return Granted(verdict.term)

    def turn(self, now: float, term: int, unit: str, boot: int, seq: int) -> DeposedBy | None:
        """Renews the term; None: the turn is parked, its answer comes out of `answers`."""
        turn = Turn(
            PACK, term, unit, boot, seq, members=(), wakes=(), call_off=(), roster_version=NEVER_BEHIND, plan=(),
            size=None, seen_commit=0,
        )  # fmt: skip
        try:
            self.book.turn(_at(now), turn)
        except Deposed:
            self._commit()
            pack = self.book.packs[PACK]
            return DeposedBy(pack.term, pack.alpha)
        if (term, unit, boot) not in self.grants[-1:]:
            self.faults.append(f"I1: a turn of term {term} by {unit} was accepted")
        if term < self._written:
            self.faults.append(f"I3: a turn of term {term} was accepted after one of term {self._written}")
        self._written = max(self._written, term)
        self._commit()
        return None

    def release(self, now: float, term: int, unit: str, boot: int) -> None:
        self.book.release(_at(now), PACK, term, unit, boot)
        self._commit()

    def answers(self) -> list[tuple[int, int, TurnReply | None]]:
        """(term, seq, reply) of turns that are answered now; no reply: the term ended under it."""
        answers = [(answer.term, answer.seq, answer.reply) for answer in self.book.journal.answers]
        self.book.journal.answers = []
        return answers

    def _commit(self) -> None:
        journal = self.book.journal
        journal.orders = []
        self.book.tasks.taken()
        journal.commit_no = self._ledger.commit(journal.take())
        self.book.tasks.committed()


def _at(now: float) -> Instant:
    return Instant(now, WALL_0 + now)
