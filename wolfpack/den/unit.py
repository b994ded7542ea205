"""The unit actor: carries events to the brain and its orders out to Ray, to the hands, and to the day job.

Nothing here decides. A call of another unit or of the keeper becomes an event, the brain steps, and each order becomes
a call, a message to the hands, or the answer to a parked call. One loop, one thread; Ray's blocking look-ups run aside.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Coroutine
from typing import Any, assert_never

import ray
from ray.exceptions import RayActorError, RayTaskError

from wolfpack.core import errands as e
from wolfpack.core.howls import Howl
from wolfpack.core.member import Brain
from wolfpack.core.membership_words import AlphaHeard, Load, Stalled, Status, StatusChanged
from wolfpack.core.shapes import check_hunt, check_names, check_seconds, check_text, check_whole
from wolfpack.core.wire import (
    Claim,
    Hunt,
    HuntReply,
    Turn,
    Verdict,
    Where,
    pack,
    read_hunt,
    read_hunt_reply,
    read_row,
    read_turn_reply,
    unpack,
)
from wolfpack.den.day_job import DayJob
from wolfpack.den.doors import door
from wolfpack.den.gossip import Advice, Gossip
from wolfpack.den.handles import Handles, KeeperGone, PeerGone
from wolfpack.den.hands_pool import HandsPool
from wolfpack.den.names import MANY_CALLS, blob_folder
from wolfpack.den.processes import collect_rarely
from wolfpack.errors import Deposed, LedgerUnavailable, Malformed, SetupFailed
from wolfpack.model import Card, Cause, DenSpec, Report, UnitSeen

log = logging.getLogger("wolfpack.unit")

LIFELINE_S = 4.0  # a parked life line is answered after so long: a sign of life
HUNT_PARK_S = 9.0
CALL_S = 8.0  # a call to the keeper without an answer counts as failed
ORDERS = ("sleep", "release", "recall")
RUNNING_S = 0.1  # how often the brain hears what runs


class UnitActor:
    """One boot of one unit. Public coroutines are calls made through Ray."""

    def __init__(self, spec: DenSpec, card: Card, boot: int) -> None:
        self._spec, self._card, self._boot = spec, card, boot
        self._handles = Handles(spec.den)
        self._brain: Brain | None = None
        self._pool: HandsPool | None = None
        self._day_job: DayJob | None = None
        self._reports: list[Report] = []
        self._parked: dict[tuple[str, int], asyncio.Future[bytes]] = {}
        self._tickets: dict[int, asyncio.Future[tuple[bool, str]]] = {}
        self._ticket_no = 0
        self._events_out: list[tuple[str, str]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._gossip: Gossip | None = None
        self._alpha_told: tuple[str, int, str, int] | None = None
        self._running_told = False
        self._ending = False
        self.refused_calls = 0  # of others, that had not the shape they must have
        self._spawn(self._be_born())

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("A task of %s failed.", self._card.unit, exc_info=task.exception())

    # --- birth and end ------------------------------------------------------------------------------------------

    async def _be_born(self) -> None:
        """Readies the hands, says hello, and starts to think. A birth that fails is told to the keeper."""
        collect_rarely()
        self._pool = HandsPool(
            self._card.hands,
            unit=self._card.unit,
            boot=self._boot,
            memory_bytes=self._card.memory_bytes,
            folder=self._spec.folder,
            blobs=blob_folder(self._spec),
            payload_max_bytes=self._spec.payload_max_bytes,
            get_code=self._get_code,
            on_report=self._on_report,
            on_publish=self._on_publish,
            on_log=lambda text: log.info("%s: %s", self._card.unit, text),
            on_broken=lambda text: self._spawn(self._end(text)),
        )
        try:
            await self._pool.start()
        except SetupFailed as exc:
            await self._ask_keeper("birth_failed", self._card.unit, self._boot, str(exc), patience_s=30.0)
            await self._end("its set-up failed")
            return
        node = ray.get_runtime_context().get_node_id()
        data = await self._ask_keeper("hello", self._card.unit, self._boot, os.getpid(), node, patience_s=60.0)
        where = read_row(Where, unpack(data)) if data is not None else None
        if where is None or where.end:
            await self._end(where.reason if where is not None else "the keeper does not answer")
            return
        self._brain = Brain(
            card=self._card, boot=self._boot, where=where, timing=self._spec.timing,
            rng=random.Random(f"{self._card.unit}#{self._boot}#{os.getpid()}"), now=time.monotonic(), gossip=True,
        )  # fmt: skip
        self._gossip = Gossip(self._spec, self._card, self._boot, get_load=self._get_load, on_advice=self._on_advice)
        self._gossip.start()
        self._carry_out(self._brain.start(time.monotonic()))
        self._tell_alpha(self._brain)
        self._set_timer()
        self._spawn(self._watch_running())

    async def _ask_keeper(self, method: str, *args: Any, patience_s: float) -> Any:
        """Calls the keeper until it answers; None when it did not within `patience_s`."""
        end = time.monotonic() + patience_s
        while time.monotonic() < end:
            try:
                return await self._handles.ask_keeper(method, *args, timeout_s=CALL_S)
            except KeeperGone as exc:
                self._spawn(self._end(str(exc)))
                return None
            except (RayActorError, LedgerUnavailable, TimeoutError):
                await asyncio.sleep(0.2)
        return None

    async def _end(self, reason: str) -> None:
        """Ends this process: hands and day job first, so that nothing of it stays behind."""
        if self._ending:
            return
        self._ending = True
        log.info("%s (boot %d) ends: %s", self._card.unit, self._boot, reason)
        if self._gossip is not None:
            await self._gossip.leave()
        await self.clean_up()
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
        await asyncio.sleep(2.0)
        os._exit(0)

    async def clean_up(self) -> None:
        """Ends day job and hands with all they started; this unit does nothing more."""
        self._ending = True
        if self._timer is not None:
            self._timer.cancel()
        if self._gossip is not None:
            self._gossip.stop()
        if self._day_job is not None:
            await self._day_job.stop()
        if self._pool is not None:
            await self._pool.stop()

    # --- thinking -----------------------------------------------------------------------------------------------

    def _step(self, event: e.Event) -> None:
        if self._brain is not None and not self._ending:
            self._carry_out(self._brain.step(time.monotonic(), event))
            self._tell_alpha(self._brain)

    def _set_timer(self) -> None:
        if self._brain is not None and not self._ending:
            delay_s = max(0.005, self._brain.next_wake() - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        try:
            self._step(e.Tick())
        finally:  # whatever one step raises, the next must come
            self._set_timer()

    async def _watch_running(self) -> None:
        """Tells the brain what has been running for long, and once when nothing is any more."""
        while not self._ending:
            await asyncio.sleep(RUNNING_S)
            started = self._pool.started() if self._pool is not None else {}
            now = time.time()
            seconds = {lease_no: max(0.0, now - since) for lease_no, since in started.items()}
            if any(passed > RUNNING_S for passed in seconds.values()) or self._running_told:
                self._running_told = bool(seconds)
                self._step(e.Running(seconds=seconds))

    def _carry_out(self, orders: list[e.Order]) -> None:
        for order in orders:
            self._do(order)

    def _do(self, order: e.Order) -> None:
        pool = self._pool
        assert pool is not None
        match order:
            case e.SendHowl(to=to, boot=boot, howl=howl):
                self._spawn(self._howl_at(to, boot, howl))
            case e.SendHunt(to=to, boot=boot, hunt=hunt):
                if to == self._card.unit:
                    asyncio.get_running_loop().call_soon(self._step, e.HuntArrived(hunt=hunt))
                else:
                    self._spawn(self._hunt_at(to, boot, hunt))
            case e.AnswerHunt(unit=unit, n=n, reply=reply):
                self._answer_hunt(unit, n, reply)
            case e.SendTurn(turn=turn):
                self._spawn(self._send_turn(turn))
            case e.SendClaim(claim=claim):
                self._spawn(self._send_claim(claim))
            case e.SendRelease(pack=pack_name, term=term):
                self._spawn(self._ask_keeper("release", pack_name, term, self._card.unit, self._boot, patience_s=5.0))
            case e.SendReport(report=report):
                self._spawn(self._send_placed("report", report.n, pack(report)))
            case e.SendMove(move=move):
                self._spawn(self._send_placed("move", move.n, pack(move)))
            case e.SendSummons(unit=unit, boot=boot, pack=pack_name):
                self._spawn(self._summon_other(unit, boot, pack_name))
            case e.AnswerSummons(ticket=ticket, accepted=accepted, reason=reason):
                future = self._tickets.pop(ticket, None)
                if future is not None and not future.done():
                    future.set_result((accepted, reason))
            case e.GiveJobs(jobs=jobs):
                pool.give(jobs)
            case e.Allow(until=until):
                pool.allow(until)
            case e.TakeBack(lease_nos=lease_nos):
                pool.take_back(lease_nos)
            case e.CancelJob(lease_no=lease_no, kill=kill, cause=cause, text=text):
                pool.cancel(lease_no, kill=kill, cause=Cause(cause), text=text)
            case e.Evict(grace_s=grace_s, reason=reason):
                self._spawn(pool.evict(grace_s, reason))
            case e.LeaveDayJob(grace_s=grace_s):
                self._spawn(self._leave_day_job(grace_s))
            case e.StartDayJob(state=state):
                self._spawn(self._start_day_job(state))
            case e.Checkpoint(state=state):
                self._spawn(self._ask_keeper("checkpoint", self._card.unit, self._boot, state, patience_s=5.0))
            case e.PublishFailure(pack=pack_name, reason=reason):
                self._spawn(self._ask_keeper("plan_failed", pack_name, self._card.unit, reason, patience_s=5.0))
            case e.EndSelf(reason=reason):
                self._spawn(self._end(reason))
            case _:
                assert_never(order)

    # --- calls to others ----------------------------------------------------------------------------------------

    def _on_peer_gone(self, unit: str, boot: int) -> None:
        self._step(e.UnitDied(unit=unit, boot=boot))
        if self._gossip is not None:
            self._gossip.hint_death(unit, boot)

    async def _howl_at(self, to: str, boot: int, howl: Howl) -> None:
        try:
            await asyncio.wait_for(self._handles.call(to, boot, "howl", pack(howl.to_wire())), CALL_S)
        except PeerGone:
            self._on_peer_gone(to, boot)
        except (RayActorError, RayTaskError, TimeoutError):
            pass  # a howl is lost

    async def _hunt_at(self, to: str, boot: int, hunt: Hunt) -> None:
        try:
            data = await asyncio.wait_for(self._handles.call(to, boot, "hunt", pack(hunt)), HUNT_PARK_S + 2)
        except PeerGone:
            self._step(e.HuntFailed(n=hunt.n, reason="the alpha's process died"))
            self._on_peer_gone(to, boot)
        except (RayActorError, RayTaskError, TimeoutError) as exc:
            self._step(e.HuntFailed(n=hunt.n, reason=str(exc)))
        else:
            self._step(e.HuntAnswered(n=hunt.n, reply=read_hunt_reply(data)))

    def _answer_hunt(self, unit: str, n: int, reply: HuntReply) -> None:
        if unit == self._card.unit:
            asyncio.get_running_loop().call_soon(self._step, e.HuntAnswered(n=n, reply=reply))
            return
        future = self._parked.pop((unit, n), None)
        if future is not None and not future.done():
            future.set_result(pack(reply))

    async def _send_turn(self, turn: Turn) -> None:
        seq = turn.seq
        try:
            answer = await self._handles.ask_keeper("turn", pack(turn), timeout_s=CALL_S)
        except Deposed as exc:
            self._step(e.TurnRefused(pack=turn.pack, seq=seq, term=exc.term, alpha=exc.args[2] or None))
        except KeeperGone as exc:
            await self._end(str(exc))
        except (RayActorError, RayTaskError, LedgerUnavailable, TimeoutError) as exc:
            await asyncio.sleep(0.05)
            self._step(e.TurnLost(seq=seq, reason=f"{type(exc).__name__}: {exc}"))
        else:
            self._step(e.TurnDone(seq=seq, reply=read_turn_reply(answer)))

    async def _send_claim(self, claim: Claim) -> None:
        where, prev_term = claim.pack, claim.prev_term
        try:
            answer = await self._handles.ask_keeper("claim", pack(claim), timeout_s=CALL_S)
        except KeeperGone as exc:
            await self._end(str(exc))
        except (RayActorError, RayTaskError, LedgerUnavailable, TimeoutError) as exc:
            self._step(e.ClaimLost(pack=where, prev_term=prev_term, reason=f"{type(exc).__name__}: {exc}"))
        else:
            verdict = read_row(Verdict, unpack(answer))
            self._step(e.ClaimAnswered(pack=where, prev_term=prev_term, verdict=verdict))

    async def _send_placed(self, method: str, n: int, data: bytes) -> None:
        try:
            answer = await self._handles.ask_keeper(method, data, timeout_s=CALL_S)
        except KeeperGone as exc:
            await self._end(str(exc))
        except (RayActorError, RayTaskError, LedgerUnavailable, TimeoutError) as exc:
            self._step(e.Unanswered(n=n, reason=f"{type(exc).__name__}: {exc}"))
        else:
            self._step(e.Answered(n=n, where=read_row(Where, unpack(answer))))

    async def _summon_other(self, unit: str, boot: int, pack_name: str) -> None:
        try:
            accepted, reason = await asyncio.wait_for(self._handles.call(unit, boot, "summon", pack_name), 15.0)
        except (PeerGone, RayActorError, RayTaskError, TimeoutError) as exc:
            accepted, reason = False, f"it could not be reached: {exc}"
        if not accepted:
            log.info("%s declined a summons of %s: %s", unit, pack_name, reason)
            self._step(e.SummonsDeclined(unit=unit, reason=reason))

    # --- gossip -------------------------------------------------------------------------------------------------

    def _get_load(self) -> Load:
        assert self._brain is not None
        assert self._pool is not None
        held = len(self._brain.leases.held)
        return Load(
            leases=held, queued=max(0, held - len(self._pool.started())), capacity=self._card.hands.concurrency,
            progress=self._pool.progress,
        )  # fmt: skip

    def _tell_alpha(self, brain: Brain) -> None:
        known = brain.leadership
        if known is not None and known != self._alpha_told and self._gossip is not None:
            self._alpha_told = known
            self._gossip.tell_alpha(*known)

    def _on_advice(self, advice: Advice) -> None:
        match advice:
            case StatusChanged(unit, boot, status):
                if status is not Status.SUSPECT:
                    self._step(e.ViewChanged(unit=unit, boot=boot, lives=status is Status.ALIVE))
            case AlphaHeard(pack_name, term, alpha, boot):
                self._step(e.AlphaTold(pack=pack_name, term=term, alpha=alpha, boot=boot))
            case Stalled(unit, boot, stalled):
                if (unit, boot) == (self._card.unit, self._boot):
                    log.warning("%s %s.", unit, "makes no progress" if stalled else "goes on")
                    self._step(e.StallJudged(stalled=stalled))
            case _:
                assert_never(advice)

    # --- hands and day job --------------------------------------------------------------------------------------

    def _on_report(self, report: Report) -> None:
        if not self._reports:
            asyncio.get_running_loop().call_soon(self._flush_reports)
        self._reports.append(report)

    def _flush_reports(self) -> None:
        reports, self._reports = self._reports, []
        self._step(e.Reported(reports=tuple(reports)))

    async def _get_code(self, fn: str) -> bytes:
        code: bytes = await self._handles.ask_keeper("function", fn, timeout_s=CALL_S)
        return code

    def _on_publish(self, events: list[tuple[str, str]]) -> None:
        if not self._events_out:
            self._spawn(self._publish())
        self._events_out.extend(events)

    async def _publish(self) -> None:
        await asyncio.sleep(0.005)
        events, self._events_out = self._events_out, []
        await self._ask_keeper("publish", self._card.unit, events, patience_s=30.0)

    async def _start_day_job(self, state: bytes) -> None:
        job = DayJob(
            self._card.day_job or "",
            unit=self._card.unit,
            boot=self._boot,
            folder=self._spec.folder,
            state=state,
            on_step=lambda _steps, next_s, checkpoint: self._step(e.DayStepped(next_s=next_s, state=checkpoint)),
            on_failed=lambda text: log.warning("The day job of %s failed: %s", self._card.unit, text),
        )
        self._day_job = job
        try:
            await job.start()
        except SetupFailed:
            log.exception("The day job of %s cannot start.", self._card.unit)

    async def _leave_day_job(self, grace_s: float) -> None:
        job = self._day_job
        state = await job.leave(grace_s) if job is not None else b""
        if state is not None:
            self._day_job = None
        self._step(e.DayLeft(state=state))

    # --- calls of others ----------------------------------------------------------------------------------------

    async def lifeline(self) -> int:
        """Parked by the keeper: its end without an answer tells that this process died."""
        await asyncio.sleep(LIFELINE_S)
        return self._boot

    @door
    async def gossip(self, source: str, data: bytes) -> list[bytes]:
        """A packet of another unit; the answer is what goes back to it."""
        return self._gossip.hear(source, data) if self._gossip is not None else []

    @door
    async def gossip_sync(self, source: str, data: bytes) -> bytes:
        return self._gossip.answer_sync(source, data) if self._gossip is not None else b""

    async def view(self) -> tuple[list[UnitSeen], dict[str, int]]:
        """What this unit thinks of all others, and counts of its gossip."""
        if self._gossip is None:
            return [], {"refused_calls": self.refused_calls}
        return self._gossip.seen(), {**self._gossip.counts(), "refused_calls": self.refused_calls}

    @door
    async def howl(self, data: bytes) -> None:
        self._step(e.HowlHeard(howl=Howl.from_wire(unpack(data))))

    @door
    async def hunt(self, data: bytes) -> bytes:
        """A member's call for work. Parked until there is some, or for a while."""
        hunt = check_hunt(read_hunt(data))
        if self._brain is None or len(self._parked) > MANY_CALLS // 2:
            return pack(HuntReply(0, None, 0, hunt.n))
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._parked[hunt.unit, hunt.n] = future
        try:
            self._step(e.HuntArrived(hunt=hunt))
            return await asyncio.wait_for(future, HUNT_PARK_S)
        except TimeoutError:
            return pack(HuntReply(0, None, 0, hunt.n))
        finally:
            self._parked.pop((hunt.unit, hunt.n), None)

    @door
    async def summon(self, pack_name: str) -> tuple[bool, str]:
        """Asks this unit to join a pack; it decides, and says why not."""
        check_names("a pack", pack_name)
        if self._brain is None:
            return False, "it is not awake yet"
        self._ticket_no += 1
        future: asyncio.Future[tuple[bool, str]] = asyncio.get_running_loop().create_future()
        self._tickets[self._ticket_no] = future
        ticket = self._ticket_no
        self._step(e.Summoned(pack=pack_name, ticket=ticket))
        try:
            return await asyncio.wait_for(future, 12.0)
        except TimeoutError:
            return False, "it could not decide in time"
        finally:
            self._tickets.pop(ticket, None)

    @door
    async def ask_to_lead(self, pack_name: str, term: int) -> None:
        check_names("a pack", pack_name)
        check_whole("a term", term)
        self._step(e.AskedFor(pack=pack_name, term=term))

    @door
    async def instruct(self, order: str, grace_s: float, reason: str) -> None:
        check_names("an order", order)
        check_text("a reason", reason)
        check_seconds("grace_s", grace_s)
        if order not in ORDERS or grace_s is None:
            raise Malformed(f"a unit cannot be told to {order!r:.40} within {grace_s} s")
        self._step(e.Instructed(order=order, grace_s=grace_s, reason=reason))
