"""`wolfpack events` and `wolfpack graph`: what happened. They read the den that is up, or else its ledger."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wolfpack.cli.common import Command, address_option, file_option, json_option, make_importable
from wolfpack.cli.record import find_up, join
from wolfpack.cli.render import columns, event_fields, event_text, print_json
from wolfpack.errors import CallerError, DenUnreachable

if TYPE_CHECKING:
    from wolfpack.events import Recorded
    from wolfpack.model import DenSpec


@contextlib.contextmanager
def _history(spec: DenSpec, address: str | None, since: int, follow: bool = False) -> Iterator[Iterable[Recorded]]:
    """The events after a number. Without a den that is up they are read from the ledger's file.

    Raises:
        DenUnreachable: nothing is up, and there is no file to read, or what comes next was asked for.
    """
    make_importable(spec.folder)
    if address or find_up(spec):
        den, _ = join(spec, address)
        with den:
            yield den.follow(since) if follow else den.events(since)
        return
    path = Path(spec.ledger.removeprefix("sqlite:///"))
    if follow or not spec.ledger.startswith("sqlite:///") or not path.exists():
        raise DenUnreachable(f"The den {spec.den!r} is not up. Start it with `wolfpack up`.")
    from wolfpack.den.ledger_events import read_events

    yield read_events(path, since)


@click.command(
    cls=Command,
    short_help="Print what happened, in order.",
    epilog="\b\nExample:\n  wolfpack events --since 0 --follow",
)
@click.option("--since", default=0, show_default=True, type=click.IntRange(min=0), help="Only after this number.")
@click.option("--follow", is_flag=True, help="Go on with what happens next, until Ctrl-C.")
@file_option
@address_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def events(since: int, follow: bool, file: str, address: str | None, as_json: bool) -> None:
    """Prints what happened in the den, in order: number, time, event, and why.

    If the den is not up, its ledger is read.
    """
    import json

    from wolfpack import config

    with _history(config.load(file), address, since, follow) as history:
        for recorded in history:
            click.echo(json.dumps(event_fields(recorded)) if as_json else event_text(recorded, columns()))


@click.command(
    cls=Command,
    short_help="Draw who leads whom.",
    epilog="\b\nExamples:\n  wolfpack graph --out now.svg\n  wolfpack graph --since 0",
)
@click.option("--since", type=click.IntRange(min=0), help="Make up the missing pictures of changes after this number.")
@click.option("--out", type=click.Path(), help="The picture (.svg or .png); with --since the folder for pictures.")
@file_option
@address_option
@json_option
def graph(since: int | None, out: str | None, file: str, address: str | None, as_json: bool) -> None:
    """Draws who leads whom, as it is now, into DEN.svg or the file named by --out.

    With --since N: draws the missing pictures of all changes of leadership after event N, into the den's folder for
    graphs or the one named by --out. If the den is not up, its ledger is read.
    """
    from wolfpack import config

    spec = config.load(file)
    folder = out or spec.graphs
    if since is not None and folder is None:
        raise click.UsageError("This pack.yaml names no folder `graphs:`; name one with --out.")
    with _history(spec, address, 0) as history:
        recorded = list(history)
    import viz

    if since is None:
        target = Path(out or f"{spec.den}.svg")
        try:
            paths = [viz.render_now(recorded, target)]
        except ValueError as exc:
            raise CallerError(str(exc)) from exc
    else:
        paths = viz.render_since(recorded, str(folder), since, den=spec.den)
    if as_json:
        print_json([str(path) for path in paths])
    elif paths:
        for path in paths:
            click.echo(path)
    else:
        click.echo(f"No picture is missing in {folder}.", err=True)
