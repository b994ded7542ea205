"""The book under any order of messages, old ones among them: it agrees with itself and with its ledger, always.

Nothing here thinks: units and alphas say whatever comes to mind. Whatever they say, the book may only refuse by the
errors that it documents, and no promise may break.
"""

from __future__ import annotations

import contextlib
from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.core.book_desk import Desk, cards, ended
from wolfpack.core.rows import TaskMutable
from wolfpack.core.wire import Claim, Job, KeeperReport, MemberTurn, Move, Turn
from wolfpack.errors import CallerError, Deposed
from wolfpack.model import Card, Cause, Nature, Needs, Offer, PackSpec, RetryPolicy, TaskState
from wolfpack.sim.checks import check_book

UNITS = ("grey-0", "grey-1", "silver-0")
PACKS = ("a", "b")
unit_names, pack_names = st.sampled_from(UNITS), st.sampled_from(PACKS)
some = st.integers(0, 4)


def spec(pack: str) -> PackSpec:
    retry = RetryPolicy(max_attempts=2, max_evictions=2, backoff_s=0.5)
    return PackSpec(name=pack, most=2, fewest=pack == "a", lendable=pack == "a", priority=pack == "b", retry=retry)


class BookMachine(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        silver = Card(unit="silver-0", kind="silver", nature=Nature.WEREWOLF, offer=Offer(frozenset({"cpu", "gpu"})))
        self.desk = Desk([*cards(2), silver], [spec(pack) for pack in PACKS])
        self.jobs: list[tuple[str, int, Job]] = []
        self.sent: list[Turn | Move | KeeperReport | Claim] = []
        self.done: set[str] = set()
        self.terms = dict.fromkeys(PACKS, 0)

    # --- what clients and persons do --------------------------------------------------------------------------

    @rule(pack=pack_names, count=some, needs=st.sampled_from([None, '{"cpu": true}', '{"gpu": true}', '{"tpu": true}']),
          delay_s=st.sampled_from([0.0, 0.0, 2.0]), deadline_s=st.sampled_from([None, None, 3.0]),
          key=st.sampled_from([None, None, "k"]), client=st.sampled_from(["c", "d"]))  # fmt: skip
    def submit(self, pack: str, count: int, client: str, **fields: object) -> None:
        self._try(lambda: self.desk.submit(count if fields["key"] is None else 1, pack, client, **fields))

    @rule(kill=st.booleans(), number=st.integers(0, 99))
    def cancel(self, kill: bool, number: int) -> None:
        live = sorted(self.desk.book.tasks.live)
        if live:
            self.desk.book.cancel(self.desk.at, [live[number % len(live)]], kill=kill)
            self.desk.commit()

    @rule(pack=pack_names, drop=st.booleans())
    def letters(self, pack: str, drop: bool) -> None:
        for row in self.desk.ledger.find_states(pack, TaskState.DEAD, 1):
            if drop:
                self._try(lambda row=row: self.desk.book.drop_dead(row))
            else:
                self._try(lambda row=row: self.desk.book.replay(self.desk.at, row, Needs.parse("cpu")))

    @rule(unit=unit_names, order=st.sampled_from(["wake", "sleep", "release", "recall"]))
    def order(self, unit: str, order: str) -> None:
        self._try(lambda: self.desk.book.order_unit(self.desk.at, unit, order, None, "a whim"))

    @rule(pack=pack_names, fewest=some, most=some)
    def scale(self, pack: str, fewest: int, most: int) -> None:
        self._try(lambda: self.desk.book.scale(self.desk.at, pack, fewest, most, ""))

    @rule(pack=pack_names, what=st.sampled_from(["drop", "drain", "make", "make"]))
    def change_pack(self, pack: str, what: str) -> None:
        book, at = self.desk.book, self.desk.at
        if what == "make":
            if pack not in book.packs:
                self.terms[pack] = 0
            self._try(lambda: book.create_pack(at, spec(pack)))
        else:
            self._try(lambda: (book.drop_pack if what == "drop" else book.drain)(at, pack, "a whim"))

    # --- what units do ----------------------------------------------------------------------------------------

    @rule(unit=unit_names, old=st.booleans())
    def hello(self, unit: str, old: bool) -> None:
        self.desk.book.hello(self.desk.at, unit, self.desk.book.units[unit].boot - old, 1, "node")
        self.desk.commit()

    @rule(unit=unit_names)
    def fail_birth(self, unit: str) -> None:
        self.desk.book.desk.birth_failed(self.desk.at, unit, self.desk.book.units[unit].boot, "a whim")
        self.desk.commit()

    @rule(unit=unit_names)
    def lose(self, unit: str) -> None:
        self.desk.lose(unit)

    @rule(unit=unit_names, pack=pack_names, behind=st.integers(0, 1))
    def claim(self, unit: str, pack: str, behind: int) -> None:
        owner = self.desk.book.packs.get(pack)
        term = owner.term - behind if owner else 0
        self._send(Claim(pack, term, unit, self.desk.book.units[unit].boot, 0))

    @rule(pack=pack_names, data=st.data())
    def turn(self, pack: str, data: st.DataObject) -> None:
        owner = self.desk.book.packs.get(pack)
        if owner is None or owner.alpha is None:
            return
        members = []
        for unit in data.draw(st.lists(unit_names, unique=True)):
            mine = [(boot, job) for name, boot, job in self.jobs if name == unit]
            held = [job.lease_no for _, job in mine if data.draw(st.booleans())]
            reports = [
                ended(job, data.draw(st.sampled_from(Cause))) for _, job in mine[-3:] if data.draw(st.booleans())
            ]
            boot = self.desk.book.units[unit].boot
            members.append(MemberTurn(unit, boot, tuple(held), tuple(reports), data.draw(some)))
        seq = max(0, owner.turn_seq + data.draw(st.sampled_from([1, 1, 1, 0, -1, 5])))
        wakes = (("grey", data.draw(some)),) if data.draw(st.booleans()) else ()
        call_off = tuple(data.draw(st.lists(unit_names, max_size=1)))
        self._send(
            Turn(pack, owner.term, owner.alpha, owner.alpha_boot, seq, tuple(members), wakes, call_off, 0, (), None, 0)
        )

    @rule(unit=unit_names, to=st.sampled_from(["free", "home", "asleep", "pack:a", "pack:b", "pack:x", "moon"]))
    def move(self, unit: str, to: str) -> None:
        row = self.desk.book.units[unit]
        self._send(Move(unit, row.boot, row.n + 1, to, (), (), "a whim"))

    @rule(unit=unit_names, cause=st.sampled_from(Cause))
    def report(self, unit: str, cause: Cause) -> None:
        row = self.desk.book.units[unit]
        mine = [job for name, _, job in self.jobs if name == unit]
        held = tuple(job.lease_no for job in mine)
        self._send(KeeperReport(unit, row.boot, row.n, held, tuple(ended(job, cause) for job in mine[-1:]), 0))

    @rule(back=st.integers(1, 8))
    def repeat_an_old_message(self, back: int) -> None:
        if len(self.sent) >= back:
            self._deliver(self.sent[-back])

    # --- time and the keeper ----------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.1, 0.3, 1.1, 3.0, 6.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.desk.wait(seconds)

    @rule()
    def keeper_dies(self) -> None:
        self.desk.rebirth()

    # --- how --------------------------------------------------------------------------------------------------

    def _try(self, what: object) -> None:
        with contextlib.suppress(CallerError, Deposed):
            what()  # type: ignore[operator]
        self.desk.commit()

    def _send(self, message: Turn | Move | KeeperReport | Claim) -> None:
        self.sent.append(message)
        self._deliver(message)

    def _deliver(self, message: Turn | Move | KeeperReport | Claim) -> None:
        book, at = self.desk.book, self.desk.at
        match message:
            case Turn():
                self._try(lambda: book.turn(at, message))
            case Move():
                self._try(lambda: book.move(at, message))
            case KeeperReport():
                self._try(lambda: book.report(at, message))
            case Claim():
                self._try(lambda: book.claim(at, message))
        for reply in self.desk.replies.values():
            for unit, boot, jobs in reply.leases if reply is not None else ():
                self.jobs += [(unit, boot, job) for job in jobs]
        self.desk.replies.clear()

    # --- what must hold ---------------------------------------------------------------------------------------

    @invariant()
    def the_book_agrees_with_itself_and_with_its_ledger(self) -> None:
        if not hasattr(self, "desk"):
            return
        book = self.desk.book
        check_book(book)
        tally: Counter[tuple[str, str]] = Counter()
        for count in self.desk.ledger.counts():
            tally[count.pack, count.state] = count.tasks
        mine = Counter({(p, str(s)): n for p, counts in book.tasks.counts.items() for s, n in counts.items() if n})
        assert tally == mine, "I13"
        assert book.stats(self.desk.ledger.counts())["conservation"]
        for name, row in self.desk.disk.units.items():
            assert row == book.units[name].row(), f"the row of {name} was not written"
        for name, pack in book.packs.items():
            assert pack.term >= self.terms[name], "I2"
            self.terms[name] = pack.term
            stored = self.desk.disk.packs[name]
            assert (stored.term, stored.alpha, stored.alpha_boot) == (pack.term, pack.alpha, pack.alpha_boot)
            if pack.alpha is not None:
                unit = book.units[pack.alpha]
                assert (unit.boot, unit.pack) == (pack.alpha_boot, name), "an alpha is a member"
        for task_id, stored_task in self.desk.disk.tasks.items():
            if stored_task.mutable.state == TaskState.DONE:
                self.done.add(task_id)
        assert all(self.desk.disk.tasks[each].mutable.state == TaskState.DONE for each in self.done), "I5"

    @invariant()
    def what_a_new_keeper_reads_is_what_the_old_one_knew(self) -> None:
        if not hasattr(self, "desk"):
            return
        known = {each: _lasting(task.row()) for each, task in self.desk.book.tasks.live.items()}
        stored = {each: _lasting(row.mutable) for each, row in self.desk.disk.tasks.items() if each in known}
        assert known == stored


def _lasting(row: TaskMutable) -> TaskMutable:
    """Without what a new keeper finds again by itself: delays that are over, and deadlines that passed."""
    row = row._replace(not_before=0.0)
    return row._replace(cancel=False, cause="") if row.cause in ("", Cause.EXPIRED) else row


BookMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
TestBook = BookMachine.TestCase
