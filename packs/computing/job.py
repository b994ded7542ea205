"""The job `measure_sources`: one task for each Python file of a folder, and a table of the results.

It is also the yardstick of the pack: the load can follow a real day, the alpha can be killed half-way, and the summary
tells what that cost. The table itself holds no times and no names of units, so two runs over the same files give the
same bytes, whatever happened on the way.

A run has an id, and a task's key is `run:path`. A second run has another id and does its work again; `resume` with the
id of an interrupted one finds the same tasks in the ledger: what is done is not done again, and the rest goes on.

One thread submits when tasks fall due, takes finished ones from a queue that the futures' callbacks fill, and looks at
the clock for the rest. Ctrl-C is not caught here: it is the caller's to decide what happens to the tasks.
"""

from __future__ import annotations

import math
import os
import queue
import secrets
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import wolfpack
from packs.computing import story
from packs.computing.alpha import NotOurs, signal_alpha
from packs.computing.load import SCHEDULES
from packs.computing.measure import measure_file, shown
from packs.computing.sources import find_sources, worst_functions, write_table

# Submitted in one go before finished tasks are looked at again.
SUBMIT_AT_ONCE = 256
LOOK_EVERY_S = 0.1

Progress = Callable[[int, int, str], None]


@dataclass(slots=True)
class Run:
    """One pass over the files: what is out, what came back."""

    pack: wolfpack.Pack
    run: str
    root: str
    paths: list[str]
    offsets: list[float]
    progress: Progress | None = None
    kill_at: int | None = None  # when so many are settled the alpha is killed
    kill_after: float = 0.0  # not tried again before, by the monotonic clock
    not_killed: str = "the pack had none from that moment to the end of the run"
    kills: list[story.Kill] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rows: list[dict[str, Any] | None] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("submitted", "done", "dead", "cancelled"), 0))
    finished: queue.SimpleQueue[tuple[int, Future[Any]]] = field(default_factory=queue.SimpleQueue)

    @property
    def settled(self) -> int:
        return self.counts["done"] + self.counts["dead"] + self.counts["cancelled"]

    def work(self) -> float:
        """Submits all files on schedule and waits until all are settled; returns the seconds it took."""
        self.rows = [None] * len(self.paths)
        began = time.monotonic()
        shown_at = -math.inf
        while self.settled < len(self.paths):
            self.submit_due(time.monotonic() - began)
            self.take_finished(self.pause(time.monotonic() - began))
            self.maybe_kill()
            if self.progress and time.monotonic() - shown_at >= LOOK_EVERY_S:
                shown_at = time.monotonic()
                self.progress(self.settled, len(self.paths), self.text())
        seconds = time.monotonic() - began
        if self.progress:
            self.progress(self.settled, len(self.paths), self.text())
        return seconds

    def submit_due(self, now_s: float) -> None:
        for _ in range(SUBMIT_AT_ONCE):
            index = self.counts["submitted"]
            if index == len(self.paths) or self.offsets[index] > now_s:
                return
            path = self.paths[index]
            future = self.pack.options(key=f"{self.run}:{shown(path)}").submit(measure_file, path, self.root)
            self.counts["submitted"] += 1
            future.add_done_callback(lambda done, index=index: self.finished.put((index, done)))

    def pause(self, now_s: float) -> float:
        """How long there is nothing to submit, at most `LOOK_EVERY_S`."""
        index = self.counts["submitted"]
        if index == len(self.paths):
            return LOOK_EVERY_S
        return min(max(self.offsets[index] - now_s, 0.0), LOOK_EVERY_S)

    def take_finished(self, wait_s: float) -> None:
        try:
            self.settle(*(self.finished.get(timeout=wait_s) if wait_s > 0 else self.finished.get_nowait()))
            while True:
                self.settle(*self.finished.get_nowait())
        except queue.Empty:
            return

    def settle(self, index: int, future: Future[Any]) -> None:
        """One row for the table, whatever became of the task.

        Raises:
            wolfpack.WolfPackError: the task was not even run: the den, its ledger or the submit is in trouble.
        """
        nothing = {"path": shown(self.paths[index]), "error": ""}
        if future.cancelled():
            self.counts["cancelled"] += 1
            self.rows[index] = {**nothing, "cause": "CANCELLED"}
            return
        match future.exception():
            case None:
                self.counts["done"] += 1
                self.rows[index] = {**future.result(), "cause": ""}
            case wolfpack.TaskError() as exc:
                # The text of a TaskError tells of units and leases; the table must not depend on them.
                self.counts["dead"] += 1
                self.rows[index] = {**nothing, "cause": str(exc.cause), "error": type(exc).__name__}
            case wolfpack.WolfPackError() as exc:
                raise exc
            case exc:
                self.counts["dead"] += 1
                text = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
                self.rows[index] = {**nothing, "cause": "FAULT", "error": f"{type(exc).__name__}: {text}"}

    def maybe_kill(self) -> None:
        if self.kill_at is None or self.settled < self.kill_at or self.settled == len(self.paths):
            return
        if time.monotonic() < self.kill_after:
            return
        self.kill_after = time.monotonic() + LOOK_EVERY_S
        try:
            kill = signal_alpha(self.pack)
        except NotOurs as exc:
            self.not_killed = str(exc)
            return
        if kill is not None:
            self.kills.append(kill)
            self.kill_at = None

    def text(self) -> str:
        died = f", {self.counts['dead']} dead" if self.counts["dead"] else ""
        killed = f", alpha {self.kills[-1].unit} killed" if self.kills else ""
        return f"{self.counts['submitted']} submitted, {self.counts['done']} done{died}{killed}"


