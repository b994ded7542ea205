"""A whole den on virtual time: brains, one book over a ledger in memory, hands, day jobs, clients, and faults.

Everything is drawn from one seed and happens in one heap of events, so a run can be told again by its seed. The world
drives book and brains by the same rules as the Ray drivers: nothing leaves the keeper before the commit that holds
it; a unit's calls fail when the other side is down, and never arrive twice, but one-way messages may be lost, doubled
and overtaken. `den_checks` looks at every commit and every message for broken promises.

    world = World(cards=wolves(3), packs=[PackSpec(name="p", most=3)])
    ids = world.submit("p", [task(0.1)] * 10)
    world.settle()

Faults: `crash`, `freeze`, `thaw` of units; `crash_keeper`, `pause_keeper`; `Faults` for the network.
"""

from __future__ import annotations

import heapq
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.core.den_checks import Checks
from tests.core.den_clients import Client, Clients, task, wolves
from tests.core.den_units import Process
from wolfpack.core.book import Book, Instant
from wolfpack.core.book.journal import AskToLead, CreateUnit, EndUnit, Instruct, Summon
from wolfpack.core.memory_ledger import MemoryDisk, MemoryLedger
from wolfpack.core.wire import Turn, Verdict, Where
from wolfpack.errors import Deposed, WolfPackError
from wolfpack.model import PROFILES, Card, PackSpec, Readiness, TaskState, Timing

WALL = 1_000_000.0  # wall clock at virtual time 0
TICK_S = 0.05
FORGIVE_S = 0.5
CALL_S = 8.0


@dataclass
class Faults:
    """Of the network between processes of a den. Calls are delayed; one-way messages are also lost and doubled."""

    delay_s: tuple[float, float] = (0.0005, 0.0015)
    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0  # part of all messages that take up to `late_s`
    late_s: float = 0.3
    unreachable: float = 0.0  # part of all calls that fail though the other side may have taken them


