"""Random faults for a herd, by menus: from the third second to the end of the plan's time. Then all is made well.

Each menu draws from its own stream, so one more menu changes nothing about the others. What a menu did can be read
from the trace and the story of the herd; the same plan does the same again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wolfpack.sim.herd_unit import HerdUnit
    from wolfpack.sim.herd_world import Herd
    from wolfpack.sim.network import Cut, Weather

MENUS: Mapping[str, str] = {
    "network": "bursts of loss, doubling, delay and reordering; clogged paths; partitions of all kinds",
    "pauses": "units stop for 128 ms to 32 s, up to a tenth of them at once",
    "slow": "one unit in twenty takes a hundred times longer for each message",
    "crashes": "units crash and are born again",
    "churn": "the highest ranks leave and come back: no fault, and no change of alpha",
}
GAP_S = 1.5  # between two faults of a menu, on average
PAUSE_S = (0.128, 0.512, 2.048, 8.192, 16.384, 32.768)
SLOW_SHARE = 0.05
SERVICE_S = 0.001  # a healthy unit needs about so long for a message
SLOWER = 100.0
CHURN_SHARE, CHURN_MOST = 0.1, 20  # of the units, the highest ranks
CHURN_STAY_S = (5.0, 40.0)  # how long one that comes and goes stays, and is away
FIRST_S = 3.0  # the pack has found its alpha by then


class Faults:
    """The faults of one herd's plan."""

    def __init__(self, herd: Herd) -> None:
        self._herd = herd
        self._menus = herd.plan.faults
        self._seconds = herd.plan.seconds

    def begin(self) -> None:
        """The first units settle in, and every menu makes its plans."""
        herd = self._herd
        coming = self._comers() if "churn" in self._menus else []
        herd.settle_in([name for name in herd.names if name not in set(coming)])
        for name in coming:
            dice = herd.kernel.stream("faults", "churn", name)
            herd.kernel.after(FIRST_S + dice.uniform(0.0, CHURN_STAY_S[1]), self._come, name, dice)
        menus: dict[str, Callable[[random.Random], None]] = {
            "network": self._network, "pauses": self._pause, "crashes": self._crash,
        }  # fmt: skip
        for menu, act in menus.items():
            if menu in self._menus:
                dice = herd.kernel.stream("faults", menu)
                herd.kernel.after(FIRST_S, self._again, act, dice)
        if "slow" in self._menus:
            herd.kernel.after(FIRST_S, self._slow, herd.kernel.stream("faults", "slow"))

    def _note(self, text: str) -> None:
        self._herd.kernel.mix(f"fault {text}")

    def _left_s(self) -> float:
        return self._seconds - self._herd.kernel.now

    def _again(self, act: Callable[[random.Random], None], dice: random.Random) -> None:
        if self._left_s() <= 0:
            return
        act(dice)
        self._herd.kernel.after(dice.expovariate(1 / GAP_S), self._again, act, dice)

    # --- network ------------------------------------------------------------------------------------------------

    def _network(self, dice: random.Random) -> None:
        herd = self._herd
        lasts_s = min(dice.uniform(0.5, 8.0), self._left_s())
        names = [unit.name for unit in herd.alive]
        kind = dice.choice(("weather", "clog", "isolate", "halves", "one-way", "bridge"))
        self._note(f"network {kind} {lasts_s:.3f}")
        kernel, network = herd.kernel, herd.network
        if kind == "weather":
            before = network.weather
            network.weather = replace(
                before, lost=dice.uniform(0.05, 0.3), doubled=dice.uniform(0.0, 0.2), late=dice.uniform(0.0, 0.2),
                exponential_s=dice.choice((0.0, 0.005, 0.05)),
            )  # fmt: skip
            kernel.after(lasts_s, self._weather_ends, replace(before, lost=herd.plan.loss))
        elif kind == "clog":
            source, target = dice.sample(names, 2)
            network.clog(source, dice.choice((target, None)), lasts_s)
            kernel.after(lasts_s, self._note, "clog ends")
        else:
            dice.shuffle(names)
            some = names[: 1 if kind in ("isolate", "one-way") else len(names) // 2]
            others = None if kind in ("isolate", "one-way") else names[len(some) + (kind == "bridge") :]
            cut = network.cut(some, others, one_way=kind == "one-way")
            kernel.after(lasts_s, self._heal, cut)

    def _weather_ends(self, weather: Weather) -> None:
        if self._left_s() >= 0:
            self._note("weather ends")
            self._herd.network.weather = weather

    def _heal(self, cut: Cut) -> None:
        self._note("heal")
        self._herd.network.heal(cut)

    # --- units --------------------------------------------------------------------------------------------------

    def _pause(self, dice: random.Random) -> None:
        herd = self._herd
        running = [unit for unit in herd.alive if not unit.stopped]
        stopped = len(herd.alive) - len(running)
        room = max(1, herd.size // 10) - stopped
        if room < 1:
            return
        unit = dice.choice(running)
        lasts_s = min(dice.choice(PAUSE_S), self._left_s())
        self._note(f"pause {unit.name} {lasts_s:.3f}")
        unit.stop()
        herd.kernel.after(lasts_s, self._go_on, unit)

    def _go_on(self, unit: HerdUnit) -> None:
        self._note("go on")
        unit.go_on()

    def _slow(self, dice: random.Random) -> None:
        herd = self._herd
        chosen = dice.sample(herd.alive, max(1, round(SLOW_SHARE * herd.size)))
        self._note("slow")
        for unit in chosen:
            unit.healthy = False
            unit.service_us = round(SERVICE_S * SLOWER * 1e6)

    def _crash(self, dice: random.Random) -> None:
        herd = self._herd
        living = herd.alive
        if len(living) < 3 or len(living) <= herd.size // 2:
            return
        unit = dice.choice(living)
        self._note(f"crash {unit.name}")
        herd.crash(unit.name)
        herd.kernel.after(dice.uniform(0.5, 10.0), self._rebirth, unit.name, dice.random() < 0.5)

    def _rebirth(self, name: str, told: bool) -> None:
        if not self._herd.units[name].alive:
            self._note(f"rebirth {name}")
            self._herd.birth(name, told=told)

    def end(self) -> None:
        """All is made well: who is stopped goes on, all paths are open, nothing is lost."""
        herd = self._herd
        self._note("calm")
        herd.network.heal()
        herd.network.weather = replace(herd.network.weather, lost=0.0, doubled=0.0, late=0.0, exponential_s=0.0)
        for unit in herd.alive:
            unit.service_us = 0
            unit.go_on()

    # --- churn --------------------------------------------------------------------------------------------------

    def _comers(self) -> list[str]:
        """The highest ranks: one in ten, at most twenty, and two others stay at least."""
        herd = self._herd
        count = min(max(1, round(CHURN_SHARE * herd.size)), CHURN_MOST, herd.size - 2)
        return [peer.unit for peer in herd.ranked[:count]]

    def _come(self, name: str, dice: random.Random) -> None:
        if self._left_s() <= 0:
            return
        self._note(f"comes {name}")
        self._herd.birth(name, told=dice.random() < 0.5)
        self._herd.kernel.after(dice.uniform(*CHURN_STAY_S), self._go, name, dice)

    def _go(self, name: str, dice: random.Random) -> None:
        if self._left_s() <= 0:
            return  # stays
        self._note(f"goes {name}")
        self._herd.leave(name)
        self._herd.kernel.after(dice.uniform(*CHURN_STAY_S), self._come, name, dice)
