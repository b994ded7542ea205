"""A unit without Ray: its doors, brain and gossip run; its orders are looked at, and go nowhere."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from wolfpack.core import errands as e
from wolfpack.core import shapes
from wolfpack.core.anti_entropy import read_message
from wolfpack.core.howls import Howl
from wolfpack.core.items import read_items
from wolfpack.core.member import Brain
from wolfpack.core.membership_words import AddressesGiven, Load
from wolfpack.core.packets import read_packet
from wolfpack.core.wire import (
    HuntReply,
    TurnReply,
    Verdict,
    Where,
    pack,
    read_claim,
    read_hunt,
    read_hunt_reply,
    read_keeper_report,
    read_move,
    read_turn,
    unpack,
)
from wolfpack.den.gossip import Advice, Gossip
from wolfpack.den.unit import UnitActor
from wolfpack.model import Card, DenSpec, PackSpec, Timing
from wolfpack.plain import pack_to_json

PEERS = tuple((f"grey-{no}", 1, 0, True) for no in range(3))
STEP_S = 0.05


class BareGossip(Gossip):
    """Gossip whose packets and syncs are looked at, and go nowhere. Its time is that of the machine."""

    def __init__(self, spec: DenSpec, card: Card, on_advice: Callable[[Advice], None]) -> None:
        super().__init__(spec, card, 1, get_load=Load, on_advice=on_advice)
        self._step(AddressesGiven(tuple((unit, unit, boot) for unit, boot, _, _ in PEERS)))

    def _set_timer(self) -> None:
        pass

    def _send(self, to: str, data: bytes) -> None:
        read_items(read_packet(data).body)

    async def _ask_sync(self, to: str, data: bytes) -> None:
        read_message(data)

    def is_well(self) -> None:
        """Raises unless all that came in so far was taken or refused without an error of our own."""
        assert 0 == self.counters["failed"]
        assert any("grey-0" == each.unit and "alive" == each.status for each in self.seen())


class BareUnit(UnitActor):
    """`grey-0`, a member of pack `p`; time is its own."""

    def __init__(self, *, leads: bool) -> None:
        self._spec = DenSpec(den="fuzz", ledger="memory://")
        self._card = Card(unit="grey-0", kind="grey")
        self._boot = 1
        self._parked, self._tickets, self._ticket_no = {}, {}, 0
        self._ending = False
        self.refused_calls = 0
        self._now = 0.0
        self._leads = leads
        self._gossip = BareGossip(self._spec, self._card, self._on_advice)
        self._answers: list[Any] = []  # of the keeper, on their way
        where = Where(True, False, "", "p", 1, None if leads else "grey-1", 0 if leads else 1, PEERS, (), (), b"", 0, 0)
        self._brain: Brain | None = Brain(
            card=self._card, boot=1, where=where, timing=Timing(), rng=random.Random(1), now=0.0
        )
        self._carry_out(self._brain.start(0.0))

    def _step(self, event: e.Event) -> None:
        assert self._brain is not None
        if not self._ending:
            self._carry_out(self._brain.step(self._now, event))

    def live_on(self, seconds: float) -> None:
        """Time goes on: nothing may stop the brain."""
        end = self._now + seconds
        while self._now < end:
            self._now += STEP_S
            self._step(e.Tick())
            answers, self._answers = self._answers, []
            for answer in answers:
                self._step(answer)

    def is_well(self) -> None:
        assert isinstance(self._gossip, BareGossip)
        self._gossip.is_well()

    def _do(self, order: e.Order) -> None:
        """Whatever leaves must be what the other side takes."""
        match order:
            case e.SendTurn(turn=turn):
                shapes.check_turn(read_turn(pack(turn)))
                self._answers.append(e.TurnDone(seq=turn.seq, reply=self._turn_reply(turn)))
            case e.SendClaim(claim=claim):
                shapes.check_claim(read_claim(pack(claim)))
                verdict = Verdict(
                    self._leads, claim.prev_term + 1, "grey-0" if self._leads else "grey-1", 1, PEERS, "", 0
                )
                self._answers.append(e.ClaimAnswered(pack=claim.pack, prev_term=claim.prev_term, verdict=verdict))
            case e.SendReport(report=report):
                shapes.check_keeper_report(read_keeper_report(pack(report)))
            case e.SendMove(move=move):
                shapes.check_move(read_move(pack(move)))
            case e.SendHunt(hunt=hunt):
                shapes.check_hunt(read_hunt(pack(hunt)))
            case e.SendHowl(howl=howl):
                assert howl == Howl.from_wire(unpack(pack(howl.to_wire())))
            case e.AnswerHunt(unit=unit, n=n, reply=reply):
                assert isinstance(reply, HuntReply)
                read_hunt_reply(pack(reply))
                future = self._parked.pop((unit, n), None)
                if future is not None and not future.done():
                    future.set_result(pack(reply))
            case e.AnswerSummons(ticket=ticket, accepted=accepted, reason=reason):
                waiting = self._tickets.pop(ticket, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result((accepted, reason))
            case e.EndSelf():
                self._ending = True
            case _:
                pass

    def _carry_out(self, orders: list[e.Order]) -> None:
        for order in orders:
            self._do(order)

    def _turn_reply(self, turn: Any) -> TurnReply:
        acked = tuple((each.unit, tuple(report.lease_no for report in each.settled)) for each in turn.members)
        return TurnReply(turn.seq, (), acked, (), (), (), 1, pack_to_json(PackSpec(name="p", most=3)), False, 0)
