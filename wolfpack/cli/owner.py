"""`python -m wolfpack.cli.owner FILE LOG`: the process that keeps a den, and the Ray under it, up.

A local Ray ends with the process that started it. `wolfpack up` therefore leaves this process behind, in a session of
its own so that no terminal reaches it. It writes one JSON line to its standard output when the den is ready or why it
is not, and then lives until it is told to end by SIGTERM (`wolfpack down`), or the den was ended by somebody else.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

from wolfpack.cli.common import exit_code, make_importable
from wolfpack.cli.record import Record, birth_of, remove_record, token_facts, write_record
from wolfpack.errors import WolfPackError

LOOK_EVERY_S = 0.5


def main(file: str, log: str) -> int:
    """Holds the den of a pack.yaml until SIGTERM; returns the exit code."""
    told = os.dup(1)  # not inherited by Ray, so its end is seen when this process dies
    os.dup2(2, 1)
    told_to_end = threading.Event()

    def tell(facts: dict[str, Any]) -> None:
        os.write(told, json.dumps(facts).encode() + b"\n")
        os.close(told)

    from wolfpack import config
    from wolfpack.pack import Den

    try:
        spec = config.load(file)
        make_importable(spec.folder)
        den = Den(spec, detached=True)
    except WolfPackError as exc:
        tell({"error": str(exc), "code": exit_code(exc)})
        return exit_code(exc)
    except Exception as exc:
        tell({"error": f"{type(exc).__name__}: {exc}", "code": exit_code(exc)})
        raise
    # After Ray was started: it sets a handler of its own.
    signal.signal(signal.SIGTERM, lambda *_: told_to_end.set())
    try:
        pid = os.getpid()
        record = Record(
            den=spec.den, address=den.address, started_at=time.time(), pid=pid, born=birth_of(pid), log=log,
            token=token_facts(),
        )  # fmt: skip
        write_record(spec, record)
        tell({"pid": pid})
        while not told_to_end.wait(LOOK_EVERY_S) and not den.is_closed:
            pass
    finally:
        # The record goes last: while it is there, nobody starts a second owner on the same ledger.
        try:
            if den.is_closed:
                den.close()
            else:
                den.end("`wolfpack down`")
        finally:
            remove_record(spec)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
