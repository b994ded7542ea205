"""A picture of a herd's run: who knows of which death when, what is sent, and who leads.

`Recorder` looks at the herd some hundred times during a run; `draw` writes what it saw as .svg or .png. No pyplot: it
keeps global state. The colours are of Okabe and Ito's palette, and nothing hangs on colour alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from wolfpack.errors import CallerError
from wolfpack.sim.herd import Herd, HerdResult

LOOKS = 240  # in a run
TRAFFIC_POINTS = 120
ROWS_MOST = 200  # deaths that get a row each; more are sampled evenly
INK, FAINT, BLUE, ORANGE, VERMILION, GREEN = "#222222", "#666666", "#0072B2", "#E69F00", "#D55E00", "#009E73"
ENDINGS = (".png", ".svg")


def picture_path(path: str | Path) -> Path:
    """The path, if a picture can be written there.

    Raises:
        CallerError: its ending is none of `ENDINGS`, or its folder does not exist.
    """
    found = Path(path)
    if found.suffix.lower() not in ENDINGS:
        raise CallerError(f"A picture can be written as {' or '.join(ENDINGS)}, not as {found.name!r}.")
    if not found.parent.is_dir():
        raise CallerError(f"There is no folder {str(found.parent)!r} to write the picture to.")
    return found


class Recorder:
    """What was seen of a herd, look by look."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.known: list[dict[tuple[str, int], float]] = []  # share of the living that know, of each death
        self.packets: list[int] = []
        self.bytes: list[int] = []
        self.wrong: list[int] = []
        self.digests: list[int] = []
        self.crowned: list[tuple[float, str]] = []

    def look(self, herd: Herd) -> None:
        self.times.append(herd.kernel.now)
        watch = herd.watch
        known = {key: death.count / max(1, herd.living) for key, death in watch.open.items()}
        self.known.append({**known, **{key: 1.0 for key, death in watch.deaths.items() if death.all_us is not None}})
        self.packets.append(herd.packets + herd.syncs)
        self.bytes.append(herd.bytes)
        self.wrong.append(herd.watch.false_positives)
        self.digests.append(len({unit.machine.view.digest for unit in herd.alive}))
        if herd.office is not None:
            self.crowned = [(at, unit) for at, unit, _, _ in herd.office.crowned]


def draw(seen: Recorder, result: HerdResult, path: str | Path, *, size: tuple[float, float] = (9.0, 7.0)) -> Path:
    """Draws the run.

    Args:
        seen: what was recorded while it ran.
        result: what came of it.
        path: where to, ending in .png or .svg.
        size: width and height in inches.

    Raises:
        CallerError: no picture can be written there.
    """
    target = picture_path(path)
    deaths = sorted({key for known in seen.known for key in known}, key=lambda key: _died_at(seen, key))
    figure = Figure(figsize=size if deaths else (size[0], size[1] * 0.6), layout="constrained")
    ratios = [3.2 if deaths else 0.01, 1.4, 1.4]
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=ratios)
    if deaths:
        _draw_deaths(figure, top, seen, deaths)
    else:
        top.set_visible(False)
    _draw_views(middle, seen)
    _draw_traffic(bottom, seen, result.units)
    _draw_alphas((top, middle) if deaths else (middle,), seen)
    bottom.set_xlabel("virtual seconds", color=INK)
    bottom.set_xlim(0.0, max(seen.times[-1], 1e-9))
    figure.suptitle(_title(result), fontsize=10.5, color=INK, ha="left", x=0.012)
    canvas = (FigureCanvasSVG if target.suffix.lower() == ".svg" else FigureCanvasAgg)(figure)
    if isinstance(canvas, FigureCanvasSVG):
        canvas.print_svg(str(target))
    else:
        figure.set_dpi(120)
        canvas.print_png(str(target))
    return target


