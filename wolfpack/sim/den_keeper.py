"""One keeper process of a simulated den: the real book over the ledger in memory, driven as the Ray driver drives it.

A call changes the book at once, waits for the commit that holds the change, and is answered only then. A keeper's death
takes its memory and fails the calls that wait on it; its ledger keeps what was committed. Two keepers can live side by
side: the older one finds out at its next commit, and ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wolfpack.core.book import Book, Instant
from wolfpack.core.book.clock import KeeperClock
from wolfpack.core.book.journal import Answer, AskToLead, CreateUnit, EndUnit, Instruct, Order, Summon
from wolfpack.core.memory_ledger import MemoryLedger
from wolfpack.core.rows import Writes
from wolfpack.core.wire import Turn, TurnReply, Verdict, Where
from wolfpack.errors import Deposed, KeeperSuperseded, LedgerError, WolfPackError
from wolfpack.model import Card, PackSpec, Readiness, TaskState
from wolfpack.sim.calls import Call

if TYPE_CHECKING:
    from wolfpack.sim.den import World

WALL = 1_000_000.0  # wall clock at virtual time 0
TICK_S = 0.05
FORGIVE_S = 0.5  # a tick later than this was a pause of its own
WATCH_S = 5.0  # a watch without news is answered after so long
AGAIN_S = 0.01  # a paused keeper is looked at so often

PARKED = object()


class Keeper:
    """One life of the keeper.

    Args:
        world: the den it lives in.
        seizes: opens the ledger though another keeper holds it, as where no file lock keeps the second one out.
    """

    def __init__(self, world: World, *, seizes: bool = False) -> None:
        self._world = world
        self._kernel = world.kernel
        self.up = True
        self.paused = False
        self.commit_factor = 1.0  # how much slower than usual its disk is
        self.ledger = MemoryLedger(world.disk)
        if seizes:
            world.disk.holder = None
        self.book = Book(world.timing, self._kernel.stream("keeper", len(world.keepers)))
        self.durable_settle_no = 0
        now = self._kernel.now
        self._clock = KeeperClock(now, now, WALL + now + world.wall_jump_s, FORGIVE_S)
        self._inbox: list[Callable[[], object]] = []
        self._open: dict[Call, None] = {}
        self._waiting: list[tuple[Call, Any]] = []
        self._turns: dict[tuple[str, int, int], list[Call]] = {}
        self._accepted: list[Turn] = []  # turns that no commit holds yet
        self._watches: dict[str, tuple[Call, int]] = {}
        self._committing = self._dirty = False

    def be_born(self, cards: tuple[Card, ...], packs: tuple[PackSpec, ...], *, first: bool) -> None:
        """Opens the ledger and takes up what lives; the first keeper of a den describes it."""
        loaded = self.ledger.open(create=first)
        self.name = f"keeper {loaded.epoch}"
        at = self.at()
        self.book.load(at, loaded)
        self.durable_settle_no = loaded.last_settle_no
        if first:
            self.book.fresh_start(at)
            self.book.describe(at, cards, packs)
        else:
            self._find_processes()
        self.make_dirty()
        self._kernel.after(TICK_S, self._tick)

    def _find_processes(self) -> None:
        """Asks for every unit that the ledger calls awake; who was creating one goes on."""
        world = self._world
        for unit in self.book.units.values():
            if unit.readiness is Readiness.WAKING:
                world.create(unit.card, unit.boot)
            elif unit.readiness is Readiness.AWAKE:
                process = world.processes.get((unit.id, unit.boot))
                if process is None or (process.dead and not process.quiet):
                    self.tell_death(unit.id, unit.boot)

    def at(self) -> Instant:
        now = self._kernel.now
        return self._clock.read(now, now)

    # --- calls --------------------------------------------------------------------------------------------------

    def take(self, what: Callable[..., object], *args: Any) -> None:
        """Something arrives; while the keeper is paused it waits."""
        if self.paused:
            self._inbox.append(lambda: what(*args))
        else:
            what(*args)

    def handle(self, call: Call, method: Callable[[Book, Instant], Any], seen_commit: int) -> None:
        if not self.up:
            self._world.reply(call, call.fail, "the keeper died")
            return
        if seen_commit > self.book.journal.commit_no:
            self._world.reply(call, call.fail, "KeeperBehind")
            return
        try:
            value = method(self.book, self.at())
        except Deposed as exc:
            self._world.reply(call, call.finish, exc)
            return
        except WolfPackError as exc:
            self._world.reply(call, call.fail, exc)
            return
        self._open[call] = None
        self._waiting.append((call, value))
        self.make_dirty()

    def handle_turn(self, call: Call, turn: Turn) -> None:
        """An alpha's turn, answered through the journal."""
        if not self.up:
            self._world.reply(call, call.fail, "the keeper died")
            return
        if turn.seen_commit > self.book.journal.commit_no:
            self._world.reply(call, call.fail, "KeeperBehind")
            return
        try:
            self.book.turn(self.at(), turn)
        except Deposed as exc:
            self._world.reply(call, call.finish, exc)
            return
        self._world.checks.on_accepted_turn(turn)
        self._accepted.append(turn)
        self._open[call] = None
        self._turns.setdefault((turn.pack, turn.term, turn.seq), []).append(call)
        self.make_dirty()

    def handle_watch(self, call: Call, client: str, cursor: int) -> None:
        """A client's long poll: answered with its tasks' ends as soon as there are any."""
        if not self.up:
            self._world.reply(call, call.fail, "the keeper died")
            return
        if not self._answer_watch(call, client, cursor, park=True):
            self._open[call] = None
            self._watches[client] = (call, cursor)
            self._kernel.after(WATCH_S, self._end_watch, call, client, cursor)

    def _answer_watch(self, call: Call, client: str, cursor: int, *, park: bool) -> bool:
        finals, gap = self.book.finals_since(client, cursor, self.durable_settle_no)
        if park and not finals and not gap:
            return False
        self._open.pop(call, None)
        answer = (finals, gap, self.durable_settle_no, self.book.epoch)
        self._world.reply(call, call.finish, answer)
        return True

    def _end_watch(self, call: Call, client: str, cursor: int) -> None:
        known = self._watches.get(client)
        if self.up and known is not None and known[0] is call:
            del self._watches[client]
            self._answer_watch(call, client, cursor, park=False)

    def tell_death(self, unit: str, boot: int) -> None:
        """The call parked with this process says that it died."""
        if self.up:
            self.book.lose(self.at(), unit, boot, "its process died")
            self.make_dirty()

    # --- time ---------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if not self.up:
            return
        kernel = self._kernel
        if self.paused:
            kernel.after(AGAIN_S, self._tick)
            return
        self.book.tick(self.at())
        self.book.sweep()
        self.make_dirty()
        kernel.after(TICK_S, self._tick)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        """What arrived meanwhile is handled first, in its order."""
        self.paused = False
        inbox, self._inbox = self._inbox, []
        for handle in inbox:
            handle()

    def die(self) -> None:
        """The process ends: its memory, and all calls on it, are gone."""
        if not self.up:
            return
        self.up = self.paused = False
        self.ledger.kill()
        calls, self._open = self._open, {}
        for call in calls:
            self._world.reply(call, call.fail, "the keeper died")
        inbox, self._inbox = self._inbox, []
        for handle in inbox:  # they find nobody
            handle()

    # --- commits ------------------------------------------------------------------------------------------------

    def make_dirty(self) -> None:
        self._dirty = True
        if not self._committing:
            self._committing = True
            self._kernel.after_us(0, self._commit)

    def _commit(self) -> None:
        if not self.up:
            return
        world, journal = self._world, self.book.journal
        self._dirty = False
        waiting, self._waiting = self._waiting, []
        accepted, self._accepted = self._accepted, []
        orders, journal.orders = journal.orders, []
        answers, journal.answers = journal.answers, []
        settle_no = journal.last_settle_no
        writes = journal.take()
        if not writes:
            self._show(waiting, answers, orders, settle_no)
            return
        self.book.tasks.taken()
        counts = world.checks.on_take(self)
        self._kernel.after(
            world.commit_s * self.commit_factor,
            self._durable, writes, accepted, counts, waiting, answers, orders, settle_no,
        )  # fmt: skip

    def _durable(
        self,
        writes: Writes,
        accepted: list[Turn],
        counts: dict[str, Counter[TaskState]],
        waiting: list[tuple[Call, Any]],
        answers: list[Answer],
        orders: list[Order],
        settle_no: int,
    ) -> None:
        if not self.up:
            return
        world, journal = self._world, self.book.journal
        try:
            journal.commit_no = self.ledger.commit(writes)
        except KeeperSuperseded as exc:
            world.tell(self.name, f"ends: {exc}")
            self.die()
            return
        except LedgerError as exc:
            world.tell(self.name, f"ends, its commit failed: {exc}")
            world.crash_keeper()
            return
        self.book.tasks.committed()
        world.checks.on_commit(self, writes, accepted, counts)
        if journal.commit_no in world.replies_lost_at:
            world.replies_lost_at.discard(journal.commit_no)
            world.tell(self.name, f"dies between commit {journal.commit_no} and its replies")
            world.crash_keeper()
            return
        self._show(waiting, answers, orders, settle_no)
        for client, (call, cursor) in list(self._watches.items()):
            if self._answer_watch(call, client, cursor, park=True) and self._watches.get(client) == (call, cursor):
                del self._watches[client]

    def _show(
        self, waiting: list[tuple[Call, Any]], answers: list[Answer], orders: list[Order], settle_no: int
    ) -> None:
        """Lets go what waited for the commit: replies, answers to turns, orders."""
        world, journal = self._world, self.book.journal
        self.durable_settle_no = settle_no
        for call, value in waiting:
            self._open.pop(call, None)
            if isinstance(value, Where | Verdict):
                value = value._replace(commit_no=journal.commit_no)
                if isinstance(value, Verdict):
                    world.checks.on_verdict(value)
            world.reply(call, call.finish, value)
        for answer in answers:
            self._answer_turn(answer.pack, answer.term, answer.seq, answer.reply)
        for order in orders:
            self._carry_out(order)
        self._committing = False
        if self._dirty or journal.orders or journal.answers:
            self.make_dirty()

    def _answer_turn(self, pack: str, term: int, seq: int, reply: TurnReply | None) -> None:
        world = self._world
        for call in self._turns.pop((pack, term, seq), ()):
            self._open.pop(call, None)
            if reply is None:
                owner = self.book.packs.get(pack)
                gone = Deposed("over", owner.term if owner else 0, (owner.alpha if owner else None) or "")
                world.reply(call, call.finish, gone)
            else:
                world.checks.on_leases(pack, term, reply)
                world.reply(call, call.finish, reply._replace(commit_no=self.book.journal.commit_no))

    def _carry_out(self, order: Order) -> None:
        world = self._world
        match order:
            case CreateUnit(unit=unit, boot=boot):
                world.create(self.book.units[unit].card, boot)
            case EndUnit(unit=unit, boot=boot):
                world.tell(self.name, f"ends {unit}#{boot}: {order.reason}")
                world.from_keeper(unit, lambda: world.end_process(unit, boot))
            case AskToLead(unit=unit, boot=boot, pack=pack, term=term):
                world.network.send("keeper", unit, world.reach, unit, boot, lambda p: p.ask_to_lead(pack, term))
            case Summon(unit=unit, boot=boot, pack=pack):
                world.network.send("keeper", unit, world.reach, unit, boot, lambda p: p.summon(pack, None))
            case Instruct(unit=unit, boot=boot, order=what, grace_s=grace_s, reason=reason):
                world.from_keeper(unit, lambda: world.reach(unit, boot, lambda p: p.instruct(what, grace_s, reason)))
