"""A scenario on the real protocol: the same events, the same failures as in the simulator, turn by turn.

The simulator (`tidings.simulation`) draws what is published and what fails; the same publications meet the same
outages here, carried by the real brokers and clients in virtual time. So the two differ by what the protocol does, and
by no noise of their own. What is counted is what the simulator counts: of the events published after the warm-up that a
subscription matches, the share that arrives within the tighter of the two deadlines.

As in the model: clients sit at their home brokers, and what is published while the home broker is down is lost; brokers
take no time to process; neighbours notice an outage, and its end, `detection_s` later: connections are reset then, and
dialled again. Refresh, time-out and retry are the scenario's. Pings only measure here: they are as rare as refreshes.

Where the protocol differs from the model of paper D, by design: subscriptions are durable at every broker, so neither a
crash nor a missed refresh empties a table (`static` is as good as `periodic`), and a refresh is one flood for each home
broker, whoever it concerns.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np

from tidings.errors import ConfigurationError
from tidings.model.scenario import Network as Scene
from tidings.model.topology import Link as SceneLink
from tidings.protocol import Broker, BrokerSettings, Client, ClientSettings, Deliver, wire
from tidings.scheduling import Strategy
from tidings.simulation import Options, Result
from tidings.simulation._plan import plan as plan_run
from tidings.simulation._run import Run
from tidings.storm._dice import Dice
from tidings.storm._garbage import seldom_collected
from tidings.storm._network import Network, Process
from tidings.storm._script import Script
from tidings.storm._sockets import SocketFigures

__all__ = ["PlayResult", "PlayedSubscription", "play"]

SECOND: Final = 10**9
_SETTLED_NS: Final = 60 * SECOND
"""Before anything is published or fails, everybody gets to know everybody."""
_LONGEST_NS: Final = 365 * 86_400 * SECOND
_KINDS: Final = {
    "Transfer": "data",
    "Ack": "ack",
    "Interest": "refresh",
    "InterestPart": "refresh",
    "Ask": "refresh",
    "LinkState": "link-state",
}


class PlayedSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the events that one subscription matched; None if there were none."""

    matched: int
    on_time: int
    late: int
    on_time_reliability: float | None


