"""The arithmetic of the benchmarks; what they measure needs a real Ray."""

import signal
import time

import pytest

import wolfpack
from benchmarks import baseline, failover
from benchmarks.figures import percentile, spread
from packs.computing.story import Kill
from tests.packs.fake import FakeDen, unit


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 2), (0.75, 3), (0.99, 4), (1.0, 4)])
def test_a_percentile_is_the_nearest_rank(share, expected):
    assert expected == percentile([4, 1, 3, 2], share)


def test_a_spread_keeps_every_value_in_the_order_measured():
    assert {"median": 2.0, "min": 1.0, "max": 3.33, "values": [3.33, 1.0, 2.0]} == spread([3.333, 1.0, 2.0], 2)


def test_the_two_sides_take_turns():
    order = []
    sides = baseline.in_turns(lambda: order.append("A") or 1.0, lambda: order.append("B") or 2.0, 3)
    assert ("ABABAB", ([1.0] * 3, [2.0] * 3)) == ("".join(order), sides)


def test_latency_is_shown_in_milliseconds():
    assert {"median": 50.0, "p99": 99.0} == baseline.latency([n / 1000 for n in range(1, 100)])


def test_the_rate_counts_all_tasks_over_the_time_of_all():
    with FakeDen("bench") as den:
        began = time.perf_counter()
        rate = baseline.wolfpack_rate(den.pack(), 50)
        took = time.perf_counter() - began
    assert 50 / took <= rate


def test_the_baseline_table_has_both_sides_and_their_ratio():
    found = {
        "cores": 2, "python": "3.11.7", "ray": "2.60.0", "rounds": 5,
        "tasks_per_s": {"wolfpack": spread([9000.0], 1), "ray": spread([1500.0], 1)},
        "rate_ratio": 6.0,
        "latency_ms": {"wolfpack_task": {"median": 4.0, "p99": 9.0}, "ray_actor_call": {"median": 1.0, "p99": 2.0}},
        "latency_ratio": 4.0,
    }  # fmt: skip
    assert "no-op tasks/s, median            9,000         1,500    6.00" in baseline.table(found)


class LeaderlessDen(FakeDen):
    """A full pack that crowns the next alpha when the present one was signalled."""

    def __init__(self):
        super().__init__("bench")
        self.crown("grey-1")
        self.publish(wolfpack.FirstLease(pack="bench", term=1, unit="grey-1"))
        self.signals = []

    def units(self):
        return [unit("grey-1", pack="bench", role="alpha", pid=4194304 + 1), unit("grey-2", pack="bench")]

    def signal_alpha(self, pack, signum):
        self.signals.append(signum)
        at = time.time()
        self.crown("grey-2")
        self.publish(wolfpack.FirstLease(pack="bench", term=self.term, unit="grey-2"), at=at + 0.25)
        return Kill("grey-1", 1, 4194304 + 1, at)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_a_failover_is_timed_from_the_signal_to_the_first_lease_of_a_later_term(monkeypatch, signum):
    with LeaderlessDen() as den:
        monkeypatch.setattr(failover, "signal_alpha", den.signal_alpha)
        took_s = failover.kill_once(den.pack(), signum, units=2)
    assert (pytest.approx(0.25), [signum]) == (took_s, den.signals)


def test_the_feeder_keeps_tasks_coming_and_counts_those_that_failed(monkeypatch):
    with FakeDen("bench") as den:
        monkeypatch.setattr(failover, "TASK_S", "not a number")
        with failover.Feeder(den.pack(), in_flight=2) as feeder:
            deadline = time.monotonic() + 10
            while len(feeder.futures) < 20 and time.monotonic() < deadline:
                time.sleep(0.001)
        assert 20 <= len(feeder.futures) == feeder.failed()


def test_the_failover_table_says_when_tasks_are_missing():
    found = {
        "kills": 20, "units": 5, "cores": 2, "tasks": 1000, "failed": 3, "conservation": False,
        "failover_s": {"SIGKILL": spread([0.1, 0.3, 0.2])},
    }  # fmt: skip
    text = failover.table(found)
    assert ("1,000 tasks meanwhile, 3 failed; the ledger's count DOES NOT ADD UP", True) == (
        text.splitlines()[-1],
        "0.200    0.100    0.300" in text,
    )
