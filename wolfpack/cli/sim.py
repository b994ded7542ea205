"""`wolfpack sim`: the real core in virtual time, with faults. It needs no den and no Ray.

`sim` alone runs a herd: thousands of units with membership and succession. `failover` times changes of alpha,
`lifeguard` repeats Lifeguard's experiment, `sweep` runs whole dens over many seeds, and `replay` runs one of them
again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from wolfpack.cli.common import FAILED, Commands, json_option
from wolfpack.cli.render import counted, print_json

if TYPE_CHECKING:
    from wolfpack.sim.failover import FailoverResult
    from wolfpack.sim.herd import HerdResult
    from wolfpack.sim.lifeguard import LifeguardResult

STORY_LINES = 10
PROGRESS_S = 5.0


@click.group(
    cls=Commands,
    invoke_without_command=True,
    short_help="Try failure in virtual time: thousands of units, no Ray.",
    epilog="\b\nExamples:\n  wolfpack sim --units 1000 --crash 0.2 --picture crash.png\n"
    "  wolfpack sim --units 50 --seconds 120 --faults network,pauses --seed 7\n"
    "  wolfpack sim failover --crashes 1000\n  wolfpack sim lifeguard --quick",
)
@click.option("--units", default=50, show_default=True, type=click.IntRange(2, 10_000), help="How many.")
@click.option("--seconds", default=60.0, show_default=True, type=float, help="Virtual time to run.")
@click.option("--seed", default=0, show_default=True, type=int, help="Same seed, same run.")
@click.option("--crash", default=0.0, type=float, help="This share crashes at once, after a sixth of the time.")
@click.option("--loss", default=0.0, type=float, help="This share of all packets is lost.")
@click.option("--faults", default="", help="Menus of random faults, with commas; `all` for all. See docs/simulator.md.")
@click.option("--profile", default="ray", show_default=True, help="Timing profile: ray, classic or fast.")
@click.option("--picture", type=click.Path(), help="Draw the run (.png or .svg).")
@json_option
@click.pass_context
def sim(
    ctx: click.Context, units: int, seconds: float, seed: int, crash: float, loss: float, faults: str, profile: str,
    picture: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Runs a herd in virtual time: each unit with the real membership and succession, checked against the promises.

    Exit code 1: a promise was broken; the seed shows it again.
    """
    if ctx.invoked_subcommand is not None:
        return
    from wolfpack.sim.herd import HerdPlan, run_herd
    from wolfpack.sim.herd_faults import MENUS

    menus = tuple(MENUS) if faults == "all" else tuple(filter(None, (menu.strip() for menu in faults.split(","))))
    plan = HerdPlan(
        units=units, seconds=seconds, seed=seed, crash=crash, loss=loss, faults=menus, profile=profile
    ).checked()  # fmt: skip
    if picture is None:
        result = run_herd(plan)
    else:
        from wolfpack.sim.herd_picture import LOOKS, Recorder, draw, picture_path

        picture_path(picture)
        seen = Recorder()
        result = run_herd(plan, each_s=seconds / LOOKS, look=seen.look)
        draw(seen, result, picture)
    if as_json:
        print_json(result.to_plain())
    else:
        _report_herd(result)
        if picture is not None:
            click.echo(f"drawn        {picture}")
    if result.violations:
        ctx.exit(FAILED)


def _report_herd(result: HerdResult) -> None:
    speed = result.virtual_s / max(result.wall_s, 1e-9)
    rows = [
        ("herd", f"{result.units} units, profile {result.profile}, seed {result.seed}"),
        ("time", f"{result.virtual_s:g} virtual seconds in {result.wall_s:.1f} s ({speed:.3g} x real time)"),
        (
            "messages",
            f"{result.messages:,} ({result.messages_per_unit_s:.2f} a unit and second, "
            f"{result.bytes / max(result.messages, 1):.0f} bytes each), and {result.howls:,} howls of the election",
        ),
        ("alpha", f"{result.alpha_changes} changes"),
    ]
    if result.crashed:
        rows += [
            ("crashed", counted(result.crashed, "unit")),
            ("first DEAD", _spread(result.first_dead_s)),
            ("all know", f"{_spread(result.all_know_s)}{_rounds(result.rounds)}"),
            ("views equal", _seconds(result.views_equal_s)),
        ]
    rows += [
        ("accusations", f"{result.false_positives} false ({result.healthy_false_positives} among healthy units)"),
        ("promises", "all kept" if not result.violations else counted(result.violations, "violation")),
        ("trace", result.trace_hash),
    ]
    for name, text in rows:
        click.echo(f"{name:<12} {text}")
    for line in result.story[:STORY_LINES]:
        click.echo(f"  {line}")


