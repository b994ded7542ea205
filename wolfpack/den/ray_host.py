"""The only place that starts, joins or ends Ray."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from math import ceil
from pathlib import Path
from typing import Any

import ray

from wolfpack.errors import RayTrouble
from wolfpack.model import DenSpec

log = logging.getLogger("wolfpack.den")

QUIET = ("ray._private.authentication.authentication_token_setup",)  # says at each start what is no news
TMP = "RAY_TMPDIR"  # Ray's own variable for the folder of its files


def ensure_ray(spec: DenSpec, address: str | None = None) -> bool:
    """Makes sure that this process is connected to Ray.

    Initialized already: it is used, and we own nothing. An address, or RAY_ADDRESS: joined. Else our own Ray is
    started, with as many logical CPUs as the cards ask for or the machine has, whichever is more.

    Returns:
        Whether we started Ray, and so must end it.

    Raises:
        RayTrouble: it could not be joined or started.
    """
    if ray.is_initialized():
        return False
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.ERROR)
    address = address or os.environ.get("RAY_ADDRESS")
    try:
        if address:
            ray.init(address=address, namespace=spec.den, logging_level=logging.WARNING, log_to_driver=False)
            return False
        record = Path(os.environ.get(TMP, "/tmp"), "ray", "ray_current_cluster")  # noted by `ray start`
        if record.exists():
            where = record.read_text(errors="replace").strip()
            print(
                f"wolfpack: starting a Ray of our own. To join the cluster of this machine, set RAY_ADDRESS={where}",
                file=sys.stderr,
            )
        # Our units watch their own memory; Ray's monitor would kill the keeper first.
        os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
        resources: dict[str, float] = {}
        cpus = 0.0
        for card in spec.cards:
            cpus += float(card.ray.get("num_cpus", 1))
            for name, amount in (card.ray.get("resources") or {}).items():
                resources[name] = resources.get(name, 0.0) + float(amount)
        ray.init(
            address="local",
            namespace=spec.den,
            num_cpus=max(ceil(cpus), os.cpu_count() or 1),
            resources=resources or None,
            include_dashboard=False,
            logging_level=logging.WARNING,
            log_to_driver=False,
        )
        _silence_obituaries()
    except Exception as exc:  # Ray raises many kinds here
        wanted = f"join Ray at {address}" if address else "start Ray"
        raise RayTrouble(
            f"Could not {wanted}: {exc}. Check the address, or unset RAY_ADDRESS to start our own."
        ) from exc
    return True


def _silence_obituaries() -> None:
    """Logs, instead of printing to stdout, Ray's long text for each process of ours that dies: our events tell why.

    Only in a Ray that is ours alone. There is no setting for it, so the printer of Ray's listener is wrapped; where a
    later Ray has none of this name, it prints.
    """
    with contextlib.suppress(Exception):
        from ray._private import worker

        prints = worker.print_to_stdstream

        def print_but_obituaries(data: dict[str, Any], *args: Any, **kwargs: Any) -> None:
            if data.get("pid") == "raylet":
                log.debug("Ray: %s", " ".join(data.get("lines", ())))
            else:
                prints(data, *args, **kwargs)

        worker.print_to_stdstream = print_but_obituaries


def end_ray() -> None:
    """Ends the Ray that this process started or joined."""
    ray.shutdown()
