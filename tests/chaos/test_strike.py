"""Signals go to proven processes only; the processes are real, what /proc says of them is made up."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.chaos.tree import BOOTED_AT, NODE, Tree, hands
from wolfpack.chaos.listen import Listener
from wolfpack.chaos.plan import Fault, Kind
from wolfpack.chaos.strike import Freezer, Striker
from wolfpack.events import AlphaCrowned, FirstLease, Recorded, UnitWoke
from wolfpack.model import Nature, Readiness, Role, UnitRecord


def state_of(pid: int) -> str:
    """The kernel's letter: S sleeps, T is stopped, Z is dead and not yet buried."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def until(state: str, pid: int) -> str:
    end = time.monotonic() + 10
    while state_of(pid) != state and time.monotonic() < end:
        time.sleep(0.001)
    return state_of(pid)


class FakeDen:
    """What chaos asks of a den. `changes` are made to the units after the first question."""

    def __init__(self, units: list[UnitRecord], keeper: int = 0) -> None:
        self.now = units
        self.then: list[UnitRecord] | None = None
        self.told = {"pid": keeper, "node": NODE, "epoch": 1}
        self.asked = 0
        self.spec = SimpleNamespace(cards=[unit.id for unit in units])

    def units(self) -> list[UnitRecord]:
        self.asked += 1
        return self.now if self.asked == 1 or self.then is None else self.then

    def keeper(self) -> dict:
        return dict(self.told)

    def stats(self) -> dict:
        return {"epoch": 1, "refused_writes": 3}


class Scene:
    """Two units, hands below one of them, and a keeper: sleeping processes with made-up surroundings."""

    def __init__(self, root: Path) -> None:
        self.tree = Tree(root)
        self.processes = [subprocess.Popen(["/bin/sleep", "60"]) for _ in range(5)]
        for process in self.processes:
            until("S", process.pid)
        self.alpha, self.other, self.keeper, self.guard, self.hands = (each.pid for each in self.processes)
        self.tree.add(self.alpha, ["ray::UnitActor"], 10, began_s=50)
        self.tree.add(self.other, ["ray::UnitActor"], 10, began_s=50)
        self.tree.add(self.keeper, ["ray::Keeper"], 10, began_s=1)
        self.tree.add(self.guard, hands("grey-0", self.other), self.other)
        self.tree.add(self.hands, hands("grey-0", self.other), self.guard)
        self.den = FakeDen(
            [record("grey-0", self.other, leases=1), record("grey-1", self.alpha, role=Role.ALPHA)], self.keeper
        )
        self.listener = Listener(self.den, "p")
        for number, event in enumerate(
            [
                UnitWoke(unit="grey-0", boot=1, pack="p"),
                UnitWoke(unit="grey-1", boot=1, pack="p"),
                AlphaCrowned(pack="p", term=4, unit="grey-1", boot=1, previous=None, reason=""),
                FirstLease(pack="p", term=4, unit="grey-1"),
            ]
        ):
            self.listener.note(Recorded(number=number, at=BOOTED_AT + 51, producer="keeper", event=event))
        self.freezer = Freezer()
        self.said: list[str] = []
        self.striker = Striker(self.den, self.listener, self.freezer, self.said.append, self.tree.processes)

    def strike(self, kind: Kind, **fields):
        return self.striker.strike(Fault(kind=kind, share=0.5, draw=0.0, **fields))

    def states(self) -> str:
        return "".join(state_of(each.pid) for each in self.processes)


def record(unit: str, pid: int, **fields) -> UnitRecord:
    plain = {"readiness": Readiness.AWAKE, "role": Role.MEMBER, "boot": 1, "leases": 0, "node": NODE}
    return UnitRecord(id=unit, kind="grey", pid=pid, nature=Nature.WOLF, pack="p", **{**plain, **fields})


@pytest.fixture
def scene(tmp_path):
    scene = Scene(tmp_path / "proc")
    yield scene
    scene.freezer.thaw_all()
    for process in scene.processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("kind", "target", "name", "term"),
    [
        (Kind.ALPHA, "alpha", "grey-1#1", 4),
        (Kind.UNIT, "other", "grey-0#1", None),
        (Kind.HANDS, "hands", "hands of grey-0#1", None),
        (Kind.KEEPER, "keeper", "keeper of epoch 1", None),
    ],
)
def test_each_kind_kills_its_target_and_nothing_else(scene, kind, target, name, term):
    pid = getattr(scene, target)
    strike = scene.strike(kind)

    assert (name, pid, term) == (strike.target, strike.pid, strike.term)
    assert "Z" == until("Z", pid)
    assert "SSSS" == scene.states().replace("Z", "")


def test_a_frozen_unit_is_thawed_after_its_time(scene):
    strike = scene.strike(Kind.FREEZE, freeze_s=0.2, at_alpha=True)

    assert (scene.alpha, 4) == (strike.pid, strike.term)
    assert "T" == until("T", scene.alpha)
    assert "S" == until("S", scene.alpha)
    assert not scene.freezer.is_frozen(scene.alpha)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_whatever_ends_the_run_the_frozen_are_thawed(scene, error):
    def run():
        with scene.freezer:
            scene.strike(Kind.FREEZE, freeze_s=60.0)
            assert "T" == until("T", scene.other)
            raise error

    with pytest.raises(error):
        run()
    assert "S" == until("S", scene.other)