class PlayResult(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario on the protocol and, of the same events and failures, in the simulator.

    `messages` counts what brokers say to each other by kind: data and retransmissions (events, though they may share
    frames), ack, refresh, link-state; `published` counts all events, `refused` those whose home broker was down, and
    `matched` those after the warm-up.
    """

    scheme: str
    seed: int
    published: int
    refused: int
    matched: int
    on_time: int
    late: int
    delivery_rate: float | None
    subscriptions: dict[str, PlayedSubscription]
    messages: dict[str, int]
    messages_per_event: dict[str, float]
    simulated: Result


class _CountingBroker(Broker):
    """A broker that counts what it says to other brokers."""

    between: Counter[str]

    def _send(self, peer: Any, message: Any) -> None:
        if peer.kind == "broker":
            self.between[type(message).__name__] += 1
        super()._send(peer, message)

    def _send_events(self, peer: Any, kind: str, frame: bytes) -> None:
        if peer.kind == "broker":
            said = wire.decode(frame)
            self.between[kind] += len(said.events) if isinstance(said, wire.Transfer) else 1
        super()._send_events(peer, kind, frame)


def play(network: Scene, *, progress: Callable[[float], None] | None = None) -> PlayResult:
    """Run a scenario's network, under its own seed and scheme, on the protocol and in the simulator."""
    options = Options()
    script = Script(network)
    run = Run(plan_run(network, options), options, script, None)
    run.go()
    simulated = run.result(0.0)
    with seldom_collected():
        return _Play(network, script, simulated).run(progress)


class _Play:
    """A scenario while it is played."""

    def __init__(self, scene: Scene, script: Script, simulated: Result) -> None:
        _require_playable(scene)
        self._scene = scene
        self._script = script
        self._simulated = simulated
        self._generator = np.random.default_rng([scene.seed, 5])
        self._network = Network(Dice(np.random.default_rng([scene.seed, 6])), self._on_effect)
        self._graph = {
            broker.name: frozenset(scene.topology.neighbours(broker.name)) for broker in scene.topology.brokers
        }
        self._between: Counter[str] = Counter()
        self._resent = self._refused = 0
        self._open: dict[tuple[str, int], tuple[int, dict[str, int]]] = {}
        self._on_time: Counter[str] = Counter()
        self._late: Counter[str] = Counter()
        self._matched: Counter[str] = Counter()
        self._set_up()

    def run(self, progress: Callable[[float], None] | None) -> PlayResult:
        """Play it to its end, and until the last event has expired."""
        end_ns = _SETTLED_NS + round(self._scene.duration_s * SECOND) + self._longest_ns()
        for share in range(1, 101):
            self._network.run(end_ns * share // 100)
            if progress is not None:
                progress(share / 100)
        for broker in self._graph:
            self._count(self._network.processes[broker])
        return self._result()

    def _result(self) -> PlayResult:
        published = len(self._script.publications)
        messages = Counter({"data": 0, "ack": 0, "refresh": 0, "link-state": 0})
        for name, count in self._between.items():
            messages[_KINDS.get(name, "other")] += count
        messages["retransmission"] = self._resent
        messages["data"] -= self._resent
        subscriptions = {}
        for subscription in self._scene.subscriptions:
            matched, on_time = self._matched[subscription.id], self._on_time[subscription.id]
            subscriptions[subscription.id] = PlayedSubscription(
                matched=matched,
                on_time=on_time,
                late=self._late[subscription.id],
                on_time_reliability=on_time / matched if matched else None,
            )
        matched, on_time = self._matched.total(), self._on_time.total()
        return PlayResult(
            scheme=self._scene.policies.faults.scheme,
            seed=self._scene.seed,
            published=published,
            refused=self._refused,
            matched=matched,
            on_time=on_time,
            late=self._late.total(),
            delivery_rate=on_time / matched if matched else None,
            subscriptions=subscriptions,
            messages=dict(messages),
            messages_per_event={kind: count / max(published, 1) for kind, count in messages.items()},
            simulated=self._simulated,
        )

    # -- setting up ----------------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        scene, network = self._scene, self._network
        network.figures = SocketFigures(unheard_ns=_LONGEST_NS)  # what the scenario does not say is noticed at once
        for name in (*self._graph, *scene.homes):
            process = network.add(name)
            process.rate, process.offset_ns = 1.0, SECOND  # the model has one clock
        for link in scene.topology.links:
            if (link.source, link.target) not in network.paths:
                network.join(link.source, link.target, 0.0, 0.0, 0.0)
            network.paths[link.source, link.target].draw = _drawing(link, self._generator)
        for client, home in scene.homes.items():
            network.join(client, home, 0.0, 0.0, 0.0)
        for broker in self._graph:
            self._start(broker)
        for client, home in scene.homes.items():
            network.start_client(network.processes[client], Client(self._client_settings(client)), home)
        for subscription in scene.subscriptions:
            network.at(SECOND, self._subscribe, subscription)
        for at_ns, component, is_up in self._script.transitions:
            network.at(_SETTLED_NS + at_ns, self._change, component, is_up)
        for number, publication in enumerate(self._script.publications):
            network.at(_SETTLED_NS + publication.at_ns, self._publish, number)

    def _longest_ns(self) -> int:
        """The longest deadline of any event; half a day where there is none."""
        lifetimes = [p.lifetime_ns for p in self._script.publications if p.lifetime_ns is not None]
        return max(lifetimes, default=SECOND * 43_200)

    def _broker_settings(self, name: str) -> BrokerSettings:
        faults = self._scene.policies.faults
        refresh_ns, retry_ns = round(faults.refresh_s * SECOND), round(faults.retry_s * SECOND)
        return BrokerSettings(
            name=name,
            neighbours=self._graph[name],
            graph=self._graph,
            scheme=faults.scheme,
            strategy=Strategy.fifo(),
            must_advertise=False,
            tracing=False,
            ping_ns=refresh_ns,
            silence_ns=_LONGEST_NS,
            ping_client_ns=_LONGEST_NS // 4,
            silence_client_ns=_LONGEST_NS,
            client_timeout_ns=_LONGEST_NS,
            refresh_ns=refresh_ns,
            timeout_ns=max(round(faults.timeout_s * SECOND), 2 * refresh_ns + 1),
            forget_ns=max(round(faults.timeout_s * SECOND), 2 * refresh_ns + 1),
            ready_wait_ns=retry_ns,
            retry_least_ns=retry_ns,
            retry_most_ns=retry_ns,
            probe_ns=retry_ns,
            max_lifetime_ns=self._longest_ns(),
            window=1_024,
        )

    def _client_settings(self, name: str) -> ClientSettings:
        retry_ns = round(self._scene.policies.faults.retry_s * SECOND)
        return ClientSettings(
            name=name,
            greet_ns=retry_ns,
            silence_ns=_LONGEST_NS,
            retry_least_ns=retry_ns,
            retry_most_ns=retry_ns,
            max_lifetime_ns=self._longest_ns(),
            failover_ns=0,  # a scenario says where its clients are
            window=1_024,
        )

    def _start(self, name: str) -> None:
        process = self._network.processes[name]
        found = self._network.read(process)
        broker = _CountingBroker(self._broker_settings(name), found.kept)
        broker.between = self._between
        self._network.start_broker(process, broker, self._graph, found)

    # -- what happens --------------------------------------------------------------------------------------------

    def _client(self, name: str) -> tuple[Process, Client]:
        process = self._network.processes[name]
        assert process.node is not None
        machine = process.node.machine
        assert isinstance(machine, Client)
        return process, machine

    def _subscribe(self, subscription: Any) -> None:
        process, machine = self._client(subscription.subscriber)
        allowed_s = subscription.max_delay_s
        process.call(
            machine.subscribe,
            subscription.id,
            str(subscription.filter),
            max_delay_ns=None if allowed_s is None else round(allowed_s * SECOND),
            price=subscription.price,
        )

    def _publish(self, number: int) -> None:
        publication = self._script.publications[number]
        name = self._scene.publishers[publication.publisher].name
        is_counted = publication.at_ns >= self._scene.warmup_s * SECOND
        wanted = [self._scene.subscriptions[each] for each in publication.matches] if is_counted else []
        self._matched.update(subscription.id for subscription in wanted)
        if self._network.processes[self._scene.homes[name]].node is None:
            self._refused += 1
            return
        process, machine = self._client(name)
        sequence = process.call(
            machine.publish,
            publication.attributes,
            payload=bytes(publication.size_bytes),
            lifetime_ns=publication.lifetime_ns,
            waits=True,
        )
        allowed = {
            each.id: min(
                _LONGEST_NS if each.max_delay_s is None else round(each.max_delay_s * SECOND),
                _LONGEST_NS if publication.lifetime_ns is None else publication.lifetime_ns,
            )
            for each in wanted
        }
        self._open[name, sequence] = (self._network.now_ns, allowed)
        process.call(machine.send)

    def _on_effect(self, process: Process, effect: Any) -> None:  # noqa: ARG002
        if type(effect) is Deliver:
            publisher, _, sequence = effect.event
            departed_ns, allowed = self._open[publisher, sequence]
            allowed_ns = allowed.pop(effect.subscription, None)
            if allowed_ns is not None:
                is_on_time = self._network.now_ns - departed_ns < allowed_ns
                (self._on_time if is_on_time else self._late)[effect.subscription] += 1

    def _change(self, component: int, is_up: bool) -> None:
        """A broker, or a component of links, fails or comes back; the neighbours notice `detection_s` later."""
        brokers = self._scene.topology.brokers
        later_ns = self._network.now_ns + round(self._scene.policies.faults.detection_s * SECOND)
        if component < len(brokers):
            name = brokers[component].name
            pairs = [(other, name) for other in (*self._graph[name], *self._clients_of(name))]
            process = self._network.processes[name]
            if is_up:
                process.power_on()
                self._start(name)
            else:
                self._count(process)
                process.kill(power=True)  # nobody is told: that is what `detection_s` is for
        else:
            pairs = []
            for number, link in enumerate(self._scene.topology.links):
                if self._scene.link_components[number] == component - len(brokers):
                    self._network.paths[link.source, link.target].cut(-1 if is_up else 1)
                    pairs += [(link.source, link.target), (link.target, link.source)]
        for one, other in pairs:
            self._network.at(later_ns, self._notice, one, other, is_up)

    def _clients_of(self, broker: str) -> list[str]:
        return [client for client, home in self._scene.homes.items() if home == broker]

    def _notice(self, one: str, other: str, is_up: bool) -> None:
        """One end resets its connections with the other, and dials it no more; or dials it again, if it is to."""
        process = self._network.processes[one]
        if process.node is None:
            return
        if not is_up:
            self._network.reset(one, other)
        if one in self._scene.homes or one < other:
            process.unwant(other)
            if is_up:
                process.want(other)

    def _count(self, process: Process) -> None:
        if process.node is not None:
            self._resent += process.node.machine.counts["resent"]


def _drawing(link: SceneLink, generator: np.random.Generator) -> Callable[[int], tuple[float, float]]:
    """How long a frame is sent and travels, by the scenario's distributions."""
    propagation, slowness = link.propagation, link.slowness

    def draw(size_bytes: int) -> tuple[float, float]:
        sent_s = 0.0 if slowness is None else max(slowness.sample(generator), 0.0) * size_bytes / 1_000
        return sent_s * SECOND, propagation.sample(generator) * SECOND

    return draw


def _require_playable(scene: Scene) -> None:
    for broker in scene.topology.brokers:
        if broker.service is not None or broker.processing is not None:
            raise ConfigurationError(
                f"broker {broker.name!r} has a service or processing time: on the protocol brokers take no time; leave "
                "it out, or simulate the scenario"
            )
    taken = {broker.name for broker in scene.topology.brokers} & scene.homes.keys()
    if taken:
        raise ConfigurationError(f"{min(taken)!r} is the name of a broker and of a client: give the client another")
