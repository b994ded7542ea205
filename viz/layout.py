"""Where everything stands in a picture: a pure function from the leadership graph to places, in points (1/72 inch).

The same graph gives the same places, and no force or chance is involved.

- A pack is a disc. Its alpha stands in the middle; the seats lie on rings around it. A sub-pack takes a sector of the
  disc, over all rings, so its members stand together; sectors and seats are in natural order, clockwise from the top.
  The alpha's own seat, and the seats of units that are away, stay empty.
- Below the packs lies the common pool, a grid in natural order: units that are free, at home, asleep or waking.

Nothing overlaps. A node and its label fill a *cell* of `cell_w_pt` x `cell_h_pt`, the same for all. Two cells cannot
overlap once their middles are `pitch = hypot(w, h)` apart in any direction; rings and the seats on them keep that
distance, and the alpha, which is larger, has `ALPHA_ROOM` times as much. `_rings` finds the smallest disc for that.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import networkx as nx

from viz.graph import Category
from wolfpack import natural_key

FONT_PT = 8.0  # of the labels of units
NODE_PT = 14.0  # diameter of a unit
ALPHA_PT = 26.0  # diameter of an alpha
CAPTION_PT = 10.0  # font of pack captions
SECTOR_PT = 7.5  # font of the names of sub-packs
ALPHA_ROOM = 1.3  # radius of the first ring, in pitches
GAP_PT = 5.0  # between cells
SPACE_PT = 22.0  # between packs
ASPECT = 1.5  # width to height a picture should come near
SECTOR_CHARS = 30  # of the name of a sub-pack


class Point(NamedTuple):
    x: float
    y: float


class Box(NamedTuple):
    left: float
    bottom: float
    right: float
    top: float


class Text(NamedTuple):
    x: float
    y: float
    text: str
    align: str  # left, center or right; y is always its middle


class SectorPlace(NamedTuple):
    name: Text
    # From this point of the rim to the name.
    rim: Point
    # Where the sector begins, on the rim.
    border: Point


class PackPlace(NamedTuple):
    middle: Point
    radius: float
    caption: Text
    # Of all that belongs to it: disc, caption, names of sub-packs.
    width_pt: float
    sectors: tuple[SectorPlace, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    # Middles of the units' markers.
    places: dict[str, Point]
    # Seats of the packs that stand empty, by (pack, unit).
    empty_seats: dict[tuple[str, str], Point]
    packs: dict[str, PackPlace]
    # The area of the common pool and its caption; None: nobody is in it.
    pool: tuple[Box, Text] | None
    # Width and height of a unit's cell.
    cell_w_pt: float
    cell_h_pt: float
    # Everything lies within (0, 0) and these.
    width_pt: float
    height_pt: float

    def cell(self, unit: str) -> Box:
        """The room that a unit's marker and label take."""
        at = self.places[unit]
        top = at.y + NODE_PT / 2
        return Box(at.x - self.cell_w_pt / 2, top - self.cell_h_pt, at.x + self.cell_w_pt / 2, top)


class Disc(NamedTuple):
    """One pack around its own middle, before it is put on the sheet."""

    alpha: str | None
    seats: dict[str, Point]
    radius: float
    caption: Text
    sectors: tuple[SectorPlace, ...]
    box: Box


