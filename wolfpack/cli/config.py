"""`wolfpack check` and `wolfpack schema`: is pack.yaml right, and what may stand in it."""

from __future__ import annotations

import json

import click

from wolfpack.cli.common import Command, json_option
from wolfpack.cli.render import counted, print_json


@click.command(cls=Command, short_help="Check a pack.yaml.", epilog="\b\nExample:\n  wolfpack check pack.yaml")
@click.argument("file", default="pack.yaml", type=click.Path())
@json_option
def check(file: str, as_json: bool) -> None:
    """Checks a pack.yaml; tells every fault of it with line and column, and exits with 2."""
    from wolfpack import config

    spec = config.load(file)
    if as_json:
        print_json({"file": file, "den": spec.den, "units": len(spec.cards), "packs": len(spec.packs)})
    else:
        click.echo(f"{file} is fine: {counted(len(spec.cards), 'unit')}, {counted(len(spec.packs), 'pack')}")


@click.command(
    cls=Command,
    short_help="Print the JSON Schema of pack.yaml.",
    epilog="\b\nExample:\n  wolfpack schema > pack.schema.json",
)
def schema() -> None:
    """Prints the JSON Schema of pack.yaml, for editors and other checkers."""
    from wolfpack import config

    click.echo(json.dumps(config.schema(), indent=2))