def _title(result: HerdResult) -> str:
    lines = [f"{result.units} units, profile {result.profile}, seed {result.seed}"]
    facts = [f"{result.messages_per_unit_s:.1f} messages a unit and second"]
    if result.crashed:
        first, known = result.first_dead_s["p50"], result.all_know_s["p50"]
        facts.append(f"{result.crashed} crashed")
        if first is not None:
            facts.append(f"first noticed after {first:.1f} s")
        if known is not None:
            facts.append(f"known to all after {known:.1f} s (medians)")
    facts.append(f"{result.violations} violations")
    return "\n".join([*lines, ", ".join(facts)])


def _died_at(seen: Recorder, key: tuple[str, int]) -> tuple[float, str]:
    return next(at for at, known in zip(seen.times, seen.known, strict=True) if key in known), key[0]


def _shares(seen: Recorder, key: tuple[str, int]) -> list[float]:
    """Look by look, the share of the living that knew of this death; nothing before it, nor when its next boot came."""
    return [known.get(key, float("nan")) for known in seen.known]


def _draw_deaths(figure: Figure, axes: Axes, seen: Recorder, deaths: list[tuple[str, int]]) -> None:
    """A row for each death: how many of the living know of it."""
    step = max(1, -(-len(deaths) // ROWS_MOST))
    shown = deaths[::step]
    rows = [_shares(seen, key) for key in shown]
    image = axes.imshow(
        rows, aspect="auto", interpolation="nearest", cmap="cividis", vmin=0.0, vmax=1.0, origin="upper",
        extent=(0.0, seen.times[-1], len(rows), 0),
    )  # fmt: skip
    axes.set_yticks([])
    each = f"each row one of {len(deaths)} deaths" if step == 1 else f"{len(rows)} of {len(deaths)} deaths, a row each"
    axes.set_ylabel(each, color=INK, fontsize=9)
    bar = figure.colorbar(image, ax=axes, pad=0.01, aspect=18)
    bar.set_label("share of the living that know", fontsize=8.5, color=INK)
    bar.ax.tick_params(labelsize=8)
    _plain(axes)


def _draw_views(axes: Axes, seen: Recorder) -> None:
    axes.step(seen.times, seen.digests, where="post", color=BLUE, linewidth=1.4, label="different views")
    axes.step(seen.times, seen.wrong, where="post", color=VERMILION, linewidth=1.4, ls="--", label="false accusations")
    axes.set_yscale("symlog", linthresh=1)
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.set_ylim(bottom=0)
    axes.set_ylabel("count", color=INK, fontsize=9)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), fontsize=8, frameon=False, ncols=2, borderpad=0.1)
    _plain(axes)


def _draw_traffic(axes: Axes, seen: Recorder, units: int) -> None:
    times, rates, sizes = [], [], []
    window_s = max(1.0, seen.times[-1] / TRAFFIC_POINTS)
    before = 0
    for at in range(1, len(seen.times)):
        passed = seen.times[at] - seen.times[before]
        if passed < window_s - 1e-6:
            continue
        times.append(seen.times[at])
        rates.append((seen.packets[at] - seen.packets[before]) / passed / units)
        sizes.append((seen.bytes[at] - seen.bytes[before]) / passed / units / 1024)
        before = at
    axes.plot(times, rates, color=GREEN, linewidth=1.4, label="messages a unit and second")
    axes.plot(times, sizes, color=ORANGE, linewidth=1.4, ls="--", label="KiB a unit and second")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("sent", color=INK, fontsize=9)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), fontsize=8, frameon=False, ncols=2, borderpad=0.1)
    _plain(axes)


def _draw_alphas(several: tuple[Axes, ...], seen: Recorder) -> None:
    for axes in several:
        for at, _ in seen.crowned:
            axes.axvline(at, color=FAINT, linewidth=0.8, ls=":")
    top = several[0]
    last = -1e9
    for at, unit in seen.crowned:
        if at - last < 0.06 * seen.times[-1]:
            continue  # names would lie upon each other
        last = at
        top.annotate(
            f"{unit} leads", (at, 1.0), xycoords=("data", "axes fraction"), xytext=(2, 2), textcoords="offset points",
            fontsize=7.5, color=FAINT, annotation_clip=False,
        )  # fmt: skip


def _plain(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    marks: dict[str, Any] = {"labelsize": 8.5, "colors": FAINT}
    axes.tick_params(**marks)
