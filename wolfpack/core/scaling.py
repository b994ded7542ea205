"""How many members a pack should have, and how many leases one of them should hold.

The wish comes from work, not from counts of reserved slots: a sub-pack with `n` tasks of `service_s` each has
`n * service_s` of work, and needs so many members that this is done within the pack's `drain_target_s`. While the time
of a task is unknown each runnable task gets its own member, for a burst must not wait until something was measured.
More members than runnable tasks would only stand about, except for the pack's minimum.

Growing and shrinking differ, because a late member costs waiting and an early farewell costs a wake: `Scaler` grows at
once and by all that is missing, and shrinks only after the lower wish has held for `shrink_hold_s`. The first half of
that time belongs to the queue, which runs empty in steps; the highest wish of the second half is what the pack shrinks
to. So a load that goes up and down like a square wave changes the size at most once in each of its halves. What the
hold keeps are members that are there: it never asks for new ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from wolfpack.model import Needs, PackSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The work of one sub-pack, as the ledger counts it."""

    # Queued tasks that are due now; those that wait for their `not_before` do not count.
    queued_runnable: int = 0
    leased: int = 0
    # Mean seconds from start to end of such a task; None: nothing measured yet.
    service_s: float | None = None
    # How long the oldest runnable task has been due.
    oldest_wait_s: float = 0.0
    # Tasks that one member runs at a time.
    concurrency: int = 1

    @property
    def runnable(self) -> int:
        return max(0, self.queued_runnable) + max(0, self.leased)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many members a pack should have, and why. `by_needs` says what the work asks for; `size` may be larger while
    members that the work no longer asks for are kept for a moment."""

    size: int
    reason: str
    by_needs: Mapping[Needs, int] = field(default_factory=dict)


def members_needed(demand: Demand, drain_target_s: float, rate_per_s: float | None = None) -> int:
    """Members that empty one sub-pack's queue within `drain_target_s`, whatever the pack's limits.

    ceil(runnable * service_s / drain_target_s / concurrency), at least one and at most one a task. By Little's law a
    pack whose rate is limited to `rate_per_s` keeps no more than rate_per_s * service_s tasks running.
    """
    slots = max(1, demand.concurrency)
    most = math.ceil(demand.runnable / slots)
    service_s = known_service_s(demand.service_s)
    if most == 0 or service_s is None:
        return most
    if rate_per_s is not None and rate_per_s >= 0:
        most = min(most, max(1, _ceil(rate_per_s * service_s / slots, most)))
    if not drain_target_s > 0:
        return most
    return min(most, max(1, _ceil(demand.runnable * service_s / drain_target_s / slots, most)))


def desired_size(*, demands: Mapping[Needs, Demand], spec: PackSpec, now_members: int) -> Size:
    """The size that the present work asks for, within the pack's limits; without memory, so it may swing.

    Where the limit cuts, each sub-pack gets one member while there is room, longest wait first, and the rest is shared
    in proportion to what each asked for.
    """
    most = max(0, spec.most)
    fewest = min(max(0, spec.fewest), most)
    wishes = {
        needs: members_needed(demand, spec.drain_target_s, spec.rate_per_s)
        for needs, demand in demands.items()
        if demand.runnable
    }
    asked = sum(wishes.values())
    by_needs = dict(wishes) if asked <= most else _share(wishes, demands, most)
    size = sum(by_needs.values())
    if size < fewest:
        by_needs[spec.needs] = by_needs.get(spec.needs, 0) + fewest - size
        size = fewest
    return Size(size=size, reason=_reason(demands, spec, asked, size, now_members), by_needs=by_needs)


def shrink_hold_s(spec: PackSpec) -> float:
    """How long a lower wish must hold before a pack shrinks: twice the time its queue may take, at least one second."""
    hold_s = 2.0 * spec.drain_target_s
    return max(hold_s, 1.0) if math.isfinite(hold_s) else 1.0


class Scaler:
    """Remembers the size of one pack from step to step: up at once, down with patience."""

    def __init__(self, size: int = 0) -> None:
        self.size = max(0, size)
        self._lower_since: float | None = None
        self._lower_peak = 0

    def step(self, now: float, *, demands: Mapping[Needs, Demand], spec: PackSpec, now_members: int) -> Size:
        """The size to aim at.

        Args:
            now: seconds on any clock that does not jump.
            now_members: members that are there; the hold keeps at most these.
        """
        wish = desired_size(demands=demands, spec=spec, now_members=now_members)
        kept = min(self.size, max(0, now_members), max(0, spec.most))
        if wish.size >= kept:
            return self._become(wish)
        hold_s = shrink_hold_s(spec)
        if self._lower_since is None:
            self._lower_since, self._lower_peak = now, 0
        held_s = now - self._lower_since
        if held_s >= hold_s / 2:
            self._lower_peak = max(self._lower_peak, wish.size)
        if held_s >= hold_s:
            peak = self._lower_peak
            reason = f"{wish.reason} It shrinks from {kept} to {peak}, enough for the last {hold_s / 2:.1f} s."
            return self._become(Size(size=peak, reason=reason, by_needs=wish.by_needs))
        self.size = kept
        reason = f"{wish.reason} {kept} are kept for {hold_s - held_s:.1f} s more, in case work comes back."
        return Size(size=kept, reason=reason, by_needs=wish.by_needs)

    def _become(self, size: Size) -> Size:
        self.size, self._lower_since = size.size, None
        return size


def fair_prefetch(
    *,
    queued: int,
    members: int,
    concurrency: int,
    service_s: float | None,
    lookahead_s: float = 0.2,
    cap: int = 2000,
) -> int:
    """How many leases one unit should hold, running and waiting together.

    Enough work for `lookahead_s`, so that short tasks need few messages, but never above the unit's fair share of the
    queue, so that a task does not wait at one unit while another is idle, nor above `cap`. While the time of a task is
    unknown, and always at least: what it can run at once.
    """
    slots = max(1, concurrency)
    known_s = known_service_s(service_s)
    if known_s is None:
        return slots
    ahead = _ceil(lookahead_s / known_s, cap) * slots if known_s > 0 else cap
    fair = math.ceil(max(0, queued) / max(1, members))
    return max(slots, min(ahead, fair, cap))


def known_service_s(service_s: float | None) -> float | None:
    """The time of a task, if it is one; nonsense counts as not measured."""
    if service_s is None or not math.isfinite(service_s) or service_s < 0:
        return None
    return service_s


def _ceil(value: float, most: int) -> int:
    """`ceil`, for quotients that may be infinite. A hair above a whole number is that number: 0.3 / 0.1 is 3."""
    return math.ceil(value - 1e-9) if value < most else most


def _share(wishes: Mapping[Needs, int], demands: Mapping[Needs, Demand], most: int) -> dict[Needs, int]:
    """`most` members among sub-packs that ask for more: one each, longest wait first, then the largest remainders."""
    order = sorted(wishes, key=lambda needs: (-demands[needs].oldest_wait_s, str(needs)))
    shares = dict.fromkeys(order[:most], 1)
    room = most - len(shares)
    if room > 0:
        left = {needs: wishes[needs] - 1 for needs in order}
        total = sum(left.values())
        for needs in order:
            shares[needs] += left[needs] * room // total
        rest = most - sum(shares.values())
        for needs in sorted(order, key=lambda needs: (-(left[needs] * room % total), str(needs)))[:rest]:
            shares[needs] += 1
    return shares


def _reason(demands: Mapping[Needs, Demand], spec: PackSpec, asked: int, size: int, now_members: int) -> str:
    parts = []
    for needs, demand in sorted(demands.items(), key=lambda item: str(item[0])):
        if not demand.runnable:
            continue
        tasks = f"{demand.runnable} task{'s' * (demand.runnable != 1)} for {needs}"
        service_s = known_service_s(demand.service_s)
        if service_s is None:
            parts.append(f"{tasks} of unknown length")
        else:
            parts.append(f"{tasks} of {service_s:.3g} s, to be done in {spec.drain_target_s:g} s")
    work = "; ".join(parts) or "no runnable task"
    if asked > size:
        limit = f", {asked} would be better but the pack's most is {spec.most}"
    elif asked < size:
        limit = f", the pack's fewest (the work needs {asked})"
    else:
        limit = ""
    return f"{size} wanted{limit}, {now_members} there: {work}."
