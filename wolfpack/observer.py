"""Observers of a den's events: each has its own thread and cursor, so that a slow or failing one holds up nobody."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from wolfpack.errors import DenClosed
from wolfpack.events import Recorded, decode

if TYPE_CHECKING:
    from wolfpack.den.gateway import Gateway  # brings Ray

log = logging.getLogger("wolfpack.den")

SLOW_HANDLER_S = 0.05
PORTION = 1000


def read_events(gateway: Gateway, since: int) -> list[Recorded]:
    """Every event after this number, in order."""
    found: list[Recorded] = []
    while rows := gateway.call("events_since", since, PORTION, False):
        found += map(recorded, rows)
        since = found[-1].number
    return found


def follow(gateway: Gateway, since: int) -> Iterator[Recorded]:
    """Every event after this number, and then each new one when it comes, until the den ends."""
    while True:
        try:
            rows = gateway.call("events_since", since, PORTION, True, patience_s=120.0)
        except DenClosed:
            return
        for row in rows:
            since = row[0]
            yield recorded(row)


def recorded(row: tuple[Any, ...]) -> Recorded:
    number, at, producer, name, fields = row
    return Recorded(number=number, at=at, producer=producer, event=decode(name, fields))


class Observer:
    """Calls a handler for each event of a class, or with every record, from a number on.

    Args:
        kind: the class of events; None: the handler gets every `Recorded`, and may be slow.
        since: the number of the last event it does not want.
    """

    def __init__(
        self, gateway: Gateway, kind: type[Any] | None, handler: Callable[[Any], None], since: int, name: str
    ) -> None:
        self._gateway, self._kind, self._handler = gateway, kind, handler
        self.cursor = since
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._observe, name=f"wolfpack-{name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def catch_up(self, number: int, patience_s: float) -> None:
        """Waits until the event with this number was handled."""
        end = time.monotonic() + patience_s
        while self.cursor < number and self._thread.is_alive() and time.monotonic() < end:
            time.sleep(0.01)

    def join(self) -> None:
        self._stop.set()
        if self._thread is not threading.current_thread():  # a handler may close the den
            self._thread.join(6.0)

    def _observe(self) -> None:
        while not self._stop.is_set():
            try:
                for each in follow(self._gateway, self.cursor):
                    if self._stop.is_set():
                        return
                    self._handle(each)
                    self.cursor = each.number
                return
            except Exception:
                if self._gateway.is_closed:
                    return
                log.exception("Reading events failed; it goes on.")
                time.sleep(0.2)

    def _handle(self, each: Recorded) -> None:
        if self._kind is not None and not isinstance(each.event, self._kind):
            return
        began = time.monotonic()
        try:
            self._handler(each if self._kind is None else each.event)
        except Exception:
            log.exception("A handler of %s failed.", type(each.event).__name__)
        took_s = time.monotonic() - began
        if self._kind is not None and took_s > SLOW_HANDLER_S:
            log.warning("A handler of %s took %.0f ms.", type(each.event).__name__, took_s * 1000)
