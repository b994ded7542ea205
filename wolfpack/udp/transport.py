"""One UDP socket for packets and one TCP listener, on the same port, for asks that a packet is too small for.

Theory of operation. Anybody can reach these ports, so nothing that comes in may stop, fill or end the process: a
packet has a size limit; a TCP caller has a size limit and one deadline for all it does; and of too many callers the
oldest is sent away, so those who connect and say nothing do not lock out who is done in a millisecond. What is refused
is counted by reason. What cannot be sent is counted too and gone, as a lost packet is.

The socket is read by hand and not by a datagram endpoint of asyncio, which takes one packet in each round of the loop:
a process that was stopped has hundreds waiting, and has to hear them before it judges that all others were silent.

On TCP: four bytes of length, big-endian, and the data; the caller asks once, gets one answer, and the connection ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from wolfpack.core.items import PACKET_MOST
from wolfpack.errors import OperatorError
from wolfpack.udp.addresses import find_place, format_place, resolve
from wolfpack.udp.seal import Seal, Use

__all__ = ["Ports", "Transport", "open_ports"]

log = logging.getLogger(__name__)

# Ten thousand units with addresses and loads are under 1 MiB. Reading a frame of strangers of this size takes the loop
# a few tenths of a second, so not more than that.
FRAME_MOST = 2 << 20
EXCHANGE_S = 5.0  # all of one ask: connect, send, answer
CALLERS_MOST = 32
ASKS_MOST = 16
BACKLOG = 8  # callers taken in one round of the loop: far fewer than CALLERS_MOST, or a flood sends all others away
DRAIN_MOST = 512  # packets in one round of the loop: then the timers have their turn
BUFFER_BYTES = 1 << 20
BIND_S = 2.0
BIND_TRIES = 50
AGAIN_S = 0.1
_HEAD_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Both sockets, bound to the same port."""

    udp: socket.socket
    tcp: socket.socket
    family: int
    host: str
    port: int

    def close(self) -> None:
        self.udp.close()
        self.tcp.close()


class _Refused(Exception):
    """The other side broke a rule; its text is the counter's name."""


async def open_ports(host: str, port: int) -> Ports:
    """Binds a UDP socket and a TCP listener to one port; 0: any that is free for both.

    A port that is taken is tried again for some seconds: its last owner may just be ending.

    Raises:
        OperatorError: that cannot be had.
    """
    loop = asyncio.get_running_loop()
    place = await resolve(host, port, 0, BIND_S)
    if place is None:
        raise OperatorError(f"Cannot listen on {host!r}: this machine does not know that name.")
    family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
    until = loop.time() + BIND_S
    tries = 0
    while True:
        tries += 1
        try:
            return _bind(family, place[0], port)
        except OSError as exc:
            again = exc.errno == errno.EADDRINUSE and (loop.time() < until if port else tries < BIND_TRIES)
            if not again:
                where = format_place(place[0], port)
                raise OperatorError(f"Cannot listen on {where}, by UDP and TCP: {exc}. Bind to another port.") from exc
        await asyncio.sleep(AGAIN_S if port else 0)


def _bind(family: int, host: str, port: int) -> Ports:
    with contextlib.ExitStack() as undo:
        udp = undo.enter_context(socket.socket(family, socket.SOCK_DGRAM))
        tcp = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
        for sock in (udp, tcp):
            sock.setblocking(False)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # A listener may take a port whose old connections still fade away. With UDP the same option would let two
        # processes share one port, so not there.
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            with contextlib.suppress(OSError):
                udp.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        udp.bind((host, port))
        bound = int(udp.getsockname()[1])
        tcp.bind((host, bound))
        tcp.listen(BACKLOG)
        undo.pop_all()
    return Ports(udp=udp, tcp=tcp, family=family, host=host, port=bound)


