"""The MQTT door of a broker: sockets, WebSockets and a store for the door of `tidings.mqtt`, which decides.

The gateway has a store of its own, in `mqtt` beside the broker's: its sessions, messages under way and retained
messages.
"""

import asyncio
import contextlib
import random
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidings.errors import TidingsError
from tidings.live._errors import StoreError
from tidings.live.configuration._config import Network
from tidings.live.configuration._schema import Address
from tidings.live.security._secrets import read_secret
from tidings.live.security._tls import listening_context
from tidings.live.storage._committer import Committer
from tidings.live.storage._store import Store
from tidings.live.transport._connection import Connection, Host
from tidings.live.transport._listener import BACKLOG
from tidings.mqtt import (
    KEEP_ALIVE_S,
    Bridge,
    BridgeSettings,
    Door,
    DoorEffect,
    Gateway,
    GatewaySettings,
    Hand,
    PacketError,
    Pipe,
    Sever,
    WebSocket,
)
from tidings.protocol import SetTimer
from tidings.protocol.node import Commit, Node, Read, Report, Shut, Write

if TYPE_CHECKING:
    from tidings.live.broker._node import BrokerNode

__all__ = ["MqttDoor"]

_POLL_S: Final = 0.02
HANDSHAKE_S: Final = 5.0
_REDIAL_S: Final = 1.0
_STORE: Final = "mqtt"


class PipeEnd(Connection):
    """The broker's end of a pipe: what its driver takes for a connection."""

    def __init__(self, door: "MqttDoor", pipe: Pipe) -> None:
        super().__init__(door.broker.driver, pipe.name)
        self.address = pipe.address
        self._door = door
        self._certified = pipe.certified

    @property
    def certified(self) -> tuple[str, ...]:
        """The names in the certificate that the MQTT client has shown."""
        return self._certified

    @property
    def is_encrypted(self) -> bool:
        """Nobody can listen or change anything in between."""
        return True

    @property
    def is_local(self) -> bool:
        """Frames are handed over."""
        return True

    def write(self, parts: list[bytes]) -> int:
        """Frames for the gateway, all of which leave at once."""
        self._door.written(self, parts)
        return 0

    def read(self, *, is_on: bool) -> None:
        """A client that has to wait gets no confirmations, so the gateway stops reading from it."""

    def close(self, reason: str) -> None:
        """The broker wants no more of it."""
        self._door.shut(self, reason)

    def abort(self, reason: str) -> None:
        """The same."""
        self._door.shut(self, reason)


