"""What a monitoring unit does: a day job that samples its machine, and small tasks that probe something once.

`Watch` is the day job of a werewolf: `step` takes one sample and says when it wants the next, `checkpoint` hands over
all it knows as plain data, `restore` goes on from there, in another process or after a crash. The history is bounded,
so a checkpoint stays small however long the unit lives.
"""

from __future__ import annotations

import os
import shutil
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Mapping
from typing import Any

Sample = dict[str, Any]


class Watch:
    """Samples disk, memory and load of the machine it runs on.

    Args:
        every_s: seconds between two samples.
        keep: so many samples are kept, the newest ones; each checkpoint carries them all.
        path: the disk that holds this path is watched.
    """

    def __init__(self, every_s: float = 1.0, keep: int = 60, path: str = "/") -> None:
        self.every_s = every_s
        self.path = path
        self.number = 0  # of the last sample ever taken, over all lives
        self.history: deque[Sample] = deque(maxlen=keep)

    def step(self) -> float:
        """Takes one sample and returns the seconds until the next is due."""
        self.number += 1
        self.history.append({"number": self.number, "at": time.time(), **sample(self.path)})
        return self.every_s

    def checkpoint(self) -> dict[str, Any]:
        """All it knows, as plain data."""
        return {"number": self.number, "history": list(self.history)}

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Goes on from a checkpoint; without one it starts afresh."""
        state = state or {}
        self.history.clear()
        self.history.extend(state.get("history", ()))
        self.number = state.get("number", 0)


def sample(path: str = "/") -> Sample:
    """Disk, memory and load of this machine now; what the system does not tell is None."""
    disk = disk_free(path)
    memory = memory_free()
    return {
        "disk_free_bytes": disk["free_bytes"],
        "disk_total_bytes": disk["total_bytes"],
        "memory_free_bytes": memory["free_bytes"],
        "memory_total_bytes": memory["total_bytes"],
        "load_1min": load_1min(),
    }


def disk_free(path: str = "/") -> dict[str, int]:
    """Free and total bytes of the disk that holds `path`.

    Raises:
        FileNotFoundError: there is no such path.
    """
    usage = shutil.disk_usage(path)
    return {"free_bytes": usage.free, "total_bytes": usage.total}


def memory_free(meminfo: str = "/proc/meminfo") -> dict[str, int | None]:
    """Memory that programs can still get, and all there is, in bytes.

    From the kernel's `MemAvailable` where there is /proc; elsewhere from sysconf, which may know only the total.
    """
    try:
        with open(meminfo, encoding="ascii") as file:
            kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in file)}
        return {"free_bytes": kib["MemAvailable"] * 1024, "total_bytes": kib["MemTotal"] * 1024}
    except (OSError, KeyError, ValueError, IndexError):
        return {"free_bytes": _pages("SC_AVPHYS_PAGES"), "total_bytes": _pages("SC_PHYS_PAGES")}


def load_1min() -> float | None:
    """Processes that ran or wanted to, averaged over the last minute; None where the system does not count them."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None


def probe_http(url: str, timeout_s: float = 5.0) -> dict[str, Any]:
    """Asks one web address: `status` (also 4xx and 5xx are answers), `seconds` to the end of the body, its `bytes`.

    Raises:
        ValueError: the address is neither http nor https.
        OSError: no answer: name unknown, refused, or not within `timeout_s`. The pack's retry policy decides what then.
    """
    if not url.lower().startswith(("http://", "https://")):
        raise ValueError(f"only http and https addresses can be probed, not {url!r}")
    began = time.monotonic()
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            status, size_bytes = answer.status, len(answer.read())
    except urllib.error.HTTPError as exc:
        with exc:
            status, size_bytes = exc.code, len(exc.read())
    return {"url": url, "status": status, "seconds": round(time.monotonic() - began, 4), "bytes": size_bytes}


def _pages(name: str) -> int | None:
    try:
        pages, page_bytes = os.sysconf(name), os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
    return pages * page_bytes if pages >= 0 else None
