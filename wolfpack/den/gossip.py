"""Gossip between the awake units of a den: the driver around `core/membership`, on Ray.

It runs beside the brain, with its own timer, its own thread for Ray's look-ups and its own calls. What it learns (who
lives, who leads a big pack, who stalls) it tells the brain as advice; leases, terms and places come from the ledger's
rows, so a wrong view is only slow. Addresses are ids of units. The first come from the keeper's roster, the others from
gossip itself.

A packet is one call. What the other has to say to its sender at once (most often the ack of a ping) comes back as the
answer of that call, so a probe costs one call and not two. Nothing is ever awaited without a deadline: a packet's
answer is taken when it comes, and a unit that does not answer has a few calls open and then gets no more, which is
nothing but loss. Ray's `ActorDiedError` is a hint of death; every other failure of a call is loss, too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, assert_never

from ray.exceptions import ActorDiedError, RayActorError, RayTaskError

from wolfpack.core.items import PACKET_MOST
from wolfpack.core.membership import Membership
from wolfpack.core.membership_words import (
    AddressesGiven,
    AlphaHeard,
    AlphaSeen,
    AnswerSync,
    AskSync,
    DeathHinted,
    Event,
    Leaving,
    Load,
    LoadChanged,
    MembershipOptions,
    Order,
    PacketHeard,
    SendPacket,
    Stalled,
    StatusChanged,
    SyncAnswered,
    SyncAsked,
    Ticked,
)
from wolfpack.core.packets import SYNC_MOST
from wolfpack.core.shapes import check_names
from wolfpack.den.handles import Handles, KeeperGone, PeerGone
from wolfpack.errors import LedgerUnavailable, Malformed
from wolfpack.model import Card, DenSpec, UnitSeen, natural_key

log = logging.getLogger("wolfpack.gossip")

LOAD_S = 2.0  # a packet costs a call: load is told half as often as where it costs a datagram
CALLS_TO_ONE = 8  # open ones; a unit that answers has one or two
CALLS_MOST = 512  # open ones to all
CALL_OLD_S = 30.0  # an open call so old is not counted any more; Ray may have lost its answer
LEAST_TICK_S = 0.005
FAILED_S = 0.5  # after an error of our own the next tick comes no sooner
LOOK_UP_S = 5.0
SYNC_S = 5.0
SYNCS_MOST = 4  # at once
ROSTER_S = 10.0  # who is alone asks the keeper so often whether it must be
ROSTER_CALL_S = 8.0
GOODBYE_S = 0.3  # who goes to sleep waits at most so long until its goodbyes are taken

Advice = StatusChanged | AlphaHeard | Stalled


class OpenCalls:
    """How many calls wait for their answer, in all and to each unit: what a silent unit can cost is bounded."""

    def __init__(self) -> None:
        self._started: dict[str, dict[int, float]] = {}  # unit -> ticket -> when
        self._count = self._ticket = 0

    def start(self, now: float, to: str) -> int | None:
        """A ticket for one more call, to be given back; None: there are too many."""
        if len(self._started.get(to, ())) >= CALLS_TO_ONE or self._count >= CALLS_MOST:
            self._forget_old(now)
            if len(self._started.get(to, ())) >= CALLS_TO_ONE or self._count >= CALLS_MOST:
                return None
        self._ticket += 1
        self._count += 1
        self._started.setdefault(to, {})[self._ticket] = now
        return self._ticket

    def end(self, to: str, ticket: int) -> None:
        calls = self._started.get(to)
        if calls is not None and calls.pop(ticket, None) is not None:
            self._count -= 1
            if not calls:
                del self._started[to]

    def _forget_old(self, now: float) -> None:
        old = [(to, t) for to, calls in self._started.items() for t, at in calls.items() if now - at > CALL_OLD_S]
        for to, ticket in old:
            self.end(to, ticket)


def stalls_of(spec: DenSpec) -> Mapping[str, float]:
    """After what time without progress each unit stalls; those whose card says nothing never do."""
    return {card.unit: card.hands.stall_s for card in spec.cards if card.hands.stall_s is not None}


class Gossip:
    """The gossip of one awake unit.

    Args:
        get_load: what this unit says of itself.
        on_advice: takes what gossip tells the brain; called from the loop, never from within a call to this class.
    """

    def __init__(
        self, spec: DenSpec, card: Card, boot: int, *, get_load: Callable[[], Load], on_advice: Callable[[Advice], None]
    ) -> None:
        self._me = card.unit
        self._machine = Membership(
            me=card.unit, boot=boot, address=card.unit, den=spec.den, timing=spec.timing,
            rng=random.Random(f"gossip {card.unit}#{boot}#{os.getpid()}"), now=time.monotonic(),
            options=MembershipOptions(load_s=LOAD_S, stalls=stalls_of(spec)),
        )  # fmt: skip
        self._get_load, self._on_advice = get_load, on_advice
        self._handles = Handles(spec.den, threads=1)
        self._boots: dict[str, int] = {}  # from the keeper's roster, of units that are not in the view yet
        self._calls = OpenCalls()
        self._answers: dict[int, bytes] = {}
        self._ticket = 0
        self._syncing: set[str] = set()
        self._waiting: set[asyncio.Future[Any]] = set()  # for answers of other units
        self._seeker: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._not_before = 0.0
        self._ended = False
        self.counters: Counter[str] = Counter()

    # --- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._seeker = asyncio.get_running_loop().create_task(self._find_others())
        self._set_timer()

    async def leave(self) -> None:
        """Says goodbye, and waits a moment until the goodbyes are taken; nothing is answered any more."""
        if self._ended:
            return
        self._step(Leaving())
        self.stop()
        if self._waiting:
            await asyncio.wait(self._waiting, timeout=GOODBYE_S)

    def stop(self) -> None:
        """Nothing is sent any more, and nothing heard. A goodbye that is on its way goes on."""
        self._ended = True
        for each in (self._timer, self._seeker):
            if each is not None:
                each.cancel()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._keep(asyncio.get_running_loop().create_task(coroutine))

    def _keep(self, future: asyncio.Future[Any]) -> None:
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)

    async def _find_others(self) -> None:
        """Asks the keeper who is awake: now, and again as long as this unit knows nobody.

        Of two units that are born at once the later one finds the earlier one, since each said hello before.
        """
        while not self._ended:
            if self._machine.view.living <= 1:
                try:
                    roster = await self._handles.ask_keeper("roster", timeout_s=ROSTER_CALL_S)
                except KeeperGone:
                    return
                except (RayActorError, RayTaskError, LedgerUnavailable, TimeoutError):
                    self.counters["roster_unanswered"] += 1
                else:
                    self._boots = {unit: boot for unit, boot in roster if unit != self._me}
                    self._step(AddressesGiven(tuple((unit, unit, boot) for unit, boot in self._boots.items())))
            await asyncio.sleep(ROSTER_S)

    # --- events -------------------------------------------------------------------------------------------------

    def hear(self, source: str, data: bytes) -> list[bytes]:
        """A packet of another unit; returns the packets that go back to it.

        Raises:
            Malformed: it is none, by its size or type; what is inside is judged, and counted, by the machine.
        """
        check_names("a unit", source)
        if type(data) is not bytes or len(data) > PACKET_MOST:
            raise Malformed(f"a packet has at most {PACKET_MOST} bytes")
        if self._ended:
            return []
        back: list[bytes] = []
        self._step(PacketHeard(source, data), source, back)
        return back

    def answer_sync(self, source: str, data: bytes) -> bytes:
        """Another unit compares its view; returns this unit's side, or nothing for what was refused.

        Raises:
            Malformed: it is no message, by its size or type.
        """
        check_names("a unit", source)
        if type(data) is not bytes or len(data) > SYNC_MOST:
            raise Malformed(f"a view has at most {SYNC_MOST} bytes")
        if self._ended:
            return b""
        self._ticket += 1
        self._step(SyncAsked(source, data, self._ticket))
        return self._answers.pop(self._ticket, b"")

    def hint_death(self, unit: str, boot: int) -> None:
        """Ray says that this process is gone."""
        self._step(DeathHinted(unit, boot))

    def tell_alpha(self, pack: str, term: int, alpha: str, boot: int) -> None:
        """The brain knows who leads its pack: those outside the council shall hear of it."""
        self._step(AlphaSeen(pack, term, alpha, boot))

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        try:
            self._step(LoadChanged(self._get_load()))
            if time.monotonic() >= self._machine.next_wake():
                self._step(Ticked())
        finally:
            self._set_timer()

    def _set_timer(self) -> None:
        """A timer that comes too early looks again; only one that comes too late is set anew."""
        at = max(self._machine.next_wake(), self._not_before)
        if self._ended or at >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        delay_s = max(LEAST_TICK_S, at - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _step(self, event: Event, source: str = "", back: list[bytes] | None = None) -> None:
        """One event in, its orders out. Gossip is advice: whatever goes wrong in it, the unit goes on."""
        if self._ended:
            return
        try:
            for order in self._machine.step(time.monotonic(), event):
                if back is not None and type(order) is SendPacket and order.to == source:
                    back.append(order.data)
                elif not (type(order) is AlphaHeard and type(event) is AlphaSeen):  # that is no news to the brain
                    self._do(order)
        except Exception:
            self.counters["failed"] += 1
            self._not_before = time.monotonic() + FAILED_S
            if self.counters["failed"] % 1000 == 1:
                log.exception("The gossip of %s failed at %s.", self._me, type(event).__name__)
        self._set_timer()

    def _do(self, order: Order) -> None:
        match order:
            case SendPacket(to, data):
                self._send(to, data)
            case AskSync(to, data):
                self._spawn(self._ask_sync(to, data))
            case AnswerSync(ticket, data):
                self._answers[ticket] = data
            case StatusChanged() | AlphaHeard() | Stalled():
                asyncio.get_running_loop().call_soon(self._on_advice, order)
            case _:
                assert_never(order)

    # --- calls to others ----------------------------------------------------------------------------------------

    def _boot_of(self, unit: str) -> int:
        """The newest boot known; 0: none."""
        member = self._machine.view.get(unit)
        return max(self._boots.get(unit, 0), 0 if member is None else member.boot)

    def _send(self, to: str, data: bytes) -> None:
        boot = self._boot_of(to)
        ticket = self._calls.start(time.monotonic(), to) if boot else None
        if ticket is None:
            self.counters["held_back"] += 1
            return
        handle = self._handles.find(to, boot)
        if handle is None:
            self._spawn(self._look_up_and_send(to, boot, ticket, data))
        else:
            self._call(handle, to, boot, ticket, data)

    async def _look_up_and_send(self, to: str, boot: int, ticket: int, data: bytes) -> None:
        try:
            handle = await asyncio.wait_for(self._handles.unit(to, boot), LOOK_UP_S)
        except PeerGone:
            self._calls.end(to, ticket)
            self.hint_death(to, boot)
        except Exception:  # whatever Ray's look-up raises, it is a packet lost
            self._calls.end(to, ticket)
            self.counters["lost"] += 1
        else:
            self._call(handle, to, boot, ticket, data)

    def _call(self, handle: Any, to: str, boot: int, ticket: int, data: bytes) -> None:
        self.counters["sent"] += 1
        try:
            answer: asyncio.Future[list[bytes]] = asyncio.wrap_future(handle.gossip.remote(self._me, data).future())
        except Exception:  # Ray would not even take the call
            self._calls.end(to, ticket)
            self.counters["lost"] += 1
            return
        self._keep(answer)
        answer.add_done_callback(lambda done: self._on_answer(to, boot, ticket, done))

    def _on_answer(self, to: str, boot: int, ticket: int, answer: asyncio.Future[list[bytes]]) -> None:
        self._calls.end(to, ticket)
        if answer.cancelled():
            return
        failure = answer.exception()
        if failure is None:
            for data in answer.result() or ():
                self._step(PacketHeard(to, data))
        elif isinstance(failure, ActorDiedError):
            self._handles.forget(to, boot)
            self.hint_death(to, boot)
        else:
            self.counters["lost" if isinstance(failure, RayActorError) else "refused_there"] += 1

    async def _ask_sync(self, to: str, data: bytes) -> None:
        boot = self._boot_of(to)
        if not boot or to in self._syncing or len(self._syncing) >= SYNCS_MOST:
            self.counters["held_back"] += 1
            return
        self._syncing.add(to)
        self.counters["syncs"] += 1
        answer = b""
        try:
            answer = await asyncio.wait_for(self._handles.call(to, boot, "gossip_sync", self._me, data), SYNC_S)
        except PeerGone:
            self.hint_death(to, boot)
        except Exception:  # unreachable, slow, or it refused: the next sync is as good
            self.counters["lost"] += 1
        finally:
            self._syncing.discard(to)
        if answer:
            self._step(SyncAnswered(to, answer))

    # --- what it knows ------------------------------------------------------------------------------------------

    def seen(self) -> list[UnitSeen]:
        """What this unit thinks of all units it knows, itself included."""
        machine = self._machine
        found = []
        for member in sorted(machine.view, key=lambda member: natural_key(member.unit)):
            load = machine.load_of(member.unit)
            seen = UnitSeen(
                unit=member.unit,
                boot=member.boot,
                status=member.status.name.lower(),
                stalled=machine.loads.is_stalled(member.unit),
            )
            if load is not None and member.lives:
                seen = replace(
                    seen, leases=load.leases, queued=load.queued, capacity=load.capacity, progress=load.progress
                )
            found.append(seen)
        return found

    def counts(self) -> dict[str, int]:
        """What was sent, lost, held back and refused, by name; and this unit's own health, 0 for well."""
        return {**self.counters, **self._machine.counters, "health": self._machine.health}
