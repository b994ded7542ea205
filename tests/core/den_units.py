"""One process of a unit in the world of `den_harness`: carries events to the brain and its orders out, with fake hands.

It follows the Ray driver order by order. The hands start a task only within the time that the brain allowed, and run
on while the process around them is frozen, unless they are frozen too.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, assert_never

import msgpack

from wolfpack.core import errands as e
from wolfpack.core.book import Book, Instant
from wolfpack.core.member import Brain
from wolfpack.core.wire import HuntReply, Where
from wolfpack.errors import Deposed
from wolfpack.model import Card, Cause, Job, Report

if TYPE_CHECKING:
    from tests.core.den_harness import World

HUNT_PARK_S = 9.0
LIFELINE_S = 4.0
RUNNING_S = 0.1


class Hands:
    """Runs jobs side by side up to `concurrency`, in order, within the time allowed."""

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process
        self.waiting: deque[Job] = deque()
        self.running: dict[int, tuple[Job, float]] = {}
        self.until = float("-inf")
        self.evicting = False
        self.stopped = False
        self.frozen = False
        self._owed: list[Callable[[], None]] = []

    def give(self, jobs: tuple[Job, ...]) -> None:
        for job in jobs:
            if self.evicting:
                self._report(job, Cause.RETURNED, None)
            else:
                self.waiting.append(job)
        self.pump()

    def pump(self) -> None:
        world = self._world
        while (
            self.waiting
            and len(self.running) < self._process.card.hands.concurrency
            and world.now <= self.until
            and not self.stopped
            and not self.frozen
        ):
            job = self.waiting.popleft()
            self.running[job.lease_no] = (job, world.now)
            starts = world.starts[job.task_id]
            starts.append((world.now, self._process.card.unit, self._process.boot, job.lease_no))
            seconds, ends = msgpack.unpackb(job.args)
            end = ends[min(job.attempt, len(ends)) - 1]
            world.after(seconds, lambda job=job, end=end: self._finish(job, end))

    def _finish(self, job: Job, end: str) -> None:
        if self.frozen:
            self._owed.append(lambda: self._finish(job, end))
            return
        if self.stopped or job.lease_no not in self.running:
            return
        if end == "KILL":
            self._world.end_process(self._process.card.unit, self._process.boot)
            return
        _, since = self.running.pop(job.lease_no)
        self._report(job, Cause(end), since)
        self.pump()

    def _report(self, job: Job, cause: Cause, since: float | None, **fields: Any) -> None:
        wall = self._world.wall - self._world.now
        kinds = ("builtins.ValueError",) if cause is Cause.FAULT else ()
        payload = b"value" if cause is Cause.DONE else b""
        report = Report(
            job.lease_no, job.task_id, cause.value, since is not None, wall + (since or 0.0), self._world.wall,
            payload=payload, kinds=kinds, **fields,
        )  # fmt: skip
        self._process.report(report)

    def take_back(self, lease_nos: tuple[int, ...]) -> None:
        for job in [job for job in self.waiting if job.lease_no in lease_nos]:
            self.waiting.remove(job)
            self._report(job, Cause.RETURNED, None)

    def cancel(self, lease_no: int, *, kill: bool, cause: Cause) -> None:
        for job in [job for job in self.waiting if job.lease_no == lease_no]:
            self.waiting.remove(job)
            self._report(job, cause, None)
        if kill and lease_no in self.running:
            job, since = self.running.pop(lease_no)
            self._report(job, cause, since)
            self.pump()

    def evict(self, grace_s: float) -> None:
        self.evicting = True
        self.take_back(tuple(job.lease_no for job in self.waiting))

        def end() -> None:
            for job, since in [*self.running.values()]:
                del self.running[job.lease_no]
                self._report(job, Cause.EVICTED, since)
            self.evicting = False

        self._world.after(grace_s, end)

    def thaw(self) -> None:
        self.frozen = False
        owed, self._owed = self._owed, []
        for one in owed:
            one()
        self.pump()


class Process:
    def __init__(self, world: World, card: Card, boot: int) -> None:
        self.world, self.card, self.boot = world, card, boot
        self.brain: Brain | None = None
        self.dead = self.frozen = False
        self.hands = Hands(world, self)
        self._inbox: list[Callable[[], None]] = []
        self._parked: dict[tuple[str, int], Callable[[HuntReply], None]] = {}
        self._open: dict[object, Callable[[], None]] = {}  # calls of others that end when this process dies
        self._tickets: dict[int, Callable[[bool, str], None] | None] = {}
        self._ticket_no = 0
        self._reports: list[Report] = []
        self._running_told = False
        self._day_life = 0
        self._stepping_until = 0.0
        self.at_day_job = False

    # --- life ---------------------------------------------------------------------------------------------------

    def receive(self, what: Callable[[], None]) -> None:
        if self.dead:
            return
        if self.frozen:
            self._inbox.append(what)
        else:
            what()

    def after(self, delay_s: float, what: Callable[[], None]) -> None:
        self.world.after(delay_s, lambda: self.receive(what))

    def be_born(self) -> None:
        if self.card.unit in self.world.broken:
            self.ask(
                lambda book, at: book.desk.birth_failed(at, self.card.unit, self.boot, "its set-up raised"),
                lambda _: self.end("its set-up failed"),
            )
            return
        node = self.world.node(self.card.unit)
        self.ask(lambda book, at: book.hello(at, self.card.unit, self.boot, 1000 + self.boot, node), self._on_hello)

    def ask(self, call: Callable[[Book, Instant], Any], done: Callable[[Any], None] = lambda _: None) -> None:
        """Calls the keeper until it answers."""
        self.world.ask_keeper(
            call,
            lambda value: self.receive(lambda: done(value)),
            lambda _: self.after(0.2, lambda: self.ask(call, done)),
        )

    def _on_hello(self, where: Where) -> None:
        if where.end:
            self.end(where.reason)
            return
        world = self.world
        self.brain = Brain(
            card=self.card, boot=self.boot, where=where, timing=world.timing,
            rng=random.Random(f"{self.card.unit}#{self.boot}#{world.rng.random()}"), now=world.now,
        )  # fmt: skip
        self._carry_out(self.brain.start(world.now))
        self._set_timer()
        self._watch_running()
        self._lifeline()

    def _lifeline(self) -> None:
        def sign() -> None:
            self.ask(lambda book, at: book.desk.heard(at, self.card.unit, self.boot))
            self._lifeline()

        self.after(LIFELINE_S, sign)

    def end(self, reason: str) -> None:
        self.world.end_process(self.card.unit, self.boot)

    def die(self) -> None:
        self.dead = True
        self.hands.stopped = True
        for gone in list(self._open.values()):
            self.world.after(0.015, gone)

    def freeze(self, *, hands: bool) -> None:
        self.frozen = True
        self.hands.frozen = hands

    def thaw(self) -> None:
        self.frozen = False
        if self.hands.frozen:
            self.hands.thaw()
        inbox, self._inbox = self._inbox, []
        for what in inbox:
            self.receive(what)

    # --- thinking -----------------------------------------------------------------------------------------------

    def step(self, event: e.Event) -> None:
        if self.brain is not None and not self.dead:
            self._carry_out(self.brain.step(self.world.now, event))

    def _set_timer(self) -> None:
        assert self.brain is not None

        def ring() -> None:
            self.step(e.Tick())
            if not self.dead:
                self._set_timer()

        self.after(max(0.005, self.brain.next_wake() - self.world.now), ring)

    def _watch_running(self) -> None:
        def look() -> None:
            now = self.world.now
            seconds = {no: now - since for no, (_, since) in self.hands.running.items()}
            if any(passed > RUNNING_S for passed in seconds.values()) or self._running_told:
                self._running_told = bool(seconds)
                self.step(e.Running(seconds=seconds))
            self._watch_running()

        self.after(RUNNING_S, look)

    def report(self, report: Report) -> None:
        if not self._reports:
            self.after(0.0, self._flush)
        self._reports.append(report)

    def _flush(self) -> None:
        reports, self._reports = self._reports, []
        self.step(e.Reported(reports=tuple(reports)))

    # --- calls of others ----------------------------------------------------------------------------------------

    def hunt(self, hunt: Any, answer: Callable[[HuntReply], None]) -> None:
        key = (hunt.unit, hunt.n)
        self._parked[key] = answer
        self.step(e.HuntArrived(hunt=hunt))
        self.after(HUNT_PARK_S, lambda: self._answer_hunt(hunt.unit, hunt.n, HuntReply(0, None, 0, hunt.n)))

    def _answer_hunt(self, unit: str, n: int, reply: HuntReply) -> None:
        answer = self._parked.pop((unit, n), None)
        if answer is not None:
            answer(reply)

    def ask_to_lead(self, pack: str, term: int) -> None:
        self.step(e.AskedFor(pack=pack, term=term))

    def summon(self, pack: str, answer: Callable[[bool, str], None] | None) -> None:
        if self.brain is None:
            if answer is not None:
                answer(False, "it is not awake yet")
            return
        self._ticket_no += 1
        self._tickets[self._ticket_no] = answer
        self.step(e.Summoned(pack=pack, ticket=self._ticket_no))

    def instruct(self, order: str, grace_s: float, reason: str) -> None:
        self.step(e.Instructed(order=order, grace_s=grace_s, reason=reason))

    # --- orders -------------------------------------------------------------------------------------------------

    def _carry_out(self, orders: list[e.Order]) -> None:
        for order in orders:
            self._do(order)

    def _do(self, order: e.Order) -> None:
        world, me, boot = self.world, self.card.unit, self.boot
        match order:
            case e.SendHowl(to=to, boot=its, howl=howl):

                def arrive() -> None:
                    if not world.reach(to, its, lambda other: other.step(e.HowlHeard(howl=howl))):
                        self.after(0.015, lambda: self.step(e.UnitDied(unit=to, boot=its)))

                world.post(arrive)
            case e.SendHunt(to=to, boot=its, hunt=hunt):
                self._send_hunt(to, its, hunt)
            case e.AnswerHunt(unit=unit, n=n, reply=reply):
                self._answer_hunt(unit, n, reply)
            case e.SendTurn(turn=turn):

                def turned(value: Any, seq: int = turn.seq) -> None:
                    if isinstance(value, Deposed):
                        self.step(e.TurnRefused(seq=seq, term=value.term, alpha=value.args[2] or None))
                    else:
                        self.step(e.TurnDone(seq=seq, reply=value))

                world.send_turn(
                    turn,
                    lambda value: self.receive(lambda: turned(value)),
                    lambda why: self.after(0.05, lambda: self.step(e.TurnLost(seq=turn.seq, reason=str(why)))),
                )
            case e.SendClaim(claim=claim):
                world.ask_keeper(
                    lambda book, at: book.claim(at, claim),
                    lambda verdict: self.receive(
                        lambda: self.step(e.ClaimAnswered(prev_term=claim.prev_term, verdict=verdict))
                    ),
                    lambda why: self.receive(
                        lambda: self.step(e.ClaimLost(prev_term=claim.prev_term, reason=str(why)))
                    ),
                    claim.seen_commit,
                )
            case e.SendRelease(pack=pack, term=term):
                self.ask(lambda book, at: book.release(at, pack, term, me, boot))
            case e.SendReport(report=report):
                self._send_placed(lambda book, at: book.report(at, report), report.n, report.seen_commit)
            case e.SendMove(move=move):
                self._send_placed(lambda book, at: book.move(at, move), move.n, move.seen_commit)
            case e.SendSummons(unit=unit, boot=its, pack=pack):

                def decided(accepted: bool, reason: str, unit: str = unit) -> None:
                    if not accepted:
                        self.after(world.delay_s(), lambda: self.step(e.SummonsDeclined(unit=unit, reason=reason)))

                def call() -> None:
                    if not world.reach(unit, its, lambda other: other.summon(pack, decided)):
                        decided(False, "its process died")

                world.after(world.delay_s(), call)
            case e.AnswerSummons(ticket=ticket, accepted=accepted, reason=reason):
                answer = self._tickets.pop(ticket, None)
                if answer is not None:
                    answer(accepted, reason)
            case e.GiveJobs(jobs=jobs):
                self.hands.give(jobs)
            case e.Allow(until=until):
                self.hands.until = until
                self.hands.pump()
            case e.TakeBack(lease_nos=lease_nos):
                self.hands.take_back(lease_nos)
            case e.CancelJob(lease_no=lease_no, kill=kill, cause=cause):
                self.hands.cancel(lease_no, kill=kill, cause=Cause(cause))
            case e.Evict(grace_s=grace_s):
                self.hands.evict(grace_s)
            case e.LeaveDayJob(grace_s=grace_s):
                self._leave_day_job(grace_s)
            case e.StartDayJob(state=state):
                self._start_day_job(state)
            case e.Checkpoint(state=state):
                self.ask(lambda book, at: book.desk.checkpoint(at, me, boot, state))
            case e.PublishFailure(reason=reason):
                world.failures.append(reason)
            case e.EndSelf(reason=reason):
                self.end(reason)
            case _:
                assert_never(order)

    def _send_hunt(self, to: str, its: int, hunt: Any) -> None:
        world, key = self.world, object()
        if (to, its) == (self.card.unit, self.boot):
            self.after(
                0.0,
                lambda: self.hunt(
                    hunt, lambda reply: self.after(0.0, lambda: self.step(e.HuntAnswered(n=hunt.n, reply=reply)))
                ),
            )
            return
        over = [False]

        def gone() -> None:
            if not over[0]:
                over[0] = True
                self.receive(lambda: self.step(e.HuntFailed(n=hunt.n, reason="the alpha's process died")))
                self.receive(lambda: self.step(e.UnitDied(unit=to, boot=its)))

        def answer(reply: HuntReply) -> None:
            process = world.processes[to, its]
            process._open.pop(key, None)

            def arrive() -> None:
                if not over[0]:
                    over[0] = True
                    self.receive(lambda: self.step(e.HuntAnswered(n=hunt.n, reply=reply)))

            world.after(world.delay_s(), arrive)

        def fail() -> None:
            if not over[0]:
                over[0] = True
                self.receive(lambda: self.step(e.HuntFailed(n=hunt.n, reason="unavailable")))

        def arrive() -> None:
            process = world.processes.get((to, its))
            if process is None or process.dead:
                world.after(0.015, gone)
                return
            process._open[key] = gone
            process.receive(lambda: process.hunt(hunt, answer))

        if world.faults.unreachable and world.rng.random() < world.faults.unreachable:
            world.after(world.rng.uniform(0.0, 0.3), fail)
        world.after(world.delay_s(), arrive)
        world.after(HUNT_PARK_S + 2, fail)

    def _send_placed(self, call: Callable[[Book, Instant], Any], n: int, seen_commit: int) -> None:
        self.world.ask_keeper(
            call,
            lambda where: self.receive(lambda: self.step(e.Answered(n=n, where=where))),
            lambda why: self.receive(lambda: self.step(e.Unanswered(n=n, reason=str(why)))),
            seen_commit,
        )

    # --- the day job --------------------------------------------------------------------------------------------

    def _start_day_job(self, state: bytes) -> None:
        self._day_life += 1
        self.at_day_job = True
        self._day_step(self._day_life, int(state or b"0"))

    def _day_step(self, life: int, count: int) -> None:
        world = self.world
        self._stepping_until = world.now + world.day_step_s
        self._day_state = count

        def stepped() -> None:
            if life != self._day_life:
                return
            self._day_state = count + 1
            world.day_steps[self.card.unit] = count + 1
            self._stepping_until = world.now
            self.step(e.DayStepped(next_s=world.day_pause_s, state=str(count + 1).encode()))
            if life == self._day_life:
                self.after(world.day_pause_s, lambda: life == self._day_life and self._day_step(life, count + 1))

        self.after(world.day_step_s, stepped)

    def _leave_day_job(self, grace_s: float) -> None:
        left_s = max(0.0, self._stepping_until - self.world.now)
        if left_s > grace_s:
            self.after(grace_s, lambda: self.step(e.DayLeft(state=None)))
            return

        def leave() -> None:
            self._day_life += 1
            self.at_day_job = False
            self.step(e.DayLeft(state=str(self._day_state).encode()))

        self.after(left_s + 0.001, leave)
