"""`python -m tests.fuzz`: longer campaigns at every door, or at one.

    python -m tests.fuzz --seconds 60 --seed 7
    python -m tests.fuzz --door keeper --seed 7 --only 123

Prints one line a door: inputs, refused, accepted, failures. Each failure says how to see it again. Ends with 1 if there
is one.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

import click

from tests.fuzz.calls import KeeperCalls, UnitCalls
from tests.fuzz.cli import CommandLine
from tests.fuzz.config import Config
from tests.fuzz.fuzzer import Tally, campaign
from tests.fuzz.ledger import LedgerBytes, LedgerRows
from tests.fuzz.membership import Packets
from tests.fuzz.packets import Howls, Messages
from wolfpack.cli.render import counted

DOORS: dict[str, Any] = {
    door.name: door
    for door in (Messages, Howls, Packets, Config, LedgerBytes, LedgerRows, KeeperCalls, UnitCalls, CommandLine)
}  # fmt: skip


@click.command()
@click.option("--door", "doors", multiple=True, type=click.Choice(list(DOORS)), help="Only this one; default: all.")
@click.option("--seconds", default=10.0, show_default=True, type=click.FloatRange(min=0), help="At each door.")
@click.option("--inputs", type=click.IntRange(min=1), help="So many at each door, however long they take.")
@click.option("--seed", type=int, help="Makes the inputs; default: a new one each time, which is printed.")
@click.option("--only", type=click.IntRange(min=0), help="Only this input: what a failure named.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(
    doors: tuple[str, ...], seconds: float, inputs: int | None, seed: int | None, only: int | None, as_json: bool
) -> None:
    """Gives spoiled inputs to every door of Wolf Pack, and counts what became of them."""
    logging.disable(logging.CRITICAL)
    seed = time.time_ns() % 1_000_000 if seed is None else seed
    if not as_json:
        names = doors or tuple(DOORS)
        length = "one input" if only is not None else counted(inputs, "input") if inputs else f"{seconds:g} s"
        told = f"{len(names)} doors, {length} at each" if len(names) > 1 else f"the door {names[0]!r}, {length}"
        click.echo(f"{told}, --seed {seed}", err=True)
    tallies = [_visit(name, seed, seconds, inputs, only, quiet=as_json) for name in doors or DOORS]
    if as_json:
        keys = ("door", "seed", "inputs", "refused", "accepted")
        rows = [{name: getattr(each, name) for name in keys} | {"failures": len(each.failures)} for each in tallies]
        click.echo(json.dumps(rows, indent=2))
    sys.exit(any(each.failures for each in tallies))


def _visit(name: str, seed: int, seconds: float, inputs: int | None, only: int | None, *, quiet: bool) -> Tally:
    door = DOORS[name]()
    try:
        tally = campaign(door, seed, inputs=inputs, seconds=None if inputs else seconds, only=only)
    finally:
        if hasattr(door, "close"):
            door.close()
    if not quiet:
        click.echo(tally)
    if tally.failures:
        click.echo(tally.told(), err=True)
    return tally


if __name__ == "__main__":
    main()
