"""The tools of the Ray tests."""

from __future__ import annotations

import os

import pytest

from tests.ray.support import wait_until


def where_am_i() -> int:
    return os.getpid()


def test_waiting_returns_what_the_condition_was():
    answers = iter([0, None, "there"])
    assert "there" == wait_until(lambda: next(answers), every_s=0)


def test_waiting_in_vain_names_the_condition_and_its_last_value():
    with pytest.raises(AssertionError, match=r"not within 0\.01 s: two members; the last value was 0"):
        wait_until(lambda: 0, 0.01, every_s=0.001, what="two members")


def test_a_den_of_a_test_runs_functions_of_test_modules_in_other_processes(make_den):
    den = make_den(wolves=1)
    assert os.getpid() != den.pack().submit(where_am_i).result(60)


def test_two_dens_of_a_test_do_not_know_each_other(make_den):
    here, there = make_den(wolves=1), make_den(wolves=1)
    key = {"key": "same"}
    ours = here.pack().options(**key).submit(where_am_i).result(60)
    assert ours != there.pack().options(**key).submit(where_am_i).result(60)


def test_what_uses_the_cluster_is_marked_ray(request, make_den):
    assert request.node.get_closest_marker("ray")
