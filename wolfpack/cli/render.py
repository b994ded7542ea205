"""What people see: tables, times, events and summaries as text; one progress line on long work.

Text for a terminal is cut to its width; into a file or a pipe everything goes out whole.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from wolfpack.events import Recorded
    from wolfpack.model import UnitSeen

PLAIN_EVERY_S = 5.0  # a line of progress where there is no terminal
BAR_WIDTH = 20
HEALTH_LEGEND = (
    "thought: what the awake units think of it, and how many think so",
    "leases: tasks in hand, of which queued have not started; capacity: how many it runs at once",
    "progress: tasks that it ended and calls of progress(), since it was born; stalled: how many saw it stand still",
)
# Unicode categories: control, format, surrogate, line and paragraph separator.
_UNSHOWN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def print_json(value: Any) -> None:
    """One JSON value on standard output; what JSON does not know is printed as text."""
    click.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None, default=_plain))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    return str(value)


def counted(number: int, what: str) -> str:
    """`1 unit`, `2 units`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def columns() -> int | None:
    """The width of the terminal; None where standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def printable(text: str) -> str:
    """The text without what moves a cursor, turns the writing round, or no terminal can show: others wrote it."""
    if text.isprintable():
        return text
    return "".join("\ufffd" if unicodedata.category(c) in _UNSHOWN and c not in "\n\t" else c for c in text)


def cut(text: str, width: int | None) -> str:
    text = printable(text)
    return text if width is None or len(text) <= width else text[: max(width - 1, 0)] + "…"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], width: int | None) -> str:
    """Rows under their head; numbers stand right, columns without any value are left out."""
    cells = [["-" if value is None else str(value) for value in row] for row in rows]
    used = [place for place in range(len(head)) if any(row[place] not in ("", "-") for row in cells)]
    numbers = {
        place for place in used if all(row[place].replace(".", "", 1).isdigit() or row[place] == "-" for row in cells)
    }
    wide = {place: max(len(head[place]), *(len(row[place]) for row in cells)) for place in used}

    def line(row: Sequence[str]) -> str:
        words = (row[each].rjust(wide[each]) if each in numbers else row[each].ljust(wide[each]) for each in used)
        return cut("  ".join(words).rstrip(), width)

    return "\n".join(map(line, [list(head), *cells]))


def seconds_text(seconds: float) -> str:
    """`4.2 s`, `3 min`, `5 h`, `2 d`."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def clock(at: float) -> str:
    """Local time of day with milliseconds; of what is no time of this world, its number."""
    try:
        return f"{time.strftime('%H:%M:%S', time.localtime(at))}.{int(at % 1 * 1000):03d}"
    except (ValueError, OverflowError, OSError):
        return str(at)


# --- a den --------------------------------------------------------------------------------------------------------


def status_text(facts: Mapping[str, Any], now: float, width: int | None) -> str:
    """What `wolfpack status` prints."""
    owner = f", owner process {facts['pid']}" if facts.get("pid") else ""
    since = f", up for {seconds_text(now - facts['started_at'])}" if facts.get("started_at") else ""
    units = facts["units"]
    awake = sum(1 for unit in units if unit["readiness"] == "awake")
    lines = [
        f"den {facts['den']}{since}, Ray at {facts['address']}{owner}, keeper epoch {facts['epoch']}",
        f"tasks: {facts['submitted']} submitted = {facts['done']} done + {facts['dead']} dead + "
        f"{facts['cancelled']} cancelled + {facts['queued']} queued + {facts['leased']} leased"
        + ("" if facts["conservation"] else "  (THEY DO NOT ADD UP)"),
        f"units: {awake} of {len(units)} awake",
        "",
    ]
    packs = facts["packs"].items()
    lines += [
        table(
            ("pack", "size", "members", "alpha", "term", "queued", "leased", "done", "dead", "cancelled"),
            [
                (
                    name, "-".join(map(str, pack["size"])), pack["members"], pack["alpha"], pack["term"],
                    pack["queued"], pack["leased"], pack["done"], pack["dead"], pack["cancelled"],
                )
                for name, pack in packs
            ],
            width,
        ),
        *(cut(f"  {name}: {reason}", width) for name, pack in packs for reason in pack["plan"]),
        "",
        table(
            ("unit", "nature", "readiness", "role", "pack", "leases", "pid", "offers", "why"),
            [
                (
                    unit["id"], unit["nature"], unit["readiness"], unit["role"], unit["pack"], unit["leases"],
                    unit["pid"], unit["offers"], unit["reason"],
                )
                for unit in units
            ],
            width,
        ),
    ]  # fmt: skip
    if "health" in facts:
        lines += ["", health_text(facts["health"], width)]
    return "\n".join(lines)


def health_text(views: Mapping[str, Sequence[UnitSeen] | None], width: int | None) -> str:
    """What all awake units think of each: how many think so, and what the unit says of itself, as the newest has it."""
    from wolfpack.model import natural_key

    seen: dict[str, list[UnitSeen]] = {}
    for view in views.values():
        for each in view or ():
            seen.setdefault(each.unit, []).append(each)
    rows = []
    for unit in sorted(seen, key=natural_key):
        boot = max(each.boot for each in seen[unit])
        newest = [each for each in seen[unit] if each.boot == boot]
        thought = Counter(each.status for each in newest)
        load = max(newest, key=lambda each: -1 if each.progress is None else each.progress)
        rows.append(
            (
                unit, boot, ", ".join(f"{status} ({number})" for status, number in thought.most_common()),
                load.leases, load.queued, load.capacity, load.progress,
                sum(each.stalled for each in newest) or None,
            )
        )  # fmt: skip
    silent = sorted((unit for unit, view in views.items() if view is None), key=natural_key)
    lines = [
        f"health: {counted(len(views) - len(silent), 'view')}"
        + "".join(f"; {unit} does not answer" for unit in silent),
        table(("unit", "boot", "thought", "leases", "queued", "capacity", "progress", "stalled"), rows, width),
        *HEALTH_LEGEND,
    ]
    return "\n".join(lines)