def lay_out(graph: nx.DiGraph, *, aspect: float = ASPECT) -> Layout:
    """Places for every unit, pack and caption of a leadership graph.

    Args:
        aspect: width to height that the whole should come near.
    """
    lines = max((node["label"].count("\n") + 1 for _, node in graph.nodes(data=True)), default=1)
    widest = max(
        (text_width_pt(line, FONT_PT) for _, node in graph.nodes(data=True) for line in node["label"].split("\n")),
        default=0.0,
    )
    cell_w, cell_h = max(widest, NODE_PT) + GAP_PT, NODE_PT + 2 + lines * FONT_PT * 1.25 + GAP_PT
    discs = {name: _disc(graph, name, math.hypot(cell_w, cell_h)) for name in graph.graph["packs"]}
    in_pack = {unit for disc in discs.values() for unit in disc.seats} & {
        name for name, pack in graph.nodes(data="pack") if pack in discs
    }
    pool = [name for name in graph if name not in in_pack]
    corners, width, height = _shelves([disc.box for disc in discs.values()], len(pool) * cell_w * cell_h, aspect)

    # Shelves and pool are laid from the top down, then turned so that y points up.
    pool_box: Box | None = None
    pool_places: dict[str, Point] = {}
    pool_text: Text | None = None
    packs_width = width
    if pool:
        pool_text = Text(0, 0, _pool_caption(graph, pool), "left")
        area = width * height + len(pool) * cell_w * cell_h
        width = max(
            width,
            text_width_pt(pool_text.text, CAPTION_PT, bold=True) + 4 * GAP_PT,
            min(len(pool) * cell_w, math.sqrt(area * aspect)) + 2 * GAP_PT,
        )
        pool_box, pool_places, pool_text = _pool(pool, pool_text, cell_w, cell_h, width, height)
        height = -pool_box.bottom

    places = {name: Point(at.x, at.y + height) for name, at in pool_places.items()}
    empty: dict[tuple[str, str], Point] = {}
    packs: dict[str, PackPlace] = {}
    for (pack, disc), corner in zip(discs.items(), corners, strict=True):
        dx, dy = corner.x - disc.box.left + (width - packs_width) / 2, height + corner.y - disc.box.top
        for unit, at in disc.seats.items():
            if unit == disc.alpha or graph.nodes[unit]["pack"] != pack:
                empty[pack, unit] = Point(at.x + dx, at.y + dy)
            else:
                places[unit] = Point(at.x + dx, at.y + dy)
        if disc.alpha is not None:
            places[disc.alpha] = Point(dx, dy)
        packs[pack] = PackPlace(
            Point(dx, dy), disc.radius, _moved(disc.caption, dx, dy), disc.box.right - disc.box.left,
            tuple(
                SectorPlace(_moved(name, dx, dy), Point(rim.x + dx, rim.y + dy), Point(border.x + dx, border.y + dy))
                for name, rim, border in disc.sectors
            ),
        )  # fmt: skip
    pool_area = None
    if pool_box and pool_text:
        left, bottom, right, top = pool_box
        pool_area = Box(left, bottom + height, right, top + height), _moved(pool_text, 0, height)
    return Layout(
        places=places, empty_seats=empty, packs=packs, pool=pool_area,
        cell_w_pt=cell_w, cell_h_pt=cell_h, width_pt=max(width, 1.0), height_pt=max(height, 1.0),
    )  # fmt: skip


def text_width_pt(text: str, size_pt: float, *, bold: bool = False) -> float:
    """About how wide the text is drawn in DejaVu Sans, seldom less than it really is."""
    return sum(map(_char_em, text)) * size_pt * (1.12 if bold else 1.0)


@cache
def _char_em(char: str) -> float:
    if char in "il.,:;'|!()[]- ":
        return 0.40
    if char in "mwMW%@…" or unicodedata.east_asian_width(char) in "WF":
        return 1.0
    return 0.78 if char.isupper() else 0.64


def _moved(text: Text, dx: float, dy: float) -> Text:
    return text._replace(x=text.x + dx, y=text.y + dy)


# --- one pack -----------------------------------------------------------------------------------------------------


