"""Applies the faults of a plan to the network, and ends them.

Clients move between brokers meanwhile: a connection that is opened while one of its ends is cut off is cut, too.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final, Literal, Protocol

from tidings.protocol import OLDEST_VERSION, VERSION, Client
from tidings.storm._dice import Dice
from tidings.storm._history import History
from tidings.storm._network import Process, StormNetwork
from tidings.storm._plan import RELOADING_NS, Fault, StormPlan
from tidings.storm._sockets import Path
from tidings.storm._strangers import send_garbage, send_impostor

__all__ = ["FaultInjector", "Victims"]

_JUMP_NS: Final = (-3600e9, 3600e9)
_ROOM: Final = (0.6, 1.1)
"""The size of a full store relative to its contents: either something must be erased, or little room is left."""
_FLIPS: Final = 4
"""The most records of a store in which a bit flips."""
_LOOK_NS: Final = 3_000_000
"""How often a disk is checked for a commit in progress."""
_NOISE: Final = 0.1
"""How often a piece is damaged on a noisy path."""
_SLOWER: Final = 15.0
"""The factor by which links around an overloaded broker are slower."""


class Victims(Protocol):
    """What faults need of a storm."""

    def start_broker(self, name: str) -> None:
        """Start a broker from its disk."""

    def end_life(self, process: Process, *, power: bool) -> None:
        """Note that a process is gone; its counts are kept."""

    def restart_client(self, name: str) -> None:
        """Start a client in a new process, with its subscriptions requested again."""

    def overload(self, publisher: str) -> str:
        """Have a publisher send far more than its links can carry; returns its home broker."""

    def rewire(self, one: str, other: str) -> bool:
        """Remove a link from the network file or add it; returns whether it exists now."""

    def leave(self, fault: Fault) -> None:
        """Cut off an MQTT client."""

    def come_back(self, fault: Fault) -> None:
        """Let an MQTT client reach its broker again."""

    def send_mqtt_garbage(self, broker: str) -> None:
        """Send garbage to a door."""

    def lose_sessions(self, broker: str, what: Literal["disk", "clock", "records"]) -> None:
        """Note that the MQTT sessions of a broker are lost."""

    def enlarge(self, fault: Fault) -> None:
        """Have a client make very many subscriptions, and end them in time unless they are to stay."""


class FaultInjector:
    """Starts and ends faults as planned, and records them in the history."""

    def __init__(self, plan: StormPlan, network: StormNetwork, history: History, dice: Dice, victims: Victims) -> None:
        self._plan = plan
        self._network = network
        self._history = history
        self._dice = dice
        self._victims = victims
        self._slowed: dict[Fault, list[Path]] = {}
        self._slow_for: Counter[Path] = Counter()
        self._skipped: set[Fault] = set()
        self._away: set[str] = set()  # brokers that only the end of their outage restarts

    def schedule(self) -> None:
        """Put all faults on the network's agenda."""
        for one, other in self._plan.added_links():
            self._note_pair(one, other, up=False)
        for fault in self._plan.faults:
            self._network.at(fault.at_ns, self._break, fault)
            self._network.at(fault.until_ns, self._mend, fault)

    def store_failed(self, process: Process) -> None:
        """A broker whose store cannot be written stops; it is restarted when the disk works again."""
        self._crash(process.name, power=False)

    def _break(self, fault: Fault) -> None:
        self._history.faults[fault.kind] += 1
        process = self._network.processes.get(fault.place)
        if fault.kind == "rewire":
            self._rewire(fault)
        elif fault.kind == "mqtt-away":
            self._victims.leave(fault)
        elif process is None:
            for broker in self._plan.brokers:
                self._crash(broker, power=True)
        elif fault.kind in _DISK:
            _DISK[fault.kind](process, self._dice, True)
        elif fault.kind in _BREAKERS:
            _BREAKERS[fault.kind](self, fault, process)

    def _mend(self, fault: Fault) -> None:
        process = self._network.processes.get(fault.place)
        if fault.kind == "mqtt-away":
            self._victims.come_back(fault)
            return
        if process is None:
            for broker in self._plan.brokers:
                self._start(broker)
            return
        if fault.kind in _DISK:
            _DISK[fault.kind](process, self._dice, False)
        if fault.kind in _MENDERS:
            _MENDERS[fault.kind](self, fault, process)

    # -- processes -------------------------------------------------------------------------------------------------

    def _crash(self, broker: str, *, power: bool) -> None:
        process = self._network.processes[broker]
        if process.node is None:
            return  # it is down already
        self._victims.end_life(process, power=power)
        self._note("broker", broker, None, up=False)
        self._history.crash(self._network.now_ns, broker, process.written_ns)

    def _start(self, broker: str) -> None:
        process = self._network.processes[broker]
        if process.node is not None or broker in self._away:
            return  # the end of another fault has restarted it, or will
        self._note("broker", broker, None, up=True)
        process.power_on()
        self._victims.start_broker(broker)

    def _break_broker(self, fault: Fault, process: Process) -> None:
        self._crash(fault.place, power=fault.power)
        if fault.kind == "store-lost":
            self._history.lose(self._network.now_ns, fault.place, "disk", process.disk.kept)
            self._victims.lose_sessions(fault.place, "disk")
            for disk in process.disks:
                disk.lose()
        elif fault.kind == "clock-jump":
            process.wall_ns += round(self._dice.between(*_JUMP_NS))

    def _flip(self, fault: Fault, process: Process) -> None:
        self._crash(fault.place, power=fault.power)
        for _ in range(1 + self._dice.whole(_FLIPS)):
            disks = process.disks
            (disks[0] if len(disks) == 1 else self._dice.one_of(disks)).flip()

    def _tear(self, fault: Fault, process: Process) -> None:
        """Crash in the middle of the next commit."""
        if process.node is not None and any(disk.under_way is not None for disk in process.disks):
            for disk in process.disks:
                disk.tears = True
            self._crash(fault.place, power=fault.power)
            for disk in process.disks:
                disk.tears = False
        elif self._network.now_ns + _LOOK_NS < fault.until_ns:
            self._network.at(self._network.now_ns + _LOOK_NS, self._tear, fault, process)

    def _mend_broker(self, fault: Fault, process: Process) -> None:  # noqa: ARG002
        self._start(fault.place)

    def _upgrade(self, fault: Fault, process: Process) -> None:
        """Restart a broker with the other protocol version."""
        self._crash(fault.place, power=False)
        process.version = OLDEST_VERSION if process.version == VERSION else VERSION

    def _break_client(self, fault: Fault, process: Process) -> None:
        machine = None if process.node is None else process.node.machine
        assert isinstance(machine, Client)
        if machine.is_moving or machine.home is None:
            # Nobody can finish what a process that is gone had not finished.
            self._skipped.add(fault)
            self._history.faults[fault.kind] -= 1
            return
        self._victims.end_life(process, power=fault.power)

    def _mend_client(self, fault: Fault, process: Process) -> None:
        if fault not in self._skipped:
            process.power_on()
            self._victims.restart_client(fault.place)

    def _outage(self, fault: Fault, process: Process) -> None:
        if fault.other != fault.place:
            self._cut(fault, process)
        elif fault.place in self._plan.brokers:
            self._crash(fault.place, power=fault.power)
            self._away.add(fault.place)
        elif fault.power:
            self._break_client(fault, process)
        else:
            self._isolate(fault, process)

    def _end_outage(self, fault: Fault, process: Process) -> None:
        self._network.covered["outlasted"] += fault not in self._skipped
        if fault.other != fault.place:
            self._join(fault, process)
        elif fault.place in self._plan.brokers:
            self._away.remove(fault.place)
            self._start(fault.place)
        elif fault.power:
            self._mend_client(fault, process)
        else:
            self._join_again(fault, process)

    def _pause(self, fault: Fault, process: Process) -> None:  # noqa: ARG002
        if process.node is not None:
            process.pause()

    def _resume(self, fault: Fault, process: Process) -> None:  # noqa: ARG002
        if process.is_paused:
            process.resume()

    def _mute(self, fault: Fault, process: Process) -> None:
        process.is_mute = True
        for other in (*self._plan.everybody, *(client.name for client in self._plan.mqtt.clients)):
            self._network.reset(fault.place, other)

    def _unmute(self, fault: Fault, process: Process) -> None:  # noqa: ARG002
        process.unmute()

    # -- paths -----------------------------------------------------------------------------------------------------

    def _cut(self, fault: Fault, process: Process) -> None:  # noqa: ARG002
        self._change_paths(fault, 1)

    def _join(self, fault: Fault, process: Process) -> None:  # noqa: ARG002
        self._change_paths(fault, -1)

    def _change_paths(self, fault: Fault, change: int) -> None:
        if fault.kind == "reset" and change > 0:
            self._network.reset(fault.place, fault.other)
        pairs = [(fault.place, fault.other), (fault.other, fault.place)]
        for pair in pairs[:1] if fault.kind == "half-cut" else pairs:
            path = self._network.path(*pair)
            path.cut(change)
            self._note("link", *pair, up=not path.cuts)

    def _make_noise(self, fault: Fault, process: Process) -> None:  # noqa: ARG002
        for pair in ((fault.place, fault.other), (fault.other, fault.place)):
            self._network.path(*pair).noise = _NOISE

    def _end_noise(self, fault: Fault, process: Process) -> None:  # noqa: ARG002
        for pair in ((fault.place, fault.other), (fault.other, fault.place)):
            self._network.path(*pair).noise = 0.0

    def _isolate(self, fault: Fault, process: Process) -> None:
        if fault.kind == "client-away":
            for socket in list(process.sockets.values()):
                self._network.reset(fault.place, socket.path.target)
        self._network.cut_off_host(fault.place, 1)
        self._note_links(fault.place)

    def _join_again(self, fault: Fault, process: Process) -> None:  # noqa: ARG002
        self._network.cut_off_host(fault.place, -1)
        self._note_links(fault.place)

    def _overload(self, fault: Fault, process: Process) -> None:  # noqa: ARG002
        home = self._victims.overload(fault.place)
        self._slowed[fault] = [path for pair, path in self._network.paths.items() if home in pair]
        for path in self._slowed[fault]:
            path.ns_per_byte *= 1.0 if self._slow_for[path] else _SLOWER  # once, however many faults overload it
            self._slow_for[path] += 1
            path.is_slow = True

    def _unload(self, fault: Fault, process: Process) -> None:  # noqa: ARG002
        for path in self._slowed.pop(fault):
            self._slow_for[path] -= 1
            path.ns_per_byte /= 1.0 if self._slow_for[path] else _SLOWER
            path.is_slow = self._slow_for[path] > 0

    # -- what operators and clients change ---------------------------------------------------------------------------

    def _rewire(self, fault: Fault) -> None:
        self._note_pair(fault.place, fault.other, up=self._victims.rewire(fault.place, fault.other))
        if not fault.stays:
            back_ns = round(fault.until_ns - RELOADING_NS)
            self._network.at(back_ns, self._rewire, fault._replace(stays=True))

    def _send_mqtt_garbage(self, fault: Fault, process: Process) -> None:  # noqa: ARG002
        self._victims.send_mqtt_garbage(fault.place)

    def _enlarge(self, fault: Fault, process: Process) -> None:  # noqa: ARG002
        self._victims.enlarge(fault)

    # -- everything else -------------------------------------------------------------------------------------------

    def _slow(self, fault: Fault, process: Process) -> None:  # noqa: ARG002
        process.when_running(self._tell_credit, process, True)

    def _quick(self, fault: Fault, process: Process) -> None:  # noqa: ARG002
        process.when_running(self._tell_credit, process, False)

    def _tell_credit(self, process: Process, is_paused: bool) -> None:
        machine = None if process.node is None else process.node.machine
        assert isinstance(machine, Client)
        process.call(machine.pause if is_paused else machine.resume)

    def _garbage(self, fault: Fault, process: Process) -> None:  # noqa: ARG002
        send_garbage(self._network, self._dice, process)

    def _impostor(self, fault: Fault, process: Process) -> None:
        send_impostor(self._network, self._dice, process, fault.other)

    def _note_links(self, place: str) -> None:
        for pair, path in self._network.paths.items():
            if place in pair and pair[0] in self._plan.brokers and pair[1] in self._plan.brokers:
                self._note("link", *pair, up=not path.cuts)

    def _note_pair(self, one: str, other: str, *, up: bool) -> None:
        for pair in ((one, other), (other, one)):
            self._note("link", *pair, up=up)

    def _note(self, kind: str, source: str, target: str | None, *, up: bool) -> None:
        self._history.transitions.append((self._network.now_ns, kind, source, target, up))


