"""The door of the command line: words, files and records of any kind, in this process, for commands without a den."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner

import wolfpack.pack
from tests.cli.support import write_pack
from tests.fuzz.config import GOOD
from tests.fuzz.fuzzer import spoil_bytes, spoil_value
from tests.fuzz.ledger import LedgerFiles
from wolfpack.cli import cli
from wolfpack.errors import CallerError, DenUnreachable, RayTrouble

CODES = {0, 1, 2, 3, 130}
WORDS = (
    "", " ", "-", "--", "-1", "--json", "--debug", "--help", "--file", "-f", "--address", "--since", "--out", "--limit",
    "--follow", "--needs", "--key", "--priority", "--delay-s", "--wait", "--all", "--pack", "--min", "--max",
    "pack.yaml", "computing", "math:sqrt", "os:system", "job_of_tests:add", ":", "a:", ":b", "no.such:thing",
    "json:loads.x", "4", "1e999", "nan", "99999999999999999999", "{}", "[1", "[" * 3000, '{"a": NaN}', "x" * 5000,
    "\udcff", "²", "\x1b[2J", "\u202e", "timber.db", "out.db", ".", "/", "/dev/null", "/proc/self/mem", "pipe",
    "folder", "link", "a/b/c",
    "now.svg", "now.bmp", ".wolfpack/clitest.db", "bad.yaml", "127.0.0.1:1", "auto", "list", "show", "retry", "drop",
)  # fmt: skip
COMMANDS = (
    "check", "schema", "ledger check", "ledger salvage", "status", "submit", "why", "dead list", "dead show",
    "dead retry", "dead drop", "events", "graph", "scale", "down", "run", "up",
)  # fmt: skip
RECORD = ("timber", "127.0.0.1:1", 1.0, None, "", "a.log", ("RAY_AUTH_MODE", "token"))


class NoDen:
    """Stands where a den would be made or joined: no Ray is started for words of any kind."""

    def __init__(self, _spec: Any, *, address: Any = None, **_options: Any) -> None:
        if address is not None and (type(address) is not str or "\0" in address):
            raise AssertionError(f"an address that is none reached Ray: {address!r}")
        raise RayTrouble("there is no Ray here")


class CommandLine:
    """One command with some words, among files of any kind: one message and a code that says who must act."""

    name = "command line"
    refusals = (CallerError, DenUnreachable)

    def __init__(self) -> None:
        self._ledgers = LedgerFiles()
        self._folder = tempfile.TemporaryDirectory(prefix="wolfpack-fuzz-", ignore_cleanup_errors=True)
        home = self._home = Path(self._folder.name)
        write_pack(home)
        os.mkfifo(home / "pipe")
        (home / "folder").mkdir()
        (home / "link").symlink_to("link")
        (home / ".wolfpack").mkdir()
        self._runner = CliRunner()

    def make(self, rng: random.Random) -> tuple[tuple[str, ...], bytes, bytes, bytes]:
        words = [*rng.choice(COMMANDS).split(), *rng.choices(WORDS, k=rng.choice((0, 1, 1, 2, 3)))]
        if rng.random() < 0.1:
            rng.shuffle(words)
        record: dict[str, Any] = dict(zip(("den", "address", "started_at", "pid", "born", "log"), RECORD, strict=False))
        record["token"] = dict([RECORD[-1]])  # type: ignore[list-item]
        for name in rng.sample(sorted(record), rng.choice((0, 1, 1, 2))):
            record[name] = spoil_value(rng, record[name])
        try:
            told = json.dumps(record, default=repr).encode()
        except (TypeError, ValueError, RecursionError):
            told = b"{}"
        if rng.random() < 0.3:
            told = rng.choice((spoil_bytes(rng, told), b"[" * 50_000, b"\xff", b"null"))
        ledger = rng.choice(list(self._ledgers.files["closed"].values()))
        spoiled = ledger if rng.random() < 0.3 else spoil_bytes(rng, ledger)
        return tuple(words), told, spoiled, spoil_bytes(rng, GOOD)

    def attempt(self, given: tuple[tuple[str, ...], bytes, bytes, bytes]) -> None:
        words, record, ledger, config = given
        for name, data in (
            (".wolfpack/clitest.json", record), ("timber.db", ledger), (".wolfpack/clitest.db", ledger),
            ("bad.yaml", config),
        ):  # fmt: skip
            for suffix in ("", "-wal", "-shm", ".mark", ".lock"):
                with contextlib.suppress(FileNotFoundError):
                    (self._home / f"{name}{suffix}").unlink()
            (self._home / name).write_bytes(data)
        for made in ("out.db", "now.svg"):
            with contextlib.suppress(OSError):
                (self._home / made).unlink()
        with self._at_home():
            result = self._runner.invoke(cli, list(words))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code in CODES, result.exit_code
        if result.exit_code:
            raise CallerError(result.stderr.strip() or result.stdout)

    @contextlib.contextmanager
    def _at_home(self) -> Iterator[None]:
        former, paths, variables = Path.cwd(), list(sys.path), dict(os.environ)
        os.chdir(self._home)
        os.environ.pop("RAY_ADDRESS", None)
        try:
            with patch.object(wolfpack.pack, "Den", NoDen), patch("wolfpack.cli.den._start_owner", _no_owner):
                yield
        finally:
            strange = set(os.environ) - set(variables) - {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"}
            os.environ.clear()
            os.environ.update(variables)
            sys.path[:] = paths
            os.chdir(former)
            assert not strange, f"a record set {strange}"

    def close(self) -> None:
        self._ledgers.close()
        self._folder.cleanup()


def _no_owner(*_: Any) -> None:
    raise RayTrouble("there is no Ray here")
