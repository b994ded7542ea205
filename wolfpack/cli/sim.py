"""`wolfpack sim`: the real core in virtual time, with faults. It needs no den and no Ray.

`sim` alone runs a herd: thousands of units with membership and succession. `failover` times changes of alpha,
`lifeguard` repeats Lifeguard's experiment, `sweep` runs whole dens over many seeds, and `replay` runs one of them
again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from wolfpack.cli.common import FAILED, Commands, json_option
from wolfpack.cli.render import print_json
from wolfpack.cli.sim_reports import (
    TOLD,
    VirtualProgress,
    progress,
    report_den,
    report_failover,
    report_herd,
    report_lifeguard,
    report_no_den,
    report_sweep,
)  # fmt: skip
from wolfpack.errors import CallerError, unknown_name

if TYPE_CHECKING:
    from wolfpack.sim.den_run import DenResult
    from wolfpack.sim.herd import Herd
    from wolfpack.sim.sweep import SweepResult

# Menus of faults in words: the modules that have them are loaded when they are needed.
BOTH_MENUS = "network, pauses, crashes"
HERDS_MENUS = "slow, churn"
DENS_MENUS = "clocks, keeper, boots, persons, calm"
DEN_MOST = 24  # units: with faults, so small a herd is run as a whole den too, with keeper, tasks and clients
HERD_HELP = (
    f"A menu of random faults: {BOTH_MENUS}, {HERDS_MENUS} or all. Up to {DEN_MOST} units are run as a whole den too, "
    f"with any but {HERDS_MENUS}; only dens have {DENS_MENUS}."
)
DEN_HELP = f"A menu of random faults: {BOTH_MENUS}, {DENS_MENUS} or all."


@click.group(
    cls=Commands,
    invoke_without_command=True,
    short_help="Try failure in virtual time: thousands of units, no Ray.",
    epilog="\b\nExamples:\n  wolfpack sim --units 1000 --crash 0.2 --picture crash.png\n"
    "  wolfpack sim --units 7 --seconds 120 --faults all --seed 7\n"
    "  wolfpack sim failover --crashes 1000\n  wolfpack sim lifeguard --quick",
)
@click.option("--units", default=50, show_default=True, type=click.IntRange(2, 10_000), help="How many.")
@click.option("--seconds", default=60.0, show_default=True, type=float, help="Virtual time to run.")
@click.option("--seed", default=0, show_default=True, type=int, help="Same seed, same run.")
@click.option("--crash", default=0.0, type=float, help="This share crashes at once, after a sixth of the time.")
@click.option("--loss", default=0.0, type=float, help="This share of all packets is lost.")
@click.option(
    "--faults",
    "menu",
    default="",
    help=f"A menu of random faults: {BOTH_MENUS}, {HERDS_MENUS} or all. Up to {DEN_MOST} units are run as a whole den "
    f"too, with any but {HERDS_MENUS}; only dens have {DENS_MENUS}.",
)
@click.option("--profile", default="ray", show_default=True, help="Timing profile: ray, classic or fast.")
@click.option("--busy", is_flag=True, help="Each unit's load changes every second; tells how old known loads are.")
@click.option("--picture", type=click.Path(), help="Draw the run (.png or .svg).")
@json_option
@click.pass_context
def sim(
    ctx: click.Context, units: int, seconds: float, seed: int, crash: float, loss: float, menu: str, profile: str,
    busy: bool, picture: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Runs a herd in virtual time: each unit with the real membership and succession, checked against the promises.

    Exit code 1: a promise was broken; the seed shows it again.
    """
    if ctx.invoked_subcommand is not None:
        _refuse_own_options(ctx, ctx.invoked_subcommand)
        return
    from wolfpack.sim.herd import HerdPlan, run_herd

    herd_menus, den_menu = _menus(menu, units)
    plan = HerdPlan(
        units=units, seconds=seconds, seed=seed, crash=crash, loss=loss, faults=herd_menus, profile=profile,
        busy=busy,
    ).checked()  # fmt: skip
    told = VirtualProgress(seconds)
    if picture is None:
        result = run_herd(plan, each_s=seconds / TOLD, look=told.look)
        told.wipe()
    else:
        from wolfpack.sim.herd_picture import Recorder, draw, looks, picture_path

        picture_path(picture)
        seen = Recorder()

        def look(herd: Herd) -> None:
            seen.look(herd)
            told.look(herd)

        result = run_herd(plan, each_s=seconds / looks(plan), look=look)
        told.wipe()
    den: DenResult | None = None
    if den_menu is not None:
        from wolfpack.sim.den_run import run_den

        den = run_den(
            units=units, seconds=seconds, seed=seed, menu=den_menu, profile=profile, crash=crash, loss=loss
        )  # fmt: skip
    violations = result.violations + (den is not None and den.violation is not None)
    if as_json:
        print_json({**result.to_plain(), "violations": violations, "den": None if den is None else den.to_plain()})
    else:
        report_herd(result)
        if den is not None:
            report_den(den)
        elif menu:
            report_no_den(menu, units, DEN_MOST)
    if picture is not None:  # what came of the run is told first, whatever becomes of its picture
        draw(seen, result, picture)
        if not as_json:
            click.echo(f"{'drawn':<12} {picture}")
    if violations:
        ctx.exit(FAILED)


def _refuse_own_options(ctx: click.Context, command: str) -> None:
    """Options that stand before a command are the herd's, and the command would never see them."""
    given = [
        each.opts[0] for each in ctx.command.params
        if each.expose_value and ctx.get_parameter_source(each.name or "") is ParameterSource.COMMANDLINE
    ]  # fmt: skip
    if given:
        raise click.UsageError(
            f"{', '.join(given)} before {command!r} would be of no effect: write what {command!r} takes after it, "
            f"and see `wolfpack sim {command} --help`."
        )


