"""What one step of the book leaves behind: rows that changed, events, and what may leave once they are durable."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from wolfpack.core.book.state import Instant, Pack, Task, Unit
from wolfpack.core.rows import EventRow, GhostRow, Writes
from wolfpack.core.wire import Final, TurnReply
from wolfpack.events import encode

# --- orders to the driver: each is carried out after the commit that holds its reason ----------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateUnit:
    """Create the actor of this unit and boot."""

    unit: str
    boot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndUnit:
    """End the process of this boot, whatever it does."""

    unit: str
    boot: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskToLead:
    """Ask a member to claim the term of its pack."""

    unit: str
    boot: int
    pack: str
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summon:
    """Ask a free unit to join a pack, and to lead it if nobody does."""

    unit: str
    boot: int
    pack: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruct:
    """An operator's order to a unit: release, recall or sleep."""

    unit: str
    boot: int
    order: str
    grace_s: float
    reason: str


Order = CreateUnit | EndUnit | AskToLead | Summon | Instruct


class Answer(NamedTuple):
    """What a parked turn gets; without a reply its sender is deposed."""

    pack: str
    term: int
    seq: int
    reply: TurnReply | None


class Recent:
    """The latest finals of one client, so that its watch need not read the disk. A gap shows as `since`."""

    __slots__ = ("finals", "since")

    def __init__(self, since: int) -> None:
        self.since = since  # complete for settle numbers above this one
        self.finals: deque[Final] = deque()


RECENT_MOST = 20_000


@dataclass(slots=True)
class Journal:
    """Shared by the desks of one book; `take` empties it into one commit."""

    rng: random.Random
    tasks: dict[str, Task] = field(default_factory=dict)  # changed, by id
    new_tasks: list[Task] = field(default_factory=list)
    removed_tasks: list[str] = field(default_factory=list)
    functions: list[tuple[str, bytes]] = field(default_factory=list)
    units: dict[str, Unit] = field(default_factory=dict)
    packs: dict[str, Pack] = field(default_factory=dict)
    removed_packs: list[str] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    ghosts: list[GhostRow] = field(default_factory=list)
    meta: dict[str, str] = field(default_factory=dict)
    orders: list[Order] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    last_event_no: int = 0
    last_lease_no: int = 0
    last_settle_no: int = 0
    roster_version: int = 0
    commit_no: int = 0
    ghosts_counted: int = 0
    refused_writes: int = 0
    recent: dict[str, Recent] = field(default_factory=dict)

    def note_unit(self, unit: Unit) -> None:
        """The unit's row changed: it goes into the commit, and to every alpha."""
        self.roster_version += 1
        unit.version = self.roster_version
        self.units[unit.card.unit] = unit

    def publish(self, at: Instant, event: Any, producer: str = "keeper") -> None:
        name, fields = encode(event)
        self.publish_encoded(at, name, fields, producer)

    def publish_encoded(self, at: Instant, name: str, fields: str, producer: str) -> None:
        self.last_event_no += 1
        self.events.append(EventRow(self.last_event_no, at.wall, producer, name, fields))

    def note_final(self, task: Task) -> None:
        """Gives the settle number, and keeps the end for its client's watch."""
        self.last_settle_no += 1
        task.settle_no = self.last_settle_no
        self.tasks[task.fixed.id] = task
        self.note_final_for(task.fixed.client, task)

    def note_final_for(self, client: str, task: Task) -> None:
        recent = self.recent.get(client)
        if recent is None:
            recent = self.recent[client] = Recent(self.last_settle_no - 1)
        recent.finals.append(task.final())
        if len(recent.finals) > RECENT_MOST:
            recent.since = recent.finals.popleft().settle_no

    def note_ghost(self, at: Instant, lease_no: int, task_id: str, unit: str, boot: int, cause: str, why: str) -> None:
        self.ghosts_counted += 1
        self.ghosts.append(GhostRow(at.wall, lease_no, task_id, unit, boot, cause, why))

    def take(self) -> Writes:
        """Everything noted so far as one commit's writes; the journal is empty afterwards."""
        writes = Writes(
            new_tasks=[task.fixed for task in self.new_tasks],
            changed_tasks=[task.row() for task in self.tasks.values()],
            removed_tasks=self.removed_tasks,
            functions=self.functions,
            units=[unit.row() for unit in self.units.values()],
            packs=[pack.row() for pack in self.packs.values()],
            removed_packs=self.removed_packs,
            events=self.events,
            ghosts=self.ghosts,
            meta=self.meta,
        )
        self.new_tasks, self.tasks, self.removed_tasks, self.functions = [], {}, [], []
        self.units, self.packs, self.removed_packs = {}, {}, []
        self.events, self.ghosts, self.meta = [], [], {}
        return writes
