"""Where the den that is up can be found: `.wolfpack/<den>.json` beside pack.yaml.

`wolfpack up` writes it, every other command reads it. A record alone proves nothing: its owner process may be gone, and
its number may belong to another process by now. So the record keeps what no later process can share with the owner,
the moment of its birth, and that is compared before the record is believed, and before any signal is sent.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from wolfpack.cli.common import make_importable
from wolfpack.errors import DenUnreachable

if TYPE_CHECKING:
    from wolfpack.model import DenSpec
    from wolfpack.pack import Den


MOST_BYTES = 1 << 16  # of a record
TOKEN_NAMES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")  # what a record may set in the environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One den that is up."""

    den: str
    # Of Ray, for processes of this machine.
    address: str
    # Wall clock, seconds.
    started_at: float
    # The owner of the Ray that `up` started, and the moment of its birth; None: `up` joined a cluster.
    pid: int | None = None
    born: str = ""
    # What the owner has to say.
    log: str = ""
    # Variables of the environment that joining takes: how Ray's token is shown, never the token itself.
    token: dict[str, str] = field(default_factory=dict)

    def is_alive(self) -> bool:
        """Whether the owner lives; of a cluster only joining can tell."""
        return self.pid is None or (bool(self.born) and birth_of(self.pid) == self.born)


def birth_of(pid: int) -> str:
    """A text that no other process ever shares with the one that has this number now; empty: there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return "" if fields[0] in (b"Z", b"X") else f"{boot} {fields[19].decode()}"
    except (OSError, IndexError):
        if Path("/proc/self").exists():
            return ""
    shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip()


def record_path(spec: DenSpec) -> Path:
    return Path(spec.folder or ".") / ".wolfpack" / f"{spec.den}.json"


def read_record(spec: DenSpec) -> Record | None:
    """The record of a den, if there is one that can be read, and that says what a record can say."""
    try:
        values = json.loads(_small_file(record_path(spec)))
        known = {each.name for each in dataclasses.fields(Record)}
        record = Record(**{name: value for name, value in values.items() if name in known})
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    return record if _is_sound(record) else None


def _small_file(path: Path) -> bytes:
    """What a file holds; of a pipe nobody may wait for it."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path} is no file")
        return file.read(MOST_BYTES)


def _is_sound(record: Record) -> bool:
    texts = (record.den, record.address, record.born, record.log)
    return (
        all(type(text) is str and "\0" not in text for text in texts)
        and type(record.started_at) in (int, float)
        and 0 <= record.started_at < float("inf")
        and (record.pid is None or (type(record.pid) is int and 0 < record.pid < 1 << 31))
        and type(record.token) is dict
        and all(
            name in TOKEN_NAMES and type(value) is str and "\0" not in value for name, value in record.token.items()
        )
    )


def write_record(spec: DenSpec, record: Record) -> None:
    """Writes it whole or not at all."""
    path = record_path(spec)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with open(handle, "w") as file:
        json.dump(dataclasses.asdict(record), file, indent=2)
        file.write("\n")
    os.replace(scratch, path)


def remove_record(spec: DenSpec) -> None:
    record_path(spec).unlink(missing_ok=True)


def find_up(spec: DenSpec) -> Record | None:
    """The record of the den that is up, or None."""
    record = read_record(spec)
    return record if record is not None and record.is_alive() else None


def token_facts() -> dict[str, str]:
    """How this process shows its token to Ray: what another shell of the same user needs to do the same.

    Ray turns token authentication on by itself and writes the token into the default file. A token that stands in
    RAY_AUTH_TOKEN itself is never written down here: who joins must set it too.
    """
    mode = os.environ.get("RAY_AUTH_MODE", "")
    if not mode:
        return {}
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token").absolute()
    if mode.lower() != "token" or os.environ.get("RAY_AUTH_TOKEN") or not path.exists():
        return {"RAY_AUTH_MODE": mode}
    return {"RAY_AUTH_MODE": mode, "RAY_AUTH_TOKEN_PATH": str(path)}


def show_token(record: Record) -> None:
    """Sets what Ray needs to join the den's cluster; what the shell says itself wins."""
    for name, value in record.token.items():
        if name != "RAY_AUTH_TOKEN_PATH" or not os.environ.get("RAY_AUTH_TOKEN"):
            os.environ.setdefault(name, value)


def join(spec: DenSpec, address: str | None = None) -> tuple[Den, Record]:
    """Joins the den that is up, as a guest: leaving it does not end it.

    Args:
        address: of its Ray cluster; None: what the record says, or RAY_ADDRESS.

    Raises:
        DenUnreachable: nothing is up; the text says how to start it.
    """
    record = read_record(spec)
    if address is None and record is not None and not record.is_alive():
        raise DenUnreachable(
            f"The den {spec.den!r} is not up: its process {record.pid} is gone (its log: {record.log}). "
            "Start it again with `wolfpack up`; it goes on from its ledger."
        )
    if address is None:
        address = record.address if record is not None else os.environ.get("RAY_ADDRESS")
        if record is not None:
            show_token(record)
    if not address:
        raise DenUnreachable(
            f"The den {spec.den!r} is not up. Start it with `wolfpack up`, or name a cluster with --address."
        )
    from wolfpack.pack import Den

    make_importable(spec.folder)
    # Guests draw nothing: the owner does.
    den = Den(dataclasses.replace(spec, graphs=None), address=address, detached=True, join_only=True)
    if record is None or record.address != address:
        record = Record(den=spec.den, address=address, started_at=0.0)
    return den, record


@contextlib.contextmanager
def joined(file: str, address: str | None = None) -> Iterator[Den]:
    """The den of a pack.yaml, joined, and left at the end.

    Raises:
        ConfigError, DenUnreachable: the file is wrong, or its den is not up.
    """
    from wolfpack import config

    den, _ = join(config.load(file), address)
    with den:
        yield den
