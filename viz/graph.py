"""From events to the leadership graph: a pure function, so that what a picture says can be tested without drawing it.

Nodes are units, under their names, with

    category   what the picture shows first, of `Category`
    role       free, member, pretender or alpha
    nature, kind, offers, readiness, boot, reason
    pack       the pack it is in, or was lost from; None: in the common pool
    sub_pack   what it offers, as text: members that offer the same can serve the same needs
    label      its name, broken into at most two short lines

Edges run from an alpha to each living member (kind "leads") and from each alpha to its successor (kind "succeeds").
An edge has `leads` (bool) and `terms` (the successor's terms); `kind` is "leads" where both are true, since
one pair of units can stand in both relations.

The graph itself carries den, number and at (of the newest event), title, subtitle, and packs: a mapping from the
pack's name to its term, alpha, previous alpha, title, members and seats.

Events tell who leads, not who wants to. While a pack has no alpha, the members that succession lets try (the highest
ranks by name, at most seven, without the one that was just deposed) are shown as pretenders.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import networkx as nx

from viz.state import DenView, PackView, UnitView, fold
from wolfpack import Nature, Readiness, Role, natural_key
from wolfpack.events import AlphaCrowned, AlphaDeposed, Recorded

COUNCIL = 7  # only so many of the highest ranks pretend
LABEL_CHARS = 12  # of a line of a label


class Category(StrEnum):
    ALPHA = "alpha"
    PRETENDER = "pretender"
    WOLF = "wolf"
    WEREWOLF = "werewolf"
    WAKING = "waking"
    SLEEPER = "sleeper"
    QUARANTINED = "quarantined"
    LOST = "lost"


def leadership_graph(events: Iterable[Recorded]) -> nx.DiGraph:
    """The leadership graph of a den after these events, which come in the order of their numbers."""
    return graph_of(fold(events))


def graph_of(view: DenView, *, at: float | None = None) -> nx.DiGraph:
    """The leadership graph of this state of the den.

    Args:
        at: wall-clock seconds of the moment it shows; None: those of the newest event.
    """
    at = at if at is not None else (view.latest.at if view.latest else None)
    title, subtitle = _titles(view, at)
    graph = nx.DiGraph(den=view.den, number=view.number, at=at, title=title, subtitle=subtitle)
    pretenders = {name for pack in view.packs.values() for name in _pretenders(view, pack)}
    for unit in sorted(view.units.values(), key=lambda unit: natural_key(unit.name)):
        role = Role.PRETENDER if unit.name in pretenders else unit.role
        graph.add_node(
            unit.name,
            category=_category(unit, role),
            role=role,
            nature=unit.nature,
            kind=unit.kind,
            offers=unit.offers,
            readiness=unit.readiness,
            boot=unit.boot,
            reason=unit.reason,
            pack=unit.pack,
            sub_pack=", ".join(sorted(unit.offers)) or "nothing",
            label=short_label(unit.name),
        )
    packs: dict[str, dict[str, Any]] = {}
    for pack in sorted(view.packs.values(), key=lambda pack: natural_key(pack.name)):
        members = [unit.name for unit in view.members(pack.name)]
        for name in members:
            if pack.alpha is not None and name != pack.alpha:
                _edge(graph, pack.alpha, name, leads=True)
        for reign in pack.reigns:
            if reign.previous is not None and reign.previous in graph:
                _edge(graph, reign.previous, reign.alpha, term=reign.term)
        packs[pack.name] = {
            "term": pack.term,
            "alpha": pack.alpha,
            "previous": pack.reigns[-1].previous if pack.reigns else None,
            "title": pack_title(pack),
            "members": tuple(members),
            "seats": tuple(pack.seats),
        }
    graph.graph["packs"] = packs
    return graph


def pack_title(pack: PackView) -> str:
    """One line on who leads: `computing: term 3, alpha grey-2`."""
    if pack.alpha is not None:
        return f"{pack.name}: term {pack.term}, alpha {pack.alpha}"
    if pack.term:
        return f"{pack.name}: term {pack.term} ended, no alpha"
    return f"{pack.name}: no alpha yet"


def short_label(name: str, chars: int = LABEL_CHARS) -> str:
    """The name in at most two lines of at most `chars` characters; what is too long loses its middle."""
    if len(name) <= chars:
        return name
    if len(name) <= 2 * chars:
        cuts = range(len(name) - chars, chars + 1)
        cut = min(cuts, key=lambda at: (name[at - 1] not in "-_. :/", abs(2 * at - len(name))))
        return f"{name[:cut]}\n{name[cut:]}"
    return f"{name[: chars - 1]}…\n{name[-chars:]}"


def clock(at: float | None) -> str:
    """The time of day of wall-clock seconds: `14:03:22 UTC`."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC") if at is not None else ""


def _titles(view: DenView, at: float | None) -> tuple[str, str]:
    event = view.latest.event if view.latest else None
    subtitle, focus = "", None
    match event:
        case AlphaCrowned():
            focus = view.packs.get(event.pack)
            reign = focus.reigns[-1] if focus and focus.reigns else None
            follows = f" follows {reign.previous}" if reign and reign.previous not in (None, event.unit) else " leads"
            subtitle = f"{event.unit}{follows}: {event.reason}" if event.reason else f"{event.unit}{follows}"
        case AlphaDeposed():
            focus = view.packs.get(event.pack)
            subtitle = f"{event.unit} deposed: {event.reason}" if event.reason else f"{event.unit} deposed"
        case _ if len(view.packs) == 1:
            (focus,) = view.packs.values()
    what = pack_title(focus) if focus else f"{len(view.packs)} packs" if view.packs else "no packs yet"
    return " - ".join(part for part in (view.den, what, clock(at)) if part), subtitle


def _pretenders(view: DenView, pack: PackView) -> list[str]:
    if pack.alpha is not None:
        return []
    fallen = pack.reigns[-1].alpha if pack.reigns else None
    awake = [unit.name for unit in view.members(pack.name) if unit.readiness is Readiness.AWAKE]
    return [name for name in awake if name != fallen][-COUNCIL:]  # natural order is the order of rank


def _category(unit: UnitView, role: Role) -> Category:
    if unit.lost:
        return Category.LOST
    if role is Role.ALPHA:
        return Category.ALPHA
    match unit.readiness:
        case Readiness.QUARANTINED:
            return Category.QUARANTINED
        case Readiness.WAKING:
            return Category.WAKING
        case Readiness.ASLEEP | Readiness.GONE:
            return Category.SLEEPER
    if role is Role.PRETENDER:
        return Category.PRETENDER
    return Category.WEREWOLF if unit.nature is Nature.WEREWOLF else Category.WOLF


def _edge(graph: nx.DiGraph, source: str, target: str, *, leads: bool = False, term: int | None = None) -> None:
    known = graph.get_edge_data(source, target, {"leads": False, "terms": ()})
    leads = leads or known["leads"]
    terms = (*known["terms"], term) if term is not None else known["terms"]
    graph.add_edge(source, target, kind="leads" if leads else "succeeds", leads=leads, terms=terms)