def measure_sources(
    pack: wolfpack.Pack,
    *,
    input: str | os.PathLike[str] | None = None,  # noqa: A002 - the name of the command's option
    limit: int | None = None,
    load: str = "burst",
    kill_alpha_at: float | None = None,
    graphs: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: str | None = None,
    json: bool = False,
    _progress: Progress | None = None,
    _run: str | None = None,
) -> dict[str, Any]:
    """Measures every Python file of a folder, one task a file, and writes one CSV row a file, sorted by path.

    Args:
        pack: the pack that does the work. Its units must see the same folder.
        input: the folder; without it the running interpreter's standard library, without third-party packages.
        limit: only the first that many files, in the order of their paths.
        load: when tasks arrive: `burst` all at once, `steady` over 60 s, `trace` like a real day in 60 s (`load.py`).
        kill_alpha_at: when this fraction of the tasks is settled (above 0, below 1), the process of the pack's alpha is
            killed. On this machine only.
        graphs: a folder for pictures of the pack's leadership; one of the whole run is added at the end.
        out: the CSV file; `out/sources.csv` without it. Its folder is made.
        resume: the id of an interrupted run, to finish it.
        json: the caller prints the summary as JSON on standard output, so the run's id goes to standard error.
        _progress: called with (settled, all, text) a few times a second.
        _run: the id of this run, if the caller wants to know it before the end; a new one without it.

    Returns:
        `run`; `files`, `submitted`, `done`, `dead`, `cancelled` (of this run); `seconds`, `tasks_per_s`; `alphas` (each
        `{pack, term, unit, at_s}`, the one that led at the start first); `killed`; `failovers_s`; `units` (`peak`,
        `unit_seconds`); `worst` (the ten most branched functions); `out`, `graphs` (paths); `conservation` (whether the
        ledger's count of tasks adds up); `notes` (what a person should know).

    Raises:
        wolfpack.CallerError: an option makes no sense, or the folder has no Python files.
        OSError: the folder or the table cannot be used.
    """
    if load not in SCHEDULES:
        raise wolfpack.CallerError(f"There is no load {load!r}. Existing: {', '.join(SCHEDULES)}.")
    if limit is not None and (limit := int(limit)) < 1:
        raise wolfpack.CallerError(f"limit must be at least 1, not {limit}.")
    if kill_alpha_at is not None and not 0 < (kill_alpha_at := float(kill_alpha_at)) < 1:
        raise wolfpack.CallerError(f"kill_alpha_at is a fraction above 0 and below 1, not {kill_alpha_at}.")
    sources = find_sources(input, limit)
    if not sources.paths:
        raise wolfpack.CallerError(f"{sources.root} has no Python files (*.py); name another folder.")

    den = pack.den
    files = len(sources.paths)
    run = resume or _run or f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    print(
        f"run {run}: {'resumes, ' if resume else ''}{files} files of {sources.root}",
        file=sys.stderr if json else sys.stdout,
        flush=True,
    )
    pictures = _pictures(graphs)
    events = story.read_events(den, 0)
    since = events[-1].number if events else 0
    before = den.stats()["packs"][pack.name]
    members = [unit.id for unit in den.units() if unit.pack == pack.name]
    began_at = time.time()

    work = Run(
        pack=pack,
        run=run,
        root=sources.root,
        paths=sources.paths,
        offsets=SCHEDULES[load](files),
        progress=_progress,
        kill_at=None if kill_alpha_at is None else max(1, math.ceil(kill_alpha_at * files)),
        notes=[f"not listed: {folder}" for folder in sources.unread],
    )
    seconds = work.work()
    rows = [row for row in work.rows if row is not None]
    table = write_table(out or os.path.join("out", "sources.csv"), rows)

    events = story.read_events(den, since)
    crowned = story.alphas(events, pack.name, began_at)
    if before.get("alpha"):
        first = {"pack": pack.name, "term": before["term"], "unit": before["alpha"], "at_s": 0.0}
        crowned.insert(0, first)
    size = story.size(events, pack.name, members, began_at, began_at + seconds)
    failovers_s = story.failovers(events, pack.name, work.kills)
    if kill_alpha_at is not None and not work.kills:
        work.notes.append(f"The alpha was not killed: {work.not_killed}.")
    if work.kills and not failovers_s:
        work.notes.append("No later alpha handed out a lease: the run ended on leases that were out already.")
    if graphs is not None:
        _draw(den, os.path.join(graphs, f"run-{run}.svg"), work.notes)
    return {
        "run": run,
        "files": files,
        **work.counts,
        "seconds": round(seconds, 3),
        "tasks_per_s": round(work.settled / seconds, 1) if seconds > 0 else 0.0,
        "alphas": crowned,
        "killed": [{"unit": kill.unit, "pid": kill.pid, "at_s": round(kill.at - began_at, 3)} for kill in work.kills],
        "failovers_s": failovers_s,
        "units": size._asdict(),
        "worst": worst_functions(rows),
        "out": str(table),
        "graphs": sorted(_pictures(graphs) - pictures),
        "conservation": bool(den.stats()["conservation"]),
        "notes": work.notes,
    }


def _pictures(folder: str | os.PathLike[str] | None) -> set[str]:
    if folder is None or not os.path.isdir(folder):
        return set()
    return {entry.path for entry in os.scandir(folder) if entry.name.endswith((".svg", ".png"))}


def _draw(den: wolfpack.Den, path: str, notes: list[str]) -> None:
    """A picture that cannot be drawn is a note: the results are there and must reach the caller."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        den.graph(path)
    except Exception as exc:
        notes.append(f"No picture {path}: {type(exc).__name__}: {exc}")
