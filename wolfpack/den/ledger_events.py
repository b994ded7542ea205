"""Events straight from a ledger's file, for when no den is awake. Nothing is changed, no lock is taken."""

from __future__ import annotations

import os
from pathlib import Path

from wolfpack.core.rows import EventRow
from wolfpack.den import ledger_format as form
from wolfpack.den.ledger_open import reading
from wolfpack.errors import LedgerDamaged
from wolfpack.events import Recorded, decode


def read_events(path: str | os.PathLike[str], since: int = 0) -> list[Recorded]:
    """Every event after this number, in order.

    Raises:
        LedgerDamaged, LedgerTooNew, LedgerError: the file is no whole ledger, or cannot be read.
    """
    path = Path(path).absolute()
    found = []
    try:
        with reading(path) as con:
            form.check_schema(con, path)
            for number, *row in con.execute(
                "SELECT rowid, body, crc FROM event WHERE rowid > ? ORDER BY rowid", (since,)
            ):
                event = EventRow(*form.unseal("event", number, *row))
                found.append(
                    Recorded(
                        number=event.number,
                        at=event.at,
                        producer=event.producer,
                        event=decode(event.name, event.fields),
                    )
                )
    except form.RowFault as exc:
        raise LedgerDamaged(f"{path}: {exc}. `wolfpack ledger check {path}` lists every fault.") from exc
    except (*form.READ_ERRORS, OSError, ValueError) as exc:
        raise form.explain(path, exc, "read") from exc
    return found
