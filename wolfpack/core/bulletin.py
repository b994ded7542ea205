"""News that says nothing about who lives: loads, who is stalled, and who leads a pack. Layer two of the machine.

Load is told when it changed, at most every `load_s`, so that an idle den says nothing. An alpha is known by the latest
term heard; it is news for those who lead and follow, and no proof of anything.
"""

from __future__ import annotations

import math
from typing import Any

from wolfpack.core.beliefs import NEVER, Beliefs
from wolfpack.core.items import BUDGETS_MOST, NUMBER_MOST, AlphaRecord, Items, LoadRecord, StallVote, Writer
from wolfpack.core.membership_words import AlphaHeard, Load, Stalled

PACKS_MOST = 1024
LOAD_BYTES_MOST = 500
LOAD_UNITS = 500  # with more units each tells its load less often, or load would fill all packets


def check_load(load: Load) -> None:
    """Raises ValueError for a load that no packet carries: negative or huge numbers, too many or too long budgets."""
    counts = (load.leases, load.queued, load.capacity, load.progress)
    if not all(0 <= count < NUMBER_MOST for count in counts):
        raise ValueError(f"a load counts from 0 to 2**63 - 2, not {counts}")
    if len(load.budgets) > BUDGETS_MOST or not all(math.isfinite(left) for _, left in load.budgets):
        raise ValueError(f"a load has at most {BUDGETS_MOST} budgets, each a finite number")
    if not Writer(b"", LOAD_BYTES_MOST).load(LoadRecord("", 0, load)):
        raise ValueError(f"the names of a load's budgets take more than {LOAD_BYTES_MOST} bytes together")


class Bulletin(Beliefs):
    """Takes in whatever a packet or a sync carries, and tells the own load."""

    __slots__ = ("_load", "_load_at", "_load_told_at")

    def __init__(self, **known: Any) -> None:
        super().__init__(**known)
        self._load: Load | None = None
        self._load_at = NEVER
        self._load_told_at = -NEVER

    def _take_in(self, now: float, items: Items, source: str, *, synced: bool = False) -> None:
        for record in items.records:
            self._on_claim(now, record, source, synced)
        for bitmap in items.bitmaps:
            self._on_bitmap(now, bitmap, source, synced)
        for load in items.loads:
            self._on_load(now, load)
        for vote in items.votes:
            self._on_vote(now, vote)
        for alpha in items.alphas:
            self._on_alpha(now, alpha)

    def _on_load(self, now: float, record: LoadRecord) -> None:
        known = self.view.get(record.unit)
        if known is None or record.unit == self.me or known.boot != record.boot or not known.lives:
            return
        if self.loads.hear(now, record):
            self._news.loads.put(record.unit, record)
            self._wants_gossip(now)
            self._judge_stall(record.unit, record.boot)

    def _on_vote(self, now: float, vote: StallVote) -> None:
        behind = vote.unit == self.me and self._load is not None and vote.progress < self._load.progress
        if behind:  # they do not know yet how far I got
            self._load_at = min(self._load_at, max(now, self._load_told_at + self._load_gap()))
            return
        if self.loads.vote(vote):
            self._say_vote(now, vote)
            self._judge_stall(vote.unit, vote.boot)

    def _say_vote(self, now: float, vote: StallVote) -> None:
        self._news.votes.put(f"{vote.unit} {vote.witness}", vote)
        self._wants_gossip(now)

    def _judge_stall(self, unit: str, boot: int) -> None:
        verdict = self.loads.judge(unit)
        if verdict is not None:
            self._orders.append(Stalled(unit, boot, verdict))

    def _on_alpha(self, now: float, alpha: AlphaRecord) -> bool:
        known = self._alpha_table.get(alpha.pack)
        if known is not None and alpha.term <= known.term:
            return False
        if known is None and len(self._alpha_table) >= PACKS_MOST:
            self.counters["too_many_packs"] += 1
            return False
        self._alpha_table[alpha.pack] = alpha
        self._news.alphas.put(alpha.pack, alpha)
        self._wants_gossip(now)
        self._orders.append(AlphaHeard(*alpha))
        return True

    def _load_gap(self) -> float:
        return self.options.load_s * max(1.0, self.view.living / LOAD_UNITS)

    def _on_own_load(self, now: float, load: Load) -> None:
        check_load(load)
        before = self._load
        if before is not None and before == Load(
            before.seq, load.leases, load.queued, load.capacity, load.progress, load.budgets
        ):
            return
        self._load = Load(
            0 if before is None else before.seq, load.leases, load.queued, load.capacity, load.progress, load.budgets
        )
        self._load_at = min(self._load_at, max(now, self._load_told_at + self._load_gap()))
        if self._load_at <= now:
            self._tell_load(now)

    def _tell_load(self, now: float) -> None:
        self._load_at = NEVER
        load = self._load
        if load is None:
            return
        self._load_told_at = now
        self._load = Load(load.seq + 1, load.leases, load.queued, load.capacity, load.progress, load.budgets)
        record = LoadRecord(self.me, self.boot, self._load)
        self.loads.hear(now, record)
        self._judge_stall(self.me, self.boot)
        self._news.loads.put(self.me, record)
        self._wants_gossip(now)
