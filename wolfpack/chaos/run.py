"""One run of chaos: opens a den of its own, keeps work in flight, gives each fault when it is due, and judges the end.

The run goes on until every fault was given and every task has ended. If the work is done before the last fault was
given, more is submitted. It ends early only when it is stuck: nothing has ended for `STUCK_S`. What is then without an
end counts as lost. A kind of fault that finds no target for `GIVE_UP_S` while there is work is given up, and that is
said.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from wolfpack.chaos.judge import Kept, Verdict, judge
from wolfpack.chaos.listen import Listener
from wolfpack.chaos.plan import Fault, Kind, plan_faults
from wolfpack.chaos.strike import Freezer, Strike, Striker
from wolfpack.chaos.task import read_record
from wolfpack.chaos.work import Gap, Work
from wolfpack.errors import CallerError, LedgerError, LedgerHeld, OperatorError, WolfPackError, unknown_name
from wolfpack.model import Cause, DenSpec, TaskState

LOOK_S = 0.02
STUCK_S = 120.0
GIVE_UP_S = 60.0
FAILOVER_MOST_S = 60.0
AFTERMATH_S = 1.0  # late reports of units that were frozen come in, and are counted as ghosts


class Say(Protocol):
    """Shows a person how it goes; `wolfpack.cli.render.Progress` is one."""

    def __call__(self, settled: int, total: int, text: str) -> None: ...

    def note(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosOptions:
    """What a run is asked for."""

    tasks: int = 10_000
    faults: Mapping[Kind, int] = field(
        default_factory=lambda: {Kind.ALPHA: 20, Kind.UNIT: 50, Kind.HANDS: 50, Kind.FREEZE: 5, Kind.KEEPER: 5}
    )
    seed: int = 0
    # Which pack works; None: the only one.
    pack: str | None = None
    # A picture at each change of leadership goes here; None: none.
    graphs: str | None = None
    # Of a Ray cluster; None: RAY_ADDRESS, else a Ray of its own.
    address: str | None = None


def run_chaos(spec: DenSpec, options: ChaosOptions, say: Say) -> dict[str, Any]:
    """Runs chaos on a den like `spec`, and returns the summary that `wolfpack chaos --json` prints.

    Raises:
        CallerError: this system has no process handles, or there is no such pack.
        OperatorError: the den could not be opened.
    """
    if not hasattr(os, "pidfd_open") or not hasattr(signal, "pidfd_send_signal"):
        raise CallerError("Chaos needs Linux 5.3 or later: only there a signal can be sent to a proven process.")
    options = replace(options, pack=_find_pack([each.name for each in spec.packs], options.pack))
    folder = Path(tempfile.mkdtemp(prefix="wolfpack-chaos-"))
    keep = False
    try:
        summary = _Run(_spec_of_its_own(spec, folder, options), options, folder, say).run()
        keep = not is_proven(summary)
        if keep:
            summary["evidence"] = str(folder)
        return summary
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _find_pack(names: list[str], name: str | None) -> str:
    """The pack that works. Asked before a den is opened, so that a slip of the pen costs no time."""
    if name is None:
        if len(names) != 1:
            raise CallerError(f"This den has {len(names)} packs, so name one: {', '.join(names) or 'none yet'}.")
        return names[0]
    if name not in names:
        raise unknown_name("pack", name, names)
    return name


def is_proven(summary: Mapping[str, Any]) -> bool:
    """Whether nothing was lost, nothing was done twice, and the ledger's count adds up."""
    return not (
        summary["lost"] or summary["double_committed"] or summary["double_started"] or not summary["conservation"]
    )


def _spec_of_its_own(spec: DenSpec, folder: Path, options: ChaosOptions) -> DenSpec:
    """The same units and packs under a name and with a ledger that no other den has."""
    name = f"{spec.den}-{folder.name.removeprefix('wolfpack-')}"
    return replace(spec, den=name, ledger=f"sqlite:///{folder / 'ledger.db'}", graphs=options.graphs)


