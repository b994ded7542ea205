"""Drivers of a den on virtual time: they submit until acknowledged, watch from a cursor, and look up what they missed.

A part of `World`, which knows the keeper and the network; see `den`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import msgpack

from wolfpack.core.book import Book, Instant
from wolfpack.core.book.intake import Keyed
from wolfpack.core.book.state import final_of_row
from wolfpack.core.wire import Final, Submit, SubmitItem
from wolfpack.errors import WolfPackError
from wolfpack.model import FINAL_STATES, Card, Offer

if TYPE_CHECKING:
    from wolfpack.sim.den import World

AGAIN_S = 0.05


def wolves(count: int, kind: str = "grey", tags: Iterable[str] = ("cpu",), **fields: Any) -> list[Card]:
    offer = fields.pop("offer", Offer(frozenset(tags)))
    return [Card(unit=f"{kind}-{no}", kind=kind, offer=offer, **fields) for no in range(count)]


def task(seconds: float = 0.0, *ends: str, **fields: Any) -> dict[str, Any]:
    """A task that runs so long; `ends` are how its attempts end, the last one for ever (`DONE` without any).

    A cause ends it so; `KILL` kills its unit. `fields` are those of `SubmitItem`, and `options` as a JSON text.
    """
    return {"seconds": seconds, "ends": ends or ("DONE",), **fields}


@dataclass
class Client:
    """A driver: submits until acknowledged, watches from a cursor, and looks up what it may have missed."""

    name: str
    counter: int = 0
    cursor: int = 0
    epoch: int = 0
    pending: set[str] = field(default_factory=set)
    finals: dict[str, Final] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    aliases: dict[str, str] = field(default_factory=dict)


class Clients:
    """The clients of a world."""

    clients: dict[str, Client]

    @property
    def _world(self) -> World:
        return cast("World", self)

    def client(self, name: str) -> Client:
        if name not in self.clients:
            client = self.clients[name] = Client(name)
            self._world.after(0.0, lambda: self._watch(client))
        return self.clients[name]

    def submit(self, pack: str, tasks: Sequence[dict[str, Any]], client: str = "c") -> list[str]:
        """Sends one batch and returns the ids at once; sent again until the keeper acknowledges it."""
        who = self.client(client)
        items, ids = [], []
        for one in tasks:
            who.counter += 1
            fields = {"key": None, "needs": None, "options": "{}", "delay_s": 0.0, "deadline_s": None, **one}
            body = msgpack.packb([fields.pop("seconds"), list(fields.pop("ends"))])
            fields.setdefault("digest", str(body))
            items.append(SubmitItem(counter=who.counter, fn="f", args=body, blob="", **fields))
            ids.append(f"{client}:{who.counter}")
        self._send(who, Submit(client, pack, tuple(items), (("f", b"code"),), 0), tuple(ids))
        return ids

    def _send(self, who: Client, batch: Submit, ids: Sequence[str]) -> None:
        def call(book: Book, at: Instant) -> Any:
            known = Keyed()
            asked, keys = book.tasks.unknown(batch)
            known.ids = {row.fixed.id: row for row in self._world.disk_rows(asked)}
            known.keys = {str(row.fixed.key): row for row in self._world.disk_keys(batch.pack, keys)}
            return book.submit(at, batch, known)

        def done(acks: Any) -> None:
            for mine, (verdict, task_id, final) in zip(ids, acks, strict=True):
                if verdict in ("queued", "joined", "final"):
                    who.acknowledged.add(task_id)
                    who.aliases[mine] = task_id
                    if task_id not in who.finals:
                        who.pending.add(task_id)
                    if final is not None:
                        self._settle(who, final)
                else:
                    who.refused[mine] = verdict

        def lost(why: Any) -> None:
            if isinstance(why, WolfPackError):
                who.refused.update(dict.fromkeys(ids, f"{type(why).__name__}: {why}"))
            else:
                self._world.after(AGAIN_S, lambda: self._send(who, batch, ids))

        self._world.ask_keeper(who.name, call, done, lost)

    def _settle(self, who: Client, final: Final) -> None:
        self._world.checks.on_final(who.name, final)
        who.finals[final.task_id] = final
        who.pending.discard(final.task_id)

    def _watch(self, who: Client) -> None:
        """A long poll for the ends of its tasks; the next one follows each answer."""

        def done(answer: Any) -> None:
            finals, gap, durable, epoch = answer
            for final in finals:
                self._settle(who, final)
                who.cursor = max(who.cursor, final.settle_no)
            if gap:
                who.cursor = max(who.cursor, durable)
            if gap or epoch != who.epoch:
                self._look(who, epoch)
            self._watch(who)

        self._world.watch(who.name, who.cursor, done, lambda _: self._world.after(AGAIN_S, lambda: self._watch(who)))

    def _look(self, who: Client, epoch: int) -> None:
        ids = sorted(who.pending)

        def call(book: Book, _: Instant) -> Any:
            return [each for each in ids if (found := book.tasks.join(who.name, each)) and not found.settle_no]

        def done(_: Any) -> None:
            for row in self._world.disk_rows(ids):
                if row.mutable.state in FINAL_STATES:
                    self._settle(who, final_of_row(row))
            who.epoch = epoch

        self._world.ask_keeper(who.name, call, done, lambda _: None)
