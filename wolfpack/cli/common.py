"""What all commands share: exit codes, errors as one message, common options, and finding a function by its name.

A command raises what it likes. `Commands.invoke`, through which every command runs, turns each `WolfPackError` into one
message on standard error and the exit code of who must act; `--debug` shows the traceback too.
"""

from __future__ import annotations

import errno
import importlib
import logging
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import click

from wolfpack.errors import (
    CallerError,
    DenClosed,
    QueueFull,
    TaskError,
    UnknownName,
    WolfPackBug,
    WolfPackError,
    unknown_name,
)

OK = 0
FAILED = 1  # a job or a task
USAGE = 2  # click's own for wrong usage; ours for wrong input
TROUBLE = 3  # the den, its ledger or Ray needs a person
INTERRUPTED = 130

_DEBUG = "wolfpack.debug"


def exit_code(error: BaseException) -> int:
    """Who must act, as a number for scripts."""
    match error:
        case KeyboardInterrupt():
            return INTERRUPTED
        case DenClosed() | QueueFull():  # the caller's, in a program; in a shell the den is what to look after
            return TROUBLE
        case CallerError():
            return USAGE
        case TaskError():
            return FAILED
        case WolfPackError():
            return TROUBLE
        case _:
            return FAILED


class Trouble(click.ClickException):
    """An error as people see it: one message and an exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        return self.code

    def show(self, file: IO[Any] | None = None) -> None:
        from wolfpack.cli.render import printable

        click.echo(f"Error: {printable(self.format_message())}", file=file, err=file is None)


def _debug_option() -> click.Option:
    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value and not ctx.meta.get(_DEBUG):
            ctx.meta[_DEBUG] = True
            logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")

    text = "Show tracebacks and the log."
    return click.Option(["--debug"], is_flag=True, is_eager=True, expose_value=False, callback=remember, help=text)


class Command(click.Command):
    """A command that knows `--debug`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_debug_option())


class Commands(click.Group):
    """A group of commands, in the order in which they were added, whose errors are told in one message."""

    command_class = Command
    group_class = type

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_debug_option())

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except WolfPackError as exc:
            if ctx.meta.get(_DEBUG):
                traceback.print_exc()
            text = str(exc)
            if isinstance(exc, WolfPackBug):
                text += "\nThis is a fault of Wolf Pack itself. Please report it, with what `--debug` shows."
            raise Trouble(text, exit_code(exc)) from exc
        except OSError as exc:
            if exc.errno == errno.EPIPE:  # whoever read the output has enough: click ends quietly
                raise
            if ctx.meta.get(_DEBUG):
                traceback.print_exc()
            raise Trouble(f"{exc.filename or 'A file'}: {exc.strerror or exc}", TROUBLE) from exc
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)


def file_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--file pack.yaml`: which den is meant."""
    return click.option(
        "--file", "-f", "file", default="pack.yaml", show_default=True, type=click.Path(), help="The den's file."
    )(command)


def address_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--address`: of the Ray cluster, for a den that was not started by `wolfpack up` here."""
    return click.option("--address", help="Of the Ray cluster; default: where `wolfpack up` started the den.")(command)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--json`: facts for a program."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def make_importable(folder: str | None) -> None:
    """The folder of pack.yaml comes first among those that modules are imported from."""
    where = folder or str(Path.cwd())
    if where not in sys.path:
        sys.path.insert(0, where)


def get_function(target: str) -> Callable[..., Any]:
    """The function that `module:function` names.

    Raises:
        UnknownName, CallerError: there is no such module or function, or the module cannot be imported.
    """
    name, colon, path = target.partition(":")
    if not colon or not name or not path:
        raise CallerError(f"{target!r} names no function. Write module:function, such as packs.computing.job:measure.")
    try:
        found: Any = importlib.import_module(name)
    except ModuleNotFoundError as exc:
        missing = exc.name or name
        if name == missing or name.startswith(f"{missing}."):
            raise UnknownName(
                f"There is no module named {missing!r}. It must lie in the folder of pack.yaml, or be installed."
            ) from exc
        raise CallerError(f"The module {name!r} cannot be imported: it needs {missing!r}, which is missing.") from exc
    except Exception as exc:
        raise CallerError(f"The module {name!r} cannot be imported: {type(exc).__name__}: {exc}") from exc
    for part in path.split("."):
        if not hasattr(found, part):
            names = [each for each in vars(found) if callable(getattr(found, each)) and not each.startswith("_")]
            raise unknown_name(f"function in {name}", part, names)
        found = getattr(found, part)
    if not callable(found):
        raise CallerError(f"{target} is no function but {type(found).__name__}.")
    result: Callable[..., Any] = found
    return result