class _Run:
    def __init__(self, spec: DenSpec, options: ChaosOptions, folder: Path, say: Say) -> None:
        self._spec, self._options, self._say = spec, options, say
        self._record = folder / "starts"
        self._due: list[Fault] = []
        self._given: list[Strike] = []
        self._failovers: dict[int, float | None] = {}  # place in `given` -> seconds; None: not yet led again
        self._waits: dict[Kind, float] = {}  # kind -> since when it finds no target
        self._notes: list[str] = []

    def run(self) -> dict[str, Any]:
        from wolfpack.pack import Den  # brings Ray

        options = self._options
        self._record.touch()
        self._due = list(plan_faults(self._possible(), options.seed))
        faults = len(self._due)
        began = time.monotonic()
        with Den(self._spec, address=options.address) as den, Freezer() as freezer:
            pack = den.pack(options.pack)
            listener = Listener(den, pack.name)
            listener.start()
            striker = Striker(den, listener, freezer, self._say.note)
            try:
                with Work(pack, total=options.tasks, seed=options.seed, record=self._record) as work:
                    self._go_on(work, striker, listener, faults)
                    freezer.thaw_all()
                    time.sleep(AFTERMATH_S)
                    seen = work.seen()
                    stats = den.stats()
                    listener.note_stats(stats)
                seconds = time.monotonic() - began
            finally:
                listener.stop()
        self._notes += striker.refusals
        kept, last_settle_no, fault = read_ledger(self._spec.ledger)
        if fault:
            self._notes.append(fault)
        verdict = judge(seen, kept, read_record(self._record), last_settle_no, socket.gethostname())
        return self._summary(work, stats, listener, verdict, len(kept), seconds)

    def _possible(self) -> dict[Kind, int]:
        """How many faults of each kind, without those that this den has no target for."""
        faults = dict(self._options.faults)
        if faults.get(Kind.HANDS) and all(card.hands.isolation == "thread" for card in self._spec.cards):
            self._tell("No hands are killed: every unit of this den runs its tasks in threads of its own process.")
            faults[Kind.HANDS] = 0
        return faults

    def _tell(self, text: str) -> None:
        self._notes.append(text)
        self._say.note(text)

    # --- while it works -----------------------------------------------------------------------------------------

    def _go_on(self, work: Work, striker: Striker, listener: Listener, faults: int) -> None:
        while True:
            self._note_failovers(listener)
            waits = any(seconds is None for seconds in self._failovers.values())
            if self._due or waits:
                if work.settled >= self._options.tasks:
                    work.extend()
            elif work.is_over:
                break
            if work.trouble is not None:
                self._tell(f"Nothing more could be submitted: {work.trouble}")
                break
            if work.quiet_s() > STUCK_S:
                self._tell(f"Stuck: nothing has ended for {STUCK_S:.0f} s.")
                break
            self._give_due(work, striker)
            leader = listener.leader()
            led = f"{leader[1]} leads in term {leader[0]}" if leader else "nobody leads"
            self._say(
                work.settled, max(work.submitted, self._options.tasks), f"{len(self._given)}/{faults} faults, {led}"
            )
            time.sleep(LOOK_S)

    def _give_due(self, work: Work, striker: Striker) -> None:
        share = work.settled / self._options.tasks
        tried: set[Kind] = set()
        for fault in [each for each in self._due if each.share <= share]:
            if fault.kind in tried or self._waits_for_failover(fault):
                continue  # one after the other, so that each is seen to be survived
            tried.add(fault.kind)
            try:
                strike = striker.strike(fault)
            except OperatorError:
                continue  # the keeper is away; the next look asks again
            if strike is not None:
                self._due.remove(fault)
                self._waits.pop(fault.kind, None)
                if strike.term is not None:
                    self._failovers[len(self._given)] = None
                self._given.append(strike)
            elif time.monotonic() - self._waits.setdefault(fault.kind, time.monotonic()) > GIVE_UP_S:
                left = [each for each in self._due if each.kind is fault.kind]
                self._tell(f"{len(left)} faults {fault.kind} were not given: no target for {GIVE_UP_S:.0f} s.")
                self._due = [each for each in self._due if each.kind is not fault.kind]
                return

    def _waits_for_failover(self, fault: Fault) -> bool:
        is_at_alpha = fault.kind is Kind.ALPHA or fault.at_alpha
        return is_at_alpha and any(seconds is None for seconds in self._failovers.values())

    def _note_failovers(self, listener: Listener) -> None:
        for place, seconds in list(self._failovers.items()):
            if seconds is not None:
                continue
            strike = self._given[place]
            assert strike.term is not None
            at = listener.led_again_at(strike.term, strike.at)
            if at is not None:
                self._failovers[place] = at - strike.at
            elif strike.fault.kind is Kind.FREEZE and time.time() - strike.at > strike.fault.freeze_s + 1.0:
                del self._failovers[place]  # it was back before anybody missed it
            elif time.time() - strike.at > FAILOVER_MOST_S:
                del self._failovers[place]
                self._tell(f"No first lease for {FAILOVER_MOST_S:.0f} s after {strike.target} of term {strike.term}.")

    # --- afterwards ---------------------------------------------------------------------------------------------

    def _summary(
        self, work: Work, stats: Mapping[str, Any], listener: Listener, verdict: Verdict, rows: int, seconds: float
    ) -> dict[str, Any]:
        given = Counter(strike.fault.kind for strike in self._given)
        problems = [*verdict.lost, *verdict.double_committed, *verdict.double_started]
        return {
            "submitted": work.submitted,
            "done": stats["done"],
            "dead": stats["dead"],
            "lost": len(verdict.lost),
            "double_committed": len(verdict.double_committed),
            "ghosts": stats["ghosts"],
            "refused_writes": listener.refused_writes,
            "failovers_s": [round(each, 3) for each in self._times(Kind.ALPHA)],
            "longest_gap_s": round(work.gap.longest_s, 3),
            "conservation": bool(stats["conservation"]) and rows == stats["submitted"],
            "double_started": len(verdict.double_started),
            "starts": verdict.starts,
            "restarted": verdict.restarted,
            "freeze_failovers_s": [round(each, 3) for each in self._times(Kind.FREEZE)],
            "longest_gap_after": during(self._given, work.gap),
            "faults": {kind.value: given[kind] for kind in Kind},
            "asked": {kind.value: self._options.faults.get(kind, 0) for kind in Kind},
            "epochs": stats["epoch"],
            "seed": self._options.seed,
            "seconds": round(seconds, 1),
            "problems": problems[:20],
            "notes": self._notes,
        }

    def _times(self, kind: Kind) -> list[float]:
        return [
            seconds
            for place, seconds in sorted(self._failovers.items())
            if seconds is not None and self._given[place].fault.kind is kind
        ]


