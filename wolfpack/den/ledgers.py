"""Which ledger a URL of pack.yaml means."""

from __future__ import annotations

from wolfpack.core.memory_ledger import MemoryLedger
from wolfpack.core.rows import Ledger
from wolfpack.den.sqlite_ledger import SqliteLedger
from wolfpack.errors import ConfigError


def open_ledger(url: str) -> Ledger:
    """A ledger that is not yet open.

    Raises:
        ConfigError: no ledger of this version has such a URL.
    """
    if url.startswith("sqlite:///"):
        return SqliteLedger(url.removeprefix("sqlite:///"))
    if url.startswith("memory://"):
        return MemoryLedger()
    raise ConfigError(f"There is no ledger for {url!r}; write sqlite:///PATH or memory://.")
