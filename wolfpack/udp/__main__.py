"""`python -m wolfpack.udp`: one unit from the shell. Each change is a line of JSON on standard output.

With `--orders` it also reads orders from standard input, one JSON object a line, and leaves at its end:

    {"do": "load", "leases": 2, "capacity": 4}     tells the others its load
    {"do": "members"}                              all it knows, as one line
    {"do": "counters"}                             what was sent, received and refused
    {"do": "best"}                                 whom to give work to
    {"do": "leave"}                                says goodbye and ends, as SIGTERM and Ctrl-C do

Lines are written by a thread of their own: a reader that stops reading costs lines, and never the unit's life.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from wolfpack.errors import CallerError, WolfPackError
from wolfpack.model import PROFILES
from wolfpack.udp.addresses import split_address
from wolfpack.udp.member import Change, KnownUnit, UdpMember

LINES_MOST = 2_000  # that wait for their reader
LOAD_FIELDS = {"leases", "queued", "capacity", "progress", "budgets"}
LAST_LINES_S = 2.0


class Lines:
    """Standard output, written without ever holding up who says something."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._waiting: queue.Queue[str | None] = queue.Queue(LINES_MOST)
        self._on_end = on_end
        self._thread = threading.Thread(target=self._write, name="wolfpack-lines", daemon=True)
        self._thread.start()

    def say(self, what: str, **fields: Any) -> None:
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(json.dumps({"at": round(time.time(), 6), "say": what, **fields}))

    def close(self) -> None:
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(LAST_LINES_S)

    def _write(self) -> None:
        try:
            while (line := self._waiting.get()) is not None:
                sys.stdout.write(line + "\n")
                sys.stdout.flush()
        except (OSError, ValueError):
            self._on_end()  # nobody reads any more


def told(change: Change) -> dict[str, Any]:
    """A change as fields of a line."""
    fields = asdict(change)
    if "status" in fields:
        fields["status"] = fields["status"].name
    return {"change": type(change).__name__, **fields}


def unit_told(known: KnownUnit) -> dict[str, Any]:
    return {**asdict(known), "status": known.status.name}


def read_order(line: str) -> tuple[Any, dict[str, Any]]:
    """What to do, and how.

    Raises:
        ValueError: it is no order.
    """
    order = json.loads(line)
    if not isinstance(order, dict) or "do" not in order:
        raise ValueError('an order is an object that says what to do, such as {"do": "members"}')
    do = order.pop("do")
    if do == "load" and (wrong := sorted(order.keys() - LOAD_FIELDS)):
        raise ValueError(f"a load has no {', '.join(wrong)}; it has {', '.join(sorted(LOAD_FIELDS))}")
    return do, order


def obey(member: UdpMember, lines: Lines, line: str) -> bool:
    """Carries out one order; whether it is to go on."""
    try:
        do, order = read_order(line)
        match do:
            case "load":
                member.set_load(**order)
            case "members":
                lines.say("members", members=[unit_told(known) for known in member.members().values()])
            case "counters":
                lines.say("counters", counters=member.counters)
            case "best":
                lines.say("best", unit=member.best_unit())
            case "leave":
                return False
            case _:
                lines.say("error", text=f"There is no order {do!r}.")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, WolfPackError) as exc:
        lines.say("error", text=f"Not an order: {line.strip()[:200]}: {exc}")
    return True


async def live(make: Callable[[], UdpMember], *, orders: bool) -> None:
    """Lives until it is told to leave."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def end() -> None:
        with contextlib.suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(over.set)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    lines = Lines(end)
    try:
        async with make() as member:
            member.on_change(lambda change: lines.say("change", **told(change)))
            lines.say(
                "started", unit=member.unit, den=member.den, boot=member.boot, address=member.address, pid=os.getpid()
            )

            def on_line(line: str) -> None:
                if not obey(member, lines, line):
                    over.set()

            def read() -> None:
                with contextlib.suppress(RuntimeError):
                    for line in sys.stdin:
                        loop.call_soon_threadsafe(on_line, line)
                end()

            if orders:
                threading.Thread(target=read, name="wolfpack-orders", daemon=True).start()
            await over.wait()
        lines.say("left")
    finally:
        lines.close()


@click.command(epilog="\b\nExample, in two shells:\n  python -m wolfpack.udp --unit a --bind 127.0.0.1:7000\n"
               "  python -m wolfpack.udp --unit b --seeds 127.0.0.1:7000")  # fmt: skip
@click.option("--unit", required=True, help="Name of this unit.")
@click.option("--den", default="den", show_default=True, help="Name of the den.")
@click.option("--bind", default="127.0.0.1:0", show_default=True, help="Host and port to listen on, UDP and TCP.")
@click.option("--advertise", help="IP address that others reach this unit by, where it binds to 0.0.0.0.")
@click.option("--seeds", multiple=True, help="Addresses of other units, with commas.")
@click.option("--timing", default="ray", show_default=True, type=click.Choice([*PROFILES]), help="Timing profile.")
@click.option("--secret-file", type=click.Path(path_type=Path), help="A file with the den's secret.")
@click.option("--boot", type=int, help="Number of this life; by default the microseconds of the clock.")
@click.option("--orders", is_flag=True, help="Read orders from standard input; leave at its end.")
def main(
    unit: str, den: str, bind: str, advertise: str | None, seeds: tuple[str, ...], timing: str,
    secret_file: Path | None, boot: int | None, orders: bool,
) -> None:  # fmt: skip
    """Runs one unit, and prints what it learns of the others: a line of JSON for each change."""
    try:
        secret = None if secret_file is None else secret_file.read_bytes().strip()
    except OSError as exc:
        raise click.ClickException(f"Cannot read the secret: {exc}") from exc
    listed = [seed.strip() for each in seeds for seed in each.split(",") if seed.strip()]
    try:
        asyncio.run(
            live(
                lambda: UdpMember(
                    unit=unit, den=den, bind=split_address(bind), advertise=advertise, seeds=listed, timing=timing,
                    secret=secret, boot=boot,
                ),
                orders=orders,
            )
        )  # fmt: skip
    except CallerError as exc:
        raise click.UsageError(str(exc)) from exc
    except WolfPackError as exc:
        raise click.ClickException(str(exc)) from exc


if __name__ == "__main__":
    main(prog_name="python -m wolfpack.udp")
