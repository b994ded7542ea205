"""What `wolfpack sim` says to people: short reports of herds, dens, failovers and Lifeguard's experiment."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from wolfpack.cli.render import counted

if TYPE_CHECKING:
    from wolfpack.sim.den_run import DenResult
    from wolfpack.sim.failover import FailoverResult
    from wolfpack.sim.herd import Herd, HerdResult
    from wolfpack.sim.lifeguard import LifeguardResult
    from wolfpack.sim.sweep import SweepResult

STORY_LINES = 10
PROGRESS_S = 5.0
TOLD = 1000  # looks at the time in a run of a herd
TOLD_S = 1.0


def report_herd(result: HerdResult) -> None:
    speed = result.virtual_s / max(result.wall_s, 1e-9)
    rows = [
        ("herd", f"{result.units} units, profile {result.profile}, seed {result.seed}"),
        ("time", f"{result.virtual_s:g} virtual seconds in {result.wall_s:.1f} s ({_speed(speed)})"),
        (
            "messages",
            f"{result.messages:,} ({result.messages_per_unit_s:.2f} a unit and second, "
            f"{result.bytes / max(result.messages, 1):.0f} bytes each), and {result.howls:,} howls of the election",
        ),
        ("alpha", counted(result.alpha_changes, "change")),
    ]
    if result.crashed:
        rows += [
            ("crashes", f"{result.crashed:,}"),
            ("first DEAD", _spread(result.first_dead_s)),
            ("all know", f"{_spread(result.all_know_s)}{_rounds(result.rounds)}"),
        ]
    if result.views_equal_s is not None:
        rows.append(("views equal", f"after {result.views_equal_s:.2f} s"))
    if result.load_age_s["p50"] is not None:
        p50, p99 = result.load_age_s["p50"], result.load_age_s["p99"]
        rows.append(("known load", f"{p50:.1f} s old (median), {p99:.1f} s (p99)"))
    rows += [
        ("accusations", f"{result.false_positives} false ({result.healthy_false_positives} among healthy units)"),
        ("at rest", _rest(result.calm_s)),
        ("promises", "all kept" if not result.violations else counted(result.violations, "violation")),
        ("trace", result.trace_hash),
    ]
    for name, text in rows:
        click.echo(f"{name:<12} {text}")
    for line in result.story[:STORY_LINES]:
        click.echo(f"  {line}")


def _spread(values: Mapping[str, float | None]) -> str:
    if values["p50"] is None:
        return "not within the run"
    return f"after {values['p50']:.2f} s (median), {values['p99']:.2f} s (p99)"


def _speed(speed: float) -> str:
    return f"{speed:,.0f} x real time" if speed >= 10 else f"{speed:.1f} x real time"


def _rest(calm_s: float | None) -> str:
    return "not in time" if calm_s is None else f"{calm_s:.1f} s after the end of all faults"


def _rounds(rounds: float | None) -> str:
    return "" if rounds is None else f", {rounds:.1f} protocol periods at most"


def report_den(result: DenResult) -> None:
    """One line on a den beside its herd; more where it broke a promise."""
    click.echo(
        f"{'den':<12} {counted(result.faults, 'fault')}, {counted(result.submitted, 'task')}: {result.done} done, "
        f"{result.dead} dead, {result.cancelled} cancelled; {counted(result.alpha_changes, 'change')} of alpha"
    )
    if result.violation is not None:
        click.echo(f"  {result.violation.promise}: {result.violation.text}")


def report_no_den(menu: str, units: int, most: int) -> None:
    """Why no den was run beside a herd, where one would look for it."""
    from wolfpack.sim.faults import MENUS

    if menu not in MENUS:
        click.echo(f"{'den':<12} not run: only herds have the menu {menu!r}")
    elif menu == "all" and units > most:
        click.echo(f"{'den':<12} not run, nor what only dens have: it has at most {most} units here")


def report_sweep(result: SweepResult) -> None:
    speed = result.virtual_s / max(result.wall_s, 1e-9)
    click.echo(
        f"{counted(result.runs, 'den')}, {result.virtual_s:,.0f} virtual seconds in {result.wall_s:.0f} s "
        f"({_speed(speed)})"
    )
    click.echo(
        f"{counted(result.faults, 'fault')}, {counted(result.submitted, 'task')}: {result.done} done, "
        f"{result.dead} dead, {result.cancelled} cancelled; {counted(result.alpha_changes, 'change')} of alpha"
    )
    if not result.findings:
        click.echo("All promises were kept.")
    for finding in result.findings:
        click.echo(f"\n{finding.story}")


def report_failover(result: FailoverResult) -> None:
    click.echo(
        f"{result.crashes} crashes of the alpha of {result.units} units, profile {result.profile}, "
        f"broadcast {result.broadcast_s * 1000:g} ms"
    )
    for name, value in (("median", result.median_s), ("p99", result.p99_s), ("worst", result.max_s)):
        click.echo(f"{name:<12} {value * 1000:.0f} ms from the crash to the grant")
    for line in result.violations[:STORY_LINES]:
        click.echo(f"  {line}")


def report_lifeguard(result: LifeguardResult) -> None:
    click.echo(f"{counted(result.cells, 'cell')} of the grid {result.grid!r}, {result.wall_s:.0f} s")
    click.echo("false positives (and of SWIM's), the same between healthy members, messages, bytes, first DEAD, all")
    table = [("arm", "FP", "%", "FP-", "%", "messages", "bytes", "first s", "all s")]
    for name, arm in result.arms.items():
        of = arm.relative
        table.append((
            name, f"{arm.false_positives:,}", _percent(of["false_positives"]), f"{arm.healthy_false_positives:,}",
            _percent(of["healthy_false_positives"]), _percent(of["messages"]), _percent(of["bytes"]),
            _number(arm.first_s), _number(arm.all_s),
        ))  # fmt: skip
    _print_table(table)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f}%"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _print_table(rows: Iterable[tuple[str, ...]]) -> None:
    table = list(rows)
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    for row in table:
        first, *rest = (
            text.ljust(width) if at == 0 else text.rjust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        click.echo("  ".join([first, *rest]).rstrip())


def progress(what: str) -> Callable[[int, int], Any]:
    """A line on standard error now and then, for people who wait."""
    last = time.monotonic()

    def tell(done: int, of: int) -> None:
        nonlocal last
        if time.monotonic() - last >= PROGRESS_S or (done == of and sys.stderr.isatty()):
            last = time.monotonic()
            click.echo(f"{done} of {of} {what}", err=True)

    return tell


class VirtualProgress:
    """How far a herd's time is, on one line of a terminal; nowhere else."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._shown = sys.stderr.isatty()
        self._next = time.monotonic() + TOLD_S

    def look(self, herd: Herd) -> None:
        if self._shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + TOLD_S
            click.echo(f"\r{herd.kernel.now:,.1f} of {self._seconds:,g} virtual seconds", err=True, nl=False)

    def wipe(self) -> None:
        if self._shown:
            click.echo(f"\r{'':50}\r", err=True, nl=False)
