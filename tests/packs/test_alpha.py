"""Killing the alpha on purpose: only a process that is proven to be the den's unit on this machine."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from packs.computing.alpha import NotOurs, signal_alpha, why_not_ours
from tests.packs.fake import FakeDen, unit

NODE = "08bd2aee"


def titled(process):
    """The process once the kernel shows its title, which comes a moment after its start."""
    deadline = time.monotonic() + 10
    while not Path(f"/proc/{process.pid}/cmdline").read_bytes() and time.monotonic() < deadline:
        time.sleep(0.001)
    return process


@pytest.fixture
def sleeper():
    """A real process that may be killed; its title is not that of a Ray worker."""
    process = titled(subprocess.Popen(["/bin/sleep", "60"]))
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def ray_worker():
    """A child that looks like a unit: its title begins with `ray::`, and its parent's names the Ray node."""
    starter = subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _STARTER, f"--node_id={NODE}", "--node_ip_address=192.0.2.7"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    pid = int(starter.stdout.readline())
    yield pid
    starter.stdin.close()
    starter.wait()


_STARTER = """
import subprocess, sys
child = subprocess.Popen(["ray::Unit", "60"], executable="/bin/sleep")
while not open(f"/proc/{child.pid}/cmdline").read(): pass
print(child.pid, flush=True)
sys.stdin.read()
child.kill()
child.wait()
"""


def den_led_by(pid, node=NODE):
    den = FakeDen()
    den.units_now = [unit("grey-1", pid=os.getpid(), node=node), unit("grey-2", pid=pid, node=node, role="alpha")]
    return den


def state_of(pid):
    """The kernel's letter for a process: S sleeps, Z is dead and not yet buried."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_the_alpha_of_the_pack_is_killed(ray_worker):
    handle = os.pidfd_open(ray_worker)
    kill = signal_alpha(den_led_by(ray_worker).pack())
    select.select([handle], [], [], 10)
    os.close(handle)
    assert ("grey-2", 1, ray_worker, "Z") == (kill.unit, kill.boot, kill.pid, state_of(ray_worker))


@pytest.mark.parametrize("node", [NODE, "192.0.2.7", socket.gethostname()])
def test_a_worker_of_the_named_node_is_ours(ray_worker, node):
    assert "" == why_not_ours(unit("grey-2", pid=ray_worker, node=node))


def test_a_worker_of_another_node_is_not_ours(ray_worker):
    assert "lives on 'elsewhere'" in why_not_ours(unit("grey-2", pid=ray_worker, node="elsewhere"))


def test_a_process_that_is_no_ray_worker_is_left_alone(sleeper):
    with pytest.raises(NotOurs, match="no Ray worker but '/bin/sleep'"):
        signal_alpha(den_led_by(sleeper.pid).pack())
    assert None is sleeper.poll()


def test_a_worker_that_no_ray_node_started_is_not_ours():
    process = titled(subprocess.Popen(["ray::Unit", "60"], executable="/bin/sleep"))
    try:
        assert "was not started by a Ray node" in why_not_ours(unit("grey-2", pid=process.pid, node=NODE))
    finally:
        process.kill()
        process.wait()


def test_a_process_that_is_not_on_this_machine_is_said_to_be_elsewhere():
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    with pytest.raises(NotOurs, match=f"no process {process.pid} of grey-2 on this machine"):
        signal_alpha(den_led_by(process.pid).pack())


def test_without_an_alpha_nobody_is_killed():
    den = FakeDen()
    den.units_now = [unit("grey-1", pid=os.getpid()), unit("grey-2", pid=os.getpid(), role="alpha", pack="other")]
    assert None is signal_alpha(den.pack())


def test_an_alpha_that_changed_while_it_was_looked_at_is_left_alone(ray_worker, monkeypatch):
    sent = []
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *args: sent.append(args))
    den = den_led_by(ray_worker)
    looks = iter([den.units(), [unit("grey-2", pid=ray_worker, node=NODE, role="alpha", boot=2)]])
    den.units = lambda: next(looks)
    assert (None, []) == (signal_alpha(den.pack()), sent)
