"""The MQTT door of a broker in a storm: the door that `tidings.live` drives, with simulated sockets and disk.

It lives and dies with the process of its broker, has its clock, and pauses with it.
"""

from collections.abc import Callable, Iterable
from heapq import heappush
from typing import TYPE_CHECKING, Any

from tidings.errors import TidingsError
from tidings.mqtt import Door, Gateway, Hand, Pipe, Sever
from tidings.mqtt.packets import Publish, Reader
from tidings.protocol import SetTimer, wire
from tidings.protocol.node import Commit, Read, Report, Shut, Write
from tidings.storm._disk import Disk
from tidings.storm._sockets import Socket

if TYPE_CHECKING:
    from tidings.storm._process import Process, World

__all__ = ["StormDoor", "Tap"]


class Tap:
    """What the storm sees of the traffic of doors."""

    def published(self, door: "StormDoor", publisher: str, epoch: int, event: wire.Publication) -> None:
        """A client of the door publishes an event to the broker."""

    def sent(self, door: "StormDoor", socket: Socket, packet: Publish) -> None:
        """The door sends a message to a client."""


class StormDoor:
    """The door of one broker."""

    def __init__(self, world: "World", process: "Process", disk: Disk, tap: Tap) -> None:
        self.process = process
        self.disk = disk
        self.tap = tap
        self.door: Door | None = None
        self.sockets: dict[str, Socket] = {}
        self._world = world
        self._readers: dict[str, Reader] = {}
        self._speakers: dict[str, tuple[str, int]] = {}
        self._readable: dict[Socket, None] = {}
        self._unread: list[Socket] = []
        self._is_turn_due = self._is_reading_due = False
        self._timer_ns: int | None = None
        self._accepted = 0

    @property
    def is_powered(self) -> bool:
        """Whether its host has power."""
        return self.process.is_powered

    @property
    def is_full(self) -> bool:
        """Whether there was no room for the last commit."""
        return self.door is not None and self.door.gateway.is_full

    def bounds(self) -> Iterable[tuple[str, tuple[int, int]]]:
        """Everything that could grow, with its bound."""
        return () if self.door is None else self.door.gateway.bounds().items()

    # -- lives -----------------------------------------------------------------------------------------------------

    def start(self, gateway: Gateway) -> None:
        """Start a gateway beside the node that has just started."""
        self.door = Door(gateway)
        self._timer_ns = None
        self._do(gateway.start)

    def kill(self, *, power: bool) -> None:
        """The process ends."""
        self.door = None
        self.disk.crash()
        for socket in (*self.sockets.values(), *self._unread):
            socket.vanish(power=power)
        for kept in (self.sockets, self._readers, self._speakers, self._readable, self._unread):
            kept.clear()
        self._is_turn_due = self._is_reading_due = False

    # -- sockets ---------------------------------------------------------------------------------------------------

    def next_name(self) -> str:
        """The name of an incoming connection."""
        self._accepted += 1
        return f"in-{self._accepted}"

    def accept(self, socket: Socket) -> None:
        """A client has opened a connection: the kernel accepts it, even if the process does not serve it."""
        if self.process.is_mute:
            self._unread.append(socket)
        else:
            self.process.when_running(self._serve, socket)

    def unmute(self) -> None:
        """Serve the connections that wait."""
        unread, self._unread = self._unread, []
        for socket in unread:
            self._serve(socket)

    def _serve(self, socket: Socket) -> None:
        if self.door is not None and socket.is_open:
            self.sockets[socket.name] = socket
            self._do(self.door.gateway.opened, socket.name, address=socket.path.target)
            if socket.arrived:
                self.stir(socket)

    def stir(self, socket: Socket) -> None:
        """There are bytes to read."""
        self._readable[socket] = None
        if not self._is_reading_due and self.sockets.get(socket.name) is socket:
            self._is_reading_due = True
            world = self._world
            when_ns = world.now_ns + world.busyness.wait_ns()
            heappush(world.heap, (when_ns, world.serial(), self._in_life, (self.process.life, self._read, ())))

    def ended(self, socket: Socket, reason: str) -> None:
        """A connection is gone; what arrived over it before is kept."""
        self.process.when_running(self._end, socket, reason)

    def _end(self, socket: Socket, reason: str) -> None:  # noqa: ARG002
        if self.door is not None and self.sockets.get(socket.name) is socket:
            self._feed(socket)
            del self.sockets[socket.name]
            self._readers.pop(socket.name, None)
            self._readable.pop(socket, None)
            self._do(self.door.gateway.lost, socket.name)
        elif socket in self._unread:
            self._unread.remove(socket)

    def congested(self, socket: Socket, is_congested: bool) -> None:
        """A socket is congested, or no longer is."""
        self.process.when_running(self._congest, socket, is_congested)

    def _congest(self, socket: Socket, is_congested: bool) -> None:
        if self.door is not None and self.sockets.get(socket.name) is socket:
            self._world.covered["mqtt_congested"] += 1
            self._do(self.door.gateway.congested, socket.name, is_congested=is_congested)

    def _read(self) -> None:
        self._is_reading_due = False
        readable, self._readable = self._readable, {}
        for socket in readable:
            if socket.is_reading and self.sockets.get(socket.name) is socket:
                self._feed(socket)

    def _feed(self, socket: Socket) -> None:
        data = b"".join(socket.take())
        if data and self.door is not None:
            self._do(self.door.gateway.received, socket.name, data)

    # -- the node --------------------------------------------------------------------------------------------------

    def written(self, pipe: str, frames: list[Any]) -> None:
        """The node has written to a pipe."""
        if self.door is not None:
            self.door.written(pipe, frames)
            self._turn_later()

    def shut(self, pipe: str, reason: str) -> None:
        """The node closes a pipe."""
        if self.door is not None:
            self.door.shut(pipe, reason)
            self._turn_later()

    def _turn_later(self) -> None:
        if self.door is not None and self.door.is_stirred and not self._is_turn_due:
            self._is_turn_due = True
            world = self._world
            heappush(world.heap, (world.now_ns, world.serial(), self._in_life, (self.process.life, self._turn, ())))

    def _turn(self) -> None:
        self._is_turn_due = False
        if self.door is not None:
            now_ns = self.process.clock_ns()
            self._carry_out(self.door.turn(now_ns), now_ns)

    # -- the gateway -----------------------------------------------------------------------------------------------

    def _in_life(self, life: int, do: Callable[..., None], what: tuple[Any, ...]) -> None:
        """Do something unless the process has ended meanwhile."""
        if life == self.process.life:
            self.process.when_running(do, *what)

    def _do(self, do: Callable[..., list[Any]], *what: Any, **more: Any) -> None:
        assert self.door is not None
        now_ns = self.process.clock_ns()
        self._carry_out(self.door.routed(do(*what, now_ns, **more)), now_ns)

    def _carry_out(self, effects: list[Any], now_ns: int) -> None:
        process, world, node = self.process, self._world, self.process.node
        assert node is not None
        for effect in effects:
            match effect:
                case Hand(pipe, frames):
                    self._overhear(pipe, frames)
                    node.handed(pipe, frames)
                case Write(name, parts):
                    socket = self.sockets.get(name)
                    if socket is not None:
                        self._watch(socket, parts)
                        socket.write([b"", b"".join(parts)])
                case SetTimer(at_ns):
                    self._timer_ns = when_ns = max(process.when_ns(at_ns), world.now_ns)
                    world.at(when_ns, self._in_life, process.life, self._wake, (when_ns,))
                case Commit():
                    self._commit(effect)
                case Pipe(name, address):
                    process.take(node.opened(name, now_ns, address=address, is_encrypted=True, is_local=True))
                case Sever(pipe, reason):
                    self._speakers.pop(pipe, None)
                    process.take(node.lost(pipe, reason, now_ns))
                case Shut(name):
                    if name in self.sockets:
                        self.sockets[name].close(at_once=False)
                case Read(name, is_on):
                    socket = self.sockets.get(name)
                    if socket is not None:
                        socket.is_reading = is_on
                        if is_on and socket.arrived:
                            self.stir(socket)
                case Report():
                    world.on_effect(process, effect)
        if node is process.node:
            process.take([])
        self._turn_later()

    def _wake(self, when_ns: int) -> None:
        if self.door is not None and self._timer_ns == when_ns:
            self._timer_ns = None
            self._do(self.door.gateway.wake)

    # -- the disk --------------------------------------------------------------------------------------------------

    def _commit(self, effect: Commit) -> None:
        world, life = self._world, self.process.life
        if self.disk.fails:
            world.at(world.now_ns, self._in_life, life, self._fail, (effect,))
        else:
            world.at(world.now_ns + round(self.disk.begin(effect)), self._in_life, life, self._committed, ())

    def _fail(self, effect: Commit) -> None:
        if self.disk.fails:
            self._world.store_failed(self.process)
        else:
            self._commit(effect)  # the disk recovered at this very moment

    def _committed(self) -> None:
        assert self.door is not None
        if self.disk.finish():
            self._do(self.door.gateway.durable)
        else:
            self._world.covered["commits_refused"] += 1
            self._do(self.door.gateway.refused, "no room")

    # -- the tap ---------------------------------------------------------------------------------------------------

    def _overhear(self, pipe: str, frames: list[Any]) -> None:
        """Note the events that clients publish to the broker: nobody else knows which event is which message."""
        for frame in frames:
            try:
                message = wire.decode(frame)
            except TidingsError:
                continue  # the opening of the connection
            if isinstance(message, wire.Hello | wire.Welcome):
                self._speakers[pipe] = (message.name, message.epoch)
            elif isinstance(message, wire.Publish) and pipe in self._speakers:
                for event in message.events:
                    self.tap.published(self, *self._speakers[pipe], event)

    def _watch(self, socket: Socket, parts: list[bytes]) -> None:
        """Note the messages that clients are sent, when they are sent."""
        reader = self._readers.get(socket.name)
        if reader is None:
            first = next((part for part in parts if part), b"")
            # Without properties, CONNACK is of MQTT 3.1.1.
            reader = self._readers[socket.name] = Reader(version=4 if first[:2] == b"\x20\x02" else 5)
        reader.feed(b"".join(parts))
        while (packet := reader.next()) is not None:
            if isinstance(packet, Publish):
                self.tap.sent(self, socket, packet)
