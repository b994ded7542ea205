"""One book over a ledger in memory, with time by hand: for tests of its rules without units that think."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from wolfpack.core.book import Book, Instant
from wolfpack.core.book.intake import Ack, Keyed
from wolfpack.core.memory_ledger import MemoryDisk, MemoryLedger
from wolfpack.core.rows import TaskMutable
from wolfpack.core.wire import Claim, Job, KeeperReport, MemberTurn, Move, Submit, SubmitItem, Turn, TurnReply, Where
from wolfpack.model import Card, Cause, Offer, PackSpec, Report, Timing

TIMING = Timing(heartbeat_s=0.25, silence_s=1.0, answer_s=0.3, lease_s=5.0)


def cards(count: int, **fields: Any) -> list[Card]:
    offer = fields.pop("offer", Offer(frozenset({"cpu"})))
    return [Card(unit=f"grey-{no}", kind="grey", offer=offer, **fields) for no in range(count)]


class Desk:
    """Commits after each call; `orders` gathers what the book ordered, `replies` what turns were answered."""

    def __init__(self, the_cards: Sequence[Card], packs: Sequence[PackSpec]) -> None:
        self.now = 0.0
        self.disk = MemoryDisk()
        self.orders: list[Any] = []
        self.replies: dict[tuple[str, int, int], TurnReply | None] = {}
        self.counter = 0
        self.seq = 0
        self._open(create=True)
        self.book.describe(self.at, the_cards, packs)
        self.commit()

    def _open(self, *, create: bool) -> None:
        self.ledger = MemoryLedger(self.disk)
        self.book = Book(TIMING, random.Random(1))
        self.book.load(self.at, self.ledger.open(create=create))

    @property
    def at(self) -> Instant:
        return Instant(self.now, 1_000_000.0 + self.now)

    def commit(self) -> None:
        journal = self.book.journal
        self.orders += journal.orders
        self.replies.update({(pack, term, seq): reply for pack, term, seq, reply in journal.answers})
        journal.orders, journal.answers = [], []
        self.book.tasks.taken()
        journal.commit_no = self.ledger.commit(journal.take())
        self.book.tasks.committed()

    def rebirth(self) -> None:
        """A new keeper: everything that was not committed is forgotten."""
        self.ledger.kill()
        self._open(create=False)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.book.tick(self.at)
        self.book.sweep()
        self.commit()

    # --- calls --------------------------------------------------------------------------------------------------

    def submit(self, count: int = 1, pack: str = "p", client: str = "c", **fields: Any) -> list[str]:
        acks = self.submit_items(count, pack, client, **fields)
        return [task_id for _, task_id, _ in acks]

    def submit_items(self, count: int = 1, pack: str = "p", client: str = "c", **fields: Any) -> list[Ack]:
        plain = {
            "digest": "d",
            "key": None,
            "needs": None,
            "options": "{}",
            "delay_s": 0.0,
            "deadline_s": None,
            **fields,
        }
        first, self.counter = self.counter + 1, self.counter + count
        items = tuple(SubmitItem(counter=no, fn="f", args=b"a", blob="", **plain) for no in range(first, first + count))
        return self.send(Submit(client, pack, items, (), 0))

    def send(self, batch: Submit) -> list[Ack]:
        ids, keys = self.book.tasks.unknown(batch)
        known = Keyed(
            {row.fixed.id: row for row in self.ledger.find_tasks(ids)},
            {str(row.fixed.key): row for row in self.ledger.find_keys(batch.pack, keys)},
        )
        acks = self.book.submit(self.at, batch, known)
        self.commit()
        return acks

    def wake(self, unit: str, pack: str | None = "p", node: str = "n") -> int:
        """The unit is awake, and a member of the pack; returns its boot."""
        row = self.book.units[unit]
        self.book.desk.wake(self.at, row, pack, "a test")
        self.book.hello(self.at, unit, row.boot, 1, node)
        self.commit()
        return row.boot

    def crown(self, unit: str, pack: str = "p") -> int:
        """The unit leads; returns the term."""
        owner = self.book.packs[pack]
        verdict = self.book.claim(self.at, Claim(pack, owner.term, unit, self.book.units[unit].boot, 0))
        assert verdict.granted, verdict.reason
        self.seq = 0
        self.commit()
        return verdict.term

    def turn(
        self,
        *,
        ask: int = 0,
        of: str | None = None,
        held: Sequence[int] = (),
        settled: Sequence[Report] = (),
        seq: int | None = None,
        pack: str = "p",
        **fields: Any,
    ) -> TurnReply | None:
        """A turn of the present alpha about one member (itself, if no other is named); its answer, if there is one."""
        owner = self.book.packs[pack]
        alpha = str(owner.alpha)
        unit = of or alpha
        self.seq = self.seq + 1 if seq is None else seq
        member = MemberTurn(unit, self.book.units[unit].boot, tuple(held), tuple(settled), ask)
        plain = {"wakes": (), "call_off": (), "roster_version": 1 << 62, "plan": (), "size": None, **fields}
        term, boot = owner.term, owner.alpha_boot
        turn = Turn(pack, term, alpha, boot, self.seq, (member,), seen_commit=0, **plain)
        self.book.turn(self.at, turn)
        self.commit()
        return self.replies.pop((pack, term, self.seq), None)

    def lease(self, count: int = 1, of: str | None = None, pack: str = "p") -> list[Job]:
        reply = self.turn(ask=count, of=of, pack=pack)
        return [job for _, _, jobs in reply.leases for job in jobs] if reply is not None else []

    def settle(self, job: Job, cause: Cause = Cause.DONE, of: str | None = None, **fields: Any) -> None:
        self.turn(of=of, settled=[ended(job, cause, **fields)])

    def move(self, unit: str, to: str, n: int | None = None, boot: int | None = None, **fields: Any) -> Where:
        row = self.book.units[unit]
        plain = {"settled": (), "returned": (), "reason": "a test", **fields}
        call = Move(unit, row.boot if boot is None else boot, row.n + 1 if n is None else n, to, **plain)
        where = self.book.move(self.at, call)
        self.commit()
        return where

    def report(
        self, unit: str, held: Sequence[int] = (), settled: Sequence[Report] = (), boot: int | None = None
    ) -> Where:
        row = self.book.units[unit]
        call = KeeperReport(unit, row.boot if boot is None else boot, row.n, tuple(held), tuple(settled), 0)
        where = self.book.report(self.at, call)
        self.commit()
        return where

    def lose(self, unit: str) -> None:
        self.book.lose(self.at, unit, self.book.units[unit].boot, "a test")
        self.commit()

    # --- looking ------------------------------------------------------------------------------------------------

    def row(self, task_id: str) -> TaskMutable:
        return self.disk.tasks[task_id].mutable

    def events(self, name: str) -> list[str]:
        return [event.fields for event in self.disk.events if event.name == name]


def ended(job: Job, cause: Cause = Cause.DONE, **fields: Any) -> Report:
    started = fields.pop("started", cause is not Cause.RETURNED)
    return Report(job.lease_no, job.task_id, cause.value, started, 1.0, 1.1, **fields)


def den(count: int = 1, packs: Sequence[PackSpec] | None = None, **fields: Any) -> Desk:
    """A desk whose units are awake members of pack `p`, led by the first."""
    desk = Desk(cards(count, **fields), packs or [PackSpec(name="p", most=8)])
    for no in range(count):
        desk.wake(f"grey-{no}")
    desk.crown("grey-0")
    return desk
