"""A picture of a herd's run: who knows of which end of a unit when, what is sent, and who leads.

`Recorder` looks at the herd some hundred times during a run; `draw` writes what it saw as .svg or .png. Where a share
of the herd crashes and nothing else happens, time is shown from just before the crash until all views are equal again.
No pyplot: it keeps global state. The colours are of Okabe and Ito's palette, and nothing hangs on colour alone.
"""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Annotation
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from wolfpack.errors import CallerError
from wolfpack.sim.herd import CRASH_AT, Herd, HerdPlan, HerdResult
from wolfpack.sim.kernel import US

LOOKS, CLOSE_LOOKS = 240, 1200  # in a run; closer where only a part of it is shown
TRAFFIC_POINTS = 120
ALPHAS_MOST = 30  # changes of alpha with a line each; more are short marks above, and counted
TITLE_CHARACTERS = 11.5  # of a line of the title, for each inch
ROWS_MOST = 200  # ends of units that get a row each; more are sampled evenly
BEFORE, AFTER, MARGIN_S = 0.15, 0.25, 0.5  # margins around a crash: parts of the time until views are equal, at least
INK, FAINT, BLUE, VERMILION, GREEN = "#222222", "#666666", "#0072B2", "#D55E00", "#009E73"
COLOURS = "cividis"
ENDINGS = (".png", ".svg")


def picture_path(path: str | Path) -> Path:
    """The path, if a picture can be written there.

    Raises:
        CallerError: its ending is none of `ENDINGS`, or nothing can be written in its folder.
    """
    found = Path(path)
    if found.suffix.lower() not in ENDINGS:
        raise CallerError(f"A picture can be written as {' or '.join(ENDINGS)}, not as {found.name!r}.")
    if not found.parent.is_dir():
        raise CallerError(f"There is no folder {str(found.parent)!r} to write the picture to.")
    if found.is_dir() or not os.access(found if found.exists() else found.parent, os.W_OK):
        raise CallerError(f"The picture {str(found)!r} cannot be written; name a file in a folder of yours.")
    return found


def looks(plan: HerdPlan) -> int:
    """How often to look at a herd during a run of this plan."""
    return CLOSE_LOOKS if plan.crash and not plan.faults else LOOKS


class Recorder:
    """What was seen of a herd, look by look."""

    def __init__(self) -> None:
        self.plan = HerdPlan()
        self.period_s = 1.0
        self.times: list[float] = []
        self.known: list[dict[tuple[str, int], float]] = []  # share of the living that know, of what not all know yet
        self.ends: dict[tuple[str, int], tuple[float, float | None, bool]] = {}  # when, when all knew, with a goodbye
        self.packets: list[int] = []
        self.wrong: list[int] = []
        self.digests: list[int] = []
        self.crowned: list[tuple[float, str]] = []

    def look(self, herd: Herd) -> None:
        watch = herd.watch
        self.plan, self.period_s = herd.plan, herd.timing.probe_s
        self.times.append(herd.kernel.now)
        self.known.append({key: death.count / max(1, herd.living) for key, death in watch.open.items()})
        self.ends = {
            key: (death.at_us / US, None if death.all_us is None else death.all_us / US, death.left)
            for key, death in watch.deaths.items()
        }
        self.packets.append(herd.packets + herd.syncs)
        self.wrong.append(herd.watch.false_positives)
        self.digests.append(len({unit.machine.view.digest for unit in herd.alive}))
        if herd.office is not None:
            self.crowned = [(at, unit) for at, unit, _, _ in herd.office.crowned]

    @property
    def crash_s(self) -> float | None:
        """When a share of all crashed at once."""
        return self.plan.seconds * CRASH_AT if self.plan.crash else None

    def shares(self, key: tuple[str, int]) -> list[float]:
        """Look by look, the share of the living that knew of this end; nothing before it, nor of a next boot."""
        _, all_s, _ = self.ends[key]
        return [
            1.0 if all_s is not None and at >= all_s else known.get(key, float("nan"))
            for at, known in zip(self.times, self.known, strict=True)
        ]

    def window(self, equal_s: float | None) -> tuple[float, float]:
        """From when to when the picture goes."""
        end = max(self.times[-1], 1e-9)
        if self.crash_s is None or self.plan.faults or equal_s is None:
            return 0.0, end
        crowned = [at - self.crash_s for at, _ in self.crowned if at > self.crash_s]
        passed = max(equal_s, *crowned[:1], 0.0)
        start = max(0.0, self.crash_s - max(BEFORE * passed, MARGIN_S))
        return start, min(end, self.crash_s + passed + max(AFTER * passed, MARGIN_S))


