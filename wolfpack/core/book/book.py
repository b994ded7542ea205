"""The book: the desks together, and what is asked of it beside units' and alphas' messages."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from wolfpack.core.book.granting import led_meta
from wolfpack.core.book.intake import Ack, Keyed
from wolfpack.core.book.journal import Instruct, Journal, Recent
from wolfpack.core.book.queue import Queue
from wolfpack.core.book.state import UNREADABLE, Instant, Pack, Task, Unit
from wolfpack.core.book.tasks import TaskDesk
from wolfpack.core.book.terms import TermDesk
from wolfpack.core.book.units import LIVING, UnitDesk
from wolfpack.core.rows import Count, Loaded, TaskRow
from wolfpack.core.wire import Claim, Final, KeeperReport, Move, Submit, Turn, Verdict, Where
from wolfpack.errors import CallerError, LedgerDamaged, unknown_name, unknown_task
from wolfpack.events import OperatorActed, PackCreated, PackDropped, PackScaled
from wolfpack.model import Card, Needs, PackSpec, Readiness, Role, TaskState, Timing, UnitRecord, natural_key
from wolfpack.plain import pack_to_json

SIZE_MOST = 10_000
CLOSED_META = "closed_packs"  # the ledger's note of packs that were drained by hand


class Book:
    """All that is alive in a den, and the rules of every change. One method a message; no clock, no disk.

    Args:
        timing: the den's timing profile.
        rng: the source of jitter.
    """

    def __init__(self, timing: Timing, rng: random.Random) -> None:
        self.timing = timing
        self.packs: dict[str, Pack] = {}
        self.units: dict[str, Unit] = {}
        self.journal = Journal(rng)
        self.tasks = TaskDesk(self.journal, self.packs, self.units, timing.lease_s)
        self.terms = TermDesk(self.journal, self.packs, self.units, self.tasks, timing)
        self.desk = UnitDesk(self.journal, self.packs, self.units, self.tasks, timing, self.terms.vacate)
        self.terms.desk = self.desk
        self.epoch = 0
        self.started_wall = 0.0
        self.awake_seconds = 0.0  # sums over units, for cost against always-on
        self.cost = 0.0
        self._described: dict[str, str] = {}  # packs as pack.yaml described them when it was last read
        self._last_tick: Instant | None = None

    # --- birth --------------------------------------------------------------------------------------------------

    def load(self, at: Instant, loaded: Loaded) -> None:
        """Takes everything alive from the ledger. Terms and leases get a fresh start: nobody loses one by a restart.

        Raises:
            LedgerDamaged: its rows say what no keeper wrote; this book is of no use then.
        """
        try:
            self._load(at, loaded)
        except UNREADABLE as exc:
            raise LedgerDamaged(
                f"No keeper can go on from what the rows of the ledger say ({type(exc).__name__}: {exc}). Every row is "
                "whole, so something else than Wolf Pack wrote one. `wolfpack ledger check` tells more."
            ) from exc

    def _load(self, at: Instant, loaded: Loaded) -> None:
        journal = self.journal
        self.epoch = loaded.epoch
        self._described = json.loads(loaded.meta.get("described", "{}"))
        self.started_wall = at.wall
        journal.last_event_no = loaded.last_event_no
        journal.last_lease_no = loaded.last_lease_no
        journal.last_settle_no = loaded.last_settle_no
        journal.ghosts_counted = loaded.ghosts
        journal.commit_no = loaded.commit_no
        journal.roster_version = loaded.epoch << 32  # newer than any version an alpha has from a keeper before
        closed = set(json.loads(loaded.meta.get(CLOSED_META, "[]")))
        for pack_row in loaded.packs:
            pack = Pack.from_row(pack_row)
            pack.renewed_mono = at.mono
            pack.first_lease = loaded.meta.get(led_meta(pack.name)) == str(pack.term)
            pack.closed = pack.name in closed
            self.packs[pack.name] = pack
            self.tasks.counts[pack.name] = Counter()
            self.tasks.queues[pack.name] = Queue()
        for unit_row in loaded.units:
            self.desk.restore(Unit.from_row(unit_row), at)
        for count in loaded.counts:
            self.tasks.counts.setdefault(count.pack, Counter())[TaskState(count.state)] = count.tasks
        for row in loaded.live:
            self.tasks.restore(Task.from_row(row), at)
        self.tasks.clients.update(loaded.clients)

    def fresh_start(self, at: Instant) -> None:
        """No process of the last den lives: every unit that the ledger calls awake sleeps, its leases return."""
        for unit in self.units.values():
            if unit.readiness in (*LIVING, Readiness.WAKING):
                if unit.readiness is Readiness.WAKING:
                    self.desk.forget_wake(at, unit, "the den was started again")
                else:
                    self.desk.lose(at, unit.id, unit.boot, "the den was started again")
            if unit.card.day_job and unit.readiness is Readiness.ASLEEP:
                unit.wake_at = at.wall
        for pack in self.packs.values():
            self.terms.vacate(at, pack, "the den was started again")
        self.journal.orders.clear()

    def describe(self, at: Instant, cards: Iterable[Card], packs: Iterable[PackSpec]) -> None:
        """Takes what pack.yaml says: its cards replace the pool, its packs are made or changed.

        What was set by hand while the den ran (`scale`) stays as long as the file says the same as before.
        """
        wanted = {card.unit: card for card in cards}
        for name in [each for each in self.units if each not in wanted]:
            if self.units[name].readiness is not Readiness.GONE:
                self.desk.forget(at, name)
        for card in wanted.values():
            self.desk.register(at, card)
        specs = list(packs)
        said = {spec.name: pack_to_json(spec) for spec in specs}
        for spec in specs:
            known = self.packs.get(spec.name)
            if known is None or known.draining or self._described.get(spec.name) != said[spec.name]:
                self.create_pack(at, spec)  # new, dropped, or changed in the file; else what was set by hand stays
        self._described = said
        self.journal.meta["described"] = json.dumps(said)

    # --- messages -----------------------------------------------------------------------------------------------

    def submit(self, at: Instant, submit: Submit, known: Keyed) -> list[Ack]:
        """See `TaskDesk.submit`; the pack is roused if nobody works for it.

        Raises:
            UnknownName, QueueFull, CallerError: nothing was queued.
        """
        pack = self._taking(submit.pack)
        acks = self.tasks.submit(at, submit, known)
        if pack.parked is not None:
            self.terms.serve(at, pack)
        elif pack.alpha is None:
            self.terms.rouse(at, pack)
        return acks

    def _taking(self, name: str) -> Pack:
        pack = self.pack(name)
        if pack.draining or pack.closed:
            raise CallerError(f"Pack {name!r} is draining and takes no new tasks.")
        return pack

    def turn(self, at: Instant, turn: Turn) -> None:
        self.terms.turn(at, turn)

    def claim(self, at: Instant, claim: Claim) -> Verdict:
        return self.terms.claim(at, claim)

    def release(self, at: Instant, pack: str, term: int, unit: str, boot: int) -> bool:
        return self.terms.release(at, pack, term, unit, boot)

    def hello(self, at: Instant, unit: str, boot: int, pid: int, node: str) -> Where:
        return self.desk.hello(at, unit, boot, pid, node)

    def report(self, at: Instant, report: KeeperReport) -> Where:
        return self._serving(at, self.desk.report(at, report))

    def move(self, at: Instant, move: Move) -> Where:
        return self._serving(at, self.desk.move(at, move))

    def lose(self, at: Instant, unit: str, boot: int, reason: str) -> None:
        if self.desk.lose(at, unit, boot, reason):
            for pack in self.packs.values():
                self.terms.serve(at, pack)
                self.terms.rouse(at, pack)

    def _serving(self, at: Instant, where: Where) -> Where:
        for pack in self.packs.values():
            self.terms.serve(at, pack)
        return where

    def cancel(self, at: Instant, task_ids: Iterable[str], *, kill: bool) -> list[str]:
        found, told = self.tasks.cancel(at, task_ids, kill=kill)
        for pack in told:
            self.terms.deliver_cancels(at, pack)
        return found

    def tick(self, at: Instant) -> None:
        """Judges every clock: leases, deadlines, wakes, silence, delayed work. Call it some ten times a second."""
        if self._last_tick is not None:
            self._charge(at.wall - self._last_tick.wall)
        self._last_tick = at
        self.tasks.expire(at)
        self.desk.tick(at)
        self.terms.tick(at)

    def _charge(self, seconds: float) -> None:
        for unit in self.units.values():
            if unit.readiness in (*LIVING, Readiness.WAKING):
                self.awake_seconds += seconds
                self.cost += seconds * unit.card.cost_per_h / 3600

    # --- watching -----------------------------------------------------------------------------------------------

    def finals_since(self, client: str, cursor: int, durable: int, most: int = 2000) -> tuple[list[Final], bool]:
        """The ends this client has not seen, up to settle number `durable`; and whether some are missing here.

        A client told of missing ones must `look` for all it waits for.
        """
        recent = self.journal.recent.get(client)
        if recent is None:
            self.journal.recent[client] = Recent(self.journal.last_settle_no)
            return [], cursor < self.journal.last_settle_no
        while recent.finals and recent.finals[0].settle_no <= cursor:
            recent.since = recent.finals.popleft().settle_no
        gap = cursor < recent.since
        return [final for final, _ in zip(recent.finals, range(most), strict=False) if final.settle_no <= durable], gap

    def forget_client(self, client: str) -> None:
        self.journal.recent.pop(client, None)

    # --- packs and units by hand --------------------------------------------------------------------------------

    def pack(self, name: str) -> Pack:
        if name not in self.packs:
            raise unknown_name("pack", name, self.packs)
        return self.packs[name]

    def unit(self, name: str) -> Unit:
        if name not in self.units:
            raise unknown_name("unit", name, self.units)
        return self.units[name]

    def create_pack(self, at: Instant, spec: PackSpec) -> None:
        """Makes a pack, or gives an existing one a new description."""
        pack = self.packs.get(spec.name)
        if pack is not None and pack.spec == spec and not pack.draining and not pack.closed:
            return
        if pack is None:
            if not any(spec.needs.fits(unit.card.offer) and unit.card.can_lead for unit in self.units.values()):
                raise CallerError(
                    f"Pack {spec.name!r} needs {spec.needs}, and no unit that can lead offers that. Change its needs, "
                    "or add a kind of unit to pack.yaml."
                )
            pack = self.packs[spec.name] = Pack(spec)
            self.tasks.queues.setdefault(spec.name, Queue())
            self.tasks.counts.setdefault(spec.name, Counter())
            self.journal.publish(at, PackCreated(pack=spec.name, fewest=spec.fewest, most=spec.most))
        pack.spec, pack.draining = spec, False
        self._set_closed(pack, False)
        pack.unmet.clear()
        self.journal.packs[spec.name] = pack
        if spec.name in self.journal.removed_packs:  # dropped and made again within one commit
            self.journal.removed_packs.remove(spec.name)
        for unit in self.desk.members.get(spec.name, {}).values():
            self.journal.note_unit(unit)  # whether, and to whom, it can be lent stands in its roster entry

    def scale(self, at: Instant, name: str, fewest: int, most: int, reason: str) -> None:
        """Sets the bounds of a pack's size.

        Raises:
            UnknownName: no such pack.
            CallerError: the bounds are not 0 <= fewest <= most.
        """
        pack = self.pack(name)
        if not (type(fewest) is type(most) is int and 0 <= fewest <= most <= SIZE_MOST):
            raise CallerError(
                f"A pack's size must be whole numbers 0 <= fewest <= most <= {SIZE_MOST}, not [{fewest}, {most}]."
            )
        fitting = sum(
            pack.spec.needs.fits(unit.card.offer) and unit.readiness is not Readiness.GONE
            for unit in self.units.values()
        )
        if fewest > fitting:
            raise CallerError(f"Pack {name!r} cannot have {fewest} members: {fitting} units fit it.")
        before = len(self.desk.members.get(name, {}))
        pack.spec = replace(pack.spec, fewest=fewest, most=most)
        self.journal.packs[name] = pack
        text = f"bounds set to [{fewest}, {most}] {reason}".strip()
        self.journal.publish(
            at, PackScaled(pack=name, before=before, after=min(max(before, fewest), most), reason=text), "operator"
        )
        self._wake_alpha(at, pack)
        self.terms.rouse(at, pack)

    def _wake_alpha(self, at: Instant, pack: Pack) -> None:
        if pack.parked is not None:
            self.journal.roster_version += 1  # the alpha's turn is answered, with the new description
            self.terms.serve(at, pack)

    def drain(self, at: Instant, name: str, reason: str) -> None:
        """Takes no new tasks, finishes what is there."""
        pack = self.pack(name)
        self.journal.publish(at, OperatorActed(order="drain", target=name, reason=reason), "operator")
        pack.spec = replace(pack.spec, fewest=0)
        self.journal.packs[name] = pack
        self._set_closed(pack, True)

    def _set_closed(self, pack: Pack, closed: bool) -> None:
        if pack.closed != closed:
            pack.closed = closed
            self.journal.meta[CLOSED_META] = json.dumps(sorted(p.name for p in self.packs.values() if p.closed))

    def drop_pack(self, at: Instant, name: str, reason: str) -> None:
        """Ends a pack: queued tasks are cancelled, running ones killed, its members leave."""
        pack = self.pack(name)
        pack.draining = True
        self.journal.packs[name] = pack
        self.tasks.clear(at, name, f"pack {name!r} was dropped")
        self.terms.deliver_cancels(at, name)
        self._wake_alpha(at, pack)
        self.journal.publish(at, PackDropped(pack=name, reason=reason), "operator")

    def sweep(self) -> None:
        """Removes dropped packs that nobody is a member of any more."""
        for name in [each for each, pack in self.packs.items() if pack.draining and not self.desk.members.get(each)]:
            if not any(task.fixed.pack == name for task in self.tasks.live.values()):
                del self.packs[name]
                self.journal.packs.pop(name, None)
                self.journal.removed_packs.append(name)

    def order_unit(self, at: Instant, name: str, order: str, grace_s: float | None, reason: str) -> None:
        """An operator's order to one unit: wake, sleep, release or recall.

        Raises:
            UnknownName: no such unit.
            CallerError: the order makes no sense where the unit stands.
        """
        unit = self.unit(name)
        if unit.readiness is Readiness.GONE:
            raise CallerError(f"{name} is gone: its card was removed from pack.yaml.")
        self.journal.publish(at, OperatorActed(order=order, target=name, reason=reason), "operator")
        if order == "wake":
            if unit.readiness in (Readiness.ASLEEP, Readiness.QUARANTINED):
                unit.failed_births = 0
                self.desk.wake(at, unit, None, "woken by an operator")
            return
        if unit.readiness is Readiness.WAKING and order == "sleep":
            self.desk.call_off(at, unit.pack or "", name)
            return
        if unit.readiness not in LIVING:
            return
        if order != "sleep" and unit.pack is None:
            return  # it is free, or at home, already
        self.desk.ordered[name] = order
        grace = unit.card.grace_s if grace_s is None else grace_s
        self.journal.orders.append(Instruct(unit=name, boot=unit.boot, order=order, grace_s=grace, reason=reason))

    # --- telling ------------------------------------------------------------------------------------------------

    def unit_records(self) -> list[UnitRecord]:
        def role(unit: Unit) -> Role:
            pack = self.packs.get(unit.pack or "")
            if pack is None or unit.readiness not in LIVING:
                return Role.FREE
            return Role.ALPHA if (pack.alpha, pack.alpha_boot) == (unit.id, unit.boot) else Role.MEMBER

        return [
            UnitRecord(
                id=unit.id, kind=unit.card.kind, pid=unit.pid or None, node=unit.node or None,
                nature=unit.card.nature, readiness=unit.readiness, pack=unit.pack, role=role(unit), boot=unit.boot,
                leases=len(unit.held), offers=str(unit.card.offer), reason=unit.reason,
            )
            for unit in sorted(self.units.values(), key=lambda unit: natural_key(unit.id))
            if unit.readiness is not Readiness.GONE
        ]  # fmt: skip

    def stats(self, counts: Iterable[Count]) -> dict[str, Any]:
        """What the ledger's counts say, beside what the book knows; they must agree (`conservation`)."""
        by_pack: dict[str, Counter[str]] = {name: Counter() for name in self.packs}
        for count in counts:
            by_pack.setdefault(count.pack, Counter())[count.state] += count.tasks
        packs = {name: self._pack_stats(name, tally) for name, tally in sorted(by_pack.items())}
        totals: Counter[str] = sum((Counter(tally) for tally in by_pack.values()), Counter())
        dropped = sum(pack.dropped_dead for pack in self.packs.values())
        awake = sum(1 for unit in self.units.values() if unit.readiness in LIVING)
        elapsed_s = (self._last_tick.wall if self._last_tick else self.started_wall) - self.started_wall
        present = [unit for unit in self.units.values() if unit.readiness is not Readiness.GONE]
        return {
            "packs": packs,
            "submitted": sum(totals.values()) + dropped,
            **{state.value: totals[state.value] + (dropped if state is TaskState.DEAD else 0) for state in TaskState},
            "conservation": self._conserved(by_pack),
            "refused_writes": self.journal.refused_writes,
            "ghosts": self.journal.ghosts_counted,
            "epoch": self.epoch,
            "commits": self.journal.commit_no,
            "units": {"cards": len(present), "awake": awake},
            "cost": {
                "spent": self.cost,
                "always_on": sum(unit.card.cost_per_h for unit in present) * elapsed_s / 3600,
                "unit_seconds": self.awake_seconds,
                "always_on_unit_seconds": len(present) * elapsed_s,
            },
        }

    def _conserved(self, by_pack: Mapping[str, Counter[str]]) -> bool:
        """submitted = done + dead + cancelled + queued + leased: the ledger's rows against the book's own sums."""
        return all(
            tally[state.value] == self.tasks.counts.get(name, Counter())[state]
            for name, tally in by_pack.items()
            for state in TaskState
        )

    def _pack_stats(self, name: str, tally: Counter[str]) -> dict[str, Any]:
        pack = self.packs.get(name)
        dropped = pack.dropped_dead if pack else 0
        return {
            "submitted": sum(tally.values()) + dropped,
            **{state.value: tally[state.value] + (dropped if state is TaskState.DEAD else 0) for state in TaskState},
            "term": pack.term if pack else 0,
            "alpha": pack.alpha if pack else None,
            "members": len(self.desk.members.get(name, {})),
            "size": [pack.spec.fewest, pack.spec.most] if pack else [0, 0],
            "needs": str(pack.spec.needs) if pack else "",
            "plan": list(pack.plan) if pack else [],
        }

    def why(self, at: Instant, task_id: str, row: TaskRow | None) -> str:
        """Why a task is where it is, in sentences; `row` is what the ledger has of one that is not alive.

        Raises:
            UnknownName: nobody ever submitted a task with this id.
        """
        task = self.tasks.find(task_id) or (Task.from_row(row) if row is not None else None)
        if task is None:
            raise unknown_task(task_id)
        story = "".join(
            f"\n  attempt {number}: {cause} on {unit} (boot {boot}) after {ended - started:.3f} s. {text}".rstrip()
            for number, _, unit, boot, cause, started, ended, text in task.story
        )
        return f"{task_id} of pack {task.fixed.pack}: {self._why(at, task)}{story}"

    def _why(self, at: Instant, task: Task) -> str:
        if task.state is TaskState.LEASED:
            return f"leased to {task.unit} (boot {task.boot}) as lease {task.lease_no} in term {task.term}" + (
                ", marked to be cancelled" if task.cancel else ""
            )
        if task.state is TaskState.DONE:
            return f"done by {task.unit} in {task.ended_at - task.started_at:.3f} s"
        if task.state is not TaskState.QUEUED:
            return f"{task.state}: {task.text or task.cause}"
        pack = self.packs[task.fixed.pack]
        queue = self.tasks.queues[pack.name]
        if task.not_before > at.wall:
            return f"queued, not before {task.not_before - at.wall:.1f} s from now" + (
                f" (back-off after {task.cause})" if task.cause else " (delay_s)"
            )
        if not any(task.needs.fits(unit.card.offer) for unit in self.units.values()):
            return pack.unmet.get(task.needs) or f"queued; no card offers {task.needs}"
        members = self.desk.members.get(pack.name, {}).values()
        fitting = [unit for unit in members if task.needs.fits(unit.card.offer)]
        busy = sum(1 for unit in fitting if unit.held)
        waking = [unit.id for unit in fitting if unit.readiness is Readiness.WAKING]
        place = queue.place_of(task)
        text = f"queued, {place} of {queue.runnable} go before it; {busy} of {len(fitting)} fitting members are busy"
        if waking:
            text += f"; waking: {', '.join(sorted(waking))}"
        if pack.alpha is None:
            text += f"; the pack has no alpha now ({pack.vacant_reason or 'none was needed yet'})"
        if task.solo:
            text += "; it is leased alone, since its unit vanished with others"
        if task.pinned:
            text += "; it is pinned to a unit that is not lendable"
        if pack.plan:
            text += f". Latest plan: {'; '.join(pack.plan)}"
        return text

    def attempts(self, task_id: str, row: TaskRow | None) -> list[tuple[Any, ...]]:
        task = self.tasks.find(task_id)
        if task is not None:
            return list(task.story)
        return list(Task.from_row(row).story) if row is not None else []

    def replay(self, at: Instant, row: TaskRow, needs: Needs | None) -> None:
        """Queues a dead letter again.

        Raises:
            UnknownName, CallerError: its pack is gone, or takes no tasks; nothing was changed.
        """
        pack = self._taking(row.fixed.pack)
        self.tasks.replay(at, row, needs)
        self.terms.rouse(at, pack)
        self.terms.serve(at, pack)

    def drop_dead(self, row: TaskRow) -> None:
        """Removes a dead letter; it stays counted as dead."""
        pack = self.pack(row.fixed.pack)
        pack.dropped_dead += 1
        self.tasks.counts[pack.name][TaskState.DEAD] -= 1
        self.journal.packs[pack.name] = pack
        self.journal.removed_tasks.append(row.fixed.id)
