"""What the tests run in hands; a module of its own, so that the hands need not import pytest."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from wolfpack.context import current
from wolfpack.errors import Retry

LONG_S = 60.0


@dataclass(frozen=True)
class Began:
    """Tells the test that a task runs."""

    pid: int
    other: int = 0


def say_began(other: int = 0) -> None:
    current().publish(Began(os.getpid(), other))


def nothing() -> None:
    return None


def echo(value: Any) -> Any:
    return value


def nap(seconds: float) -> None:
    time.sleep(seconds)


def pid() -> int:
    return os.getpid()


def hang() -> None:
    say_began()
    time.sleep(LONG_S)


def hang_with_progress() -> None:
    current().progress(1)
    hang()


def until_stopped() -> str:
    say_began()
    while not current().should_stop():
        time.sleep(0.001)
    return "stopped"


def until_told(folder: str) -> None:
    while not Path(folder, "gate").exists():
        time.sleep(0.001)


def until_stopped_in_a_thread() -> str:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(until_stopped()))
    thread.start()
    thread.join()
    return found[0]


def hold_the_interpreter() -> None:
    """Native code that does not give up the interpreter's lock: `PyDLL` calls keep it."""
    say_began()
    ctypes.PyDLL(None).usleep(400_000)


def leave_by_exit() -> NoReturn:
    sys.exit(0)


def interrupt() -> NoReturn:
    raise KeyboardInterrupt


def end_process(code: int) -> NoReturn:
    os._exit(code)


def kill_self(number: int) -> None:
    os.kill(os.getpid(), number)


def kill_guard() -> None:
    say_began()
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(LONG_S)


def write_garbage_into_every_pipe() -> None:
    for fd in [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]:
        try:
            os.write(fd, b"\xff" * 64)
        except OSError:
            continue
    time.sleep(LONG_S)


class Wolfsbane(ValueError):
    def __init__(self, text: str, dose: int) -> None:
        super().__init__(text, dose)
        self.dose = dose


def poison(dose: int) -> NoReturn:
    raise Wolfsbane("do not eat", dose)


class Unloadable(Exception):
    """Pickles, and cannot be loaded again: its constructor wants more than its args."""

    def __init__(self, text: str, more: int) -> None:
        super().__init__(text)
        self.more = more


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def raise_unloadable() -> NoReturn:
    raise Unloadable("one way only", 1)


def raise_with_lock() -> NoReturn:
    raise ValueError("holds a lock", threading.Lock())


def raise_speechless() -> NoReturn:
    raise Speechless


def shout(length: int) -> NoReturn:
    raise ValueError("a" * length)


def ask_again(after_s: float | None) -> NoReturn:
    raise Retry("later", after_s=after_s)


def make_lock() -> Any:
    return threading.Lock()


def make_bytes(size: int) -> bytes:
    return b"x" * size


def who_am_i() -> list[Any]:
    me = current()
    return [me.key, me.lease_no, me.attempts, me.task_id, me.unit, me.state]


async def who_am_i_later() -> list[Any]:
    await asyncio.sleep(0)
    return who_am_i()


def eat_memory(size_bytes: int) -> None:
    say_began()
    kept = bytearray(size_bytes)
    for at in range(0, size_bytes, 4096):
        kept[at] = 1
    time.sleep(LONG_S)


def eat_memory_in_a_child(size_bytes: int) -> None:
    code = f"import time; kept = b'x' * {size_bytes}; time.sleep({LONG_S})"
    child = subprocess.Popen([sys.executable, "-S", "-c", code])
    say_began(child.pid)
    child.wait()


def start_daemon() -> None:
    """Forks twice, the usual way of daemons: the grandchild has a session of its own and no parent of ours."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        daemon = os.fork()
        if daemon == 0:
            time.sleep(LONG_S)
            os._exit(0)
        os.write(write, daemon.to_bytes(4, "big"))
        os._exit(0)
    os.wait()
    say_began(int.from_bytes(os.read(read, 4), "big"))


def start_daemon_and_hang() -> None:
    start_daemon()
    time.sleep(LONG_S)


def daemon_that_writes(path: str) -> None:
    """A copy that opens files with the numbers that our descriptors had, forks again, and writes into them."""
    if os.fork() == 0:
        files = [os.open(os.devnull, os.O_WRONLY) for _ in range(200)]
        if os.fork() == 0:
            for fd in files:
                os.write(fd, b"x")
            Path(path + "-").write_text("dear diary")
            Path(path + "-").rename(path)
        os._exit(0)
    os.wait()


def come_back_twice() -> str:
    return "copy" if os.fork() == 0 else "original"


def print_much() -> int:
    for _ in range(2000):
        print("howl " * 20)
        sys.stderr.write("growl\n")
    return 2000


async def meet(folder: str, name: str, others: list[str]) -> str:
    """Ends only if all the others run at the same time."""
    Path(folder, name).touch()
    while not all(Path(folder, other).exists() for other in others):
        await asyncio.sleep(0.001)
    return name


async def hang_softly() -> None:
    say_began()
    await asyncio.sleep(LONG_S)


async def hang_until_stopped() -> str:
    say_began()
    while not current().should_stop():
        await asyncio.sleep(0.001)
    return "stopped"


async def refuse_to_end() -> None:
    say_began()
    while True:
        try:
            await asyncio.sleep(LONG_S)
        except asyncio.CancelledError:
            continue


async def end_process_softly() -> None:
    os._exit(9)


def set_up() -> dict[str, int]:
    return {"pid": os.getpid()}


async def set_up_later() -> str:
    await asyncio.sleep(0)
    return "made on the loop"


def set_up_badly() -> NoReturn:
    raise OSError("the well is dry")


def set_up_and_die() -> NoReturn:
    os._exit(4)


class Watch:
    """A day job that counts its steps."""

    def __init__(self) -> None:
        self.count = 0

    def step(self) -> float:
        self.count += 1
        return 0.001

    def checkpoint(self) -> int:
        return self.count

    def restore(self, state: int) -> None:
        self.count = state


class GatedWatch(Watch):
    """Its steps say that they began, and end when the gate is open; its state is the folder of both signs."""

    folder = Path()

    def restore(self, state: str) -> None:
        self.folder = Path(state)

    def checkpoint(self) -> str:
        return str(self.folder)

    def step(self) -> float:
        (self.folder / "began").touch()
        while not (self.folder / "gate").exists():
            time.sleep(0.001)
        return super().step()


class RestingWatch(Watch):
    """Rests for long after each step."""

    def step(self) -> float:
        super().step()
        return LONG_S


class FailingWatch(Watch):
    """Every third step fails, before it counts."""

    tries = 0

    def step(self) -> float:
        self.tries += 1
        if self.tries == 3:
            raise OSError("the bell is broken")
        return super().step()


class UnmadeWatch(Watch):
    def __init__(self) -> None:
        raise OSError("no tower")


def thread_name() -> int:
    return threading.get_ident()


def size_of(data):
    return len(data)
