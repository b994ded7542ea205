"""`wolfpack run`: opens the den of a pack.yaml, or joins it if it is up, and runs its job.

The options of the job become options of the command: they are known once pack.yaml was read and the job imported, so
`Run` does both while it parses. Standard output belongs to the result; with `--json` nothing else reaches it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from wolfpack.cli.common import FAILED, INTERRUPTED, OK, Command, Trouble, json_option
from wolfpack.cli.interrupt import KILL, Interrupts, Killed
from wolfpack.cli.job import PREFIX, Job, job_options, load_job
from wolfpack.cli.record import find_up, show_token
from wolfpack.cli.render import Progress, columns, print_json, summary_text
from wolfpack.errors import ConfigError, WolfPackError

if TYPE_CHECKING:
    from wolfpack.model import DenSpec
    from wolfpack.pack import Den, Pack

_LOADED = "wolfpack.run"
DRAIN_LOOK_S = 0.05


class Run(Command):
    """The command, with the options of the job that the file names."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        file = find_file(args)
        try:
            ctx.meta[_LOADED] = self._load(ctx, file)
        except WolfPackError:
            if not {"--help", "-h"} & set(args):
                raise
        rest = super().parse_args(ctx, args)
        if ctx.params["file"] != file:
            raise click.UsageError(f"Write the file first: wolfpack run {ctx.params['file']} ...", ctx)
        return rest

    def _load(self, ctx: click.Context, file: str) -> tuple[DenSpec, Job, list[click.Option]]:
        from wolfpack import config

        spec = config.load(file)
        job = load_job(spec)
        taken = {"json", *(each.name or "" for each in super().get_params(ctx))}
        return spec, job, job_options(job, taken)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        loaded = ctx.meta.get(_LOADED)
        return [*super().get_params(ctx), *(loaded[2] if loaded else ())]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        loaded = ctx.meta.pop(_LOADED, None)
        super().format_options(ctx, formatter)
        if loaded:
            rows = [row for each in loaded[2] if (row := each.get_help_record(ctx)) is not None]
            with formatter.section(f"Options of the job {loaded[1].task}"):
                formatter.write_dl(rows)
        else:
            with formatter.section("Options of the job"):
                formatter.write_text("Every parameter of the job's function; shown where its pack.yaml is found.")


def find_file(args: list[str]) -> str:
    """The pack.yaml among the words of the command, before the job's options are known: the first word, or the first
    that ends like one."""
    if args and not args[0].startswith("-"):
        return args[0]
    return next((each for each in args if each.endswith((".yaml", ".yml")) and not each.startswith("-")), "pack.yaml")


@click.command(
    cls=Run,
    short_help="Run the job of a pack.yaml.",
    epilog="\b\nExamples:\n  wolfpack run pack.yaml --limit 100 --json\n"
    "  wolfpack run pack.yaml --kill-alpha-at 0.5 --graphs out/graphs\n\n"
    "Ctrl-C once: nothing more is submitted, what was is finished. Twice: that is cancelled. Three times: everything "
    "ends at once. The exit code is 130, and the ledger keeps the rest.",
)
@click.argument("file", default="pack.yaml", type=click.Path())
@click.option("--pack", help="Which pack works; default: the one the job's package is named after, or the only one.")
@click.option("--graphs", type=click.Path(), help="Folder for pictures of the leadership; default: that of pack.yaml.")
@click.option("--address", help="Of a Ray cluster; default: RAY_ADDRESS, the den that is up, else a Ray of its own.")
@json_option
@click.pass_context
def run(
    ctx: click.Context, /, pack: str | None, graphs: str | None, address: str | None, as_json: bool, **_: Any
) -> None:
    """Runs the job of FILE on its den, and shows its summary.

    Exits with 0 if every task is accounted for (dead ones are results too), with 1 if not, or if the job failed.
    """
    spec, job, _options = ctx.meta[_LOADED]
    options = {**job.options, **given_options(ctx)}
    if graphs is not None:
        spec = replace(spec, graphs=os.path.abspath(graphs))
        if job.takes("graphs"):
            options["graphs"] = spec.graphs
    if as_json and job.takes("json"):
        options["json"] = True
    progress = Progress()
    run_id = options.get("resume") or f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    offered = {"_progress": progress, "_run": run_id}
    options |= {name: value for name, value in offered.items() if job.takes(name)}
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext(), _open(spec, address) as den:
        chosen = den.pack(pack or job.find_pack(den.packs()))
        last_words = resume_text(sys.argv[1:], job, str(run_id))
        ended = run_job(den, chosen, job, options, progress, last_words)
    if ended.interrupts:
        click.echo(last_words, err=True)
    if ended.has_summary:
        if as_json:
            print_json(ended.summary)
        elif text := summary_text(ended.summary, columns()):
            click.echo(text)
    ctx.exit(INTERRUPTED if ended.interrupts else OK if is_complete(ended.summary) else FAILED)


