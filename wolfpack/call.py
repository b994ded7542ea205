"""How a call is packed for its journey: the function once by its hash, the arguments as bytes, the options as JSON."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import pickle
import types
import weakref
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from math import isfinite
from pathlib import Path
from typing import Any

import cloudpickle

from wolfpack.core.wire import SubmitItem
from wolfpack.errors import CallerError, PayloadNotPicklable, PayloadTooLarge, unknown_name
from wolfpack.model import PRIORITY_MOST, Needs, RetryPolicy, TaskOptions
from wolfpack.plain import retry_to_plain

BLOB_BYTES = 1 << 20  # larger payloads travel aside
FUNCTION_MOST = 32 << 20  # its code is sent to every unit
KEY_MOST = 1024
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
_PLAIN = (int, float, str, bytes, bool, type(None))
_OPTIONS = {each.name for each in fields(TaskOptions)}


def plain_options(
    base: TaskOptions | None, given: Mapping[str, Any] | None, *, over: TaskOptions | None = None
) -> TaskOptions:
    """Options on top of others; those of the call win over those of the function.

    Raises:
        CallerError: an unknown option, or a value of the wrong kind.
    """
    if over is not None:
        if base is None:
            return over
        default = TaskOptions()
        named = {name: getattr(over, name) for name in _OPTIONS if getattr(over, name) != getattr(default, name)}
        return replace(base, **named)
    values: dict[str, Any] = dict(given or {})
    for name in values:
        if name not in _OPTIONS:
            raise CallerError(str(unknown_name("option", name, _OPTIONS)))
    try:
        if values.get("needs") is not None:
            values["needs"] = Needs.parse(values["needs"])
        if values.get("retry") is not None and not isinstance(values["retry"], RetryPolicy):
            from wolfpack.config import retry_from_settings  # brings pydantic, and few calls need it

            values["retry"] = retry_from_settings(values["retry"])
    except (TypeError, ValueError) as exc:
        raise CallerError(f"An option cannot be read: {exc}") from exc
    key = values.get("key")
    if key is not None and not _is_key(key):
        raise CallerError(f"key must be text of 1 to {KEY_MOST} bytes in UTF-8, not {key!r:.80}")
    priority = values.get("priority", 0)
    if type(priority) is not int or abs(priority) > PRIORITY_MOST:
        raise CallerError(f"priority must be a whole number within {PRIORITY_MOST}, not {priority!r:.80}")
    for name in ("deadline_s", "delay_s", "timeout_s"):
        seconds = values.get(name)
        if seconds is None and name != "delay_s":
            continue
        seconds = seconds or 0.0
        if not _is_seconds(seconds):
            raise CallerError(f"{name} must be seconds, at least 0, not {seconds!r:.80}")
        if name in values:
            values[name] = float(seconds)
    return replace(base or TaskOptions(), **values)


def _is_seconds(value: Any) -> bool:
    try:
        return type(value) in (int, float) and isfinite(value) and value >= 0
    except OverflowError:  # a whole number beyond all floats
        return False


def _is_key(key: Any) -> bool:
    try:
        return isinstance(key, str) and 0 < len(key.encode()) <= KEY_MOST
    except UnicodeEncodeError:  # a lone surrogate
        return False


def fingerprint(fn: Callable[..., Any]) -> str:
    """What a plain function does, wherever it stands: its name and its code without file and line; else empty.

    A key that is used again in the next run of a script must find the same code, also when a comment was added above.
    """
    if type(fn) is not types.FunctionType or fn.__closure__:
        return ""
    try:
        parts = repr((fn.__qualname__, _code_parts(fn.__code__), fn.__defaults__, fn.__kwdefaults__))
    except Exception:  # a default value whose text cannot be had
        return ""
    return "" if " at 0x" in parts else hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()


def _code_parts(code: types.CodeType) -> tuple[Any, ...]:
    constants: list[Any] = []
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            each = _code_parts(each)
        elif isinstance(each, frozenset):  # its order is that of this process
            each = sorted(map(repr, each))
        constants.append(each)
    return (code.co_name, code.co_code, constants, code.co_names, code.co_varnames, code.co_flags)


class Calls:
    """Packs the calls of one client.

    Args:
        payload_max_bytes: larger arguments are refused.
        blobs: folder for arguments above a MiB.
        client: names this client's blobs.
    """

    def __init__(self, payload_max_bytes: int, blobs: str, client: str) -> None:
        self._payload_max_bytes = payload_max_bytes
        self._blobs = Path(blobs)
        self._client = client
        self._functions: weakref.WeakKeyDictionary[Any, tuple[str, bytes, str, bool, str]] = weakref.WeakKeyDictionary()
        self._options: dict[TaskOptions, dict[tuple[str, bool], tuple[str | None, str]]] = {}

    def pack(
        self, counter: int, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: TaskOptions
    ) -> tuple[SubmitItem, bytes]:
        """One call as it travels, and the code of its function.

        Raises:
            PayloadNotPicklable: the function or an argument cannot be sent; the text names it.
            PayloadTooLarge: the arguments are larger than `payload_max_bytes`.
        """
        digest, code, name, is_async, print_ = self._function(fn)
        data = self._arguments(name, args, kwargs)
        blob = ""
        if len(data) > self._payload_max_bytes:
            raise PayloadTooLarge(
                f"The arguments of {name} take {len(data)} bytes, more than payload_max_bytes "
                f"({self._payload_max_bytes}) of pack.yaml allows. Pass a path, or raise the limit."
            )
        same = hashlib.blake2b(print_.encode() + data, digest_size=16).hexdigest() if options.key is not None else ""
        if len(data) > BLOB_BYTES:
            blob, data = self._write_blob(counter, data), b""
        needs, text = self._options_text(options, name, is_async)
        item = SubmitItem(
            counter, digest, same, data, blob, options.key, needs, text, options.delay_s, options.deadline_s
        )
        return item, code

    def _function(self, fn: Callable[..., Any]) -> tuple[str, bytes, str, bool, str]:
        # An object that is called, or a closure, may have changed since it was sent: only plain functions are kept.
        is_plain = type(fn) in _FUNCTIONS and not getattr(fn, "__closure__", None)
        if is_plain and fn in self._functions:
            return self._functions[fn]
        if not callable(fn):
            raise CallerError(f"submit takes a function first, not {type(fn).__name__} {fn!r:.80}")
        name = getattr(fn, "__qualname__", None) or repr(fn)
        try:
            code = cloudpickle.dumps(fn)
        except Exception as exc:
            raise PayloadNotPicklable(_blame_function(fn, name, exc)) from exc
        if len(code) > min(FUNCTION_MOST, self._payload_max_bytes):
            raise PayloadTooLarge(
                f"The function {name} carries {len(code)} bytes with it, more than "
                f"{min(FUNCTION_MOST, self._payload_max_bytes)} (payload_max_bytes, and at most {FUNCTION_MOST}). "
                "Pass large data as an argument, or read it inside the task."
            )
        digest = hashlib.blake2b(code, digest_size=16).hexdigest()
        found = (digest, code, name, inspect.iscoroutinefunction(fn), fingerprint(fn) or digest)
        if is_plain:
            self._functions[fn] = found
        return found

    def _arguments(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        if not args and not kwargs:
            return b""
        if not kwargs and all(type(arg) in _PLAIN for arg in args):
            return pickle.dumps((args, kwargs), 5)
        try:
            data: bytes = cloudpickle.dumps((args, kwargs))
            return data
        except Exception as exc:
            named = [*((f"argument {place}", arg) for place, arg in enumerate(args)), *kwargs.items()]
            for place, arg in named:
                try:
                    cloudpickle.dumps(arg)
                except Exception as inner:
                    raise PayloadNotPicklable(
                        f"{place} of {name} cannot be sent to another process: {_describe(arg)}: {inner}. "
                        "Pass what it is made from, and make it inside the task."
                    ) from exc
            raise PayloadNotPicklable(f"The arguments of {name} cannot be sent together: {exc}") from exc

    def _write_blob(self, counter: int, data: bytes) -> str:
        self._blobs.mkdir(exist_ok=True)
        path = self._blobs / f"{self._client}_{counter}-args"
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return str(path)

    def _options_text(self, options: TaskOptions, name: str, is_async: bool) -> tuple[str | None, str]:
        shared = options if options.key is None else replace(options, key=None)
        known = self._options.setdefault(shared, {}).get((name, is_async))
        if known is None:
            plain: dict[str, Any] = {"name": name}
            if options.priority:
                plain["priority"] = options.priority
            if options.timeout_s is not None:
                plain["timeout_s"] = options.timeout_s
            if options.retry is not None:
                plain["retry"] = retry_to_plain(options.retry)
            if is_async:
                plain["is_async"] = True
            needs = None if options.needs is None else json.dumps(options.needs.to_plain(), sort_keys=True)
            known = self._options[shared][name, is_async] = (needs, json.dumps(plain, separators=(",", ":")))
            if len(self._options) > 1000:
                self._options.clear()
        return known


def _describe(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = "?"
    return f"{type(value).__module__}.{type(value).__qualname__} {text[:80]}"


def _blame_function(fn: Callable[..., Any], name: str, exc: Exception) -> str:
    code = getattr(fn, "__code__", None)
    where = f", defined at {code.co_filename}:{code.co_firstlineno}" if code is not None else ""
    captured = getattr(fn, "__closure__", None) or ()
    for variable, cell in zip(code.co_freevars if code is not None else (), captured, strict=False):
        try:
            cloudpickle.dumps(cell.cell_contents)
        except Exception as inner:
            return (
                f"The function {name}{where} cannot be sent: it uses {variable!r} = {_describe(cell.cell_contents)}: "
                f"{inner}"
            )
    return f"The function {name}{where} cannot be sent to another process: {exc}"
