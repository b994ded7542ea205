"""Probes: who is asked whether it lives, and what follows when it does not answer. Layer three of the machine.

Each period one unit, round-robin; without an ack in time through helpers too; without any by the end of the period it
is accused, told so and asked again. Dead units are called now and then, since a partition may have ended.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Any

from wolfpack.core.beliefs import NEVER
from wolfpack.core.bulletin import Bulletin
from wolfpack.core.items import Record
from wolfpack.core.membership_words import Status
from wolfpack.core.packets import Kind, Sender, write_head
from wolfpack.core.probing import Lap, Probe, Relay, pick
from wolfpack.core.suspicion import NACK_SHARE, stretched
from wolfpack.core.view import Member, set_bits

RELAYS_MOST = 256  # probes for others under way
SEED_GROWTH = 1.1
HURRY = 4  # so much faster while many fall
_NUMBERS = (1 << 32) - 1


class Prober(Bulletin):
    """Pings, acks and accusations of one unit."""

    __slots__ = (
        "_due_probes",
        "_due_relays",
        "_lap",
        "_number",
        "_probe_at",
        "_probes",
        "_relays",
        "_seed_at",
        "_seed_gap_s",
        "_seeds",
    )

    def __init__(self, **known: Any) -> None:
        super().__init__(**known)
        now: float = known["now"]
        self._lap = Lap(self._rng)
        self._number = int(self._rng.random() * _NUMBERS)
        self._probes: dict[int, Probe] = {}
        self._relays: dict[int, Relay] = {}
        self._seeds: OrderedDict[str, tuple[str, int]] = OrderedDict()  # address -> unit and boot, where known
        self._seed_at = now
        self._seed_gap_s = self.timing.probe_s
        self._probe_at = now + self._rng.random() * self.timing.probe_s
        self._due_probes = self._due_relays = NEVER

    def _ping(self, probe: Probe) -> None:
        number = self._next_number()
        self._probes[number] = probe
        self._due_probes = min(self._due_probes, probe.due)
        self._send(probe.address, self._head_ping + number.to_bytes(4, "big") + self._sender, probe.unit)

    def _probe_next(self, now: float) -> None:
        period = self._own_s(self.timing.probe_s)
        ack_s = self._own_s(self.timing.ack_s)
        hurried = self._many_fall(now) and not self._health.score
        self._probe_at = now + (period / HURRY if hurried else period)
        if self._seeds and now >= self._seed_at:
            self._ping_seed(now)
        member = self._lap.next(self.view, self.me)
        if member is not None:
            life = (member.boot, member.counter)
            self._ping(Probe(member.unit, member.address, now + ack_s, now + period, life=life))

    def _ping_seed(self, now: float) -> None:
        """An address has no id until it answered: a probe of nobody in particular, ever more rarely where none does."""
        address, (unit, boot) = self._seeds.popitem(last=False)
        if self._knows(address, unit, boot):
            self._seed_gap_s = self.timing.probe_s
            return
        self._seeds[address] = (unit, boot)
        self._seed_at = now + self._seed_gap_s
        self._seed_gap_s = min(self.options.heal_s, self._seed_gap_s * SEED_GROWTH)
        self._ping(Probe("", address, NEVER, now + self._own_s(self.timing.probe_s), heal=True))

    def _knows(self, address: str, unit: str, boot: int) -> bool:
        found = self.view.get(unit or self.view.unit_at(address) or "")
        if address == self.address or unit == self.me:
            return True
        return found is not None and found.boot >= boot and (found.lives or found.boot > boot > 0)

    def _judge_probes(self, now: float) -> None:
        for number, probe in list(self._probes.items()):
            if now >= probe.end_at:
                del self._probes[number]
                if not probe.heal:
                    self._probe_failed(now, probe)
            elif now >= probe.due:
                helpers = pick(self.view, self._rng, self.timing.helpers, (self.me, probe.unit))
                head = write_head(self._mark, Kind.PING_REQ, number, self._sender, probe.address, probe.unit)
                for helper in helpers:
                    self._send(helper.address, head, helper.unit)
                probe.asked = tuple(helper.address for helper in helpers)
                probe.ack_at = NEVER
        self._due_probes = min([probe.due for probe in self._probes.values()], default=NEVER)

    def _probe_failed(self, now: float, probe: Probe) -> None:
        missed = len(probe.asked) - len(probe.nackers)
        if not probe.again:
            self._health.worsen(missed if probe.asked else 1)
        known = self.view.get(probe.unit)
        if known is not None and (known.boot, known.counter) == probe.life:
            self._accuse(now, probe.unit, "no ack", probe.nackers, probe.again)

    def _accuse(
        self, now: float, unit: str, reason: str, nackers: Collection[str] = (), again: bool = False
    ) -> None:  # fmt: skip
        """I found this unit silent myself."""
        known = self.view.get(unit)
        if known is None or not known.lives:
            return
        if known.status is Status.ALIVE:
            self._learn(now, known, known._replace(status=Status.SUSPECT), self.me, reason)
        elif unit not in self._suspicions:
            self._start_suspicion(now, known, self.me)
            record = Record(unit, known.boot, known.counter, Status.SUSPECT, self.me)
            self._news.tell(record, self.view, self._times())
            self._wants_gossip(now)
        else:
            self._on_confirmation(now, unit, self.me)
        suspicion = self._suspicions[unit]
        if self.options.helpers_confirm:
            for nacker in nackers:
                suspicion.confirm(nacker)
            self._set_due_suspicions()
            if not again or not suspicion.settled:
                self._probe_again(now, known)

    def _probe_again(self, now: float, member: Member) -> None:
        """At once, so that the suspect is told first; through other helpers too where confirmations are missing."""
        if any(probe.again and probe.unit == member.unit for probe in self._probes.values()):
            return
        suspicion = self._suspicions.get(member.unit)
        settled = suspicion is not None and suspicion.settled
        ack_s = self._own_s(self.timing.ack_s)
        ask_at, end_at = NEVER if settled else now, now + max(self.timing.probe_s, ack_s)
        life = (member.boot, member.counter)
        probe = Probe(member.unit, member.address, ask_at, end_at, life=life, again=True)
        self._ping(probe)

    # --- answers

    def _on_ack(self, now: float, number: int, sender: Sender, source: str) -> None:
        probe = self._probes.get(number)
        if probe is None:
            relay = self._relays.get(number)
            if relay is not None and relay.whom in ("", sender.unit):
                del self._relays[number]
                self._send(relay.asker, write_head(self._mark, Kind.ACK, relay.number, self._sender))
            return
        direct = sender.unit == probe.unit or not probe.unit
        if not direct and source not in probe.asked:
            return
        del self._probes[number]
        if not self._probes:
            self._due_probes = NEVER
        self._health.improve()
        suspicion = self._suspicions.get(probe.unit)
        if suspicion is not None and self.options.helpers_confirm:
            suspicion.restart(now)
            self._set_due_suspicions()
        if direct and self.loads.known:
            vote = self.loads.witness(now, self.me, sender.unit)
            if vote is not None:
                self._on_vote(now, vote)
                self._say_vote(now, vote)  # again at each ack: above all its subject must hear of it

    def _on_ping_req(self, now: float, number: int, source: str, target: str, whom: str) -> None:
        if len(self._relays) >= RELAYS_MOST:
            self.counters["too_many_relays"] += 1
            return
        own = self._next_number()
        nack_at = now + NACK_SHARE * self.timing.ack_s
        relay = Relay(source, number, whom, nack_at, now + self.timing.probe_s)
        self._relays[own] = relay
        self._due_relays = min(self._due_relays, nack_at)
        head = self._head_ping + own.to_bytes(4, "big") + self._sender
        known = self.view.get(whom)
        if known is not None and known.address not in ("", target):  # one of us is wrong about where it lives
            self._send(known.address, head, whom)
        self._send(target, head, self.view.unit_at(target))

    def _judge_relays(self, now: float) -> None:
        for number, relay in list(self._relays.items()):
            if now >= relay.end_at:
                del self._relays[number]
            elif now >= relay.nack_at:
                relay.nack_at = NEVER
                self._send(relay.asker, write_head(self._mark, Kind.NACK, relay.number, self._sender))
        self._due_relays = min([relay.due for relay in self._relays.values()], default=NEVER)

    # --- the dead

    def _heal(self, now: float) -> None:
        """Calls one of the dead, or of those whose death is forgotten: a partition may have ended."""
        dead = [unit for unit in self._graves if (m := self.view.get(unit)) and m.status is Status.DEAD and m.address]
        members = self.view.base.members
        bits = [slot for slot in set_bits(self.view.dead_bits()) if members[slot].unit not in self._graves]
        self._heal_at = now + self.options.heal_s if dead or bits or self._lost else NEVER
        at = int(self._rng.random() * (len(dead) + len(bits) + len(self._lost)))
        if at < len(dead):
            address = getattr(self.view.get(dead[at]), "address", "")
        elif at < len(dead) + len(bits):
            address = members[bits[at - len(dead)]].address
        elif self._lost:
            address = self._lost[at - len(dead) - len(bits)]
        else:
            return
        unit = self.view.unit_at(address) or ""
        known = self.view.get(unit)
        if address and (known is None or not known.lives):
            self._ping(Probe(unit, address, NEVER, now + self._own_s(self.timing.probe_s), heal=True))

    def _settle(self, now: float) -> None:
        """Nothing happened for a while: the view becomes the base of the next differences."""
        if self._news or self._suspicions or self._probes or not self.view.settle(keep_dead=not self._purge):
            self._settle_at = now + self.options.settle_s
            return
        self._settle_at = NEVER
        self._purge = False
        self._graves = OrderedDict((unit, at) for unit, at in self._graves.items() if unit in self.view)
        self._lap.reset()

    # --- small helpers

    def _own_s(self, seconds: float) -> float:
        """A time of one's own probes."""
        return stretched(seconds, self._health.score) if self.options.local_health_probe else seconds

    def _next_number(self) -> int:
        self._number = number = self._number + 1 & _NUMBERS
        return number