class Transport:
    """Sends and receives for one member, inside a running loop.

    Args:
        ports: it closes them at its end.
        seal: of the den's secret.
        counters: what happened, by name; it only adds.
        on_packet: (source, data) of each packet.
        on_ask: (source, data) of each ask; gives the answer, or None: none is due.
    """

    def __init__(
        self, ports: Ports, seal: Seal, counters: Counter[str], *, on_packet: Callable[[str, bytes], None],
        on_ask: Callable[[str, bytes], bytes | None],
    ) -> None:  # fmt: skip
        self._ports, self._seal, self._counters = ports, seal, counters
        self._on_packet, self._on_ask = on_packet, on_ask
        self._udp = ports.udp
        self._most = PACKET_MOST + seal.size_bytes
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._callers: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._asks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._on_caller, sock=self._ports.tcp, backlog=BACKLOG)
        self._loop.add_reader(self._udp.fileno(), self.drain)

    async def close(self) -> None:
        """Nothing comes in or leaves any more."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._udp.fileno())
        if self._server is not None:
            self._server.close()
        tasks = [*self._callers, *self._asks]
        for task in tasks:
            task.cancel()
        self._ports.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- packets

    def drain(self) -> None:
        """Takes in what is waiting, up to a bound: packets of a flood leave time for the rest."""
        counters = self._counters
        for _ in range(DRAIN_MOST):
            if self._closed:
                return
            try:
                data, place = self._udp.recvfrom(self._most + 1)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # an ICMP error that an earlier packet brought back
                counters["receive_errors"] += 1
                continue
            counters["packets_in"] += 1
            counters["bytes_in"] += len(data)
            if len(data) > self._most:
                counters["packets_too_large"] += 1
                continue
            inner = self._seal.take(data, Use.PACKET)
            if inner is None:
                counters["packets_unsealed"] += 1
                continue
            self._on_packet(format_place(place[0], place[1]), inner)

    def send(self, to: str, data: bytes) -> None:
        """One packet, perhaps."""
        place = find_place(to, self._ports.family)
        if place is None:
            self._counters["addresses_refused"] += 1
            return
        sealed = self._seal.put(data, Use.PACKET)
        try:
            self._udp.sendto(sealed, place)
        except (BlockingIOError, InterruptedError):
            self._counters["send_buffer_full"] += 1
        except OSError:
            self._counters["send_errors"] += 1
        else:
            self._counters["packets_out"] += 1
            self._counters["bytes_out"] += len(sealed)

    # --- asks

    def ask(self, to: str, data: bytes, on_answer: Callable[[bytes], None]) -> None:
        """Asks over TCP; `on_answer` is called with the answer, or never."""
        place = find_place(to, self._ports.family)
        if place is None:
            self._counters["addresses_refused"] += 1
        elif len(self._asks) >= ASKS_MOST:
            self._counters["asks_too_many"] += 1
        else:
            task = self._loop.create_task(self._ask(place, data, on_answer), name=f"wolfpack-ask-{to}")
            self._asks.add(task)
            task.add_done_callback(self._asks.discard)

    async def _ask(self, place: tuple[str, int], data: bytes, on_answer: Callable[[bytes], None]) -> None:
        self._counters["asks"] += 1
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(EXCHANGE_S):
                reader, writer = await self._connect(place)
                await self._write_frame(writer, data, Use.ASK)
                answer = await self._read_frame(reader, Use.ANSWER)
        except (OSError, EOFError, TimeoutError, _Refused):
            self._counters["asks_failed"] += 1
            return
        finally:
            if writer is not None:
                writer.transport.abort()
        on_answer(answer)

    async def _connect(self, place: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Who refuses may be starting just now: tried again until the deadline of the ask."""
        pause_s = AGAIN_S
        while True:
            try:
                return await asyncio.open_connection(*place)
            except ConnectionRefusedError:
                await asyncio.sleep(pause_s)
                pause_s *= 2

    def _on_caller(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:
            writer.transport.abort()
            return
        if len(self._callers) >= CALLERS_MOST:
            oldest = next(iter(self._callers))
            del self._callers[oldest]
            oldest.cancel()
            self._counters["callers_sent_away"] += 1
        task = self._loop.create_task(self._serve(reader, writer), name="wolfpack-caller")
        self._callers[task] = None
        task.add_done_callback(partial(self._on_served, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(EXCHANGE_S):
                peer = writer.get_extra_info("peername") or ("", 0)
                data = await self._read_frame(reader, Use.ASK)
                answer = self._on_ask(format_place(peer[0], peer[1]), data)
                if answer is None:
                    self._counters["callers_refused"] += 1
                    return
                await self._write_frame(writer, answer, Use.ANSWER)
                self._counters["callers_answered"] += 1
                writer.close()  # all is written; the other side gets it before the end
                await writer.wait_closed()
        except TimeoutError:
            self._counters["callers_too_slow"] += 1
        except _Refused as exc:
            self._counters[str(exc)] += 1
        except (OSError, EOFError):
            self._counters["callers_broken"] += 1

    def _on_served(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        """Also of a caller that was sent away before its task began."""
        self._callers.pop(task, None)
        writer.transport.abort()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._counters["bugs"] += 1
            log.error("A caller could not be served; the rest goes on.", exc_info=error)

    async def _read_frame(self, reader: asyncio.StreamReader, use: Use) -> bytes:
        """One frame.

        Raises:
            _Refused: it is too large, or not sealed by this den.
            EOFError: the connection ended before.
        """
        size = int.from_bytes(await reader.readexactly(_HEAD_BYTES), "big")
        if not 0 < size <= FRAME_MOST:
            raise _Refused("frames_too_large")
        data = self._seal.take(await reader.readexactly(size), use)
        if data is None:
            raise _Refused("frames_unsealed")
        return data

    async def _write_frame(self, writer: asyncio.StreamWriter, data: bytes, use: Use) -> None:
        """Returns when all of it is with the kernel: a caller that reads nothing keeps nothing of it in memory."""
        sealed = self._seal.put(data, use)
        if len(sealed) > FRAME_MOST:
            raise _Refused("frames_too_large")
        writer.transport.set_write_buffer_limits(0)
        writer.write(len(sealed).to_bytes(_HEAD_BYTES, "big") + sealed)
        await writer.drain()
