"""Addresses as text: `127.0.0.1:7000` or `[::1]:7000`, one spelling for each place.

Addresses come out of packets, so anybody can write one. What packets are sent to is therefore a number and never a
name: looking up a name would stop the loop and let a stranger make this process ask name servers. Only the operator's
own words (`bind`, `seeds`) may be names.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from functools import lru_cache

from wolfpack.errors import CallerError

__all__ = ["find_place", "format_place", "resolve", "split_address"]

Place = tuple[str, int]  # a numeric IP address and a port

_CACHE_MOST = 1 << 14


@lru_cache(_CACHE_MOST)
def format_place(host: str, port: int) -> str:
    """A place as text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@lru_cache(_CACHE_MOST)
def find_place(address: str, family: int) -> Place | None:
    """Where packets to this address go; None: it is no number of one machine, or of another family."""
    host, _, port = address.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 1 << 16):
        return None
    try:
        number = ipaddress.ip_address(bare)
    except ValueError:
        return None
    if number.is_multicast or number.is_unspecified or "%" in bare:
        return None
    if (family == socket.AF_INET6) != (number.version == 6):
        return None
    return str(number), int(port)


def split_address(text: str) -> Place:
    """Host, which may be a name, and port, which may be 0, of `host:port` as people write it.

    Raises:
        CallerError: it is nothing of that kind.
    """
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise CallerError(f"{text!r} is no address: write an IPv6 address in brackets, such as '[::1]:7000'.")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) >= 1 << 16:
        raise CallerError(f"{text!r} is no address: write host:port, such as '127.0.0.1:7000'.")
    return host, int(port)


async def resolve(host: str, port: int, family: int, within_s: float) -> Place | None:
    """The numeric place of a host, in this family (0: any); None: there is none, or nobody answered in time."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ValueError):
        number = ipaddress.ip_address(host)  # most are, and need no thread
        return (str(number), port) if family in (0, {4: socket.AF_INET, 6: socket.AF_INET6}[number.version]) else None
    try:
        async with asyncio.timeout(within_s):
            found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError, TimeoutError):
        return None
    return (str(found[0][4][0]), int(found[0][4][1])) if found else None
