"""A whole den on virtual time: brains, the keeper's book over a ledger in memory, hands, day jobs, clients, and faults.

Everything is drawn from one seed and happens in one heap of events, so a run can be told again by its seed. The world
drives book and brains by the same rules as the Ray drivers: nothing leaves the keeper before the commit that holds
it; a unit's calls fail when the other side is down, and never arrive twice, but one-way messages may be lost, doubled
and overtaken. `checks` looks at every commit and every message for broken promises.

    world = World(cards=wolves(3), packs=[PackSpec(name="p", most=3)])
    ids = world.submit("p", [task(0.1)] * 10)
    world.settle()

Faults by hand: `crash`, `freeze`, `thaw` of units; `crash_keeper`, `pause_keeper`; `weather`, `network.cut`. By a
schedule: `den_trouble`.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from wolfpack.core.book import Book, Instant
from wolfpack.core.memory_ledger import MemoryDisk, MemoryLedger
from wolfpack.core.rows import TaskMutable, TaskRow
from wolfpack.core.wire import Turn
from wolfpack.model import PROFILES, Card, PackSpec, Readiness, TaskState, Timing
from wolfpack.sim.calls import Call, Deadlines
from wolfpack.sim.checks import Checks
from wolfpack.sim.den_clients import Client, Clients, task, wolves
from wolfpack.sim.den_keeper import WALL, WATCH_S, Keeper
from wolfpack.sim.den_units import HUNT_PARK_S, Process
from wolfpack.sim.kernel import Kernel
from wolfpack.sim.network import Network, Weather

CALL_S = 8.0  # a call to the keeper without an answer counts as failed
UNREACHABLE_S = 0.3  # a call that fails though the other side may have taken it does so within
STORY_MOST = 1000  # lines kept


class World(Clients):
    """A simulated den.

    Args:
        cards, packs: what pack.yaml would say.
        seed: what all chance is derived from.
        timing: the timing profile.
        weather: the network.
        commit_s: what a commit takes.
        birth_s: what it takes to create a unit's process, give or take a fifth.
        death_s: how long until the keeper is told of a dead process; None: never.
        node: unit -> the node it lives on.
        gossips: whether each process runs membership beside its brain.
    """

    def __init__(
        self,
        *,
        cards: Sequence[Card],
        packs: Sequence[PackSpec],
        seed: int = 0,
        timing: Timing = PROFILES["ray"],
        weather: Weather | None = None,
        commit_s: float = 0.001,
        birth_s: float = 0.05,
        death_s: float | None = 0.02,
        node: Callable[[str], str] = lambda unit: f"node of {unit}",
        gossips: bool = False,
    ) -> None:
        self.kernel = Kernel(seed)
        self.network = Network(self.kernel, weather)
        self.timing = timing
        self.commit_s, self.birth_s, self.death_s, self.node = commit_s, birth_s, death_s, node
        self.gossips = gossips
        self.packets = self.packet_bytes = 0  # of membership
        self.wall_jump_s = 0.0  # of the keeper's wall clock
        self.processes: dict[tuple[str, int], Process] = {}
        self._lives: dict[str, list[Process]] = {}  # unit -> its processes, the newest boot last
        self.starts: dict[str, list[tuple[float, str, int, int]]] = defaultdict(list)  # task -> time, unit, boot, lease
        self.clients: dict[str, Client] = {}
        self.broken: set[str] = set()  # units whose set-up raises
        self.day_step_s, self.day_pause_s = 0.1, 1.0
        self.day_steps: dict[str, int] = defaultdict(int)
        self.failures: list[str] = []  # PublishFailure of alphas
        self.story: deque[tuple[int, str, str]] = deque(maxlen=STORY_MOST)
        self.checks = Checks(self)
        self.disk = MemoryDisk()
        self.replies_lost_at: set[int] = set()  # commits after which the keeper dies before it answers
        self.call_deadlines = Deadlines(self.kernel, CALL_S, "no answer")
        self.watch_deadlines = Deadlines(self.kernel, 2 * WATCH_S, "no answer")
        self.hunt_deadlines = Deadlines(self.kernel, HUNT_PARK_S + 2, "no answer")
        self._births = self.kernel.stream("births")
        self._cards, self._packs = tuple(cards), tuple(packs)
        self.keepers: list[Keeper] = []
        self._old_handles: set[str] = set()  # who still calls the keeper before the newest
        self.birth_of_keeper()
        self.run(0.01)

    # --- time ---------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.kernel.now

    def after(self, delay_s: float, what: Callable[..., object], *args: Any) -> None:
        self.kernel.after(delay_s, what, *args)

    def run(self, seconds: float) -> None:
        self.kernel.run(seconds)

    def run_until(self, condition: Callable[[], object], within_s: float) -> bool:
        """Lets time pass until the condition holds; says whether it did."""
        return self.kernel.run_until(condition, within_s)

    def tell(self, who: str, what: str) -> None:
        """Adds a line to the story of this run, and to its trace."""
        self.story.append((self.kernel.now_us, who, what))
        self.kernel.mix(f"{who} {what}")

    # --- calls --------------------------------------------------------------------------------------------------

    @property
    def weather(self) -> Weather:
        return self.network.weather

    @weather.setter
    def weather(self, weather: Weather) -> None:
        self.network.weather = weather

    def ask_keeper(
        self, caller: Process | str, method: Callable[[Book, Instant], Any], done: Callable[[Any], object],
        lost: Callable[[Any], object], seen_commit: int = 0,
    ) -> None:  # fmt: skip
        """A call to the keeper; exactly one of `done` and `lost` follows. Refusals are lost, except `Deposed`.

        Args:
            caller: a process, or the name of a client.
        """
        call = self._call(caller, done, lost)
        self.call_deadlines.watch(call)
        self._to_keeper(call, lambda keeper: keeper.take(keeper.handle, call, method, seen_commit))

    def send_turn(
        self, caller: Process, turn: Turn, done: Callable[[Any], object], lost: Callable[[Any], object]
    ) -> None:
        call = self._call(caller, done, lost)
        self.call_deadlines.watch(call)
        self._to_keeper(call, lambda keeper: keeper.take(keeper.handle_turn, call, turn))

    def watch(self, client: str, cursor: int, done: Callable[[Any], object], lost: Callable[[Any], object]) -> None:
        call = self._call(client, done, lost)
        self.watch_deadlines.watch(call)
        self._to_keeper(call, lambda keeper: keeper.take(keeper.handle_watch, call, client, cursor))

    def _call(self, caller: Process | str, done: Callable[[Any], object], lost: Callable[[Any], object]) -> Call:
        if isinstance(caller, str):
            return Call(caller, done, lost)
        return Call(caller.card.unit, done, lost, caller)

    def _to_keeper(self, call: Call, arrive: Callable[[Keeper], None]) -> None:
        self.maybe_unreachable(call)
        us = self.network.stream_us(call.source, "keeper")
        if us is not None:
            self.kernel.after_us(us, self._at_keeper, call, arrive)

    def _at_keeper(self, call: Call, arrive: Callable[[Keeper], None]) -> None:
        keeper = self.keeper
        if call.source in self._old_handles and len(self.keepers) > 1 and self.keepers[-2].up:
            keeper = self.keepers[-2]
        if keeper.up:
            arrive(keeper)
        else:
            self.reply(call, call.fail, "the keeper is unavailable")

    def reply(self, call: Call, finish: Callable[[Any], object], value: Any) -> None:
        """An answer goes from the keeper to its caller, or is lost on the way."""
        us = self.network.stream_us("keeper", call.source)
        if us is not None:
            self.kernel.after_us(us, finish, value)

    def maybe_unreachable(self, call: Call) -> None:
        """Now and then a call fails though the other side may have taken it."""
        unreachable = self.network.weather.unreachable
        if unreachable:
            dice = self.network.dice(call.source)
            if dice.random() < unreachable:
                self.kernel.after(UNREACHABLE_S * dice.random(), call.fail, "unavailable")

    def from_keeper(self, unit: str, what: Callable[[], object]) -> None:
        """A call of the keeper to a unit."""
        us = self.network.stream_us("keeper", unit)
        if us is not None:
            self.kernel.after_us(us, what)

    # --- the keeper ---------------------------------------------------------------------------------------------

    @property
    def keeper(self) -> Keeper:
        """The newest one; it may be dead."""
        return self.keepers[-1]

    @property
    def book(self) -> Book:
        return self.keeper.book

    @property
    def ledger(self) -> MemoryLedger:
        return self.keeper.ledger

    @property
    def keeper_up(self) -> bool:
        return self.keeper.up

    def at(self) -> Instant:
        return self.keeper.at()

    def birth_of_keeper(self, *, seizes: bool = False) -> None:
        """A keeper is born, unless one lives already; one that `seizes` is born beside it."""
        if self.keepers and self.keeper.up and not seizes:
            return
        first = not self.keepers
        keeper = Keeper(self, seizes=seizes)
        self.keepers.append(keeper)
        keeper.be_born(self._cards, self._packs, first=first)
        self.tell(keeper.name, "is born")

    def second_keeper(self, old_handles: Iterable[str]) -> None:
        """A keeper is born while the one before it lives; these units, and clients, go on calling the old one."""
        if self.keeper.up:
            self._old_handles = set(old_handles)
            self.birth_of_keeper(seizes=True)

    def end_second_keeper(self) -> None:
        """All keepers but the newest are gone."""
        self._old_handles.clear()
        for keeper in self.keepers[:-1]:
            keeper.die()

    def crash_keeper(self, reborn_s: float | None = 1.0) -> None:
        """Its memory and all calls on it are gone; the ledger keeps what was committed."""
        if not self.keeper.up:
            return
        self.tell(self.keeper.name, "dies")
        self.keeper.die()
        if reborn_s is not None:
            self.after(reborn_s, self.birth_of_keeper)

    def pause_keeper(self, seconds: float) -> None:
        keeper = self.keeper
        if keeper.up and not keeper.paused:
            self.tell(keeper.name, f"stands still for {seconds:.2f} s")
            keeper.pause()
            self.after(seconds, keeper.resume)

    # --- processes of units -------------------------------------------------------------------------------------

    def create(self, card: Card, boot: int) -> None:
        self.after(self.birth_s * (0.8 + 0.4 * self._births.random()), self._begin, card, boot)

    def _begin(self, card: Card, boot: int) -> None:
        known = self.processes.get((card.unit, boot))
        if known is None or known.dead:
            process = self.processes[card.unit, boot] = Process(self, card, boot)
            lives = self._lives.setdefault(card.unit, [])
            lives.append(process)
            lives.sort(key=lambda each: each.boot)
            process.be_born()

    def reach(self, unit: str, boot: int, what: Callable[[Process], object]) -> bool:
        """Hands a message to a process; it waits there while the process is frozen. False: that process is dead."""
        process = self.processes.get((unit, boot))
        if process is None or process.dead:
            return False
        process.hear(lambda: what(process))
        return True

    def end_process(self, unit: str, boot: int, *, tell: bool = True, quiet: bool = False) -> None:
        process = self.processes.get((unit, boot))
        if process is not None and not process.dead:
            process.die(quiet=quiet)
            if tell and not quiet and self.death_s is not None:
                self.after(self.death_s, self.tell_death, unit, boot)

    def tell_death(self, unit: str, boot: int) -> None:
        """Every keeper hears that this process died; a reborn one looks for itself."""
        for keeper in self.keepers[-2:]:
            if keeper.up:
                keeper.take(keeper.tell_death, unit, boot)

    def alive(self) -> set[tuple[str, int]]:
        return {key for key, process in self.processes.items() if not process.dead}

    def process(self, unit: str) -> Process:
        """The living process of a unit, the newest if there are two."""
        process = self.find_process(unit)
        assert process is not None, f"{unit} has no living process"
        return process

    def find_process(self, unit: str) -> Process | None:
        """The living process of a unit, if there is one."""
        lives = self._lives.get(unit, [])
        while lives and lives[-1].dead:
            lives.pop()
        return lives[-1] if lives else None

    def crash(self, unit: str, *, tell: bool = True, quiet: bool = False) -> None:
        """Its process is gone. Not `tell`: the keeper is not told. `quiet`: nobody is, for its node fell silent."""
        process = self.process(unit)
        self.tell(process.name, "dies" + (", and nobody is told" if quiet else ""))
        self.end_process(unit, process.boot, tell=tell, quiet=quiet)

    def freeze(self, unit: str, *, hands: bool = False) -> None:
        self.tell(unit, "freezes")
        self.process(unit).freeze(hands=hands)

    def thaw(self, unit: str) -> None:
        self.tell(unit, "thaws")
        self.process(unit).thaw()

    def calm(self) -> None:
        """Faults stop: a good network, everybody runs and at the usual pace, one keeper."""
        self.tell("the world", "grows calm")
        self.weather = Weather()
        self.network.heal()
        self.replies_lost_at.clear()
        self.end_second_keeper()
        for keeper in self.keepers[-1:]:
            keeper.commit_factor = 1.0
            if keeper.paused:
                keeper.resume()
        for process in list(self.processes.values()):
            if process.dead:
                continue
            process.slow_down(0.0)
            process.set_clock()
            if process.frozen:
                process.thaw()

    # --- persons, and looking ------------------------------------------------------------------------------------

    def disk_rows(self, ids: Iterable[str]) -> list[TaskRow]:
        return [self.disk.tasks[each] for each in ids if each in self.disk.tasks]

    def disk_keys(self, pack: str, keys: Iterable[str]) -> list[TaskRow]:
        return [self.disk.tasks[self.disk.keys[pack, key]] for key in keys if (pack, key) in self.disk.keys]

    def row(self, task_id: str) -> TaskMutable:
        return self.disk.tasks[task_id].mutable

    def act(self, what: Callable[[Book, Instant], Any]) -> Any:
        """A person's order, taken at once."""
        value = what(self.book, self.at())
        self.keeper.make_dirty()
        return value

    def pending(self) -> set[str]:
        return {task_id for client in self.clients.values() for task_id in client.pending}

    def sent(self) -> int:
        return sum(client.counter for client in self.clients.values())

    def settled(self) -> bool:
        """Whether every task sent is acknowledged, or refused, and has reached its client."""
        return all(
            not client.pending and len(client.aliases) + len(client.refused) == client.counter
            for client in self.clients.values()
        )

    def settle(self, within_s: float = 60.0) -> None:
        """Runs until every task sent is acknowledged and has reached its client.

        Raises:
            AssertionError: some did not in time.
        """
        if not self.run_until(self.settled, within_s):
            left = {
                each: self.disk.tasks[each].mutable for each in sorted(self.pending())[:5] if each in self.disk.tasks
            }
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

    def change_weather(self, **fields: Any) -> None:
        """Changes a part of the weather, and leaves the rest."""
        self.weather = replace(self.weather, **fields)


__all__ = ["Client", "Weather", "World", "task", "wolves"]
