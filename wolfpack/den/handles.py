"""Actor handles by unit and boot. Ray's look-ups and creations block, so they run on threads of their own."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray.exceptions import ActorDiedError

from wolfpack.den.names import KEEPER, unit_name


class PeerGone(Exception):
    """The process of a unit is dead, in Ray's eyes."""


class KeeperGone(Exception):
    """The keeper is dead for good: its den ended."""


class Handles:
    """Finds actors of one den and remembers them."""

    def __init__(self, den: str, threads: int = 2) -> None:
        self._den = den
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="ray-lookup")
        self._known: dict[tuple[str, int], Any] = {}
        self._keeper: Any = None

    async def run(self, function: Any, *args: Any) -> Any:
        """Runs a blocking Ray call on our threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    async def unit(self, unit: str, boot: int) -> Any:
        """The handle of a living unit.

        Raises:
            PeerGone: no actor has this name any more.
        """
        handle = self._known.get((unit, boot))
        if handle is None:
            try:
                handle = await self.run(lambda: ray.get_actor(unit_name(unit, boot), namespace=self._den))
            except ValueError as exc:
                raise PeerGone(f"{unit} (boot {boot})") from exc
            for key in [key for key in self._known if key[0] == unit and key[1] < boot]:
                del self._known[key]
            self._known[unit, boot] = handle
        return handle

    def find(self, unit: str, boot: int) -> Any:
        """The handle, if it is known already."""
        return self._known.get((unit, boot))

    def remember(self, unit: str, boot: int, handle: Any) -> None:
        self._known[unit, boot] = handle

    def forget(self, unit: str, boot: int) -> None:
        self._known.pop((unit, boot), None)

    async def call(self, unit: str, boot: int, method: str, *args: Any) -> Any:
        """Calls a unit and waits for its answer.

        Raises:
            PeerGone: its process is dead.
            RayActorError: it cannot be reached now; that is no sign of death.
        """
        handle = await self.unit(unit, boot)
        try:
            return await getattr(handle, method).remote(*args)
        except ActorDiedError as exc:
            self.forget(unit, boot)
            raise PeerGone(f"{unit} (boot {boot})") from exc

    async def ask_keeper(self, method: str, *args: Any, timeout_s: float) -> Any:
        """Calls the keeper once. Its handle stays the same over its restarts.

        Raises:
            KeeperGone: it will not come back.
            RayActorError, TimeoutError: no answer now; it may have taken the call.
        """
        if self._keeper is None:
            try:
                self._keeper = await self.run(lambda: ray.get_actor(KEEPER, namespace=self._den))
            except ValueError as exc:
                raise KeeperGone(f"den {self._den!r} has no keeper") from exc
        try:
            return await asyncio.wait_for(getattr(self._keeper, method).remote(*args), timeout_s)
        except ActorDiedError as exc:
            raise KeeperGone(str(exc)) from exc
