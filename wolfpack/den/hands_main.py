"""The hands: the child process in which user code runs. `python -m wolfpack.den.hands_main`, started by `hands.py`.

It imports nothing heavy, so that it is up in tens of milliseconds. Three descriptors tie it to its unit:

- *in*: frames from the unit: `config` first, then `code`, `jobs`, `stop`, `cancel`, `forget`
  (of a day job: `leave`, `stay`).
- *permits*: eight bytes a job, its number: the job may start. The unit keeps a hand on this pipe and can read permits
  back. A job whose permit it got back is not started, one whose permit is gone was started: the pipe decides, at once
  and exactly, also while user code runs. Jobs without a permit are passed over when the next permit names a later one.
- *out*: frames to the unit. Each result is written before the next task starts.

Plain functions run one after the other in the main thread, where `setup` ran too. `async def` functions run side by
side on one event loop in the same thread, as many as the unit gives permits for. What user code prints goes to the
unit's own standard output and error. A process that user code forks has none of the descriptors, and ends when it
comes back here.
"""

from __future__ import annotations

import importlib
import mmap
import os
import pickle
import select
import signal
import struct
import sys
import threading
import time
from collections import deque, namedtuple
from typing import TYPE_CHECKING, Any

from wolfpack import context as task_here
from wolfpack.den import guard
from wolfpack.den.frames import Decoder, encode
from wolfpack.den.runner import Runner, describe_fault
from wolfpack.errors import CallerError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from wolfpack.model import Job
else:  # the module of all records takes a third of the time to start; a test keeps the fields the same
    Job = namedtuple("Job", "lease_no task_id fn args blob key attempt timeout_s is_async term")

READ_BYTES = 1 << 17
PERMIT_BYTES = 8
GATE_S = 0.01  # a closed gate is looked at again after so long
PROGRESS_EVERY_S = 0.5  # a task that says all the time that it got further is heard so often
_UNTIL = struct.Struct("d")


class NoMoreWork(Exception):
    """The unit closed its end: finish in order."""


class Channel:
    """The descriptors, and what came in by them."""

    def __init__(self, in_fd: int, out_fd: int, permit_fd: int, gate_fd: int) -> None:
        self.in_fd, self.out_fd, self.permit_fd = in_fd, out_fd, permit_fd
        self._gate = mmap.mmap(gate_fd, mmap.PAGESIZE, prot=mmap.PROT_READ)
        os.close(gate_fd)
        self.is_copy = False  # this process was forked off the hands by user code
        self._decoder = Decoder()
        self._writing = threading.Lock()
        self._in_poll = select.poll()
        self._in_poll.register(in_fd, select.POLLIN)
        self._permit_poll = select.poll()
        self._permit_poll.register(permit_fd, select.POLLIN)
        os.register_at_fork(after_in_child=self._cut_off)

    def _cut_off(self) -> None:
        if self.is_copy:
            return  # a copy of a copy: the numbers may be those of its own files by now
        self.is_copy = True
        for fd in (self.in_fd, self.out_fd, self.permit_fd):
            os.close(fd)

    def read(self, *, wait_s: float | None) -> list[list[Any]]:
        """Messages that are there, or come within `wait_s`; None waits for the first bytes."""
        if not self._in_poll.poll(None if wait_s is None else wait_s * 1000):
            return []
        data = os.read(self.in_fd, READ_BYTES)
        if not data:
            raise NoMoreWork
        return self._decoder.feed(data)

    def write(self, message: list[Any]) -> None:
        data = encode(message)
        if self.is_copy:
            os._exit(0)
        with self._writing:  # threads of a task may publish while it returns
            sent = os.write(self.out_fd, data)
            while sent < len(data):
                data = data[sent:]
                sent = os.write(self.out_fd, data)

    def is_open(self) -> bool:
        """Whether the unit's leases are fresh; the unit writes until when, in memory that both see."""
        until: float = _UNTIL.unpack_from(self._gate)[0]
        return time.monotonic() <= until

    def find_permit(self) -> int | None:
        """The number of the next job that may start, if there is a permit now and the gate is open."""
        if not self.is_open():
            return None
        try:
            data = os.read(self.permit_fd, PERMIT_BYTES)
        except BlockingIOError:
            return None
        if not data:
            raise NoMoreWork
        return int.from_bytes(data, "little")

    def get_permit(self) -> int:
        number = self.find_permit()
        while number is None:
            self._permit_poll.poll()
            if not self.is_open():
                time.sleep(GATE_S)
            number = self.find_permit()
        return number


