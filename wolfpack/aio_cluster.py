"""The succession of a pack between asyncio tasks in one process: no Ray, no keeper, nothing to start.

    async with AsyncioCluster(5) as cluster:
        print(await cluster.wait_for_leader(3))  # 4: the highest id
        cluster.kill(4)
        print(await cluster.wait_for_leader(5))  # 3

Theory of operation. Each member is a task with a queue, around the machine of `core/succession` that units run on Ray:
it takes what is in its queue, then the tick that is due, and puts the howls it is told to send into the queues of the
others. Without a keeper the arbiter is the member itself, so terms are taken, not granted.

A death is told to nobody, as between machines: silence finds it. A member that missed its leader for `silence_s` holds
it for dead, and does not wait `answer_s` for its answer as well; so the next one leads `silence_s` after the last
heartbeat, or `silence_s + answer_s` if members died unnoticed that rank between the two.

A killed member is silenced first and cancelled then, so that nothing of it leaves, whatever its task was about to do.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from wolfpack.core.howls import HowlKind, Peer
from wolfpack.core.succession import (
    Alone,
    Arbiter,
    Crowned,
    Event,
    Following,
    Heard,
    Order,
    PeerLost,
    PeersChanged,
    StoppedLeading,
    Succession,
    Tell,
    Ticked,
)
from wolfpack.errors import CallerError, WolfPackBug, unknown_name
from wolfpack.model import PROFILES, Role, Timing

__all__ = ["AsyncioCluster", "Member"]

log = logging.getLogger(__name__)

PACK = "cluster"


class Member:
    """One member: what it believes now, and whether it lives. A dead one believes nothing."""

    def __init__(self, number: int) -> None:
        self.id = number
        self.boot = 0  # counts its lives
        self.sent = 0  # messages, in all its lives
        self.error: BaseException | None = None  # what ended its task, if it was not killed
        self._machine: Succession | None = None
        self._inbox: asyncio.Queue[Event] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return self._machine is not None

    @property
    def leader_id(self) -> int | None:
        """The leader this member knows, itself included; None while it knows of none."""
        return int(self._machine.alpha) if self._machine is not None and self._machine.alpha is not None else None

    @property
    def is_leader(self) -> bool:
        return self._machine is not None and self._machine.role is Role.ALPHA

    @property
    def term(self) -> int:
        """The highest term it knows."""
        return self._machine.term if self._machine is not None else 0

    def __repr__(self) -> str:
        return f"<Member {self._belief()}>"

    def _belief(self) -> str:
        if self._machine is None:
            return f"{self.id} is dead"
        if self.is_leader:
            return f"{self.id} leads term {self.term}"
        follows = "knows no leader" if self.leader_id is None else f"follows {self.leader_id}"
        trying = " and wants to lead" if self._machine.role is Role.PRETENDER else ""
        return f"{self.id} {follows} in term {self.term}{trying}"


class AsyncioCluster:
    """Members with the ids 0 to `size` - 1 that elect the highest living id, in one process.

    Args:
        size: how many members.
        profile: "classic" (a heartbeat each second), "ray", "fast", or a `Timing` of your own.
        usurp: a higher id that comes back takes over from a healthy leader, as in the classic Bully election;
            with False a healthy leader stays.
        seed: of jitter and back-off; None: by chance.

    Raises:
        UnknownName: there is no such profile.
        CallerError: the size is not a whole number of at least 1.
    """

    def __init__(
        self, size: int, profile: str | Timing = "classic", usurp: bool = True, *, seed: int | None = None
    ) -> None:
        if type(size) is not int or size < 1:
            raise CallerError(f"A cluster has a whole number of members, at least 1, not {size!r}.")
        if isinstance(profile, Timing):
            self.timing = profile
        elif profile in PROFILES:
            self.timing = PROFILES[profile]
        else:
            raise unknown_name("timing profile", str(profile), PROFILES)
        self.members: Sequence[Member] = tuple(Member(number) for number in range(size))
        self._usurp = usurp
        self._chance = random.Random(seed)
        self._state = "new"  # then "open", then "closed"
        self._changed = asyncio.Event()

    # --- life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise CallerError("A cluster is entered once: make another AsyncioCluster.")
        self._state = "open"
        for member in self.members:
            self._birth(member)
        self._tell_roster()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._state = "closed"
        for member in self.members:
            self._end(member)
        await asyncio.gather(*(m._task for m in self.members if m._task is not None), return_exceptions=True)
        self._note_change()
        if error is None:
            self._raise_errors()

    def kill(self, member_id: int) -> asyncio.Future[None]:
        """Cancels a member's task; no message of it leaves from now on. A dead one stays dead.

        Returns:
            What can be awaited, and need not be: it is done when the task has ended.

        Raises:
            UnknownName: there is no such member.
            CallerError: the cluster is not open.
        """
        member = self._get(member_id)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if member.alive:
            log.info("Member %d is killed.", member.id, extra={"member": member.id, "boot": member.boot})
            self._end(member)
            self._note_change()
        task = member._task
        if task is None or task.done():
            ended.set_result(None)
        else:
            task.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
        return ended

    def restart(self, member_id: int) -> asyncio.Future[None]:
        """Brings a dead member back: a new boot that remembers nothing.

        Returns:
            What can be awaited, and need not be: it is done when the member is there.

        Raises:
            UnknownName: there is no such member.
            CallerError: it lives, or the cluster is not open.
        """
        member = self._get(member_id)
        if member.alive:
            raise CallerError(f"Member {member.id} lives: kill it before you restart it.")
        self._birth(member)
        log.info("Member %d is back.", member.id, extra={"member": member.id, "boot": member.boot})
        self._tell_roster()
        self._note_change()
        there: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        there.set_result(None)
        return there

    # --- looking --------------------------------------------------------------------------------------------------

    @property
    def leader_id(self) -> int | None:
        """The one living leader that every living member follows, itself included; None: there is no such one now."""
        living = [member._machine for member in self.members if member._machine is not None]
        leaders = [machine for machine in living if machine.role is Role.ALPHA]
        if len(leaders) != 1:
            return None
        first = leaders[0]
        view = (first.term, first.me.unit, first.me.boot)
        return int(view[1]) if all((m.term, m.alpha, m.alpha_boot) == view for m in living) else None

    async def wait_for_leader(self, timeout_s: float = 10.0) -> int:
        """Waits until there is one living leader and every living member follows it; returns its id.

        Raises:
            TimeoutError: not within `timeout_s`; the text says what each member believes.
            CallerError: the time is no number of at least 0, or the cluster is not open.
            WolfPackBug: the task of a member failed.
        """
        if type(timeout_s) not in (int, float) or not timeout_s >= 0:
            raise CallerError(f"timeout_s is a number of seconds, at least 0, not {timeout_s!r}.")
        self._must_be_open()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            self._raise_errors()
            leader = self.leader_id
            if leader is not None:
                return leader
            changed = self._changed
            try:
                async with asyncio.timeout_at(deadline if math.isfinite(deadline) else None):
                    await changed.wait()
            except TimeoutError:
                beliefs = "; ".join(member._belief() for member in self.members)
                raise TimeoutError(f"No leader that all follow within {timeout_s:g} s: {beliefs}.") from None
            self._must_be_open()

    # --- a member's task ------------------------------------------------------------------------------------------

    def _birth(self, member: Member) -> None:
        loop = asyncio.get_running_loop()
        member.boot += 1
        member.error = None
        member._inbox = asyncio.Queue()
        member._machine = machine = Succession(
            me=self._peer(member), pack=PACK, timing=self.timing, arbiter=Arbiter.ITSELF, usurp=self._usurp,
            rng=random.Random(self._chance.random()), now=loop.time(),
        )  # fmt: skip
        task = loop.create_task(self._live(member, machine), name=f"wolfpack-member-{member.id}-{member.boot}")
        member._task = task
        task.add_done_callback(lambda done: self._on_done(member, machine, done))

    def _end(self, member: Member) -> None:
        member._machine = None  # silenced: whatever its task still does is the deed of a stranger
        if member._task is not None:
            member._task.cancel()

    def _on_done(self, member: Member, machine: Succession, task: asyncio.Task[None]) -> None:
        """A task that ends without having been killed takes its member with it, and says why."""
        if member._machine is machine:
            member._machine = None
        if not task.cancelled() and (error := task.exception()) is not None:
            member.error = error
            log.error("Member %d failed and is dead now.", member.id, exc_info=error, extra={"member": member.id})
        self._note_change()

    async def _live(self, member: Member, machine: Succession) -> None:
        loop = asyncio.get_running_loop()
        inbox = member._inbox
        while True:
            # A queue that holds something never waits: a tick is judged after everything that is already there.
            event: Event
            try:
                async with asyncio.timeout_at(machine.next_wake()):
                    event = await inbox.get()
            except TimeoutError:
                event = Ticked()
            self._step(member, machine, loop.time(), event)

    def _step(self, member: Member, machine: Succession, now: float, event: Event) -> None:
        known, boot, role = machine.alpha, machine.alpha_boot, machine.role
        orders = machine.step(now, event)
        if isinstance(event, Ticked) and role is Role.MEMBER and known is not None and machine.alpha is None:
            orders += machine.step(now, PeerLost(known, boot))  # silent for so long: not waited for once more
        if member._machine is not machine:
            return
        _tell_log(member, machine, role, event, orders)
        for order in orders:
            if isinstance(order, Tell) and member._machine is machine:
                member.sent += 1
                self.members[int(order.to)]._inbox.put_nowait(Heard(order.howl))
        if orders:
            self._note_change()

    # --- small parts ----------------------------------------------------------------------------------------------

    def _get(self, member_id: int) -> Member:
        self._must_be_open()
        if type(member_id) is not int or not 0 <= member_id < len(self.members):
            raise unknown_name("member", repr(member_id), [str(member.id) for member in self.members])
        return self.members[member_id]

    def _must_be_open(self) -> None:
        if self._state != "open":
            raise CallerError(f"The cluster is {self._state}: use it inside 'async with'.")

    def _peer(self, member: Member) -> Peer:
        return Peer(unit=str(member.id), boot=member.boot)

    def _tell_roster(self) -> None:
        """The dead are on it too: that they are dead is for silence to find out."""
        roster = PeersChanged(tuple(self._peer(member) for member in self.members))
        for member in self.members:
            member._inbox.put_nowait(roster)

    def _note_change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _raise_errors(self) -> None:
        for member in self.members:
            if member.error is not None:
                raise WolfPackBug(f"The task of member {member.id} failed: {member.error!r}") from member.error


def _tell_log(member: Member, machine: Succession, before: Role, event: Event, orders: Sequence[Order]) -> None:
    fields = {"member": member.id, "boot": member.boot, "term": machine.term}
    if isinstance(event, Heard) and event.howl.kind is HowlKind.OK:
        log.info("Member %d received OK from member %s.", member.id, event.howl.unit, extra=fields)
    asked = [order.to for order in orders if isinstance(order, Tell) and order.howl.kind is HowlKind.ELECTION]
    if asked or (before is Role.MEMBER and machine.role is Role.PRETENDER):
        why = next((order.reason for order in orders if isinstance(order, Alone)), "it knows no leader")
        log.info("Member %d starts an election: %s.", member.id, why, extra={**fields, "asked": asked})
    for order in orders:
        match order:
            case StoppedLeading(term, reason):
                log.info("Member %d stops leading term %d: %s.", member.id, term, reason, extra=fields)
            case Following(term, alpha, _):
                log.info("Member %d follows leader %s in term %d.", member.id, alpha, term, extra=fields)
            case Crowned(term):
                log.info("Member %d announces that it is the leader of term %d.", member.id, term, extra=fields)
            case _:
                pass
