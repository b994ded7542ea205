"""The keeper of the exhaustive model: the real `Book` on a ledger in memory, and the invariants that it must keep.

A keeper is a frozen value with a key: the pickled book with its disk, and the chronicle of what it granted. A step
thaws them, lets the book take one message, commits, checks I1 to I5, I7 and I8, and only then lets its letters out. It
has no clock either: an incumbent may be held for silent, and a lease may expire, at any moment.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from wolfpack.core.book import Book, Instant
from wolfpack.core.book.intake import Keyed
from wolfpack.core.book.journal import AskToLead
from wolfpack.core.howls import Peer
from wolfpack.core.memory_ledger import MemoryDisk, MemoryLedger
from wolfpack.core.succession import AskedToLead, DeposedBy, PeerLost
from wolfpack.core.wire import Claim, KeeperReport, Submit, SubmitItem, Turn, Where
from wolfpack.errors import Deposed
from wolfpack.model import Card, Offer, PackSpec, Readiness, TaskState
from wolfpack.sim.exhaustive_process import peers_of
from wolfpack.sim.exhaustive_words import (
    EVERYBODY,
    KEEPER,
    PACK,
    TASK,
    TIMING,
    Hello,
    Lease,
    Letter,
    Release,
    must,
)

NOW = Instant(0.0, 1000.0)
SILENT = Instant(1.5 * TIMING.silence_s, 1000.0)  # whoever renewed at NOW is silent for too long
ROUSED = Instant(2.5 * TIMING.silence_s, 1000.0)  # the keeper's tick looks for somebody to lead
EXPIRED = Instant(TIMING.lease_s + 0.1, 1000.0)  # and ends leases that nobody listed


class Least(random.Random):
    """Chance without dice: what is to be tried again may be tried at once."""

    def uniform(self, a: float, b: float) -> float:
        return min(a, b)


@dataclass(frozen=True, slots=True)
class Chronicle:
    """What the world saw of the keeper: the record that the invariants are judged by."""

    grants: tuple[tuple[str, int], ...] = ()  # to whom the terms 1, 2, ... were granted
    writers: tuple[tuple[int, str, int], ...] = ()  # term, unit and boot of accepted turns
    leases: tuple[tuple[int, str, int], ...] = ()  # number, unit and boot, in the order of the grants
    done: tuple[int, bytes] | None = None  # settle number and payload of the task's end


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """The book and its disk, pickled: what a keeper is between two messages."""

    frozen: bytes
    key: object
    chronicle: Chronicle
    asleep: tuple[str, ...]  # units that can be woken
    living: tuple[tuple[str, int], ...]

    def read(self, letter: Letter, *, silent: bool = False) -> KeeperStep:
        """A call arrives. `silent`: the incumbent did not renew for `silence_s`, in the keeper's eyes."""
        desk = Desk(self)
        at = SILENT if silent else NOW
        match letter.what:
            case Claim():
                desk.claim(at, letter.what)
            case Turn():
                desk.turn(at, letter.what)
            case Release(term, unit, boot):
                desk.book.release(at, PACK, term, unit, boot)
            case KeeperReport():
                desk.answer(letter.what.unit, letter.what.boot, desk.book.report(at, letter.what))
            case Hello(unit, boot):
                desk.answer(unit, boot, desk.book.hello(at, unit, boot, 1, "node"))
            case _:
                raise TypeError(f"the keeper reads no {letter.what!r}")
        return desk.close()

    def tick(self, at: Instant) -> KeeperStep:
        return self._do(lambda desk: desk.book.tick(at))

    def lose(self, unit: str, boot: int) -> KeeperStep:
        """A hint, true or not, that this process died; the pack hears of it too."""
        step, letters = self._do(lambda desk: desk.book.lose(NOW, unit, boot, "a hint"))
        return step, [*letters, Letter(EVERYBODY, 0, PeerLost(unit, boot))]

    def wake(self, unit: str) -> KeeperStep:
        """A new boot is allotted, and its process says hello; an old process of the unit may well live on."""
        step, letters = self._do(lambda desk: desk.book.desk.wake(NOW, desk.book.units[unit], PACK, "woken"))
        boot = pickle.loads(step.frozen)[0].units[unit].boot
        return step, [*letters, Letter(KEEPER, 0, Hello(unit, boot), unit)]

    def restart(self) -> KeeperStep:
        """It dies, and the next one knows what the ledger holds."""
        return self._do(lambda desk: desk.rebirth())

    def _do(self, act: Callable[[Desk], object]) -> KeeperStep:
        desk = Desk(self)
        act(desk)
        return desk.close()


KeeperStep = tuple[Keeper, list[Letter]]


