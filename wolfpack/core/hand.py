"""The leases a unit holds, and the reports it keeps until somebody confirms that they are durable.

A lease is held from its arrival until its report; a report is kept until its number comes back as acknowledged, and
goes out again to whoever leads next. A task may start only within two thirds of `lease_s` of *sending* the message
that brought or last renewed its lease, by this unit's own clock: so a unit that was frozen starts nothing stale.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from wolfpack.model import Cause, Job, Report

RESEND_S = 1.0  # a report unacknowledged for so long goes out again
REPORTS_MOST = 4000  # in one message


class LeaseBook:
    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self.start_within_s = lease_s * 2 / 3
        self.held: dict[int, Job] = {}
        self._unsent: dict[int, Report] = {}
        self._sent: dict[int, tuple[float, Report]] = {}  # when each last went out, in that order
        self._owed_since: dict[int, float] = {}  # when each first went out, in that order
        self._hunts: dict[int, float] = {}  # hunt -> when sent
        self._renewed_at = float("-inf")  # sending time of the last message known to have renewed

    @property
    def unacknowledged(self) -> int:
        return len(self._unsent) + len(self._sent)

    @property
    def start_until(self) -> float:
        """Until when tasks may start: every lease in hand was brought or renewed late enough for that."""
        return self._renewed_at + self.start_within_s

    def accept(self, jobs: Iterable[Job], sent_at: float) -> tuple[Job, ...]:
        """Takes leases that a message sent at `sent_at` brought; a repeated one is taken once."""
        fresh = tuple(job for job in jobs if not self._knows(job.lease_no))
        if fresh and not self.held:
            self._renewed_at = sent_at
        for job in fresh:
            self.held[job.lease_no] = job
        return fresh

    def decline(self, jobs: Iterable[Job]) -> None:
        """Hands leases back that cannot be started here."""
        for job in jobs:
            if not self._knows(job.lease_no):
                text = "the unit was leaving, or the lease came too late"
                report = Report(job.lease_no, job.task_id, Cause.RETURNED.value, False, 0.0, 0.0, text=text)
                self._unsent[job.lease_no] = report

    def _knows(self, lease_no: int) -> bool:
        return lease_no in self.held or lease_no in self._unsent or lease_no in self._sent

    def report(self, report: Report) -> None:
        if self.held.pop(report.lease_no, None) is not None:
            self._unsent[report.lease_no] = report

    def acknowledge(self, numbers: Iterable[int]) -> None:
        for lease_no in numbers:
            self._owed_since.pop(lease_no, None)
            if self._sent.pop(lease_no, None) is None:
                self._unsent.pop(lease_no, None)

    def has_unsent(self, now: float) -> bool:
        """Whether there is a report that nobody was told yet, or too long ago."""
        return bool(self._unsent) or any(now - at > RESEND_S for at, _ in islice(self._sent.values(), 1))

    def take_unsent(self, now: float) -> tuple[Report, ...]:
        """Reports that nobody was told yet, or too long ago."""
        old = []
        for at, report in self._sent.values():
            if now - at <= RESEND_S:
                break
            old.append(report)
        return self._take(now, [*old, *self._unsent.values()])

    def take_all(self, now: float) -> tuple[Report, ...]:
        return self._take(now, [*(report for _, report in self._sent.values()), *self._unsent.values()])

    def _take(self, now: float, reports: list[Report]) -> tuple[Report, ...]:
        chosen = tuple(reports[:REPORTS_MOST])
        for report in chosen:
            lease_no = report.lease_no
            if self._unsent.pop(lease_no, None) is None:
                del self._sent[lease_no]
            self._sent[lease_no] = (now, report)
            self._owed_since.setdefault(lease_no, now)
        return chosen

    def resend(self) -> None:
        """Whoever was told may be gone: every report goes out again."""
        self._unsent = {**{no: report for no, (_, report) in self._sent.items()}, **self._unsent}
        self._sent.clear()

    def hunt_sent(self, n: int, now: float) -> None:
        self._hunts[n] = now

    def hunt_renewed(self, n: int) -> bool:
        """The keeper took hunt `n`: its leases count as renewed when it was sent. Says whether that is news."""
        sent_at = self._hunts.get(n)
        self._hunts = {number: at for number, at in self._hunts.items() if number > n}
        return sent_at is not None and self.keeper_renewed(sent_at)

    def keeper_renewed(self, sent_at: float) -> bool:
        if sent_at <= self._renewed_at:
            return False
        self._renewed_at = sent_at
        return True

    def needs_keeper(self, now: float) -> bool:
        """Whether renewals, or reports, have waited so long that the unit must call the keeper itself."""
        half = self._lease_s / 2
        if self.held and now - self._renewed_at > half:
            return True
        return any(now - since > half for since in islice(self._owed_since.values(), 1))
