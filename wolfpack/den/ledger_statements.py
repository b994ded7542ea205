"""The statements that write a SQLite ledger, each for many rows at once.

Each statement gives up Python's lock and must win it back, which can take 5 ms a time when another thread is busy: row
by row a commit of a thousand could last seconds. So rows go in groups, of a few sizes, so that SQLite keeps the plans.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

_GROUPS = (64, 32, 16, 8, 4, 2, 1)


class Many:
    """One statement for many rows: `head`, then a group of parameters a row, then `tail`."""

    def __init__(self, head: str, group: str, tail: str = "") -> None:
        self._width = group.count("?")
        self._texts = [(n * self._width, head + ",".join([group] * n) + tail) for n in _GROUPS]

    def run(self, con: sqlite3.Connection, params: Sequence[Any]) -> int:
        """Sends all rows, whose parameters stand one after the other; returns how many rows were hit."""
        at, hit = 0, 0
        for size, text in self._texts:
            while len(params) - at >= size:
                hit += con.execute(text, params[at : at + size]).rowcount
                at += size
        return hit


PUT_TASKS = Many("INSERT INTO task (num, key, body, crc) VALUES ", "(?,?,?,?)")
PUT_LIVE = Many("INSERT OR REPLACE INTO live (num, pack, state, body, crc) VALUES ", "(?,?,?,?,?)")
PUT_FINAL = Many("INSERT INTO final (num, client, settle_no, pack, state, body, crc) VALUES ", "(?,?,?,?,?,?,?)")
DROP_TASKS = Many("DELETE FROM task WHERE num IN (", "?", ")")
DROP_LIVE = Many("DELETE FROM live WHERE num IN (", "?", ")")
DROP_FINAL = Many("DELETE FROM final WHERE num IN (", "?", ")")
PUT_EVENTS = Many("INSERT INTO event (number, body, crc) VALUES ", "(?,?,?)")
PUT_GHOSTS = Many("INSERT INTO ghost (number, body, crc) VALUES ", "(?,?,?)")
PUT_UNITS = Many("INSERT OR REPLACE INTO unit (unit, body, crc) VALUES ", "(?,?,?)")
PUT_PACKS = Many("INSERT OR REPLACE INTO pack (pack, body, crc) VALUES ", "(?,?,?)")
PUT_META = Many("INSERT OR REPLACE INTO meta (name, body, crc) VALUES ", "(?,?,?)")
PUT_CLIENTS = Many("INSERT OR REPLACE INTO client (no, body, crc) VALUES ", "(?,?,?)")
PUT_FUNCTIONS = Many("INSERT OR IGNORE INTO function (fn, body, crc) VALUES ", "(?,?,?)")
