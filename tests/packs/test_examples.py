"""The examples tell what they see; here on a den of threads. Their dens are also checked as files."""

import ast
import re
import subprocess
import sys
import time

import pytest

import wolfpack
from benchmarks import figures
from examples import lost_alpha, scaling, variable_load
from tests.packs.fake import FakeDen, FakePack, unit
from wolfpack.config import load


@pytest.mark.parametrize(
    "text",
    [
        variable_load.PACK_YAML,
        scaling.PACK_YAML,
        lost_alpha.PACK_YAML,
        figures.PACK_YAML.format(den="failover", units=5),
    ],
    ids=["variable_load", "scaling", "lost_alpha", "benchmarks"],
)
def test_the_den_of_an_example_is_a_valid_file(tmp_path, text):
    (tmp_path / "pack.yaml").write_text(text)
    assert 1 == len(load(tmp_path / "pack.yaml").packs)


def test_an_example_uses_only_wolfpack_and_the_standard_library():
    imported = {
        name.partition(".")[0] for module in (variable_load, scaling, lost_alpha) for name in _imports(module.__file__)
    }
    assert {"wolfpack"} == imported - sys.stdlib_module_names


def _imports(file):
    with open(file, encoding="utf-8") as source:
        for node in ast.walk(ast.parse(source.read())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.module


def test_variable_load_submits_at_the_rate_of_each_phase_and_shows_who_is_there(monkeypatch, capsys):
    monkeypatch.setattr(variable_load, "TASK_S", 0.001)
    monkeypatch.setattr(variable_load, "LINE_EVERY_S", 0.0)
    with FakeDen("work") as den:
        den.units_now = [unit("grey-1", pack="work"), unit("grey-2", pack="work"), unit("grey-3", pack="other")]
        phases = (variable_load.Phase("calm", 0.1, 30), variable_load.Phase("storm", 0.1, 300))
        moments = variable_load.follow(den.pack("work"), phases)
    assert ({"calm", "storm", "over"}, {2}) == (
        {moment.phase for moment in moments},
        {moment.members for moment in moments},
    )
    tasks, most = re.findall(r"(\d+) tasks done; most members at a time: (\d+)", capsys.readouterr().out)[0]
    assert (True, "2") == (25 <= int(tasks) <= 33, most)


class ScaledPack(FakePack):
    """Has the fewest members it may, and the most while tasks are open."""

    limits = (0, 5)

    def __init__(self, den, options=None):
        super().__init__(den, options)
        self.open = []
        self.unseen = False  # work came since somebody last looked: members stay until then, however short it was
        den.units = self.units

    def scale(self, fewest, most):
        self.limits = (fewest, most)
        self.den.publish(wolfpack.PackScaled(pack=self.name, before=0, after=fewest, reason="an operator said so"))

    def submit(self, fn, *args, **kwargs):
        future = super().submit(fn, *args, **kwargs)
        self.open.append(future)
        self.unseen = True
        return future

    def units(self):
        busy = self.unseen or any(not future.done() for future in self.open)
        self.unseen = False
        return [unit(f"grey-{n}", pack="work") for n in range(self.limits[busy])]


def test_scaling_goes_up_and_down_by_hand_and_by_load():
    with FakeDen("work") as den:
        pack = ScaledPack(den)
        seen = {**scaling.by_hand(pack), **scaling.by_load(pack, 3)}
    assert {"scaled up by hand": 2, "scaled down by hand": 0, "scaled up by load": 5, "asleep again": 0} == seen


def test_scaling_tells_the_reason_of_each_change(capsys):
    with FakeDen("work") as den:
        ScaledPack(den).scale(2, 5)
        scaling.tell_why(den)
    assert "why:\n  0 -> 2: an operator said so (test)\n" == capsys.readouterr().out


def test_waiting_in_vain_says_for_what(monkeypatch):
    monkeypatch.setattr(scaling, "PATIENCE_S", 0.0)
    with FakeDen("work") as den, pytest.raises(TimeoutError, match="2 members are there"):
        scaling.wait_until(den.pack(), "2 members are there", lambda: time.sleep(0.001))


class MortalDen(FakeDen):
    """Its alpha is a real process; when that is dead the next one leads and hands out a lease."""

    def __init__(self, process):
        super().__init__("work")
        self.process = process
        self.crown("grey-4")

    def events(self, since=0):
        if self.process.poll() is not None and self.alpha == "grey-4":
            self.crown("grey-3")
            self.publish(wolfpack.FirstLease(pack="work", term=self.term, unit="grey-3"))
        return super().events(since)

    def units(self):
        units = [unit(name, pack="work", pid=self.process.pid) for name in ("grey-2", "grey-3", "grey-4")]
        return [unit(u.id, pack="work", pid=u.pid, role="alpha" if u.id == self.alpha else "member") for u in units]


def test_lost_alpha_kills_the_leader_and_loses_no_task(tmp_path):
    process = subprocess.Popen(["/bin/sleep", "60"])
    try:
        with MortalDen(process) as den:
            told = lost_alpha.lose_alpha(den.pack("work"), tmp_path, tasks=8)
    finally:
        process.kill()
        status = process.wait()
    assert (-9, "grey-4", "grey-3", (1, 2), 0) == (
        status, told["killed"], told["alpha"], told["terms"], told["lost"],
    )  # fmt: skip
    assert {"before.svg", "after.svg"} == {path.name for path in tmp_path.iterdir()}
