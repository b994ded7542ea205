"""Gives faults: finds a target, proves that it is the den's (`proof.py`), and only then sends the signal to its handle.

A fault that has no target now (nobody leads, a unit is just dying) is not given and asked for again later. A target
that cannot be proven is left alone; if the den still claims it after a moment, that is said once, and others are taken.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wolfpack.chaos.plan import Fault, Kind, choose
from wolfpack.chaos.proof import (
    KEEPER_TITLE,
    UNIT_TITLE,
    Claim,
    Processes,
    find_hands,
    why_not_hands,
    why_not_ours,
)
from wolfpack.model import Readiness, Role, UnitRecord, natural_key

if TYPE_CHECKING:
    from wolfpack.chaos.listen import Listener
    from wolfpack.pack import Den

STILL_CLAIMED_S = 3.0  # a refusal that lasts so long is no death that the den has yet to hear of


class Refused(Exception):
    """This process is not proven to be the den's; the text says why. It was not touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A fault that was given."""

    fault: Fault
    at: float  # wall clock
    target: str
    pid: int
    # The term that ended with it; None: the target did not lead.
    term: int | None = None


class Freezer:
    """Stops processes, and lets each go on after its time; all of them when it is left, whatever the reason."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._frozen: dict[int, threading.Timer] = {}  # by handle
        self._pids: dict[int, int] = {}

    def __enter__(self) -> Freezer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.thaw_all()

    def stop(self, handle: int, pid: int, seconds: float) -> None:
        """Stops a process for so long. Keeps a copy of the handle.

        Raises:
            ProcessLookupError: it has ended.
        """
        kept = os.dup(handle)
        timer = threading.Timer(seconds, self._thaw, (kept,))
        timer.daemon = True
        with self._lock:  # first entered, then stopped: there is no moment in which nobody would thaw it
            self._frozen[kept], self._pids[kept] = timer, pid
        try:
            signal.pidfd_send_signal(kept, signal.SIGSTOP)
        except BaseException:
            self._thaw(kept)
            raise
        timer.start()

    def is_frozen(self, pid: int) -> bool:
        with self._lock:
            return pid in self._pids.values()

    def thaw_all(self) -> None:
        for handle in list(self._frozen):
            self._thaw(handle)

    def _thaw(self, handle: int) -> None:
        with self._lock:
            timer = self._frozen.pop(handle, None)
            self._pids.pop(handle, None)
        if timer is None:
            return
        timer.cancel()
        with contextlib.suppress(ProcessLookupError):  # the den has ended it meanwhile
            signal.pidfd_send_signal(handle, signal.SIGCONT)
        os.close(handle)


class Striker:
    """Gives the faults of one run to the processes of one den.

    Args:
        listener: knows when units woke, and who leads.
        freezer: keeps what is stopped.
        say: shows a sentence to a person.
        tree: where processes are looked up.
    """

    def __init__(
        self, den: Den, listener: Listener, freezer: Freezer, say: Callable[[str], None], tree: Processes | None = None
    ) -> None:
        self._den, self._listener, self._freezer, self._say = den, listener, freezer, say
        self._tree = tree or Processes()
        self._refused: dict[tuple[str, int], float] = {}  # (name, boot) -> when first
        self._said: set[tuple[str, int]] = set()
        self.refusals: list[str] = []

    def strike(self, fault: Fault) -> Strike | None:
        """Gives a fault; None if there is no target now.

        Raises:
            OperatorError: the keeper does not answer.
        """
        if fault.kind is Kind.KEEPER:
            return self._strike_keeper(fault)
        units = [unit for unit in self._den.units() if unit.pid is not None and unit.readiness is Readiness.AWAKE]
        unit = self._pick(fault, sorted(units, key=lambda each: natural_key(each.id)))
        if unit is None:
            return None
        try:
            if fault.kind is Kind.HANDS:
                return self._strike_hands(fault, unit)
            return self._strike_unit(fault, unit)
        except Refused as exc:
            self._note_refusal(unit.id, unit.boot, str(exc))
        except ProcessLookupError:
            pass  # it ended by itself between the proof and the signal
        return None

    def _pick(self, fault: Fault, awake: list[UnitRecord]) -> UnitRecord | None:
        leader = self._listener.leader()
        leads = leader[1:] if leader is not None else None
        alphas = [unit for unit in awake if (unit.id, unit.boot) == leads and unit.role is Role.ALPHA]
        match fault.kind:
            case Kind.ALPHA:
                found = alphas
            case Kind.UNIT:
                others = [unit for unit in awake if unit.role is not Role.ALPHA]
                found = others or (awake if len(self._den.spec.cards) == 1 else [])
            case Kind.HANDS:
                found = [unit for unit in awake if unit.leases]
            case _:
                thawed = [unit for unit in awake if unit.pid is not None and not self._freezer.is_frozen(unit.pid)]
                others = [unit for unit in thawed if unit.role is not Role.ALPHA]
                at_alpha = fault.at_alpha or len(self._den.spec.cards) == 1
                found = [unit for unit in thawed if unit in alphas] if at_alpha else others
                if found and all(map(self._is_refused, found)):  # an alpha on another machine: then somebody else
                    found = others or found
        return choose([unit for unit in found if not self._is_refused(unit)] or found, fault.draw)

    def _is_refused(self, unit: UnitRecord) -> bool:
        return (unit.id, unit.boot) in self._refused

    def _strike_unit(self, fault: Fault, unit: UnitRecord) -> Strike | None:
        leader = self._listener.leader()
        term = leader[0] if leader is not None and leader[1:] == (unit.id, unit.boot) else None
        with self._proven_unit(unit) as handle:
            if handle is None or unit.pid is None:
                return None
            at = time.time()
            if fault.kind is Kind.FREEZE:
                self._freezer.stop(handle, unit.pid, fault.freeze_s)
            else:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        return Strike(fault=fault, at=at, target=f"{unit.id}#{unit.boot}", pid=unit.pid, term=term)

    def _strike_hands(self, fault: Fault, unit: UnitRecord) -> Strike | None:
        with self._proven_unit(unit) as unit_handle:
            if unit_handle is None or unit.pid is None:
                return None
            pid = choose(find_hands(unit.id, unit.pid, self._tree), fault.draw)
            if pid is None:
                return None
            with _handle(pid) as handle:
                reason = why_not_hands(pid, unit.id, unit.pid, self._tree)
                if has_ended(unit_handle):
                    return None
                if reason:
                    raise Refused(reason)
                at = time.time()
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        return Strike(fault=fault, at=at, target=f"hands of {unit.id}#{unit.boot}", pid=pid)

    def _strike_keeper(self, fault: Fault) -> Strike | None:
        told = self._den.keeper()
        pid, epoch = told["pid"], told["epoch"]
        try:
            with self._proven_keeper(pid, epoch, told["node"]) as handle:
                if handle is None:
                    return None
                at = time.time()
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        except Refused as exc:
            self._note_refusal("the keeper", epoch, str(exc))
            return None
        except ProcessLookupError:
            return None
        return Strike(fault=fault, at=at, target=f"keeper of epoch {epoch}", pid=pid)

    @contextlib.contextmanager
    def _proven_keeper(self, pid: int, epoch: int, node: str) -> Iterator[int | None]:
        """A handle on the keeper's process, proven; None if another keeper answers meanwhile.

        Raises:
            Refused: the process is not the keeper's, as far as can be seen from here.
        """
        with _handle(pid) as handle:
            if reason := why_not_ours(Claim("the keeper", pid, node, KEEPER_TITLE, None), self._tree):
                raise Refused(reason)
            self._listener.note_stats(self._den.stats())  # what it counted goes with it
            again = self._den.keeper()
            yield handle if (again["pid"], again["epoch"]) == (pid, epoch) and not has_ended(handle) else None

    @contextlib.contextmanager
    def _proven_unit(self, unit: UnitRecord) -> Iterator[int | None]:
        """A handle on the unit's process, proven; None while the den's word on it is not settled.

        Raises:
            Refused: the process is not the unit's, as far as can be seen from here.
        """
        assert unit.pid is not None
        woke_at = self._listener.woke_at(unit.id, unit.boot)
        if woke_at is None:
            yield None
            return
        with _handle(unit.pid) as handle:
            claim = Claim(unit.id, unit.pid, unit.node or "", UNIT_TITLE, woke_at)
            if reason := why_not_ours(claim, self._tree):
                raise Refused(reason)
            again = next((each for each in self._den.units() if each.id == unit.id), None)
            same = again is not None and (again.boot, again.pid, again.role) == (unit.boot, unit.pid, unit.role)
            yield handle if same else None

    def _note_refusal(self, name: str, boot: int, reason: str) -> None:
        who = (name, boot)
        since = self._refused.setdefault(who, time.monotonic())
        if who not in self._said and time.monotonic() - since > STILL_CLAIMED_S:
            self._said.add(who)
            self.refusals.append(f"{name} was left alone: {reason}")
            self._say(self.refusals[-1])


@contextlib.contextmanager
def _handle(pid: int) -> Iterator[int]:
    """A handle on exactly the process that has this id now.

    Raises:
        Refused: there is none, or it is not ours to signal.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        raise Refused(f"there is no process {pid} on this machine") from None
    except PermissionError:
        raise Refused(f"process {pid} belongs to another user") from None
    try:
        yield handle
    except PermissionError:
        raise Refused(f"process {pid} may not be signalled by this user") from None
    finally:
        os.close(handle)


def has_ended(handle: int) -> bool:
    """Whether the process of a handle has ended."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(0))