# --- events -------------------------------------------------------------------------------------------------------


def event_fields(recorded: Recorded) -> dict[str, Any]:
    """An event for a program: as `python -m viz` reads it."""
    from wolfpack.errors import CallerError
    from wolfpack.events import UnknownEvent, encode

    if isinstance(recorded.event, UnknownEvent):
        name, plain = recorded.event.name, recorded.event.fields
    else:
        try:
            name, fields = encode(recorded.event)
            plain = json.loads(fields)
        except CallerError:  # a number that is none, in a ledger that others wrote
            name, plain = type(recorded.event).__name__, {"unreadable": repr(recorded.event)}
    return {
        "number": recorded.number, "at": recorded.at, "producer": recorded.producer, "name": name, "fields": plain,
    }  # fmt: skip


def event_text(recorded: Recorded, width: int | None) -> str:
    """An event for a person: number, time, what happened, to whom, and last why."""
    row = event_fields(recorded)
    fields = dict(row["fields"])
    reason = fields.pop("reason", "")
    words = " ".join(f"{name}={_word(value)}" for name, value in fields.items() if value not in (None, "", []))
    text = f"{row['number']:>5} {clock(row['at'])} {row['name'].rpartition(':')[2]:<15} {words}"
    return cut(f"{text}  {reason}".rstrip(), width)


def _word(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


# --- a job --------------------------------------------------------------------------------------------------------

_TOLD = ("files", "submitted", "done", "dead", "cancelled")


def summary_text(summary: Any, width: int | None) -> str:
    """What a job returned, for a person. The keys of a measured run get words of their own, all others a line."""
    if not isinstance(summary, Mapping):
        return "" if summary is None else repr(summary)
    left = dict(summary)
    lines = []
    if {"submitted", "done", "dead"} <= left.keys():
        counts = ", ".join(f"{left.pop(name)} {name}" for name in _TOLD if name in left)
        speed = f" in {left.pop('seconds'):.1f} s" if "seconds" in left else ""
        speed += f" ({left.pop('tasks_per_s'):g} tasks a second)" if "tasks_per_s" in left else ""
        lines.append(counts + speed)
    for name, value in left.items():
        match name, value:
            case "alphas", [*alphas]:
                led = ", ".join(f"{each['unit']} in term {each['term']} at {each['at_s']:.1f} s" for each in alphas)
                lines.append(f"led by: {led or 'nobody'}")
            case "killed", [*kills]:
                lines += [f"killed: {each['unit']} (process {each['pid']}) at {each['at_s']:.1f} s" for each in kills]
            case "failovers_s", [*times]:
                lines += [f"failover: {each:.2f} s to the next lease" for each in times]
            case "units", {"peak": peak, "unit_seconds": unit_seconds}:
                lines.append(f"units: {peak} at most, {unit_seconds:.1f} unit seconds")
            case "worst", [dict(first), *_] as rows:
                lines += ["", table(list(first), [list(each.values()) for each in rows], width), ""]
            case "graphs", [*paths]:
                lines += [f"graphs: {counted(len(paths), 'picture')}, the last is {paths[-1]}"] if paths else []
            case "conservation", bool(fine):
                lines.append("every task is accounted for" if fine else "THE LEDGER'S COUNT OF TASKS DOES NOT ADD UP")
            case "notes", [*notes]:
                lines += [f"note: {each}" for each in notes]
            case _:
                lines.append(
                    cut(f"{name}: {value if isinstance(value, str) else json.dumps(value, default=_plain)}", width)
                )
    return "\n".join(lines)


class Progress:
    """Progress on standard error: one line that is written over in a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._lock = threading.RLock()  # notes come from another thread
        self._line = ""
        self._told_at = time.monotonic()
        self._told = ""

    def __call__(self, settled: int, total: int, text: str) -> None:
        share = settled / total if total else 1.0
        line = f"{settled}/{total} {share:4.0%} {text}"
        with self._lock:
            if self._is_terminal:
                full = round(share * BAR_WIDTH)
                bar = "█" * full + "░" * (BAR_WIDTH - full)
                line = cut(f"{bar} {line}", shutil.get_terminal_size().columns - 1)
                if line != self._line:
                    self._line = line
                    self._write(f"\r{line}\x1b[K")
            elif time.monotonic() - self._told_at >= PLAIN_EVERY_S or (settled == total and line != self._told):
                self._told_at, self._told = time.monotonic(), line
                self._write(f"{line}\n")

    def note(self, text: str) -> None:
        """A sentence that stays, above the line."""
        with self._lock:
            self._write(f"\r\x1b[K{text}\n{self._line}" if self._line else f"{text}\n")

    def close(self) -> None:
        """Ends the line, so that what follows starts on its own."""
        with self._lock:
            if self._line:
                self._write("\n")
            self._line = ""

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
