"""A seal on everything that is sent, for dens that share a secret: who does not have it is not heard.

The seal is a keyed BLAKE2b of 16 bytes behind the data. It tells apart packets, asks and answers, so that one cannot
stand for another, and dens. It hides nothing, and does not show whether something is said a second time: membership
takes late and doubled packets as they come, since an old claim never beats a newer one.
"""

from __future__ import annotations

import hmac
from enum import Enum
from hashlib import blake2b

from wolfpack.errors import CallerError

__all__ = ["Seal", "Use"]


class Use(bytes, Enum):
    """What is sealed: the `person` of the hash."""

    PACKET = b"wolfpack packet"
    ASK = b"wolfpack ask"
    ANSWER = b"wolfpack answer"


class Seal:
    """Puts seals on, and takes them off. Without a secret both do nothing.

    Attributes:
        size_bytes: how much longer sealed data is.
    """

    __slots__ = ("_key", "size_bytes")

    def __init__(self, secret: str | bytes | None, den: str) -> None:
        if secret is not None and not secret:
            raise CallerError("An empty secret keeps nobody out: give one of at least 16 random bytes, or None.")
        self.size_bytes = 0 if secret is None else 16
        self._key = b""
        if secret is not None:
            raw = secret.encode() if isinstance(secret, str) else secret
            self._key = blake2b(len(raw).to_bytes(8, "big") + raw + den.encode(), person=b"wolfpack key").digest()

    def _of(self, data: bytes, use: Use) -> bytes:
        return blake2b(data, key=self._key, digest_size=self.size_bytes, person=use.value).digest()

    def put(self, data: bytes, use: Use) -> bytes:
        return data + self._of(data, use) if self._key else data

    def take(self, data: bytes, use: Use) -> bytes | None:
        """What was sealed; None: this is no seal of ours."""
        if not self._key:
            return data
        if len(data) < self.size_bytes:
            return None
        inner, seal = data[: -self.size_bytes], data[-self.size_bytes :]
        return inner if hmac.compare_digest(self._of(inner, use), seal) else None