class World(Clients):
    def __init__(
        self,
        *,
        cards: Sequence[Card],
        packs: Sequence[PackSpec],
        seed: int = 0,
        timing: Timing = PROFILES["ray"],
        faults: Faults | None = None,
        commit_s: float = 0.001,
        birth_s: float = 0.05,
        death_s: float | None = 0.02,
        node: Callable[[str], str] = lambda unit: f"node of {unit}",
    ) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)
        self.timing, self.faults = timing, faults or Faults()
        self.commit_s, self.birth_s, self.death_s, self.node = commit_s, birth_s, death_s, node
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._no = 0
        self.processes: dict[tuple[str, int], Process] = {}
        self.starts: dict[str, list[tuple[float, str, int, int]]] = defaultdict(list)  # task -> time, unit, boot, lease
        self.clients: dict[str, Client] = {}
        self.broken: set[str] = set()  # units whose set-up raises
        self.day_step_s, self.day_pause_s = 0.1, 1.0
        self.day_steps: dict[str, int] = defaultdict(int)
        self.failures: list[str] = []  # PublishFailure of alphas
        self.checks = Checks(self)
        self.disk = MemoryDisk()
        self.keeper_up = False
        self.replies_lost_at: set[int] = set()  # commits after which the keeper dies before it answers
        self._cards, self._packs = tuple(cards), tuple(packs)
        self._born = False
        self._life = 0
        self.birth_of_keeper()
        self.run(0.01)

    # --- time ---------------------------------------------------------------------------------------------------

    def after(self, delay_s: float, what: Callable[[], None]) -> None:
        self._no += 1
        heapq.heappush(self._heap, (self.now + max(0.0, delay_s), self._no, what))

    def run(self, seconds: float) -> None:
        self.run_until(lambda: False, seconds)

    def run_until(self, condition: Callable[[], Any], within_s: float) -> bool:
        """Lets time pass until the condition holds; says whether it did."""
        end = self.now + within_s
        while not condition():
            if not self._heap or self._heap[0][0] > end:
                self.now = end
                return bool(condition())
            self.now, _, what = heapq.heappop(self._heap)
            what()
        return True

    @property
    def wall(self) -> float:
        return WALL + self.now

    # --- network ------------------------------------------------------------------------------------------------

    def delay_s(self) -> float:
        faults = self.faults
        if faults.late and self.rng.random() < faults.late:
            return self.rng.uniform(0.0, faults.late_s)
        return self.rng.uniform(*faults.delay_s)

    def post(self, what: Callable[[], None]) -> None:
        """A one-way message."""
        if self.rng.random() < self.faults.lost:
            return
        for _ in range(2 if self.rng.random() < self.faults.doubled else 1):
            self.after(self.delay_s(), what)

    def ask_keeper(
        self, call: Callable[[Book, Instant], Any], done: Callable[[Any], None], lost: Callable[[str], None],
        seen_commit: int = 0,
    ) -> None:  # fmt: skip
        """A call to the keeper; exactly one of `done` and `lost` follows. Refusals are lost, except `Deposed`."""
        settled = [False]

        def end(finish: Callable[[Any], None], value: Any) -> None:
            if not settled[0]:
                settled[0] = True
                finish(value)

        def arrive() -> None:
            if not self.keeper_up:
                self.after(self.delay_s(), lambda: end(lost, "the keeper is unavailable"))
            elif self._paused:
                self._inbox.append(handle)
            else:
                handle()

        def handle() -> None:
            life = self._life
            if seen_commit > self.book.journal.commit_no:
                self.after(self.delay_s(), lambda: end(lost, "KeeperBehind"))
                return
            try:
                value = call(self.book, self.at())
            except WolfPackError as exc:
                error = exc
                self.after(self.delay_s(), lambda: end(done if isinstance(error, Deposed) else lost, error))
                return
            self._open_calls.append((life, lambda: end(lost, "the keeper died")))
            if value is PARKED:
                return

            def answer(commit_no: int) -> None:
                reply = value._replace(commit_no=commit_no) if isinstance(value, Where | Verdict) else value
                self.after(self.delay_s(), lambda: end(done, reply))

            self._waiting.append(answer)
            self._make_dirty()

        if self.faults.unreachable and self.rng.random() < self.faults.unreachable:
            self.after(self.rng.uniform(0.0, 0.3), lambda: end(lost, "unavailable"))
        self.after(self.delay_s(), arrive)
        self.after(CALL_S, lambda: end(lost, "no answer"))

    def send_turn(self, turn: Turn, done: Callable[[Any], None], lost: Callable[[str], None]) -> None:
        key = (turn.pack, turn.term, turn.seq)

        def call(book: Book, at: Instant) -> Any:
            book.turn(at, turn)
            self.checks.on_accepted_turn(turn)
            self._turns.setdefault(key, []).append(lambda value: self.after(self.delay_s(), lambda: done(value)))
            self._make_dirty()
            return PARKED

        answered = [False]

        def once(finish: Callable[[Any], None]) -> Callable[[Any], None]:
            def go(value: Any) -> None:
                if not answered[0]:
                    answered[0] = True
                    finish(value)

            return go

        done, lost = once(done), once(lost)
        self.ask_keeper(call, done, lost, turn.seen_commit)

    # --- the keeper ---------------------------------------------------------------------------------------------

    def at(self) -> Instant:
        return Instant(self.now - self._forgiven_s, self.wall)

    def birth_of_keeper(self) -> None:
        self._life += 1
        self.ledger = MemoryLedger(self.disk)
        self.book = Book(self.timing, random.Random(self.rng.random()))
        self._forgiven_s = 0.0
        self._paused = False
        self._inbox: list[Callable[[], None]] = []
        self._waiting: list[Callable[[int], None]] = []
        self._open_calls: list[tuple[int, Callable[[], None]]] = []
        self._turns: dict[tuple[str, int, int], list[Callable[[Any], None]]] = {}
        self._committing = self._dirty = False
        self.durable_settle_no = 0
        loaded = self.ledger.open(create=not self._born)
        at = self.at()
        self.book.load(at, loaded)
        self.durable_settle_no = loaded.last_settle_no
        self.keeper_up = True
        if not self._born:
            self.book.fresh_start(at)
            self.book.describe(at, self._cards, self._packs)
        else:
            for unit in self.book.units.values():
                if unit.readiness is Readiness.WAKING:
                    self._create(unit.id, unit.boot)
                elif unit.readiness is Readiness.AWAKE and (unit.id, unit.boot) not in self.alive():
                    self._tell_death(unit.id, unit.boot)
        self._born = True
        self._make_dirty()
        life = self._life
        self.after(TICK_S, lambda: self._tick(life, self.now))

    def alive(self) -> set[tuple[str, int]]:
        return {key for key, process in self.processes.items() if not process.dead}

    def crash_keeper(self, reborn_s: float | None = 1.0) -> None:
        """Its memory and all calls on it are gone; the ledger keeps what was committed."""
        if not self.keeper_up:
            return
        self.keeper_up = False
        self._life += 1
        self.ledger.kill()
        calls, self._open_calls = self._open_calls, []
        for _, lost in calls:
            self.after(self.delay_s(), lost)
        if reborn_s is not None:
            self.after(reborn_s, self.birth_of_keeper)

    def pause_keeper(self, seconds: float) -> None:
        self._paused = True
        life = self._life

        def go_on() -> None:
            if life == self._life:
                self._paused = False
                inbox, self._inbox = self._inbox, []
                for handle in inbox:
                    handle()

        self.after(seconds, go_on)

    def _tick(self, life: int, due: float) -> None:
        if life != self._life:
            return
        if self._paused:
            self.after(0.01, lambda: self._tick(life, due))
            return
        late_s = self.now - due
        if late_s > FORGIVE_S:
            self._forgiven_s += late_s
        self.book.tick(self.at())
        self.book.sweep()
        self._make_dirty()
        due = self.now + TICK_S
        self.after(TICK_S, lambda: self._tick(life, due))

    def _make_dirty(self) -> None:
        self._dirty = True
        if not self._committing:
            self._committing = True
            life = self._life
            self.after(0.0, lambda: self._commit(life))

    def _commit(self, life: int) -> None:
        if life != self._life:
            return
        self._dirty = False
        journal = self.book.journal
        waiting, self._waiting = self._waiting, []
        orders, journal.orders = journal.orders, []
        answers, journal.answers = journal.answers, []
        settle_no = journal.last_settle_no
        writes = journal.take()
        if writes:
            self.book.tasks.taken()
        self.checks.on_take(self.book)

        def durable() -> None:
            if life != self._life:
                return
            if writes:
                journal.commit_no = self.ledger.commit(writes)
                self.book.tasks.committed()
                self.checks.on_commit(writes)
            if journal.commit_no in self.replies_lost_at:
                self.replies_lost_at.discard(journal.commit_no)
                self.crash_keeper()
                return
            self.durable_settle_no = settle_no
            for answer in waiting:
                answer(journal.commit_no)
            for pack, term, seq, reply in answers:
                for turn_done in self._turns.pop((pack, term, seq), []):
                    owner = self.book.packs.get(pack)
                    gone = Deposed("over", owner.term if owner else 0, (owner and owner.alpha) or "")
                    if reply is not None:
                        self.checks.on_leases(pack, reply)
                    turn_done(gone if reply is None else reply._replace(commit_no=journal.commit_no))
            for order in orders:
                self._carry_out(order)
            self._committing = False
            if self._dirty or journal.orders or journal.answers:
                self._make_dirty()

        self.after(self.commit_s if writes else 0.0, durable)

    def _carry_out(self, order: Any) -> None:
        match order:
            case CreateUnit(unit=unit, boot=boot):
                self._create(unit, boot)
            case EndUnit(unit=unit, boot=boot):
                self.after(self.delay_s(), lambda: self.end_process(unit, boot))
            case AskToLead(unit=unit, boot=boot, pack=pack, term=term):
                self.post(lambda: self.reach(unit, boot, lambda process: process.ask_to_lead(pack, term)))
            case Summon(unit=unit, boot=boot, pack=pack):
                self.post(lambda: self.reach(unit, boot, lambda process: process.summon(pack, None)))
            case Instruct(unit=unit, boot=boot, order=what, grace_s=grace_s, reason=reason):
                self.after(
                    self.delay_s(),
                    lambda: self.reach(unit, boot, lambda process: process.instruct(what, grace_s, reason)),
                )

    # --- processes of units -------------------------------------------------------------------------------------

    def _create(self, unit: str, boot: int) -> None:
        def begin() -> None:
            known = self.processes.get((unit, boot))
            if known is None or known.dead:
                process = self.processes[unit, boot] = Process(self, self.book.units[unit].card, boot)
                process.be_born()

        self.after(self.birth_s * self.rng.uniform(0.8, 1.2), begin)

    def reach(self, unit: str, boot: int, what: Callable[[Process], None]) -> bool:
        """Hands a message to a process; it waits there while the process is frozen. False: that process is dead."""
        process = self.processes.get((unit, boot))
        if process is None or process.dead:
            return False
        process.receive(lambda: what(process))
        return True

    def end_process(self, unit: str, boot: int, *, tell: bool = True) -> None:
        process = self.processes.get((unit, boot))
        if process is not None and not process.dead:
            process.die()
            if tell and self.death_s is not None:
                self.after(self.death_s, lambda: self._tell_death(unit, boot))

    def _tell_death(self, unit: str, boot: int) -> None:
        if not self.keeper_up:
            return  # a reborn keeper looks for itself
        if self._paused:
            self._inbox.append(lambda: self._tell_death(unit, boot))
            return
        self.book.lose(self.at(), unit, boot, "its process died")
        self._make_dirty()

    def process(self, unit: str) -> Process:
        """The living process of a unit."""
        return next(p for (name, _), p in reversed(self.processes.items()) if name == unit and not p.dead)

    def crash(self, unit: str, *, tell: bool = True) -> None:
        self.end_process(unit, self.process(unit).boot, tell=tell)

    def freeze(self, unit: str, *, hands: bool = False) -> None:
        self.process(unit).freeze(hands=hands)

    def thaw(self, unit: str) -> None:
        self.process(unit).thaw()

    # --- persons, and looking ------------------------------------------------------------------------------------

    def disk_rows(self, ids: Iterable[str]) -> list[Any]:
        return [self.disk.tasks[each] for each in ids if each in self.disk.tasks]

    def row(self, task_id: str) -> Any:
        return self.disk.tasks[task_id].mutable

    def act(self, what: Callable[[Book, Instant], Any]) -> Any:
        """A person's order, taken at once."""
        value = what(self.book, self.at())
        self._make_dirty()
        return value

    def pending(self) -> set[str]:
        return {task_id for client in self.clients.values() for task_id in client.pending}

    def sent(self) -> int:
        return sum(client.counter for client in self.clients.values())

    def settle(self, within_s: float = 60.0) -> None:
        """Runs until every task sent is acknowledged and has reached its client.

        Raises:
            AssertionError: some did not in time.
        """

        def settled() -> bool:
            return all(
                len(client.aliases) + len(client.refused) == client.counter and not client.pending
                for client in self.clients.values()
            )

        if not self.run_until(settled, within_s):
            left = {each: self.disk.tasks[each].mutable for each in list(self.pending())[:5] if each in self.disk.tasks}
            raise AssertionError(f"{len(self.pending())} tasks did not settle in {within_s} s, among them {left}")
        self.checks.at_rest(self)

    def states(self, ids: Iterable[str]) -> list[str]:
        return [self.disk.tasks[each].mutable.state for each in ids]

    def done(self, ids: Iterable[str]) -> bool:
        return all(each in self.disk.tasks and self.row(each).state == TaskState.DONE for each in ids)

    def alpha(self, pack: str) -> str | None:
        return self.book.packs[pack].alpha

    def awake(self) -> list[str]:
        return [unit.id for unit in self.book.units.values() if unit.readiness is Readiness.AWAKE]

    def members(self, pack: str) -> list[str]:
        return sorted(u.id for u in self.book.desk.members.get(pack, {}).values() if u.readiness is Readiness.AWAKE)

    def events(self, name: str) -> list[dict[str, Any]]:
        return [{"at": event.at - WALL, **json.loads(event.fields)} for event in self.disk.events if event.name == name]


PARKED = object()

__all__ = ["Client", "Faults", "World", "task", "wolves"]
