"""`python -m viz EVENTS FOLDER`: pictures from a file of events, without a den and without Ray.

Each line of EVENTS is a JSON object with number, at, producer, name and fields, as the ledger keeps an event. One SVG
for each change of leadership goes into FOLDER; those that are there already stay as they are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from viz.recorder import render_since
from wolfpack.events import Recorded, decode, encode


def write_events(events: Iterable[Recorded], path: str | Path) -> None:
    """Writes events in the form that `read_events` takes."""
    lines = []
    for item in events:
        name, fields = encode(item.event)
        row = {"number": item.number, "at": item.at, "producer": item.producer, "name": name}
        lines.append(json.dumps({**row, "fields": json.loads(fields)}))
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_events(path: str | Path) -> list[Recorded]:
    """The events of a file, in its order."""
    events = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        event = decode(row["name"], json.dumps(row["fields"]))
        events.append(Recorded(number=row["number"], at=row["at"], producer=row["producer"], event=event))
    return events


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2:
        print("Usage: python -m viz EVENTS FOLDER", file=sys.stderr)
        return 2
    for path in render_since(read_events(arguments[0]), arguments[1], suffixes=[".svg"]):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
