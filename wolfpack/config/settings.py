"""Packs made, and dens changed, by call instead of by file: the same models check them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from wolfpack.config.models import PackFile, RetryFile
from wolfpack.config.spec import pack_spec, retry_policy
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
        raise CallerError(f"Pack {name!r} cannot be made:\n{_told(exc)}") from exc
    if spec.fewest > spec.most:
        raise CallerError(f"Pack {name!r} cannot be made: size must be [fewest, most], not {list(size)}.")
    return spec


def retry_from_settings(value: Any) -> RetryPolicy:
    """A retry policy from the mapping that pack.yaml has; exception types may be given as classes too.

    Raises:
        CallerError: each field that cannot be, a line each.
    """
    if not isinstance(value, Mapping):
        raise CallerError(f"retry must be a mapping such as {{'max_attempts': 5}}, not {value!r:.80}")
    fields_given = dict(value)
    for name in fields_given:
        if name not in RetryFile.model_fields:
            raise CallerError(str(unknown_name("field of retry", str(name), RetryFile.model_fields)))
    for name in ("retry_on", "never_on"):
        if isinstance(fields_given.get(name), (list, tuple)):
            fields_given[name] = [_class_name(each) for each in fields_given[name]]
    try:
        return retry_policy(RetryFile.model_validate(fields_given))
    except ValidationError as exc:
        raise CallerError(f"This retry cannot be:\n{_told(exc)}") from exc


def _class_name(value: Any) -> Any:
    if isinstance(value, type) and issubclass(value, BaseException):
        return f"{value.__module__}.{value.__qualname__}"
    return value


def _told(exc: ValidationError) -> str:
    return "\n".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in exc.errors())


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
