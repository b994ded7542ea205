"""What the end of a lease means for its task: the next move, what it costs, and a sentence that says why.

`judge` is a pure function of how the lease ended, what the task has spent so far, and its pack's policy. Two budgets
are kept apart, because two different parties spend them:

- `failures`, up to `max_attempts`: ends the task itself may have caused, FAULT, CRASH, OOM and TIMEOUT, and LOST when
  it was alone on its unit (it may have killed it). Spent: dead letter.
- `evictions`, up to `max_evictions`: ends the den caused by taking the unit away from work that had made no progress.
  Spent: the task is pinned to a unit that is not lent out, and finishes there. It is never buried for it.

`attempts` is no budget: it counts starts of user code, and nothing else. RETURNED costs nothing. When a unit vanishes
with several leases nobody knows which task did it, if any: none is blamed, all queue again marked `solo`, so that the
next loss names the guilty one. When several units of a node vanish together it was the node.

A cancel mark overrules every end but DONE.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from wolfpack.core.tasks import TaskEvent
from wolfpack.model import Card, Cause, Nature, Needs, Offer, RetryPolicy

# The names under which `wolfpack.Retry` can appear in a report.
RETRY_KINDS = frozenset({"wolfpack.Retry", "wolfpack.errors.Retry"})

# A tag of our own: what a pinned task asks for, and what a unit offers that nobody can recall or borrow.
NOT_LENT = "not-lent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The next move of a task and its counters after it, all of them new values."""

    event: TaskEvent
    attempts: int
    failures: int
    evictions: int
    # Seconds from now before which it must not be leased again; 0 unless queued again after a counted failure.
    not_before_delay_s: float
    # Leased only to a unit that holds nothing else.
    solo: bool
    # Leased only to a unit that is not lendable.
    pinned: bool
    needs: Needs
    # A sentence for a person.
    reason: str


def judge(
    *,
    cause: Cause,
    started: bool,
    policy: RetryPolicy,
    attempts: int,
    failures: int,
    evictions: int,
    solo: bool,
    pinned: bool,
    alone: bool,
    cancel: bool,
    progressed: bool,
    kinds: tuple[str, ...],
    retry_after_s: float | None,
    needs: Needs,
    rng: random.Random,
    blameless: bool = False,
) -> Verdict:
    """Decides what the end of a lease means. Counters in the arguments are those before this end.

    Args:
        started: whether user code started under this lease. After LOST it is the best guess there is; blame does not
            depend on it, or a task that kills its unit at once would be handed out for ever.
        alone: the unit held no other lease.
        cancel: the task carries the mark of a cancel.
        progressed: the task had called `progress()` under this lease.
        kinds: after FAULT, the names of the exception's classes, most derived first (`builtins.ValueError`).
        retry_after_s: the delay that `wolfpack.Retry(after_s=)` asked for.
        blameless: several units of one node vanished at once.
    """
    attempts += started

    def verdict(
        event: TaskEvent,
        reason: str,
        *,
        failures: int = failures,
        evictions: int = evictions,
        delay_s: float = 0.0,
        solo: bool = solo,
        pinned: bool = pinned,
        needs: Needs = needs,
    ) -> Verdict:
        return Verdict(
            event=event, attempts=attempts, failures=failures, evictions=evictions, not_before_delay_s=delay_s,
            solo=solo, pinned=pinned, needs=needs, reason=reason,
        )  # fmt: skip

    def counted(what: str, *, final: str | None = None, solo: bool = solo, ask: Needs = needs) -> Verdict:
        spent = failures + 1
        of = f"{spent} of {policy.max_attempts} allowed"
        if final is not None:
            return verdict(TaskEvent.BURY, f"{what}; {final}.", failures=spent)
        if spent >= policy.max_attempts:
            return verdict(TaskEvent.BURY, f"{what}; its budget of failures is spent ({of}).", failures=spent)
        delay_s = asked_delay_s(retry_after_s)
        if delay_s is None:
            delay_s = backoff_s(policy, spent, rng)
        extra = f" and asks for {ask}" if ask != needs else ""
        reason = f"{what} ({of}); it runs again in {delay_s:.2f} s{extra}."
        return verdict(TaskEvent.RETRY, reason, failures=spent, delay_s=delay_s, solo=solo, needs=ask)

    if cause is Cause.DONE:
        late = " before the cancel reached it" if cancel else ""
        return verdict(TaskEvent.SETTLE_DONE, f"The task is done{late}.")
    if cancel and cause is not Cause.CANCELLED:
        return verdict(TaskEvent.CANCEL, f"The task was cancelled; its lease ended as {cause}.")
    match cause:
        case Cause.CANCELLED:
            return verdict(TaskEvent.CANCEL, f"The task was cancelled {'while it ran' if started else 'unstarted'}.")
        case Cause.EXPIRED:
            return verdict(TaskEvent.BURY, "The task's deadline passed before it was done.")
        case Cause.RETURNED:
            return verdict(TaskEvent.GIVE_BACK, "The lease came back unstarted; this costs the task nothing.")
        case Cause.EVICTED if not started:
            return verdict(TaskEvent.GIVE_BACK, "Its unit left before the task started; this costs the task nothing.")
        case Cause.EVICTED if progressed:
            return verdict(TaskEvent.GIVE_BACK, "Its unit was taken away, not the task's fault; it had made progress.")
        case Cause.EVICTED:
            evictions += 1
            what = f"Its unit was taken away, not the task's fault (eviction {evictions} of {policy.max_evictions})"
            if evictions < policy.max_evictions and not pinned:
                return verdict(TaskEvent.GIVE_BACK, f"{what}.", evictions=evictions)
            what = f"{what}; from now on only a unit that is not lent out may run it."
            return verdict(TaskEvent.GIVE_BACK, what, evictions=evictions, pinned=True)
        case Cause.LOST if blameless:
            what = "Its unit vanished together with others of its node; nobody is blamed, it costs the task nothing."
            return verdict(TaskEvent.GIVE_BACK, what)
        case Cause.LOST if not alone:
            what = "Its unit vanished with several leases; none is blamed, next time the task is alone on its unit."
            return verdict(TaskEvent.GIVE_BACK, what, solo=True)
        case Cause.LOST:
            # The next loss must not take others along, and must be as clear as this one.
            return counted("Its unit vanished while it held this task alone; the task raised no fault", solo=True)
        case Cause.CRASH:
            return counted("The process that ran the task died under it; the task raised no fault")
        case Cause.OOM:
            what = "The task outgrew the memory of its unit and was ended there"
            return counted(what, ask=needs.merged(policy.on_oom))
        case Cause.TIMEOUT:
            return counted("The task ran longer than its timeout_s")
        case Cause.FAULT:
            name = kinds[0] if kinds else "an error"
            if retry_after_s is not None or not RETRY_KINDS.isdisjoint(kinds):
                return counted("The task asked to be tried again")
            return counted(f"The task raised {name}", final=find_final_reason(policy, kinds))
        case _:
            assert_never(cause)


