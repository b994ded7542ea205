"""One process of a unit in a simulated den: carries events to the real brain and its orders out, with fake hands.

It follows the Ray driver order by order. A process may be frozen (what arrives waits, and is handled in order
afterwards), slow (each message takes its time), deaf (what arrives is lost) and live by a clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, assert_never

from wolfpack.core import errands as e
from wolfpack.core.book import Book, Instant
from wolfpack.core.howls import HowlKind
from wolfpack.core.member import Brain
from wolfpack.core.wire import Hunt, HuntReply, Turn, Where
from wolfpack.errors import Deposed
from wolfpack.model import Card, Cause, Report
from wolfpack.sim.calls import Call
from wolfpack.sim.den_gossip import Gossip, roster_of
from wolfpack.sim.den_hands import DayJob, Hands
from wolfpack.sim.den_keeper import WALL
from wolfpack.sim.kernel import US, to_us

if TYPE_CHECKING:
    from wolfpack.sim.den import World

HUNT_PARK_S = 9.0
LIFELINE_S = 4.0
RUNNING_S = 0.1
RESTING_S = 0.005  # the driver sets no shorter timer
DEATH_TOLD_S = 0.015  # how long Ray takes to tell a caller that the other process is dead
SERVICE_S = 0.0001  # what a message takes a unit whose slowness is 1; not counted where it is not slow


class Process:
    def __init__(self, world: World, card: Card, boot: int) -> None:
        self.world, self.card, self.boot = world, card, boot
        self.name = f"{card.unit}#{boot}"
        self.brain: Brain | None = None
        self.dead = self.frozen = self.deaf = False
        self.quiet = False  # dead, and nobody is told: its node fell silent
        self.hands = Hands(self)
        self.day_job = DayJob(self)
        self.gossip: Gossip | None = None
        self._inbox: list[Callable[[], object]] = []
        self._parked: dict[tuple[str, int], Callable[[HuntReply], None]] = {}
        self._open: dict[Call, None] = {}  # calls of others that end when this process dies
        self._tickets: dict[int, Callable[[bool, str], None] | None] = {}
        self._ticket_no = 0
        self._reports: list[Report] = []
        self._watching_running = self._running_told = False
        self._timer = 0
        # Its own clock, once skewed: `_clock_s` at the world's `_clock_at`, running `_clock_rate` times as fast.
        self._skewed = False
        self._clock_s = self._clock_at = world.now
        self._clock_rate = 1.0
        self._wall_jump_s = 0.0
        self.service_us = 0
        self._busy_until_us = 0

    # --- clock --------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Monotonic seconds, by this process's own clock."""
        world_now = self.world.kernel.now
        return self._clock_s + (world_now - self._clock_at) * self._clock_rate if self._skewed else world_now

    @property
    def wall(self) -> float:
        return WALL + self.world.now + self._wall_jump_s

    def set_clock(self, *, rate: float = 1.0, jump_s: float = 0.0) -> None:
        """From now on this clock runs so fast; a jump moves the wall clock, and forward also the monotonic one."""
        self._clock_s = self.now + max(0.0, jump_s)
        self._clock_at, self._clock_rate, self._skewed = self.world.now, rate, True
        self._wall_jump_s += jump_s
        if self.brain is not None and not self.dead:
            self._set_timer()
            if self.gossip is not None:
                self.gossip.clock_changed()

    def at_clock(self, when: float, what: Callable[..., object], *args: Any) -> None:
        """Runs `what(*args)` when its own clock shows this, never early, whatever state the process is in."""
        kernel = self.world.kernel
        world_when = self._clock_at + (when - self._clock_s) / self._clock_rate if self._skewed else when
        kernel.at_us(max(int(world_when * US), kernel.now_us) + 1, what, *args)  # later than now, so that time goes on

    def after(self, delay_s: float, what: Callable[[], object]) -> None:
        """Later, by its own clock."""
        self.world.kernel.after(delay_s / self._clock_rate, self.receive, what)

    # --- life ---------------------------------------------------------------------------------------------------

    def receive(self, what: Callable[[], object]) -> None:
        """Its own timers and calls that ended: now, or when the process runs again."""
        if self.dead:
            return
        if self.frozen:
            self._inbox.append(what)
        elif self.service_us:
            now_us = self.world.kernel.now_us
            self._busy_until_us = max(now_us, self._busy_until_us) + self.service_us
            self.world.kernel.at_us(self._busy_until_us, self._serve, what)
        else:
            what()

    def _serve(self, what: Callable[[], object]) -> None:
        if self.frozen:
            self._inbox.append(what)
        elif not self.dead:
            what()

    def hear(self, what: Callable[[], object]) -> None:
        """Something from another process arrives."""
        if not self.deaf:
            self.receive(what)

    def slow_down(self, factor: float) -> None:
        """Each message takes it `factor` times as long as usual; 0: nothing takes time, as in a world without load."""
        self.service_us = to_us(SERVICE_S * factor)

    def be_born(self) -> None:
        unit, boot = self.card.unit, self.boot
        self.world.tell(self.name, "is born")
        if unit in self.world.broken:
            self.ask(
                lambda book, at: book.desk.birth_failed(at, unit, boot, "its set-up raised"),
                lambda _: self.end("its set-up failed"),
            )
            return
        node = self.world.node(unit)
        self.ask(lambda book, at: book.hello(at, unit, boot, 1000 + boot, node), self._on_hello)

    def ask(self, call: Callable[[Book, Instant], Any], done: Callable[[Any], object] = lambda _: None) -> None:
        """Calls the keeper until it answers."""
        self.world.ask_keeper(
            self,
            call,
            lambda value: self.receive(lambda: done(value)),
            lambda _: self.after(0.2, lambda: self.ask(call, done)),
        )

    def _on_hello(self, where: Where) -> None:
        if where.end:
            self.end(where.reason)
            return
        if self.brain is not None:
            return  # an earlier hello was answered too
        rng = self.world.kernel.stream("brain", self.card.unit, self.boot)
        self.brain = Brain(
            card=self.card, boot=self.boot, where=where, timing=self.world.timing, rng=rng, now=self.now,
            gossip=self.world.gossips,
        )  # fmt: skip
        if self.world.gossips:
            self.gossip = Gossip(self)
        self._carry_out(self.brain.start(self.now))
        self._set_timer()
        self._lifeline()

    def _lifeline(self) -> None:
        """Signs of life to the keeper, which answers with its roster."""
        gossip = self.gossip

        def sign(book: Book, at: Instant) -> list[tuple[str, int]]:
            book.desk.heard(at, self.card.unit, self.boot)
            return roster_of(book) if gossip is not None else []

        self.ask(sign, gossip.found if gossip is not None else lambda _: None)
        self.after(LIFELINE_S, self._lifeline)

    def end(self, reason: str) -> None:
        if self.dead:
            return
        self.world.tell(self.name, f"ends: {reason}")
        if self.gossip is not None:
            self.gossip.leave()
        self.world.end_process(self.card.unit, self.boot)

    def die(self, *, quiet: bool = False) -> None:
        self.dead, self.quiet = True, quiet
        self.hands.stopped = True
        self._inbox.clear()
        if not quiet:
            for call in self._open:
                self.world.kernel.after(DEATH_TOLD_S, call.fail, "dead")

    def freeze(self, *, hands: bool, deaf: bool = False) -> None:
        self.frozen, self.deaf = True, deaf
        self.hands.frozen = hands

    def thaw(self) -> None:
        if self.dead or not self.frozen:
            return
        self.frozen = self.deaf = False
        if self.hands.frozen:
            self.hands.thaw()
        inbox, self._inbox = self._inbox, []
        for what in inbox:
            self.receive(what)

    # --- thinking -----------------------------------------------------------------------------------------------

    def step(self, event: e.Event) -> None:
        if self.brain is not None and not self.dead:
            if self.gossip is not None and type(event) is e.UnitDied:
                self.gossip.hint(event.unit, event.boot)
            self.world.kernel.mix(f"{self.name} {type(event).__name__}")
            self._carry_out(self.brain.step(self.now, event))
            if self.gossip is not None and not self.dead:
                self.gossip.tell_alpha(self.brain.leadership)

    def _set_timer(self) -> None:
        assert self.brain is not None
        self._timer += 1
        self.at_clock(max(self.now + RESTING_S, self.brain.next_wake()), self._on_timer, self._timer)

    def _on_timer(self, timer: int) -> None:
        if timer == self._timer and not self.dead:
            self.receive(self._ring)

    def _ring(self) -> None:
        self.step(e.Tick())
        if not self.dead:
            self._set_timer()

    def watch_running(self) -> None:
        """Tells the brain what has been running for long, and once when nothing is any more."""
        if not self._watching_running:
            self._watching_running = True
            self.after(RUNNING_S, self._look)

    def _look(self) -> None:
        seconds = self.hands.seconds()
        if any(passed > RUNNING_S for passed in seconds.values()) or self._running_told:
            self._running_told = bool(seconds)
            self.step(e.Running(seconds=seconds))
        self._watching_running = False
        if seconds or self._running_told:
            self.watch_running()

    def report(self, report: Report) -> None:
        if not self._reports:
            self.after(0.0, self._flush)
        self._reports.append(report)

    def _flush(self) -> None:
        reports, self._reports = self._reports, []
        self.step(e.Reported(reports=tuple(reports)))
        self._tell_load()

    def _tell_load(self) -> None:
        if self.gossip is not None and self.brain is not None:
            hands = self.hands
            self.gossip.load(len(self.brain.leases.held), len(hands.waiting), hands.ended)

    # --- calls of others ----------------------------------------------------------------------------------------

    def hunt(self, hunt: Hunt, answer: Callable[[HuntReply], None]) -> None:
        key = (hunt.unit, hunt.n)
        self._parked[key] = answer
        self.step(e.HuntArrived(hunt=hunt))
        if key in self._parked:
            self.after(HUNT_PARK_S, lambda: self._answer_hunt(*key, HuntReply(0, None, 0, hunt.n)))

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
            case e.SendHowl():
                self._send_howl(order)
            case e.SendHunt(to=to, boot=its, hunt=hunt):
                self._send_hunt(to, its, hunt)
            case e.AnswerHunt(unit=unit, n=n, reply=reply):
                self._answer_hunt(unit, n, reply)
            case e.SendTurn(turn=turn):
                world.send_turn(
                    self,
                    turn,
                    lambda value: self.receive(lambda: self._turned(turn, value)),
                    lambda why: self.after(0.05, lambda: self.step(e.TurnLost(seq=turn.seq, reason=str(why)))),
                )
            case e.SendClaim(claim=claim):
                where, term = claim.pack, claim.prev_term
                world.ask_keeper(
                    self,
                    lambda book, at: book.claim(at, claim),
                    lambda verdict: self.receive(
                        lambda: self.step(e.ClaimAnswered(pack=where, prev_term=term, verdict=verdict))
                    ),
                    lambda why: self.receive(
                        lambda: self.step(e.ClaimLost(pack=where, prev_term=term, reason=str(why)))
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
                self._send_summons(unit, its, pack)
            case e.AnswerSummons(ticket=ticket, accepted=accepted, reason=reason):
                answer = self._tickets.pop(ticket, None)
                if answer is not None:
                    answer(accepted, reason)
            case e.GiveJobs(jobs=jobs):
                self.hands.give(jobs)
                self._tell_load()
            case e.Allow(until=until):
                self.hands.until = until
                self.hands.pump()
            case e.TakeBack(lease_nos=lease_nos):
                self.hands.take_back(lease_nos)
            case e.CancelJob(lease_no=lease_no, kill=kill, cause=cause, text=text):
                self.hands.cancel(lease_no, kill=kill, cause=Cause(cause), text=text)
            case e.Evict(grace_s=grace_s):
                self.hands.evict(grace_s)
            case e.LeaveDayJob(grace_s=grace_s):
                self.day_job.leave(grace_s)
            case e.StartDayJob(state=state):
                self.day_job.start(state)
            case e.Checkpoint(state=state):
                self.ask(lambda book, at: book.desk.checkpoint(at, me, boot, state))
            case e.PublishFailure(reason=reason):
                world.failures.append(reason)
            case e.EndSelf(reason=reason):
                self.end(reason)
            case _:
                assert_never(order)

    def _send_howl(self, order: e.SendHowl) -> None:
        to, its, howl = order.to, order.boot, order.howl
        if howl.kind is HowlKind.COORDINATOR or howl.kind is HowlKind.HEARTBEAT:
            self.world.checks.on_crown(howl)
        if howl.kind is not HowlKind.HEARTBEAT:
            self.world.tell(self.name, f"howls {howl.kind} of term {howl.term} at {to}")
        event = e.HowlHeard(howl=howl)

        def arrive() -> None:
            process = self.world.processes.get((to, its))
            if process is None or process.dead:
                if process is None or not process.quiet:
                    self.after(DEATH_TOLD_S, lambda: self.step(e.UnitDied(unit=to, boot=its)))
            else:
                process.hear(lambda: process.step(event))

        self.world.network.send(self.card.unit, to, arrive)

    def _turned(self, turn: Turn, value: Any) -> None:
        if isinstance(value, Deposed):
            self.step(e.TurnRefused(pack=turn.pack, seq=turn.seq, term=value.term, alpha=value.args[2] or None))
        else:
            self.step(e.TurnDone(seq=turn.seq, reply=value))

    def _send_summons(self, unit: str, its: int, pack: str) -> None:
        world = self.world

        def decided(accepted: bool, reason: str) -> None:
            if not accepted:
                us = world.network.stream_us(unit, self.card.unit)
                if us is not None:
                    heard = e.SummonsDeclined(unit=unit, reason=reason)
                    world.kernel.after_us(us, self.hear, lambda: self.step(heard))

        def arrive() -> None:
            if not world.reach(unit, its, lambda other: other.summon(pack, decided)):
                decided(False, "its process died")

        us = world.network.stream_us(self.card.unit, unit)
        if us is not None:
            world.kernel.after_us(us, arrive)

    def _send_hunt(self, to: str, its: int, hunt: Hunt) -> None:
        world, me = self.world, self.card.unit
        n = hunt.n
        if (to, its) == (me, self.boot):
            self.after(
                0.0,
                lambda: self.hunt(
                    hunt, lambda reply: self.after(0.0, lambda: self.step(e.HuntAnswered(n=n, reply=reply)))
                ),
            )
            return

        def failed(why: Any) -> None:
            if why == "dead":
                self.receive(lambda: self.step(e.HuntFailed(n=n, reason="the alpha's process died")))
                self.receive(lambda: self.step(e.UnitDied(unit=to, boot=its)))
            else:
                self.receive(lambda: self.step(e.HuntFailed(n=n, reason="unavailable")))

        call = Call(me, lambda reply: self.receive(lambda: self.step(e.HuntAnswered(n=n, reply=reply))), failed, self)

        def answer(reply: HuntReply) -> None:
            world.processes[to, its]._open.pop(call, None)
            us = world.network.stream_us(to, me)
            if us is not None:
                world.kernel.after_us(us, call.finish, reply)

        def arrive() -> None:
            process = world.processes.get((to, its))
            if process is None or process.dead:
                if process is None or not process.quiet:
                    world.kernel.after(DEATH_TOLD_S, call.fail, "dead")
                return
            process._open[call] = None
            process.hear(lambda: process.hunt(hunt, answer))

        world.hunt_deadlines.watch(call)
        world.maybe_unreachable(call)
        us = world.network.stream_us(me, to)
        if us is not None:
            world.kernel.after_us(us, arrive)

    def _send_placed(self, call: Callable[[Book, Instant], Any], n: int, seen_commit: int) -> None:
        self.world.ask_keeper(
            self,
            call,
            lambda where: self.receive(lambda: self.step(e.Answered(n=n, where=where))),
            lambda why: self.receive(lambda: self.step(e.Unanswered(n=n, reason=str(why)))),
            seen_commit,
        )