def test_a_frozen_unit_is_not_frozen_again(scene):
    scene.strike(Kind.FREEZE, freeze_s=60.0)
    assert scene.strike(Kind.FREEZE, freeze_s=60.0) is None


def test_a_frozen_unit_that_was_killed_is_no_trouble(scene):
    scene.strike(Kind.FREEZE, freeze_s=60.0)
    scene.strike(Kind.UNIT)
    assert "Z" == until("Z", scene.other)
    scene.freezer.thaw_all()


@pytest.mark.parametrize(
    "changes",
    [{"pid": 1}, {"node": "another"}, {"node": None}, {"boot": 2}],
)
def test_a_unit_that_is_not_proven_is_left_alone(scene, changes):
    plain = {"pid": scene.other, "node": NODE, "boot": 1, "leases": 1, **changes}
    scene.den.now = [record("grey-0", **plain)]
    for kind in (Kind.UNIT, Kind.HANDS, Kind.FREEZE):
        assert scene.strike(kind, freeze_s=1.0 if kind is Kind.FREEZE else 0.0) is None
    assert "SSSSS" == scene.states()


@pytest.mark.parametrize("changes", [{"boot": 2}, {"pid": 1}, {"role": Role.ALPHA}])
def test_a_unit_of_which_the_den_says_something_else_a_moment_later_is_left_alone(scene, changes):
    scene.den.then = [record("grey-0", **{"pid": scene.other, **changes})]
    assert scene.strike(Kind.UNIT) is None
    assert "SSSSS" == scene.states()


def test_an_alpha_that_has_not_led_yet_is_left_alone(scene):
    crowned = AlphaCrowned(pack="p", term=5, unit="grey-1", boot=1, previous=None, reason="")
    scene.listener.note(Recorded(number=9, at=BOOTED_AT + 60, producer="keeper", event=crowned))
    assert scene.strike(Kind.ALPHA) is None
    assert "SSSSS" == scene.states()


def test_a_keeper_that_is_not_proven_is_left_alone(scene):
    scene.den.told["node"] = "another"
    assert scene.strike(Kind.KEEPER) is None
    assert "SSSSS" == scene.states()


def test_one_that_cannot_be_proven_does_not_keep_the_others_from_being_struck(scene):
    scene.den.now = [record("blue-0", scene.alpha, node="another"), record("grey-0", scene.other)]
    scene.listener.note(
        Recorded(number=9, at=BOOTED_AT + 51, producer="keeper", event=UnitWoke(unit="blue-0", boot=1, pack="p"))
    )
    assert scene.strike(Kind.UNIT) is None  # the draw meets the one that cannot be proven
    assert [scene.other] == [strike.pid for _ in range(3) if (strike := scene.strike(Kind.FREEZE, freeze_s=60.0))]
    assert scene.other == scene.strike(Kind.UNIT).pid
    assert "S" == state_of(scene.alpha)


@pytest.mark.parametrize("changes", [{"pid": 1}, {"epoch": 2}])
def test_a_keeper_in_whose_place_another_answers_a_moment_later_is_left_alone(scene, changes):
    answers = [dict(scene.den.told), {**scene.den.told, **changes}]
    scene.den.keeper = lambda: answers.pop(0)
    assert scene.strike(Kind.KEEPER) is None
    assert "SSSSS" == scene.states()


def test_a_freeze_of_an_alpha_that_cannot_be_proven_meets_another(scene):
    scene.den.now = [record("grey-0", scene.other), record("grey-1", scene.alpha, role=Role.ALPHA, node="another")]
    assert scene.strike(Kind.FREEZE, freeze_s=60.0, at_alpha=True) is None
    assert scene.other == scene.strike(Kind.FREEZE, freeze_s=60.0, at_alpha=True).pid


def test_a_refusal_that_lasts_is_said_once(scene, monkeypatch):
    monkeypatch.setattr("wolfpack.chaos.strike.STILL_CLAIMED_S", 0.0)
    scene.den.now = [record("grey-0", scene.other, node="another")]
    for _ in range(3):
        assert scene.strike(Kind.UNIT) is None

    assert 1 == len(scene.said)
    assert scene.said[0].startswith("grey-0 was left alone: ")
    assert scene.said == scene.striker.refusals


def test_what_each_keeper_refused_is_added_up(scene):
    scene.listener.note_stats({"epoch": 1, "refused_writes": 3})
    scene.listener.note_stats({"epoch": 1, "refused_writes": 2})
    scene.listener.note_stats({"epoch": 2, "refused_writes": 4})
    assert 7 == scene.listener.refused_writes


def test_a_failover_ends_with_the_first_lease_of_a_later_term(scene):
    lease = FirstLease(pack="p", term=6, unit="grey-0")
    scene.listener.note(Recorded(number=9, at=BOOTED_AT + 70, producer="keeper", event=lease))
    assert BOOTED_AT + 70 == scene.listener.led_again_at(4, BOOTED_AT + 65)
    assert scene.listener.led_again_at(6, BOOTED_AT + 65) is None