def _fill(process: Process, dice: Dice, is_broken: bool) -> None:
    for disk in process.disks:
        disk.limit_bytes = round(disk.size_bytes * dice.between(*_ROOM)) if is_broken else None


def _slow_down(process: Process, dice: Dice, is_broken: bool) -> None:  # noqa: ARG001
    for disk in process.disks:
        disk.is_slow = is_broken


def _damage(process: Process, dice: Dice, is_broken: bool) -> None:  # noqa: ARG001
    for disk in process.disks:
        disk.fails = is_broken


_Step = Callable[[FaultInjector, Fault, Process], None]

_DISK: Final[dict[str, Callable[[Process, Dice, bool], None]]] = {
    "disk-full": _fill,
    "disk-slow": _slow_down,
    "disk-error": _damage,
}
_BREAKERS: Final[dict[str, _Step]] = {
    "bit-flip": FaultInjector._flip,
    "client-away": FaultInjector._isolate,
    "client-restart": FaultInjector._break_client,
    "client-slow": FaultInjector._slow,
    "clock-jump": FaultInjector._break_broker,
    "crash": FaultInjector._break_broker,
    "cut": FaultInjector._cut,
    "garbage": FaultInjector._garbage,
    "half-cut": FaultInjector._cut,
    "impostor": FaultInjector._impostor,
    "isolate": FaultInjector._isolate,
    "large-state": FaultInjector._enlarge,
    "long-outage": FaultInjector._outage,
    "mqtt-garbage": FaultInjector._send_mqtt_garbage,
    "mute-listener": FaultInjector._mute,
    "noise": FaultInjector._make_noise,
    "overload": FaultInjector._overload,
    "pause": FaultInjector._pause,
    "reset": FaultInjector._cut,
    "store-lost": FaultInjector._break_broker,
    "torn-write": FaultInjector._tear,
    "upgrade": FaultInjector._upgrade,
}
_MENDERS: Final[dict[str, _Step]] = {
    "bit-flip": FaultInjector._mend_broker,
    "client-away": FaultInjector._join_again,
    "client-restart": FaultInjector._mend_client,
    "client-slow": FaultInjector._quick,
    "clock-jump": FaultInjector._mend_broker,
    "crash": FaultInjector._mend_broker,
    "cut": FaultInjector._join,
    "disk-error": FaultInjector._mend_broker,
    "half-cut": FaultInjector._join,
    "isolate": FaultInjector._join_again,
    "long-outage": FaultInjector._end_outage,
    "mute-listener": FaultInjector._unmute,
    "noise": FaultInjector._end_noise,
    "overload": FaultInjector._unload,
    "pause": FaultInjector._resume,
    "reset": FaultInjector._join,
    "store-lost": FaultInjector._mend_broker,
    "torn-write": FaultInjector._mend_broker,
    "upgrade": FaultInjector._mend_broker,
}
