"""`wolfpack ledger check` and `wolfpack ledger salvage`: without a den and without Ray."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from wolfpack.cli.common import TROUBLE, Commands, json_option
from wolfpack.cli.render import counted, print_json, printable
from wolfpack.errors import CallerError


def ledger_path(file: str) -> Path:
    """The ledger that is meant by its own path, or by that of a pack.yaml.

    Raises:
        ConfigError: the pack.yaml is wrong.
        CallerError: its ledger is no file.
    """
    if not file.endswith((".yaml", ".yml")):
        return Path(file)
    from wolfpack import config

    url = config.load(file).ledger
    if not url.startswith("sqlite:///"):
        raise CallerError(f"The ledger of {file} is no file but {url}; there is nothing here to look at.")
    return Path(url.removeprefix("sqlite:///"))


@click.group(cls=Commands, short_help="Check or salvage a ledger.")
def ledger() -> None:
    """Looks after the file that holds the tasks."""


@ledger.command(epilog="\b\nExample:\n  wolfpack ledger check pack.yaml")
@click.argument("file", default="pack.yaml", type=click.Path())
@json_option
@click.pass_context
def check(ctx: click.Context, file: str, as_json: bool) -> None:
    """Reads a whole ledger (FILE: the ledger, or a pack.yaml) and tells every fault; exits with 3 if there is one.

    May be used while its den is awake.
    """
    from wolfpack.den import ledger_check

    path = ledger_path(file)
    faults = ledger_check.check(path)
    if as_json:
        print_json({"ledger": str(path), "faults": faults})
    elif faults:
        for fault in faults:
            click.echo(printable(fault))
        click.echo(
            printable(
                f"{path}: {counted(len(faults), 'fault')}. `wolfpack ledger salvage {path} NEW` saves what is whole."
            )
        )
    else:
        click.echo(printable(f"{path} is whole."))
    if faults:
        ctx.exit(TROUBLE)


@ledger.command(epilog="\b\nExample:\n  wolfpack ledger salvage .wolfpack/timber.db saved.db")
@click.argument("file", type=click.Path())
@click.argument("out", type=click.Path())
@json_option
@click.pass_context
def salvage(ctx: click.Context, file: str, out: str, as_json: bool) -> None:
    """Writes all that is whole in a damaged ledger (FILE: it, or a pack.yaml) into a new one, OUT.

    FILE stays as it is. Exits with 0 if nothing was lost, and with 3 if something was; OUT is good in both cases.
    """
    from wolfpack.den import ledger_check

    path = ledger_path(file)
    report = ledger_check.salvage(path, out)
    if as_json:
        print_json({"ledger": str(path), "out": out, **dataclasses.asdict(report)})
    else:
        for line in report.lost:
            click.echo(printable(f"lost: {line}"))
        kept = ", ".join(f"{count} {what}" for what, count in report.kept.items())
        click.echo(f"kept: {kept}")
        click.echo(printable(f"{out} is whole. To go on with it, name it under `ledger:` of pack.yaml."))
    if report.lost:
        ctx.exit(TROUBLE)
