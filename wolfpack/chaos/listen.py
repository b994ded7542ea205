"""What the den says of itself, in order: when units woke, who leads, and when a term gave its first lease."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wolfpack.errors import WolfPackError
from wolfpack.events import AlphaCrowned, FirstLease, Recorded, UnitWoke

if TYPE_CHECKING:
    from wolfpack.pack import Den

AGAIN_S = 0.2


class Listener:
    """Follows the events of a den, from a thread of its own, and remembers what chaos must know of them."""

    def __init__(self, den: Den, pack: str) -> None:
        self._den, self._pack = den, pack
        self._woke: dict[tuple[str, int], float] = {}
        self._crowned: tuple[int, str, int] | None = None  # term, unit, boot
        self._first_leases: dict[int, float] = {}  # term -> when
        self._refused: dict[int, int] = {}  # keeper's epoch -> most refused writes seen of it
        self._cursor = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="wolfpack-chaos-events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _listen(self) -> None:
        while not self._stopped.is_set():
            try:
                for recorded in self._den.follow(self._cursor):
                    self.note(recorded)
                    if self._stopped.is_set():
                        return
                return
            except WolfPackError:  # the keeper was away for long; it is asked again
                time.sleep(AGAIN_S)

    def note(self, recorded: Recorded) -> None:
        self._cursor = recorded.number
        match recorded.event:
            case UnitWoke(unit=unit, boot=boot):
                self._woke[unit, boot] = recorded.at
            case AlphaCrowned(pack=self._pack, term=term, unit=unit, boot=boot):
                self._crowned = (term, unit, boot)
            case FirstLease(pack=self._pack, term=term):
                self._first_leases.setdefault(term, recorded.at)

    def woke_at(self, unit: str, boot: int) -> float | None:
        """When this boot of a unit said hello; None: not yet heard of."""
        return self._woke.get((unit, boot))

    def leader(self) -> tuple[int, str, int] | None:
        """Term, unit and boot of the alpha that hands out work; None while nobody is known to."""
        crowned = self._crowned
        return crowned if crowned is not None and crowned[0] in self._first_leases else None

    def led_again_at(self, term: int, since: float) -> float | None:
        """When a later term than this one gave its first lease, `since` a moment; None: not yet."""
        later = [at for each, at in list(self._first_leases.items()) if each > term and at >= since]
        return min(later, default=None)

    def note_stats(self, stats: Mapping[str, Any]) -> None:
        """Each keeper counts from nothing the writes that it refused: the most seen of each are added up."""
        epoch = stats["epoch"]
        self._refused[epoch] = max(self._refused.get(epoch, 0), stats["refused_writes"])

    @property
    def refused_writes(self) -> int:
        """Writes of deposed alphas that were refused; at least so many, if keepers were killed meanwhile."""
        return sum(self._refused.values())
