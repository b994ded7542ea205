"""Cases from the field about alphas, terms and the keeper, in a whole den: who leads may change, nothing is lost."""

from __future__ import annotations

import random

import pytest

from tests.core.book_desk import cards, den, ended
from tests.core.test_cases_tasks import QUICK, order, pack, running
from wolfpack.core import errands as e
from wolfpack.core.alpha import Alpha
from wolfpack.core.howls import Howl, HowlKind
from wolfpack.core.member import Brain
from wolfpack.core.succession import StepDown
from wolfpack.core.wire import (
    Claim,
    DemandRow,
    Hunt,
    HuntReply,
    RosterEntry,
    Submit,
    SubmitItem,
    Turn,
    TurnReply,
    Verdict,
    Where,
)
from wolfpack.errors import Deposed, QueueFull
from wolfpack.model import Cause, Job, PackSpec, RetryPolicy
from wolfpack.plain import card_to_json, pack_to_json
from wolfpack.sim.den import World, task, wolves
from wolfpack.sim.den_units import Process

NO_BUDGET = RetryPolicy(max_attempts=1000, backoff_s=0.01, backoff_max_s=0.05)


def led(count: int = 3, **fields: object) -> World:
    """A den whose units are all members of one pack with an alpha."""
    world = World(cards=wolves(count), packs=[pack(fewest=count, **fields)], timing=QUICK)
    assert world.run_until(lambda: len(world.members("p")) == count and world.alpha("p"), 5.0)
    world.run(0.3)
    return world


def test_P40_the_alpha_is_killed_at_twenty_random_points_and_no_task_is_lost_or_committed_twice() -> None:
    rng = random.Random(4)
    world = led(3, retry=NO_BUDGET)
    ids = [each for _ in range(20) for each in world.submit("p", [task(rng.choice([0.0, 0.005, 0.01]))] * 50)]
    for _ in range(20):
        world.run(rng.uniform(0.0, 0.4))
        assert world.run_until(lambda: world.alpha("p") in {unit for unit, _ in world.alive()}, 30.0)
        world.crash(str(world.alpha("p")), tell=rng.random() < 0.8)
        if world.done(ids):
            ids += world.submit("p", [task(0.01)] * 50)
    world.settle()
    assert world.done(ids)
    assert len(world.events("AlphaCrowned")) > 10


def test_P41_a_frozen_alpha_that_comes_back_is_refused_and_stops() -> None:
    world = led()
    ids = world.submit("p", [task(0.05)] * 200)
    world.run(0.3)
    old = str(world.alpha("p"))
    world.freeze(old)
    assert world.run_until(lambda: world.alpha("p") not in (None, old), 5.0)
    term = world.book.packs["p"].term
    world.run(1.0)
    world.thaw(old)
    world.run(1.0)
    assert world.book.journal.refused_writes > 0
    assert world.process(old).brain.alpha is None
    assert term == world.book.packs["p"].term
    world.settle()
    assert world.done(ids)


def test_P42_after_a_clean_exit_the_next_alpha_leads_within_200_ms() -> None:
    world = led()
    order(world, str(world.alpha("p")), "sleep")
    world.run(1.0)
    deposed, crowned = world.events("AlphaDeposed")[-1], world.events("AlphaCrowned")[-1]
    assert 0.0 <= crowned["at"] - deposed["at"] < 0.2
    assert deposed["unit"] != crowned["unit"]


def test_P43_who_cannot_lead_never_does_and_the_highest_rank_follows_a_lost_alpha() -> None:
    units = [*wolves(3), *wolves(1, "red", lead=9, can_lead=False), *wolves(1, "blue", lead=1)]
    world = World(cards=units, packs=[pack(fewest=5)], timing=QUICK)
    assert world.run_until(lambda: len(world.members("p")) == 5 and world.alpha("p"), 5.0)
    world.run(1.0)
    while world.alpha("p") != "grey-0":
        world.crash(str(world.alpha("p")))
        world.run(3.0)
        if world.alpha("p") == "blue-0":
            break
    assert "blue-0" == world.alpha("p")
    assert "red-0" not in {event["unit"] for event in world.events("AlphaCrowned")}


