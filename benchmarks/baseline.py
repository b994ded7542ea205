"""Wolf Pack beside plain Ray, in one Ray and one run.

    python -m benchmarks.baseline [--json] [--rounds 5] [--tasks 20000] [--ray-tasks 3000] [--calls 200]

*Rate*: no-op tasks a second, from the first submit to the last result. Wolf Pack's go through the durable ledger
(submit, lease, settle, each committed), Ray's (`ray.remote`) through memory only. The two take turns, A B A B ..., so a
machine that slows down slows both; medians are compared.

*Latency*: one warm no-op task, submit to result, beside one call of a bare Ray actor, also in turns.

Both have as many workers: units that take no logical CPU, and Ray worker processes up to the number of cores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import wolfpack
from benchmarks.figures import open_den, percentile, spread


def noop() -> None:
    """The least a task can do."""


class Bare:
    """A Ray actor with nothing around it."""

    def noop(self) -> None:
        """The least an actor call can do."""


def wolfpack_rate(pack: wolfpack.Pack, tasks: int) -> float:
    """Tasks a second through the ledger."""
    began = time.perf_counter()
    for future in [pack.submit(noop) for _ in range(tasks)]:
        future.result(timeout=300)
    return tasks / (time.perf_counter() - began)


def ray_rate(remote_noop: Any, tasks: int) -> float:
    """Plain Ray tasks a second."""
    import ray

    began = time.perf_counter()
    ray.get([remote_noop.remote() for _ in range(tasks)])
    return tasks / (time.perf_counter() - began)


def in_turns(first: Callable[[], float], second: Callable[[], float], rounds: int) -> tuple[list[float], list[float]]:
    """A B A B ...: both measured under the same conditions."""
    pairs = [(first(), second()) for _ in range(rounds)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def seconds_of(call: Callable[[], Any]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def latency(seconds: list[float]) -> dict[str, float]:
    """Median and 99th percentile in milliseconds."""
    return {
        "median": round(statistics.median(seconds) * 1000, 3),
        "p99": round(percentile(seconds, 0.99) * 1000, 3),
    }


def measure(rounds: int = 5, tasks: int = 20_000, ray_tasks: int = 3_000, calls: int = 200) -> dict[str, Any]:
    """Opens a den and measures both; see the top of this file."""
    import ray  # here, so that the pure parts of this file load without it

    cores = os.cpu_count() or 1
    with open_den("baseline", units=cores) as den:
        pack = den.pack("bench")
        remote_noop = ray.remote(noop)
        bare = ray.remote(num_cpus=0)(Bare).remote()
        wolfpack_rate(pack, 500)  # processes are up and code is loaded on both sides before the first round
        ray_rate(remote_noop, 500)
        ray.get(bare.noop.remote())
        ours, rays = in_turns(lambda: wolfpack_rate(pack, tasks), lambda: ray_rate(remote_noop, ray_tasks), rounds)
        task_s, call_s = in_turns(
            lambda: seconds_of(lambda: pack.submit(noop).result(timeout=60)),
            lambda: seconds_of(lambda: ray.get(bare.noop.remote())),
            calls,
        )
        ray.kill(bare)
        conservation = bool(den.stats()["conservation"])
    task_ms, call_ms = latency(task_s), latency(call_s)
    return {
        "cores": cores,
        "python": platform.python_version(),
        "ray": ray.__version__,
        "rounds": rounds,
        "tasks": {"wolfpack": tasks, "ray": ray_tasks},
        "tasks_per_s": {"wolfpack": spread(ours, 1), "ray": spread(rays, 1)},
        "rate_ratio": round(statistics.median(ours) / statistics.median(rays), 2),
        "calls": calls,
        "latency_ms": {"wolfpack_task": task_ms, "ray_actor_call": call_ms},
        "latency_ratio": round(task_ms["median"] / call_ms["median"], 2),
        "conservation": conservation,
    }


def table(found: dict[str, Any]) -> str:
    """The figures for a person."""
    rate, late = found["tasks_per_s"], found["latency_ms"]
    ours, rays = rate["wolfpack"], rate["ray"]
    task, call = late["wolfpack_task"], late["ray_actor_call"]
    return "\n".join(
        [
            f"{found['cores']} cores, Python {found['python']}, Ray {found['ray']}, {found['rounds']} rounds in turns",
            f"{'':24}{'Wolf Pack':>14}{'plain Ray':>14}{'ratio':>8}",
            f"{'no-op tasks/s, median':24}{ours['median']:14,.0f}{rays['median']:14,.0f}{found['rate_ratio']:8.2f}",
            f"{'  least':24}{ours['min']:14,.0f}{rays['min']:14,.0f}",
            f"{'  most':24}{ours['max']:14,.0f}{rays['max']:14,.0f}",
            f"{'one warm task, ms':24}{task['median']:14.2f}{call['median']:14.2f}{found['latency_ratio']:8.2f}",
            f"{'  p99, ms':24}{task['p99']:14.2f}{call['p99']:14.2f}",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Wolf Pack's tasks beside plain Ray's.")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=20_000, help="Wolf Pack tasks a round")
    parser.add_argument("--ray-tasks", type=int, default=3_000, help="plain Ray tasks a round")
    parser.add_argument("--calls", type=int, default=200, help="single tasks and actor calls")
    options = parser.parse_args()
    found = measure(options.rounds, options.tasks, options.ray_tasks, options.calls)
    print(json.dumps(found) if options.json else table(found), flush=True)


if __name__ == "__main__":
    main()
