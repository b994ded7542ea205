"""The cluster between asyncio tasks: who leads, what a dead member says (nothing), and what a user sees of it."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from typing import Any

import pytest

from examples import elections
from tests.aio import virtual_time
from wolfpack.aio_cluster import AsyncioCluster, Member
from wolfpack.core.succession import Heard, Succession
from wolfpack.errors import CallerError, UnknownName, WolfPackBug
from wolfpack.model import PROFILES, Timing

CLASSIC = PROFILES["classic"]


def agreed(cluster: AsyncioCluster) -> tuple[set[int | None], list[int]]:
    """What the living believe, and which of them lead."""
    living = [member for member in cluster.members if member.alive]
    return {member.leader_id for member in living}, [member.id for member in living if member.is_leader]


# --- as the clock of the wall sees it ------------------------------------------------------------------------------


def test_clusters_of_3_4_and_5_elect_the_highest_id_and_its_successor_in_time():
    async def play(size: int) -> None:
        async with AsyncioCluster(size, "classic") as cluster:
            assert size - 1 == await cluster.wait_for_leader(3.0)
            assert ({size - 1}, [size - 1]) == agreed(cluster)
            killed_at = time.monotonic()
            cluster.kill(size - 1)
            assert size - 2 == await cluster.wait_for_leader(5.0)
            took_s = time.monotonic() - killed_at
            assert ({size - 2}, [size - 2]) == agreed(cluster)
        assert took_s <= 2 * CLASSIC.heartbeat_s + 2.0, took_s

    async def all_at_once() -> None:
        await asyncio.gather(*(play(size) for size in (3, 4, 5)))

    asyncio.run(all_at_once())


# --- in virtual time -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["classic", "ray", "fast"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9])
def test_each_profile_elects_the_highest_id_and_then_the_next(profile: str, size: int):
    timing = PROFILES[profile]

    async def play(seed: int) -> None:
        now = asyncio.get_running_loop().time
        async with AsyncioCluster(size, profile, seed=seed) as cluster:
            assert size - 1 == await cluster.wait_for_leader(timing.answer_s + timing.silence_s / 2)
            for leader in range(size - 1, 0, -1):
                killed_at = now()
                cluster.kill(leader)
                assert leader - 1 == await cluster.wait_for_leader(60.0)
                assert now() - killed_at <= timing.silence_s + timing.heartbeat_s
                assert ({leader - 1}, [leader - 1]) == agreed(cluster)
                await asyncio.sleep(timing.heartbeat_s * 2.5)

    for seed in range(10):
        virtual_time.run(play(seed))


def test_who_died_unnoticed_between_leader_and_successor_costs_one_wait_for_an_answer():
    async def play() -> None:
        now = asyncio.get_running_loop().time
        async with AsyncioCluster(5, seed=1) as cluster:
            await cluster.wait_for_leader()
            cluster.kill(3)
            await asyncio.sleep(10)
            killed_at = now()
            cluster.kill(4)
            assert 2 == await cluster.wait_for_leader()
            assert now() - killed_at <= CLASSIC.silence_s + CLASSIC.answer_s + 0.1

    virtual_time.run(play())


@pytest.mark.parametrize(("usurp", "leader"), [(True, 4), (False, 3)])
def test_the_highest_id_that_comes_back_takes_over_only_as_a_usurper(usurp: bool, leader: int):
    async def play() -> None:
        async with AsyncioCluster(5, usurp=usurp, seed=1) as cluster:
            await cluster.wait_for_leader()
            cluster.kill(4)
            assert 3 == await cluster.wait_for_leader()
            terms = []
            for _ in range(20):
                cluster.restart(4)
                assert leader == await cluster.wait_for_leader()
                assert ({leader}, [leader]) == agreed(cluster)
                terms.append(cluster.members[0].term)
                cluster.kill(4)
                assert 3 == await cluster.wait_for_leader()
            if not usurp:
                assert {2} == set(terms)
            assert 21 == cluster.members[4].boot

    virtual_time.run(play())


def test_a_lower_id_that_comes_back_changes_nothing():
    async def play() -> None:
        async with AsyncioCluster(4, seed=1) as cluster:
            await cluster.wait_for_leader()
            cluster.kill(1)
            await asyncio.sleep(5)
            cluster.restart(1)
            assert 3 == await cluster.wait_for_leader()
            assert 1 == cluster.members[1].term

    virtual_time.run(play())


def test_a_healthy_cluster_keeps_its_leader_for_an_hour():
    async def play() -> None:
        async with AsyncioCluster(3, seed=1) as cluster:
            await cluster.wait_for_leader()
            await asyncio.sleep(3600)
            assert ({2}, 1) == ({m.leader_id for m in cluster.members}, cluster.members[0].term)

    virtual_time.run(play())


def test_the_last_one_alive_leads_and_all_that_come_back_follow_the_highest():
    async def play() -> None:
        async with AsyncioCluster(5, seed=1) as cluster:
            await cluster.wait_for_leader()
            for member in (4, 3, 2, 1):
                cluster.kill(member)
            assert 0 == await cluster.wait_for_leader()
            for member in (2, 4, 1, 3):
                cluster.restart(member)
            assert 4 == await cluster.wait_for_leader()

    virtual_time.run(play())


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.1, 0.15, 0.2, 1.0, 2.0, 2.1])
def test_the_favourite_may_die_while_the_election_is_under_way(after_s: float):
    async def play() -> None:
        async with AsyncioCluster(5, seed=1) as cluster:
            await asyncio.sleep(after_s)
            cluster.kill(4)
            assert 3 == await cluster.wait_for_leader(CLASSIC.silence_s * 3 + CLASSIC.answer_s)
            assert ({3}, [3]) == agreed(cluster)

    virtual_time.run(play())


# --- the dead are silent -------------------------------------------------------------------------------------------


def tapped(cluster: AsyncioCluster, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, Any]]:
    """Everything that is put into any queue from now on, with its sender."""
    letters: list[tuple[str, int, Any]] = []
    put = asyncio.Queue.put_nowait

    def tap(queue: asyncio.Queue[Any], item: Any) -> None:
        if isinstance(item, Heard):
            letters.append((item.howl.unit, item.howl.boot, item.howl.kind))
        put(queue, item)

    monkeypatch.setattr(asyncio.Queue, "put_nowait", tap)
    return letters


@pytest.mark.parametrize("victim", [2, 3, 4])
def test_nothing_leaves_a_member_once_it_was_killed(victim: int, monkeypatch: pytest.MonkeyPatch):
    async def play() -> None:
        async with AsyncioCluster(5, "fast", seed=1) as cluster:
            letters = tapped(cluster, monkeypatch)
            await cluster.wait_for_leader()
            assert "4" in {sender for sender, _, _ in letters}
            ended = cluster.kill(victim)
            letters.clear()
            sent = cluster.members[victim].sent
            await ended
            await asyncio.sleep(100 * cluster.timing.silence_s)
            assert letters
            assert str(victim) not in {sender for sender, _, _ in letters}
            assert sent == cluster.members[victim].sent
            cluster.restart(victim)
            await asyncio.sleep(10 * cluster.timing.silence_s)
            assert {2} >= {boot for sender, boot, _ in letters if sender == str(victim)}
            assert (victim == 4) == (cluster.members[victim].sent > sent)  # only the highest has something to say

    virtual_time.run(play())


def test_a_member_that_is_killed_in_the_middle_of_a_step_sends_nothing_more(monkeypatch: pytest.MonkeyPatch):
    """The reader of a log line may kill: the howls of that very step are not sent any more."""

    class Assassin(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "announces" in record.getMessage() and cluster.members[4].alive:
                letters.clear()
                cluster.kill(4)

    cluster = AsyncioCluster(5, seed=1)
    letters: list[tuple[str, int, Any]] = []
    handler = Assassin()
    logger = logging.getLogger("wolfpack.aio_cluster")

    async def play() -> None:
        nonlocal letters
        async with cluster:
            letters = tapped(cluster, monkeypatch)
            assert 3 == await cluster.wait_for_leader()
            assert "4" not in {sender for sender, _, _ in letters}

    logger.addHandler(handler)
    level, _ = logger.level, logger.setLevel(logging.INFO)
    try:
        virtual_time.run(play())
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def test_the_dead_believe_nothing_and_dying_twice_is_dying_once():
    async def play() -> None:
        async with AsyncioCluster(3, seed=1) as cluster:
            await cluster.wait_for_leader()
            await cluster.kill(2)
            await cluster.kill(2)
            cluster.kill(2)
            dead = cluster.members[2]
            assert (False, None, False, 0) == (dead.alive, dead.leader_id, dead.is_leader, dead.term)
            assert 1 == await cluster.wait_for_leader()
            await cluster.restart(2)
            assert (True, 2) == (dead.alive, dead.boot)

    virtual_time.run(play())


def test_a_killed_leader_is_no_answer_to_the_question_who_leads():
    async def play() -> None:
        async with AsyncioCluster(3, seed=1) as cluster:
            await cluster.wait_for_leader()
            cluster.kill(2)
            assert {2} == {cluster.members[0].leader_id, cluster.members[1].leader_id}  # nobody told them
            assert cluster.leader_id is None

    virtual_time.run(play())


# --- what goes wrong is said ---------------------------------------------------------------------------------------


def test_a_living_member_cannot_be_restarted():
    async def play() -> None:
        async with AsyncioCluster(3, seed=1) as cluster:
            with pytest.raises(CallerError, match="Member 1 lives: kill it"):
                cluster.restart(1)
            assert 1 == cluster.members[1].boot

    virtual_time.run(play())


@pytest.mark.parametrize("size", [0, -1, 2.0, "3", None, True])
def test_a_cluster_has_a_whole_number_of_members(size: Any):
    with pytest.raises(CallerError, match="at least 1, not"):
        AsyncioCluster(size)


def test_an_unknown_profile_is_refused_with_the_known_ones():
    with pytest.raises(UnknownName, match=r"Did you mean 'classic'.*classic, fast, ray"):
        AsyncioCluster(3, "clasic")
    assert 7.0 == AsyncioCluster(3, Timing(silence_s=7.0)).timing.silence_s


@pytest.mark.parametrize("member", [3, -1, "1", None, True])
def test_a_member_that_does_not_exist_is_refused(member: Any):
    async def play() -> None:
        async with AsyncioCluster(3) as cluster:
            with pytest.raises(UnknownName, match="Existing: 0, 1, 2"):
                cluster.kill(member)
            with pytest.raises(UnknownName, match="Existing: 0, 1, 2"):
                cluster.restart(member)

    virtual_time.run(play())


@pytest.mark.parametrize("timeout_s", [-1, float("nan"), "3", None, True])
def test_a_wait_has_a_length(timeout_s: Any):
    async def play() -> None:
        async with AsyncioCluster(3) as cluster:
            with pytest.raises(CallerError, match="timeout_s"):
                await cluster.wait_for_leader(timeout_s)

    virtual_time.run(play())


def test_a_cluster_is_used_inside_its_context_and_entered_once():
    async def play() -> None:
        cluster = AsyncioCluster(3)
        with pytest.raises(CallerError, match="is new: use it inside"):
            cluster.kill(0)
        async with cluster:
            await cluster.wait_for_leader()
        with pytest.raises(CallerError, match="is closed: use it inside"):
            await cluster.wait_for_leader()
        with pytest.raises(CallerError, match="entered once"):
            async with cluster:
                pass

    virtual_time.run(play())


def test_a_wait_in_vain_says_what_each_member_believes():
    async def play() -> None:
        async with AsyncioCluster(3, seed=1) as cluster:
            with pytest.raises(TimeoutError, match="within 0 s: 0 knows no leader in term 0; 1 knows"):
                await cluster.wait_for_leader(0)
            await cluster.wait_for_leader()
            cluster.kill(2)
            with pytest.raises(TimeoutError, match="within 1 s: 0 follows 2 in term 1; 1 follows 2 in term 1; 2 is de"):
                await cluster.wait_for_leader(1)
            cluster.kill(0)
            cluster.kill(1)
            with pytest.raises(TimeoutError, match="0 is dead; 1 is dead; 2 is dead"):
                await cluster.wait_for_leader(60)

    virtual_time.run(play())


def test_a_wait_ends_with_the_cluster():
    async def play() -> None:
        async with AsyncioCluster(2) as cluster:
            cluster.kill(0)
            cluster.kill(1)
            waiting = asyncio.ensure_future(cluster.wait_for_leader(1e9))
            await asyncio.sleep(1)
        with pytest.raises(CallerError, match="closed"):
            await waiting

    virtual_time.run(play())


def failing(monkeypatch: pytest.MonkeyPatch, victim: str) -> None:
    step = Succession.step

    def sick(machine: Succession, now: float, event: Any) -> Any:
        if machine.me.unit == victim and isinstance(event, Heard):
            raise ZeroDivisionError("a bug")
        return step(machine, now, event)

    monkeypatch.setattr(Succession, "step", sick)


def test_a_task_that_fails_is_logged_ends_its_member_and_is_raised_to_who_waits(monkeypatch, caplog):
    async def play() -> None:
        async with AsyncioCluster(3, seed=1) as cluster:
            failing(monkeypatch, "1")
            with pytest.raises(WolfPackBug, match="member 1 failed: ZeroDivisionError") as caught:
                await cluster.wait_for_leader()
            assert isinstance(caught.value.__cause__, ZeroDivisionError)
            assert not cluster.members[1].alive
            monkeypatch.undo()
            cluster.restart(1)
            assert 2 == await cluster.wait_for_leader()

    virtual_time.run(play())
    assert [("Member 1 failed and is dead now.", "ERROR", True)] == [
        (record.getMessage(), record.levelname, record.exc_info is not None)
        for record in caplog.records
        if "failed" in record.message
    ]


def test_a_task_that_failed_while_nobody_waited_is_raised_at_the_end(monkeypatch):
    async def play() -> None:
        async with AsyncioCluster(3, seed=1):
            failing(monkeypatch, "1")
            await asyncio.sleep(3)

    with pytest.raises(WolfPackBug, match="member 1 failed"):
        virtual_time.run(play())


def test_an_error_of_the_user_is_not_replaced_by_one_of_a_member(monkeypatch):
    async def play() -> None:
        async with AsyncioCluster(3, seed=1):
            failing(monkeypatch, "1")
            await asyncio.sleep(3)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        virtual_time.run(play())


@pytest.mark.parametrize("error", [None, KeyError])
def test_leaving_ends_all_tasks(error: type[Exception] | None):
    async def play() -> None:
        before = asyncio.all_tasks()
        cluster = AsyncioCluster(5, "fast")
        try:
            async with cluster:
                await cluster.wait_for_leader()
                assert 5 == len(asyncio.all_tasks() - before)
                cluster.kill(4)
                cluster.restart(4)
                if error is not None:
                    raise error
        except KeyError:
            pass
        assert before == asyncio.all_tasks()
        assert [False] * 5 == [member.alive for member in cluster.members]

    asyncio.run(play())


def test_a_task_cancelled_by_somebody_else_is_a_dead_member():
    async def play() -> None:
        async with AsyncioCluster(3, seed=1) as cluster:
            await cluster.wait_for_leader()
            (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "wolfpack-member-2-1")
            task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not cluster.members[2].alive
            assert 1 == await cluster.wait_for_leader()

    virtual_time.run(play())


def test_a_stalled_loop_deposes_nobody():
    async def play() -> None:
        async with AsyncioCluster(4, "fast", seed=1) as cluster:
            await cluster.wait_for_leader()
            await asyncio.sleep(0.2)
            time.sleep(0.5)  # more than three times silence_s: everybody was as deaf as the leader was dumb
            await asyncio.sleep(0.3)
            assert (3, 1) == (cluster.leader_id, cluster.members[0].term)

    asyncio.run(play())


def test_start_of_an_election_ok_received_and_leader_announced_are_logged(caplog):
    caplog.set_level(logging.INFO, logger="wolfpack.aio_cluster")

    async def play() -> None:
        async with AsyncioCluster(3, seed=1) as cluster:
            await cluster.wait_for_leader()
            cluster.kill(2)
            await cluster.wait_for_leader()
            cluster.restart(2)
            await cluster.wait_for_leader()

    virtual_time.run(play())
    lines = [record.getMessage() for record in caplog.records]
    for line in (
        "Member 0 starts an election: it knows no leader.",
        "Member 0 received OK from member 2.",
        "Member 2 announces that it is the leader of term 1.",
        "Member 0 follows leader 2 in term 1.",
        "Member 2 is killed.",
        "Member 1 starts an election: heard nothing of 2 for 2 s.",
        "Member 1 announces that it is the leader of term 2.",
        "Member 2 is back.",
        "Member 2 announces that it is the leader of term 3.",
        "Member 1 stops leading term 2: 2 leads term 3.",
    ):
        assert line in lines
    first = next(record for record in caplog.records if "starts an election" in record.getMessage())
    assert {"wolfpack.aio_cluster"} == {record.name for record in caplog.records}
    assert {int} == {type(getattr(first, field)) for field in ("member", "boot", "term")}
    assert 2 == len(first.asked)


def test_the_same_seed_tells_the_same_story(caplog):
    caplog.set_level(logging.INFO, logger="wolfpack.aio_cluster")

    async def play() -> None:
        async with AsyncioCluster(5, seed=7) as cluster:
            await cluster.wait_for_leader()
            cluster.kill(4)
            await cluster.wait_for_leader()

    stories = []
    for _ in range(2):
        caplog.clear()
        virtual_time.run(play())
        stories.append([record.getMessage() for record in caplog.records])
    assert stories[0] == stories[1] != []


def test_a_member_shows_what_it_believes():
    async def play() -> None:
        async with AsyncioCluster(2, seed=1) as cluster:
            await cluster.wait_for_leader()
            cluster.kill(1)
            assert ["<Member 0 follows 1 in term 1>", "<Member 1 is dead>"] == [repr(m) for m in cluster.members]
            await cluster.wait_for_leader()
            assert "<Member 0 leads term 2>" == repr(cluster.members[0])

    virtual_time.run(play())
    assert "<Member 0 is dead>" == repr(Member(0))


def test_importing_the_cluster_brings_no_ray():
    code = "import sys, wolfpack.aio_cluster; print('ray' in sys.modules, 'matplotlib' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "False False" == told.stdout.strip()


def test_the_example_tells_who_led(capsys):
    assert {"with usurp": [4, 3, 4], "without": [4, 3, 3]} == elections.main("fast")
    told = capsys.readouterr().out
    assert "4 is back, usurp=True: 4 leads" in told
    assert "4 is back, usurp=False: 3 leads" in told