class Wire:
    """Kills a process at a chosen moment: right before, or right after, it takes an event."""

    def __init__(self, patch: pytest.MonkeyPatch, when: object, *, before: bool) -> None:
        self.fired: list[str] = []
        original = Process.step

        def step(process: Process, event: object) -> None:
            hit = not self.fired and process.brain is not None and when(process, event)  # type: ignore[operator]
            if hit and before:
                self._kill(process)
                return
            original(process, event)  # type: ignore[arg-type]
            if hit:
                self._kill(process)

        patch.setattr(Process, "step", step)

    def _kill(self, process: Process) -> None:
        self.fired.append(process.card.unit)
        process.world.crash(process.card.unit)


def test_P58_a_lease_that_never_reached_its_unit_returns_within_one_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    def others_leases(process: Process, event: object) -> bool:
        return isinstance(event, e.TurnDone) and any(unit != process.card.unit for unit, *_ in event.reply.leases)

    world = led()
    wire = Wire(monkeypatch, others_leases, before=True)
    ids = world.submit("p", [task(0.5)] * 3)
    assert world.run_until(lambda: wire.fired, 2.0)
    world.settle(QUICK.lease_s + 6 * QUICK.silence_s + 1.0)
    assert {1} == {len(world.starts[each]) for each in ids if world.row(each).failures == 0}
    assert world.done(ids)


def test_P59_results_of_an_answered_hunt_survive_the_alpha_that_took_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def results(process: Process, event: object) -> bool:
        return (
            isinstance(event, e.HuntArrived)
            and event.hunt.unit != process.card.unit
            and len(event.hunt.settled) >= 10
            and process.brain.alpha is not None
        )

    world = led(2)
    wire = Wire(monkeypatch, results, before=False)
    ids = world.submit("p", [task(0.0)] * 500)
    assert world.run_until(lambda: wire.fired, 5.0)
    world.settle()
    assert world.done(ids)
    twice = [each for each in ids if len(world.starts[each]) > 1]
    assert all(world.starts[each][0][1] == wire.fired[0] for each in twice), "only the dead unit's own run again"


def test_P60_a_keeper_that_stalls_for_three_leases_takes_no_lease_away() -> None:
    world = led()
    ids = world.submit("p", [task(5.0)] * 3)
    assert world.run_until(lambda: all(running(world, each) for each in ids), 2.0)
    world.pause_keeper(3 * QUICK.lease_s)
    world.settle()
    assert [1, 1, 1] == [len(world.starts[each]) for each in ids]


def test_P60_a_keeper_that_stalls_for_less_than_its_alpha_s_patience_takes_no_term_away() -> None:
    world = led()
    crowned = len(world.events("AlphaCrowned"))
    world.pause_keeper(3 * QUICK.silence_s)
    world.run(5.0)
    assert crowned == len(world.events("AlphaCrowned"))


def test_P61_twenty_submits_whose_answer_dies_with_the_keeper_exist_once() -> None:
    world = World(cards=wolves(1), packs=[pack()])
    ids: list[str] = []
    for _ in range(20):
        world.replies_lost_at.add(world.disk.commit_no + 1)
        ids += world.submit("p", [task(0.0)] * 5)
        assert world.run_until(lambda: world.keeper_up and not world.replies_lost_at, 10.0)
        world.run(1.2)
    world.settle()
    assert sorted(ids) == sorted(world.disk.tasks)
    assert world.done(ids)
    assert 20 <= world.disk.epoch - 1


def test_S14_the_highest_rank_returns_again_and_again_and_the_alpha_stays() -> None:
    world = led()
    world.crash("grey-2")
    world.run(1.0)
    alpha, term = world.alpha("p"), world.book.packs["p"].term
    assert alpha != "grey-2"
    for _ in range(15):
        assert world.run_until(lambda: "grey-2" in world.members("p"), 5.0)
        world.run(0.3)
        world.crash("grey-2")
        world.run(0.2)
    assert (alpha, term) == (world.alpha("p"), world.book.packs["p"].term)


def test_an_idle_pack_keeps_its_alpha_for_hours() -> None:
    world = led()
    crowned = len(world.events("AlphaCrowned"))
    world.run(60.0)
    assert crowned == len(world.events("AlphaCrowned"))


