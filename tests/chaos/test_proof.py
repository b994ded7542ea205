"""Which processes are proven to be the den's, on made-up trees of processes."""

from __future__ import annotations

import os
import time

import pytest

from tests.chaos.tree import BOOTED_AT, NODE, Tree, hands, keeper_claim, unit_claim
from wolfpack.chaos.proof import Claim, Processes, find_hands, why_not_hands, why_not_ours


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path / "proc")


def test_the_den_s_own_unit_and_keeper_are_proven(tree):
    assert ("", "") == (why_not_ours(unit_claim(), tree.processes), why_not_ours(keeper_claim(), tree.processes))


def test_a_worker_below_a_starter_of_its_own_is_proven_by_its_ancestors(tree):
    tree.add(11, ["container-starter"], 10)
    tree.add(30, ["ray::UnitActor.hunt"], 11, began_s=50)
    assert "" == why_not_ours(unit_claim(), tree.processes)


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        (unit_claim(pid=77), "is not on this machine"),
        (unit_claim(pid=90), "is no ray::UnitActor but 'bash'"),
        (unit_claim(pid=20), "is no ray::UnitActor but 'ray::Keeper'"),
        (keeper_claim(pid=30), "is no ray::Keeper"),
        (unit_claim(node="another"), f"belongs to the Ray node {NODE}"),
        (unit_claim(node=""), f"belongs to the Ray node {NODE}"),
        (unit_claim(pid=40), "began 9.00 s after grey-0 said hello"),
    ],
)
def test_what_is_not_proven_is_refused_with_a_reason(tree, claim, reason):
    assert reason in why_not_ours(claim, tree.processes)


def test_a_process_that_took_over_the_number_of_a_dead_unit_is_refused(tree):
    tree.add(30, ["ray::UnitActor"], 10, began_s=51.5)
    assert "after grey-0 said hello" in why_not_ours(unit_claim(), tree.processes)


def test_a_process_in_another_namespace_is_refused(tree):
    tree.add(30, ["ray::UnitActor"], 10, began_s=50, namespace="pid:[1]")
    assert "another namespace" in why_not_ours(unit_claim(), tree.processes)


def test_a_zombie_is_refused(tree):
    tree.add(30, ["ray::UnitActor"], 10, began_s=50, state="Z")
    assert "has ended" in why_not_ours(unit_claim(), tree.processes)


def test_a_title_that_only_begins_like_ours_is_refused(tree):
    tree.add(30, ["ray::UnitActorOfOthers.call"], 10, began_s=50)
    assert "is no ray::UnitActor" in why_not_ours(unit_claim(), tree.processes)


def test_a_process_that_calls_itself_a_unit_but_no_ray_node_started_is_refused(tree):
    tree.add(30, ["ray::UnitActor"], 90, began_s=50)
    assert "was not started by a Ray node" in why_not_ours(unit_claim(), tree.processes)


def test_a_circle_of_parents_ends(tree):
    tree.add(30, ["ray::UnitActor"], 91, began_s=50)
    tree.add(91, ["bash"], 30)
    assert "was not started by a Ray node" in why_not_ours(unit_claim(), tree.processes)


def test_a_torn_entry_is_refused(tree):
    (tree.root / "30" / "stat").write_text("30 (x) S")
    assert "cannot be looked at" in why_not_ours(unit_claim(), tree.processes)


def test_hands_are_found_below_their_guard_and_proven(tree):
    assert [32] == find_hands("grey-0", 30, tree.processes)
    assert "" == why_not_hands(32, "grey-0", 30, tree.processes)


def test_what_user_code_started_is_no_hands(tree):
    tree.add(33, ["sleep", "60"], 32)
    tree.add(34, ["sleep", "60"], 31)  # a daemon whose parent ended, taken in by the guard
    assert [32] == find_hands("grey-0", 30, tree.processes)
    assert "does not say" in why_not_hands(34, "grey-0", 30, tree.processes)


@pytest.mark.parametrize(
    ("pid", "unit", "unit_pid", "reason"),
    [
        (32, "grey-1", 40, "does not say that it works for grey-1"),
        (31, "grey-0", 30, "does not say"),  # the guard's parent is a unit, which is no guard
        (77, "grey-0", 30, "cannot be looked at"),
        (90, "grey-0", 30, "does not say"),
    ],
)
def test_other_processes_are_not_taken_for_hands(tree, pid, unit, unit_pid, reason):
    assert reason in why_not_hands(pid, unit, unit_pid, tree.processes)


def test_hands_whose_guard_belongs_to_nobody_are_refused(tree):
    tree.add(31, hands("grey-0", 30), 1)
    assert "no guard that is a child of grey-0" in why_not_hands(32, "grey-0", 30, tree.processes)


def test_hands_that_ended_are_refused(tree):
    tree.add(32, hands("grey-0", 30), 31, state="Z")
    assert "has ended" in why_not_hands(32, "grey-0", 30, tree.processes)


def test_this_very_process_is_read_from_the_real_tree_and_refused():
    tree = Processes()
    assert os.getppid() == tree.parent(os.getpid())
    assert BOOTED_AT < tree.began_at(os.getpid()) <= time.time()
    assert "is no ray::UnitActor" in why_not_ours(
        Claim("grey-0", os.getpid(), NODE, "ray::UnitActor", time.time()), tree
    )
