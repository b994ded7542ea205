"""Names of Ray actors, and the options each kind is created with."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from wolfpack.model import Card, DenSpec

KEEPER = "keeper"
MANY_CALLS = 10_000  # parked calls eat slots


def unit_name(unit: str, boot: int) -> str:
    """Names carry the boot, so that a new life never waits for an old one's name."""
    return f"{unit}#{boot}"


def keeper_options(den: str) -> dict[str, Any]:
    return {
        "name": KEEPER,
        "namespace": den,
        "lifetime": "detached",
        "max_restarts": -1,
        "max_task_retries": 0,
        "max_concurrency": MANY_CALLS,
        "num_cpus": 0,
        "get_if_exists": True,
    }


def unit_options(den: str, card: Card, boot: int) -> dict[str, Any]:
    options = {key: value for key, value in card.ray.items() if value is not None}
    options.setdefault("num_cpus", 1)
    return {
        **options,
        "name": unit_name(card.unit, boot),
        "namespace": den,
        "lifetime": "detached",
        "max_restarts": 0,
        "max_task_retries": 0,
        "max_concurrency": MANY_CALLS,
    }


def blob_folder(spec: DenSpec) -> str:
    """Where large payloads of this den lie: beside its ledger, or in the temporary folder of a ledger in memory."""
    if spec.ledger.startswith("sqlite:///"):
        return spec.ledger.removeprefix("sqlite:///") + ".blobs"
    return str(Path(tempfile.gettempdir()) / f"wolfpack-{spec.den}.blobs")
