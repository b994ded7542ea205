"""Draws a leadership graph with matplotlib, as SVG or PNG.

One set of axes covers the sheet, and its units are points: places, markers and fonts of the layout keep their
proportions. Without a size the sheet is as large as its labels need (8 pt); with one the drawing shrinks or grows to
fit, the title and the key keep a font one can read, and labels that would come out under `LABEL_MIN_PT` are
left out (alphas keep theirs).

Nothing hangs on colour alone: each category has its own marker, in a colour of Okabe and Ito's palette
("Color Universal Design", 2008), which people with any kind of colour vision can tell apart.

No pyplot: it keeps global state. The few of matplotlib's global settings that have no argument are set under a lock
and put back, so `render` may be called from several threads, whatever style the host program uses. The same graph
gives the same bytes of SVG: ids are salted with a constant, and the date is the graph's own. Text stays text
there, so that it can be searched and read aloud; the full name of a unit is the id of its marker (`unit-grey-2`).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import matplotlib as mpl
import networkx as nx
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

from viz.graph import Category
from viz.key import LOOKS, TITLE_MIN_PT, Look, cut_to, entry_width, flow, font, head, key_entries
from viz.layout import ALPHA_PT, CAPTION_PT, FONT_PT, NODE_PT, SECTOR_PT, Point, Text, lay_out
from wolfpack import Nature

PNG_DPI = 110
MARGIN_PT = 16.0
TITLE_PT = 13.0
KEY_PT = 8.5
LABEL_MIN_PT = 4.5
# The sheet without a size is at least this large; a drawing that is smaller grows, at most so much.
LEAST_W_PT, LEAST_H_PT, GROWTH_MAX = 460.0, 230.0, 1.7

INK, FAINT, LINE, PAPER, GROUND = "#222222", "#666666", "#b5b5b5", "#ffffff", "#f4f4f2"
SUCCESSION = "#D55E00"


# matplotlib's settings that change our bytes and cannot be given as arguments.
_SETTINGS = {
    "svg.hashsalt": "wolfpack", "svg.fonttype": "none", "svg.id": None, "path.sketch": None, "path.effects": [],
    "path.simplify": True, "path.simplify_threshold": 1 / 9, "path.snap": True, "font.family": ["DejaVu Sans"],
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"], "figure.dpi": 100.0,
    "lines.scale_dashes": True, "lines.antialiased": True, "agg.path.chunksize": 0,
    "text.hinting": "force_autohint", "text.antialiased": True, "text.usetex": False,
}  # fmt: skip
_lock = threading.Lock()


def render(graph: nx.DiGraph, path: str | Path, *, size: tuple[float, float] | None = None) -> Path:
    """Draws the graph into a file, which appears whole or not at all.

    Args:
        graph: of `leadership_graph`.
        path: ends in .svg or .png; its folder is made if it is missing.
        size: width and height in inches; None: as large as the labels need.

    Returns:
        The path that was written.

    Raises:
        ValueError: another ending, or a size that is not positive.
        OSError: the file cannot be written.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (".svg", ".png"):
        raise ValueError(
            f"A picture can be written as .svg or .png, not as {path.name!r}. Choose one of these endings."
        )
    if size is not None and not (size[0] > 0 and size[1] > 0):
        raise ValueError(f"The size of a picture is a width and a height in inches, both above 0, not {size!r}.")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}{suffix}")
    try:
        with temporary.open("xb") as file, _settings():
            figure = _draw(graph, size=size)
            if suffix == ".svg":
                at = graph.graph["at"]
                date = datetime.fromtimestamp(at, UTC).isoformat() if at is not None else None
                FigureCanvasSVG(figure).print_svg(
                    file, metadata={"Date": date, "Creator": "Wolf Pack", "Title": graph.graph["title"]}
                )
            else:
                figure.set_dpi(PNG_DPI)
                FigureCanvasAgg(figure).print_png(
                    file, metadata={"Software": "Wolf Pack", "Title": graph.graph["title"]}
                )
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


