"""`wolfpack submit`, `why` and `dead`: single tasks of the den that is up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from wolfpack.cli.common import (
    Command,
    Commands,
    Trouble,
    address_option,
    exit_code,
    file_option,
    get_function,
    json_option,
)
from wolfpack.cli.record import joined
from wolfpack.cli.render import clock, columns, counted, print_json, printable, table
from wolfpack.errors import UnknownName, WolfPackError

if TYPE_CHECKING:
    from wolfpack.pack import Den


def parse_argument(text: str) -> Any:
    """A value written in JSON; what is no JSON is the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def parse_needs(text: str | None) -> Any:
    """`cpu,gpu`, or `{"cpu": true, "memory_gb": 16}`, or `["cpu"]`."""
    if text is None:
        return None
    value = parse_argument(text)
    return [each.strip() for each in value.split(",") if each.strip()] if isinstance(value, str) else value


# --- submit and why -----------------------------------------------------------------------------------------------


@click.command(
    cls=Command,
    short_help="Queue one call of a function.",
    context_settings={"ignore_unknown_options": True},  # -1 is an argument
    epilog="\b\nExamples:\n  wolfpack submit computing math:sqrt 2 --wait\n"
    "  wolfpack submit computing mymodule:train '{\"depth\": 3}' --needs gpu",
)
@click.argument("pack")
@click.argument("function")
@click.argument("arguments", nargs=-1, metavar="[JSON]...", type=click.UNPROCESSED)
@click.option("--needs", help="Tags, such as cpu,gpu, or JSON, such as '{\"memory_gb\": 16}'; default: the pack's.")
@click.option("--key", help="Makes the task unique in its pack: the same key is the same task.")
@click.option("--priority", type=int, help="Higher goes first.")
@click.option("--timeout-s", type=float, help="Longest run of one attempt.")
@click.option("--delay-s", type=float, help="It does not start sooner.")
@click.option("--deadline-s", type=float, help="It is dead if it has not ended by then.")
@click.option("--wait/--no-wait", default=False, help="Wait for the result and print it, instead of the task's id.")
@file_option
@address_option
@json_option
def submit(
    pack: str,
    function: str,
    arguments: tuple[str, ...],
    wait: bool,
    file: str,
    address: str | None,
    as_json: bool,
    needs: str | None,
    **options: Any,
) -> None:
    """Queues FUNCTION (module:function) with the arguments given as JSON; a bare word is a text.

    Prints the id of the task, or with --wait its result: as JSON, or as Python shows it if JSON cannot.
    """
    for text in arguments:
        if text.startswith("--"):
            raise click.NoSuchOption(text.partition("=")[0], ctx=click.get_current_context())
    chosen = {name: value for name, value in options.items() if value is not None}
    if needs is not None:
        chosen["needs"] = parse_needs(needs)
    with joined(file, address) as den:
        target = den.pack(pack).options(**chosen)
        future = target.submit(get_function(function), *map(parse_argument, arguments))
        den.flush()
        if not wait:
            if future.done() and isinstance(future.exception(), WolfPackError):
                future.result()  # refused
            if as_json:
                print_json({"task": future.task_id})
            else:
                click.echo(future.task_id)
            return
        try:
            value = future.result()
        except KeyboardInterrupt:
            click.echo(f"The task goes on. `wolfpack why {future.task_id}` tells how it is.", err=True)
            raise
        except BaseException as exc:
            kind = "" if isinstance(exc, WolfPackError) else f"{type(exc).__name__}: "
            text = f"{kind}{exc}\n`wolfpack why {future.task_id}` tells the story."
            raise Trouble(text, exit_code(exc)) from exc
    if as_json:
        print_json({"task": future.task_id, "result": value})
        return
    try:
        click.echo(json.dumps(value))
    except (TypeError, ValueError):
        click.echo(repr(value))


@click.command(
    cls=Command, short_help="Tell why a task is where it is.", epilog="\b\nExample:\n  wolfpack why 3f0c9a7d21e4:17"
)
@click.argument("task")
@file_option
@address_option
@json_option
def why(task: str, file: str, address: str | None, as_json: bool) -> None:
    """Tells why a TASK is where it is: what it waits for, where it runs, or how it ended, with all its attempts."""
    with joined(file, address) as den:
        text = den.why(task)
    if as_json:
        print_json({"task": task, "why": text})
    else:
        click.echo(printable(text))