def _disc(graph: nx.DiGraph, pack: str, pitch: float) -> Disc:
    about = graph.graph["packs"][pack]
    sectors: dict[str, list[str]] = {}
    for unit in sorted(about["seats"], key=lambda unit: natural_key(graph.nodes[unit]["sub_pack"])):
        sectors.setdefault(graph.nodes[unit]["sub_pack"], []).append(unit)
    counts = [len(units) for units in sectors.values()]
    radii, angles = _rings(counts, pitch)
    rim = (radii[-1] if counts else 0.0) + pitch * 0.6
    seats: dict[str, Point] = {}
    names: list[SectorPlace] = []
    start = math.pi / 2
    if len(counts) == 1:  # nothing to mark at the top but the first seat itself
        start += math.pi / max(_fill(counts[0], angles[0], radii, pitch)[0], 1)
    for (name, units), angle in zip(sectors.items(), angles, strict=True):
        waiting = iter(units)
        for radius, count in zip(radii, _fill(len(units), angle, radii, pitch), strict=True):
            for place in range(count):
                seats[next(waiting)] = _on_circle(radius, start - angle * (place + 0.5) / count)
        text = name if len(name) <= SECTOR_CHARS else f"{name[: SECTOR_CHARS - 1]}…"
        present = sum(unit in about["members"] for unit in units)
        middle = _on_circle(rim, start - angle / 2)
        names.append(SectorPlace(Text(0, middle.y, f"{text} ({present})", ""), middle, _on_circle(rim, start)))
        start -= angle
    placed = _beside(names, rim)
    caption = Text(0, rim + CAPTION_PT * 1.4, _pack_caption(graph, pack), "center")
    if placed:
        caption = caption._replace(y=max(caption.y, max(sector.name.y for sector in placed) + CAPTION_PT * 1.6))
    return Disc(about["alpha"], seats, rim, caption, placed, _bounds(rim, caption, placed))


def _rings(counts: list[int], pitch: float) -> tuple[list[float], list[float]]:
    """Radii of the rings and angles of the sectors: the smallest disc in which each sector holds its seats."""
    if not counts:
        return [], []
    best: tuple[list[float], list[float]] | None = None
    for rings in range(1, 13):
        first = ALPHA_ROOM
        while True:
            radii = [(first + ring) * pitch for ring in range(rings)]
            if best and radii[-1] >= best[0][-1]:
                break
            least = {count: _least_angle(count, radii, pitch) for count in set(counts)}
            angles = [least[count] for count in counts]
            if sum(angles) <= 2 * math.pi:
                stretch = 2 * math.pi / sum(angles)
                best = radii, [angle * stretch for angle in angles]
                break
            first += 0.05
    assert best is not None  # the first ring alone may grow without end
    return best


def _step(radius: float, pitch: float) -> float:
    """The angle between two seats on a ring whose chord is `pitch`."""
    return 2 * math.asin(min(pitch / (2 * radius), 1.0)) * (1 + 1e-9)


def _least_angle(count: int, radii: list[float], pitch: float) -> float:
    """The smallest sector in which the rings together hold `count` seats."""
    steps = [_step(radius, pitch) for radius in radii]
    # The sector of a count always ends at a whole number of steps of one of the rings.
    candidates = sorted(places * step for step in steps for places in range(1, count + 1))
    low, high = 0, len(candidates) - 1
    while low < high:
        mid = (low + high) // 2
        if sum(int(candidates[mid] / step + 1e-6) for step in steps) >= count:
            high = mid
        else:
            low = mid + 1
    return candidates[low] * (1 + 1e-6)


