"""Running one task: from the bytes of a job to the message that tells how it ended.

It imports little: what few tasks need (cloudpickle, traceback) is imported when one does, which starts hands faster.
Used by the hands, in their own process and in threads alike. Nothing that user code does gets out of here as an
exception: also `sys.exit()`, an exception whose `__str__` raises, and a value that cannot be pickled end as a message.

A message is a list for `frames`: `[lease_no, started_at, ended_at, payload, blob]` for a value, and
`["fault", lease_no, started_at, ended_at, payload, text, kinds, retry_after_s]` for what was raised.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from time import time as now  # user code may replace the one in the module
from typing import TYPE_CHECKING, Any

import msgpack

from wolfpack.errors import PayloadNotPicklable, PayloadTooLarge, Retry, TaskFault

if TYPE_CHECKING:
    from wolfpack.model import Job

# A larger value goes to a file of its own and never through the messages between the processes of a den.
INLINE_MAX_BYTES = 1 << 20
TRACEBACK_MAX_CHARS = 64 << 10
TEXT_MAX_CHARS = 500


class Runner:
    """Functions known by their hash, and what is needed to bring arguments in and values out."""

    def __init__(self, *, blobs: str, payload_max_bytes: int) -> None:
        self._blobs = blobs
        self._payload_max_bytes = payload_max_bytes
        self._code: dict[str, bytes] = {}
        self._functions: dict[str, Any] = {}

    def learn(self, fn: str, code: bytes) -> None:
        self._code[fn] = code

    def forget(self) -> None:
        self._code.clear()
        self._functions.clear()

    def knows(self, fn: str) -> bool:
        return fn in self._code

    def run(self, job: Job) -> list[Any]:
        """Runs a plain function and tells how it ended."""
        started_at = now()
        try:
            function = self._functions[job.fn] if job.fn in self._functions else self._load(job.fn)
            if job.args or job.blob:
                args, kwargs = self._arguments(job)
                value = function(*args, **kwargs)
            else:
                value = function()
            payload, blob = self._value_out(job, value)
        except BaseException as exc:  # SystemExit and KeyboardInterrupt too: the task raised it, the hands go on
            return self._fault(job, started_at, exc)
        return [job.lease_no, started_at, now(), payload, blob]

    async def run_async(self, job: Job) -> list[Any]:
        """Runs an `async def` function; a cancel from outside ends as the fault CancelledError."""
        started_at = now()
        try:
            function = self._functions[job.fn] if job.fn in self._functions else self._load(job.fn)
            args, kwargs = self._arguments(job)
            value = function(*args, **kwargs)
            if hasattr(value, "__await__"):
                value = await value
            payload, blob = self._value_out(job, value)
        except BaseException as exc:
            return self._fault(job, started_at, exc)
        return [job.lease_no, started_at, now(), payload, blob]

    def _load(self, fn: str) -> Any:
        function = self._functions[fn] = pickle.loads(self._code[fn])
        return function

    def _arguments(self, job: Job) -> tuple[tuple[Any, ...], dict[str, Any]]:
        data = job.args
        if job.blob:
            with open(job.blob, "rb") as file:
                data = file.read()
        args, kwargs = pickle.loads(data) if data else ((), {})
        return args, kwargs

    def _value_out(self, job: Job, value: Any) -> tuple[bytes, str]:
        """The pickled value, or the path of the file it is in.

        Raises:
            PayloadNotPicklable, PayloadTooLarge: with texts for the task's author.
        """
        if value is None:
            return _NONE, ""
        try:
            data = _dump(value)
        except Exception as exc:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise PayloadNotPicklable(
                f"The task returned an object of type {kind}, which cannot be sent to another process: "
                f"{_one_line(exc)}. Return plain data, or something that pickle can take."
            ) from exc
        if len(data) > self._payload_max_bytes:
            raise PayloadTooLarge(
                f"The task returned a value of {len(data):,} bytes; payload_max_bytes of pack.yaml allows "
                f"{self._payload_max_bytes:,}. Write it to a store of your own and return its address."
            )
        if len(data) <= INLINE_MAX_BYTES:
            return data, ""
        path = os.path.join(self._blobs, f"{job.task_id.replace(':', '_')}-{job.lease_no}")
        write_durably(path, data)
        return b"", path

    def _fault(self, job: Job, started_at: float, exc: BaseException) -> list[Any]:
        ended_at = now()
        kinds = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(exc).__mro__ if kind is not object]
        after_s = exc.after_s if isinstance(exc, Retry) else None
        if not isinstance(after_s, (int, float)):
            after_s = None
        payload = msgpack.packb([_dump_exception(exc), _traceback(exc)])
        return ["fault", job.lease_no, started_at, ended_at, payload, _one_line(exc), kinds, after_s]


_NONE = pickle.dumps(None, protocol=pickle.HIGHEST_PROTOCOL)


def _dump(value: Any) -> bytes:
    """Plain pickle is thirty times faster for small values; cloudpickle takes what it refuses (`__main__`, lambdas)."""
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        import cloudpickle

        data: bytes = cloudpickle.dumps(value)
        return data


def _dump_exception(exc: BaseException) -> bytes:
    """The pickled exception, tried out by loading it again; empty if that fails, or if it is large.

    What is no `Exception` (SystemExit, KeyboardInterrupt) goes as text only: raised again by a `result()`, it would end
    the caller's process instead of telling of the task's end.
    """
    if not isinstance(exc, Exception):
        return b""
    try:
        data: bytes = _dump(exc)
        if type(pickle.loads(data)) is type(exc) and len(data) <= INLINE_MAX_BYTES:
            return data
    except BaseException:  # user code runs in both directions, and may raise anything
        pass
    return b""


def _traceback(exc: BaseException) -> str:
    """The traceback as text, from the first frame of user code on."""
    import traceback

    frame = exc.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename == __file__:
        frame = frame.tb_next
    try:
        text = "".join(traceback.format_exception(type(exc), exc, frame))
    except BaseException as failed:  # a `__str__` that raises, a broken `__cause__`
        text = f"{type(exc).__name__} (its traceback could not be written: {type(failed).__name__})"
    text = text.encode("utf-8", "replace").decode()
    if len(text) > TRACEBACK_MAX_CHARS:
        half = TRACEBACK_MAX_CHARS // 2
        text = f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"
    return text


def _one_line(exc: BaseException) -> str:
    """`ValueError: what it says`, on one line."""
    try:
        said = " ".join(str(exc).split())
    except BaseException as failed:
        said = f"(its text could not be read: {type(failed).__name__})"
    text = f"{type(exc).__name__}: {said}" if said else type(exc).__name__
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= TEXT_MAX_CHARS else text[: TEXT_MAX_CHARS - 1] + "…"


def describe_fault(exc: BaseException) -> str:
    """The traceback of our caller's failure, for texts such as that of SetupFailed."""
    return _traceback(exc)


def write_durably(path: str, data: bytes) -> None:
    """Writes a file that a report may name: it and its name are on the disk when this returns.

    Raises:
        TaskFault: the disk did not take it; nothing is left behind.
    """
    folder = os.path.dirname(path)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)  # beside the ledger: a folder above that is gone is not made anew
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        holder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(holder)
        finally:
            os.close(holder)
    except OSError as exc:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise TaskFault(f"The result of {len(data):,} bytes could not be written to {path}: {exc}") from exc