def given_options(ctx: click.Context) -> dict[str, Any]:
    """The options of the job that stand on the command line."""
    return {
        name.removeprefix(PREFIX): value
        for name, value in ctx.params.items()
        if name.startswith(PREFIX) and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }


def is_complete(summary: Any) -> bool:
    """Whether the job says that all its tasks ended and the ledger adds up; a job that says nothing is believed."""
    if not isinstance(summary, Mapping) or not {"submitted", "done", "dead"} <= summary.keys():
        return True
    return bool(summary["submitted"] == summary["done"] + summary["dead"] and summary.get("conservation", True))


@contextlib.contextmanager
def _open(spec: DenSpec, address: str | None) -> Iterator[Den]:
    """The den: that which is up, as a guest; else one that ends with the command."""
    from wolfpack.pack import Den

    record = find_up(spec) if address is None else None
    if record is None:
        with Den(spec, address=address) as den:
            yield den
    else:
        show_token(record)
        with Den(spec, address=record.address, detached=True, join_only=True) as den:
            yield den


class Ended:
    """How a job ended."""

    def __init__(self) -> None:
        self.interrupts = 0
        self.has_summary = False
        self.summary: Any = None


def run_job(
    den: Den, pack: Pack, job: Job, options: Mapping[str, Any], progress: Progress, last_words: str = ""
) -> Ended:
    """Runs the job, and takes Ctrl-C meanwhile.

    Args:
        last_words: what a person must know when a fourth Ctrl-C does not wait for the den's end.

    Raises:
        WolfPackError, Trouble: the job failed, uninterrupted.
    """
    ended = Ended()
    with Interrupts(den, progress.note, last_words) as interrupts:
        try:
            ended.summary = job.function(pack, **options)
            ended.has_summary = True
        except Killed:
            pass
        except Exception as exc:
            if not interrupts.count:
                progress.close()
                raise _told(job, exc) from exc
            _drain(den, interrupts, progress)  # the job could not go on without submitting
        ended.interrupts = interrupts.count
    progress.close()
    return ended


def _drain(den: Den, interrupts: Interrupts, progress: Progress) -> None:
    total = den.unsettled()
    with contextlib.suppress(Killed):
        if total == 0:
            return
        while (left := den.unsettled()) and interrupts.count < KILL and not den.is_closed:
            progress(total - left, total, "of what was submitted")
            time.sleep(DRAIN_LOOK_S)
        progress(total - left, total, "of what was submitted")


def _told(job: Job, exc: Exception) -> Exception:
    """What a person needs to know of a job that failed: of our own errors the text, of others where they arose."""
    if isinstance(exc, WolfPackError) and not isinstance(exc, ConfigError):
        return exc
    if isinstance(exc, (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, AssertionError)):
        frames = exc.__traceback__.tb_next if exc.__traceback__ else None  # without ours
        where = "".join(traceback.format_exception(type(exc), exc, frames))
        return Trouble(f"The job {job.task} failed:\n{where.rstrip()}", FAILED)
    return Trouble(f"The job {job.task} failed: {type(exc).__name__}: {exc}", FAILED)


def resume_text(words: list[str], job: Job, run_id: str) -> str:
    """How to go on after an interruption of `wolfpack WORDS`."""
    if not job.takes("resume"):
        return "Interrupted. What is still queued stays in the ledger and goes on when the den is opened again."
    resumes = any(each.partition("=")[0] == "--resume" for each in words)
    again = shlex.join(["wolfpack", *words, *([] if resumes else ["--resume", run_id])])
    kept = f"The ledger keeps what is left of run {run_id}; what was cancelled stays so."
    return f"Interrupted. {kept} Go on with:\n  {again}"