def _fill(count: int, angle: float, radii: list[float], pitch: float) -> list[int]:
    """How many of a sector's seats go on each ring: what each can hold, the slack taken evenly from all."""
    room = [int(angle / _step(radius, pitch) + 1e-6) for radius in radii]
    filled = [space * count // sum(room) for space in room]
    for ring in reversed(range(len(radii))):  # rounding left a few over: the outer rings have more air
        more = min(room[ring] - filled[ring], count - sum(filled))
        filled[ring] += more
    return filled


def _on_circle(radius: float, angle: float) -> Point:
    return Point(radius * math.cos(angle), radius * math.sin(angle))


def _beside(sectors: list[SectorPlace], rim: float) -> tuple[SectorPlace, ...]:
    """Puts the names of sub-packs close around the disc, one below the other on each side."""
    line, away = SECTOR_PT * 1.5, rim + 6
    placed: dict[int, SectorPlace] = {}
    for side in (1, -1):
        own = [index for index, sector in enumerate(sectors) if (sector.rim.x >= 0) == (side > 0)]
        y = math.inf
        for index in sorted(own, key=lambda index: -sectors[index].rim.y):
            y = min(sectors[index].rim.y * away / rim, y - line)
            x = side * (math.sqrt(max(away**2 - y**2, 0)) + 3)
            text = Text(x, y, sectors[index].name.text, "left" if side > 0 else "right")
            placed[index] = sectors[index]._replace(name=text)
    return tuple(placed[index] for index in range(len(sectors)))


def _bounds(rim: float, caption: Text, sectors: tuple[SectorPlace, ...]) -> Box:
    half = text_width_pt(caption.text, CAPTION_PT, bold=True) / 2
    left, right = min(-rim, -half), max(rim, half)
    bottom, top = -rim, caption.y + CAPTION_PT * 0.7
    for sector in sectors:
        reach = text_width_pt(sector.name.text, SECTOR_PT)
        if sector.name.align == "left":
            right = max(right, sector.name.x + reach)
        else:
            left = min(left, sector.name.x - reach)
        bottom = min(bottom, sector.name.y - SECTOR_PT)
    return Box(left, bottom, right, top)


def _pack_caption(graph: nx.DiGraph, pack: str) -> str:
    about = graph.graph["packs"][pack]
    count = len(about["members"])
    who = "no members" if not count else "1 member" if count == 1 else f"{count} members"
    term = f"term {about['term']}" + ("" if about["alpha"] else " ended") if about["term"] else "no term yet"
    return f"{pack} - {term} - {who}"


# --- the sheet ----------------------------------------------------------------------------------------------------


def _shelves(boxes: list[Box], pool_area: float, aspect: float) -> tuple[list[Point], float, float]:
    """Upper left corners of the packs, in rows, and the width and height of all; y points down from 0."""
    best: tuple[float, list[Point], float, float] | None = None
    for columns in range(1, len(boxes) + 1):
        rows = [boxes[start : start + columns] for start in range(0, len(boxes), columns)]
        width = max(sum(box.right - box.left for box in row) + SPACE_PT * (len(row) - 1) for row in rows)
        corners: list[Point] = []
        y = 0.0
        for row in rows:
            high = max(box.top - box.bottom for box in row)
            x = (width - sum(box.right - box.left for box in row) - SPACE_PT * (len(row) - 1)) / 2
            for box in row:
                corners.append(Point(x, -y - (high - (box.top - box.bottom)) / 2))
                x += box.right - box.left + SPACE_PT
            y += high + SPACE_PT
        y -= SPACE_PT
        whole = y + pool_area / width
        unlike = abs(math.log(width / whole / aspect))
        if best is None or unlike < best[0]:
            best = unlike, corners, width, y
    return best[1:] if best else ([], math.sqrt(pool_area * aspect), 0.0)


def _pool(
    units: list[str], caption: Text, cell_w: float, cell_h: float, width: float, above: float
) -> tuple[Box, dict[str, Point], Text]:
    """The grid of the common pool under what lies above; y points down from 0, so all of it is negative."""
    columns = max(1, int((width - 2 * GAP_PT) / cell_w))
    rows = math.ceil(len(units) / columns)
    columns = math.ceil(len(units) / rows)  # the last row is not left nearly empty
    top = -(above + SPACE_PT) if above else 0.0
    head = CAPTION_PT * 2.2
    left = (width - columns * cell_w) / 2
    places = {
        unit: Point(
            left + (index % columns + 0.5) * cell_w,
            top - head - NODE_PT / 2 - index // columns * cell_h,
        )
        for index, unit in enumerate(units)
    }
    box = Box(0.0, top - head - rows * cell_h, width, top)
    return box, places, caption._replace(x=2 * GAP_PT, y=top - head / 2)


def _pool_caption(graph: nx.DiGraph, units: list[str]) -> str:
    names = {
        Category.WOLF: "free", Category.WEREWOLF: "at their day job", Category.WAKING: "waking",
        Category.SLEEPER: "asleep", Category.QUARANTINED: "quarantined", Category.LOST: "lost",
    }  # fmt: skip
    counts = Counter(graph.nodes[unit]["category"] for unit in units)
    return "the common pool: " + ", ".join(f"{counts[each]} {word}" for each, word in names.items() if counts[each])
