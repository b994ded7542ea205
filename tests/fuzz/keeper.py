"""A whole keeper without Ray: its book, its commits and its calls run, and what would reach a unit goes nowhere."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import ray

from tests.core.book_desk import cards
from wolfpack.core.book.journal import Order
from wolfpack.core.wire import Claim, pack
from wolfpack.den import keeping
from wolfpack.den.keeper import Keeper
from wolfpack.den.ledger_check import check
from wolfpack.model import Card, DenSpec, Nature, PackSpec
from wolfpack.sim.checks import check_book

SPEC = DenSpec(
    den="fuzz",
    ledger="memory://",
    cards=(*cards(3), Card(unit="silver-0", kind="silver", nature=Nature.WEREWOLF, day_job="a:B")),
    packs=(PackSpec(name="p", most=4), PackSpec(name="q", most=2, queue_max=50)),
)


class Died(Exception):
    """The keeper ended its process."""


class BareKeeper(Keeper):
    """Reaches nobody: no actor is made, called or held."""

    def __init__(self, spec: DenSpec) -> None:
        super().__init__(spec, create=True, detached=True)

    def _carry_out(self, order: Order) -> None:
        pass

    def _hold(self, unit: str, boot: int) -> None:
        pass

    async def _hold_tether(self, name: str) -> None:
        pass

    def _spawn(self, coroutine: Any) -> None:
        if getattr(coroutine, "__name__", "") == "_end":  # the den would end
            coroutine.close()
            return
        super()._spawn(coroutine)

    async def grow_up(self) -> None:
        """All units awake in the pack `p`, which `grey-0` leads."""
        book = await self._ready()
        for unit in list(book.units.values()):
            book.desk.wake(self._now(), unit, "p", "a test")
            await self.hello(unit.id, unit.boot, 1, "node")
        await self.claim(pack(Claim("p", 0, "grey-0", book.units["grey-0"].boot, 0)))

    async def is_well(self) -> None:
        """Every clock is judged without an error, and a commit gets through."""
        self._book.tick(self._now())
        self._book.sweep()
        await asyncio.wait_for(self._durable(), 10.0)
        check_book(self._book)
        stats = await self.stats()
        assert stats["conservation"], stats


@contextmanager
def no_ray() -> Iterator[None]:
    """Whatever would reach for Ray finds nothing, and whatever would end this process raises `Died`."""

    def die(code: int) -> None:
        raise Died(f"the keeper ended its process with {code}")

    context = SimpleNamespace(was_current_actor_reconstructed=False, get_node_id=lambda: "node")
    with patch.object(ray, "get_runtime_context", lambda: context), patch.object(keeping.os, "_exit", die):
        yield


class Den:
    """A keeper in a loop of its own, for callers that are none; each second one has its ledger in a file."""

    def __init__(self, *, in_files: bool = True) -> None:
        self._in_files = in_files
        self._folder = tempfile.TemporaryDirectory(prefix="wolfpack-fuzz-")
        self._births = 0
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _loop, _context: None)
        self.keeper: BareKeeper | None = None

    def run(self, coroutine: Any) -> Any:
        with no_ray():
            return self._loop.run_until_complete(coroutine)

    async def _open(self) -> BareKeeper:
        self._births += 1
        url = f"sqlite:///{self._folder.name}/{self._births}.db" if self._in_files and self._births % 2 else "memory://"
        keeper = BareKeeper(replace(SPEC, ledger=url))
        await asyncio.wait_for(keeper._is_open.wait(), 10.0)
        await keeper.grow_up()
        return keeper

    def fresh(self) -> BareKeeper:
        self.close()
        self.keeper = self.run(self._open())
        return self.keeper

    def close(self) -> None:
        keeper, self.keeper = self.keeper, None
        if keeper is not None:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            with no_ray():
                self._loop.run_until_complete(asyncio.sleep(0))
            if keeper._ledger is not None:
                keeper._disk.submit(keeper._ledger.close)
            keeper._disk.shutdown()
            keeper._handles._threads.shutdown()
            path = keeper._spec.ledger.removeprefix("sqlite:///")
            if path != keeper._spec.ledger:  # whatever was said to it, the next keeper can go on
                assert check(path) == []

    def end(self) -> None:
        self.close()
        self._loop.close()
        self._folder.cleanup()