# --- dead letters -------------------------------------------------------------------------------------------------


@click.group(cls=Commands, short_help="List, show, retry or drop dead tasks.")
def dead() -> None:
    """Looks at tasks that ended without a value, and gives them another chance."""


@dead.command(name="list", epilog="\b\nExample:\n  wolfpack dead list --pack computing")
@click.option("--pack", help="Only of this pack.")
@click.option("--limit", default=1000, show_default=True, type=click.IntRange(min=1), help="Only the newest that many.")
@file_option
@address_option
@json_option
def list_dead(pack: str | None, limit: int, file: str, address: str | None, as_json: bool) -> None:
    """Lists dead tasks, the newest first."""
    with joined(file, address) as den:
        letters = den.dead(pack, limit)
    if as_json:
        print_json(letters)
    elif not letters:
        click.echo("No dead tasks.")
    else:
        rows = [
            (
                each["task_id"], each["pack"], each["function"], each["cause"], each["attempts"],
                _time(each["ended_at"]), _first_line(each["text"]),
            )
            for each in letters
        ]  # fmt: skip
        click.echo(table(("task", "pack", "function", "cause", "attempts", "at", "text"), rows, columns()))


def _time(at: float | None) -> str:
    return clock(at).partition(".")[0] if at else ""


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


@dead.command(name="show", epilog="\b\nExample:\n  wolfpack dead show 3f0c9a7d21e4:17")
@click.argument("task")
@file_option
@address_option
@json_option
def show_dead(task: str, file: str, address: str | None, as_json: bool) -> None:
    """Shows one dead TASK with its whole story."""
    with joined(file, address) as den:
        if as_json:
            print_json(_letter(den, task))
        else:
            click.echo(printable(den.why(task)))


def _letter(den: Den, task: str) -> dict[str, Any]:
    letters = {each["task_id"]: each for each in den.dead(None, 1 << 30)}
    if task not in letters:
        raise UnknownName(f"There is no dead task {task!r}. `wolfpack dead list` lists those there are.")
    return letters[task]


def _chosen(den: Den, tasks: tuple[str, ...], everything: bool, pack: str | None) -> list[str]:
    if bool(tasks) == everything:
        raise click.UsageError("Name tasks, or say --all.")
    return [each["task_id"] for each in den.dead(pack, 1 << 30)] if everything else list(tasks)


@dead.command(name="retry", epilog="\b\nExample:\n  wolfpack dead retry --all --needs '{\"memory_gb\": 16}'")
@click.argument("tasks", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All there are.")
@click.option("--pack", help="With --all: only of this pack.")
@click.option("--needs", help="Other needs than before, as `submit` takes them.")
@file_option
@address_option
@json_option
def retry_dead(
    tasks: tuple[str, ...],
    everything: bool,
    pack: str | None,
    needs: str | None,
    file: str,
    address: str | None,
    as_json: bool,
) -> None:
    """Queues dead TASKS again, with new budgets."""
    with joined(file, address) as den:
        done = den.replay(_chosen(den, tasks, everything, pack), parse_needs(needs))
    _tell("queued again", done, as_json)


@dead.command(name="drop", epilog="\b\nExample:\n  wolfpack dead drop 3f0c9a7d21e4:17")
@click.argument("tasks", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All there are.")
@click.option("--pack", help="With --all: only of this pack.")
@file_option
@address_option
@json_option
def drop_dead(
    tasks: tuple[str, ...], everything: bool, pack: str | None, file: str, address: str | None, as_json: bool
) -> None:
    """Removes dead TASKS; they stay counted as dead."""
    with joined(file, address) as den:
        done = den.drop_dead(_chosen(den, tasks, everything, pack))
    _tell("dropped", done, as_json)


def _tell(what: str, task_ids: list[str], as_json: bool) -> None:
    if as_json:
        print_json(task_ids)
    else:
        click.echo(f"{counted(len(task_ids), 'task')} {what}")