class MqttDoor:
    """The listeners, connections and the store of one broker's gateway."""

    def __init__(
        self, broker: "BrokerNode", settings: GatewaySettings, on_failure: Callable[[StoreError], None]
    ) -> None:
        self.broker = broker
        self._clock = broker.driver.clock
        self._loop = asyncio.get_running_loop()
        self._store = Store.open(
            broker.network.store_of(broker.name) / _STORE,
            max_bytes=round(broker.network.document.network.store_size_kb * 1000),
        )
        self.gateway = Gateway(settings, chance=random.random, found=Node.read(self._store.load()))
        self._door = Door(self.gateway)
        self._committer = Committer(
            self._store,
            on_committed=lambda: self._do(self.gateway.durable),
            on_refused=lambda error: self._do(self.gateway.refused, str(error)),
            on_failure=on_failure,
        )
        self.bridges: list[BridgeRunner] = []
        self._servers: list[asyncio.Server] = []
        self._connections: dict[str, Connection] = {}
        self._keys: dict[str, str] = {}
        """By connection: the key of the network file that says where it came in."""
        self._pipes: dict[str, PipeEnd] = {}
        self._accepted = 0
        self._is_turn_due = False
        self._timer: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Listen wherever the network file says so."""
        entry = self.broker.entry
        self._do(self.gateway.start)
        tls = self.broker.network.tls_of(self.broker.name)
        context = None if tls is None else listening_context(tls)
        if entry.mqtt is not None:
            await self._listen(entry.mqtt, partial(self._accept, Connection, "mqtt"), None)
        if entry.mqtt_tls is not None:
            assert context is not None, "the network file was checked"
            await self._listen(entry.mqtt_tls, partial(self._accept, Connection, "mqtt_tls"), context)
        if entry.mqtt_ws is not None:
            await self._listen(entry.mqtt_ws, partial(self._accept, WebSocketConnection, "mqtt_ws"), context)

    async def _listen(self, at: Address, accept: Callable[[], Connection], tls: ssl.SSLContext | None) -> None:
        try:
            server = await self._loop.create_server(accept, at.host, at.port, backlog=BACKLOG, ssl=tls)
        except OSError as error:
            raise TidingsError(
                f"broker {self.broker.name!r} cannot listen for MQTT at {at}: {error.strerror or error}; is another "
                "one there?"
            ) from None
        self._servers.append(server)

    def local(self) -> str:
        """A name for a connection inside the process."""
        self._accepted += 1
        return f"in-{self._accepted}"

    def _accept(self, kind: type[Connection], key: str) -> Connection:
        name = self.local()
        self._keys[name] = key
        return kind(self, name, is_accepted=True)

    def refer(self, after: Network, near: Sequence[str]) -> None:
        """The broker leaves the network: give each client the address of a broker that stays, those `near` first, and
        let nobody in any more."""
        self._shut()
        order = [after.broker(name) for name in dict.fromkeys((*near, *after.brokers))]
        servers: dict[str, str] = {}
        for number, name in enumerate(self._connections):
            doors = [door for broker in order if (door := broker.reached_by(self._keys[name])) is not None]
            if doors:
                servers[name] = str(doors[number % min(len(doors), max(len(near), 1))])
        self._do(self.gateway.refer, servers)

    def _shut(self) -> None:
        for server in self._servers:
            server.close()

    def bridge(self, token: str | None) -> None:
        """Run the bridges of this broker."""
        network = self.broker.network
        for bridge in network.document.bridge:
            if bridge.broker == self.broker.name:
                password = None
                if bridge.password_file is not None:
                    password = read_secret(network.path.parent / bridge.password_file)
                settings = BridgeSettings(
                    name=bridge.name,
                    topics_in=bridge.topics_in,
                    topics_out=bridge.topics_out,
                    qos=bridge.qos,
                    lifetime_s=None if bridge.lifetime_s is None else round(bridge.lifetime_s),
                    session_s=int(network.document.limits.away_s),
                    username=bridge.username,
                    password=password,
                    local_password=token,
                )
                self.bridges.append(BridgeRunner(self, settings, bridge.address))

    def close(self) -> None:
        """Let nobody in any more, and say good-bye."""
        for bridge in self.bridges:
            bridge.stop()
        self._shut()
        self._do(self.gateway.end)

    @property
    def connections(self) -> list[Connection]:
        """The connections of MQTT clients."""
        return list(self._connections.values())

    async def end(self) -> None:
        """Make everything durable, and close the store."""
        while not (self.gateway.is_idle or self.gateway.is_full):
            await asyncio.sleep(_POLL_S)
        if self._timer is not None:
            self._timer.cancel()
        await self._committer.close()
        self._store.close()

    # -- what connections say --------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        """An MQTT client has connected."""
        self._connections[connection.name] = connection
        facts: dict[str, Any] = {"address": connection.address, "certified": connection.certified}
        self._do(self.gateway.opened, connection.name, **facts)

    def received(self, connection: Connection, data: bytes) -> None:
        """Bytes have come in."""
        self._do(self.gateway.received, connection.name, data)

    def lost(self, connection: Connection, reason: str) -> None:  # noqa: ARG002
        """The connection is gone."""
        self._keys.pop(connection.name, None)
        if self._connections.pop(connection.name, None) is not None:
            self._do(self.gateway.lost, connection.name)

    def congested(self, connection: Connection, *, is_congested: bool) -> None:
        """The socket takes no more for now, or takes more again."""
        self._do(self.gateway.congested, connection.name, is_congested=is_congested)

    # -- what the broker says --------------------------------------------------------------------------------------

    def written(self, end: PipeEnd, frames: list[Any]) -> None:
        """The broker has written to a pipe."""
        self._door.written(end.name, frames)
        self._turn_later()

    def shut(self, end: PipeEnd, reason: str) -> None:
        """The broker closes a pipe."""
        self._door.shut(end.name, reason)
        self._turn_later()

    def _turn_later(self) -> None:
        if self._door.is_stirred and not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        now_ns = self._clock.now_ns()
        self._carry_out(self._door.turn(now_ns), now_ns)

    # -- what the gateway wants ------------------------------------------------------------------------------------

    def _do(self, do: Callable[..., list[Any]], *what: Any, **more: Any) -> None:
        now_ns = self._clock.now_ns()
        self._carry_out(self._door.routed(do(*what, now_ns, **more)), now_ns)

    def _carry_out(self, effects: list[DoorEffect], now_ns: int) -> None:
        driver = self.broker.driver
        for effect in effects:
            match effect:
                case Hand(name, frames):
                    driver.handed(self._pipes[name], frames)
                case Write(name, parts):
                    if name in self._connections:
                        self._connections[name].write(parts)
                case SetTimer(at_ns):
                    if self._timer is not None:
                        self._timer.cancel()
                    self._timer = self._loop.call_later((max(at_ns - now_ns, 0) + 500_000) * 1e-9, self._wake)
                case Commit():
                    self._committer.commit(effect)
                case Pipe(name):
                    end = self._pipes[name] = PipeEnd(self, effect)
                    driver.opened(end)
                case Sever(name, reason):
                    driver.lost(self._pipes.pop(name), reason)
                case Shut(name, reason):
                    if name in self._connections:
                        self._connections[name].close(reason)
                case Read(name, is_on):
                    if name in self._connections:
                        self._connections[name].read(is_on=is_on)
                case Report(level, event, facts):
                    getattr(self.broker.log, level)(event, **facts)
        self._turn_later()

    def _wake(self) -> None:
        self._timer = None
        self._do(self.gateway.wake)


class WebSocketConnection(Connection):
    """A connection whose bytes come and go in the messages of a WebSocket."""

    def __init__(self, host: Host, name: str, *, is_accepted: bool) -> None:
        super().__init__(host, name, is_accepted=is_accepted)
        self._socket = WebSocket()
        self._is_known = False  # to the host: not before the handshake is through

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is there; the host hears of it when the handshake is through."""
        host, self._host = self._host, _Nobody()
        super().connection_made(transport)
        self._host = host
        self._loop.call_later(HANDSHAKE_S, self._check)

    def _check(self) -> None:
        if not self._is_known:
            self.abort("no WebSocket handshake")

    def data_received(self, data: bytes) -> None:
        """Bytes have come in, and are unwrapped."""
        payload = self._socket.feed(data)
        self._reply()
        if self._socket.is_open and not self._is_known:
            self._is_known = True
            self._host.opened(self)
        if payload:
            super().data_received(payload)
        if self._socket.is_over:
            super().close("the WebSocket is over")

    def write(self, parts: list[bytes]) -> int:
        """Write bytes, as one message."""
        return 0 if self._socket.is_over else super().write([self._socket.wrap(b"".join(parts))])

    def close(self, reason: str) -> None:
        """Close the WebSocket, then the connection."""
        self._socket.end()
        self._reply()
        super().close(reason)

    def _reply(self) -> None:
        reply = self._socket.take_reply()
        if reply:
            super().write([reply])


