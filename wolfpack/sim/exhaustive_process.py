"""A process of the exhaustive model: the real `Succession`, and just enough of a unit around it.

A process is a frozen value with a key. A step copies the machine, lets it run, and puts it into its plain form: every
time in it becomes "some time". Two processes with one key behave alike, so each is stepped once, however many histories
lead to it. There is no clock: an alarm that is set may ring at any moment, whatever is set beside it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from wolfpack.core.howls import Howl, HowlKind, Peer
from wolfpack.core.rivals import Rivals
from wolfpack.core.succession import (
    PASS_OVER,
    Alarm,
    AskedToLead,
    Claim,
    DeposedBy,
    Event,
    Granted,
    Heard,
    PeerLost,
    PeersChanged,
    Refused,
    ReleaseTerm,
    StepDown,
    Succession,
    Tell,
    TermSeen,
    Ticked,
)
from wolfpack.core.wire import Claim as ClaimCall
from wolfpack.core.wire import KeeperReport, MemberTurn, Turn, Verdict, Where
from wolfpack.model import Cause, Report, Role
from wolfpack.sim.exhaustive_words import EVERYBODY, KEEPER, PACK, TALK, TASK, TIMING, Lease, Letter, Release

AGED = 1e6  # seconds: hints of death are old
NEVER = 1e9
TRIES = PASS_OVER  # more fruitless tries of a pretender change nothing
SPURIOUS = frozenset({Alarm.BEAT})  # a heartbeat says what the COORDINATOR said, which may be read again at any time


class Most(random.Random):
    """Chance without dice: back-off only orders alarms, and the model rings them in every order."""

    def uniform(self, a: float, b: float) -> float:
        return max(a, b)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One boot of a unit: its succession, the turns it sent, and the lease in its hands."""

    unit: str
    boot: int
    machine: Succession | None = None  # None: it waits for the answer to its hello
    turns: int = 0
    lease: int = 0
    ended: bool = False  # it was told to end, and did

    @property
    def who(self) -> tuple[str, int]:
        return self.unit, self.boot

    @property
    def key(self) -> object:
        machine = self.machine
        return (
            self.unit, self.boot, self.turns, self.lease, self.ended,
            None if machine is None else _machine_key(machine),
        )  # fmt: skip

    @property
    def leads(self) -> bool:
        return self.machine is not None and self.machine.role is Role.ALPHA

    def alarms(self) -> list[Alarm]:
        """What may ring."""
        return [] if self.machine is None else [alarm for alarm in self.machine._alarms if alarm not in SPURIOUS]

    def knows_lost(self, unit: str) -> bool:
        return self.machine is not None and unit in self.machine._rivals._lost

    def ring(self, alarm: Alarm) -> Step:
        """This alarm is the first to be due."""
        assert self.machine is not None
        machine = _copy(self.machine)
        machine._alarms[alarm] = 0.0
        return self._steps(machine, [Ticked()])

    def read(self, what: Any, *, aged: bool = False) -> Step:
        """A letter arrives. `aged`: hints of death are old by now, so that signs of life count again."""
        if self.ended:
            return self, []
        if isinstance(what, Where):
            return self._take_where(what)
        machine = self.machine
        if machine is None:
            return self, []
        match what:
            case Howl():
                return self._steps(_copy(machine), [Heard(what)], now=AGED if aged else 0.0)
            case Verdict():
                answer: Event = Granted(what.term) if what.granted else Refused(what.term, what.alpha, what.alpha_boot)
                return self._steps(_copy(machine), [PeersChanged(peers_of(what.peers)), answer])
            case Lease(term, lease_no):
                if not self.leads or machine.term != term or self.lease:
                    return self, []  # a turn's answer that came too late: its leases are not taken
                return replace(self, lease=lease_no), []
            case PeersChanged() | PeerLost() | AskedToLead() | DeposedBy():
                return self._steps(_copy(machine), [what])
            case _:
                raise TypeError(f"no process reads {what!r}")

    def turn(self) -> Step:
        """The alpha's turn: it renews its term and asks for a lease for its own hands."""
        assert self.machine is not None
        seq = self.turns + 1
        held = (self.lease,) if self.lease else ()
        member = MemberTurn(self.unit, self.boot, held, (), 0 if self.lease else 1)
        call = Turn(
            pack=PACK, term=self.machine.term, unit=self.unit, boot=self.boot, seq=seq, members=(member,), wakes=(),
            call_off=(), roster_version=1 << 60, plan=(), size=None, seen_commit=0,
        )  # fmt: skip
        return replace(self, turns=seq), [Letter(KEEPER, 0, call, self.unit)]

    def work(self) -> Step:
        """Its hands are done, and it reports to the keeper."""
        report = Report(self.lease, TASK, Cause.DONE.value, True, 0.0, 0.0, payload=b"%d" % self.lease)
        call = KeeperReport(self.unit, self.boot, self.lease, (), (report,), 0)
        return replace(self, lease=0), [Letter(KEEPER, 0, call, self.unit)]

    def leave(self) -> Step:
        """It goes on purpose: gives its term back and names the next."""
        assert self.machine is not None
        return self._steps(_copy(self.machine), [StepDown("leaves")])

    def _take_where(self, where: Where) -> Step:
        if where.end:
            return replace(self, ended=True, lease=0), []
        if self.machine is None:
            machine = _newborn(self.unit, self.boot, where.term, where.alpha, where.alpha_boot)
            return self._steps(machine, [PeersChanged(peers_of(where.peers))])
        seen = TermSeen(where.term, where.alpha, where.alpha_boot)
        return self._steps(_copy(self.machine), [seen])

    def _steps(self, machine: Succession, events: list[Event], now: float = 0.0) -> Step:
        letters = []
        for event in events:
            for order in machine.step(now, event):
                match order:
                    case Tell(_, howl):
                        if howl.kind not in TALK:
                            letters.append(Letter(EVERYBODY, 0, _as_coordinator(howl), self.unit))
                    case Claim(prev_term):
                        call = ClaimCall(PACK, prev_term, self.unit, self.boot, 0)
                        letters.append(Letter(KEEPER, 0, call, self.unit))
                    case ReleaseTerm(given):
                        letters.append(Letter(KEEPER, 0, Release(given, self.unit, self.boot), self.unit))
                    case _:
                        pass
        _make_plain(machine)
        if not letters and self.machine is not None and _is_same(machine, self.machine):
            return self, []
        return replace(self, machine=machine), letters


