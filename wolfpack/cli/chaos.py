"""`wolfpack chaos`: kills and freezes the processes of a den while it works, and proves that nothing was lost."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from wolfpack.cli.common import FAILED, OK, Command, json_option, make_importable
from wolfpack.cli.render import Progress, columns, cut, print_json
from wolfpack.errors import CallerError

COUNT = click.IntRange(min=0)


@click.command(
    cls=Command,
    short_help="Kill processes of a den at work, and prove that nothing is lost.",
    epilog="\b\nExamples:\n  wolfpack chaos pack.yaml\n"
    "  wolfpack chaos pack.yaml --tasks 500 --kill-alpha 3 --kill-units 3 --kill-hands 3 --freeze 1 --kill-keeper 1\n\n"
    "The den is one of its own, with the units and packs of FILE, and a ledger that is thrown away: a den that is at "
    "work is not touched. Only processes that are proven to be its own are ever signalled.",
)
@click.argument("file", default="pack.yaml", type=click.Path())
@click.option("--tasks", type=click.IntRange(min=1), default=10_000, show_default=True, help="Tasks of 1 to 50 ms.")
@click.option("--kill-alpha", type=COUNT, default=20, show_default=True, help="Kills of the unit that leads.")
@click.option("--kill-units", type=COUNT, default=50, show_default=True, help="Kills of units that do not lead.")
@click.option("--kill-hands", type=COUNT, default=50, show_default=True, help="Kills of processes that run a task.")
@click.option("--freeze", type=COUNT, default=5, show_default=True, help="Units that are stopped for 1 to 4 s.")
@click.option("--kill-keeper", type=COUNT, default=5, show_default=True, help="Kills of the keeper.")
@click.option("--seed", type=int, help="Draws when each fault comes and whom it meets; default: a new one, shown.")
@click.option("--pack", help="Which pack works; default: the one the job's package is named after, or the only one.")
@click.option("--graphs", type=click.Path(), help="Folder for a picture at each change of leadership; default: none.")
@click.option("--address", help="Of a Ray cluster; default: RAY_ADDRESS, else a Ray of its own.")
@json_option
@click.pass_context
def chaos(
    ctx: click.Context,
    /,
    file: str,
    tasks: int,
    seed: int | None,
    pack: str | None,
    graphs: str | None,
    address: str | None,
    as_json: bool,
    **counts: int,
) -> None:
    """Lets a den like that of FILE work, kills and freezes its processes meanwhile, and shows what became of the work.

    Exits with 0 only if nothing was lost, nothing was committed or started twice, and the ledger's count adds up.
    """
    from wolfpack import config
    from wolfpack.chaos.plan import Kind
    from wolfpack.chaos.run import ChaosOptions, is_proven, run_chaos
    from wolfpack.cli.job import find_pack

    spec = config.load(file)
    if graphs is not None:
        _check_folder(graphs)
    make_importable(spec.folder)
    if pack is None and spec.job is not None:
        pack = find_pack(spec.job.task, [each.name for each in spec.packs])
    options = ChaosOptions(
        tasks=tasks,
        faults={kind: counts[kind.value] for kind in Kind},
        seed=secrets.randbelow(1_000_000) if seed is None else seed,
        pack=pack,
        graphs=os.path.abspath(graphs) if graphs is not None else None,
        address=address,
    )
    progress = Progress()
    progress.note(f"Chaos with --seed {options.seed}")
    try:
        with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext(), _ended_in_order():
            summary = run_chaos(spec, options, progress)
    finally:
        progress.close()
    if as_json:
        print_json(summary)
    else:
        click.echo(chaos_text(summary, columns()))
    ctx.exit(OK if is_proven(summary) else FAILED)


def _check_folder(path: str) -> None:
    """Nothing else would tell before the end that no picture can be written there."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as exc:
        raise CallerError(f"No pictures can be written to {path!r}: {exc.strerror}.") from exc
    if not os.access(path, os.W_OK):
        raise CallerError(f"No pictures can be written to {path!r}: it is not writable.")


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP end the run as Ctrl-C does: what is frozen is thawed, and the den is closed."""

    def end(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    former = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except SystemExit as exc:
        if exc.code == signal.SIGTERM:  # of the handler that Ray puts in the place of ours
            raise SystemExit(128 + signal.SIGTERM) from exc
        raise
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def chaos_text(summary: Mapping[str, Any], width: int | None) -> str:
    """The summary for a person."""
    asked = summary["asked"]
    given = ", ".join(
        f"{count if count == asked[name] else f'{count} of {asked[name]}'} {name.replace('_', ' ')}"
        for name, count in summary["faults"].items()
        if asked[name]
    )
    lines = [
        f"{summary['submitted']} submitted, {summary['done']} done, {summary['dead']} dead "
        f"in {summary['seconds']:.1f} s (--seed {summary['seed']})",
        f"faults: {given or 'none'}",
        f"lost: {summary['lost']}",
        f"double committed: {summary['double_committed']}",
        f"started {summary['starts']} times; {summary['restarted']} tasks more than once, "
        f"{summary['double_started']} twice under one lease",
        f"ghosts (late reports that changed nothing): {summary['ghosts']}",
        f"refused writes of deposed alphas: {summary['refused_writes']}",
        f"failovers: {_spread(summary['failovers_s'])}",
        f"failovers after a freeze: {_spread(summary['freeze_failovers_s'])}",
        f"longest time without a result: {summary['longest_gap_s']:.2f} s ({_after(summary['longest_gap_after'])})",
        "every task is accounted for" if summary["conservation"] else "THE LEDGER'S COUNT OF TASKS DOES NOT ADD UP",
        *(f"problem: {each}" for each in summary["problems"]),
        *(f"note: {each}" for each in summary["notes"]),
    ]
    if "evidence" in summary:
        lines.append(f"ledger and record of starts are kept in {summary['evidence']}")
    return "\n".join(cut(line, width) for line in lines)


def _after(faults: Sequence[str]) -> str:
    return f"after {', '.join(faults)}" if faults else "no fault shortly before it"


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return "none"
    median = statistics.median(seconds)
    return f"{len(seconds)}, median {median:.2f} s, longest {max(seconds):.2f} s to the next first lease"
