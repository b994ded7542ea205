"""What stands around a drawing: the looks of the categories, the head with the title, and the key.

Widths are measured with the fonts of matplotlib, so that nothing is clipped at the edge of the sheet.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

import networkx as nx
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from viz.graph import Category
from wolfpack import Nature

TITLE_MIN_PT = 8.5


class Look(NamedTuple):
    marker: str
    fill: str
    scale: float  # markers of one size do not look equally large
    meaning: str


LOOKS = {
    Category.ALPHA: Look("*", "#E69F00", 1.0, "alpha"),
    Category.PRETENDER: Look("^", "#D55E00", 1.05, "pretender: may claim the next term"),
    Category.WOLF: Look("o", "#0072B2", 0.9, "wolf"),
    Category.WEREWOLF: Look("D", "#CC79A7", 0.8, "werewolf"),
    Category.WAKING: Look("p", "#009E73", 1.0, "waking"),
    Category.SLEEPER: Look("s", "#DCEEF8", 0.75, "asleep"),
    Category.QUARANTINED: Look("8", "#F0E442", 0.95, "quarantined"),
    Category.LOST: Look("X", "#000000", 0.95, "lost"),
}


def width_pt(text: str, pt: float, *, bold: bool = False) -> float:
    """How wide the text is drawn."""
    return float(text_to_path.get_text_width_height_descent(text, font(pt, bold=bold), ismath=False)[0])


def font(pt: float, *, bold: bool) -> FontProperties:
    return FontProperties(
        family=["DejaVu Sans", "sans-serif"], size=pt, weight="bold" if bold else "normal", style="normal"
    )


def head(graph: nx.DiGraph, width: float, title_pt: float) -> list[tuple[str, float, bool]]:
    """Title, reason and event number, each made to fit the width."""
    title, subtitle, number = graph.graph["title"], graph.graph["subtitle"], graph.graph["number"]
    at = graph.graph["at"]
    day = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d") if at is not None else ""
    lines = fitted(title, title_pt, width, bold=True)
    small = min(9.0, max(6.0, lines[0][1] * 0.7))
    if subtitle:
        lines += fitted(subtitle, small, width)
    if number:
        lines += fitted(f"event {number}, {day}", small, width)
    return lines


def fitted(text: str, pt: float, width: float, *, bold: bool = False) -> list[tuple[str, float, bool]]:
    """The text as one line, somewhat smaller if need be, else as two; what is still too long loses its middle."""
    words = text.split()
    text = " ".join(words)
    full = width_pt(text, pt, bold=bold)
    if full <= width:
        return [(text, pt, bold)]
    pt = max(pt * width / full, min(TITLE_MIN_PT, pt), pt * 0.7)
    fits = [cut for cut in range(1, len(words)) if width_pt(" ".join(words[:cut]), pt, bold=bold) <= width]
    if width_pt(text, pt, bold=bold) <= width * 1.001 or not fits:
        lines = [text]
    else:
        # The break that leaves the two lines most alike.
        cut = min(fits, key=lambda cut: abs(len(" ".join(words[:cut])) - len(" ".join(words[cut:]))))
        if width_pt(" ".join(words[cut:]), pt, bold=bold) > width:
            cut = fits[-1]
        lines = [" ".join(words[:cut]), " ".join(words[cut:])]
    return [(cut_to(line, pt, width * 1.001, bold=bold), pt, bold) for line in lines]


def cut_to(text: str, pt: float, width: float, *, bold: bool) -> str:
    """The text without so much of its middle as does not fit the width."""
    shown, keep = text, len(text)
    while keep > 2 and width_pt(shown, pt, bold=bold) > width:
        keep -= 1
        shown = f"{text[: keep - keep // 2]}…{text[len(text) - keep // 2 :]}"
    return shown


def key_entries(graph: nx.DiGraph) -> list[tuple[Look | str, str]]:
    """What the key explains: only what this picture shows. A sign that is no `Look` goes by name."""
    nodes: list[dict[str, Any]] = [node for _, node in graph.nodes(data=True)]
    shown = {node["category"] for node in nodes}
    entries: list[tuple[Look | str, str]] = [(look, look.meaning) for each, look in LOOKS.items() if each in shown]
    packs = graph.graph["packs"].values()
    if any(edge["leads"] for *_, edge in graph.edges(data=True)):
        entries.append(("leads", "leads"))
    if any(pack["alpha"] and pack["previous"] and pack["previous"] != pack["alpha"] for pack in packs):
        entries.append(("succeeds", "is followed by"))
    own = (Category.WEREWOLF, Category.WOLF)
    if any(node["nature"] is Nature.WEREWOLF and node["category"] not in own for node in nodes):
        entries.append(("nature", "by nature a werewolf"))
    if any(pack["alpha"] or len(pack["seats"]) > len(pack["members"]) for pack in packs):
        entries.append(("seat", "empty seat"))
    return entries


def entry_width(name: str, pt: float) -> float:
    """The room of one entry of the key: sign, name and the space to the next."""
    return pt * 3.4 + width_pt(name, pt)


def flow(entries: list[tuple[Look | str, str]], pt: float, width: float) -> list[list[tuple[Look | str, str]]]:
    """The entries in rows that fit the width."""
    rows: list[list[tuple[Look | str, str]]] = []
    used = width + 1
    for entry in entries:
        wide = entry_width(entry[1], pt)
        if used + wide > width:
            rows.append([])
            used = 0.0
        rows[-1].append(entry)
        used += wide
    return rows