@contextmanager
def _settings() -> Iterator[None]:
    with _lock:
        before = {key: mpl.rcParams[key] for key in _SETTINGS}
        try:
            mpl.rcParams.update(_SETTINGS)
            yield
        finally:
            mpl.rcParams.update(before)


def _draw(graph: nx.DiGraph, *, size: tuple[float, float] | None) -> Figure:
    sheet = _Sheet(graph, size)
    sheet.draw_head_and_key()
    sheet.draw_packs()
    sheet.draw_pool()
    sheet.draw_edges()
    for unit in graph:
        sheet.draw_unit(unit)
    return sheet.figure


class _Sheet:
    """A figure being drawn: the head on top, the key at the bottom, and the layout scaled into what is between."""

    def __init__(self, graph: nx.DiGraph, size: tuple[float, float] | None) -> None:
        self.graph = graph
        entries = key_entries(graph)
        if size is None:
            self.margin, self.key_pt = MARGIN_PT, KEY_PT
            self.layout = lay_out(graph)
            fit = min(LEAST_W_PT / self.layout.width_pt, LEAST_H_PT / self.layout.height_pt)
            self.scale = min(GROWTH_MAX, max(1.0, fit))
            self.width = max(LEAST_W_PT, self.layout.width_pt * self.scale) + 2 * self.margin
            title_pt = TITLE_PT
        else:
            self.width, self.height = size[0] * 72, size[1] * 72
            self.margin = min(MARGIN_PT, self.width * 0.03)
            self.key_pt = min(KEY_PT, max(5.5, self.width / 60))
            title_pt = min(TITLE_PT * 1.3, max(TITLE_MIN_PT, self.width / 40))
        inner = self.width - 2 * self.margin
        self.head = head(graph, inner, title_pt)
        self.key = flow(entries, self.key_pt, inner)
        if size is None:
            self.height = self.layout.height_pt * self.scale + self._around_pt()
        else:
            if self.height < 1.8 * self._around_pt():
                self.key = []
            if self.height < 1.8 * self._around_pt():
                self.head = [line for line in self.head if line[2]]
            room = max(self.height - self._around_pt(), self.height * 0.3)
            self.layout = lay_out(graph, aspect=inner / room)
            self.scale = min(2.5, inner / self.layout.width_pt, room / self.layout.height_pt)
        layout = self.layout
        self.head_h, self.key_h = self._head_pt(), self._key_pt()
        middle_y = (self.key_h + self.height - self.head_h) / 2
        self.left = (self.width - layout.width_pt * self.scale) / 2
        self.bottom = middle_y - layout.height_pt * self.scale / 2
        self.figure = Figure(
            figsize=(self.width / 72, self.height / 72), facecolor=PAPER, edgecolor=PAPER, frameon=True
        )
        self.axes: Axes = self.figure.add_axes((0, 0, 1, 1), frameon=False)
        self.axes.set_axis_off()
        self.axes.set_xlim(0, self.width)
        self.axes.set_ylim(0, self.height)

    def _head_pt(self) -> float:
        return sum(pt * 1.5 for _, pt, _ in self.head)

    def _key_pt(self) -> float:
        return len(self.key) * self.key_pt * 1.7

    def _around_pt(self) -> float:
        """The height that the drawing cannot have."""
        return self._head_pt() + self._key_pt() + self.margin * (3.5 if self.key else 2.7)

    # --- from the layout to the sheet

    def _at(self, point: Point | Text) -> tuple[float, float]:
        return self.left + point.x * self.scale, self.bottom + point.y * self.scale

    def _text(
        self, x: float, y: float, text: str, pt: float, align: str, *,
        va: str = "center", bold: bool = False, colour: str = INK, box: bool = False, z: float = 5,
    ) -> None:  # fmt: skip
        made = self.axes.text(
            x, y, text, fontproperties=font(pt, bold=bold), ha=align, va=va, color=colour, zorder=z,
            parse_math=False, linespacing=1.0, clip_on=False,
        )  # fmt: skip
        if box:
            made.set_bbox({"boxstyle": "square,pad=0.05", "facecolor": GROUND, "edgecolor": "none", "alpha": 0.8})

    def _marker(self, x: float, y: float, look: Look, pt: float, *, gid: str | None = None, z: float = 4) -> None:
        line = Line2D(
            [x], [y], linestyle="none", marker=look.marker, markersize=pt * look.scale, color=look.fill,
            markerfacecolor=look.fill, markeredgecolor=INK, markeredgewidth=min(0.9, pt / 14), zorder=z,
            fillstyle="full", clip_on=False,
        )  # fmt: skip
        line.set_gid(gid)
        self.axes.add_artist(line)

    def _line(self, ends: tuple[tuple[float, float], tuple[float, float]], colour: str, pt: float, *, z: float) -> None:
        (x0, y0), (x1, y1) = ends
        self.axes.add_artist(
            Line2D([x0, x1], [y0, y1], color=colour, linewidth=pt, linestyle="-", marker="none", zorder=z)
        )

    # --- the parts of a picture

    def draw_head_and_key(self) -> None:
        y = self.height - self.margin
        for line, pt, title in self.head:
            self._text(self.width / 2, y - pt * 0.6, line, pt, "center", bold=title, colour=INK if title else FAINT)
            y -= pt * 1.5
        y = self.margin + self.key_h
        for row in self.key:
            x = (self.width - sum(entry_width(name, self.key_pt) for _, name in row)) / 2
            y -= self.key_pt * 1.7
            for look, name in row:
                middle = y + self.key_pt * 0.85
                self._key_sign(x + self.key_pt, middle, look)
                self._text(x + self.key_pt * 2.2, middle, name, self.key_pt, "left")
                x += entry_width(name, self.key_pt)

    def _key_sign(self, x: float, y: float, look: Look | str) -> None:
        half = self.key_pt * 0.9
        match look:
            case Look():
                self._marker(x, y, look, self.key_pt * (1.5 if look.marker == "*" else 1.1))
            case "leads":
                self._line(((x - half, y), (x + half, y)), LINE, 1.2, z=4)
            case "succeeds":
                self._arrow((x - half, y), (x + half, y), self.key_pt, bend=0.0, trim=0.0)
            case "nature":
                self._marker(x, y, LOOKS[Category.WEREWOLF], self.key_pt * 0.7)
            case _:
                self._empty_seat(x, y, self.key_pt)

    def draw_packs(self) -> None:
        for name, pack in self.layout.packs.items():
            middle = self._at(pack.middle)
            radius = pack.radius * self.scale
            self.axes.add_patch(
                Circle(middle, radius, facecolor=GROUND, edgecolor=LINE, linewidth=0.8, linestyle="-", zorder=0)
            )
            self._caption(pack.caption, pack.width_pt)
            hole = ALPHA_PT * 0.9 * self.scale / max(radius, 1.0)
            for sector in pack.sectors:
                if len(pack.sectors) > 1:
                    rim_x, rim_y = self._at(sector.border)
                    inner = middle[0] + (rim_x - middle[0]) * hole, middle[1] + (rim_y - middle[1]) * hole
                    self._line((inner, (rim_x, rim_y)), PAPER, 3.0 * self.scale, z=0.5)
                self._line((self._at(sector.rim), self._at(sector.name)), LINE, 0.5, z=0.4)
                pt = SECTOR_PT * self.scale
                if pt >= LABEL_MIN_PT:
                    self._text(*self._at(sector.name), sector.name.text, pt, sector.name.align, colour=FAINT)
            for (pack_name, _), seat in self.layout.empty_seats.items():
                if pack_name == name:
                    self._empty_seat(*self._at(seat), NODE_PT * self.scale)

    def draw_pool(self) -> None:
        if self.layout.pool is None:
            return
        box, caption = self.layout.pool
        x, y = self._at(Point(box.left, box.bottom))
        self.axes.add_patch(
            FancyBboxPatch(
                (x, y), (box.right - box.left) * self.scale, (box.top - box.bottom) * self.scale,
                boxstyle="round,pad=0,rounding_size=6", facecolor=GROUND, edgecolor=LINE, linewidth=0.8, zorder=0,
            )
        )  # fmt: skip
        self._caption(caption, box.right - box.left - CAPTION_PT)

    def draw_edges(self) -> None:
        crowd = max((len(pack["members"]) for pack in self.graph.graph["packs"].values()), default=0)
        spoke = max(0.3, min(0.9, 0.9 * self.scale) * (0.6 if crowd > 50 else 1.0))
        leads = [
            (self._at(self.layout.places[source]), self._at(self.layout.places[target]))
            for source, target, led in self.graph.edges(data="leads")
            if led
        ]
        self.axes.add_artist(LineCollection(leads, colors=LINE, linewidths=spoke, linestyles="-", zorder=1))
        for about in self.graph.graph["packs"].values():
            source, target = about["previous"], about["alpha"]
            if source != target and source in self.layout.places and target in self.layout.places:
                self._arrow(
                    self._at(self.layout.places[source]), self._at(self.layout.places[target]),
                    NODE_PT * self.scale, bend=0.18, trim=ALPHA_PT * 0.45 * self.scale,
                )  # fmt: skip

    def draw_unit(self, unit: str) -> None:
        node = self.graph.nodes[unit]
        look = LOOKS[node["category"]]
        x, y = self._at(self.layout.places[unit])
        alpha = node["category"] is Category.ALPHA
        size = (ALPHA_PT if alpha else NODE_PT) * self.scale
        self._marker(x, y, look, size, gid=f"unit-{unit}", z=4.5 if alpha else 4)
        if node["nature"] is Nature.WEREWOLF and node["category"] is not Category.WEREWOLF:
            shift = size * (0.36 if alpha else 0.5)
            self._marker(x + shift, y + shift, LOOKS[Category.WEREWOLF], NODE_PT * 0.5 * self.scale, z=4.6)
        pt = FONT_PT * self.scale
        if alpha and self.scale > 0.3:
            pt = max(pt * 1.1, 5.5)
        if pt >= LABEL_MIN_PT:
            below = size * 0.42 if alpha else size / 2 + 2 * self.scale
            self._text(x, y - below, node["label"], pt, "center", va="top", bold=alpha, box=True)

    def _caption(self, caption: Text, width_pt: float) -> None:
        pt = max(CAPTION_PT * min(self.scale, 1.4), 5.0)
        text = cut_to(caption.text, pt, width_pt * self.scale, bold=True)
        self._text(*self._at(caption), text, pt, caption.align, bold=True)

    def _empty_seat(self, x: float, y: float, pt: float) -> None:
        self.axes.add_artist(
            Line2D(
                [x], [y], linestyle="none", marker="o", markersize=pt * 0.6, markerfacecolor="none",
                markeredgecolor=LINE, markeredgewidth=0.7, zorder=2, fillstyle="full",
            )
        )  # fmt: skip

    def _arrow(
        self, start: tuple[float, float], end: tuple[float, float], pt: float, *, bend: float, trim: float
    ) -> None:
        self.axes.add_patch(
            FancyArrowPatch(
                start, end, arrowstyle="-|>", mutation_scale=max(pt * 0.7, 4.0), color=SUCCESSION,
                linewidth=max(0.7, min(pt / 10, 1.6)), linestyle=(0, (4, 2)),
                connectionstyle=f"arc3,rad={bend}", shrinkA=trim * 0.6, shrinkB=trim, zorder=3,
            )
        )  # fmt: skip
