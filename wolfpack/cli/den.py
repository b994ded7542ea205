"""`wolfpack up`, `down`, `status` and `scale`: a den that stays when the command ends.

Without a cluster, `up` leaves an owner process behind (`owner.py`) and waits for its one line. With an address, or
RAY_ADDRESS, it makes a detached den on that cluster, and nothing stays behind but the record of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wolfpack.cli.common import TROUBLE, Command, Trouble, address_option, file_option, json_option, make_importable
from wolfpack.cli.record import (
    Record,
    find_up,
    join,
    joined,
    read_record,
    record_path,
    remove_record,
    token_facts,
    write_record,
)
from wolfpack.cli.render import columns, print_json, status_text
from wolfpack.errors import DenUnreachable

if TYPE_CHECKING:
    from wolfpack.model import DenSpec

END_S = 40.0  # an owner that takes longer to end its den is killed
LOOK_EVERY_S = 0.05
LOG_LINES = 15


# --- up -----------------------------------------------------------------------------------------------------------


@click.command(
    cls=Command,
    short_help="Start a den that stays.",
    epilog="\b\nExample:\n  wolfpack up && wolfpack status && wolfpack down",
)
@click.argument("file", default="pack.yaml", type=click.Path())
@click.option("--address", help="Of a Ray cluster to join; default: RAY_ADDRESS, else a Ray of its own.")
@json_option
def up(file: str, address: str | None, as_json: bool) -> None:
    """Starts the den of FILE and leaves it awake, until `wolfpack down`.

    What is in its ledger goes on. If the den is up already, that is said, and is no error.
    """
    from wolfpack import config

    spec = config.load(file)
    with _one_at_a_time(spec):
        was_up = find_up(spec)
        if was_up is not None and was_up.pid is None and not _answers(spec, was_up):
            was_up = None  # a cluster that is gone, or a den that ended with it
        if was_up is None:
            address = address or os.environ.get("RAY_ADDRESS")
            if address:
                _make_on_cluster(spec, address)
            else:
                _start_owner(spec, file)
    if not as_json:
        click.echo(f"The den {spec.den!r} {'is up already' if was_up else 'is up'}.")
    _show(spec, None, as_json)


@contextlib.contextmanager
def _one_at_a_time(spec: DenSpec) -> Iterator[None]:
    """Two `up`s of one den at the same moment: the second waits, and finds it up."""
    path = record_path(spec).with_suffix(".up")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _answers(spec: DenSpec, record: Record) -> bool:
    from wolfpack.errors import OperatorError

    try:
        join(spec, record.address)[0].close()
    except OperatorError:
        return False
    return True


def _make_on_cluster(spec: DenSpec, address: str) -> None:
    from wolfpack.pack import Den

    make_importable(spec.folder)
    with Den(spec, address=address, detached=True) as den:
        write_record(spec, Record(den=spec.den, address=den.address, started_at=time.time(), token=token_facts()))


def _start_owner(spec: DenSpec, file: str) -> None:
    """Starts the owner and waits until its den is ready.

    Raises:
        Trouble: it could not make the den; with its reason, or the end of its log.
    """
    log = record_path(spec).with_suffix(".log")
    with open(log, "wb") as out:
        owner = subprocess.Popen(
            [sys.executable, "-m", "wolfpack.cli.owner", str(Path(file).absolute()), str(log.absolute())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=out,
            start_new_session=True,
        )
    assert owner.stdout is not None
    try:
        line = owner.stdout.readline()
    except KeyboardInterrupt:
        owner.terminate()
        raise
    told: dict[str, Any] = json.loads(line) if line else {}
    if "pid" in told:
        owner.returncode = 0  # it stays; this process will not wait for it
        return
    owner.wait()
    if "error" in told:
        raise Trouble(told["error"], told["code"])
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
    raise Trouble(
        f"The owner process of den {spec.den!r} ended before the den was ready. {log} ends with:\n{tail}", TROUBLE
    )


# --- down ---------------------------------------------------------------------------------------------------------


@click.command(cls=Command, short_help="End the den that is up.", epilog="\b\nExample:\n  wolfpack down")
@click.argument("file", default="pack.yaml", type=click.Path())
@address_option
@json_option
def down(file: str, address: str | None, as_json: bool) -> None:
    """Ends the den of FILE. What is left in its ledger goes on at the next `wolfpack up` or `wolfpack run`."""
    from wolfpack import config

    spec = config.load(file)
    record = read_record(spec)
    if record is None and address is None:
        raise DenUnreachable(f"The den {spec.den!r} is not up.")
    if record is not None and not record.is_alive():
        remove_record(spec)
        raise DenUnreachable(f"The den {spec.den!r} was not up any more: its process {record.pid} is gone.")
    if record is not None and record.pid is not None:
        how = _end_owner(record)
        if read_record(spec) == record:
            remove_record(spec)
    else:
        den, _ = join(spec, address)
        den.end("`wolfpack down`")
        remove_record(spec)
        how = "ended"
    if as_json:
        print_json({"den": spec.den, "how": how})
    else:
        click.echo(f"The den {spec.den!r} is down." + (" Its process had to be killed." if how == "killed" else ""))


def _end_owner(record: Record) -> str:
    """Asks the owner to end, and kills it if it does not. Returns how it went."""
    assert record.pid is not None
    for number, how, patience_s in ((signal.SIGTERM, "ended", END_S), (signal.SIGKILL, "killed", 5.0)):
        if not record.is_alive():  # right before each signal: a number can be somebody else's soon
            return "ended"
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, number)
        end = time.monotonic() + patience_s
        while time.monotonic() < end:
            if not record.is_alive():
                return how
            time.sleep(LOOK_EVERY_S)
    raise Trouble(f"The process {record.pid} of den {record.den!r} does not end, not even when it is killed.", TROUBLE)


# --- status and scale ---------------------------------------------------------------------------------------------


@click.command(
    cls=Command, short_help="Show tasks, packs and units.", epilog="\b\nExample:\n  wolfpack status --json | jq .queued"
)
@click.option("--health", is_flag=True, help="Ask every awake unit, too, what it thinks of the others.")
@file_option
@address_option
@json_option
def status(health: bool, file: str, address: str | None, as_json: bool) -> None:
    """Shows the den that is up: its tasks, its packs with their latest plan, and its units."""
    from wolfpack import config

    _show(config.load(file), address, as_json, health=health)


def _show(spec: DenSpec, address: str | None, as_json: bool, *, health: bool = False) -> None:
    den, record = join(spec, address)
    with den:
        units = [
            {name: getattr(unit, name) for name in (
                "id", "kind", "nature", "readiness", "role", "pack", "boot", "leases", "pid", "node", "offers",
                "reason",
            )}
            for unit in den.units()
        ]  # fmt: skip
        stats = den.stats()
        views = den.views() if health else None
    facts = {
        "den": den.name, "address": record.address, "pid": record.pid, "started_at": record.started_at or None,
        "log": record.log, **stats, "units": units,
    }  # fmt: skip
    if views is not None:
        facts["health"] = views
    if as_json:
        print_json(facts)
    else:
        click.echo(status_text(facts, time.time(), columns()))


@click.command(
    cls=Command,
    short_help="Set the fewest and most members of a pack.",
    epilog="\b\nExample:\n  wolfpack scale computing --min 2 --max 8",
)
@click.argument("pack")
@click.option("--min", "fewest", type=click.IntRange(min=0), help="Fewest members; default: as it is.")
@click.option("--max", "most", type=click.IntRange(min=0), help="Most members; default: as it is.")
@file_option
@address_option
@json_option
def scale(pack: str, fewest: int | None, most: int | None, file: str, address: str | None, as_json: bool) -> None:
    """Sets the fewest and the most members of a PACK; its alpha follows at once."""
    if fewest is None and most is None:
        raise click.UsageError("Say what to change: --min, --max, or both.")
    with joined(file, address) as den:
        found = den.pack(pack)
        before = found.stats()["size"]
        size = [before[0] if fewest is None else fewest, before[1] if most is None else most]
        found.scale(*size)
    if as_json:
        print_json({"pack": pack, "before": before, "size": size})
    else:
        click.echo(f"{pack}: {size[0]} to {size[1]} members (before: {before[0]} to {before[1]})")
