"""A process in virtual time: the node that `tidings.live` runs, unchanged, with simulated sockets, disk and clock.

- **Turns.** When bytes arrive, the process takes a turn after a moment, or later if its event loop is busy. The turn
  reads everything that has arrived over all connections by then.
- **Pauses.** A paused process takes no turns, and notices no timer and no commit; its kernel still accepts connections
  and bytes as far as there is room. When it continues, it learns what has happened meanwhile.
- **Clocks.** A clock runs at its own rate, off by up to 100 ppm, from its own origin. After a restart it shows the wall
  clock, which may have jumped; the node handles the rest (`clock_offset_ns`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappush
from typing import TYPE_CHECKING, Any, Final

from tidings.protocol import VERSION, SetTimer
from tidings.protocol.node import Commit, Dial, Node, Read, Shut, Write, clock_offset_ns
from tidings.storm._dice import Dice
from tidings.storm._disk import Disk
from tidings.storm._sockets import Path, Socket, Timeline, connect

if TYPE_CHECKING:
    from tidings.storm._mqtt_door import StormDoor

__all__ = ["Busyness", "Process", "World"]

_WORST_DRIFT: Final = 1e-4
_BUSY: Final = 0.1
"""How often the event loop has something else to do first."""


class Busyness:
    """How long after the arrival of bytes a process reads them: `usual_ns` at most, or now and then `busy_ns`."""

    __slots__ = ("_share", "busy_ns", "usual_ns")

    def __init__(self, dice: Dice, usual_ns: float, busy_ns: float) -> None:
        self.usual_ns = usual_ns
        self.busy_ns = busy_ns
        self._share = dice.share

    def wait_ns(self) -> int:
        """Until the next turn."""
        share = self._share()
        return int(share / _BUSY * self.busy_ns) if share < _BUSY else int(share * self.usual_ns)


class World(Timeline, ABC):
    """The surroundings of a process: other processes, and paths between them."""

    def __init__(self, dice: Dice, on_effect: Callable[["Process", Any], None]) -> None:
        super().__init__(dice)
        self.on_effect = on_effect
        self.processes: dict[str, Process] = {}
        self.frames = 0
        self.busyness = Busyness(dice, 0.0, 0.0)

    @abstractmethod
    def path(self, source: str, target: str) -> Path:
        """The path from one host to another."""

    @abstractmethod
    def host_is_back(self, name: str) -> None:
        """A host has power again."""

    @abstractmethod
    def store_failed(self, process: "Process") -> None:
        """A store cannot be written: the process ends, as a live broker does."""


class Process:
    """A host with a disk, and its node, if one runs; `life` counts starts and ends."""

    def __init__(self, world: World, name: str) -> None:
        dice = world.dice
        self.name = name
        self.node: Node | None = None
        self.disk = Disk(dice)
        self.life = 0
        self.rate = 1.0 + dice.between(-_WORST_DRIFT, _WORST_DRIFT)
        self.offset_ns = self.wall_ns = round(dice.between(1e9, 1e15))
        """What its clock, and the wall clock of its host, showed at time 0."""
        self.is_powered = True
        self.is_paused = False
        self.version = VERSION
        """The latest protocol version after its next start."""
        self.is_mute = False
        """Whether connections are accepted by the kernel and never served."""
        self.written_ns = 0
        """The last write of the node is on its disk."""
        self.sockets: dict[str, Socket] = {}
        self.door: StormDoor | None = None
        """Its MQTT door, if it has one."""
        self._world = world
        self._timer_ns: int | None = None
        self._turn_is_due = self._is_stepping = False
        self._readable: dict[Socket, None] = {}
        self._unread: list[Socket] = []  # accepted connections that are not served yet
        self._missed: list[tuple[Callable[..., None], tuple[Any, ...]]] = []  # while it was paused
        self._dialling: set[str] = set()
        self._accepted = 0
        self._commit_ns = 0  # when the commit under way began

    @property
    def disks(self) -> tuple[Disk, ...]:
        """All disks of the process: a door has one of its own."""
        return (self.disk,) if self.door is None else (self.disk, self.door.disk)

    # -- the clock -------------------------------------------------------------------------------------------------

    def clock_ns(self) -> int:
        """What the process's own clock shows."""
        return int(self._world.now_ns * self.rate) + self.offset_ns

    def when_ns(self, clock_ns: int) -> int:
        """When the process's own clock will show this."""
        rate, offset_ns = self.rate, self.offset_ns
        when_ns = int((clock_ns - offset_ns) / rate)
        while int(when_ns * rate) + offset_ns < clock_ns:
            when_ns += 1
        return when_ns

    # -- lives -----------------------------------------------------------------------------------------------------

    def start(self, node: Node) -> None:
        """Start a node here."""
        self.life += 1
        self.node = node
        self._timer_ns = None
        self.take(node.start(self.clock_ns()))

    def boot(self, noted_ns: int = 0) -> bool:
        """Set the clock after a start whose store has noted this time; whether it continues the last one."""
        before_ns, steady_ns = self.offset_ns, int(self._world.now_ns * self.rate)
        self.offset_ns = clock_offset_ns(wall_ns=steady_ns + self.wall_ns, steady_ns=steady_ns, noted_ns=noted_ns)
        return self.offset_ns == before_ns

    def kill(self, *, power: bool) -> None:
        """End the node and its connections; what its disk keeps is drawn."""
        if self.node is not None and self.node.commits.is_idle:
            self.written_ns = self._world.now_ns
        self.node = None
        self.life += 1
        self.disk.crash()
        if self.door is not None:
            self.door.kill(power=power)
        self.is_paused = self.is_mute = self._turn_is_due = False
        self.is_powered = not power
        for socket in (*self.sockets.values(), *self._unread):
            socket.vanish(power=power)
        self.sockets.clear()
        self._readable.clear()
        self._unread.clear()
        self._missed.clear()
        self._dialling.clear()

    def power_on(self) -> None:
        """The host is up again: peers that still send to its old connections learn that they are gone."""
        if not self.is_powered:
            self.is_powered = True
            self._world.host_is_back(self.name)

    def pause(self) -> None:
        """Pause the process."""
        self.is_paused = True
        self._world.covered["paused"] += 1

    def resume(self) -> None:
        """Continue, with what was missed."""
        self.is_paused = False
        missed, self._missed = self._missed, []
        for do, what in missed:
            do(*what)
        if self._readable:
            self._turn_later()

    def unmute(self) -> None:
        """Serve the connections that wait."""
        self.is_mute = False
        unread, self._unread = self._unread, []
        for socket in unread:
            self._look_at(socket)
        if self.door is not None:
            self.door.unmute()

    def when_running(self, do: Callable[..., None], *what: Any) -> None:
        """Do something now, or when the process continues; not at all if it is gone."""
        if self.is_paused:
            self._missed.append((do, what))
        elif self.node is not None:
            do(*what)

    # -- the node --------------------------------------------------------------------------------------------------

    def call(self, do: Callable[..., Any], *what: Any, **more: Any) -> Any:
        """Call the machine with its own time; its result besides effects."""
        assert self.node is not None
        rest, effects = self.node.call(do, self.clock_ns(), *what, **more)
        self.take(effects)
        return rest

    @contextmanager
    def one_turn(self) -> Iterator[None]:
        """Calls in this block are sent together."""
        assert not self._is_stepping
        self._is_stepping = True
        yield
        self._is_stepping = False
        if not self.is_paused:
            self.take([])

    def want(self, name: str) -> None:
        """Keep a connection with a broker from now on."""
        assert self.node is not None
        self.take(self.node.want(name, name, name, self.clock_ns()))

    def unwant(self, name: str) -> None:
        """Stop dialling a broker."""
        assert self.node is not None
        self.take(self.node.unwant(name, self.clock_ns()))

    def take(self, effects: list[Any]) -> None:
        """Carry out the effects of an input; what it sends leaves at once."""
        self._take(effects, self.clock_ns())

    def _take(self, effects: list[Any], now_ns: int) -> None:
        if self._is_stepping:
            self._carry_out(effects, now_ns)
            return
        self._is_stepping = True
        node = self.node
        if effects:
            self._carry_out(effects, now_ns)
        if node is not None and node is self.node and node.is_stirred:
            self._carry_out(node.turn(now_ns), now_ns)
            if node is self.node and node.is_stirred:
                self._turn_later()
        self._is_stepping = False

    def _carry_out(self, effects: list[Any], now_ns: int) -> None:
        for effect in effects:
            kind = type(effect)
            if kind is Write:
                self._write(effect, now_ns)
            elif kind is SetTimer:
                self._set_timer(effect.at_ns)
            elif kind is Commit:
                self._commit(effect)
            elif kind is Dial:
                self._dial(effect)
            elif kind is Shut:
                self._shut(effect)
            elif kind is Read:
                self._read(effect)
            else:
                self._world.on_effect(self, effect)

    def _write(self, effect: Write, now_ns: int) -> None:
        socket = self.sockets.get(effect.connection)
        if socket is not None:
            self._world.frames += len(effect.parts) // 2
            socket.write(effect.parts)
            node = self.node
            assert node is not None
            if socket.unsent_bytes:
                self._carry_out(node.wrote(effect.connection, socket.unsent_bytes, now_ns), now_ns)
        elif self.door is not None:
            self.door.written(effect.connection, effect.parts)

    def _turn_later(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            world = self._world
            heappush(world.heap, (world.now_ns + world.busyness.wait_ns(), world.serial(), self._turn, (self.life,)))

    def _turn(self, life: int) -> None:
        if life != self.life:
            return
        self._turn_is_due = False
        node = self.node
        if self.is_paused or node is None:
            return
        frames, now_ns = 0, self.clock_ns()
        readable, self._readable = self._readable, {}
        for socket in readable:
            if not socket.is_reading or not socket.arrived:
                continue
            frames += socket.arrived_frames
            pieces = socket.take()
            data = pieces[0]
            if len(pieces) > 1:  # they are read as one
                self._world.covered["glued_frames"] += 1
                data = b"".join(pieces)
            if node.received(socket.name, data):
                self._take(node.turn(now_ns), now_ns)
        if frames > 1:
            self._world.covered["turns_with_several_frames"] += 1
        self._take(node.turn(now_ns), now_ns)

    # -- sockets ---------------------------------------------------------------------------------------------------

    def stir(self, socket: Socket) -> None:
        """There are bytes to read."""
        self._readable[socket] = None
        if not self._turn_is_due and not self.is_paused and self.sockets.get(socket.name) is socket:
            self._turn_later()

    def ended(self, socket: Socket, reason: str) -> None:
        """A connection is gone; what arrived over it before is kept."""
        if self.is_paused:
            self._missed.append((self.ended, (socket, reason)))
        elif self.sockets.get(socket.name) is socket and self.node is not None:
            del self.sockets[socket.name]
            self._readable.pop(socket, None)
            for piece in socket.take():
                self.node.received(socket.name, piece)
            self.take(self.node.lost(socket.name, reason, self.clock_ns()))
        elif socket in self._unread:
            self._unread.remove(socket)

    def congested(self, socket: Socket, is_congested: bool) -> None:
        """A socket is congested, or no longer is."""
        if self.is_paused:
            self._missed.append((self.congested, (socket, is_congested)))
        elif self.sockets.get(socket.name) is socket and self.node is not None:
            self.take(self.node.congested(socket.name, self.clock_ns(), is_congested=is_congested))

    def accept(self, socket: Socket) -> None:
        """A peer has opened a connection: the kernel accepts it, even if the process does not serve it."""
        if self.is_paused or self.is_mute:
            self._world.covered["dials_unanswered"] += 1
            self._unread.append(socket)
            if self.is_paused:
                self._missed.append((self.unmute, ()))
        else:
            self._look_at(socket)

    def next_name(self) -> str:
        """The name of an incoming connection."""
        self._accepted += 1
        return f"in-{self._accepted}"

    def _look_at(self, socket: Socket) -> None:
        if self.node is not None and socket.is_open:
            self.sockets[socket.name] = socket
            self.take(self.node.opened(socket.name, self.clock_ns(), address=socket.path.target))
            if socket.arrived:
                self.stir(socket)

    def _dial(self, effect: Dial) -> None:
        world = self._world
        there, back = world.path(self.name, effect.address), world.path(effect.address, self.name)
        self._dialling.add(effect.connection)
        if there.cuts or back.cuts or not world.processes[effect.address].is_powered:
            world.covered["dials_unanswered"] += 1
            return  # the node itself bounds this
        when_ns = world.now_ns + round(there.latency_ns + back.latency_ns)
        world.at(when_ns, self._dialled, self.life, effect.connection, effect.address)

    def _dialled(self, life: int, connection: str, address: str) -> None:
        if life == self.life and connection in self._dialling:
            self.when_running(self._connect, connection, address)

    def _connect(self, connection: str, address: str) -> None:
        world, other = self._world, self._world.processes[address]
        assert self.node is not None
        if connection not in self._dialling or not other.is_powered:
            return
        self._dialling.remove(connection)
        if other.node is None:
            world.covered["dials_refused"] += 1
            self.take(self.node.lost(connection, "connection refused", self.clock_ns()))
            return
        near, far = connect(
            world,
            (self, connection, world.path(self.name, address)),
            (other, other.next_name(), world.path(address, self.name)),
        )
        self.sockets[connection] = near
        other.accept(far)
        self.take(self.node.opened(connection, self.clock_ns(), address=address))

    def _shut(self, effect: Shut) -> None:
        socket = self.sockets.get(effect.connection)
        if socket is not None:
            socket.close(at_once=effect.at_once)
        elif effect.connection in self._dialling:
            self._dialling.remove(effect.connection)
            self._world.at(self._world.now_ns, self._given_up, self.life, effect.connection, effect.reason)
        elif self.door is not None:
            self.door.shut(effect.connection, effect.reason)

    def _given_up(self, life: int, connection: str, reason: str) -> None:
        if life == self.life:
            self.when_running(self._lose, connection, reason)

    def _lose(self, connection: str, reason: str) -> None:
        assert self.node is not None
        self.take(self.node.lost(connection, reason, self.clock_ns()))

    def _read(self, effect: Read) -> None:
        socket = self.sockets.get(effect.connection)
        if socket is not None:
            socket.is_reading = effect.is_on
            if effect.is_on and socket.arrived:
                self.stir(socket)

    # -- time and disk ---------------------------------------------------------------------------------------------

    def _set_timer(self, at_ns: int) -> None:
        world = self._world
        when_ns = self.when_ns(at_ns)
        if when_ns < world.now_ns:
            when_ns = world.now_ns
        if self._timer_ns is None or when_ns < self._timer_ns:
            self._timer_ns = when_ns
            heappush(world.heap, (when_ns, world.serial(), self._wake, (self.life, when_ns)))

    def _wake(self, life: int, when_ns: int) -> None:
        if life == self.life and self._timer_ns == when_ns:
            if self.is_paused:
                self._missed.append((self._wake, (life, when_ns)))
            elif self.node is not None:
                self._timer_ns, now_ns = None, self.clock_ns()
                self._take(self.node.wake(now_ns), now_ns)

    def _commit(self, effect: Commit) -> None:
        world = self._world
        if len(effect.writes) - list(effect.writes.values()).count(None) > 1:
            world.covered["groups_over_one"] += 1
        if self.disk.fails:
            world.at(world.now_ns, self._fail, self.life, effect)
            return
        if not effect.is_ahead:
            self._commit_ns = world.now_ns
        takes_ns = self.disk.begin(effect)
        world.at(world.now_ns + round(takes_ns), self._committed, self.life)

    def _fail(self, life: int, effect: Commit) -> None:
        if life == self.life and self.disk.fails:
            self._world.store_failed(self)
        elif life == self.life:
            self._commit(effect)  # the disk recovered at this very moment

    def _committed(self, life: int) -> None:
        if life != self.life:
            return
        if self.is_paused:
            self._missed.append((self._committed, (life,)))
            return
        assert self.node is not None
        commit = self.disk.under_way
        if self.disk.finish():
            if commit is not None and not commit.is_ahead:
                self.written_ns = self._commit_ns
            now_ns = self.clock_ns()
            self._take(self.node.committed(now_ns), now_ns)
        else:
            self._world.covered["commits_refused"] += 1
            self.take(self.node.refused("no room", self.clock_ns()))
