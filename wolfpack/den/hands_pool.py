"""The pool of hands of one unit: what the unit's brain talks to.

    brain --give, take_back, cancel, evict--> pool --a few jobs ahead--> hands
    brain <---------- on_report ------------- pool <----- results ------

Jobs wait here and go to the hands a little ahead, so that small tasks do not wait for a message each. What was given
ahead and has not started can be taken back at any moment (see `hands_main.py`), so it is never stuck behind a long
task: hands that fall idle get what others have ahead of them, and a take-back or cancel gets its answer at once.

Every lease given ends in exactly one report, until `stop`. Who is to blame when hands die: the task that ran, CRASH or
OOM. What had not started is run by the hands that follow and never hears of it. Where several coroutines ran in the
hands that died, nobody can tell; all end as LOST, which makes the keeper lease them one at a time.

`concurrency: N` means N hands, each for one plain function at a time. The first of them also runs coroutines, N at
once; it runs either plain functions or coroutines at any time, the older of the two first.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgpack

from wolfpack.den import memory, processes
from wolfpack.den.hands import Hands, Held, ProcessHands, Verdict
from wolfpack.den.hands_thread import ThreadHands
from wolfpack.errors import SetupFailed
from wolfpack.model import Cause, HandsSpec, Job, Report

AHEAD_MAX = 512  # jobs given ahead to one child
AHEAD_MAX_BYTES = 1 << 18
# Hands whose task runs longer than this get no more ahead: it may be a long one.
YOUNG_S = 0.005
# A cancelled coroutine that is still there after this holds the loop, or swallowed the cancel: its hands are killed.
COROUTINE_GRACE_S = 1.0
RECYCLE_GRACE_S = 1.0
FUNCTIONS_MAX = 500
CODE_RETRIES_S = (0.1, 0.5, 2.0)
BIRTHS_MAX = 3


class HandsPool:
    """See the head of this file.

    Args:
        spec: isolation, concurrency, setup and recycling, from the card.
        memory_bytes: what all hands together may hold; None: the node alone sets a limit.
        folder: put first on the module search path of the hands; their working directory stays.
        blobs: folder of results above a MiB.
        payload_max_bytes: larger results end as a fault.
        get_code: the pickled function of a hash. LookupError: there is none, and the task faults; other errors are
            tried again, then the lease is returned.
        on_report: called once for every lease given.
        on_publish: events that tasks publish, each a name and its fields as JSON.
        on_log: one sentence for a person.
        on_broken: these hands cannot go on and the unit must be replaced (a thread that cannot be ended, a setup that
            fails again and again); what runs elsewhere in the pool goes on.
    """

    def __init__(
        self,
        spec: HandsSpec,
        *,
        unit: str,
        boot: int,
        memory_bytes: int | None,
        folder: str | None,
        blobs: str,
        payload_max_bytes: int,
        get_code: Callable[[str], Awaitable[bytes]],
        on_report: Callable[[Report], None],
        on_publish: Callable[[list[tuple[str, str]]], None],
        on_log: Callable[[str], None],
        on_broken: Callable[[str], None] | None = None,
    ) -> None:
        self._spec = spec
        self._unit = unit
        self._memory_bytes = memory_bytes
        self._folder = folder
        self._config: dict[str, Any] = {
            "unit": unit,
            "boot": boot,
            "setup": spec.setup,
            "blobs": blobs,
            "payload_max_bytes": payload_max_bytes,
        }
        self._get_code = get_code
        self._on_report = on_report
        self.on_publish = on_publish
        self._on_log = on_log
        self._on_broken = on_broken or (lambda _: None)

        self.progress = 0  # rises whenever a task ends or says that it got further
        self._order = 0
        self._allowed_until = float("inf")
        self._leases: set[int] = set()  # given, and not reported yet
        self._plain: deque[Held] = deque()
        self._coroutines: deque[Held] = deque()
        self._code: dict[str, bytes] = {}
        self._fetches: dict[str, asyncio.Task[None]] = {}
        self._hands: list[Hands] = []
        self._leaving: set[Hands] = set()
        self._fates: dict[Hands, Verdict] = {}  # why hands were killed, said of the task that ran alone
        self._failed_births = 0
        self._started: asyncio.Future[None] | None = None
        self._changed = asyncio.Event()  # something was reported or ended; for those who wait
        self._is_evicting = False
        self._is_stopped = False
        self._timeout_timer: asyncio.TimerHandle | None = None
        self._timeout_at = float("inf")
        self._memory_timer: asyncio.TimerHandle | None = None
        self._births: set[asyncio.TimerHandle] = set()
        self._trees_at = float("-inf")
        self._trees: dict[Hands, list[int]] = {}
        # The last two looks: the latest may have come between a kill and the news of it.
        self._kernel_kills = deque([memory.find_kernel_kills()], maxlen=2)

    # --- what the brain calls

    async def start(self) -> None:
        """Starts the hands and waits until each is set up.

        Raises:
            SetupFailed: with the traceback, or how the process ended. No process stays.
        """
        self._started = asyncio.get_running_loop().create_future()
        self._hands = [self._make_hands() for _ in range(self._spec.concurrency)]
        try:
            await self._started
        except BaseException:
            await self.stop()
            raise
        finally:
            self._started = None

    @property
    def held(self) -> int:
        """Leases given and not yet reported."""
        return len(self._leases)

    def started(self) -> dict[int, float]:
        """What runs now: lease number -> wall-clock time of its start."""
        return {lease_no: started.at for hands in self._all() for lease_no, started in hands.starts.items()}

    def give(self, jobs: Sequence[Job]) -> None:
        """Queues jobs, to be started in this order. A lease that is held already is not taken twice."""
        if len(self._code) > FUNCTIONS_MAX and not self._leases:
            self._code.clear()
        for job in jobs:
            if job.lease_no in self._leases:
                continue
            self._leases.add(job.lease_no)
            self._order += 1
            (self._coroutines if job.is_async else self._plain).append(Held(self._order, job))
            if job.fn not in self._code and job.fn not in self._fetches:
                self._fetches[job.fn] = asyncio.get_running_loop().create_task(self._fetch(job.fn))
        if self._is_evicting or self._is_stopped:
            self._hand_back("the unit is leaving")
        self._pump()

    def allow(self, until: float) -> None:
        """No job starts after this monotonic time, until a later one is allowed: the unit may be frozen by then."""
        was_closed = self._allowed_until < time.monotonic()
        self._allowed_until = until
        for hands in self._all():
            if was_closed:  # what waited there has not started, and its time begins when it is given again
                self._put_back(hands.withdraw())
            hands.allow(until)
        if was_closed:
            self._pump()

    def take_back(self, lease_nos: Iterable[int]) -> None:
        """Those that have not started come back as RETURNED at once; the others run on."""
        wanted = self._leases.intersection(lease_nos)
        for hands in self._all():
            if any(lease_no in wanted for lease_no in hands.assigned):
                self._put_back(hands.withdraw())
        self._drop_waiting(wanted, Cause.RETURNED, "taken back before it started")
        self._pump()

    def cancel(self, lease_no: int, *, kill: bool, cause: Cause = Cause.CANCELLED, text: str = "") -> None:
        """Ends one lease. Not started: reported with `cause` at once. Running: its `should_stop()` becomes true; with
        `kill` its hands are killed instead (a coroutine is cancelled, and its hands killed if that does not help), and
        it is reported with `cause`, unless it was faster."""
        if lease_no not in self._leases:
            return
        hands = next((hands for hands in self._all() if lease_no in hands.assigned), None)
        if hands is not None:
            self._put_back(hands.withdraw())
        self._drop_waiting({lease_no}, cause, text or f"ended as {cause} before it started")
        if hands is not None and lease_no in hands.assigned:
            if kill:
                self._end_running(hands, lease_no, Verdict(cause, text or f"ended as {cause} while it ran"))
            else:
                hands.ask_stop(lease_no)
        self._pump()

    async def evict(self, grace_s: float, text: str) -> None:
        """Empties the pool: nothing is started any more, what runs may finish within `grace_s`.

        What had not started is RETURNED at once, what is killed at the end is EVICTED. Afterwards the pool is empty and
        can be used again; jobs given meanwhile are returned.
        """
        self._is_evicting = True
        try:
            for hands in self._all():
                self._put_back(hands.withdraw())
                for lease_no in hands.starts:
                    hands.ask_stop(lease_no)
            self._hand_back(text)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._until(lambda: not self._leases)
            for hands in self._all():
                if hands.assigned:
                    for lease_no in hands.assigned:
                        hands.verdicts.setdefault(lease_no, Verdict(Cause.EVICTED, text))
                    hands.kill()
            await self._until(lambda: not self._leases)
        finally:
            self._is_evicting = False
        self._pump()

    async def stop(self) -> None:
        """Kills all hands with everything they started, and waits until they are gone. Nothing is reported any more."""
        self._is_stopped = True
        for timer in (self._timeout_timer, self._memory_timer, *self._births):
            if timer is not None:
                timer.cancel()
        fetches = list(self._fetches.values())
        for fetch in fetches:
            fetch.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)
        for hands in self._all():
            hands.kill()
        await self._until(lambda: all(hands.is_gone for hands in self._all()))

    # --- news from the hands

    def on_ready(self, hands: Hands) -> None:  # noqa: ARG002
        self._failed_births = 0
        if self._started is not None and not self._started.done() and all(each.is_ready for each in self._hands):
            self._started.set_result(None)
        self._pump()

    def on_reports(self, hands: Hands, reports: list[Report]) -> None:
        for report in reports:
            self._report(report)
        limit = self._spec.recycle_after
        if limit is not None and hands.given >= limit and not hands.assigned and not hands.is_ending:
            hands.end(RECYCLE_GRACE_S)
            self._replace(hands)
        self._changed.set()
        self._pump()

    def on_progress(self) -> None:
        self.progress += 1

    def on_gone(self, hands: Hands, how: str) -> None:
        self._put_back(hands.withdraw())
        self._trees.pop(hands, None)
        fate = self._fates.pop(hands, None)

        def judge(unknown: int) -> Verdict:
            """What is said of running tasks without a verdict of their own; `unknown` is how many there are."""
            if fate is None and hands.verdicts:
                return Verdict(Cause.EVICTED, "its hands were killed because another task in them had to be ended")
            if unknown > 1:
                return Verdict(
                    Cause.LOST, f"its hands ended ({how}) while {unknown} tasks ran in them; one is to blame"
                )
            if fate is not None:
                return fate
            if "SIGKILL" in how and memory.find_kernel_kills() > self._kernel_kills[0]:
                return Verdict(Cause.OOM, "the kernel killed its hands: the node had no memory left")
            return Verdict(Cause.CRASH, f"its hands ended by {how} while it ran")

        was_idle = not hands.assigned
        for report in hands.end_running(judge):
            self._report(report)
        self._leaving.discard(hands)
        self._changed.set()
        if self._is_stopped:
            return
        if hands in self._hands:
            if not hands.was_ready:
                self._on_failed_birth(hands, how)
            elif isinstance(hands, ThreadHands):
                self._on_broken(f"a thread of {self._unit} could not be ended; the unit must be replaced")
            else:
                if was_idle:
                    self._on_log(f"hands of {self._unit} ended by {how} while no task ran; new ones are started")
                self._replace(hands)
        self._pump()

    def _on_failed_birth(self, hands: Hands, how: str) -> None:
        what = f"setup {self._spec.setup}" if self._spec.setup else "the start"
        text = f"The hands of {self._unit} did not get ready: {what} "
        text += f"raised\n{hands.failed_start}" if hands.failed_start else f"ended by {how}."
        if self._started is not None:
            if not self._started.done():
                self._started.set_exception(SetupFailed(text))
            return
        self._failed_births += 1
        self._on_log(text)
        if self._failed_births == BIRTHS_MAX:
            self._on_broken(text)
        timer = asyncio.get_running_loop().call_later(0.1 * 2 ** min(6, self._failed_births), lambda: again())
        self._births.add(timer)

        def again() -> None:
            self._births.discard(timer)
            self._replace(hands)

    def _report(self, report: Report) -> None:
        self._leases.discard(report.lease_no)
        self.progress += report.started
        if self._is_stopped:
            return
        try:
            self._on_report(report)
        except Exception as exc:  # one listener's failure must not cost the other reports of this batch
            self._on_log(f"the report of lease {report.lease_no} was not taken: {type(exc).__name__}: {exc}")

    # --- hands come and go

    def _all(self) -> list[Hands]:
        return [*self._hands, *self._leaving]

    def _make_hands(self) -> Hands:
        if self._spec.isolation == "thread":
            return ThreadHands(self, self._config)
        hands = ProcessHands(self, self._config, unit=self._unit, folder=self._folder, on_log=self._on_log)
        hands.allow(self._allowed_until)
        return hands

    def _replace(self, hands: Hands) -> None:
        if not hands.is_gone:
            self._leaving.add(hands)
        self._hands[self._hands.index(hands)] = self._make_hands()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    # --- the queue

    async def _fetch(self, fn: str) -> None:
        """Gets the code of a function; without it, ends the leases that wait for it."""
        for pause_s in (*CODE_RETRIES_S, None):
            try:
                self._code[fn] = await self._get_code(fn)
                break
            except Exception as exc:
                if pause_s is not None and not isinstance(exc, LookupError):
                    await asyncio.sleep(pause_s)
                    continue
                cause = Cause.FAULT if isinstance(exc, LookupError) else Cause.RETURNED
                leases = {held.job.lease_no for held in (*self._plain, *self._coroutines) if held.job.fn == fn}
                self._drop_waiting(leases, cause, f"the code of its function {fn} could not be had: {exc}")
                break
        del self._fetches[fn]
        self._pump()

    def _put_back(self, taken: Sequence[Held]) -> None:
        """What hands had ahead goes before what waits: it is older."""
        for held in reversed(taken):
            (self._coroutines if held.job.is_async else self._plain).appendleft(held)

    def _hand_back(self, text: str) -> None:
        self._drop_waiting({held.job.lease_no for held in (*self._plain, *self._coroutines)}, Cause.RETURNED, text)

    def _drop_waiting(self, lease_nos: set[int], cause: Cause, text: str) -> None:
        if not lease_nos:
            return
        now = time.time()
        payload = msgpack.packb([b"", text]) if cause is Cause.FAULT else b""
        for queue in (self._plain, self._coroutines):
            dropped = [held.job for held in queue if held.job.lease_no in lease_nos]
            if not dropped:
                continue
            kept = [held for held in queue if held.job.lease_no not in lease_nos]
            queue.clear()
            queue.extend(kept)
            for job in dropped:
                self._report(Report(job.lease_no, job.task_id, cause, False, now, now, payload, text=text))
        self._changed.set()

    def _pump(self) -> None:
        """Gives the hands what they can take; called after everything that may have made room or work."""
        if self._is_stopped:
            return
        if not self._is_evicting:
            if self._plain or self._coroutines:
                self._feed()
            if self._take_from_busy():
                self._feed()
        self._set_timers()

    def _feed(self) -> None:
        share = -(-len(self._plain) // len(self._hands))
        first = self._hands[0]
        hands_by_need = self._hands
        if len(hands_by_need) > 1:  # the first last: only it can run coroutines
            hands_by_need = sorted(hands_by_need, key=lambda hands: (len(hands.assigned), hands is first))
        for hands in hands_by_need:
            queue = self._plain
            if hands is first and self._coroutines:
                coroutines_first = not self._plain or self._coroutines[0].order < self._plain[0].order
                if hands.assigned and hands.runs_async != coroutines_first:
                    continue  # it runs dry, to turn to the other kind, which is older
                queue = self._coroutines if coroutines_first else self._plain
            elif hands is first and hands.assigned and hands.runs_async:
                continue
            room = self._find_room(hands, share, coroutines=queue is self._coroutines)
            if room > 0:
                self._give_from(queue, hands, room)

    def _find_room(self, hands: Hands, share: int, *, coroutines: bool) -> int:
        """How many more jobs these hands get now."""
        if not hands.is_ready or hands.is_ending:
            return 0
        room = self._spec.concurrency - len(hands.assigned) if coroutines else share
        if not coroutines and hands.assigned:
            if len(hands.assigned) >= AHEAD_MAX // 2:
                return 0
            if any(time.monotonic() - started.monotonic_s > YOUNG_S for started in hands.starts.values()):
                return 0
        if self._spec.recycle_after is not None:
            room = min(room, self._spec.recycle_after - hands.given)
        return min(room, AHEAD_MAX - len(hands.assigned))

    def _give_from(self, queue: deque[Held], hands: Hands, room: int) -> None:
        if len(hands.known_functions) > FUNCTIONS_MAX and not hands.assigned:
            hands.forget_functions()
        held: list[Held] = []
        code: dict[str, bytes] = {}
        size_bytes = 0
        while queue and len(held) < room:
            job = queue[0].job
            if job.fn not in self._code:
                break  # on its way; what is behind waits, to be started in order
            size_bytes += len(job.args)
            if held and size_bytes > AHEAD_MAX_BYTES:
                break
            if job.fn not in hands.known_functions:
                code[job.fn] = self._code[job.fn]
            held.append(queue.popleft())
        if held:
            hands.give(held, code)

    def _take_from_busy(self) -> bool:
        """Whether idle hands can take over what others were given ahead; if so it waits in the queue now."""
        if len(self._hands) == 1 or self._plain:
            return False
        if not any(hands.is_ready and not hands.is_ending and not hands.assigned for hands in self._hands):
            return False
        busiest = max(self._hands, key=lambda hands: 0 if hands.runs_async else len(hands.assigned))
        if busiest.runs_async or len(busiest.assigned) < 2:
            return False
        taken = busiest.withdraw()
        self._put_back(taken)
        return bool(taken)

    # --- time and memory

    def _end_running(self, hands: Hands, lease_no: int, verdict: Verdict) -> None:
        self._put_back(hands.withdraw())
        if lease_no not in hands.assigned:
            return  # its hands had not come to it yet: it waits again
        hands.verdicts[lease_no] = verdict
        if not hands.runs_async:
            hands.kill()
            return
        hands.cancel_coroutine(lease_no)

        def make_sure() -> None:
            if lease_no in hands.assigned and not hands.is_gone:
                self._kill(hands)

        asyncio.get_running_loop().call_later(COROUTINE_GRACE_S, make_sure)

    def _kill(self, hands: Hands) -> None:
        self._put_back(hands.withdraw())
        hands.kill()

    def _set_timers(self) -> None:
        loop = asyncio.get_running_loop()
        at, runs = float("inf"), False
        for hands in self._hands:
            for lease_no, started in hands.starts.items():
                runs = True
                timeout_s = hands.assigned[lease_no].job.timeout_s
                if timeout_s is not None and lease_no not in hands.verdicts:
                    at = min(at, started.monotonic_s + timeout_s)
        if at != self._timeout_at:
            if self._timeout_timer is not None:
                self._timeout_timer.cancel()
            self._timeout_at = at
            wait_s = at - time.monotonic()
            self._timeout_timer = None if at == float("inf") else loop.call_later(wait_s, self._on_timeout)
        if runs and self._memory_timer is None and self._spec.isolation == "process":
            self._memory_timer = loop.call_later(memory.watch_pause_s(0, None), self._on_memory)

    def _on_timeout(self) -> None:
        self._timeout_at = float("inf")
        now = time.monotonic()
        for hands in self._all():
            for lease_no, started in list(hands.starts.items()):
                timeout_s = hands.assigned[lease_no].job.timeout_s
                if timeout_s is not None and lease_no not in hands.verdicts and now >= started.monotonic_s + timeout_s:
                    text = f"it ran longer than its timeout of {timeout_s:g} s"
                    self._end_running(hands, lease_no, Verdict(Cause.TIMEOUT, text))
        self._pump()

    def _on_memory(self) -> None:
        """Looks at the memory of hands that run something; ends those that hold too much."""
        self._memory_timer = None
        busy = [hands for hands in self._all() if hands.starts and not hands.is_gone]
        if not busy:
            return
        now = time.monotonic()
        if now - self._trees_at > 1.0 or any(hands not in self._trees for hands in busy):
            # The walk over all processes is dear; what user code starts is seen within a second.
            parents = processes.find_parents()
            self._trees_at = now
            self._trees = {hands: hands.find_pids(parents) for hands in busy}
        held_bytes = [0 if hands.is_ending else memory.tree_rss_bytes(self._trees[hands]) for hands in busy]
        self._kernel_kills.append(memory.find_kernel_kills())
        found = memory.find_overgrown(held_bytes, limit_bytes=self._memory_bytes, node=memory.find_node_memory())
        if found is not None:
            hands, why = busy[found[0]], found[1]
            self._fates[hands] = Verdict(Cause.OOM, f"its hands were ended: {why}")
            self._on_log(f"hands of {self._unit} are ended for memory: {why}")
            self._kill(hands)
        pause_s = memory.watch_pause_s(sum(held_bytes), self._memory_bytes)
        self._memory_timer = asyncio.get_running_loop().call_later(pause_s, self._on_memory)