def an_alpha() -> Alpha:
    (card,) = cards(1)
    return Alpha(card=card, boot=1, pack="p", term=1, timing=QUICK, now=0.0)


def reply(seq: int, *jobs: Job, unit: str = "grey-1") -> TurnReply:
    return TurnReply(seq, ((unit, 1, jobs),) if jobs else (), (), (), (), (), 0, pack_to_json(pack()), False, 0)


def hunt(n: int, *, held: tuple[int, ...] = (), settled: tuple[object, ...] = (), spare: int = 9) -> Hunt:
    return Hunt("p", "grey-1", 1, n, 1, held, settled, spare)  # type: ignore[arg-type]


def a_job(lease_no: int) -> Job:
    return Job(lease_no, f"c:{lease_no}", "f", b"", "", "", 1, None, False, 1)


def jobs_of(orders: list[e.Order]) -> list[int]:
    return [job.lease_no for each in orders if isinstance(each, e.AnswerHunt) for job in each.reply.jobs]


def turns_of(orders: list[e.Order]) -> list[Turn]:
    return [each.turn for each in orders if isinstance(each, e.SendTurn)]


def test_S17_an_alpha_without_answers_hands_out_nothing_after_silence_s() -> None:
    alpha = an_alpha()
    alpha.on_hunt(0.0, hunt(1))
    alpha.on_turn_done(0.1, 1, reply(1, a_job(7)), may_lease=True)  # answers hunt 1
    alpha.on_turn_done(0.1, 2, reply(2, a_job(8)), may_lease=True)  # waits for the next hunt
    assert [] == jobs_of(alpha.on_hunt(QUICK.silence_s + 0.2, hunt(2, held=(7,))))


def test_a_lease_that_waited_for_its_unit_for_long_is_not_handed_out() -> None:
    for wait_s, given in ((0.1, [7, 8]), (QUICK.lease_s * 0.3, [])):
        alpha = an_alpha()
        alpha.on_turn_done(0.0, 1, reply(1), may_lease=True)
        alpha.on_hunt(0.0, hunt(1))
        alpha.on_turn_done(0.0, 2, reply(2, a_job(7)), may_lease=True)
        alpha.on_turn_done(0.0, 3, reply(3, a_job(8)), may_lease=True)
        assert given == jobs_of(alpha.on_hunt(wait_s, hunt(2, held=(7,))))


def test_a_turn_without_an_answer_goes_out_again_under_its_number() -> None:
    alpha = an_alpha()
    (first,) = turns_of(alpha.on_hunt(0.0, hunt(1, settled=(ended(a_job(3)),))))
    (again,) = turns_of(alpha.on_turn_lost(0.1, first.seq))
    assert first.seq == again.seq
    assert [3] == [report.lease_no for member in again.members for report in member.settled]


def test_what_a_hunt_lists_is_renewed_once_and_not_after_its_unit_fell_silent() -> None:
    alpha = an_alpha()
    (first,) = turns_of(alpha.on_hunt(0.0, hunt(1, held=(7,), spare=0)))
    assert [(7,)] == [member.held for member in first.members]
    (second,) = turns_of(alpha.on_turn_done(0.1, first.seq, reply(first.seq), may_lease=True))
    assert () == second.members


def test_two_alphas_of_one_boot_never_use_a_number_twice() -> None:
    world = led(1)
    brain = world.process("grey-0").brain
    seq = brain.alpha.seq
    world.process("grey-0")._carry_out(brain._succeed(world.now, StepDown(reason="a test")))
    assert brain.alpha is None
    world.submit("p", [task()])
    world.settle(5.0)
    assert brain.alpha.seq > seq


def test_S18_everything_restarts_at_once_and_terms_and_results_go_on() -> None:
    world = led()
    ids = world.submit("p", [task(0.2)] * 60)
    world.run(1.0)
    done = [each for each in ids if world.row(each).state == "done"]
    ends = {each: world.row(each).settle_no for each in done}
    term = world.book.packs["p"].term
    for unit in world.awake():
        world.crash(unit)
    world.crash_keeper(0.5)
    world.settle()
    assert world.done(ids)
    assert ends == {each: world.row(each).settle_no for each in done}
    assert world.book.packs["p"].term > term