class _Nobody:
    """A host that is not informed."""

    def opened(self, connection: Connection) -> None:
        """Not yet."""

    def received(self, connection: Connection, data: bytes) -> None:
        """Not yet."""

    def lost(self, connection: Connection, reason: str) -> None:
        """Not yet."""

    def congested(self, connection: Connection, *, is_congested: bool) -> None:
        """Not yet."""


class _LocalEnd(Connection):
    """The end of a bridge at the gateway: what the gateway's host takes for a connection of a client."""

    def __init__(self, runner: "BridgeRunner", name: str) -> None:
        super().__init__(runner.door, name)
        self.address = f"bridge {runner.bridge.settings.name}"
        self._runner = runner

    def write(self, parts: list[bytes]) -> int:
        """Bytes for the bridge."""
        self._loop.call_soon(self._runner.feed, "local", b"".join(parts))
        return 0

    def read(self, *, is_on: bool) -> None:
        """A bridge has no more under way than its receive maximum."""

    def close(self, reason: str) -> None:
        """The gateway wants no more of it."""
        self._loop.call_soon(self._gone, reason)

    def abort(self, reason: str) -> None:
        """The same."""
        self.close(reason)

    def _gone(self, reason: str) -> None:
        self._runner.door.lost(self, reason)
        self._runner.lost("local")


