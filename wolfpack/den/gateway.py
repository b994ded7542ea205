"""A client's way to its den: every Ray call that a driver makes stands here.

`Gateway` finds or makes the keeper, holds the driver's tether, and calls the keeper with patience: a silent keeper is
normal for some three seconds (Ray restarts it), so a call is tried again until its time is up. Submits and other
changes carry the client's own numbers, so trying again never does a thing twice.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable
from typing import Any

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError, RayTaskError

from wolfpack.den.keeper import Keeper, Tether
from wolfpack.den.names import KEEPER, blob_folder, keeper_options, unit_name
from wolfpack.den.ray_host import end_ray, ensure_ray
from wolfpack.errors import DenClosed, DenUnreachable, LedgerError, LedgerUnavailable, WolfPackError
from wolfpack.model import DenSpec

log = logging.getLogger("wolfpack.den")

AGAIN_S = 0.1
LOOK_UP_S = 0.25


class Gateway:
    """One driver's connection to one den.

    Args:
        spec: the den.
        address: of a Ray cluster; None: RAY_ADDRESS, else a Ray of our own.
        detached: the den stays when this driver goes.
        join_only: never make a den, only join a living one.

    Raises:
        RayTrouble, LedgerError, DenUnreachable: it could not be opened; nothing stays behind.
    """

    def __init__(
        self, spec: DenSpec, *, client: str, address: str | None = None, detached: bool = False, join_only: bool = False
    ) -> None:
        self.spec = spec
        self.client = client
        self.blobs = blob_folder(spec)
        self._owns_ray = ensure_ray(spec, address)
        self._tether: Any = None
        self._tether_name = f"tether-{client}"
        self.is_closed = False
        made = False
        try:
            try:
                self._keeper = ray.get_actor(KEEPER, namespace=spec.den)
            except ValueError:
                if join_only:
                    raise DenUnreachable(
                        f"No den named {spec.den!r} is awake here. Start one with `wolfpack up`, or `wolfpack run`."
                    ) from None
                made = True
                self._keeper = self._make_keeper(detached)
            self.status = self._await_open(made)
            if not detached:
                self.hold_tether()
        except BaseException:
            if made:
                with contextlib.suppress(Exception):
                    ray.kill(self._keeper, no_restart=True)
            self._end_ray()
            raise

    def _make_keeper(self, detached: bool) -> Any:
        options = keeper_options(self.spec.den)
        for attempt in range(20):
            try:
                return ray.remote(Keeper).options(**options).remote(self.spec, create=True, detached=detached)
            except (ActorDiedError, ValueError):  # a name that was freed a moment ago
                if attempt == 19:
                    raise
                time.sleep(AGAIN_S)
        raise AssertionError

    def _await_open(self, made: bool) -> dict[str, Any]:
        """Waits until the keeper can use its ledger.

        Raises:
            LedgerError: what keeps the ledger of a den we wanted to make closed.
            DenUnreachable: the keeper did not answer.
        """
        end = time.monotonic() + 60.0
        last: Exception | None = None
        while time.monotonic() < end:
            try:
                status: dict[str, Any] = ray.get(self._keeper.status.remote(), timeout=20.0)
                return status
            except LedgerUnavailable as exc:
                last = exc
            except LedgerError as exc:
                if made or time.monotonic() > end - 50.0:
                    raise _plain(exc) from None
                last = exc
            except (RayActorError, GetTimeoutError) as exc:
                last = exc
            time.sleep(AGAIN_S)
        raise DenUnreachable(f"The keeper of den {self.spec.den!r} does not answer: {last}")

    @property
    def address(self) -> str:
        return str(ray.get_runtime_context().gcs_address)

    def hold_tether(self) -> None:
        """Shows the den that this driver lives; again after a keeper's restart, or when the tether was lost."""
        if self._tether is None:
            options = {
                "name": self._tether_name, "namespace": self.spec.den, "num_cpus": 0, "max_concurrency": 100,
                "get_if_exists": True, "max_restarts": -1,
            }  # fmt: skip
            self._tether = ray.remote(Tether).options(**options).remote()
            self._await_tether()
        self.call("hold_tether", self._tether_name)

    def _await_tether(self) -> None:
        """Waits until the tether lives. A call to it may be lost on the way; then another one is sent.

        Raises:
            DenUnreachable: it did not answer.
        """
        end = time.monotonic() + 60.0
        while True:
            try:
                ray.get(self._tether.lifeline.remote(0.0), timeout=max(0.0, end - time.monotonic()))
                return
            except (RayActorError, GetTimeoutError) as exc:
                if time.monotonic() > end or isinstance(exc, ActorDiedError):
                    self._tether = None
                    raise DenUnreachable(f"The tether of this driver could not be started: {exc}") from exc
                time.sleep(AGAIN_S)

    def call(self, method: str, *args: Any, patience_s: float = 30.0, **kwargs: Any) -> Any:
        """Calls the keeper and waits for its answer, again and again while it restarts.

        Raises:
            DenUnreachable: no answer within `patience_s`.
            DenClosed: there is no keeper any more.
            WolfPackError: what the keeper raised.
        """
        end = time.monotonic() + patience_s
        last: Exception | None = None
        while not self.is_closed:
            left_s = end - time.monotonic()
            if left_s <= 0:
                raise DenUnreachable(f"The keeper did not answer {method} within {patience_s:g} s: {last}")
            try:
                return self._await(getattr(self._keeper, method).remote(*args, **kwargs), end)
            except ActorDiedError as exc:
                self.is_closed = True
                raise DenClosed(f"The den {self.spec.den!r} was closed.") from exc
            except (RayActorError, GetTimeoutError, LedgerUnavailable) as exc:
                if not isinstance(last, LedgerUnavailable) or isinstance(exc, LedgerUnavailable):
                    last = exc  # the reason that the keeper gave says more than that it is silent now
                time.sleep(AGAIN_S)
            except RayTaskError as exc:
                raise _plain(exc) from None
        raise DenClosed(f"The den {self.spec.den!r} was closed.")

    def ask_units(self, units: Iterable[tuple[str, int]], method: str, patience_s: float) -> dict[str, Any]:
        """Calls units, all at once; who did not answer in time (it is frozen, or gone) is missing."""
        calls: dict[Any, str] = {}
        for unit, boot in units:
            with contextlib.suppress(ValueError):  # it ended meanwhile
                handle = ray.get_actor(unit_name(unit, boot), namespace=self.spec.den)
                calls[getattr(handle, method).remote()] = unit
        if not calls:
            return {}
        found: dict[str, Any] = {}
        for answer in ray.wait(list(calls), num_returns=len(calls), timeout=patience_s)[0]:
            with contextlib.suppress(RayActorError, RayTaskError):
                found[calls[answer]] = ray.get(answer)
        return found

    def _await(self, answer: Any, end: float) -> Any:
        """The answer, when it is there. Looks up now and then: who leaves the den does not wait for a parked call."""
        while True:
            try:
                return ray.get(answer, timeout=max(0.0, min(LOOK_UP_S, end - time.monotonic())))
            except GetTimeoutError:
                if self.is_closed or time.monotonic() >= end:
                    raise

    def leave_den(self, reason: str) -> None:
        """Lets go of the tether: the den ends if it was the last, or if it runs on a Ray of our own."""
        if self.is_closed:
            return
        if self._owns_ray:
            self.end_den(reason)
            return
        try:
            if self.call("let_go", self._tether_name, reason, patience_s=10.0):
                self._await_end()
        except WolfPackError:
            log.warning("The den %r could not be told that this driver leaves.", self.spec.den, exc_info=True)

    def end_den(self, reason: str) -> None:
        """Ends the den and waits until its keeper is gone, at most some seconds."""
        if not self.is_closed:
            with contextlib.suppress(WolfPackError):
                self.call("close", reason, patience_s=10.0)
            self._await_end()
        self.is_closed = True

    def _await_end(self) -> None:
        end = time.monotonic() + 10.0
        while time.monotonic() < end:
            try:
                ray.get(self._keeper.status.remote(), timeout=1.0)
            except ActorDiedError:
                return
            except (RayActorError, GetTimeoutError, RayTaskError, WolfPackError):
                pass
            time.sleep(0.02)
        with contextlib.suppress(Exception):
            ray.kill(self._keeper, no_restart=True)

    def leave(self) -> None:
        """Lets go of the tether and of Ray, if we started it."""
        self.is_closed = True
        if self._tether is not None:
            with contextlib.suppress(Exception):
                ray.kill(self._tether, no_restart=True)
        self._end_ray()

    def _end_ray(self) -> None:
        if self._owns_ray:
            end_ray()


def _plain(exc: Exception) -> Exception:
    """The error that the keeper raised, without Ray's own around it."""
    cause = getattr(exc, "cause", None)
    return cause if isinstance(cause, WolfPackError) else exc
