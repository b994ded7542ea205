"""One unit of a den whose units are processes that reach each other over UDP: the driver of `core/membership`.

Theory of operation. The machine decides, this carries out: what arrives is one event, each event gives orders, and the
machine is ticked when it is due, after all packets that wait have been heard. It lives in the loop of its user, and
asks nothing of it but to run: a loop that stood still for a while accuses nobody, but is suspected itself.

Boot numbers must rise from one life of a unit to the next, or the others take the new process for an echo of the old
one. Without a keeper to count them they are the microseconds of the wall clock: no file to lose, no start takes less
than a microsecond, and two machines agree well enough for a unit that moved. A clock that was set back by more than
the unit was away breaks this: then give `boot` yourself.
"""

from __future__ import annotations

import asyncio
import logging
import random
import struct
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

from wolfpack.core.bulletin import check_load
from wolfpack.core.items import NAME_MOST
from wolfpack.core.membership import Membership
from wolfpack.core.membership_words import (
    AddressesGiven,
    AlphaHeard,
    AnswerSync,
    AskSync,
    Event,
    Leaving,
    Load,
    LoadChanged,
    MembershipOptions,
    PacketHeard,
    SendPacket,
    Stalled,
    Status,
    StatusChanged,
    SyncAnswered,
    SyncAsked,
    Ticked,
)
from wolfpack.errors import CallerError, unknown_name
from wolfpack.model import PROFILES, Timing
from wolfpack.udp.addresses import find_place, format_place, resolve, split_address
from wolfpack.udp.seal import Seal
from wolfpack.udp.transport import Ports, Transport, open_ports

__all__ = ["Change", "KnownUnit", "UdpMember", "boot_by_clock"]

log = logging.getLogger(__name__)

Change = StatusChanged | Stalled | AlphaHeard

SEEDS_S = 2.0  # while no other unit is known to live, seeds are looked up and called so often
AFTER_A_BUG_S = 0.5


