"""Succession told as transcripts: `tests/scenarios/*.txt` hold commands, each followed by what must come of it.

A block is one or more commands, a line `----`, and the output up to an empty line. After an intended change of
behaviour run with REWRITE_SCENARIOS=1 and read the diff: it is the review. In the spirit of etcd raft's `testdata`.

    units a b:1 z! [term=3 alpha=c] [itself] [usurp]   who is there, `:1` its lead, `!` cannot lead; alpha: it leads
    tick S        time passes, nothing is delivered          run S      time passes, everything arrives at once
    deliver [WHO] [KIND]   what is held now arrives          settle     until nothing is held any more
    drop [WHO] [KIND]      what is held now is lost          (WHO: `a->b`, `->b`, `a->`; KIND: election, claim, ...)
    cut a b / heal [a b]   messages between them are lost, also `cut a keeper`
    crash a       its process ends                           hint a     everybody learns that it died
    freeze a / resume a    it handles nothing, then what is queued and the overdue tick
    stepdown a [next]      it leaves on purpose              boot a     a new boot of it, known to all
    show          what each believes; `*` may lease
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest

from tests.core.succession_world import FakeKeeper
from wolfpack.core.howls import HowlKind, Peer
from wolfpack.core.succession import (
    Alone,
    Arbiter,
    AskedToLead,
    Claim,
    Crowned,
    Event,
    Following,
    Granted,
    Heard,
    MemberHeard,
    Order,
    PeerLost,
    PeersChanged,
    Refused,
    ReleaseTerm,
    StepDown,
    StoppedLeading,
    Succession,
    Tell,
    Ticked,
)
from wolfpack.model import Role, Timing

FOLDER = Path(__file__).parent.parent / "scenarios"
TIMING = Timing()


@dataclass
class Message:
    source: str
    target: str
    kind: str
    arrive: Callable[[], None]


class Stage:
    """Runs commands; every order of a unit becomes a line of the transcript."""

    def __init__(self) -> None:
        self.now = 0.0
        self.keeper = FakeKeeper(TIMING)
        self.machines: dict[str, Succession] = {}
        self.roster: dict[str, Peer] = {}
        self.arbiter, self.usurp = Arbiter.KEEPER, False
        self.held: list[Message] = []
        self.cuts: set[frozenset[str]] = set()
        self.frozen: dict[str, list[Event]] = {}
        self.next_work = TIMING.heartbeat_s
        self.quiet = False
        self.lines: list[str] = []

    def do(self, command: str) -> list[str]:
        name, *args = command.split()
        self.lines = []
        getattr(self, f"do_{name}")(*args)
        return self.lines

    # --- commands -------------------------------------------------------------------------------------------------

    def do_units(self, *args: str) -> None:
        options = dict(arg.split("=") for arg in args if "=" in arg)
        if "itself" in args:
            self.arbiter = Arbiter.ITSELF
        self.usurp = "usurp" in args
        for arg in args:
            if "=" not in arg and arg not in ("itself", "usurp"):
                name, _, lead = arg.rstrip("!").partition(":")
                self.roster[name] = Peer(unit=name, boot=1, lead=int(lead or 0), can_lead=not arg.endswith("!"))
        term, alpha = int(options.get("term", 0)), options.get("alpha")
        self.keeper.term = term
        for name in self.roster:
            self.add(name, term - 1 if name == alpha else term, None if name == alpha else alpha)
        if alpha is not None:
            self.keeper.alpha, self.keeper.grants[term] = (alpha, 1), (alpha, 1)
            self.machines[alpha].step(self.now, AskedToLead())
            self.machines[alpha].step(self.now, Granted(term))

    def do_tick(self, seconds: str) -> None:
        self.advance(float(seconds), after_each=lambda: None)

    def do_run(self, seconds: str) -> None:
        self.quiet = True
        self.do_settle()
        self.advance(float(seconds), after_each=self.do_settle)
        self.quiet = False

    def do_deliver(self, *which: str) -> None:
        for message in self.pick(*which):
            self.held.remove(message)
            message.arrive()

    def do_settle(self) -> None:
        while self.held:
            self.do_deliver()

    def do_drop(self, *which: str) -> None:
        for message in self.pick(*which):
            self.held.remove(message)
            self.lines.append(f"lost: {message.source} -> {message.target} {message.kind}")

    def do_cut(self, one: str, other: str) -> None:
        self.cuts.add(frozenset({one, other}))

    def do_heal(self, *ends: str) -> None:
        self.cuts -= {frozenset(ends)} if ends else set(self.cuts)

    def do_crash(self, name: str) -> None:
        del self.machines[name]

    def do_hint(self, name: str) -> None:
        gone = self.roster[name]
        self.keeper.dead.add((gone.unit, gone.boot))
        for unit in list(self.machines):
            self.step(unit, PeerLost(gone.unit, gone.boot))

    def do_freeze(self, name: str) -> None:
        self.frozen[name] = []

    def do_resume(self, name: str) -> None:
        for event in [*self.frozen.pop(name), Ticked()]:
            self.step(name, event)

    def do_stepdown(self, name: str, next_unit: str | None = None) -> None:
        self.step(name, StepDown("leaves", next_unit))

    def do_boot(self, arg: str) -> None:
        name, _, lead = arg.rstrip("!").partition(":")
        boot = self.roster[name].boot + 1 if name in self.roster else 1
        self.roster[name] = Peer(unit=name, boot=boot, lead=int(lead or 0), can_lead=not arg.endswith("!"))
        self.add(name, 0, None)
        self.tell_roster()

    def do_show(self) -> None:
        if self.arbiter is Arbiter.KEEPER:
            self.lines.append(
                f"keeper: term {self.keeper.term} of {self.keeper.alpha[0] if self.keeper.alpha else '-'}"
            )
        for name, machine in self.machines.items():
            star = "*" if machine.may_lease(self.now) else ""
            self.lines.append(f"{name}: {machine.role} in term {machine.term} of {machine.alpha or '-'}{star}")

    # --- the world --------------------------------------------------------------------------------------------------

    def add(self, name: str, term: int, alpha: str | None) -> None:
        self.machines[name] = Succession(
            me=self.roster[name], pack="p", timing=TIMING, arbiter=self.arbiter, rng=random.Random(name), now=self.now,
            usurp=self.usurp, term=term, alpha=alpha, alpha_boot=1,
        )  # fmt: skip
        self.machines[name].step(self.now, PeersChanged(tuple(self.roster.values())))

    def tell_roster(self) -> None:
        for name in self.machines:
            self.step(name, PeersChanged(tuple(self.roster.values())))

    def advance(self, seconds: float, after_each: Callable[[], None]) -> None:
        end = round(self.now + seconds, 6)
        while True:
            wakes = {name: m.next_wake() for name, m in self.machines.items() if name not in self.frozen}
            first = min(wakes, key=wakes.__getitem__, default="")
            due = min(wakes.get(first, end + 1), self.next_work)
            if due > end:
                break
            self.now = max(self.now, due)
            if due == self.next_work:
                self.next_work = round(self.next_work + TIMING.heartbeat_s, 6)
                self.work()
            else:
                self.step(first, Ticked())
            after_each()
        self.now = end

    def work(self) -> None:
        """Each heartbeat an alpha makes its turn and a member hunts; neither is a line of the transcript."""
        for name, machine in list(self.machines.items()):
            if name in self.frozen:
                continue
            if machine.role is Role.ALPHA and frozenset({name, "keeper"}) not in self.cuts:
                who, term = (name, machine.me.boot), machine.term
                if self.arbiter is Arbiter.KEEPER:
                    self.step(name, self.keeper.turn(self.now, term, who, self.now))
            elif machine.alpha in self.machines and frozenset({name, machine.alpha}) not in self.cuts:
                self.step(machine.alpha, MemberHeard())

    def step(self, name: str, event: Event) -> None:
        if name in self.frozen:
            self.frozen[name].append(event)
        elif name in self.machines:
            orders = self.machines[name].step(self.now, event)
            for key, group in groupby(orders, key=_same_howl):
                same = list(group)
                if key is not None and not (self.quiet and "HEARTBEAT" in key):
                    to = ", ".join(order.to for order in same if isinstance(order, Tell))
                    self.lines.append(f"{self.now:.3f} {name} howls {key} to {to}")
                for order in same:
                    self.carry_out(name, order)

    def carry_out(self, name: str, order: Order) -> None:
        machine = self.machines[name]
        who = (name, machine.me.boot)
        match order:
            case Tell(to, howl):
                self.hold(name, to, howl.kind, lambda: self.step(to, Heard(howl)))
                return
            case Claim(prev_term):
                line = f"claims the term after {prev_term}"
                self.hold(
                    name, "keeper", "claim", lambda: self.answer(name, self.keeper.claim(self.now, prev_term, who))
                )
            case ReleaseTerm(term):
                line = f"gives term {term} back"
                self.hold(name, "keeper", "release", lambda: self.keeper.release(term, who))
            case Crowned(term):
                line = f"LEADS term {term}"
                if self.arbiter is Arbiter.KEEPER:
                    assert who == self.keeper.grants[term]
            case StoppedLeading(term, reason):
                line = f"STOPS leading term {term}: {reason}"
            case Following(term, alpha, _):
                line = f"follows {alpha} in term {term}"
            case Alone(reason):
                line = f"is alone: {reason}"
        self.lines.append(f"{self.now:.3f} {name} {line}")

    def answer(self, name: str, reply: Event) -> None:
        match reply:
            case Granted(term):
                text = f"grants term {term} to {name}"
            case Refused(term, alpha, _):
                text = f"refuses {name}: term {term} of {alpha or 'nobody'}"
            case _:
                raise AssertionError(reply)
        self.lines.append(f"{self.now:.3f} keeper {text}")
        self.hold("keeper", name, "reply", lambda: self.step(name, reply))

    def hold(self, source: str, target: str, kind: str, arrive: Callable[[], None]) -> None:
        if frozenset({source, target}) not in self.cuts:
            self.held.append(Message(source, target, str(kind), arrive))

    def pick(self, *which: str) -> list[Message]:
        link = next((arg for arg in which if "->" in arg), "->")
        source, _, target = link.partition("->")
        kind = next((arg for arg in which if "->" not in arg), None)
        return [
            m
            for m in self.held
            if source in ("", m.source) and target in ("", m.target) and kind in (None, m.kind)
        ]  # fmt: skip


def _same_howl(order: Order) -> str | None:
    """One line tells all receivers of a howl."""
    if not isinstance(order, Tell):
        return None
    howl = order.howl
    return f"{howl.kind.upper()} {howl.term}" + (f", next {howl.next_unit}" if howl.next_unit else "")


def blocks(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """Commands (comments included) and the output they had."""
    for block in text.strip().split("\n\n"):
        before, rule, after = (block + "\n").partition("----\n")
        yield before.splitlines(), after.splitlines() if rule else []


def replay(text: str) -> str:
    stage, told = Stage(), []
    for commands, _ in blocks(text):
        output = [line for command in commands if not command.startswith("#") for line in stage.do(command)]
        acts = any(not command.startswith("#") for command in commands)
        told.append("\n".join([*commands, *(["----", *(output or ["nothing"])] if acts else [])]))
    return "\n\n".join(told) + "\n"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_scenario(path: Path):
    before = path.read_text()
    after = replay(before)
    if os.environ.get("REWRITE_SCENARIOS") == "1":
        path.write_text(after)
        before = after
    assert before.splitlines() == after.splitlines()


def test_there_are_scenarios_and_a_changed_one_is_noticed():
    paths = sorted(FOLDER.glob("*.txt"))
    assert len(paths) >= 14
    changed = paths[0].read_text().replace("LEADS", "leads")
    assert changed != replay(changed)


def test_every_kind_of_howl_is_told_in_some_scenario():
    told = "".join(path.read_text() for path in FOLDER.glob("*.txt"))
    assert [kind for kind in HowlKind if f"howls {kind.upper()}" not in told] == []