def backoff_s(policy: RetryPolicy, failures: int, rng: random.Random) -> float:
    """Seconds to wait after the `failures`-th counted failure: exponential, with full jitter.

    uniform(0, min(backoff_max_s, backoff_s * 2 ** (failures - 1))). Source: Marc Brooker, "Exponential Backoff And
    Jitter", AWS Architecture Blog, 2015: of the variants compared there, full jitter does the least work in all.
    """
    try:
        ceiling_s = math.ldexp(policy.backoff_s, max(0, failures - 1))
    except OverflowError:
        ceiling_s = policy.backoff_max_s
    return rng.uniform(0.0, max(0.0, min(policy.backoff_max_s, ceiling_s)))


def asked_delay_s(retry_after_s: float | None) -> float | None:
    """The delay a task asked for: negative means at once, and what is no finite number asks for nothing."""
    if retry_after_s is None or not math.isfinite(retry_after_s):
        return None
    return max(0.0, retry_after_s)


def names_match(entries: Iterable[str], kinds: tuple[str, ...]) -> str | None:
    """The first entry that names one of these classes: in full (`builtins.OSError`) or bare (`OSError`); else None."""
    bare = {kind.rpartition(".")[2] for kind in kinds}
    return next((entry for entry in entries if entry in kinds or entry in bare), None)


def find_final_reason(policy: RetryPolicy, kinds: tuple[str, ...]) -> str | None:
    """Why a fault of these classes must not be retried, or None. `never_on` wins over `retry_on`.

    Base classes count: an entry `OSError` names a `ConnectionError` too.
    """
    never = names_match(policy.never_on, kinds)
    if never is not None:
        return f"never_on names {never}"
    if policy.retry_on and names_match(policy.retry_on, kinds) is None:
        return f"retry_on names only {', '.join(policy.retry_on)}"
    return None


def replay(*, attempts: int, solo: bool, needs: Needs, other_needs: Needs | None = None) -> Verdict:
    """A dead letter's second life: fresh budgets, the same count of starts, and other needs where a person gave some.

    `solo` stays: what may have killed its unit must not take others along because a person is patient.
    """
    asks = f", asking for {other_needs} instead of {needs}" if other_needs is not None else ""
    return Verdict(
        event=TaskEvent.REPLAY, attempts=attempts, failures=0, evictions=0, not_before_delay_s=0.0, solo=solo,
        pinned=False, needs=needs if other_needs is None else other_needs,
        reason=f"A person replayed it with a fresh budget{asks}.",
    )  # fmt: skip


# --- pins: a pin is a need, so that lanes, plans and explanations treat it like any other -------------------------


def pinned_needs(needs: Needs, pinned: bool) -> Needs:
    """The needs by which a task is queued and recruited for: those of a pinned task ask for a unit that stays."""
    return Needs(needs.tags | {NOT_LENT}, needs.minimums) if pinned else needs


def pinned_offer(offer: Offer, nature: Nature, lendable: bool) -> Offer:
    """What a unit offers in a pack: a wolf whose pack lends nobody (`lendable` is false) can serve pinned tasks too."""
    return Offer(offer.tags | {NOT_LENT}, offer.measures) if nature is Nature.WOLF and not lendable else offer


def find_unpin_reason(needs: Needs, cards: Iterable[Card], lendable: bool) -> str | None:
    """Why a pin must be dropped, or None while it can be kept. A task must not wait for a unit that cannot exist.

    Args:
        needs: those of the task, without the pin.
        lendable: whether the task's pack lends its members.
    """
    fitting = [card for card in cards if needs.fits(card.offer)]
    if any(NOT_LENT in pinned_offer(card.offer, card.nature, lendable).tags for card in fitting):
        return None
    if not fitting:
        return f"The pin is dropped: no card offers {needs}."
    if lendable:
        return "The pin is dropped: the pack is lendable, so none of its members is safe from being lent."
    return f"The pin is dropped: all {len(fitting)} cards that offer {needs} are werewolves."