def boot_by_clock() -> int:
    """A boot number that rises from life to life: microseconds of the wall clock."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownUnit:
    """What this member thinks of one unit."""

    unit: str
    status: Status
    boot: int
    counter: int  # how often it defended itself in this boot
    address: str
    load: Load | None  # None: it said none yet
    stalled: bool


class UdpMember:
    """A unit among others on a network.

        async with UdpMember(unit="a", den="demo", seeds=["127.0.0.1:7000"]) as member:
            member.on_change(print)
            member.set_load(leases=2, capacity=4)
            unit = member.best_unit()

    Leaving the block says goodbye: the others see LEFT, not DEAD.

    Args:
        unit: its name, unique in the den; a later boot of the same name replaces an earlier one.
        den: the den's name. Packets of other dens are counted and dropped.
        bind: host and port to listen on, UDP and TCP; port 0: any that is free.
        advertise: the IP address that others reach this one by; needed where `bind` is a wildcard such as 0.0.0.0.
        seeds: addresses `host:port` of others, of which one has to live; its own among them is passed over.
        timing: a profile ("ray", "classic", "fast") or a `Timing`; the same in all of the den.
        secret: shared by the den's units; who does not have it is not heard. None: whoever reaches the port is.
        boot: number of this life, higher than that of every earlier one; None: `boot_by_clock()`.
        options: switches and bounds of membership.
        rng: chance; None: by the system.

    Raises:
        CallerError: an argument cannot be.
        UnknownName: there is no such profile.
        OperatorError: on entering: the port cannot be had.
    """

    def __init__(
        self, *, unit: str, den: str, bind: tuple[str, int] = ("127.0.0.1", 0), advertise: str | None = None,
        seeds: Iterable[str] = (), timing: str | Timing = "ray", secret: str | bytes | None = None,
        boot: int | None = None, options: MembershipOptions = MembershipOptions(),  # noqa: B008 - frozen
        rng: random.Random | None = None,
    ) -> None:  # fmt: skip
        if not 0 < len(unit.encode()) <= NAME_MOST:
            raise CallerError(f"A unit's name has 1 to {NAME_MOST} bytes, not {len(unit.encode())}.")
        if not den:
            raise CallerError("A den has a name.")
        if isinstance(seeds, str):
            raise CallerError(f"seeds is a list of addresses, not one text: write [{seeds!r}].")
        if isinstance(timing, Timing):
            self.timing = timing
        elif timing in PROFILES:
            self.timing = PROFILES[timing]
        else:
            raise unknown_name("timing profile", str(timing), PROFILES)
        if boot is not None and not 0 < boot < 1 << 63:
            raise CallerError(f"A boot number is a whole number from 1 to 2**63 - 1, not {boot!r}.")
        self.unit, self.den = unit, den
        self._bind, self._advertise, self._boot = bind, advertise, boot
        self._seeds = [split_address(seed) for seed in seeds]
        self._seal = Seal(secret, den)
        self._options = options
        self._rng = random.Random() if rng is None else rng
        self._counters: Counter[str] = Counter()
        self._callbacks: list[Callable[[Change], object]] = []
        self._state = "new"  # then "open", then "closed"
        self._family = 0
        self._warned = False
        self._tickets = 0
        self._answers: dict[int, bytes | None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._seeker: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._transport: Transport
        self._machine: Membership

    # --- life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise CallerError("A member is entered once: make another UdpMember.")
        self._loop = asyncio.get_running_loop()
        ports = await open_ports(*self._bind)
        self._family = ports.family
        try:
            address = self._own_address(ports)
            self._machine = Membership(
                me=self.unit, boot=boot_by_clock() if self._boot is None else self._boot, address=address,
                den=self.den, timing=self.timing, rng=self._rng, now=self._loop.time(), options=self._options,
            )  # fmt: skip
            self._transport = Transport(
                ports, self._seal, self._counters, on_packet=self._on_packet, on_ask=self._on_ask
            )
            await self._transport.start()
        except BaseException:
            ports.close()
            raise
        self._state = "open"
        self._step(Ticked())
        self._seeker = self._loop.create_task(self._seek(), name=f"wolfpack-seeds-{self.unit}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.leave()

    async def leave(self) -> None:
        """Says goodbye and stops: the others see LEFT. What it knew last can still be read."""
        if self._state != "open":
            return
        self._step(Leaving())
        self._state = "closed"
        if self._timer is not None:
            self._timer.cancel()
        if self._seeker is not None:
            self._seeker.cancel()
        await self._transport.close()

    # --- looking --------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where others reach this one."""
        return self._entered().address

    @property
    def boot(self) -> int:
        """The number of this life."""
        return self._entered().boot

    @property
    def health(self) -> int:
        """0 is well; up to 8: this process runs late, so it accuses others later."""
        return self._entered().health

    @property
    def counters(self) -> Counter[str]:
        """What was sent, received and refused so far, by name; docs/membership.md lists them."""
        total = Counter(self._counters)
        if self._state != "new":
            total.update(self._machine.counters)
        return total

    def members(self) -> dict[str, KnownUnit]:
        """What this member thinks of each unit it knows, itself and the remembered dead too."""
        machine = self._entered()
        return {
            unit: KnownUnit(
                unit=unit, status=status, boot=boot, counter=counter, address=address, load=machine.load_of(unit),
                stalled=machine.loads.is_stalled(unit),
            )
            for unit, address, boot, counter, status in machine.view
        }  # fmt: skip

    def best_unit(self, fits: Callable[[str], bool] | Collection[str] | None = None) -> str | None:
        """Whom to give work to: the less busy of two living units drawn at random, itself included.

        Args:
            fits: whether a unit can serve the work, or the units that can; None: all can.

        Returns:
            None: nobody fits.
        """
        return self._entered().best_unit((lambda _: True) if fits is None else fits)

    def on_change(self, callback: Callable[[Change], object]) -> Callable[[], None]:
        """Calls back with each change, in order: `StatusChanged`, `Stalled`, `AlphaHeard`.

        Callbacks run in the loop and are light. What one raises is logged, and spreads no further.

        Returns:
            What ends it.
        """
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    # --- telling --------------------------------------------------------------------------------------------------

    def set_load(
        self, *, leases: int = 0, queued: int = 0, capacity: int = 1, progress: int = 0,
        budgets: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        """Tells the others how busy this unit is; at most once a second, the last word wins.

        Args:
            leases: how many tasks it has in hand.
            queued: how many of these it did not start.
            capacity: how many it runs at once.
            progress: rises whenever its work went on; busy without that for `stall_s`, it is *stalled*.
            budgets: what is left of named things such as `gpu`.

        Raises:
            CallerError: a number or name cannot be, or the member is not open.
        """
        self._must_be_open()
        if any(type(number) is not int for number in (leases, queued, capacity, progress)):
            raise CallerError(f"A load counts in whole numbers, not {(leases, queued, capacity, progress)}.")
        try:
            load = Load(0, leases, queued, capacity, progress, tuple(sorted((budgets or {}).items())))
            check_load(load)
        except (ValueError, TypeError, AttributeError, OverflowError, struct.error) as exc:
            raise CallerError(f"This load cannot be told: {exc}.") from exc
        self._step(LoadChanged(load))

    def sent(self, unit: str, count: int = 1) -> None:
        """Work is on its way to this unit: `best_unit` counts it until `confirmed`."""
        self._entered().sent(unit, count)

    def confirmed(self, unit: str, count: int = 1) -> None:
        """What was `sent` arrived there, or never will."""
        self._entered().confirmed(unit, count)

    # --- the machine ----------------------------------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        """Gives the machine one event, carries its orders out, and sees when it is due next."""
        if self._state != "open":
            return
        now = self._loop.time()
        try:
            orders = self._machine.step(now, event)
        except Exception:
            self._counters["bugs"] += 1
            log.exception("Unit %s: membership failed at %s; it goes on.", self.unit, type(event).__name__)
            self._set_timer(now + AFTER_A_BUG_S)
            return
        for order in orders:
            match order:
                case SendPacket(to, data):
                    self._transport.send(to, data)
                case AskSync(to, data):
                    self._transport.ask(to, data, partial(self._on_answer, to))
                case AnswerSync(ticket, data):
                    if ticket in self._answers:
                        self._answers[ticket] = data
                case StatusChanged() | Stalled() | AlphaHeard():
                    self._tell(order)
        self._set_timer(self._machine.next_wake())

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._transport.drain()  # what is queued comes before any deadline, also in loops that run timers first
        if self._state != "open":
            return
        if self._machine.next_wake() <= self._loop.time():
            self._step(Ticked())
        else:
            self._set_timer(self._machine.next_wake())
        if self._machine.counters["newer_boot"] and not self._warned:
            self._warned = True
            log.warning("Unit %s: another process has its name and a later boot; that one is heard.", self.unit)

    def _on_packet(self, source: str, data: bytes) -> None:
        self._step(PacketHeard(source, data))

    def _on_ask(self, source: str, data: bytes) -> bytes | None:
        """The machine answers an ask in the same step, or not at all."""
        self._tickets = ticket = self._tickets + 1
        self._answers[ticket] = None
        self._step(SyncAsked(source, data, ticket))
        return self._answers.pop(ticket)

    def _on_answer(self, source: str, data: bytes) -> None:
        self._step(SyncAnswered(source, data))

    def _tell(self, change: Change) -> None:
        """Later, so that a callback may use this member as it likes."""
        for callback in self._callbacks:
            self._loop.call_soon(self._call_back, callback, change)

    def _call_back(self, callback: Callable[[Change], object], change: Change) -> None:
        try:
            callback(change)
        except Exception:
            log.exception("Unit %s: a callback failed at %s; the rest goes on.", self.unit, change)

    async def _seek(self) -> None:
        """Calls the seeds as long as nobody else lives here; their names are looked up again each time."""
        while self._seeds:
            if self._machine.view.living < 2:
                found = await asyncio.gather(*(resolve(*seed, self._family, SEEDS_S) for seed in self._seeds))
                self._counters["seeds_unknown"] += found.count(None)
                addresses = [format_place(*place) for place in found if place is not None]
                self._step(AddressesGiven(tuple((address, "", 0) for address in dict.fromkeys(addresses))))
            await asyncio.sleep(SEEDS_S)

    # --- small parts ----------------------------------------------------------------------------------------------

    def _own_address(self, ports: Ports) -> str:
        host = ports.host if self._advertise is None else self._advertise
        address = format_place(host, ports.port)
        if find_place(address, ports.family) is None:
            raise CallerError(
                f"Others cannot send to {host}: say with advertise= by which IP address they reach this one."
            )
        return address

    def _entered(self) -> Membership:
        if self._state == "new":
            raise CallerError("The member is new: use it inside 'async with'.")
        return self._machine

    def _must_be_open(self) -> None:
        if self._state != "open":
            raise CallerError(f"The member is {self._state}: use it inside 'async with'.")
