"""Dens on the shared Ray, and waiting for a condition.

    def test_something(make_den):
        den = make_den(wolves=3)                  # grey-0 .. grey-2, one pack `work`
        future = den.pack().submit(pow, 2, 10)
        wait_until(future.done, 10)

The den of a test has a name (so a Ray namespace) and a SQLite ledger of its own; its units take no CPUs of the shared
Ray, so nothing that another test left behind is in the way. Functions of test modules can be submitted: the root of
the repository is importable in units and hands.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from wolfpack import Den
from wolfpack.model import PROFILES, Card, DenSpec, HandsSpec, Nature, Offer, PackSpec, Timing

ROOT = Path(__file__).parents[2]
NO_CPU: Mapping[str, Any] = {"num_cpus": 0}

T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout_s: float = 20.0, every_s: float = 0.02, what: str = "") -> T:
    """Waits until `condition()` is true, and returns what it was.

    Raises:
        AssertionError: it was not within `timeout_s`; the text names the condition and its last value.
    """
    end = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > end:
            what = what or getattr(condition, "__qualname__", repr(condition))
            raise AssertionError(f"not within {timeout_s:g} s: {what}; the last value was {value!r}")
        time.sleep(every_s)
    return value


def is_gone(pid: int) -> bool:
    """Whether no process of this id runs any more (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:  # it may go between the opening of the file and its reading
        return True


def cards(
    kind: str = "grey",
    count: int = 1,
    *,
    offers: Iterable[str] = ("cpu",),
    measures: Mapping[str, float] | None = None,
    hands: HandsSpec | None = None,
    **fields: Any,
) -> tuple[Card, ...]:
    """Cards `kind-0` .. of units that take no CPUs of Ray; `fields` are those of `Card`."""
    offer = Offer(frozenset(offers), tuple(sorted((measures or {}).items())))
    fields = {"ray": NO_CPU, "hands": hands or HandsSpec(), **fields}
    return tuple(Card(unit=f"{kind}-{number}", kind=kind, offer=offer, **fields) for number in range(count))


def werewolves(kind: str = "silver", count: int = 1, **fields: Any) -> tuple[Card, ...]:
    """Cards of werewolves that watch their machine by day."""
    return cards(kind, count, **{"nature": Nature.WEREWOLF, "day_job": "packs.monitoring.tasks:Watch", **fields})


class DenMaker:
    """The fixture `make_den`: call it for an open den."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._dens: list[Den] = []

    def spec(
        self,
        *,
        wolves: int = 2,
        units: tuple[Card, ...] | None = None,
        packs: tuple[PackSpec, ...] | None = None,
        timing: Timing = PROFILES["ray"],
        **fields: Any,
    ) -> DenSpec:
        """A den of this test: a fresh name, a ledger in the folder of the test.

        Args:
            wolves: so many cards `grey-0` .., where `units` are not given.
            units: all cards.
            packs: default: one, `work`, from none to all units.
            fields: those of `DenSpec`.
        """
        units = cards(count=wolves) if units is None else units
        den = f"den-{uuid.uuid4().hex[:8]}"
        given: dict[str, Any] = {
            "den": den,
            "ledger": f"sqlite:///{self._folder / den}.db",
            "cards": units,
            "packs": (PackSpec(name="work", most=len(units)),) if packs is None else packs,
            "timing": timing,
            "folder": str(ROOT),
        }
        return DenSpec(**{**given, **fields})

    def __call__(
        self, spec: DenSpec | None = None, *, detached: bool = False, join_only: bool = False, **parts: Any
    ) -> Den:
        """Opens a den: that of `spec`, or one made of `parts` (see `spec`). It is ended when the test is over."""
        den = Den(spec or self.spec(**parts), detached=detached, join_only=join_only)
        self._dens.append(den)
        return den

    def end_all(self) -> None:
        """Ends the dens, and what the test left behind of them: detached dens, units of a keeper that was killed."""
        import ray
        from ray.util import list_named_actors

        for den in reversed(self._dens):
            den.close()
        names = {den.name for den in self._dens}
        for actor in list_named_actors(all_namespaces=True):
            if actor["namespace"] in names:
                with contextlib.suppress(ValueError):  # it ended meanwhile
                    ray.kill(ray.get_actor(actor["name"], namespace=actor["namespace"]), no_restart=True)
