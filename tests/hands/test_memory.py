import os

import pytest

from wolfpack.den import memory, processes
from wolfpack.den.memory import MIB, NodeMemory, find_overgrown, watch_pause_s

AMPLE = NodeMemory(1000 * MIB, 500 * MIB)
SHORT = NodeMemory(1000 * MIB, 49 * MIB)


@pytest.mark.parametrize(
    ("held_mib", "limit_mib", "node", "victim"),
    [
        ([], 10, SHORT, None),
        ([5], 10, AMPLE, None),
        ([10], 10, AMPLE, None),
        ([11], 10, AMPLE, 0),
        ([4, 7], 10, AMPLE, 1),  # together above the card's memory: the larger goes
        ([0, 0], 10, SHORT, None),  # nothing runs
        ([900], None, AMPLE, None),
        ([60, 50], None, SHORT, 0),
        ([40, 45], None, SHORT, None),  # ending either would not free as much as is left
        ([60], None, NodeMemory(1000 * MIB, 50 * MIB), None),  # a twentieth is left
        ([60], None, None, None),
    ],
)
def test_P63_only_the_largest_hands_are_ended_and_only_where_it_helps(held_mib, limit_mib, node, victim):
    limit = None if limit_mib is None else limit_mib * MIB

    found = find_overgrown([mib * MIB for mib in held_mib], limit_bytes=limit, node=node)

    assert victim == (found[0] if found else None)


def test_the_reason_names_what_was_held_and_what_is_allowed():
    _, why = find_overgrown([4 * MIB, 7 * MIB], limit_bytes=10 * MIB, node=AMPLE)

    assert "it held 7 MiB of 11 MiB that the hands hold together; the card's `memory` allows 10 MiB" == why


@pytest.mark.parametrize(
    ("together", "limit", "pause_s"), [(0, None, 0.1), (10, 20, 0.1), (11, 20, 0.02), (10**12, None, 0.1)]
)
def test_one_looks_more_often_beyond_half_of_the_limit(together, limit, pause_s):
    assert pause_s == watch_pause_s(together, limit)


def test_this_process_has_memory_and_one_that_is_gone_has_none():
    assert memory.tree_rss_bytes([os.getpid()]) > 5 * MIB
    assert 0 == memory.find_rss_bytes(2**22 + 1)


def test_the_node_has_more_memory_than_this_process_holds():
    node = memory.find_node_memory()

    assert node is not None
    assert memory.find_rss_bytes(os.getpid()) < node.total_bytes
    assert 0 < node.available_bytes <= node.total_bytes


def test_descendants_are_found_through_all_generations():
    parents = {2: 1, 3: 2, 4: 3, 5: 1, 6: 5, 7: 99}

    assert [3, 4] == processes.descendants(2, parents)
    assert {2, 3, 4, 5, 6} == set(processes.descendants(1, parents))


def test_this_process_is_seen_as_the_child_of_its_parent():
    assert os.getppid() == processes.find_parents()[os.getpid()]


@pytest.mark.parametrize(("status", "text"), [(11, "signal 11 (SIGSEGV)"), (3 << 8, "exit code 3"), (0, "exit code 0")])
def test_an_end_is_told_in_words(status, text):
    assert text == processes.describe_end(status)