def during(given: Sequence[Strike], gap: Gap) -> list[str]:
    """The faults that were given while nothing ended for the longest time, or in the second before."""
    began_at = gap.ended_at - gap.longest_s
    return [f"{each.fault.kind}: {each.target}" for each in given if began_at - 1.0 <= each.at <= gap.ended_at]


def read_ledger(url: str) -> tuple[dict[str, Kept], int, str]:
    """What the ledger of a den that has ended holds: its tasks, the last settle number, and what is wrong with it."""
    from wolfpack.core.book.state import decode_story
    from wolfpack.den.ledgers import open_ledger

    end = time.monotonic() + 20.0
    while True:
        ledger = open_ledger(url)
        try:
            loaded = ledger.open(create=False)
            break
        except LedgerHeld as exc:  # the keeper is about to let go of it
            if time.monotonic() > end:
                return {}, 0, f"The ledger could not be read: {exc}"
            time.sleep(0.1)
        except LedgerError as exc:
            return {}, 0, f"The ledger could not be read: {exc}"
    try:
        rows = list(loaded.live)
        for state in (TaskState.DONE, TaskState.DEAD, TaskState.CANCELLED):
            rows += ledger.find_states(None, state.value, 1 << 40)
        kept = {
            row.fixed.id: Kept(
                state=TaskState(row.mutable.state),
                value=_value(row.mutable.payload) if row.mutable.state == TaskState.DONE else None,
                done_leases=tuple(each[1] for each in decode_story(row.mutable.story) if each[4] == Cause.DONE),
            )
            for row in rows
        }
        return kept, loaded.last_settle_no, ""
    except WolfPackError as exc:
        return {}, 0, f"The ledger could not be read: {exc}"
    finally:
        ledger.close()


def _value(payload: bytes) -> Any:
    try:
        return pickle.loads(payload)
    except Exception as exc:
        return f"cannot be loaded: {exc!r}"
