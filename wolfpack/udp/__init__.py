"""Membership between processes over UDP, without Ray: on one machine, or in a network of one's own.

    from wolfpack.udp import UdpMember

    async with UdpMember(unit="a", den="demo", seeds=["127.0.0.1:7000"]) as member:
        print(member.members())

The same core as between Ray units and in the simulator (`wolfpack/core/membership.py`), with a driver of its own:

    member.py      UdpMember: the machine in a loop of asyncio, and its face
    transport.py   one UDP socket and one TCP listener on the same port, and what protects them
    addresses.py   addresses as text; never names, where strangers wrote them
    seal.py        keeps out who does not have the den's secret
    __main__.py    `python -m wolfpack.udp`: a unit from the shell

docs/membership.md tells what it is for and what it promises.
"""

from __future__ import annotations

from wolfpack.core.membership_words import AlphaHeard, Load, MembershipOptions, Stalled, Status, StatusChanged
from wolfpack.udp.member import Change, KnownUnit, UdpMember, boot_by_clock

__all__ = [
    "AlphaHeard", "Change", "KnownUnit", "Load", "MembershipOptions", "Stalled", "Status", "StatusChanged",
    "UdpMember", "boot_by_clock",
]  # fmt: skip
