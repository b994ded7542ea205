"""The promises that a simulated den looks after by itself: DESIGN's invariants I1 to I8, I12 and I13.

I1 to I5, I7, I8 and I13 are judged at each commit, on what is durable from then on; I4, I6, I7, I8 and I12 also on
what leaves: verdicts, howls, leases. Membership's own (I9 to I11) are in `den_gossip`.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from wolfpack.core.book import Book
from wolfpack.core.howls import Howl
from wolfpack.core.rows import Writes
from wolfpack.core.wire import Final, Turn, TurnReply, Verdict
from wolfpack.model import FINAL_STATES, Readiness, TaskState

if TYPE_CHECKING:
    from wolfpack.sim.den import World
    from wolfpack.sim.den_keeper import Keeper

SMALL = 60  # a book of so few tasks is looked at often
OFTEN, SELDOM = 5, 25  # commits


class BrokenPromise(AssertionError):
    """An invariant does not hold.

    Attributes:
        promise: its name in DESIGN, such as "I4".
    """

    def __init__(self, promise: str, text: str) -> None:
        super().__init__(f"{promise}: {text}")
        self.promise = promise


class Checks:
    def __init__(self, world: World) -> None:
        self._world = world
        self._writers: dict[tuple[str, int], tuple[str, int]] = {}
        self._newest: dict[str, int] = {}  # pack -> highest term in the ledger
        self._granted: dict[tuple[str, int], tuple[str, int]] = {}
        self._owners: set[tuple[int, str | None, int]] = set()  # term, alpha and its boot, of any pack
        self._leases: dict[int, str] = {}
        self._latest: dict[str, int] = {}  # task -> its latest lease
        self._holders: dict[int, tuple[str, int]] = {}
        self._asked: dict[tuple[str, int, int, str], int] = {}  # pack, term, seq, unit -> leases asked for
        self._given: dict[tuple[str, int, int, str], set[int]] = {}
        self._done: dict[str, int] = {}  # task -> settle number
        self._boots: dict[str, int] = {}
        self._states: dict[str, tuple[str, TaskState]] = {}  # task -> pack and state, as the ledger has them
        self._ledger: dict[str, Counter[TaskState]] = {}
        self._commits = 0
        self.alpha_changes = 0

    # --- commits ------------------------------------------------------------------------------------------------

    def on_accepted_turn(self, turn: Turn) -> None:
        """A keeper took this turn, in its memory."""
        for member in turn.members:
            key = (turn.pack, turn.term, turn.seq, member.unit)
            self._asked[key] = max(member.ask, self._asked.get(key, 0))
        if len(self._asked) > 2000:
            for old in list(self._asked)[:1000]:
                del self._asked[old]
                self._given.pop(old, None)

    def on_take(self, keeper: Keeper) -> dict[str, Counter[TaskState]]:
        """A commit takes the book as it stands now; returns the book's counts, for `on_commit`."""
        book = keeper.book
        self._commits += 1
        if self._commits % (OFTEN if len(book.tasks.live) < SMALL else SELDOM) == 0:
            check_book(book)
        return {pack: +tally for pack, tally in book.tasks.counts.items()}

    def on_commit(
        self, keeper: Keeper, writes: Writes, turns: list[Turn], counts: dict[str, Counter[TaskState]]
    ) -> None:
        """These writes are durable now; `turns` are those that they hold, `counts` those of the book when taken."""
        for turn in turns:
            who = (turn.unit, turn.boot)
            known = self._writers.setdefault((turn.pack, turn.term), who)
            if known != who:
                raise BrokenPromise("I1", f"term {turn.term} of {turn.pack} was written by {known} and {who}")
            if turn.term < self._newest.get(turn.pack, 0):
                newest = self._newest[turn.pack]
                raise BrokenPromise("I3", f"{who} wrote term {turn.term} of {turn.pack} after a grant of {newest}")
        for event in writes.events:  # a term that was granted and given back within one commit shows in no row
            if event.name == "AlphaCrowned":
                crowned = json.loads(event.fields)
                self._grant(crowned["pack"], crowned["term"], crowned["unit"], crowned["boot"])
        self._check_packs(writes)
        for unit in writes.units:
            if unit.boot < self._boots.get(unit.unit, 0):
                raise BrokenPromise("I8", f"{unit.unit} went back to boot {unit.boot} from {self._boots[unit.unit]}")
            self._boots[unit.unit] = unit.boot
        self._check_tasks(writes, counts)
        self._trace(keeper, writes)

    def _check_packs(self, writes: Writes) -> None:
        for pack in writes.packs:
            if pack.term < self._newest.get(pack.pack, 0):
                raise BrokenPromise("I2", f"{pack.pack} went back to term {pack.term} from {self._newest[pack.pack]}")
            self._newest[pack.pack] = pack.term
            if pack.alpha is not None:
                self._grant(pack.pack, pack.term, pack.alpha, pack.alpha_boot)
        for name in writes.removed_packs:
            self._newest.pop(name, None)
            for key in [key for key in self._granted if key[0] == name]:
                del self._granted[key]
                self._writers.pop(key, None)

    def _grant(self, pack: str, term: int, unit: str, boot: int) -> None:
        if (pack, term) not in self._granted:
            self.alpha_changes += 1
            self._owners.add((term, unit, boot))
        known = self._granted.setdefault((pack, term), (unit, boot))
        if known != (unit, boot):
            raise BrokenPromise("I4", f"term {term} of {pack} went to {known} and {(unit, boot)}")

    def _check_tasks(self, writes: Writes, counts: dict[str, Counter[TaskState]]) -> None:
        fresh = {fixed.id: fixed.pack for fixed in writes.new_tasks}
        for row in writes.changed_tasks:
            state = TaskState(row.state)
            pack, before = self._states.get(row.id, ("", None))
            if row.id in fresh:
                pack = fresh[row.id]
            if row.lease_no:
                task_id = self._leases.setdefault(row.lease_no, row.id)
                if task_id != row.id:
                    raise BrokenPromise("I7", f"lease {row.lease_no} was granted for {task_id} and {row.id}")
                if row.lease_no < self._latest.get(row.id, 0):
                    raise BrokenPromise(
                        "I7", f"{row.id} is {state} by lease {row.lease_no}, not its latest {self._latest[row.id]}"
                    )
                self._latest[row.id] = row.lease_no
            if row.id in self._done:
                raise BrokenPromise("I5", f"{row.id} was done at {self._done[row.id]} and is {state} now")
            if state is TaskState.DONE:
                self._done[row.id] = row.settle_no
            if (row.settle_no > 0) != (state in FINAL_STATES):
                raise BrokenPromise("I5", f"{row.id} is {state} at settle number {row.settle_no}")
            tally = self._ledger.setdefault(pack, Counter())
            if before is not None:
                tally[before] -= 1
            tally[state] += 1
            self._states[row.id] = (pack, state)
        for task_id in writes.removed_tasks:
            pack, before = self._states.pop(task_id)
            if before is not None:
                self._ledger[pack][before] -= 1
        for pack, book in counts.items():
            if +self._ledger.get(pack, Counter()) != book:
                raise BrokenPromise("I13", f"{pack}: the ledger has {self._ledger.get(pack)}, the book {book}")

    def _trace(self, keeper: Keeper, writes: Writes) -> None:
        """What became durable goes into the trace, and what the den announces into the story."""
        world = self._world
        mix = world.kernel.mix
        mix(f"commit {keeper.book.journal.commit_no}")
        for row in writes.changed_tasks:
            mix(f"task {row.id} {row.state} {row.lease_no} {row.settle_no} {row.cause}")
        for unit in writes.units:
            mix(f"unit {unit.unit} {unit.boot} {unit.readiness} {unit.pack}")
        for pack in writes.packs:
            mix(f"pack {pack.pack} {pack.term} {pack.alpha} {pack.turn_seq}")
        for event in writes.events:
            world.tell(keeper.name, f"{event.name} {event.fields}")

    # --- what leaves --------------------------------------------------------------------------------------------

    def on_crown(self, howl: Howl) -> None:
        """A unit howls that it is alpha."""
        who = (howl.unit, howl.boot)
        known = self._granted.get((howl.pack, howl.term))
        if known != who:
            raise BrokenPromise("I6", f"{who} howls {howl.kind} of term {howl.term} of {howl.pack}, {known} has it")

    def on_verdict(self, verdict: Verdict) -> None:
        """A claim's answer leaves the keeper."""
        if verdict.granted and (verdict.term, verdict.alpha, verdict.alpha_boot) not in self._owners:
            raise BrokenPromise("I4", f"{verdict.alpha} is told of term {verdict.term}, which the ledger never gave it")

    def on_leases(self, pack: str, term: int, reply: TurnReply) -> None:
        """Leases leave for the alpha."""
        for unit, boot, jobs in reply.leases:
            key = (pack, term, reply.seq, unit)
            given = self._given.setdefault(key, set())
            for job in jobs:
                given.add(job.lease_no)
                known = self._holders.setdefault(job.lease_no, (unit, boot))
                if known != (unit, boot):
                    raise BrokenPromise("I7", f"lease {job.lease_no} left for {known} and {(unit, boot)}")
                if self._world.disk.lease_no < job.lease_no:
                    raise BrokenPromise("I7", f"lease {job.lease_no} left before it was durable")
            if len(given) > self._asked.get(key, len(given)):
                raise BrokenPromise("I12", f"{unit} got {len(given)} leases and asked for {self._asked[key]}")

    def on_final(self, client: str, final: Final) -> None:
        row = self._world.disk.tasks[final.task_id].mutable
        if final.settle_no > row.settle_no and row.state in FINAL_STATES:
            raise BrokenPromise("I5", f"the end of {final.task_id} left before it was durable")
        if row.state == TaskState.DONE and row.settle_no != final.settle_no:
            raise BrokenPromise("I5", f"{client} got another end of {final.task_id}")

    # --- at rest ------------------------------------------------------------------------------------------------

    def at_rest(self, world: World) -> None:
        check_book(world.book)
        counted: dict[str, Counter[TaskState]] = {}
        for count in world.ledger.counts():
            counted.setdefault(count.pack, Counter())[TaskState(count.state)] = count.tasks
        for pack in [*counted, *self._ledger]:
            if +counted.get(pack, Counter()) != +self._ledger.get(pack, Counter()):
                raise BrokenPromise("I13", f"{pack}: {counted.get(pack)} in the ledger, {self._ledger.get(pack)} seen")
        for (unit, boot), process in world.processes.items():
            if process.brain is not None and not process.dead:
                row = world.book.units[unit]
                if boot != row.boot and row.readiness is Readiness.AWAKE:
                    raise BrokenPromise("I8", f"two boots of {unit} live: {boot} and {row.boot}")