class Hands:
    """Runs what the unit gives, and is the `Link` of the tasks that run."""

    def __init__(self, channel: Channel, config: dict[str, Any]) -> None:
        self.unit: str = config["unit"]
        self.state: Any = None
        self._channel = channel
        self._runner = Runner(blobs=config["blobs"], payload_max_bytes=config["payload_max_bytes"])
        self._jobs: deque[tuple[int, Job]] = deque()
        self._stopping: set[int] = set()
        self._progress_due: dict[int, float] = {}  # by lease: when the next call of `progress()` is passed on
        self._reading = threading.Lock()
        self._coroutines: dict[int, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- the Link of running tasks

    def should_stop(self, lease_no: int) -> bool:
        if lease_no not in self._stopping and not self._channel.is_copy:
            self._read(wait=False)
        return lease_no in self._stopping

    def progress(self, lease_no: int) -> None:
        now = time.monotonic()
        if now >= self._progress_due.get(lease_no, now) and not self._channel.is_copy:
            self._progress_due[lease_no] = now + PROGRESS_EVERY_S
            self._channel.write(["progress", lease_no])

    def publish(self, name: str, fields: str) -> None:
        if self._channel.is_copy:
            raise CallerError("A process that was forked off a task cannot publish; publish in the task itself.")
        self._channel.write(["publish", name, fields])

    # --- the work

    def set_up(self, setup: str) -> None:
        """Runs `module:function` (plain or `async def`) and keeps its value as the state."""
        self.state = load_named(setup)()
        if hasattr(self.state, "__await__"):
            self.state = self._get_loop().run_until_complete(_awaited(self.state))

    def serve(self) -> None:
        """Runs jobs until the unit closes the pipe of permits."""
        job: Job | None = None
        while True:
            job = job or self._take(self._channel.get_permit())
            if job.is_async:
                job = self._get_loop().run_until_complete(self._side_by_side(job))
                continue
            task_here.set_process_task((job, self))
            message = self._runner.run(job)
            task_here.set_process_task(None)
            self._settle(job.lease_no, message)
            job = None

    def _settle(self, lease_no: int, message: list[Any]) -> None:
        self._channel.write(message)
        if self._stopping:
            self._stopping.discard(lease_no)
        if self._progress_due:
            self._progress_due.pop(lease_no, None)

    def _take(self, number: int) -> Job:
        """The job with this number: it is on its way at the latest. Those before it were taken back."""
        while True:
            while self._jobs:
                found, job = self._jobs.popleft()
                if found == number:
                    return job
            self._read(wait=True)

    def _read(self, *, wait: bool) -> None:
        with self._reading:  # `should_stop` may be asked by several threads
            for kind, *rest in self._channel.read(wait_s=None if wait else 0):
                match kind:
                    case "jobs":
                        first, jobs = rest
                        self._jobs.extend((first + n, Job(*job)) for n, job in enumerate(jobs))
                    case "code":
                        self._runner.learn(*rest)
                    case "forget":
                        self._runner.forget()
                    case "stop":
                        self._stopping.add(rest[0])
                    case "cancel":
                        if rest[0] in self._coroutines:
                            self._coroutines[rest[0]].cancel()

    # --- coroutines

    def _get_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            import asyncio  # dear, and only coroutines need it

            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        return self._loop

    async def _side_by_side(self, first: Job) -> Job:
        """Runs coroutines as permits come, until a plain function comes: that is returned."""
        loop = self._get_loop()
        plain: asyncio.Future[Job] = loop.create_future()

        def start(job: Job) -> None:
            self._coroutines[job.lease_no] = loop.create_task(self._run_coroutine(job))

        def on_permit() -> None:
            try:
                while not plain.done():
                    number = self._channel.find_permit()
                    if number is None:
                        if not self._channel.is_open():  # the coroutines that run go on meanwhile
                            loop.remove_reader(self._channel.permit_fd)
                            loop.call_later(GATE_S, listen)
                        return
                    job = self._take(number)
                    if job.is_async:
                        start(job)
                    else:
                        plain.set_result(job)
            except NoMoreWork as end:
                plain.set_exception(end)

        def on_message() -> None:
            try:
                self._read(wait=False)
            except NoMoreWork as end:
                if not plain.done():
                    plain.set_exception(end)

        def listen() -> None:
            if not plain.done():
                loop.add_reader(self._channel.permit_fd, on_permit)

        start(first)
        listen()
        loop.add_reader(self._channel.in_fd, on_message)
        try:
            return await plain
        finally:
            loop.remove_reader(self._channel.permit_fd)
            loop.remove_reader(self._channel.in_fd)

    async def _run_coroutine(self, job: Job) -> None:
        task_here.enter_context(job, self)
        message = await self._runner.run_async(job)
        self._coroutines.pop(job.lease_no, None)
        self._settle(job.lease_no, message)


def live_day(channel: Channel, config: dict[str, Any]) -> None:
    """The day job of a werewolf: step after step, with a checkpoint after each, until the unit lets it leave."""
    import cloudpickle

    try:
        day = load_named(config["path"])()
        if config["state"]:
            day.restore(pickle.loads(config["state"]))
    except BaseException as exc:
        channel.write(["failed", "birth", describe_fault(exc)])
        return
    channel.write(["ready", os.getpid()])
    state: bytes = config["state"]
    next_at = time.monotonic()
    leaving: int | None = None  # the number of the howl that waits for the step to end
    while True:
        pause_s = next_at - time.monotonic()
        # A howl that the unit gave up on and its `stay` are read together, so it cannot stop us.
        for kind, number in channel.read(wait_s=None if leaving is not None else max(0.0, min(pause_s, 3600.0))):
            leaving = number if kind == "leave" else None
            if leaving is not None:
                channel.write(["left", leaving, state])
        if leaving is not None or time.monotonic() < next_at:
            continue
        try:
            next_s = float(day.step() or 0.0)
            state = cloudpickle.dumps(day.checkpoint())
        except BaseException as exc:
            channel.write(["failed", "step", describe_fault(exc)])
            return
        channel.write(["step", next_s, state])
        next_at = time.monotonic() + next_s


async def _awaited(value: Any) -> Any:
    return await value


def load_named(path: str) -> Callable[[], Any]:
    """What `module:name` stands for.

    Raises:
        ImportError, AttributeError: there is no such thing.
    """
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    result: Callable[[], Any] = found
    return result


def main(argv: list[str]) -> None:
    in_fd, out_fd, permit_fd, life_fd, gate_fd, unit_pid = map(int, argv[:6])
    for fd in (in_fd, out_fd, permit_fd, life_fd, gate_fd):
        os.set_inheritable(fd, False)
    guard.split(life_fd, (in_fd, out_fd, permit_fd, gate_fd), unit_pid)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # rather the hands than their unit
    except OSError:
        pass
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the driver decides
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)  # hands may be killed; what they printed must not be lost
    channel = Channel(in_fd, out_fd, permit_fd, gate_fd)
    early: list[list[Any]] = []
    try:
        while not early:
            early = channel.read(wait_s=None)
    except NoMoreWork:
        return
    config: dict[str, Any] = early.pop(0)[1]
    sys.path[:] = config["sys_path"]
    if config["pythonpath"] is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = config["pythonpath"]
    try:
        if config["mode"] == "day":
            live_day(channel, config)
            return
        hands = Hands(channel, config)
        if config["setup"]:
            try:
                hands.set_up(config["setup"])
            except BaseException as exc:
                channel.write(["failed", "setup", describe_fault(exc)])
                return
        channel.write(["ready", os.getpid()])
        hands.serve()
    except (NoMoreWork, BrokenPipeError):
        return


if __name__ == "__main__":
    main(sys.argv[1:])
