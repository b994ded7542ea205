"""The job of pack.yaml as a command: its function, and the options that its signature and docstring name.

A parameter `kill_alpha_at` is the option `--kill-alpha-at`; its annotation says how text becomes a value, its paragraph
under `Args:` is the help. The first parameter is the pack; those that start with an underscore are for the caller:
`_progress(settled, all, text)` shows progress, `_run` is the id of the run, which lets an interrupted run be resumed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from wolfpack.cli.common import get_function, make_importable
from wolfpack.errors import CallerError, unknown_name

if TYPE_CHECKING:
    from wolfpack.model import DenSpec

PREFIX = "job_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What `wolfpack run` runs."""

    # Its name, as pack.yaml has it.
    task: str
    function: Callable[..., Any]
    # Parameters after the pack, by name.
    parameters: Mapping[str, inspect.Parameter]
    # Options of pack.yaml, which those of the command line override.
    options: Mapping[str, Any]

    def takes(self, name: str) -> bool:
        return name in self.parameters

    def find_pack(self, packs: Collection[str]) -> str | None:
        """The pack that the job's package is named after; None: no pack is."""
        return find_pack(self.task, packs)


def find_pack(task: str, packs: Collection[str]) -> str | None:
    """The pack that the package of a job (`module:function`) is named after, the innermost first; None: no pack is."""
    for part in reversed(task.partition(":")[0].split(".")):
        if part in packs:
            return part
    return None


def load_job(spec: DenSpec) -> Job:
    """Imports the job of a den.

    Raises:
        CallerError: there is none, it cannot be imported, or pack.yaml gives it an option that it does not take.
    """
    if spec.job is None:
        raise CallerError(
            "This pack.yaml has no job. Name one, `job: {task: module:function}`; it is called as job(pack, **options)."
        )
    make_importable(spec.folder)
    function = get_function(spec.job.task)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    every = list(inspect.signature(function).parameters.values())
    if not every or every[0].kind not in (*positional, inspect.Parameter.VAR_POSITIONAL):
        raise CallerError(f"{spec.job.task} takes no pack: it is called as job(pack, **options).")
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = {each.name: each for each in every[1:] if each.kind in named}
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in every)
    for name in spec.job.options:
        if name not in parameters and not takes_any:
            known = [each for each in parameters if not each.startswith("_")]
            raise CallerError(f"job.options of pack.yaml: {unknown_name('option of the job', name, known)}")
    return Job(task=spec.job.task, function=function, parameters=parameters, options=spec.job.options)


def job_options(job: Job, taken: Collection[str]) -> list[click.Option]:
    """The job's parameters as options of the command, except those that the command has itself."""
    texts = argument_texts(inspect.getdoc(job.function) or "")
    return [
        _option(each, texts.get(name, ""), job.options)
        for name, each in job.parameters.items()
        if not name.startswith("_") and name not in taken
    ]


def _option(parameter: inspect.Parameter, text: str, from_file: Mapping[str, Any]) -> click.Option:
    name = parameter.name.replace("_", "-")
    kind = kind_of(parameter)
    default = from_file.get(parameter.name, parameter.default)
    if default is inspect.Parameter.empty:
        text = f"{text}  [required]"
    elif default is not None and default is not False:
        text = f"{text}  [default: {default}]"
    if kind == "flag":
        return click.Option([f"--{name}/--no-{name}", f"{PREFIX}{parameter.name}"], default=None, help=text)
    if kind == "any":  # alone it is true
        return click.Option(
            [f"--{name}", f"{PREFIX}{parameter.name}"], is_flag=False, flag_value="true", callback=_guess, help=text
        )
    kinds: dict[str, Any] = {"int": click.INT, "float": click.FLOAT, "text": click.STRING}
    return click.Option([f"--{name}", f"{PREFIX}{parameter.name}"], type=kinds[kind], help=text)


def kind_of(parameter: inspect.Parameter) -> str:
    """`flag`, `int`, `float`, `text`, or `any`: how the text of an option becomes a value."""
    note = parameter.annotation
    if note is inspect.Parameter.empty:
        return "flag" if isinstance(parameter.default, bool) else "any"
    words = set(re.findall(r"\w+", note if isinstance(note, str) else getattr(note, "__name__", "") or str(note)))
    if not isinstance(note, str) and not isinstance(note, type):
        words = set(re.findall(r"\w+", str(note)))
    words &= {"bool", "int", "float", "str", "Path", "PathLike"}
    if words == {"bool"}:
        return "flag"
    if words == {"int"}:
        return "int"
    if "float" in words and words <= {"int", "float"}:
        return "float"
    return "text" if words & {"str", "Path", "PathLike"} and not words & {"int", "float", "bool"} else "any"


def _guess(_: click.Context, __: click.Parameter, value: Any) -> Any:
    return guess(value) if isinstance(value, str) else value


def guess(text: str) -> Any:
    """`7`, `0.5`, `true`, `false`, `null` as what they say; everything else as text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "null": None}.get(text.lower(), text)


def argument_texts(doc: str) -> dict[str, str]:
    """The paragraphs under `Args:` of a docstring, by parameter."""
    _, found, rest = doc.partition("Args:\n")
    texts: dict[str, str] = {}
    name, margin = "", None
    for line in rest.splitlines() if found else []:
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent == 0:
            break  # the next section
        margin = indent if margin is None and line.strip() else margin
        entry = re.match(r"\s*(\w+)(?: \([^)]*\))?: (.*)", line)
        if entry and indent == margin:
            name = entry[1]
            texts[name] = entry[2].strip()
        elif name and line.strip():
            texts[name] += f" {line.strip()}"
    return {name: text.replace("`", "") for name, text in texts.items()}
