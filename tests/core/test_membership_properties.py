"""Whatever the network does: I9, I10 and I11 at every step, and L3 and L4 once it calms down."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.herd_pump import RAY, Pump
from wolfpack.core.membership import Membership
from wolfpack.core.membership_words import Event, Leaving, Load, LoadChanged, SendPacket
from wolfpack.core.suspicion import all_know_bound

NAMES = tuple(f"u-{i}" for i in range(6))
FAULTS = ("crash", "birth", "freeze", "resume", "isolate", "split", "mend", "loss", "calm", "leave", "load", "hint")


class Watched(Pump):
    """A pump that looks at I9, I10 and I11 at every step."""

    def __init__(self, seed: int, **kind) -> None:
        super().__init__(seed, **kind)
        self.raised: dict[tuple[str, int], int] = {}  # (unit, boot) -> highest counter it gave itself
        self.stood: dict[tuple[str, int, str], tuple[int, int, int]] = {}  # (who, its boot, of) -> standing

    def give(self, name: str, event: Event) -> None:
        super().give(name, event)
        unit = self.units.get(name)
        if unit is not None and name not in self.frozen:
            self._look(name, unit)

    def _look(self, name: str, unit: Membership) -> None:
        self.raised[name, unit.boot] = max(self.raised.get((name, unit.boot), 0), unit.counter)
        for member in unit.view:
            known = self.raised.get((member.unit, member.boot))
            assert known is not None, f"{name} knows a boot of {member.unit} that never was"
            assert member.counter <= known, f"I9: somebody else raised {member}"
            before = self.stood.get((name, unit.boot, member.unit))
            assert before is None or before <= member.standing, f"I10: {name} went down from {before} to {member}"
            self.stood[name, unit.boot, member.unit] = member.standing

    def _carry_out(self, name: str, order: object) -> None:
        if isinstance(order, SendPacket):
            assert len(order.data) <= 1400, "I11"
        super()._carry_out(name, order)


def inflict(pump: Watched, fault: str, name: str, other: str, boots: dict[str, int]) -> None:
    lives = name in pump.units
    match fault:
        case "crash" if lives and len(pump.units) > 1:
            pump.crash(name)
        case "leave" if lives and len(pump.units) > 1 and name not in pump.frozen:
            pump.give(name, Leaving())
            pump.crash(name)
        case "birth" if not lives:
            boots[name] += 1
            pump.raised[name, boots[name]] = 0
            pump.birth(name, boot=boots[name], knows=NAMES)
        case "freeze" if lives and name not in pump.frozen:
            pump.freeze(name)
        case "resume" if name in pump.frozen:
            pump.resume(name)
        case "isolate":
            pump.cut = lambda source, to: name in (source, to)
        case "split":
            side = set(NAMES[:3])
            pump.cut = lambda source, to: (source in side) != (to in side)
        case "mend":
            pump.cut = lambda source, to: False
        case "loss":
            pump.loss = 0.3
        case "calm":
            pump.loss = 0.0
        case "load" if lives:
            pump.give(name, LoadChanged(Load(leases=len(other), progress=int(pump.now))))
        case "hint" if lives and other in pump.units:
            pump.hint(name, other)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    script=st.lists(
        st.tuples(st.floats(0.0, 8.0), st.sampled_from(FAULTS), st.sampled_from(NAMES), st.sampled_from(NAMES)),
        max_size=12,
    ),
)
def test_I9_I10_I11_at_every_step_and_L3_L4_after_any_faults(seed, script):
    pump = Watched(seed)
    boots = dict.fromkeys(NAMES, 1)
    pump.raised = {(name, 1): 0 for name in NAMES}
    pump.births(*NAMES)
    for wait, fault, name, other in script:
        pump.run(wait)
        inflict(pump, fault, name, other, boots)
    for name in list(pump.frozen):
        if name in pump.units:
            pump.resume(name)
    pump.loss, pump.cut = 0.0, lambda source, to: False
    pump.run_until(pump.agree, all_know_bound(RAY, len(NAMES)) + 10.0)
