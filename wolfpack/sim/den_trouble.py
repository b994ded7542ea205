"""Makes the faults of a schedule happen in a simulated den, and ends them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, assert_never

from wolfpack.core.book import Book, Instant
from wolfpack.errors import LedgerError, WolfPackError
from wolfpack.sim.faults import ALPHA, Fault, FaultKind
from wolfpack.sim.kernel import US
from wolfpack.sim.network import Weather

if TYPE_CHECKING:
    from wolfpack.sim.den import World

K = FaultKind
REBORN_S = 1.0  # a keeper that ended by itself is back after so long


class Trouble:
    """Carries a schedule out. A fault whose target sleeps hits the next unit that does not."""

    def __init__(self, world: World, faults: Sequence[Fault]) -> None:
        self._world = world
        self._weather: list[Fault] = []
        self.happened = 0
        self.ended = False
        for fault in faults:
            world.kernel.at_us(fault.at_us, self._begin, fault)

    def end(self) -> None:
        """Faults stop: whatever is still to come does not."""
        self.ended = True
        self._weather.clear()
        self._world.calm()

    def _begin(self, fault: Fault) -> None:
        if not self.ended:
            self.happened += 1
            self._world.tell("fault", str(fault))
            self._make(fault)

    def _later(self, after_us: int, what: Callable[[], object]) -> None:
        """The end of a fault; when all have ended, the calm sees to it."""
        self._world.kernel.after_us(after_us, lambda: None if self.ended else what())

    def _make(self, fault: Fault) -> None:
        world = self._world
        match fault.kind:
            case K.LOSS | K.DOUBLING | K.LATENESS | K.DELAY | K.UNREACHABLE:
                self._weather.append(fault)
                self._set_weather()
                self._later(fault.for_us, lambda: self._end_weather(fault))
            case K.CLOG:
                for other in fault.others or (None,):
                    world.network.clog(fault.targets[0], other, fault.for_us / US)
            case K.SPLIT | K.BRIDGE | K.ONE_WAY | K.ISOLATE:
                alone = fault.kind is K.ISOLATE
                targets = [self._awake(unit) for unit in fault.targets] if alone else fault.targets
                cut = world.network.cut(targets, None if alone else fault.others, one_way=fault.kind is K.ONE_WAY)
                self._later(fault.for_us, lambda: world.network.heal(cut))
            case (
                K.CRASH | K.SILENT_CRASH | K.PAUSE | K.DEAF_PAUSE | K.SLOW | K.CLOCK_RATE | K.CLOCK_JUMP
                | K.FALSE_DEATH | K.OLD_BOOT
            ):  # fmt: skip
                for unit in fault.targets:
                    self._hit(fault, self._awake(unit))
            case (
                K.KEEPER_CRASH | K.KEEPER_PAUSE | K.KEEPER_SLOW | K.KEEPER_JUMP | K.REPLY_LOST | K.COMMIT_FAILS
                | K.TWO_KEEPERS
            ):  # fmt: skip
                self._hit_keeper(fault)
            case K.WAKE | K.SLEEP | K.RELEASE | K.RECALL | K.SCALE | K.CANCEL:
                if world.keeper.up:
                    try:
                        self._order(fault)
                    except WolfPackError as exc:
                        world.tell("operator", f"is refused: {exc}")
            case _:
                assert_never(fault.kind)

    # --- the network --------------------------------------------------------------------------------------------

    def _set_weather(self) -> None:
        """The worst of each, where faults overlap."""

        def worst(kind: FaultKind) -> float:
            return max((fault.amount for fault in self._weather if fault.kind is kind), default=0.0)

        self._world.weather = replace(
            Weather(), lost=worst(K.LOSS), doubled=worst(K.DOUBLING), late=worst(K.LATENESS),
            exponential_s=worst(K.DELAY), unreachable=worst(K.UNREACHABLE),
        )  # fmt: skip

    def _end_weather(self, fault: Fault) -> None:
        self._weather.remove(fault)
        self._set_weather()

    # --- units --------------------------------------------------------------------------------------------------

    def _awake(self, unit: str) -> str:
        """This unit, or the next one that has a living process; an alpha where that is asked for."""
        world = self._world
        alphas = [pack.alpha for pack in world.book.packs.values() if pack.alpha is not None] if unit == ALPHA else []
        names = list(world.book.units)
        first = names.index(alphas[0] if alphas else unit) if alphas or unit in names else 0
        for name in [*names[first:], *names[:first]]:
            if world.find_process(name) is not None:
                return name
        return names[first]

    def _hit(self, fault: Fault, unit: str) -> None:
        world = self._world
        process = world.find_process(unit)
        if process is None:
            return
        boot = process.boot
        match fault.kind:
            case K.CRASH | K.SILENT_CRASH:
                world.crash(unit, quiet=fault.kind is K.SILENT_CRASH)
            case K.PAUSE | K.DEAF_PAUSE:
                if not process.frozen:
                    process.freeze(hands=fault.amount > 0.0, deaf=fault.kind is K.DEAF_PAUSE)
                    self._later(fault.for_us, process.thaw)
            case K.SLOW:
                process.slow_down(fault.amount)
                self._later(fault.for_us, lambda: process.slow_down(0.0))
            case K.CLOCK_RATE:
                process.set_clock(rate=fault.amount)
                self._later(fault.for_us, process.set_clock)
            case K.CLOCK_JUMP:
                process.set_clock(jump_s=fault.amount)
            case K.FALSE_DEATH:
                world.tell_death(unit, boot)
            case K.OLD_BOOT:
                world.network.clog(unit, None, fault.for_us / US)
                self._later(fault.for_us // 2, lambda: world.end_process(unit, boot))
            case _:
                raise AssertionError(f"{fault.kind} is no fault of a unit")

    # --- the keeper ---------------------------------------------------------------------------------------------

    def _hit_keeper(self, fault: Fault) -> None:
        world = self._world
        keeper = world.keeper
        if not keeper.up:
            return
        match fault.kind:
            case K.KEEPER_CRASH:
                world.crash_keeper(fault.for_us / US)
            case K.KEEPER_PAUSE:
                world.pause_keeper(fault.for_us / US)
            case K.KEEPER_SLOW:
                keeper.commit_factor = fault.amount

                def recover() -> None:
                    keeper.commit_factor = 1.0

                self._later(fault.for_us, recover)
            case K.KEEPER_JUMP:
                world.wall_jump_s += fault.amount
            case K.REPLY_LOST:
                world.replies_lost_at.add(keeper.book.journal.commit_no + max(1, int(fault.amount)))
            case K.COMMIT_FAILS:
                keeper.ledger.fail_next_commit(LedgerError("the disk is full"))
            case K.TWO_KEEPERS:
                world.second_keeper(fault.targets)
                self._later(fault.for_us, world.end_second_keeper)
            case _:
                raise AssertionError(f"{fault.kind} is no fault of the keeper")

    # --- persons ------------------------------------------------------------------------------------------------

    def _order(self, fault: Fault) -> None:
        world = self._world
        match fault.kind:
            case K.SCALE:
                most = int(fault.amount)
                world.act(lambda book, at: book.scale(at, fault.targets[0], 0, most, "a whim"))
            case K.CANCEL:
                pending = sorted(world.pending())
                if pending:
                    task_id = pending[min(len(pending) - 1, int(fault.amount * len(pending)))]
                    world.act(lambda book, at: book.cancel(at, [task_id], kill=fault.amount < 0.5))
            case _:
                for unit in map(self._awake, fault.targets):
                    world.act(partial(self._order_unit, unit, fault.kind, fault.for_us / US))

    def _order_unit(self, unit: str, order: str, grace_s: float, book: Book, at: Instant) -> None:
        book.order_unit(at, unit, order, grace_s, "a whim")
