"""`Den` and `Pack`: what users hold. Thin faces over one submit path and one watch path (`courier`), and events."""

from __future__ import annotations

import atexit
import contextlib
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from wolfpack.call import Calls, plain_options
from wolfpack.courier import LOOK_MOST, Courier
from wolfpack.errors import CallerError, DenClosed, DenUnreachable, WolfPackError, unknown_name
from wolfpack.events import Recorded, encode
from wolfpack.future import Future, read_story
from wolfpack.model import DenSpec, Needs, PackSpec, Readiness, RetryPolicy, TaskOptions, UnitRecord, UnitSeen
from wolfpack.observer import Observer, follow, read_events

VIEW_S = 3.0  # a unit that is asked for its view answers within so long
AWAKE = (Readiness.AWAKE, Readiness.DRAINING)
DRAW_S = 10.0  # a den that closes waits so long for its last pictures

_open_dens: weakref.WeakSet[Den] = weakref.WeakSet()


class Pack:
    """One pack of a den. `submit` hands every argument to the function; options go through `options`."""

    def __init__(self, den: Den, name: str, options: TaskOptions | None = None) -> None:
        self.den = den
        self.name = name
        self._options = options or TaskOptions()

    def options(self, **options: Any) -> Pack:
        """The same pack with options for the tasks submitted through it.

        Args:
            needs: tags, or a mapping `{tag: True, measure: minimum}`; default: the pack's own.
            key: makes the task unique in its pack; the same key with the same code and arguments is the same task.
            priority: higher goes first; each step is worth a minute of waiting.
            deadline_s: seconds from now after which the task is dead.
            delay_s: seconds from now before which it does not start.
            timeout_s: longest run of one attempt in seconds.
            retry: a mapping as in pack.yaml.

        Raises:
            CallerError: an unknown option, or a value of the wrong kind.
        """
        return Pack(self.den, self.name, plain_options(self._options, options))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Queues `fn(*args, **kwargs)` and returns its future at once.

        Raises:
            PayloadNotPicklable, PayloadTooLarge: the call cannot be sent; nothing was queued.
            DenClosed: the den was closed.
        """
        return self.den._submit(self.name, self._options, fn, args, kwargs)

    def map(self, fn: Callable[[Any], Any], iterable: Iterable[Any], /, *, prefetch: int = 1000) -> Iterator[Any]:
        """Yields `fn(item)` for each item, in the order of the items.

        At most `prefetch` tasks are ahead of the one that is yielded, so an endless generator is welcome. When the
        iteration is given up, what has not started is cancelled.
        """
        if prefetch < 1:
            raise CallerError(f"prefetch must be at least 1, not {prefetch}")
        return self._map(fn, iterable, prefetch)

    def _map(self, fn: Callable[[Any], Any], iterable: Iterable[Any], prefetch: int) -> Iterator[Any]:
        items = iter(iterable)
        ahead: deque[Future] = deque()
        try:
            for item in items:
                ahead.append(self.submit(fn, item))
                if len(ahead) >= prefetch:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()

    def scale(self, fewest: int, most: int) -> None:
        """Sets the fewest and the most members. Durable; the alpha follows at its next plan.

        Raises:
            CallerError: not 0 <= fewest <= most.
        """
        self.den._ask("scale", self.name, fewest, most, "by hand")

    def drain(self, timeout_s: float | None = None) -> None:
        """Takes no new tasks and waits until those that are there have ended.

        Raises:
            TimeoutError: they have not within `timeout_s` seconds; the pack goes on draining.
        """
        self.den._ask("drain", self.name, "by hand")
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            stats = self.stats()
            if not stats["queued"] and not stats["leased"]:
                return
            if end is not None and time.monotonic() > end:
                raise TimeoutError(f"{stats['queued']} queued and {stats['leased']} running tasks are left")
            time.sleep(0.05)

    def stats(self) -> dict[str, Any]:
        """Numbers of tasks by state, members, term, alpha, and the latest plan with its reasons."""
        packs: dict[str, dict[str, Any]] = self.den.stats()["packs"]
        if self.name not in packs:
            raise unknown_name("pack", self.name, packs)
        return packs[self.name]

    def why(self, task: Future | str) -> str:
        """Why a task is where it is."""
        return self.den.why(task)

    def __repr__(self) -> str:
        return f"<wolfpack.Pack {self.name!r} of den {self.den.name!r}>"


class Den:
    """A den that this process holds open. Made by `wolfpack.open`."""

    def __init__(
        self, spec: DenSpec, *, address: str | None = None, detached: bool = False, join_only: bool = False
    ) -> None:
        from wolfpack.den.gateway import Gateway  # brings Ray

        self.spec = spec
        self.name = spec.den
        self._client = uuid.uuid4().hex[:12]
        self._gateway = Gateway(spec, client=self._client, address=address, detached=detached, join_only=join_only)
        self._calls = Calls(spec.payload_max_bytes, self._gateway.blobs, self._client)
        self._detached = detached or join_only
        self._closing = False
        self._observers: list[Observer] = []
        self._courier = Courier(self._gateway, self._client, self._submit_timeout_s, self._on_new_keeper)
        self._drawer = self._draw_graphs(spec.graphs) if spec.graphs is not None else None
        _open_dens.add(self)

    def _submit_timeout_s(self, pack: str) -> float:
        spec = next((each for each in self.spec.packs if each.name == pack), None)
        return spec.submit_timeout_s if spec is not None else PackSpec(name=pack).submit_timeout_s

    def _on_new_keeper(self) -> None:
        if not self._detached:
            self._gateway.hold_tether()

    # --- packs --------------------------------------------------------------------------------------------------

    def packs(self) -> list[str]:
        """Names of the packs."""
        names: list[str] = self._ask("packs")
        return names

    def pack(self, name: str | None = None) -> Pack:
        """A pack by its name; none is needed where there is only one.

        Raises:
            UnknownName: there is no such pack; the error lists those there are.
        """
        names = self.packs()
        if name is None:
            if len(names) != 1:
                raise CallerError(f"This den has {len(names)} packs, so name one: {', '.join(names) or 'none yet'}.")
            return Pack(self, names[0])
        if name not in names:
            raise unknown_name("pack", name, names)
        return Pack(self, name)

    def create_pack(
        self,
        name: str,
        *,
        size: tuple[int, int] = (0, 1),
        needs: Any = None,
        retry: Mapping[str, Any] | RetryPolicy | None = None,
        **settings: Any,
    ) -> Pack:
        """Makes a pack while the den runs; durable. Settings are those of pack.yaml.

        Raises:
            CallerError: a setting that cannot be, or needs that no unit offers.
        """
        from wolfpack.config import pack_from_settings

        spec: PackSpec = pack_from_settings(name, size=size, needs=needs, retry=retry, settings=settings)
        self._ask("create_pack", spec)
        return Pack(self, name)

    def drop_pack(self, name: str) -> None:
        """Ends a pack: its queued tasks are cancelled, its running ones killed, its members leave."""
        self._ask("drop_pack", name, "by hand")

    # --- tasks --------------------------------------------------------------------------------------------------

    def _submit(
        self, pack: str, options: TaskOptions, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Future:
        options = plain_options(getattr(fn, "_wolfpack_options", None), None, over=options)
        counter = self._courier.next_counter()
        item, code = self._calls.pack(counter, fn, args, kwargs, options)
        future = Future(self, f"{self._client}:{counter}")
        self._courier.send(pack, item, code, future)
        return future

    def future(self, task_id: str) -> Future:
        """The future of a task that was submitted before, by anybody.

        Raises:
            UnknownName: nobody ever submitted a task with this id.
        """
        return self._courier.await_end_of(Future(self, task_id))

    def why(self, task: Future | str) -> str:
        """Why a task is where it is: its place in the queue, its unit, what it waits for, or how it ended."""
        text: str = self._ask("why", task if isinstance(task, str) else self._acknowledged(task))
        return text

    def flush(self) -> None:
        """Waits until everything submitted so far by this process is durable, or was refused."""
        self._courier.flush()

    def stop_submitting(self) -> int:
        """From now on every submit of this process raises `DenClosed`; what was submitted goes on.

        Returns:
            How many tasks of this process have not ended.
        """
        return self._courier.stop_submitting()

    def unsettled(self) -> int:
        """How many tasks of this process have not ended."""
        return len(self._courier.unsettled())

    def cancel_all(self, *, kill: bool = False) -> int:
        """Cancels what this process submitted and has not ended; with `kill`, also what runs.

        Returns:
            How many tasks were cancelled or are marked to be.
        """
        self.flush()
        task_ids = self._courier.unsettled()
        portions = (task_ids[start : start + LOOK_MOST] for start in range(0, len(task_ids), LOOK_MOST))
        return sum(len(self._ask("cancel", portion, kill)) for portion in portions)

    def _acknowledged(self, future: Future) -> str:
        self._courier.await_sent(future)
        return future.task_id

    def _cancel(self, future: Future, *, kill: bool) -> bool:
        if self._courier.take_out(future):
            return True
        found: list[str] = self._ask("cancel", [future.task_id], kill)
        if not found:
            return future.cancelled()
        end = time.monotonic() + 1.0
        while not future.done() and not kill and time.monotonic() < end:
            if "leased" in self.why(future):
                return False
            time.sleep(0.01)
        return True

    # --- units and facts ----------------------------------------------------------------------------------------

    def units(self) -> list[UnitRecord]:
        """Every unit of the pool as a frozen record: where it stands, and what it holds."""
        records: list[UnitRecord] = self._ask("units")
        return records

    def view_of(self, unit: str) -> list[UnitSeen]:
        """What one awake unit thinks of all it knows, itself included: who lives, and how busy each is.

        Units tell each other such things to choose and to notice; it may be seconds old, or wrong. `units()` is the
        ledger's word.

        Raises:
            UnknownName: there is no such unit.
            CallerError: it sleeps, or is waking up.
            DenUnreachable: it does not answer, as a frozen unit does.
        """
        records = {record.id: record for record in self.units()}
        if unit not in records:
            raise unknown_name("unit", unit, records)
        record = records[unit]
        if record.readiness not in AWAKE:
            raise CallerError(
                f"{unit} is {record.readiness} and has no view ({record.reason or 'nobody needs it'}). "
                f"Wake it with den.wake({unit!r}), or ask another unit."
            )
        seen = self._views([record]).get(unit)
        if seen is None:
            raise DenUnreachable(f"{unit} (boot {record.boot}) did not answer within {VIEW_S:g} s.")
        return seen

    def views(self) -> dict[str, list[UnitSeen] | None]:
        """`view_of` every awake unit, asked all at once; None for one that does not answer."""
        awake = [record for record in self.units() if record.readiness in AWAKE]
        views = self._views(awake)
        return {record.id: views.get(record.id) for record in awake}

    def _views(self, records: Iterable[UnitRecord]) -> dict[str, list[UnitSeen]]:
        answers = self._gateway.ask_units([(each.id, each.boot) for each in records], "view", VIEW_S)
        return {unit: seen for unit, (seen, _) in answers.items()}

    def stats(self) -> dict[str, Any]:
        """Sums over the den, read from the ledger, and each pack's; `conservation` says that they add up."""
        stats: dict[str, Any] = self._ask("stats")
        return stats

    def keeper(self) -> dict[str, Any]:
        """What the keeper says of itself: its process `pid`, its Ray `node`, its `epoch` (one more at each birth)."""
        status: dict[str, Any] = self._ask("status")
        return {name: status[name] for name in ("pid", "node", "epoch")}

    def wake(self, unit: str) -> None:
        """Wakes a sleeping unit; it goes back to sleep when nobody needs it. A quarantined one gets a new chance."""
        self._ask("order_unit", unit, "wake", None, "woken by hand")

    def sleep(self, unit: str, grace_s: float | None = None) -> None:
        """Puts a unit to sleep; what it runs is evicted after `grace_s` (default: its card's)."""
        self._ask("order_unit", unit, "sleep", grace_s, "put to sleep by hand")

    def release(self, unit: str) -> None:
        """Takes a unit out of its pack when it has finished what it runs."""
        self._ask("order_unit", unit, "release", None, "released by hand")

    def recall(self, unit: str, grace_s: float | None = None) -> None:
        """Calls a unit home; what it runs is evicted after `grace_s` (default: its card's)."""
        self._ask("order_unit", unit, "recall", grace_s, "recalled by hand")

    def dead(self, pack: str | None = None, limit: int = 1000) -> list[dict[str, Any]]:
        """The newest dead letters, each with its whole story."""
        letters: list[dict[str, Any]] = self._ask("dead", pack, limit)
        return [{**letter, "story": read_story(letter["story"])} for letter in letters]

    def replay(self, task_ids: Iterable[str], needs: Any = None) -> list[str]:
        """Queues dead letters again, with other needs if given."""
        wanted = Needs.parse(needs).to_plain() if needs is not None else None
        replayed: list[str] = self._ask("replay", list(task_ids), wanted)
        return replayed

    def drop_dead(self, task_ids: Iterable[str]) -> list[str]:
        """Removes dead letters; they stay counted as dead."""
        dropped: list[str] = self._ask("drop_dead", list(task_ids))
        return dropped

    # --- events -------------------------------------------------------------------------------------------------

    def events(self, since: int = 0) -> list[Recorded]:
        """Every event after this number, in order."""
        return read_events(self._gateway, since)

    def publish(self, event: Any) -> int:
        """Stores an event of your own (an instance of a frozen dataclass of plain fields); returns its number."""
        number: int = self._ask("publish", f"client {self._client}", [encode(event)])
        return number

    def follow(self, since: int = 0) -> Iterator[Recorded]:
        """Every event after this number, in order, and then each new one when it comes, until the den ends."""
        return follow(self._gateway, since)

    def on(self, kind: type[Any], handler: Callable[[Any], None], since: int | None = None) -> Callable[[], None]:
        """Calls `handler(event)` for each event of this class, in the order of their numbers.

        Each handler has a thread of its own in this process, and should be light. What it raises is logged and goes no
        further.

        Args:
            since: start after this number; None: with what comes from now on.

        Returns:
            A function that ends the subscription.
        """
        if since is None:
            since = self._latest_event()
        observer = Observer(self._gateway, kind, handler, since, f"on-{kind.__name__}")
        self._observers.append(observer)
        return observer.stop

    def _latest_event(self) -> int:
        number: int = self._ask("last_event")
        return number

    def graph(self, path: str | Path) -> Path:
        """Draws the den as it stands (who leads whom, and who led before) into an SVG or PNG file."""
        import viz

        target = Path(path)
        viz.render_now(self.events(), target)
        return target

    def _draw_graphs(self, folder: str) -> Observer:
        """A picture at each change of leadership; one without a picture of what came before has none to follow."""
        import viz

        recorder = viz.GraphRecorder(folder, self.name, since=self._latest_event())
        drawer = Observer(self._gateway, None, recorder, 0, "graphs")
        self._observers.append(drawer)
        return drawer

    # --- the end ------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where the Ray of this den can be joined: for `wolfpack.open(..., address=)` in another process."""
        return self._gateway.address

    @property
    def is_closed(self) -> bool:
        """Whether this process left the den, or the den ended."""
        return self._gateway.is_closed

    def end(self, reason: str) -> None:
        """Ends the den for everybody, also a detached or a joined one, and leaves it."""
        self._gateway.end_den(reason)
        self.close()

    def close(self) -> None:
        """Leaves the den; it ends with the last driver that leaves, if it is not detached.

        Futures that are not settled get `DenClosed`. What is left in the ledger goes on when the den is opened again.
        """
        if self._closing:
            return
        self._closing = True
        self._courier.close()
        if self._drawer is not None:
            with contextlib.suppress(WolfPackError):
                self._drawer.catch_up(self._gateway.call("last_event"), DRAW_S)
        if not self._detached:
            self._gateway.leave_den("closed by its last driver")
        self._gateway.is_closed = True
        for observer in self._observers:
            observer.join()
        self._courier.join()
        self._gateway.leave()
        kept = "" if self.spec.ledger.startswith("memory:") else "; its ledger keeps the task"
        self._courier.abandon(f"The den {self.name!r} was closed{kept}.")
        _open_dens.discard(self)

    def __enter__(self) -> Den:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<wolfpack.Den {self.name!r}>"

    def _ask(self, method: str, *args: Any) -> Any:
        if self._closing:
            raise DenClosed(f"The den {self.name!r} was closed; open it again.")
        return self._gateway.call(method, *args)


@atexit.register
def _close_all() -> None:
    for den in list(_open_dens):
        with contextlib.suppress(Exception):
            den.close()
