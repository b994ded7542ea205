"""Packs made, and dens changed, by call instead of by file: the same models check them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from wolfpack.config.models import PackFile
from wolfpack.config.spec import pack_spec
from wolfpack.errors import CallerError, unknown_name
from wolfpack.model import DenSpec, Needs, PackSpec, RetryPolicy
from wolfpack.plain import retry_to_plain

_CHANGES = ("den", "graphs", "ledger")


def pack_from_settings(
    name: str,
    *,
    size: Sequence[int],
    needs: Any,
    retry: Mapping[str, Any] | RetryPolicy | None,
    settings: dict[str, Any],
) -> PackSpec:
    """A pack from the arguments of `den.create_pack`.

    Raises:
        CallerError: each setting that cannot be, a line each.
    """
    fields_given: dict[str, Any] = {**settings, "size": list(size)}
    try:
        fields_given["needs"] = Needs.parse(needs).to_plain()
    except (TypeError, ValueError) as exc:
        raise CallerError(f"needs of pack {name!r}: {exc}") from exc
    if retry is not None:
        fields_given["retry"] = retry_to_plain(retry) if isinstance(retry, RetryPolicy) else dict(retry)
    for key in settings:
        if key not in PackFile.model_fields:
            raise CallerError(str(unknown_name("setting of a pack", key, PackFile.model_fields)))
    try:
        spec = pack_spec(name, PackFile.model_validate(fields_given))
    except ValidationError as exc:
        lines = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in exc.errors()]
        raise CallerError(f"Pack {name!r} cannot be made:\n" + "\n".join(lines)) from exc
    if spec.fewest > spec.most:
        raise CallerError(f"Pack {name!r} cannot be made: size must be [fewest, most], not {list(size)}.")
    return spec


def changed(spec: DenSpec, changes: Mapping[str, Any]) -> DenSpec:
    """The den with another name, ledger or folder of graphs; paths are relative to the working directory.

    Raises:
        CallerError: anything else was named.
    """
    known = {each.name for each in fields(DenSpec)}
    for name in changes:
        if name not in _CHANGES or name not in known:
            raise CallerError(str(unknown_name("setting that open() can change", name, _CHANGES)))
    values = dict(changes)
    if values.get("graphs") is not None:
        values["graphs"] = str(Path(values["graphs"]).absolute())
    ledger = values.get("ledger")
    if ledger is not None and not str(ledger).startswith("memory://"):
        values["ledger"] = f"sqlite:///{Path(str(ledger).removeprefix('sqlite:///')).absolute()}"
    return replace(spec, **values)
