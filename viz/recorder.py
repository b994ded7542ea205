"""Pictures as they happen: one at each change of leadership, in the order of events.

`GraphRecorder` is a handler of the den's events. It keeps the state of the den, and at each `AlphaCrowned` and
`AlphaDeposed` writes a picture whose name sorts by event number: `00000042-computing-term3.svg`, and the same as PNG.
The same event always gives the same name, so pictures that are there already are not drawn again, and
`render_since` makes up the missing ones from the ledger's events.

A picture is never worth a failure: whatever goes wrong is logged under `wolfpack.viz`, and the next one is tried.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from pathlib import Path

from viz.graph import graph_of
from viz.state import DenView, fold
from wolfpack.events import AlphaCrowned, AlphaDeposed, Recorded

log = logging.getLogger("wolfpack.viz")

SUFFIXES = (".svg", ".png")


class GraphRecorder:
    """Writes a picture at each change of leadership.

    Args:
        folder: where the pictures go; made when the first is written.
        den: name of the den, for the title until an event tells it.
        since: events up to this number are only taken in, not drawn.
        suffixes: the kinds of picture to write.
    """

    def __init__(
        self, folder: str | Path, den: str = "", *, since: int = 0, suffixes: Iterable[str] = SUFFIXES
    ) -> None:
        self.folder = Path(folder)
        self.view = DenView(den=den)
        self.paths: list[Path] = []
        self._since = since
        self._suffixes = tuple(suffixes)

    def __call__(self, recorded: Recorded) -> None:
        """Takes the next event; never raises. An event that was seen already is ignored."""
        if recorded.number <= self.view.number:
            return
        try:
            self.view.apply(recorded)
            if recorded.number > self._since and isinstance(recorded.event, AlphaCrowned | AlphaDeposed):
                self._render(recorded.number, recorded.event)
        except Exception as exc:
            log.warning(
                "The picture of event %d could not be made: %s: %s. The pack is not affected; "
                "`wolfpack graph --since %d` makes it up later.",
                recorded.number, type(exc).__name__, exc, recorded.number - 1,
                extra={"event_number": recorded.number, "folder": str(self.folder)},
            )  # fmt: skip

    def _render(self, number: int, event: AlphaCrowned | AlphaDeposed) -> None:
        from viz.draw import render

        graph = graph_of(self.view)
        pack = re.sub(r"[^\w.-]", "_", event.pack)[:80]
        for suffix in self._suffixes:
            path = self.folder / f"{number:08d}-{pack}-term{event.term}{suffix}"
            if not path.exists():
                self.paths.append(render(graph, path))


def render_since(
    events: Iterable[Recorded], folder: str | Path, since: int = 0, *, den: str = "", suffixes: Iterable[str] = SUFFIXES
) -> list[Path]:
    """Makes up the pictures that are missing after event number `since`, and returns their paths.

    Args:
        events: from the first that is kept, in order: a picture needs what happened before it.
    """
    recorder = GraphRecorder(folder, den, since=since, suffixes=suffixes)
    for recorded in events:
        recorder(recorded)
    return recorder.paths


def render_now(
    events: Iterable[Recorded],
    path: str | Path,
    *,
    at: float | None = None,
    size: tuple[float, float] | None = None,
) -> Path:
    """Draws the den as it is after these events.

    Args:
        at: wall-clock seconds to show as the time; None: those of the last event.

    Raises:
        ValueError, OSError: as `viz.draw.render`.
    """
    from viz.draw import render

    return render(graph_of(fold(events), at=at), path, size=size)