@dataclass
class Desk:
    """A keeper at work on one message: the copy of its book, and what leaves when all of it is committed."""

    before: Keeper
    book: Book = field(init=False)
    disk: MemoryDisk = field(init=False)
    letters: list[Letter] = field(default_factory=list)
    chronicle: Chronicle = field(init=False)

    def __post_init__(self) -> None:
        self.book, self.disk = pickle.loads(self.before.frozen)
        self.chronicle = self.before.chronicle

    def claim(self, at: Instant, call: Claim) -> None:
        verdict = self.book.claim(at, call)
        if verdict.granted:
            self._note_grant(verdict.term, call.unit, call.boot)
            self._must_be_newest(call.unit, call.boot, "was granted a term")
        self.letters.append(Letter(call.unit, call.boot, verdict._replace(reason="", commit_no=0)))

    def turn(self, at: Instant, call: Turn) -> None:
        try:
            self.book.turn(at, call)
        except Deposed as refused:
            self.letters.append(Letter(call.unit, call.boot, DeposedBy(refused.term, refused.alpha)))
            return
        grants, writers = self.chronicle.grants, self.chronicle.writers
        who = (call.unit, call.boot)
        others = [writer for writer in writers if writer[0] == call.term and writer[1:] != who]
        must(not others, "I1", f"{call.unit} (boot {call.boot}) and {others} wrote in term {call.term}")
        newest = max((term for term, _, _ in writers), default=0)
        must(call.term >= newest, "I2", f"a turn of term {call.term} was accepted after one of term {newest}")
        must(call.term >= len(grants), "I3", f"a turn of term {call.term} was accepted after term {len(grants)} began")
        must(grants[call.term - 1] == who, "I1", f"{who} wrote in term {call.term}, which {grants[call.term - 1]} has")
        self._must_be_newest(*who, "wrote a turn")
        self.chronicle = replace(self.chronicle, writers=tuple(sorted({*writers, (call.term, *who)})))

    def answer(self, unit: str, boot: int, where: Where) -> None:
        if where.ok:
            self._must_be_newest(unit, boot, "was accepted")
        plain = where._replace(reason="", commit_no=0, acked=(), cancels=(), n=0)
        self.letters.append(Letter(unit, boot, plain))

    def rebirth(self) -> None:
        """Nothing that was not committed is known any more."""
        old = MemoryLedger(self.disk)
        self.disk.holder = old
        old.kill()
        self.book = Book(TIMING, Least(0))
        self.book.load(NOW, MemoryLedger(self.disk).open(create=False))

    def close(self) -> KeeperStep:
        """Commits, checks, and lets the letters out."""
        journal = self.book.journal
        for answer in journal.answers:
            unit, boot = self.chronicle.grants[answer.term - 1]
            if answer.reply is None:
                pack = self.book.packs[PACK]
                self.letters.append(Letter(unit, boot, DeposedBy(pack.term, pack.alpha or "")))
                continue
            for _, _, jobs in answer.reply.leases:
                self.letters += [Letter(unit, boot, Lease(answer.term, job.lease_no)) for job in jobs]
        for order in journal.orders:
            if isinstance(order, AskToLead):
                self.letters.append(Letter(order.unit, order.boot, AskedToLead()))
        journal.answers, journal.orders = [], []
        _commit(self.book, self.disk)
        self._check()
        return _freeze(self.book, self.disk, self.chronicle), self.letters

    def _note_grant(self, term: int, unit: str, boot: int) -> None:
        grants = self.chronicle.grants
        if term <= len(grants):
            known = grants[term - 1] if term > 0 else None
            must(known == (unit, boot), "I4", f"term {term} was granted to {known} and to {(unit, boot)}")
            return
        must(term == len(grants) + 1, "I2", f"term {term} was granted after term {len(grants)}")
        self.chronicle = replace(self.chronicle, grants=(*grants, (unit, boot)))

    def _must_be_newest(self, unit: str, boot: int, what: str) -> None:
        row = self.book.units[unit]
        known = max([row.boot, *(b for name, b in self.chronicle.grants if name == unit)])
        must(boot == known, "I8", f"boot {boot} of {unit} {what}, and boot {known} is known")

    def _check(self) -> None:
        book, chronicle = self.book, self.chronicle
        pack = book.packs[PACK]
        if pack.alpha is not None:
            self._note_grant(pack.term, pack.alpha, pack.alpha_boot)
        must(pack.term >= len(chronicle.grants), "I2", f"the pack's term fell to {pack.term}")
        for unit in book.units.values():
            places = [name for name, members in book.desk.members.items() if unit.id in members]
            row_says = [unit.pack] if unit.pack else []
            must(places == row_says, "I8", f"the row of {unit.id} says {row_says}, and it is listed in {places}")
        row = self.disk.tasks[TASK].mutable
        latest = chronicle.leases[-1] if chronicle.leases else (0, "", 0)
        if row.lease_no != latest[0]:
            must(row.lease_no > latest[0], "I7", f"lease {row.lease_no} was granted after lease {latest[0]}")
            latest = (row.lease_no, row.unit, row.boot)
            chronicle = replace(chronicle, leases=(*chronicle.leases, latest))
        must((row.lease_no, row.unit, row.boot) == latest, "I7", f"lease {latest} went to {row.unit} ({row.boot}) too")
        end = (row.settle_no, row.payload) if row.state == TaskState.DONE else None
        if chronicle.done is not None:
            must(end == chronicle.done, "I5", f"the task was done with {chronicle.done} and is {row.state} with {end}")
        elif end is not None:
            must(int(end[1]) == latest[0], "I7", f"a report of lease {int(end[1])} settled, the latest is {latest[0]}")
            chronicle = replace(chronicle, done=end)
        self.chronicle = chronicle


