"""What tests share: one Ray for the whole run, started at the first test that asks for it, and dens on it.

A test that uses `ray_cluster` or `make_den` is marked `ray`, so `pytest -m "not ray"` leaves out what is slow.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.ray.support import DenMaker

# A busy machine is no fault of the code: how long an example takes is not judged.
hypothesis.settings.register_profile("patient", hypothesis.settings(), deadline=None, max_examples=30)
hypothesis.settings.load_profile("patient")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes with a Ray of its own each, since a test of Ray mostly waits; without Ray one more than cores."""
    return (os.cpu_count() or 1) + 1 if config.option.markexpr == "not ray" else 2


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "ray_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker("ray")


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A Ray of this run's own. Its logical CPUs are many, so that small units of many dens find room."""
    os.environ.pop("RAY_ADDRESS", None)  # never somebody else's cluster
    os.environ.update(RAY_memory_monitor_refresh_ms="0")  # as in a Ray that Wolf Pack starts

    import ray

    ray.init(
        address="local",
        num_cpus=16,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=200 << 20,
    )
    yield
    ray.shutdown()


@pytest.fixture
def make_den(ray_cluster: None, tmp_path: Path) -> Iterator[DenMaker]:
    """Opens dens of this test's own; whatever of them is still open at its end is ended."""
    maker = DenMaker(tmp_path)
    yield maker
    maker.end_all()


@pytest.fixture(scope="module")
def make_shared_den(ray_cluster: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DenMaker]:
    """Like `make_den`, for a den that the tests of one module share."""
    maker = DenMaker(tmp_path_factory.mktemp("den"))
    yield maker
    maker.end_all()
