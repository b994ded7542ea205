"""Doors: the calls that others make of a keeper or a unit, who believe nobody.

A call whose arguments have not the shape they must have is refused as `Malformed` before anything was changed. It is
counted, and told in the log now and then, so that a broken caller is seen, and cannot fill the log.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from wolfpack.errors import Malformed

TOLD_EVERY = 1000  # of so many refusals one is told, beside the first

log = logging.getLogger("wolfpack.doors")


class HasDoors(Protocol):
    refused_calls: int


P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D", bound=HasDoors)


def door(
    call: Callable[Concatenate[D, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[D, P], Coroutine[Any, Any, T]]:
    """Marks a coroutine that others call: what it refuses as malformed is counted."""

    @functools.wraps(call)
    async def checked(self: D, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await call(self, *args, **kwargs)
        except Malformed as exc:
            self.refused_calls += 1
            if self.refused_calls % TOLD_EVERY == 1:
                log.warning("Refused a call of %s (%d so far): %s", call.__name__, self.refused_calls, exc)
            raise

    return checked
