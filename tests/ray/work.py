"""Tasks that the Ray tests submit."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import wolfpack


def nothing() -> None:
    pass


def square(x: int) -> int:
    return x * x


def nap(seconds: float, value: Any = None) -> Any:
    time.sleep(seconds)
    return value


async def anap(seconds: float, value: Any = None) -> Any:
    await asyncio.sleep(seconds)
    return value


def mark(folder: str, name: str, seconds: float = 0.0) -> str:
    """Leaves one line in a file of its own name for each start: how often user code really ran."""
    with open(Path(folder) / name, "a") as file:
        file.write(f"{os.getpid()} {wolfpack.current().lease_no}\n")
    time.sleep(seconds)
    return name


def starts(folder: Any, name: str) -> int:
    path = Path(folder) / name
    return len(path.read_text().splitlines()) if path.exists() else 0


class Trouble(Exception):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text, code)
        self.code = code


def fail(text: str = "no luck", code: int = 7) -> None:
    raise Trouble(text, code)


class Stubborn(Exception):
    """Cannot be pickled: it holds a lock."""

    def __init__(self) -> None:
        import threading

        super().__init__("stubborn")
        self.lock = threading.Lock()


def fail_stubbornly() -> None:
    raise Stubborn


def leave(code: int = 0) -> None:
    sys.exit(code)


def die(sign: int = signal.SIGKILL) -> None:
    os.kill(os.getpid(), sign)


def die_once(folder: str) -> int:
    if mark(folder, "die_once") and starts(folder, "die_once") < 2:
        die()
    return starts(folder, "die_once")


def fork_and_stay(seconds: float = 60.0) -> int:
    return subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds})"]).pid


def eat(bytes_: int) -> int:
    hoard = []
    while sum(map(len, hoard)) < bytes_:
        hoard.append(bytearray(os.urandom(1 << 20)) * 8)
        time.sleep(0.005)
    time.sleep(30)
    return len(hoard)


def shout(lines: int) -> int:
    for number in range(lines):
        print("x" * 200, number)
    return lines


def unpicklable() -> Any:
    return (n for n in range(3))


def hold_the_gil(seconds: float) -> None:
    """C code that never lets go of the interpreter."""
    import ctypes

    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def where() -> tuple[str, int]:
    return wolfpack.current().unit, os.getpid()


def needed() -> str:
    return wolfpack.current().unit


def where_set_up() -> dict[str, bool]:
    return {"made": True}


def state() -> Any:
    return wolfpack.current().state


def meet(folder: str, name: str, others: int) -> bool:
    """Waits until so many tasks are here at once, at most for 20 s."""
    (Path(folder) / name).touch()
    end = time.monotonic() + 20.0
    while time.monotonic() < end:
        if len(list(Path(folder).iterdir())) >= others:
            return True
        time.sleep(0.01)
    return False


def hide_a_process() -> int:
    """Forks twice, in a session of its own and with nothing of our environment: a daemon of the old kind."""
    code = (
        "import os, sys, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "print(os.getpid(), flush=True)\n"
        "os.dup2(os.open(os.devnull, os.O_WRONLY), 1)\n"
        "time.sleep(300)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, env={}, check=True)
    return int(done.stdout)


def go_on_for(seconds: float, every_s: float) -> str:
    """Works and says so."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(every_s)
        wolfpack.current().progress()
    return "got there"
