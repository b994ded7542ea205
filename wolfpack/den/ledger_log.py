"""SQLite's write-ahead log, read frame by frame: for salvage only.

SQLite stops at the first frame that is not whole, and drops all commits behind it. But the checksum of a frame starts
from the one stored in the frame before it, so each frame can be proved by itself: a flipped bit costs one page, or two,
and not the rest of the log. Format: https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

from __future__ import annotations

import struct
from pathlib import Path

from wolfpack.den.ledger_format import PAGE_BYTES

_HEAD = struct.Struct(">8I")  # magic, version, page size, sequence, two salts, two checksums
_FRAME = struct.Struct(">6I")  # page number, pages of the file after a commit or 0, two salts, two checksums
_FRAME_BYTES = _FRAME.size + PAGE_BYTES
_BIG_ENDIAN = 0x377F0683  # the magic of a log whose checksums read big-endian words


def checksum(data: bytes, start: tuple[int, int], order: str) -> tuple[int, int]:
    """The log's own checksum, over pairs of 32-bit words in the given byte order, ">" or "<"."""
    s0, s1 = start
    for x0, x1 in struct.iter_unpack(f"{order}2I", data):
        s0 = (s0 + x0 + s1) & 0xFFFFFFFF
        s1 = (s1 + x1 + s0) & 0xFFFFFFFF
    return s0, s1


def apply_log(log: Path, file: Path) -> list[str]:
    """Writes every whole page of the log, up to its last whole commit, into the file, and removes the log.

    Returns:
        One line for each part of the log that is not whole.
    """
    data = log.read_bytes()
    lost: list[str] = []
    if not data:
        log.unlink()
        return lost
    magic, _, _, _, *salts, sum0, sum1 = _HEAD.unpack(data[: _HEAD.size].ljust(_HEAD.size, b"\0"))
    order = ">" if magic == _BIG_ENDIAN else "<"
    stored = (sum0, sum1)
    if checksum(data[: _HEAD.size - 8].ljust(_HEAD.size - 8, b"\0"), (0, 0), order) != stored:
        lost.append("the head of the log is damaged")
        salts = list(_FRAME.unpack(data[_HEAD.size : _HEAD.size + _FRAME.size].ljust(_FRAME.size, b"\0"))[2:4])
    pages: dict[int, int] = {}  # page number -> where its newest whole copy stands in the log
    pending: dict[int, int] = {}
    broken: list[int] = []
    size = 0
    # More pages than both files have there cannot be.
    most = (len(data) + (file.stat().st_size if file.exists() else 0)) // PAGE_BYTES + 1
    for at in range(_HEAD.size, len(data) - _FRAME_BYTES + 1, _FRAME_BYTES):
        number, commit, *frame_salts, sum0, sum1 = _FRAME.unpack_from(data, at)
        page_at = at + _FRAME.size
        previous, stored = stored, (sum0, sum1)
        proof = checksum(data[at : at + 8], previous, order)
        whole = frame_salts == salts and checksum(data[page_at : page_at + PAGE_BYTES], proof, order) == stored
        if not (whole and 0 < number <= most and commit <= most):
            broken.append((at - _HEAD.size) // _FRAME_BYTES)
            continue
        pending[number] = page_at
        if commit:
            # What stands behind the last commit was never made, or is left from an older log.
            lost += [f"page {frame} of the log is damaged" for frame in broken]
            pages.update(pending)
            pending, broken, size = {}, [], commit
    with file.open("r+b" if file.exists() else "w+b") as out:
        for number, page_at in pages.items():
            out.seek((number - 1) * PAGE_BYTES)
            out.write(data[page_at : page_at + PAGE_BYTES])
        if size:
            out.truncate(size * PAGE_BYTES)
    log.unlink()
    return lost