class BridgeRunner:
    """One bridge with its two connections: the other broker is dialled again until it answers."""

    def __init__(self, door: MqttDoor, settings: BridgeSettings, address: Address) -> None:
        self.door = door
        self.bridge = Bridge(settings)
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._local: _LocalEnd | None = None
        self._remote: Connection | None = None
        self._tasks = [self._loop.create_task(self._dial()), self._loop.create_task(self._ping())]

    def stop(self) -> None:
        """Pass on nothing more."""
        for task in self._tasks:
            task.cancel()
        if self._remote is not None:
            self._remote.close("the broker stops")

    async def _dial(self) -> None:
        while True:
            if self._remote is None:
                connection = Connection(self, "remote")
                with contextlib.suppress(OSError):
                    await self._loop.create_connection(lambda it=connection: it, self._address.host, self._address.port)  # type: ignore[misc]
            await asyncio.sleep(_REDIAL_S)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(KEEP_ALIVE_S / 3)
            self.bridge.ping()
            self._send()

    def opened(self, connection: Connection) -> None:
        """The other broker answers."""
        self._remote = connection
        self.bridge.opened("remote")
        self._send()

    def received(self, connection: Connection, data: bytes) -> None:  # noqa: ARG002
        """Bytes of the other broker."""
        self.feed("remote", data)

    def congested(self, connection: Connection, *, is_congested: bool) -> None:
        """No more than the receive maximum is under way."""

    def lost(self, connection: "Connection | str", reason: str = "") -> None:  # noqa: ARG002
        """One of the ends is gone."""
        end = connection if isinstance(connection, str) else "remote"
        self.bridge.lost(end)
        left: Connection | None
        if end == "remote":
            self._remote, left = None, self._local
        else:
            self._local, left = None, self._remote
        if left is not None:
            left.close("the other end is gone")

    def feed(self, end: str, data: bytes) -> None:
        """Bytes of one end."""
        try:
            self.bridge.received(end, data)
        except PacketError as error:
            facts = {"bridge": self.bridge.settings.name, "end": end, "why": str(error)}
            self.door.broker.log.warning("bridge refused", **facts, remedy="see what that broker logs")
            gone = self._remote if end == "remote" else self._local
            if gone is not None:
                gone.close(str(error))
        if self._local is None and self._remote is not None and self.bridge.halves["remote"].is_up:
            self._local = _LocalEnd(self, self.door.local())
            self.bridge.opened("local")
            self.door.opened(self._local)
        self._send()

    def _send(self) -> None:
        out = self.bridge.take("remote")
        if out and self._remote is not None:
            self._remote.write([out])
        out = self.bridge.take("local")
        if out and self._local is not None:
            self.door.received(self._local, out)