Step = tuple[Process, list[Letter]]


def newborn(unit: str, peers: tuple[Peer, ...]) -> Process:
    """The first boot of a unit, a member that knows its peers and no alpha."""
    machine = _newborn(unit, 1, 0, None, 0)
    return Process(unit=unit, boot=1)._steps(machine, [PeersChanged(peers)])[0]


def _newborn(unit: str, boot: int, term: int, alpha: str | None, alpha_boot: int) -> Succession:
    return Succession(
        me=Peer(unit=unit, boot=boot), pack=PACK, timing=TIMING, rng=Most(0), now=0.0, term=term, alpha=alpha,
        alpha_boot=alpha_boot,
    )  # fmt: skip


def peers_of(rows: tuple[tuple[str, int, int, bool], ...]) -> tuple[Peer, ...]:
    return tuple(Peer(unit=unit, boot=boot, lead=lead, can_lead=can) for unit, boot, lead, can in rows)


def _as_coordinator(howl: Howl) -> Howl:
    """A HEARTBEAT and a COORDINATOR of one term are the same news, which `test_exhaustive` checks."""
    return replace(howl, kind=HowlKind.COORDINATOR) if howl.kind is HowlKind.HEARTBEAT else howl


def _copy(machine: Succession) -> Succession:
    twin, rivals = Succession.__new__(Succession), Rivals.__new__(Rivals)
    vars(rivals).update(vars(machine._rivals))
    vars(twin).update(vars(machine))
    twin._alarms, twin._orders, twin._rivals = dict(machine._alarms), [], rivals
    rivals._peers, rivals._lost = dict(rivals._peers), dict(rivals._lost)
    return twin


def _make_plain(machine: Succession) -> None:
    machine._last = machine._crowned_at = machine._answered_sent_at = 0.0
    machine._first_claim = (-1, 0.0)
    machine._tries = min(machine._tries, TRIES)
    machine._alarms = dict.fromkeys(sorted(machine._alarms), NEVER)
    machine._rivals._lost = {unit: (boot, 0.0) for unit, (boot, _) in sorted(machine._rivals._lost.items())}


def _is_same(machine: Succession, other: Succession) -> bool:
    """Whether nothing changed, as with most letters: that is seen faster than a key is made."""
    if vars(machine._rivals) != vars(other._rivals):
        return False
    machine._rivals = other._rivals
    return vars(machine) == vars(other)


_SAME = frozenset({"me", "pack", "timing", "arbiter", "usurp", "_rng", "_orders", "_first_claim"})


def _machine_key(machine: Succession) -> object:
    """Every field of it but those that never differ, so that a field added later counts by itself."""
    fields, rivals = vars(machine).copy(), machine._rivals
    for name in _SAME:
        del fields[name]
    fields["_alarms"] = tuple(machine._alarms)
    fields["_rivals"] = (tuple(sorted(rivals._peers.items())), tuple(rivals._lost.items()))
    return tuple(fields.values())
