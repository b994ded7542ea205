"""Chaos on real dens: kills and freezes, calls that Ray loses or delays, Ctrl-C in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ray.support import ROOT, cards, is_gone, wait_until
from wolfpack.chaos.plan import Kind
from wolfpack.chaos.proof import Processes
from wolfpack.chaos.run import ChaosOptions, run_chaos
from wolfpack.cli.render import Progress
from wolfpack.model import PackSpec

NOTHING = dict.fromkeys(Kind, 0)


def test_a_den_under_chaos_loses_nothing_and_its_neighbour_is_not_touched(make_den):
    neighbour = make_den(wolves=1)
    assert 32 == neighbour.pack().submit(pow, 2, 5).result(60)
    before = [neighbour.keeper(), *neighbour.units()]
    pack = PackSpec(name="work", fewest=2, most=4)
    spec = make_den.spec(units=cards(count=4), packs=(pack,))
    faults = {Kind.ALPHA: 2, Kind.UNIT: 2, Kind.HANDS: 2, Kind.FREEZE: 1, Kind.KEEPER: 1}
    found = run_chaos(spec, ChaosOptions(tasks=300, faults=faults, seed=7), Progress())

    assert ([], []) == (found["problems"], found["notes"])
    assert (0, 0, 0, True) == (
        found["lost"], found["double_committed"], found["double_started"], found["conservation"]
    )  # fmt: skip
    assert found["submitted"] == found["done"] >= 300
    assert {kind.value: count for kind, count in faults.items()} == found["faults"]
    assert 2 == len(found["failovers_s"])
    assert 2 == found["epochs"]
    assert found["starts"] >= found["submitted"]
    assert "evidence" not in found
    after = [neighbour.keeper(), *neighbour.units()]
    assert [before[0], before[1].boot] == [after[0], after[1].boot]


def test_a_double_commit_in_the_ledger_is_found(make_den, monkeypatch):
    """The whole way: a den whose ledger was changed by hand after the client had its result is told."""
    from wolfpack.chaos import run as run_module

    read_ledger = run_module.read_ledger

    def forged(url):
        kept, last_settle_no, fault = read_ledger(url)
        task_id, entry = next(iter(kept.items()))
        changed = run_module.Kept(state=entry.state, value=entry.value, done_leases=(*entry.done_leases, 10**6))
        return {**kept, task_id: changed}, last_settle_no, fault

    monkeypatch.setattr(run_module, "read_ledger", forged)
    found = run_chaos(make_den.spec(wolves=1), ChaosOptions(tasks=5, faults=NOTHING), Progress())
    kept_in = Path(found["evidence"])
    try:
        assert (1, False) == (found["double_committed"], run_module.is_proven(found))
        assert {"ledger.db", "starts"} <= {path.name for path in kept_in.iterdir()}
    finally:
        for path in kept_in.rglob("*"):
            path.unlink()
        kept_in.rmdir()


# --- as a command, with a Ray of its own --------------------------------------------------------------------------

PACK = """
den: {den}
ledger: sqlite:///never-used.db
units:
  grey: {{count: 3, offers: [cpu], ray: {{num_cpus: 0}}}}
packs:
  work: {{size: [3, 3], needs: [cpu]}}
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wp", ignore_cleanup_errors=True) as name:  # short: it holds sockets
        Path(name, "pack.yaml").write_text(PACK.format(den=f"den-{os.getpid()}"))
        yield Path(name)


def command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "wolfpack.cli", "chaos", str(folder / "pack.yaml"), "--seed", "3", *words]


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "RAY_TMPDIR")}
    return {**kept, "RAY_TMPDIR": str(folder), "TMPDIR": str(folder), **more}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "switches",
    [
        # The first calls of each process to an actor are lost, and then one of ten: before it arrives, its answer, or
        # while it runs.
        {
            "RAY_testing_rpc_failure": json.dumps(
                {
                    "CoreWorkerService.grpc_client.PushTask": {
                        "num_failures": -1,
                        "req_failure_prob": 4,
                        "resp_failure_prob": 4,
                        "in_flight_failure_prob": 2,
                        "num_lower_bound_req_failures": 1,
                        "num_lower_bound_resp_failures": 1,
                    }
                }
            )
        },
        # Every call between actors is late by up to 30 ms.
        {"RAY_testing_asio_delay_us": "CoreWorkerService.grpc_server.PushTask=0:30000"},
    ],
    ids=["lost", "late"],
)
def test_a_den_whose_ray_loses_or_delays_calls_settles_everything_once(ray_cluster, folder, switches):
    few = ["--tasks", "60", "--kill-alpha", "1", "--kill-units", "1", "--kill-hands", "1", "--freeze", "0"]
    done = subprocess.run(
        command(folder, *few, "--kill-keeper", "1", "--json"),
        capture_output=True, text=True, cwd=ROOT, env=environment(folder, **switches), timeout=240,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-3000:] + done.stdout
    found = json.loads(done.stdout)
    assert (0, 0, 0, True) == (found["lost"], found["dead"], found["double_committed"], found["conservation"])
    assert found["submitted"] == found["done"] >= 60
    assert [] == found["notes"]


@pytest.mark.timeout(200)
def test_ctrl_c_in_the_middle_ends_the_den_and_leaves_nothing_frozen(ray_cluster, folder):
    words = ["--tasks", "100", "--kill-alpha", "0", "--kill-units", "0", "--kill-hands", "0", "--kill-keeper", "0"]
    process = subprocess.Popen(
        command(folder, *words, "--freeze", "20000"),
        cwd=ROOT, env=environment(folder), start_new_session=True, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        frozen = wait_until(lambda: stopped_below(process.pid), 90, what="a unit is frozen")
        process.send_signal(signal.SIGINT)
        assert 130 == process.wait(60)
    finally:
        process.kill()
    assert b"Traceback" not in process.stderr.read()
    wait_until(lambda: all(is_gone(pid) for pid in frozen), 20, what="what was frozen has ended")
    assert not [name for name in os.listdir(folder) if name.startswith("wolfpack-chaos-")]


def stopped_below(pid: int) -> list[int]:
    """Processes below this one that are stopped."""
    tree = Processes()
    below, found = [pid], []
    for each in below:
        below += tree.children(each)
        try:
            if Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                found.append(each)
        except OSError:
            continue
    return found


def test_the_helper_sees_a_stopped_process():
    child = subprocess.Popen(["/bin/sleep", "60"])
    try:
        child.send_signal(signal.SIGSTOP)
        end = time.monotonic() + 10
        while child.pid not in stopped_below(os.getpid()):
            assert time.monotonic() < end
    finally:
        child.kill()
        child.wait()
