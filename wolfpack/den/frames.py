"""Frames: how a unit and its hands talk over a pipe.

A frame is the length of its body (four bytes, big-endian) and the body, one msgpack list. Pipes cut and join what is
written, so the reader feeds whatever bytes it got to a `Decoder`, which keeps the cut tail for the next time.
"""

from __future__ import annotations

from typing import Any

import msgpack

# Arguments and values above a MiB go by file; this leaves room for the code of functions that carry data.
FRAME_MAX_BYTES = 1 << 28
HEAD_BYTES = 4


class BrokenFrame(ValueError):
    """The bytes are no frames: the other side is not ours any more (user code wrote into the pipe), or has a bug."""


def encode(message: list[Any], *, max_bytes: int = FRAME_MAX_BYTES) -> bytes:
    """One frame.

    Raises:
        BrokenFrame: the message is larger than `max_bytes`.
    """
    body: bytes = msgpack.packb(message, unicode_errors="surrogatepass")
    if len(body) > max_bytes:
        raise BrokenFrame(f"a message of {len(body):,} bytes is above the {max_bytes:,} bytes a frame may have")
    return len(body).to_bytes(HEAD_BYTES, "big") + body


class Decoder:
    """Turns chunks of a byte stream into messages; time and memory are linear in the bytes fed."""

    def __init__(self, *, max_bytes: int = FRAME_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._tail = bytearray()
        self._need_bytes = HEAD_BYTES  # the tail cannot hold a whole frame before it is this long

    def feed(self, data: bytes) -> list[list[Any]]:
        """The messages that are complete now.

        Raises:
            BrokenFrame: a length above the limit, or a body that is no msgpack list.
        """
        tail = self._tail
        if tail:
            tail += data
            if len(tail) < self._need_bytes:
                return []
            data = bytes(tail)
            tail.clear()
        messages: list[list[Any]] = []
        at, end = 0, len(data)
        view = memoryview(data)
        while end - at >= HEAD_BYTES:
            size = int.from_bytes(view[at : at + HEAD_BYTES], "big")
            if size > self._max_bytes:
                raise BrokenFrame(f"a frame of {size:,} bytes is above the limit of {self._max_bytes:,}")
            stop = at + HEAD_BYTES + size
            if stop > end:
                break
            try:
                message = msgpack.unpackb(
                    view[at + HEAD_BYTES : stop], strict_map_key=False, unicode_errors="surrogatepass"
                )
            except Exception as exc:  # msgpack raises a dozen kinds
                raise BrokenFrame(f"a frame that is no msgpack: {type(exc).__name__}: {exc}") from exc
            if not isinstance(message, list):
                raise BrokenFrame(f"a frame that holds no list but {type(message).__name__}")
            messages.append(message)
            at = stop
        if at < end:
            tail += view[at:]
            size = int.from_bytes(tail[:HEAD_BYTES], "big") if len(tail) >= HEAD_BYTES else 0
            self._need_bytes = HEAD_BYTES + size
        return messages