def test_S24_an_alpha_whose_renewal_is_answered_with_another_holder_stops_at_once() -> None:
    world = led()
    old = str(world.alpha("p"))
    other = next(unit for unit in world.members("p") if unit != old)
    owner = world.book.packs["p"]

    def usurp(book: object, at: object) -> None:
        world.book.terms.vacate(world.at(), owner, "a test")
        assert world.book.claim(world.at(), Claim("p", owner.term, other, 1, 0)).granted

    world.act(usurp)
    assert world.run_until(lambda: world.process(old).brain.alpha is None, QUICK.heartbeat_s + 0.05)


def test_S27_a_grant_that_comes_after_another_alpha_is_given_back() -> None:
    (card,) = cards(1)
    peers = (("grey-0", 1, 0, True), ("grey-1", 1, 0, True))
    where = Where(True, False, "", "p", 4, "grey-1", 1, peers, (), (), b"", 0, 0)
    brain = Brain(card=card, boot=1, where=where, timing=QUICK, rng=random.Random(1), now=0.0)
    brain.start(0.0)
    late = Verdict(True, 5, "grey-0", 1, peers, "", 0)
    orders = brain.step(0.1, e.ClaimAnswered(pack="p", prev_term=4, verdict=late))
    assert e.SendRelease(pack="p", term=5) in orders
    assert brain.alpha is None


def test_S34_a_claim_repeated_after_its_answer_was_lost_is_granted_once() -> None:
    desk = den(2)
    desk.lose("grey-0")
    claim = Claim("p", 1, "grey-1", 1, 0)
    assert [(True, 2), (True, 2)] == [desk.book.claim(desk.at, claim)[:2] for _ in range(2)]
    desk.commit()
    desk.rebirth()
    assert (True, 2) == desk.book.claim(desk.at, claim)[:2]
    assert 2 == len(desk.events("AlphaCrowned"))


def test_S25_of_many_claims_on_one_term_one_is_granted() -> None:
    desk = den(40)
    desk.lose("grey-0")
    verdicts = [desk.book.claim(desk.at, Claim("p", 1, f"grey-{no}", 1, 0)) for no in range(1, 40)]
    assert 1 == sum(verdict.granted for verdict in verdicts)
    assert {("grey-1", 2)} == {(verdict.alpha, verdict.term) for verdict in verdicts}


def test_S36_a_keeper_born_again_between_grant_and_turn_still_refuses_the_old_term() -> None:
    desk = den(2)
    old = Turn("p", 1, "grey-0", 1, 9, (), (), (), 0, (), None, 0)
    desk.now += 2.0
    desk.crown("grey-1")
    desk.rebirth()
    with pytest.raises(Deposed) as refused:
        desk.book.turn(desk.at, old)
    assert (2, "grey-1") == (refused.value.term, refused.value.alpha)
    assert desk.turn(ask=1) is None  # the new one's turn is taken


def test_a_term_that_was_given_and_forgotten_by_a_dying_keeper_does_not_lock_the_pack() -> None:
    desk = den(2)
    desk.lose("grey-0")
    assert desk.book.claim(desk.at, Claim("p", 1, "grey-1", 1, 0)).granted
    desk.rebirth()  # before the commit; but somebody heard of term 2
    verdict = desk.book.claim(desk.at, Claim("p", 2, "grey-1", 1, 0))
    assert (True, 3) == (verdict.granted, verdict.term)


def test_S37_results_whose_turn_lost_its_answer_are_committed_once_by_the_next_alpha() -> None:
    world = led()
    ids = world.submit("p", [task(0.02)] * 90)
    world.run(0.3)
    for _ in range(3):
        world.replies_lost_at.add(world.disk.commit_no + 1)
        world.after(1.05, lambda: world.alpha("p") and world.crash(str(world.alpha("p"))))
        world.run(2.5)
        ids += world.submit("p", [task(0.02)] * 30)
    world.settle()
    assert world.done(ids)


# --- turns --------------------------------------------------------------------------------------------------------