def _menus(menu: str, units: int) -> tuple[tuple[str, ...], str | None]:
    """The herd's menus of this name, and the den's; None: no den is run.

    Raises:
        UnknownName: there is no such menu.
        CallerError: only a den has it, and there are too many units for one.
    """
    from wolfpack.sim.faults import MENUS as DEN_MENUS
    from wolfpack.sim.herd_faults import MENUS as HERD_MENUS

    if not menu:
        return (), None
    names = {*HERD_MENUS, *DEN_MENUS}
    if menu not in names:
        raise unknown_name("menu of faults", menu, sorted(names))
    herd = tuple(HERD_MENUS) if menu == "all" else (menu,) if menu in HERD_MENUS else ()
    if units <= DEN_MOST and menu in DEN_MENUS:
        return herd, menu
    if not herd and menu != "calm":
        raise CallerError(f"The menu {menu!r} is of whole dens, which have at most {DEN_MOST} units here, not {units}.")
    return herd, None


# --- dens -------------------------------------------------------------------------------------------------------


@sim.command(
    short_help="Run whole dens under faults, one for each seed.",
    epilog="\b\nExamples:\n  wolfpack sim sweep --seeds 500\n"
    "  wolfpack sim sweep --seeds 20 --faults keeper --out broken/",
)
@click.option("--seeds", default=500, show_default=True, type=click.IntRange(1), help="How many.")
@click.option("--first", default=0, show_default=True, type=int, help="The first seed.")
@click.option("--seconds", default=120.0, show_default=True, type=float, help="Virtual time of each.")
@click.option("--units", default=None, type=click.IntRange(1, DEN_MOST), help="Of each; default: as the seed has it.")
@click.option("--faults", "menu", default="all", show_default=True, help=DEN_HELP)
@click.option("--profile", default="ray", show_default=True, help="Timing profile: ray, classic or fast.")
@click.option("--jobs", default=None, type=click.IntRange(1), help="Processes; default: as many as there are cores.")
@click.option("--out", type=click.Path(file_okay=False), help="Write each broken run here, for `replay`.")
@json_option
@click.pass_context
def sweep(
    ctx: click.Context, seeds: int, first: int, seconds: float, units: int | None, menu: str, profile: str,
    jobs: int | None, out: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Runs whole dens in virtual time: keeper, ledger, tasks and clients too. A run that breaks a promise is told.

    It is made small first: the few faults that are needed to see it. Exit code 1: there was one.
    """
    from wolfpack.sim.sweep import sweep as run_sweep

    told, done = progress("dens"), 0

    def count(_: DenResult) -> None:
        nonlocal done
        done += 1
        told(done, seeds)

    result = run_sweep(
        seeds=seeds, first=first, seconds=seconds, menu=menu, units=units, profile=profile, jobs=jobs, on_result=count
    )  # fmt: skip
    paths = _save_findings(result, Path(out)) if out else []
    if as_json:
        print_json({**result.to_plain(), "files": [str(path) for path in paths]})
    else:
        report_sweep(result)
        for path in paths:
            click.echo(f"wolfpack sim replay {path}")
    if result.findings:
        ctx.exit(FAILED)


def _save_findings(result: SweepResult, folder: Path) -> list[Path]:
    from wolfpack.sim.replay import save

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for finding in result.findings:
        paths.append(folder / f"seed-{finding.seed}-{finding.promise}.json")
        save(paths[-1], finding.plan)
    return paths


@sim.command(
    short_help="Run a den from a file again.",
    epilog="\b\nExample:\n  wolfpack sim replay broken/seed-17-I5.json",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@json_option
@click.pass_context
def replay(ctx: click.Context, file: str, as_json: bool) -> None:
    """Plays the run in a file that `sweep --out` or `wolfpack.testing.save` wrote. It goes as it went before."""
    from wolfpack.sim.den_run import play
    from wolfpack.sim.replay import load
    from wolfpack.sim.story import tell

    try:
        plan = load(file)
    except (ValueError, OSError) as exc:
        raise CallerError(f"No run of a den can be read: {exc}") from exc
    result = play(plan)
    if as_json:
        print_json(result.to_plain())
    else:
        click.echo(tell(plan, result))
    if result.violation is not None:
        ctx.exit(FAILED)


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
    from wolfpack.model import PROFILES
    from wolfpack.sim.failover import run_failover

    if profile not in PROFILES:
        raise unknown_name("timing profile", profile, PROFILES)
    result = run_failover(crashes=crashes, units=units, profile=profile, seed=seed)
    if as_json:
        print_json(result.to_plain())
    else:
        report_failover(result)
    if result.violations:
        ctx.exit(FAILED)


# --- Lifeguard's experiment -------------------------------------------------------------------------------------


@sim.command(
    short_help="How often are healthy units called dead while others are slow?",
    epilog="\b\nExamples:\n  wolfpack sim lifeguard --quick\n  wolfpack sim lifeguard --grid full --jobs 2 --json",
)
@click.option("--quick", is_flag=True, help="One cell of the grid, in less than a minute.")
@click.option(
    "--grid",
    default="standard",
    show_default=True,
    type=click.Choice(["quick", "sample", "standard", "full"]),
    help="Which.",
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

    result = run_lifeguard(
        "quick" if quick else grid, jobs=jobs or os.cpu_count() or 1, seed=seed, progress=progress("runs")
    )  # fmt: skip
    if as_json:
        print_json(result.to_plain())
    else:
        report_lifeguard(result)
