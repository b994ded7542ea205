"""The leases a unit holds, and the reports it keeps until somebody confirms that they are durable.

A lease is held from its arrival until its report; a report is kept until its number comes back as acknowledged, and
goes out again to whoever leads next. A task may start only within two thirds of `lease_s` of *sending* the message
that brought or last renewed its lease, by this unit's own clock: so a unit that was frozen starts nothing stale.
"""

from __future__ import annotations

from collections.abc import Iterable

from wolfpack.model import Cause, Job, Report

RESEND_S = 1.0  # a report unacknowledged for so long goes out again
REPORTS_MOST = 4000  # in one message


class LeaseBook:
    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self.start_within_s = lease_s * 2 / 3
        self.held: dict[int, Job] = {}
        self._reports: dict[int, Report] = {}
        self._sent: dict[int, float] = {}  # report -> when it last went out
        self._hunts: dict[int, float] = {}  # hunt -> when sent
        self._renewed_at = float("-inf")  # sending time of the last message known to have renewed
        self._unacked_since = float("inf")

    @property
    def unacknowledged(self) -> int:
        return len(self._reports)

    def accept(self, jobs: Iterable[Job], sent_at: float) -> tuple[Job, ...]:
        """Takes leases that a message sent at `sent_at` brought; a repeated one is taken once."""
        fresh = tuple(job for job in jobs if job.lease_no not in self.held and job.lease_no not in self._reports)
        if fresh and not self.held:
            self._renewed_at = sent_at
        for job in fresh:
            self.held[job.lease_no] = job
        return fresh

    def decline(self, jobs: Iterable[Job], now: float) -> None:
        """Hands leases back that cannot be started here."""
        for job in jobs:
            if job.lease_no not in self.held:
                text = "the unit was leaving, or the lease came too late"
                self._keep(Report(job.lease_no, job.task_id, Cause.RETURNED.value, False, 0.0, 0.0, text=text), now)

    def report(self, report: Report) -> None:
        if self.held.pop(report.lease_no, None) is not None:
            self._keep(report, float("inf"))

    def _keep(self, report: Report, now: float) -> None:
        self._unacked_since = min(self._unacked_since, now)
        self._reports[report.lease_no] = report

    def acknowledge(self, numbers: Iterable[int]) -> None:
        for lease_no in numbers:
            self._reports.pop(lease_no, None)
            self._sent.pop(lease_no, None)
        if not self._reports:
            self._unacked_since = float("inf")

    def has_unsent(self, now: float) -> bool:
        if len(self._sent) < len(self._reports):
            return True
        return any(now - at > RESEND_S for at in self._sent.values())

    def take_unsent(self, now: float) -> tuple[Report, ...]:
        """Reports that nobody was told yet, or too long ago."""
        return self._take(now, (no for no in self._reports if now - self._sent.get(no, float("-inf")) > RESEND_S))

    def take_all(self, now: float) -> tuple[Report, ...]:
        return self._take(now, iter(self._reports))

    def _take(self, now: float, numbers: Iterable[int]) -> tuple[Report, ...]:
        chosen = [self._reports[number] for number, _ in zip(numbers, range(REPORTS_MOST), strict=False)]
        for report in chosen:
            self._sent[report.lease_no] = now
        self._unacked_since = min(self._unacked_since, now) if chosen else self._unacked_since
        return tuple(chosen)

    def resend(self, now: float) -> None:
        """Whoever was told may be gone: every report goes out again."""
        self._sent.clear()
        if self._reports:
            self._unacked_since = min(self._unacked_since, now)

    def hunt_sent(self, n: int, now: float) -> None:
        self._hunts[n] = now

    def hunt_renewed(self, n: int) -> float | None:
        """The keeper took hunt `n`: its leases count as renewed when it was sent. None if that is no news."""
        sent_at = self._hunts.get(n)
        self._hunts = {number: at for number, at in self._hunts.items() if number > n}
        if sent_at is None or sent_at <= self._renewed_at:
            return None
        self._renewed_at = sent_at
        return sent_at

    def keeper_renewed(self, sent_at: float) -> None:
        self._renewed_at = max(self._renewed_at, sent_at)
        self._unacked_since = min(float("inf"), self._unacked_since) if self._reports else float("inf")

    def needs_keeper(self, now: float) -> bool:
        """Whether renewals, or reports, have waited so long that the unit must call the keeper itself."""
        half = self._lease_s / 2
        return (bool(self.held) and now - self._renewed_at > half) or now - self._unacked_since > half