def test_a_repeated_turn_gets_the_leases_it_was_granted_from_a_reborn_keeper_too() -> None:
    desk = den(1)
    desk.submit(3)
    first = desk.lease(2)
    assert 2 == len(first)
    for _ in range(2):
        again = desk.turn(ask=2, seq=1)
        assert [job.lease_no for job in first] == [job.lease_no for _, _, jobs in again.leases for job in jobs]
        desk.rebirth()
    assert 1 == sum(row.mutable.state == "queued" for row in desk.disk.tasks.values())


def test_a_turn_overtaken_by_a_newer_one_gets_nothing_new_but_settles_what_it_brings() -> None:
    desk = den(1)
    desk.submit(3)
    (job,) = desk.lease(1)
    desk.turn(seq=7)
    late = desk.turn(ask=2, seq=5, settled=[ended(job)])
    assert () == late.leases
    assert "done" == desk.row(job.task_id).state


def test_a_turn_repeated_while_the_first_one_waits_keeps_what_both_are_to_be_told() -> None:
    desk = den(1)
    assert desk.turn(ask=2) is None
    assert desk.turn(ask=2, seq=1) is None
    desk.submit(2)
    assert 2 == sum(len(jobs) for _, _, jobs in desk.replies.pop(("p", 1, 1)).leases)


def test_leases_go_only_to_members() -> None:
    desk = den(2)
    desk.move("grey-1", "free")
    desk.submit(2)
    assert [] == desk.lease(2, of="grey-1")


def test_a_marked_task_is_told_once_a_second_not_with_every_turn() -> None:
    desk = den(1)
    desk.submit()
    (job,) = desk.lease()
    desk.book.cancel(desk.at, [job.task_id], kill=False)
    assert 1 == len(desk.turn(held=[job.lease_no]).cancels)
    assert desk.turn(held=[job.lease_no]) is None
    desk.book.cancel(desk.at, [job.task_id], kill=True)  # more than was told
    desk.commit()
    assert [("grey-0", ((job.lease_no, True, "CANCELLED"),))] == list(desk.replies.popitem()[1].cancels)


@pytest.mark.parametrize(
    ("cause", "state"),
    [
        (Cause.DONE, "done"),
        (Cause.FAULT, "dead"),
        (Cause.EXPIRED, "dead"),
        (Cause.RETURNED, "dead"),
        (Cause.LOST, "dead"),
    ],
)
def test_a_leased_task_whose_deadline_passed_is_done_or_dead_whatever_its_unit_says(cause: Cause, state: str) -> None:
    desk = den(1)
    (task_id,) = desk.submit(deadline_s=3.0)
    (job,) = desk.lease()
    desk.wait(3.1)
    if cause is Cause.LOST:
        desk.lose("grey-0")
    else:
        desk.settle(job, cause)
    assert (state, "DONE" if state == "done" else "EXPIRED") == (desk.row(task_id).state, desk.row(task_id).cause)


def test_the_rate_of_a_pack_allows_a_slow_trickle() -> None:
    desk = den(1, [PackSpec(name="p", rate_per_s=0.5)])
    desk.submit(5)
    assert 1 == len(desk.lease(5))
    for _ in range(82):
        desk.turn(ask=5)
        desk.wait(0.1)
    assert 1 + 4 == desk.book.journal.last_lease_no


def test_a_queue_that_is_full_takes_all_of_a_batch_or_nothing_and_repeats_are_free() -> None:
    desk = den(1, [PackSpec(name="p", queue_max=3)])
    items = tuple(SubmitItem(no, "f", "d", b"", "", None, None, "{}", 0.0, None) for no in (1, 2))
    batch = Submit("c", "p", items, (), 0)
    assert ["queued", "queued"] == [verdict for verdict, *_ in desk.send(batch)]
    assert ["queued", "queued"] == [verdict for verdict, *_ in desk.send(batch)]
    with pytest.raises(QueueFull):
        desk.send(Submit("d", "p", items, (), 0))
    assert 2 == len(desk.book.tasks.live)


def test_two_clients_of_one_key_both_get_its_end() -> None:
    world = World(cards=wolves(1), packs=[pack()])
    (mine,) = world.submit("p", [task(0.5, key="k")])
    world.run(0.1)
    (yours,) = world.submit("p", [task(0.5, key="k")], "d")
    world.settle()
    assert {"c": "done", "d": "done"} == {name: client.finals[mine].state for name, client in world.clients.items()}
    assert mine == world.clients["d"].aliases[yours]
    assert 1 == len(world.starts[mine])
    world.submit("p", [task(0.5, key="k")], "e")
    (other,) = world.submit("p", [task(0.6, key="k")], "e")
    world.settle()
    assert "done" == world.clients["e"].finals[mine].state
    assert world.clients["e"].refused[other].startswith("conflict")


