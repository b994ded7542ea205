"""From valid fields to a DenSpec: what fields mean together, defaults filled in, paths made absolute.

Each `_check_x` looks at one thing that no single field can tell, and adds a fault at the field a person would change
first. A check is silent where one of the fields it rests on is faulty itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from wolfpack.config.document import Document
from wolfpack.config.faults import Fault, FieldPath, did_you_mean, dotted
from wolfpack.config.models import DenFile, ElectionFile, HandsFile, PackFile, RayFile, RetryFile, UnitFile
from wolfpack.model import (
    PROFILES,
    Card,
    DenSpec,
    HandsSpec,
    JobSpec,
    Nature,
    Needs,
    Offer,
    PackSpec,
    RetryPolicy,
    Timing,
)

MAX_UNITS = 10_000  # of all kinds; a card each is made, kept and gossiped about

_LISTED_KINDS = 20
_UNIT_FIELDS = {(name,) for name in UnitFile.model_fields}
# Fields of a unit that tell whether it can be a member of a pack.
_POOL_FIELDS = frozenset({"offers", "measures", "count", "can_lead"})

_SQLITE = "sqlite:///"
_MEMORY = "memory://"


def den_spec(document: Document, den: DenFile) -> DenSpec:
    """Checks the den as a whole and builds it; with faults in the document the result is of no use."""
    folder = Path(document.file).parent.absolute()
    pool_is_known = not any(map(_hides_the_pool, document.faults))
    _check_units(document, den)
    offers = {kind: _offer(unit) for kind, unit in den.units.items() if unit.count}
    for name, pack in den.packs.items():
        _check_size(document, name, pack)
        if pool_is_known and document.is_clean(("packs", name, "needs")):
            _check_needs(document, den, offers, name, pack)
    timing = _timing(den.election)
    _check_timing(document, timing)
    ledger = _ledger(document, den, folder)
    return DenSpec(
        den=den.den,
        ledger=ledger,
        graphs=str(folder / den.graphs) if den.graphs is not None else None,
        payload_max_bytes=den.payload_max_bytes,
        # With faults there may be far too many of them.
        cards=() if document.faults else tuple(card for kind, unit in den.units.items() for card in _cards(kind, unit)),
        packs=tuple(pack_spec(name, pack) for name, pack in den.packs.items()),
        timing=timing,
        job=JobSpec(task=den.job.task, options=den.job.options) if den.job else None,
        folder=str(folder),
    )


# --- units --------------------------------------------------------------------------------------------------------


def _check_units(document: Document, den: DenFile) -> None:
    # In these kinds an unknown key may be one that a check rests on, spelled wrong.
    unclear = {fault.path[:2] for fault in document.faults if fault.path[2:3] not in _UNIT_FIELDS}
    total = 0
    for kind, unit in den.units.items():
        here: FieldPath = ("units", kind)
        _check_ray(document, here, unit)
        if here not in unclear:
            _check_day_job(document, here, unit)
            _check_numbers(document, here, unit)
        total += unit.count
        if total > MAX_UNITS >= total - unit.count:
            document.add_fault((*here, "count"), f"with this there are {total} units; a den has at most {MAX_UNITS}")
    for kind in den.units:
        other, _, place = kind.rpartition("-")
        if other in den.units and place in map(str, range(den.units[other].count)):
            document.add_fault(
                ("units", kind), f"{kind!r} is also the name of a unit of the kind {other!r}", of_key=True
            )


def _check_numbers(document: Document, here: FieldPath, unit: UnitFile) -> None:
    if unit.awake_min > unit.count and document.is_clean((*here, "awake_min"), (*here, "count")):
        text = f"must be at most count, which is {unit.count}; found {unit.awake_min}"
        document.add_fault((*here, "awake_min"), text)
    if (
        unit.max_loan_s is not None
        and unit.max_loan_s < unit.min_tenure_s
        and document.is_clean((*here, "max_loan_s"), (*here, "min_tenure_s"))
    ):
        text = f"must be at least min_tenure_s, which is {unit.min_tenure_s:g}; found {unit.max_loan_s:g}"
        document.add_fault((*here, "max_loan_s"), text)


def _check_day_job(document: Document, here: FieldPath, unit: UnitFile) -> None:
    if not document.is_clean((*here, "nature"), (*here, "day_job")):
        return
    if unit.nature == "werewolf" and unit.day_job is None:
        text = "a werewolf needs a day_job (module:Class); without one it is a wolf"
        document.add_fault((*here, "day_job"), text, of_key=True)
    if unit.nature == "wolf" and unit.day_job is not None:
        document.add_fault((*here, "day_job"), "a wolf has no day job; say `nature: werewolf`", of_key=True)


def _check_ray(document: Document, here: FieldPath, unit: UnitFile) -> None:
    gpus = unit.ray.num_gpus
    if gpus is not None and gpus > 1 and gpus != int(gpus):
        document.add_fault((*here, "ray", "num_gpus"), f"above 1 Ray wants whole GPUs; found {gpus:g}")
    for name, option in {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}.items():
        if name in unit.ray.resources:
            document.add_fault((*here, "ray", "resources", name), f"say `ray: {{{option}: ...}}` instead", of_key=True)


def _cards(kind: str, unit: UnitFile) -> list[Card]:
    first = Card(
        unit=kind,
        kind=kind,
        nature=Nature(unit.nature),
        offer=_offer(unit),
        lead=unit.lead,
        can_lead=unit.can_lead,
        cost_per_h=unit.cost_per_h,
        sleep_after_s=unit.sleep_after_s,
        awake_min=unit.awake_min,
        day_job=unit.day_job,
        grace_s=unit.grace_s,
        min_tenure_s=unit.min_tenure_s,
        max_loan_s=unit.max_loan_s,
        ray=_ray(unit.ray),
        hands=_hands(unit.hands),
    )
    return [replace(first, unit=f"{kind}-{number}") for number in range(unit.count)]


def _offer(unit: UnitFile) -> Offer:
    return Offer(frozenset(unit.offers), tuple(sorted(unit.measures.items())))


def _ray(ray: RayFile) -> dict[str, Any]:
    return {name: value for name, value in ray.model_dump(exclude_unset=True).items() if value is not None}


def _hands(hands: HandsFile) -> HandsSpec:
    return HandsSpec(
        isolation=hands.isolation,
        concurrency=hands.concurrency,
        setup=hands.setup,
        recycle_after=hands.recycle_after,
        stall_s=hands.stall_s,
    )


# --- packs --------------------------------------------------------------------------------------------------------


def _hides_the_pool(fault: Fault) -> bool:
    """Whether we cannot tell, because of this fault, what the units of the den offer."""
    return fault.path[:1] == ("units",) and (
        len(fault.path) < 3 or fault.path[2] in _POOL_FIELDS or fault.path[2] not in UnitFile.model_fields
    )


def _check_size(document: Document, name: str, pack: PackFile) -> None:
    fewest, most = pack.size
    if fewest > most and document.is_clean(("packs", name, "size")):
        text = f"the first number (fewest members) is larger than the second (most): [{fewest}, {most}]"
        document.add_fault(("packs", name, "size"), text)


def _check_needs(document: Document, den: DenFile, offers: Mapping[str, Offer], name: str, pack: PackFile) -> None:
    here: FieldPath = ("packs", name)
    needs = Needs.parse(pack.needs)
    fitting = {kind: den.units[kind] for kind, offer in offers.items() if needs.fits(offer)}
    if not fitting:
        document.add_fault((*here, "needs"), f"no unit could ever be a member: {_lacking(den, offers, needs)}")
        return
    listed = ", ".join(list(fitting)[:_LISTED_KINDS])
    if not any(unit.can_lead for unit in fitting.values()):
        text = f"none of its possible members can lead (can_lead is false: {listed})"
        document.add_fault(here, text, of_key=True)
    members = sum(unit.count for unit in fitting.values())
    if pack.size[0] > members and document.is_clean((*here, "size")):
        text = f"asks for at least {pack.size[0]} members, and only {members} units fit ({listed})"
        document.add_fault((*here, "size"), text)
    if not document.is_clean((*here, "retry", "on_oom")):
        return
    after_oom = needs.merged(Needs.parse(pack.retry.on_oom))
    if not any(map(after_oom.fits, offers.values())):
        text = f"no unit could take a task after OOM: {_lacking(den, offers, after_oom)}"
        document.add_fault((*here, "retry", "on_oom"), text)


def _lacking(den: DenFile, offers: Mapping[str, Offer], needs: Needs) -> str:
    """What the nearest kind of unit lacks, a nearer spelling where there is one, and what all kinds offer."""
    listed = "; ".join(
        f"{kind} offers {_offer(unit)}" + ("" if unit.count else ", but its count is 0")
        for kind, unit in list(den.units.items())[:_LISTED_KINDS]
    )
    if not offers:
        return f"there are no units at all; {listed}"
    nearest = min(offers, key=lambda kind: len(needs.missing_from(offers[kind])))
    lacks = " and ".join(needs.missing_from(offers[nearest]))
    tags = {tag for offer in offers.values() for tag in offer.tags}
    measures = {measure for offer in offers.values() for measure, _ in offer.measures}
    hints = [
        f"; {tag!r} is a measure, so ask for a least value of it" if tag in measures else _near(tag, tags)
        for tag in sorted(needs.tags - tags)
    ]
    hints += [
        f"; {measure!r} is a tag, so say `{measure}: true`" if measure in tags else _near(measure, measures)
        for measure, _ in needs.minimums
        if measure not in measures
    ]
    return f"{nearest}, which comes nearest, lacks {lacks}{''.join(hints)}; {listed}"


def _near(word: str, known: set[str]) -> str:
    hint = did_you_mean(word, sorted(known))
    return hint if hint.endswith("?") else ""


def pack_spec(name: str, pack: PackFile) -> PackSpec:
    return PackSpec(
        name=name,
        fewest=pack.size[0],
        most=pack.size[1],
        needs=Needs.parse(pack.needs),
        drain_target_s=pack.drain_target_s,
        queue_max=pack.queue_max,
        submit_timeout_s=pack.submit_timeout_s,
        rate_per_s=pack.rate.per_s if pack.rate else None,
        priority=pack.priority,
        lendable=pack.lendable,
        infeasible=pack.infeasible,
        retry=retry_policy(pack.retry),
    )


def retry_policy(retry: RetryFile) -> RetryPolicy:
    return RetryPolicy(
        max_attempts=retry.max_attempts,
        max_evictions=retry.max_evictions,
        backoff_s=retry.backoff_s,
        backoff_max_s=retry.backoff_max_s,
        retry_on=tuple(retry.retry_on),
        never_on=tuple(retry.never_on),
        on_oom=Needs.parse(retry.on_oom),
    )


# --- the den ------------------------------------------------------------------------------------------------------


def _timing(election: ElectionFile) -> Timing:
    given = election.model_dump(exclude={"profile"}, exclude_none=True)
    return replace(PROFILES[election.profile], **given)


def _check_timing(document: Document, timing: Timing) -> None:
    if not document.is_clean(("election",)):
        return
    if timing.silence_s <= timing.heartbeat_s:
        text = f"must be longer than heartbeat_s, which is {timing.heartbeat_s:g}; found {timing.silence_s:g}"
        document.add_fault(("election", "silence_s"), text)
    if timing.lease_s < 2 * timing.heartbeat_s:
        text = f"must be at least two heartbeats of {timing.heartbeat_s:g}; found {timing.lease_s:g}"
        document.add_fault(("election", "lease_s"), text)


def _check_path(document: Document, file: Path) -> None:
    try:
        if file.is_dir():
            document.add_fault(("ledger",), f"{dotted((file.name,))} is a folder; name a file in it")
    except OSError as error:  # a name that is too long, a link that leads to itself
        document.add_fault(("ledger",), f"no ledger can lie there: {error.strerror}")


def _ledger(document: Document, den: DenFile, folder: Path) -> str:
    """The ledger's address with an absolute path, in the spelling of SQLAlchemy: `sqlite:////absolute/path`."""
    ledger = den.ledger if den.ledger is not None else f"{_SQLITE}.wolfpack/{den.den}.db"
    scheme = ledger.partition(":")[0].lower()
    if ledger == _MEMORY:
        return ledger
    if ledger.startswith(_SQLITE):
        file = ledger.removeprefix(_SQLITE)
        if not file or file.endswith("/"):
            document.add_fault(("ledger",), f"must name a file, such as {_SQLITE}.wolfpack/{den.den}.db")
        elif "?" in file:
            document.add_fault(("ledger",), "options after '?' have no meaning here")
        else:
            _check_path(document, folder / file)
        return _SQLITE + str(folder / file)
    known = f"{_SQLITE}file (beside this file), {_SQLITE}/absolute/file, or {_MEMORY}"
    if scheme in ("postgresql", "postgres") or scheme.startswith("postgresql+"):
        text = f"PostgreSQL is not in this version, which has SQLite and memory ledgers only; say {known}"
    else:
        text = f"must be {known}, not {ledger!r}"
    document.add_fault(("ledger",), text)
    return ledger
