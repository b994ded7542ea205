"""The command line: `wolfpack COMMAND`. One module for each group of commands, all thin faces over `Den`.

    run.py      run a job on a den                job.py        the job of pack.yaml and its options
                                                  interrupt.py  what the first, second and third Ctrl-C do
    den.py      up, down, status, scale           record.py     where the den that is up can be found
                                                  owner.py      the process that keeps a den up
    tasks.py    submit, why, dead
    look.py     events, graph
    ledger.py   ledger check, ledger salvage
    config.py   check, schema
    sim.py      sim: failure in virtual time
    chaos.py    chaos

What every command shares (exit codes, errors, options) stands in `common.py`; what people see is made in `render.py`.
These modules import nothing heavy at their head, so help comes at once; Ray is only loaded when a den is joined.
"""

from __future__ import annotations

import click

from wolfpack.cli.chaos import chaos
from wolfpack.cli.common import Commands
from wolfpack.cli.config import check, schema
from wolfpack.cli.den import down, scale, status, up
from wolfpack.cli.ledger import ledger
from wolfpack.cli.look import events, graph
from wolfpack.cli.run import run
from wolfpack.cli.sim import sim
from wolfpack.cli.tasks import dead, submit, why

__all__ = ["cli", "main"]


@click.group(
    cls=Commands,
    epilog="\b\nExit codes: 0 fine; 1 a job or task failed; 2 wrong usage or input;\n"
    "3 the den, its ledger or Ray is in trouble; 130 interrupted.\n\n"
    "\b\nExample:\n  wolfpack run pack.yaml --limit 100",
)
@click.version_option(package_name="wolfpack", message="%(prog)s %(version)s")
def cli() -> None:
    """Wolf Pack: elastic worker pools on Ray that elect their own leader, and lose nothing."""


for command in (run, up, down, status, submit, scale, why, dead, events, graph, ledger, check, schema, chaos, sim):
    cli.add_command(command)


def main() -> None:
    """The entry point."""
    cli(prog_name="wolfpack")