def draw(seen: Recorder, result: HerdResult, path: str | Path, *, size: tuple[float, float] = (9.0, 7.0)) -> Path:
    """Draws the run.

    Args:
        seen: what was recorded while it ran.
        result: what came of it.
        path: where to, ending in .png or .svg.
        size: width and height in inches.

    Raises:
        CallerError: no picture can be written there, or no more: the disk is full.
    """
    target = picture_path(path)
    figure = compose(seen, result, size=size)
    canvas = (FigureCanvasSVG if target.suffix.lower() == ".svg" else FigureCanvasAgg)(figure)
    try:
        if isinstance(canvas, FigureCanvasSVG):
            canvas.print_svg(str(target))
        else:
            canvas.print_png(str(target))
    except OSError as exc:
        target.unlink(missing_ok=True)  # half of a picture
        raise CallerError(f"The picture {str(target)!r} could not be written: {exc.strerror}.") from exc
    return target


def compose(seen: Recorder, result: HerdResult, *, size: tuple[float, float] = (9.0, 7.0)) -> Figure:
    """The picture before it is written."""
    ends = sorted(seen.ends, key=lambda key: (seen.ends[key][0], key[0]))
    figure = Figure(figsize=size if ends else (size[0], size[1] * 0.6), layout="constrained", dpi=120)
    FigureCanvasAgg(figure)  # labels are measured
    ratios = [3.2 if ends else 0.01, 1.4, 1.4]
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=ratios)
    if ends:
        _draw_ends(figure, top, seen, ends)
    else:
        top.set_visible(False)
    window = seen.window(result.views_equal_s)
    _draw_views(middle, seen, window)
    _draw_traffic(bottom, seen, result.units, window)
    bottom.set_xlabel("virtual seconds", color=INK)
    bottom.set_xlim(*window)
    several = (top, middle, bottom) if ends else (middle, bottom)
    _draw_crash(several, seen)
    labels = _draw_alphas(several, seen, window)
    title = _title(result, seen, round(size[0] * TITLE_CHARACTERS))
    figure.suptitle(title, fontsize=10.5, color=INK, ha="left", x=0.012)
    _thin_out(figure, several[0], labels)
    return figure


def _title(result: HerdResult, seen: Recorder, width: int) -> str:
    goodbyes = sum(left for _, _, left in seen.ends.values())
    crashes = len(seen.ends) - goodbyes
    facts = [f"{result.messages_per_unit_s:.1f} messages a unit and second"]
    if crashes:
        first, known = result.first_dead_s["p50"], result.all_know_s["p50"]
        facts.append(f"{crashes:,} crash{'es' if crashes > 1 else ''}")
        if first is not None:
            facts.append(f"first noticed after {first:.1f} s")
        if known is not None:
            facts.append(f"known to all after {known:.1f} s (medians)")
    if goodbyes:
        facts.append(f"{goodbyes:,} goodbye{'s' if goodbyes > 1 else ''}")
    if result.violations:
        facts.append(f"{result.violations} VIOLATIONS")
    head = f"{result.units:,} units, profile {result.profile}, seed {result.seed}"
    return "\n".join([head, *textwrap.wrap(", ".join(facts), width)])