def test_a_replayed_dead_letter_runs_again_with_a_fresh_budget_and_reaches_its_client() -> None:
    world = World(cards=wolves(1), packs=[pack(retry=RetryPolicy(max_attempts=1))])
    (task_id,) = world.submit("p", [task(0.1, "FAULT", "DONE", deadline_s=60.0)])
    world.settle()
    world.clients["c"].pending.add(task_id)
    world.act(lambda book, at: book.replay(at, world.disk.tasks[task_id], None))
    world.crash_keeper(0.1)
    world.run(0.5)
    if world.row(task_id).state == "dead":  # the order was not durable
        world.act(lambda book, at: book.replay(at, world.disk.tasks[task_id], None))
    assert world.run_until(lambda: world.row(task_id).state == "done", 5.0)
    assert world.run_until(lambda: world.clients["c"].finals[task_id].state == "done", 5.0)
    assert 2 == world.row(task_id).attempts


def test_a_hunt_that_reaches_a_unit_of_another_pack_tells_nothing_about_that_pack() -> None:
    (card,) = cards(1)
    where = Where(True, False, "", "q", 9, "grey-5", 1, (), (), (), b"", 0, 0)
    brain = Brain(card=card, boot=1, where=where, timing=QUICK, rng=random.Random(1), now=0.0)
    brain.start(0.0)
    (answer,) = [each for each in brain.step(0.1, e.HuntArrived(hunt=hunt(1))) if isinstance(each, e.AnswerHunt)]
    assert (0, None) == (answer.reply.term, answer.reply.alpha)


def a_member(alpha: str = "grey-1") -> Brain:
    (card,) = cards(1)
    peers = tuple((f"grey-{no}", 1, 0, True) for no in range(3))
    where = Where(True, False, "", "p", 4, alpha, 1, peers, (), (), b"", 0, 0)
    brain = Brain(card=card, boot=1, where=where, timing=QUICK, rng=random.Random(1), now=0.0)
    brain.start(0.0)
    return brain


def hunts_of(orders: list[e.Order]) -> list[tuple[str, list[int]]]:
    sent = [each for each in orders if isinstance(each, e.SendHunt)]
    return [(each.to, [report.lease_no for report in each.hunt.settled]) for each in sent]


def answer(n: int, *jobs: Job, **fields: object) -> e.HuntAnswered:
    return e.HuntAnswered(n=n, reply=HuntReply(4, "grey-1", 1, n, jobs, **fields))  # type: ignore[arg-type]


def test_a_report_told_to_one_alpha_is_told_to_the_next_at_once() -> None:
    brain = a_member()
    assert [("grey-1", [])] == hunts_of(brain.step(0.0, e.Tick()))
    brain.step(0.1, answer(1, a_job(7)))
    assert [("grey-1", [7])] == hunts_of(brain.step(0.2, e.Reported(reports=(ended(a_job(7)),))))
    howl = Howl(kind=HowlKind.COORDINATOR, pack="p", term=5, unit="grey-2", boot=1)
    assert [("grey-2", [7])] == hunts_of(brain.step(0.25, e.HowlHeard(howl=howl)))


def test_a_lease_of_an_alpha_that_is_followed_no_longer_is_handed_back_to_the_next() -> None:
    brain = a_member()
    brain.step(0.0, e.Tick())
    howl = Howl(kind=HowlKind.COORDINATOR, pack="p", term=5, unit="grey-2", boot=1)
    brain.step(0.1, e.HowlHeard(howl=howl))
    orders = brain.step(0.15, answer(1, a_job(7)))
    assert not any(isinstance(each, e.GiveJobs) for each in orders)
    assert [("grey-2", [7])] == hunts_of(orders)