def check_book(book: Book) -> None:
    """The book agrees with itself: places of tasks, leases of units, counts, members."""
    tallies: dict[str, Counter[Any]] = {}
    leased: dict[tuple[str, Any], int] = {}
    for task in [*book.tasks.live.values(), *book.tasks.settled.values()]:
        tallies.setdefault(task.fixed.pack, Counter())[task.state] += 1
        if task.state is TaskState.LEASED:
            unit = book.units[task.unit]
            held = unit.held.get(task.lease_no)
            _must(held is not None and held.task is task, "I7", task.id, "is leased to a unit that does not hold it")
            _must(unit.boot == task.boot, "I8", task.id, "is leased to an old boot of", task.unit)
            _must(unit.readiness in LIVING, "I8", task.unit, "holds leases and is", unit.readiness)
            _must(unit.pack == task.fixed.pack, "I8", task.unit, "holds and is no member for", task.id)
            leased[task.fixed.pack, task.lane] = leased.get((task.fixed.pack, task.lane), 0) + 1
            _must(not task.place, "I13", task.id, "is leased and queued")
        elif task.state is TaskState.QUEUED:
            _must(bool(task.place), "I13", task.id, "is queued nowhere")
    for unit in book.units.values():
        for lease_no, held in unit.held.items():
            _must(
                held.task.lease_no == lease_no, "I7", unit.id, "holds a lease that is not the latest of", held.task.id
            )
            _must(held.task.state is TaskState.LEASED, "I7", unit.id, "holds", held.task.id, held.task.state)
        for pack, members in book.desk.members.items():
            _must((unit.id in members) == (unit.pack == pack), "I8", unit.id, "is in", unit.pack, "listed in", pack)
        if unit.readiness in (Readiness.ASLEEP, Readiness.GONE, Readiness.QUARANTINED):
            _must(unit.pack is None, "I8", unit.id, "is", unit.readiness, "and a member of", unit.pack)
    for pack, queue in book.tasks.queues.items():
        tally, counts = tallies.get(pack, Counter()), book.tasks.counts[pack]
        for state in (TaskState.QUEUED, TaskState.LEASED):
            _must(counts[state] == tally[state], "I13", pack, "counts", counts, "and has", tally)
        _must(all(number >= 0 for number in counts.values()), "I13", pack, "counts", counts)
        placed = sum(1 for _ in queue.tasks())
        _must(placed == queue.runnable + queue.delayed == tally[TaskState.QUEUED], "I13", pack, "queues", placed, tally)
        for needs, lane in queue.lanes.items():
            _must(
                lane.leased == leased.get((pack, needs), 0), "I12", pack, "counts as leased", lane.leased, "of", needs
            )
            waiting = sum(1 for entry in lane.heap if entry[1] == entry[2].queued_no)
            _must(lane.queued == waiting, "I13", pack, "counts as queued", lane.queued, "of", needs)


LIVING = (Readiness.AWAKE, Readiness.DRAINING)


def _must(holds: bool, promise: str, *what: object) -> None:
    if not holds:
        raise BrokenPromise(promise, " ".join(map(str, what)))
