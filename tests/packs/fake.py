"""A den of threads with the public face of a real one: what a job or an example sees, and nothing behind it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import wolfpack


class FakeDen:
    """Keeps events, units and finished tasks by key; tests change `units_now` and call `publish`."""

    def __init__(self, pack: str = "computing", threads: int = 4) -> None:
        self.recorded: list[wolfpack.Recorded] = []
        self.units_now: list[wolfpack.UnitRecord] = []
        self.by_key: dict[str, Future[Any]] = {}
        self.graphed: list[str] = []
        self.pool = ThreadPoolExecutor(threads)
        self.name = pack
        self.term = 0
        self.alpha: str | None = None
        self.lock = threading.Lock()

    def __enter__(self) -> FakeDen:
        return self

    def __exit__(self, *exc: object) -> None:
        self.pool.shutdown(cancel_futures=True)

    def pack(self, name: str | None = None) -> FakePack:
        return FakePack(self)

    def publish(self, event: Any, at: float | None = None) -> None:
        number = len(self.recorded) + 1
        self.recorded.append(wolfpack.Recorded(number=number, at=at or time.time(), producer="test", event=event))

    def crown(self, unit: str) -> None:
        self.term += 1
        self.publish(
            wolfpack.AlphaCrowned(
                pack=self.name, term=self.term, unit=unit, boot=1, previous=self.alpha, reason="the highest rank"
            )
        )
        self.alpha = unit

    def events(self, since: int = 0) -> list[wolfpack.Recorded]:
        return [item for item in self.recorded if item.number > since][:50]

    def units(self) -> list[wolfpack.UnitRecord]:
        return list(self.units_now)

    def stats(self) -> dict[str, Any]:
        pack = {"term": self.term, "alpha": self.alpha, "queued": 0, "leased": 0}
        return {"packs": {self.name: pack}, "conservation": True}

    def graph(self, path: str) -> None:
        Path(path).write_text("<svg/>")
        self.graphed.append(path)


class FakePack:
    def __init__(self, den: FakeDen, options: dict[str, Any] | None = None) -> None:
        self.den = den
        self.name = den.name
        self._options = options or {}

    def options(self, **options: Any) -> FakePack:
        return FakePack(self.den, {**self._options, **options})

    def stats(self) -> dict[str, Any]:
        return self.den.stats()["packs"][self.name]

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        key = self._options.get("key")
        if key in self.den.by_key:
            return self.den.by_key[key]
        future = self.den.pool.submit(fn, *args, **kwargs)
        if key is not None:
            self.den.by_key[key] = future
        return future


def unit(
    name: str,
    *,
    pid: int | None = None,
    node: str | None = None,
    pack: str = "computing",
    role: str = "member",
    boot: int = 1,
) -> wolfpack.UnitRecord:
    return wolfpack.UnitRecord(
        id=name,
        kind=name.rpartition("-")[0],
        pid=pid,
        node=node,
        nature=wolfpack.Nature.WOLF,
        readiness=wolfpack.Readiness.AWAKE,
        pack=pack,
        role=wolfpack.Role(role),
        boot=boot,
        leases=0,
    )
