"""The two small files beside a SQLite ledger: the lock, and the high-water mark.

*Lock* (`<ledger>.lock`): an exclusive `flock`, so it is free again the moment its process dies. The text in it names
the holder, for people only. The file is never removed: two processes could then hold two files of one name.

*Mark* (`<ledger>.mark`): the epoch and the number of the last commit. SQLite silently drops the tail of a log that was
cut or damaged, so a ledger alone cannot tell that commits are missing; a mark above the ledger can. It is written after
each commit, in place and without a sync of its own: a killed process loses nothing of it, and after a loss of power it
may be older than the ledger but never newer. An older mark accuses nobody; it only sees less.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from wolfpack.errors import LedgerDamaged, LedgerError, LedgerHeld

log = logging.getLogger("wolfpack.ledger")


def beside(path: Path, suffix: str) -> Path:
    """A companion of the ledger: `timber.db` -> `timber.db.lock`."""
    return path.with_name(path.name + suffix)


def sync_folder(folder: Path) -> None:
    """Makes creations and renames in this folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Lock:
    """One living process at a time.

    Raises:
        LedgerHeld: another one has it; the text names it.
        LedgerError: the lock file cannot be made or locked.
    """

    def __init__(self, ledger: Path) -> None:
        path = beside(ledger, ".lock")
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as exc:
            raise LedgerError(
                f"The ledger {ledger} cannot be used: its lock file {path} cannot be written ({exc.strerror}). "
                "Make its folder writable, or name another file under `ledger:`."
            ) from exc
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            holder = " ".join(os.pread(self._fd, 200, 0).decode("utf-8", "replace").split())
            os.close(self._fd)
            self._fd = -1
            if not isinstance(exc, BlockingIOError):
                raise LedgerError(
                    f"The ledger {ledger} cannot be locked ({exc.strerror}). Put it on a local disk that knows flock."
                ) from exc
            raise LedgerHeld(
                f"The ledger {ledger} is held by {holder or 'another process'}. Join that den, end it, or name "
                "another file under `ledger:`."
            ) from exc
        # A full disk must not keep anybody out: the text serves people only.
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class MarkNumbers(NamedTuple):
    ident: bytes  # of the ledger it belongs to, 8 bytes
    epoch: int
    commit_no: int


_MARK = struct.Struct("<4s8sQQ")
_MAGIC = b"WPM1"


def read_mark(ledger: Path) -> MarkNumbers | None:
    """The mark beside this ledger; None where there is none.

    Raises:
        LedgerDamaged: it is not whole, so it cannot prove that the ledger is.
    """
    path = beside(ledger, ".mark")
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise LedgerError(f"The mark {path} of the ledger cannot be read ({exc.strerror}).") from exc
    if len(text) == _MARK.size + 4 and zlib.crc32(text[:-4]).to_bytes(4, "little") == text[-4:]:
        magic, ident, epoch, commit_no = _MARK.unpack(text[:-4])
        if magic == _MAGIC:
            return MarkNumbers(ident, epoch, commit_no)
    raise LedgerDamaged(
        f"The mark {path} is damaged, so nothing proves that the ledger {ledger} has all its commits. "
        "Look with `wolfpack ledger check`; to go on with the ledger as it is, remove the mark."
    )


class Mark:
    """The writing side of the mark. Made durable at opening and at closing, and lazily in between."""

    def __init__(self, ledger: Path, numbers: MarkNumbers) -> None:
        path = beside(ledger, ".mark")
        fresh = beside(ledger, ".mark.new")
        self._ident = numbers.ident
        self._broken = False
        fresh.unlink(missing_ok=True)  # left by a process that was killed; never written through, wherever it leads
        self._fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            self.write(numbers.epoch, numbers.commit_no)
            os.fsync(self._fd)
            fresh.replace(path)
            sync_folder(path.parent)
        except BaseException:
            os.close(self._fd)
            raise

    def write(self, epoch: int, commit_no: int) -> None:
        """Follows a commit that is durable already: trouble here is logged, for the commit stands."""
        text = _MARK.pack(_MAGIC, self._ident, epoch, commit_no)
        try:
            os.pwrite(self._fd, text + zlib.crc32(text).to_bytes(4, "little"), 0)
        except OSError as exc:
            if not self._broken:
                log.warning("The mark of the ledger cannot be written (%s): a lost tail may go unseen.", exc.strerror)
            self._broken = True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.fsync(self._fd)
        os.close(self._fd)
