"""The driver: it carries out a node's effects with real sockets, a real disk and a real clock, and decides nothing.

The node is that of `tidings.protocol`, unchanged; `tidings.storm` drives the same one in virtual time. Everything
happens on one event loop: all that arrived in one turn of the loop is one turn of the node, and what the node sends in
a turn is one write per connection. A thread makes commits, which are confirmed on the loop.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from tidings.errors import TidingsError
from tidings.live.configuration._address import Address
from tidings.live.transport._clock import Clock
from tidings.live.transport._connection import SEND_BUFFER_BYTES, Connection
from tidings.live.transport._listener import Handshake
from tidings.protocol import Acknowledged, HandedOver, Note, SetTimer
from tidings.protocol.node import Commit, Dial, Node, NodeEffect, Read, Shut, Write

if TYPE_CHECKING:
    from tidings.live.storage._committer import Committer  # with LMDB, which a client does not have

__all__ = ["Driver", "Tracer", "why_not_reached"]


class Tracer(Protocol):
    """Records what happens to events."""

    def note(self, note: Note, now_ns: int) -> None:
        """Something happened to an event."""

    def handed_over(self, report: HandedOver) -> None:
        """A client has handed events to its application."""

    def acknowledged(self, report: Acknowledged, now_ns: int) -> None:
        """A peer has acknowledged events."""

    def stored(self, writes: dict[str, bytes | None], now_ns: int) -> None:
        """Values are stored or erased."""

    def tick(self) -> None:
        """Time has passed."""

    def close(self) -> None:
        """The driver has stopped."""


class Driver:
    """A node with its connections; `on_effect` receives the effects that concern the application or the operator.

    `before_write` decides whether bytes may be sent. Whatever they acknowledge was handed over before.
    """

    def __init__(
        self,
        node: Node,
        clock: Clock,
        *,
        on_effect: Callable[[NodeEffect], None],
        on_bug: Callable[[Exception], None] = lambda error: None,  # noqa: ARG005
        before_write: Callable[[], bool] = lambda: True,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        send_buffer_bytes: int = SEND_BUFFER_BYTES,
    ) -> None:
        self.node = node
        self.clock = clock
        self.committer: Committer | None = None
        self.tracer: Tracer | None = None
        self.connections: dict[str, Connection] = {}
        self._on_effect = on_effect
        self._on_bug = on_bug
        self._before_write = before_write
        self._tls = tls
        self._send_buffer_bytes = send_buffer_bytes
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._dials: dict[str, asyncio.Task[None]] = {}  # by outgoing connection that is being opened
        self._handshakes: dict[str, Handshake] = {}  # by incoming connection
        self._shaking: set[asyncio.Task[None]] = set()
        self._is_turn_due = False
        self._accepted = 0

    # -- what the application does -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the machine."""
        self.call_node(self.node.start)

    def call(self, do: Callable[..., Any], *what: Any, **more: Any) -> Any:
        """Call the machine with the time; carry out its effects and return any other result."""
        now_ns = self.clock.now_ns()
        rest, effects = self.node.call(do, now_ns, *what, **more)
        self._carry_out(effects, now_ns)
        return rest

    def call_at_once(self, do: Callable[..., Any], *what: Any) -> None:
        """The same; what is to be written leaves now, not in the next turn of the event loop."""
        self._is_turn_due = True  # none has to be scheduled
        try:
            self.call(do, *what)
        finally:
            self._turn()

    def call_node(self, do: Callable[..., list[NodeEffect]], *what: Any, **more: Any) -> None:
        """Call the node with the time. An exception is a bug of ours and leaves the node in an unknown state."""
        now_ns = self.clock.now_ns()
        try:
            self._carry_out(do(*what, now_ns, **more), now_ns)
        except Exception as error:
            self._on_bug(error)
            raise

    def accept(self) -> Connection:
        """An incoming connection, for a listener."""
        self._accepted += 1
        name = f"in-{self._accepted}"
        return Connection(self, name, is_accepted=True, send_buffer_bytes=self._send_buffer_bytes)

    def accept_tls(self, bare: socket.socket, address: str, tls: ssl.SSLContext) -> None:
        """An incoming connection that still has to complete TLS; it counts as a connection from now on."""
        handshake = Handshake(bare, self.accept())
        name = handshake.connection.name
        self._handshakes[name] = handshake
        task = self._loop.create_task(self._shake_hands(handshake, tls))
        self._shaking.add(task)
        task.add_done_callback(self._shaking.discard)
        self.call_node(self.node.accepted, name, address=address)

    async def _shake_hands(self, handshake: Handshake, tls: ssl.SSLContext) -> None:
        why = await handshake.shake_hands(tls)
        if self._handshakes.pop(handshake.connection.name, None) is not None and why is not None:
            self.call_node(self.node.lost, handshake.connection.name, why)

    def stop(self) -> None:
        """Stop waking the node and opening connections."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in (*self._dials.values(), *self._shaking):
            task.cancel()

    def flush(self) -> None:
        """Write now what waits for the end of this turn."""
        self._turn()

    # -- what connections say ------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        """There is a connection."""
        self.connections[connection.name] = connection
        self._handshakes.pop(connection.name, None)
        self.call_node(
            self.node.opened,
            connection.name,
            address=connection.address,
            certified=connection.certified,
            is_encrypted=connection.is_encrypted,
            is_local=connection.is_local,
        )

    def received(self, connection: Connection, data: bytes) -> None:
        """Bytes, processed together with all others of this turn."""
        self._came(is_much=self.node.received(connection.name, data))

    def handed(self, connection: Connection, frames: list[bytes]) -> None:
        """The same for frames of a node in this process."""
        self._came(is_much=self.node.handed(connection.name, frames))

    def _came(self, *, is_much: bool) -> None:
        if is_much:
            self._turn()
        elif not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._due_turn)

    def lost(self, connection: Connection, reason: str) -> None:
        """A connection is gone."""
        if self.connections.pop(connection.name, None) is not None:
            self.call_node(self.node.lost, connection.name, reason)

    def congested(self, connection: Connection, *, is_congested: bool) -> None:
        """The socket takes no more for now, or takes more again."""
        self.call_node(self.node.congested, connection.name, is_congested=is_congested)

    def _due_turn(self) -> None:
        if self._is_turn_due:  # otherwise it has taken place already
            self._turn()

    def _turn(self) -> None:
        self._is_turn_due = False
        self.call_node(self.node.turn)

    # -- what the node wants -------------------------------------------------------------------------------------

    def _carry_out(self, effects: list[NodeEffect], now_ns: int) -> None:
        for effect in effects:
            kind = type(effect)
            if kind is Write:
                connection = self.connections.get(effect.connection)  # type: ignore[union-attr]
                if connection is not None and self._before_write():
                    unsent_bytes = connection.write(effect.parts)  # type: ignore[union-attr]
                    if unsent_bytes and not connection.is_local:
                        self._carry_out(self.node.wrote(connection.name, unsent_bytes, now_ns), now_ns)
            elif kind is Note:
                if self.tracer is not None:
                    self.tracer.note(effect, now_ns)  # type: ignore[arg-type]
            elif kind is SetTimer:
                self._set_timer(effect.at_ns, now_ns)  # type: ignore[union-attr]
            elif kind is Commit:
                self._commit(effect, now_ns)  # type: ignore[arg-type]
            elif kind is Acknowledged:
                if self.tracer is not None:
                    self.tracer.acknowledged(effect, now_ns)  # type: ignore[arg-type]
            elif kind is HandedOver:
                if self.tracer is not None:
                    self.tracer.handed_over(effect)  # type: ignore[arg-type]
            elif kind is Dial:
                task = self._loop.create_task(self._dial(effect))  # type: ignore[arg-type]
                self._dials[effect.connection] = task  # type: ignore[union-attr]
            elif kind is Shut:
                self._shut(effect)  # type: ignore[arg-type]
            elif kind is Read:
                connection = self.connections.get(effect.connection)  # type: ignore[union-attr]
                if connection is not None:
                    connection.read(is_on=effect.is_on)  # type: ignore[union-attr]
            else:
                self._on_effect(effect)
        if self.node.is_stirred and not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._due_turn)

    def _commit(self, commit: Commit, now_ns: int) -> None:
        assert self.committer is not None, "only brokers store"
        if self.tracer is not None:
            self.tracer.stored(commit.writes, now_ns)
        self.committer.commit(commit)

    def _shut(self, shut: Shut) -> None:
        connection = self.connections.get(shut.connection)
        if connection is None:
            task, handshake = self._dials.get(shut.connection), self._handshakes.get(shut.connection)
            if task is not None:
                task.cancel(shut.reason)
            elif handshake is not None:
                handshake.abort(shut.reason)
        elif shut.at_once:
            connection.abort(shut.reason)
        else:
            connection.close(shut.reason)

    def _set_timer(self, at_ns: int, now_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # uvloop counts whole milliseconds: without half of one more it would wake the node too early, again and again.
        self._timer = self._loop.call_later((max(at_ns - now_ns, 0) + 500_000) * 1e-9, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.call_node(self.node.wake)

    async def _dial(self, dial: Dial) -> None:
        """Open a connection and report to the node that it is open, or why it is not."""
        connection = Connection(self, dial.connection, send_buffer_bytes=self._send_buffer_bytes)
        why, code = "", ""
        try:
            address = Address.parse(dial.address)
            tls = self._tls()
            server_hostname = (dial.server_name or address.host) if tls is not None else None
            await self._loop.create_connection(
                lambda: connection, address.host, address.port, ssl=tls, server_hostname=server_hostname
            )
        except asyncio.CancelledError as error:
            why = str(error)
        except ssl.SSLError as error:
            why, code = f"{dial.address}: {error.reason or error}", "certificate"
        except OSError as error:
            why = why_not_reached(dial.address, error)
        except TidingsError as error:
            why = str(error)
        except Exception as error:
            # Unexpected, and dialling must continue: log it, and let the node try again.
            self._loop.call_exception_handler({"message": f"dialling {dial.address} failed", "exception": error})
            why = f"{dial.address}: {type(error).__name__}: {error}"
        del self._dials[dial.connection]
        if dial.connection not in self.connections:
            self.call_node(self.node.lost, dial.connection, why or "the other end closed it", code=code)


def why_not_reached(address: object, error: OSError) -> str:
    """Why nobody answers at an address, and what to check."""
    # The error number of a failed host lookup is not one of the system's.
    number = None if isinstance(error, socket.gaierror) else error.errno
    why = os.strerror(number) if number else error.strerror or str(error)
    return f"{address} cannot be reached: {why}; is the broker running?"