def test_a_unit_that_is_told_by_an_alpha_s_unit_that_it_does_not_lead_does_not_ask_without_a_pause() -> None:
    brain = a_member()
    brain.step(0.0, e.Tick())
    nobody = HuntReply(3, None, 0, 1)
    assert [] == hunts_of(brain.step(0.001, e.HuntAnswered(n=1, reply=nobody)))
    assert brain.next_wake() <= 0.06
    assert [("grey-1", [])] == hunts_of(brain.step(0.06, e.Tick()))


def test_I6_answers_that_belong_to_another_pack_crown_and_depose_nobody_here() -> None:
    """A unit that was lent on while its calls were open: what they say is of the pack that it left."""
    brain = a_member()
    peers = (("grey-0", 1, 0, True), ("grey-1", 1, 0, True))
    late: tuple[e.Event, ...] = (
        e.TurnRefused(pack="q", seq=3, term=18, alpha=None),
        e.ClaimAnswered(pack="q", prev_term=17, verdict=Verdict(True, 18, "grey-0", 1, peers, "", 0)),
        e.ClaimAnswered(pack="q", prev_term=17, verdict=Verdict(False, 18, "grey-2", 1, peers, "", 0)),
        e.ClaimLost(pack="q", prev_term=17, reason="no answer"),
        e.HuntAnswered(n=77, reply=HuntReply(18, "grey-0", 1, 77, ())),
    )
    for event in late:
        assert not any(isinstance(each, e.SendClaim | e.SendHowl) for each in brain.step(0.1, event))
    assert ("p", 4, "grey-1", 1) == brain.leadership


def test_a_late_answer_to_a_hunt_that_was_given_up_starts_nothing() -> None:
    brain = a_member()
    brain.step(0.0, e.Tick())
    orders = brain.step(0.1, answer(9, a_job(7)))
    assert not any(isinstance(each, e.GiveJobs) for each in orders)
    (returned,) = [each.hunt.settled for each in orders if isinstance(each, e.SendHunt)]
    assert [(7, Cause.RETURNED)] == [(report.lease_no, report.cause) for report in returned]


def test_a_lease_that_arrives_after_its_unit_was_frozen_is_not_started() -> None:
    brain = a_member()
    brain.step(0.0, e.Tick())
    orders = brain.step(QUICK.lease_s, answer(1, a_job(7)))
    assert not any(isinstance(each, e.GiveJobs) for each in orders)


def test_a_roster_in_which_the_alpha_was_born_again_starts_an_election_at_once() -> None:
    brain = a_member()
    peers = (("grey-0", 1, 0, True), ("grey-1", 2, 0, True))
    orders = brain.step(0.05, e.ClaimAnswered(pack="p", prev_term=3, verdict=Verdict(False, 3, None, 0, peers, "", 0)))
    assert any(isinstance(each, e.SendHowl) and each.howl.kind is HowlKind.ELECTION for each in orders)


def test_a_process_whose_boot_is_void_ends_though_nobody_told_it() -> None:
    world = led()
    zombie = world.process("grey-0")
    world.act(lambda book, at: book.lose(at, "grey-0", zombie.boot, "a test"))
    world.run(5 * QUICK.lease_s)
    assert zombie.dead


def test_of_a_surplus_of_one_only_one_leaves_however_often_the_pack_is_planned() -> None:
    world = led(4)
    world.act(lambda book, at: book.scale(at, "p", 0, 3, ""))
    world.submit("p", [task(4.0)] * 4)
    world.run(6.0)
    assert 1 == len(world.events("UnitLeft"))


def test_a_unit_that_declined_is_not_called_again_at_once() -> None:
    alpha = an_alpha()
    free = tuple(
        RosterEntry(
            card.unit, card_to_json(card), 1, "awake", "p" if card.unit == "grey-0" else None, 0, 0.0, False, 0, ""
        )
        for card in cards(3)
    )
    demand = (DemandRow('{"cpu": true}', 2, 0, None, 0.0),)
    news = reply(1)._replace(roster=free, roster_version=3, demand=demand)
    orders = alpha.on_turn_done(0.1, 1, news, may_lease=True)
    assert ["grey-1"] == [each.unit for each in orders if isinstance(each, e.SendSummons)]
    orders = alpha.on_declined(0.3, "grey-1")
    assert ["grey-2"] == [each.unit for each in orders if isinstance(each, e.SendSummons)]
