"""What a run of a herd is, and what came of it. Plain records."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from wolfpack.core.membership_words import MembershipOptions
from wolfpack.errors import CallerError, unknown_name
from wolfpack.model import PROFILES
from wolfpack.sim.herd_faults import MENUS
from wolfpack.sim.kernel import check_seconds

SIZE_MOST = 10_000  # what the keeper's book holds in one pack
OURS = MembershipOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class HerdPlan:
    """One run. Same plan, same trace hash."""

    # How many units there are.
    units: int = 50
    # How long it runs, in virtual seconds; then all is made well, and the herd must come to rest.
    seconds: float = 60.0
    # What all chance is drawn from.
    seed: int = 0
    # This share crashes at once, after a sixth of the run; 0: nobody, else at least one.
    crash: float = 0.0
    # This share of all packets is lost; connections retransmit.
    loss: float = 0.0
    # Menus of random faults: see `herd_faults.MENUS`.
    faults: tuple[str, ...] = ()
    # The timing profile.
    profile: str = "ray"
    # Whether each unit's load changes every second, and gossip tells it; else all are idle.
    busy: bool = False
    # Whether the units are a pack with a keeper; else membership only.
    pack: bool = True
    # Switches of the membership core.
    options: MembershipOptions = OURS

    def checked(self) -> HerdPlan:
        """Itself.

        Raises:
            CallerError: a number makes no sense, or there is no such profile or menu.
        """
        if not 2 <= self.units <= SIZE_MOST:
            raise CallerError(f"A herd has 2 to {SIZE_MOST} units, not {self.units}.")
        check_seconds(self.seconds)
        for name, share in (("crash", self.crash), ("loss", self.loss)):
            if not 0.0 <= share < 1.0:
                raise CallerError(f"The {name} is a share from 0 to below 1, not {share:g}.")
        if self.profile not in PROFILES:
            raise unknown_name("timing profile", self.profile, PROFILES)
        for menu in self.faults:
            if menu not in MENUS:
                raise unknown_name("menu of faults", menu, MENUS)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class HerdResult:
    """What came of a run. Times are virtual seconds but `wall_s` and `cpu_s`; a figure that has no value is None.

    Figures are of the plan's time; `calm_s` more passed, without faults, until all followed one alpha with equal views.
    """

    units: int
    virtual_s: float
    wall_s: float
    cpu_s: float
    # Membership's packets and syncs; howls of the election are counted apart.
    messages: int
    bytes: int
    howls: int
    messages_per_unit_s: float
    violations: int
    # Ids of what was violated, with counts, and the first ones in words.
    violated: dict[str, int] = field(default_factory=dict)
    story: tuple[str, ...] = ()
    # Changes of alpha after the first one.
    alpha_changes: int = 0
    crashed: int = 0
    # From a crash to the first unit that calls it DEAD, and until all survivors do: over the crashed units.
    first_dead_s: dict[str, float | None] = field(default_factory=dict)
    all_know_s: dict[str, float | None] = field(default_factory=dict)
    # From the crash until the views of all survivors are equal.
    views_equal_s: float | None = None
    # From the first DEAD about a unit until 99.99% of the survivors had it too, over all.
    spread_9999_s: float | None = None
    # Protocol periods (probe_s) from the crash until everybody knew.
    rounds: float | None = None
    # Times that a living unit was held DEAD by another one.
    false_positives: int = 0
    healthy_false_positives: int = 0
    calm_s: float | None = None
    # Of a busy herd: how old what units know of the others' load is at the end of the plan's time.
    load_age_s: dict[str, float | None] = field(default_factory=dict)
    seed: int = 0
    profile: str = "ray"
    trace_hash: str = ""

    def to_plain(self) -> dict[str, Any]:
        return {**asdict(self), "story": list(self.story)}
