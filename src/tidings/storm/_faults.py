"""How the faults of a plan are done to the network, and undone.

Clients come and go between brokers meanwhile: a connection that is made while one of its ends is cut off is cut too.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from tidings.protocol import Client
from tidings.storm._history import History
from tidings.storm._network import Network, Node
from tidings.storm._plan import Fault, Plan

__all__ = ["FaultInjector"]

_CUT_OFF: Final = ("isolate", "client-away")


class FaultInjector:
    """Breaks and mends, as planned; what it does is in the history."""

    def __init__(
        self,
        plan: Plan,
        network: Network,
        history: History,
        start_broker: Callable[[str], None],
        before_crash: Callable[[Node], None],
    ) -> None:
        self._plan = plan
        self._network = network
        self._history = history
        self._start_broker = start_broker
        self._before_crash = before_crash
        self._active = 0
        self._cut_off: Counter[str] = Counter()

    def how_cut(self, one: str, other: str) -> int:
        """How many faults a connection that is made now suffers from."""
        return self._cut_off[one] + self._cut_off[other]

    def schedule(self) -> None:
        """Put all of it on the network's agenda."""
        for fault in self._plan.faults:
            self._network.at(fault.at_ns, self._break, fault)
            self._network.at(fault.until_ns, self._mend, fault)

    def _break(self, fault: Fault) -> None:
        self._history.faults[fault.kind] += 1
        self._active += 1
        self._network.loss = max(self._plan.loss, self._plan.storm_loss)
        match fault.kind:
            case "crash":
                self._crash(fault.place, loses_tail=fault.loses_tail)
            case "blackout":
                for broker in self._plan.brokers:
                    self._crash(broker, loses_tail=True)
            case "cut" | "half-cut" | "isolate":
                self._cut(fault, 1)
            case "reset" | "client-away":
                for one, other in self._pairs(fault):
                    self._disconnect(one, other)
                self._cut(fault, 1)
            case "client-slow":
                self._pause(fault.place, paused=True)

    def _mend(self, fault: Fault) -> None:
        self._active -= 1
        if not self._active:
            self._network.loss = self._plan.loss
        match fault.kind:
            case "crash":
                self._start(fault.place)
            case "blackout":
                for broker in self._plan.brokers:
                    self._start(broker)
            case "cut" | "half-cut" | "isolate":
                self._cut(fault, -1)
            case "reset" | "client-away":
                self._cut(fault, -1)
                for one, other in self._pairs(fault):
                    self._connect(one, other)
            case "client-slow":
                self._pause(fault.place, paused=False)

    def _crash(self, broker: str, *, loses_tail: bool) -> None:
        node = self._network.nodes[broker]
        if node.machine is None:
            return  # it is down already
        self._before_crash(node)
        self._network.crash(node, loses_tail=loses_tail)
        self._note("broker", broker, None, up=False)
        if loses_tail:
            self._history.tail_losses.append((self._network.now_ns, broker))
            return  # the power is gone: nobody is told
        for one, other in list(self._network.links):
            if one == broker:
                self._disconnect(other, one)

    def _start(self, broker: str) -> None:
        if self._network.nodes[broker].machine is not None:
            return  # another fault's end has started it
        self._note("broker", broker, None, up=True)
        self._start_broker(broker)
        for one, other in self._network.links:
            if one == broker:
                self._connect(other, one)

    def _pairs(self, fault: Fault) -> list[tuple[str, str]]:
        """The links, both ways, that a fault is about; half a cut is one way only."""
        if fault.kind in _CUT_OFF:
            return [pair for pair in self._network.links if fault.place in pair]
        pairs = [(fault.place, fault.other), (fault.other, fault.place)]
        return pairs[:1] if fault.kind == "half-cut" else pairs

    def _cut(self, fault: Fault, change: int) -> None:
        if fault.kind in _CUT_OFF:
            self._cut_off[fault.place] += change
        for pair in self._pairs(fault):
            link = self._network.links[pair]
            link.is_cut += change
            if pair[0] in self._plan.brokers and pair[1] in self._plan.brokers:
                self._note("link", pair[0], pair[1], up=not link.is_cut)

    def _connect(self, one: str, other: str) -> None:
        node = self._network.nodes[one]
        if node.machine is not None:
            self._network.call(node, node.machine.connected, other)

    def _disconnect(self, one: str, other: str) -> None:
        node = self._network.nodes[one]
        if node.machine is not None:
            self._network.call(node, node.machine.disconnected, other)

    def _pause(self, client: str, *, paused: bool) -> None:
        node = self._network.nodes[client]
        assert isinstance(node.machine, Client)
        self._network.call(node, node.machine.pause if paused else node.machine.resume)

    def _note(self, kind: str, source: str, target: str | None, *, up: bool) -> None:
        self._history.transitions.append((self._network.now_ns, kind, source, target, up))