def _draw_ends(figure: Figure, axes: Axes, seen: Recorder, ends: list[tuple[str, int]]) -> None:
    """A row for each end of a unit: how many of the living know of it."""
    step = max(1, -(-len(ends) // ROWS_MOST))
    rows = [seen.shares(key) for key in ends[::step]]
    half = seen.times[-1] / max(1, len(seen.times) - 1) / 2  # a look stands in the middle of its cell
    image = axes.imshow(
        rows, aspect="auto", interpolation="nearest", cmap=COLOURS, vmin=0.0, vmax=1.0, origin="upper",
        extent=(-half, seen.times[-1] + half, len(rows), 0),
    )  # fmt: skip
    axes.set_yticks([])
    crashes = sum(not seen.ends[key][2] for key in ends)
    what = "crashes" if crashes == len(ends) else "crashes\nand goodbyes" if crashes else "goodbyes"
    each = f"{len(ends):,} {what}, a row each" if step == 1 else f"{len(rows)} of {len(ends):,} {what}, a row each"
    axes.set_ylabel(f"1 {what[:-2] if crashes else what[:-1]}" if len(ends) == 1 else each, color=INK, fontsize=9)
    bar = figure.colorbar(image, ax=axes, pad=0.01, aspect=18)
    bar.set_label("share of the living that know", fontsize=8.5, color=INK)
    bar.ax.tick_params(labelsize=8)
    colours = matplotlib.colormaps[COLOURS]
    patches = [
        Patch(facecolor="white", edgecolor=FAINT, label="it lives, or lives again"),
        Patch(facecolor=colours(0.0), label="it is dead and nobody knows"),
        Patch(facecolor=colours(1.0), label="all know"),
    ]
    axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(0.0, -0.01), fontsize=8, frameon=False, ncols=3)
    _plain(axes)


def _draw_views(axes: Axes, seen: Recorder, window: tuple[float, float]) -> None:
    axes.step(seen.times, seen.digests, where="post", color=BLUE, linewidth=1.4, label="different views")
    axes.step(seen.times, seen.wrong, where="post", color=VERMILION, linewidth=1.4, ls="--", label="false accusations")
    shown = [at for at, time in enumerate(seen.times) if window[0] <= time <= window[1]]
    most = max((max(seen.digests[at], seen.wrong[at]) for at in shown), default=1)
    if most > 20:
        axes.set_yscale("symlog", linthresh=1)
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.set_ylim(0, most * 1.5)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
        axes.set_ylim(-0.05 * most, most * 1.15)  # a line at 0 is seen
    axes.set_ylabel("count", color=INK, fontsize=9)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), fontsize=8, frameon=False, ncols=2, borderpad=0.1)
    _plain(axes)


def _draw_traffic(axes: Axes, seen: Recorder, units: int, window: tuple[float, float]) -> None:
    times, rates = [], []
    step_s = max(seen.period_s, (window[1] - window[0]) / TRAFFIC_POINTS)
    before = 0
    for at in range(1, len(seen.times)):
        passed = seen.times[at] - seen.times[before]
        if passed < step_s - 1e-6:
            continue
        times.append(seen.times[at])
        rates.append((seen.packets[at] - seen.packets[before]) / passed / units)
        before = at
    axes.plot(times, rates, color=GREEN, linewidth=1.4, label="messages a unit and second")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("sent", color=INK, fontsize=9)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), fontsize=8, frameon=False, borderpad=0.1)
    _plain(axes)


def _draw_crash(several: tuple[Axes, ...], seen: Recorder) -> None:
    if seen.crash_s is None:
        return
    for axes in several:
        axes.axvline(seen.crash_s, color=VERMILION, linewidth=1.2)
    _label(several[0], seen.crash_s, "the crash", row=1).set_color(VERMILION)


def _draw_alphas(several: tuple[Axes, ...], seen: Recorder, window: tuple[float, float]) -> list[Annotation]:
    """A line at each change of alpha; returns a label for each one, and for the one who led before."""
    start, end = window
    before = [unit for at, unit in seen.crowned if at < start]
    labels = [_label(several[0], start, f"{before[-1]} leads", row=0)] if before else []
    shown = [(at, unit) for at, unit in seen.crowned if start <= at <= end]
    if len(shown) > ALPHAS_MOST:
        for at, _ in shown:
            several[0].plot((at, at), (1.0, 1.03), transform=several[0].get_xaxis_transform(), color=FAINT,
                            linewidth=0.8, clip_on=False)  # fmt: skip
        label = _label(several[0], start, f"{len(shown)} changes of alpha, a mark each", row=0)
        label.set_position((2, 10))
        return [label]
    for at, unit in shown:
        for axes in several:
            axes.axvline(at, color=FAINT, linewidth=0.8, ls=":")
        labels.append(_label(several[0], at, f"{unit} leads", row=0))
    return labels


def _label(axes: Axes, at: float, text: str, *, row: int) -> Annotation:
    return axes.annotate(
        text, (at, 1.0), xycoords=("data", "axes fraction"), xytext=(2, 2 + 10 * row), textcoords="offset points",
        fontsize=7.5, color=FAINT, annotation_clip=False,
    )  # fmt: skip


def _thin_out(figure: Figure, axes: Axes, labels: list[Annotation]) -> None:
    """Hides labels that would lie upon another one; one that would stand out on the right stands left of its line."""
    figure.draw_without_rendering()
    last = float("-inf")
    for label in labels:
        if label.get_window_extent().x1 > axes.bbox.x1:
            label.set(horizontalalignment="right", position=(-2, 2))
        box = label.get_window_extent()
        if box.x0 < last:
            label.set_visible(False)
        else:
            last = box.x1 + 3


def _plain(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    marks: dict[str, Any] = {"labelsize": 8.5, "colors": FAINT}
    axes.tick_params(**marks)