def first_keeper(units: str) -> tuple[Keeper, tuple[Peer, ...]]:
    """A pack whose members are awake, without an alpha, with one task queued."""
    disk = MemoryDisk()
    book = Book(TIMING, Least(0))
    book.load(NOW, MemoryLedger(disk).open(create=True))
    cards = [Card(unit=unit, kind="grey", offer=Offer(frozenset({"cpu"}))) for unit in units]
    book.describe(NOW, cards, [PackSpec(name=PACK, most=len(cards))])
    for unit in units:
        book.desk.wake(NOW, book.units[unit], PACK, "awake")
        book.hello(NOW, unit, 1, 1, "node")
    item = SubmitItem(
        counter=1, fn="f", digest="d", args=b"", blob="", key=None, needs=None, options="{}", delay_s=0.0,
        deadline_s=None,
    )  # fmt: skip
    book.submit(NOW, Submit("client", PACK, (item,), (), 0), Keyed())
    book.journal.orders, book.journal.answers = [], []
    _commit(book, disk)
    return _freeze(book, disk, Chronicle()), peers_of(book.desk.peers(PACK))


def _commit(book: Book, disk: MemoryDisk) -> None:
    ledger = MemoryLedger(disk)
    ledger._epoch = disk.epoch
    book.tasks.taken()
    ledger.commit(book.journal.take())
    book.tasks.committed()


def _freeze(book: Book, disk: MemoryDisk, chronicle: Chronicle) -> Keeper:
    _make_book_plain(book)
    disk.holder = None
    disk.events.clear()
    disk.ghosts.clear()
    disk.event_no = disk.commit_no = disk.ghosts_counted = 0
    disk.epoch = book.epoch = 1
    units = book.units.values()
    return Keeper(
        frozen=pickle.dumps((book, disk), pickle.HIGHEST_PROTOCOL),
        key=_book_key(book, chronicle),
        chronicle=chronicle,
        asleep=tuple(unit.id for unit in units if unit.readiness is Readiness.ASLEEP),
        living=tuple((unit.id, unit.boot) for unit in units if unit.readiness is Readiness.AWAKE),
    )


def _make_book_plain(book: Book) -> None:
    """Every time becomes NOW or never; what is only counted, or told to people, becomes nothing."""
    journal, pack = book.journal, book.packs[PACK]
    journal.last_event_no = journal.commit_no = journal.roster_version = 0
    journal.ghosts_counted = journal.refused_writes = 0
    journal.recent.clear()
    book._last_tick, book.awake_seconds, book.cost = None, 0.0, 0.0
    pack.renewed_mono = pack.crowned_mono = 0.0
    pack.asked_mono, pack.tokens_mono = float("-inf"), 0.0
    pack.asked_units.clear()
    pack.vacant_of, pack.vacant_reason, pack.plan = None, "", ()
    if pack.parked is not None:
        pack.parked.since_mono = 0.0
    for unit in book.units.values():
        unit.heard_mono = unit.waking_until_mono = 0.0
        unit.home_since_mono = unit.expires_mono = float("-inf")
        unit.reason, unit.version, unit.card_version, unit.lent_at = "", 0, 0, 0.0
        for held in unit.held.values():
            held.renewed_mono, held.told_mono = 0.0, float("-inf")
    book.tasks._lost_on.clear()
    for task in book.tasks.live.values():
        task.story, task.story_data, task.text = (), b"", ""
        task.started_at = task.ended_at = task.not_before = 0.0


def _book_key(book: Book, chronicle: Chronicle) -> object:
    """The rows, and what of the memory the rules look at."""
    pack, queue = book.packs[PACK], book.tasks.queues[PACK]
    parked = pack.parked
    return (
        chronicle,
        pack.row(),
        pack.first_lease,
        None if parked is None else (parked.seq, tuple(sorted(parked.asks.items())), repr(parked.acked)),
        tuple(
            (unit.row(), tuple((number, held.listed) for number, held in sorted(unit.held.items())))
            for unit in book.units.values()
        ),
        tuple((task.row(), task.place, task.kill) for task in book.tasks.live.values()),
        tuple(sorted(book.tasks._ended)),
        (queue.runnable, queue.delayed, queue.solo_unit),
        book.journal.last_lease_no,
        tuple(book.tasks.counts[PACK][state] for state in TaskState),
    )