def _seconds(value: float | None) -> str:
    return "not within the run" if value is None else f"after {value:.2f} s"


def _spread(values: Mapping[str, float | None]) -> str:
    if values["p50"] is None:
        return "not within the run"
    return f"after {values['p50']:.2f} s (median), {values['p99']:.2f} s (p99)"


def _rounds(rounds: float | None) -> str:
    return "" if rounds is None else f", {rounds:.1f} protocol periods at most"


# --- failover ---------------------------------------------------------------------------------------------------


@sim.command(
    short_help="Crash the alpha again and again; how long until the next?",
    epilog="\b\nExample:\n  wolfpack sim failover --crashes 1000 --profile fast",
)
@click.option("--crashes", default=1000, show_default=True, type=click.IntRange(1), help="How often.")
@click.option("--units", default=5, show_default=True, type=click.IntRange(2, 100), help="Of the pack.")
@click.option("--profile", default="fast", show_default=True, help="Timing profile: ray, classic or fast.")
@click.option("--seed", default=0, show_default=True, type=int, help="Same seed, same run.")
@json_option
@click.pass_context
def failover(ctx: click.Context, crashes: int, units: int, profile: str, seed: int, as_json: bool) -> None:
    """Crashes the alpha of a small pack, without any hint, and measures the time until the next one has its grant.

    As in Figure 16 of the Raft paper: five units, a broadcast takes 15 ms, crashes at any moment between heartbeats.
    """
    from wolfpack.errors import unknown_name
    from wolfpack.model import PROFILES
    from wolfpack.sim.failover import run_failover

    if profile not in PROFILES:
        raise unknown_name("timing profile", profile, PROFILES)
    result = run_failover(crashes=crashes, units=units, profile=profile, seed=seed)
    if as_json:
        print_json(result.to_plain())
    else:
        _report_failover(result)
    if result.violations:
        ctx.exit(FAILED)


def _report_failover(result: FailoverResult) -> None:
    click.echo(
        f"{result.crashes} crashes of the alpha of {result.units} units, profile {result.profile}, "
        f"broadcast {result.broadcast_s * 1000:g} ms"
    )
    for name, value in (("median", result.median_s), ("p99", result.p99_s), ("worst", result.max_s)):
        click.echo(f"{name:<12} {value * 1000:.0f} ms from the crash to the grant")
    for line in result.violations[:STORY_LINES]:
        click.echo(f"  {line}")


# --- Lifeguard's experiment -------------------------------------------------------------------------------------


@sim.command(
    short_help="How often are healthy units called dead while others are slow?",
    epilog="\b\nExamples:\n  wolfpack sim lifeguard --quick\n  wolfpack sim lifeguard --grid full --jobs 2 --json",
)
@click.option("--quick", is_flag=True, help="One cell of the grid, in less than a minute.")
@click.option(
    "--grid", default="standard", show_default=True, type=click.Choice(["quick", "standard", "full"]), help="Which."
)
@click.option("--jobs", default=None, type=click.IntRange(1), help="Processes; default: as many as there are cores.")
@click.option("--seed", default=0, show_default=True, type=int, help="Same seed, same runs.")
@json_option
def lifeguard(quick: bool, grid: str, jobs: int | None, seed: int, as_json: bool) -> None:
    """Repeats the experiment of the Lifeguard paper with plain SWIM, each of its three parts, all three, and ours.

    128 members, of which some are blocked again and again for two minutes. Counted are members that hold a healthy one
    dead. The standard grid takes long; it runs in all cores.
    """
    import os

    from wolfpack.sim.lifeguard import run_lifeguard

    told = _progress("runs")
    result = run_lifeguard("quick" if quick else grid, jobs=jobs or os.cpu_count() or 1, seed=seed, progress=told)
    if as_json:
        print_json(result.to_plain())
    else:
        _report_lifeguard(result)


def _report_lifeguard(result: LifeguardResult) -> None:
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


def _progress(what: str) -> Callable[[int, int], Any]:
    """A line on standard error now and then, for people who wait."""
    last = time.monotonic()

    def tell(done: int, of: int) -> None:
        nonlocal last
        if time.monotonic() - last >= PROGRESS_S or (done == of and sys.stderr.isatty()):
            last = time.monotonic()
            click.echo(f"{done} of {of} {what}", err=True)

    return tell
