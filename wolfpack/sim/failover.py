"""How long a pack is without an alpha: the alpha crashes, and a stopwatch runs until the next one has its grant.

The set-up of the Raft paper's Figure 16 (Ongaro and Ousterhout 2014): five units, the alpha crashes at a moment drawn
uniformly over its heartbeat, and a broadcast, there and back, takes 15 ms on average. No hint tells of the crash:
silence alone finds it. The stopwatch stops when the next alpha learns of its grant; the crashed unit is born again a
little later, and the next alpha crashes, a thousand times. Real succession, the real book, virtual time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any

from wolfpack.core.howls import Peer
from wolfpack.core.succession import MemberHeard, PeersChanged
from wolfpack.model import PROFILES, Timing
from wolfpack.sim.herd_keeper import HerdKeeper
from wolfpack.sim.herd_pack import Leadership, Office, due_us
from wolfpack.sim.kernel import Kernel
from wolfpack.sim.network import Network, Weather

BROADCAST_S = 0.015  # there and back: what the paper calls the broadcast time
SPREAD = 1 / 3  # one way takes half of it, give or take a third
SETTLE_SILENCES = 10.0  # from a grant to the next crash, x silence_s
LIMIT_S = 60.0  # nobody leads after so long: that is a fault, not a figure


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverResult:
    crashes: int
    units: int
    profile: str
    broadcast_s: float
    median_s: float
    p99_s: float
    max_s: float
    virtual_s: float
    violations: tuple[str, ...]
    trace_hash: str

    def to_plain(self) -> dict[str, Any]:
        return {**asdict(self), "violations": list(self.violations)}


class _Body:
    """A process that lives until it is killed."""

    def __init__(self, kernel: Kernel) -> None:
        self.up = True
        self._kernel = kernel

    def now(self) -> float:
        return self._kernel.now

    def us_of(self, now: float) -> int:
        return due_us(now)

    def is_up(self) -> bool:
        return self.up

    def hold(self, what: Callable[..., Any], *args: Any) -> None:
        """The dead keep nothing."""

    def led(self, term: int, alpha: str, boot: int) -> None:
        """All of so small a pack hear the alpha itself."""


class _Pack:
    """Units that know each other from the roster alone."""

    def __init__(self, units: int, timing: Timing, seed: int, broadcast_s: float) -> None:
        self.kernel = Kernel(seed)
        self.timing = timing
        one_way = broadcast_s / 2
        self.network = Network(self.kernel, Weather(delay_s=(one_way * (1 - SPREAD), one_way * (1 + SPREAD))))
        peers = [Peer(unit=f"unit-{no}", boot=0) for no in range(units)]
        self.keeper = HerdKeeper(peers, timing, self.kernel.stream("keeper"))
        self.office = Office(self.kernel, self.network, self.keeper, timing)
        self.bodies: dict[str, _Body] = {}
        self.roster: dict[str, Peer] = {}
        for peer in peers:
            self.birth(peer.unit)

    def birth(self, unit: str) -> None:
        boot = self.keeper.birth(self.kernel.now, unit)
        me = self.roster[unit] = Peer(unit=unit, boot=boot)
        self.bodies[unit] = body = _Body(self.kernel)
        born = Leadership(self.office, me, body, self.kernel.stream("unit", unit, boot), gossip=False)
        told = PeersChanged(tuple(self.roster.values()))
        for name, body in self.bodies.items():
            if body.up and name != unit:
                self.kernel.after_us(self._delay_us(name), self.office.by_unit[name].take, told)
        self.kernel.after_us(0, born.take, told)
        self.kernel.after(
            self.kernel.stream("hunts", unit, boot).uniform(0.0, self.timing.heartbeat_s), self._hunt, born
        )

    def _hunt(self, member: Leadership) -> None:
        """Each heartbeat a member has a word with its alpha."""
        unit, by_unit = member.me.unit, self.office.by_unit
        if by_unit[unit] is not member or not self.bodies[unit].up:
            return
        alpha = member.machine.alpha
        if alpha is not None and alpha != unit:
            self.network.send(unit, alpha, by_unit[alpha].take, MemberHeard())
        self.kernel.after(self.timing.heartbeat_s, self._hunt, member)

    def _delay_us(self, unit: str) -> int:
        return self.network.stream_us("keeper", unit) or 0

    def crash(self, unit: str) -> None:
        self.bodies[unit].up = False

    def led_by(self) -> str | None:
        """The alpha that every living unit follows."""
        living = [self.office.by_unit[name].machine for name, body in self.bodies.items() if body.up]
        names = {machine.alpha for machine in living}
        alpha = names.pop() if len(names) == 1 else None
        return alpha if alpha is not None and self.bodies[alpha].up else None


def run_failover(
    *, crashes: int = 1000, units: int = 5, profile: str = "fast", seed: int = 0, broadcast_s: float = BROADCAST_S
) -> FailoverResult:
    """Crashes the alpha so often, and tells how long the pack was without one each time.

    Raises:
        ValueError: fewer than one crash, or fewer than two units.
        KeyError: there is no such profile.
    """
    if crashes < 1 or units < 2:
        raise ValueError("a failover needs at least one crash and two units")
    timing = PROFILES[profile]
    pack = _Pack(units, timing, seed, broadcast_s)
    kernel, office = pack.kernel, pack.office
    chance = kernel.stream("crashes")
    took: list[float] = []
    faults: list[str] = []
    for _ in range(crashes):
        if not kernel.run_until(pack.led_by, LIMIT_S):
            faults.append(f"L1: no alpha that all follow within {LIMIT_S:g} s at {kernel.now:.3f} s")
            break
        kernel.run(timing.silence_s * SETTLE_SILENCES + chance.uniform(0.0, timing.heartbeat_s))
        alpha = pack.led_by()
        if alpha is None:
            faults.append(f"L5: the pack lost its alpha without a fault at {kernel.now:.3f} s")
            continue
        took.append(_crash(pack, alpha, chance))
    faults += office.faults
    p99 = quantiles(took, n=100, method="inclusive")[98] if len(took) > 1 else took[0] if took else LIMIT_S
    return FailoverResult(
        crashes=len(took), units=units, profile=profile, broadcast_s=broadcast_s,
        median_s=round(median(took), 6) if took else LIMIT_S, p99_s=round(p99, 6),
        max_s=round(max(took, default=LIMIT_S), 6), virtual_s=round(kernel.now, 3), violations=tuple(faults),
        trace_hash=kernel.trace_hash,
    )  # fmt: skip


def _crash(pack: _Pack, alpha: str, chance: random.Random) -> float:
    kernel, crowned = pack.kernel, pack.office.crowned
    began, before = kernel.now, len(crowned)
    kernel.mix(f"crash {alpha}")
    pack.crash(alpha)
    kernel.run_until(lambda: len(crowned) > before, LIMIT_S)
    took = kernel.now - began
    kernel.run(pack.timing.silence_s * chance.uniform(1.0, 3.0))
    pack.birth(alpha)
    return took
