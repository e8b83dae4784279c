"""A scenario on the real protocol: the same events, the same failures as in the simulator, turn by turn.

The simulator (`tidings.simulation`) draws publications and failures; here the real brokers and clients process the same
ones in virtual time. So the two differ by the protocol's behaviour, and not by noise. The counts are those of the
simulator: of the events published after the warm-up that a subscription matches, the share that arrives within the
tighter of the two deadlines.

As in the model, clients stay at their home brokers, and events published while the home broker is down are lost; a
broker's processing time is spent on the path into it, once for each incoming event; neighbours notice an outage and its
end `detection_s` later, when connections are reset and dialled again. An event has the length of the scenario on a
link, envelope and publication record included (`payload_of`). Scheme, strategy, ordering, refresh, time-out and retry
are the scenario's. Pings only measure here: they are as rare as refreshes. A feature without counterpart in the
protocol is refused by name (`require_playable`).

Where the protocol differs from the model of paper D, by design: subscriptions are durable at every broker, so neither a
crash nor a missed refresh empties a table (`static` is as good as `periodic`), and a refresh is one flood for each home
broker.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np

from tidings.errors import ConfigurationError
from tidings.model.distributions import DelayDistribution
from tidings.model.policies import DEFAULT_RELOCATION, DEFAULT_ROUTING, policy
from tidings.model.scenario import Access
from tidings.model.scenario import Network as Scene
from tidings.model.topology import Link as SceneLink
from tidings.ordering import RECORD_ENTRY_BYTES, Policy
from tidings.protocol import Broker, BrokerSettings, Client, ClientSettings, Deliver, wire
from tidings.scheduling import strategy
from tidings.simulation import Result, Script, ScriptedEvent, simulate_script
from tidings.storm._dice import Dice
from tidings.storm._garbage import seldom_collected
from tidings.storm._network import Process, StormNetwork
from tidings.storm._sockets import SocketFigures

__all__ = [
    "PlayResult",
    "PlayedSubscription",
    "access_links",
    "drawing",
    "payload_of",
    "play",
    "play_script",
    "require_playable",
]

SECOND: Final = 10**9
_SETTLED_NS: Final = 60 * SECOND
"""The time before the first publication or failure, in which brokers and clients connect."""
_LONGEST_NS: Final = 365 * 86_400 * SECOND
_PATIENCE: Final = 64
"""An unanswered event is sent again after `retry_s` at the earliest, and on a slower link after up to this many times
as long: an early repetition takes the place of other events."""
_WINDOW: Final = 256
"""The default of live brokers."""
ENVELOPE_BYTES: Final = 130
"""The bytes of an event on a link besides attributes, publisher's name and payload: one target, one frame."""
_KINDS: Final = {
    "Transfer": "data",
    "Ack": "ack",
    "Interest": "refresh",
    "InterestPart": "refresh",
    "Ask": "refresh",
    "LinkState": "link-state",
}


class PlayedSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of the events that one subscription matched; None if there were none."""

    matched: int
    on_time: int
    late: int
    on_time_reliability: float | None


class PlayResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a scenario on the protocol and, with the same events and failures, in the simulator.

    `messages` counts messages between brokers by kind: data and retransmissions (events, though they may share frames),
    ack, refresh, link-state; `published` counts all events, `refused` those whose home broker was down, and `matched`
    those after the warm-up. `homes` gives the publishers' brokers at the end. `delays_ns` gives the delay of each pair
    of a publication and a subscription, by number; pairs without a delivery are missing.
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
    homes: dict[str, str]
    delays_ns: dict[tuple[int, int], int]
    simulated: Result


class _CountingBroker(Broker):
    """A broker that counts its messages to other brokers."""

    between: Counter[str]

    def _send(self, peer: Any, message: Any) -> None:
        if peer.kind == "broker":
            self.between[type(message).__name__] += 1
        super()._send(peer, message)

    def _send_events(self, peer: Any, kind: str, frame: bytes) -> None:
        if peer.kind == "broker":
            message = wire.decode(frame)
            self.between[kind] += len(message.events) if isinstance(message, wire.Transfer) else 1
        super()._send_events(peer, kind, frame)


def play(network: Scene, *, progress: Callable[[float], None] | None = None) -> PlayResult:
    """Run a scenario's network, under its own seed and scheme, on the protocol and in the simulator."""
    require_playable(network)
    script, simulated = simulate_script(network)
    return play_script(script, simulated, progress=progress)


def play_script(script: Script, simulated: Result, *, progress: Callable[[float], None] | None = None) -> PlayResult:
    """Run on the protocol the same events and failures as in the simulator."""
    require_playable(script.network)
    with seldom_collected():
        return _Play(script, simulated).run(progress)


class _Play:
    """A scenario while it is played."""

    def __init__(self, script: Script, simulated: Result) -> None:
        scene = self._scene = script.network
        self._script = script
        self._simulated = simulated
        self._generator = np.random.default_rng([scene.seed, 5])
        self._network = StormNetwork(Dice(np.random.default_rng([scene.seed, 6])), self._on_effect)
        self._graph = {
            broker.name: frozenset(scene.topology.neighbours(broker.name)) for broker in scene.topology.brokers
        }
        self._between: Counter[str] = Counter()
        self._resent = self._refused = 0
        self._numbers = {subscription.id: number for number, subscription in enumerate(scene.subscriptions)}
        self._open: dict[tuple[str, int], tuple[int, int]] = {}  # by event: its publication, and when it departed
        self._delays_ns: dict[tuple[int, int], int] = {}
        self._set_up()

    def run(self, progress: Callable[[float], None] | None) -> PlayResult:
        """Run it to its end, and until the last event has expired."""
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
        subscriptions = self._judged()
        matched = sum(each.matched for each in subscriptions.values())
        on_time = sum(each.on_time for each in subscriptions.values())
        return PlayResult(
            scheme=self._scene.policies.faults.scheme,
            seed=self._scene.seed,
            published=published,
            refused=self._refused,
            matched=matched,
            on_time=on_time,
            late=sum(each.late for each in subscriptions.values()),
            delivery_rate=on_time / matched if matched else None,
            subscriptions=subscriptions,
            messages=dict(messages),
            messages_per_event={kind: count / max(published, 1) for kind, count in messages.items()},
            homes={publisher.name: self._home(publisher.name) for publisher in self._scene.publishers},
            delays_ns=self._delays_ns,
            simulated=self._simulated,
        )

    def _judged(self) -> dict[str, PlayedSubscription]:
        """The outcomes of the events that were published after the warm-up, by subscription."""
        pairs = self._script.counted()
        matched, arrived, on_time = Counter[int](), Counter[int](), Counter[int]()
        for pair, is_on_time in zip(pairs, self._script.judged(self._delays_ns).tolist(), strict=True):
            matched[pair[1]] += 1
            arrived[pair[1]] += pair in self._delays_ns
            on_time[pair[1]] += is_on_time
        return {
            subscription.id: PlayedSubscription(
                matched=matched[number],
                on_time=on_time[number],
                late=arrived[number] - on_time[number],
                on_time_reliability=on_time[number] / matched[number] if matched[number] else None,
            )
            for number, subscription in enumerate(self._scene.subscriptions)
        }

    # -- setting up ----------------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        scene, network = self._scene, self._network
        network.figures = SocketFigures(unheard_ns=_LONGEST_NS)  # without a value in the scenario it is noticed at once
        for name in (*self._graph, *scene.homes):
            process = network.add(name)
            process.rate, process.offset_ns = 1.0, SECOND  # the model has one clock
        for link in scene.topology.links:
            if (link.source, link.target) not in network.paths:
                network.join(link.source, link.target, 0.0, 0.0, 0.0)
            into = scene.topology.brokers[scene.topology.index[link.target]].processing
            network.paths[link.source, link.target].draw = drawing(link, into, self._generator)
        accesses = access_links(scene)
        movable = {publisher.name for publisher in scene.publishers} if self._is_moving else set()
        for client, home in scene.homes.items():
            for broker in self._graph if client in movable else (home,):
                network.join(client, broker, 0.0, 0.0, 0.0)
                into = scene.topology.brokers[scene.topology.index[broker]].processing
                for source, target, delay in ((client, broker, into), (broker, client, None)):
                    access = accesses.get((source, target))
                    if access is not None or delay is not None:
                        network.paths[source, target].draw = drawing(access, delay, self._generator)
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
        """The longest deadline of any event; half a day if there is none."""
        lifetimes = [p.lifetime_ns for p in self._script.publications if p.lifetime_ns is not None]
        return max(lifetimes, default=SECOND * 43_200)

    @property
    def _is_moving(self) -> bool:
        return self._scene.policies.relocation.name != DEFAULT_RELOCATION

    def _home(self, client: str) -> str:
        home = self._client(client)[1].home
        return self._scene.homes[client] if home is None else home.name

    def _broker_settings(self, name: str) -> BrokerSettings:
        faults, scheduling = self._scene.policies.faults, self._scene.policies.scheduling
        moving = self._scene.policies.relocation
        refresh_ns, retry_ns = round(faults.refresh_s * SECOND), round(faults.retry_s * SECOND)
        return BrokerSettings(
            name=name,
            neighbours=self._graph[name],
            graph=self._graph,
            scheme=faults.scheme,
            strategy=strategy(scheduling.name, r=scheduling.r),
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
            retry_most_ns=_PATIENCE * retry_ns,
            probe_ns=retry_ns,
            max_lifetime_ns=self._longest_ns(),
            window=_WINDOW,
            relocation=moving.name,
            relocation_events=moving.events,
            relocation_hysteresis=moving.hysteresis,
            relocation_stay_ns=round(moving.stay_s * SECOND),
        )

    def _client_settings(self, name: str) -> ClientSettings:
        retry_ns = round(self._scene.policies.faults.retry_s * SECOND)
        return ClientSettings(
            name=name,
            greet_ns=retry_ns,
            silence_ns=_LONGEST_NS,
            retry_least_ns=retry_ns,
            retry_most_ns=_PATIENCE * retry_ns,
            max_lifetime_ns=self._longest_ns(),
            failover_ns=0,  # a scenario fixes where its clients are
            window=_WINDOW,
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
        allowed_s, ordering = subscription.max_delay_s, self._scene.policies.ordering
        process.call(
            machine.subscribe,
            subscription.id,
            str(subscription.filter),
            max_delay_ns=None if allowed_s is None else round(allowed_s * SECOND),
            price=subscription.price,
            policy=None if ordering is None else Policy.parse(ordering),
        )

    def _publish(self, number: int) -> None:
        publication = self._script.publications[number]
        name = self._scene.publishers[publication.publisher].name
        if self._network.processes[self._scene.homes[name]].node is None:
            self._refused += 1
            return
        process, machine = self._client(name)
        sequence = process.call(
            machine.publish,
            publication.attributes,
            payload=payload_of(publication, name, self._scene.policies.ordering),
            lifetime_ns=publication.lifetime_ns,
            waits=True,
        )
        self._open[name, sequence] = (number, self._network.now_ns)
        process.call(machine.send)

    def _on_effect(self, process: Process, effect: Any) -> None:  # noqa: ARG002
        if type(effect) is Deliver:
            publisher, _, sequence = effect.event
            number, departed_ns = self._open[publisher, sequence]
            pair = number, self._numbers[effect.subscription]
            self._delays_ns.setdefault(pair, self._network.now_ns - departed_ns)

    def _change(self, component: int, is_up: bool) -> None:
        """A broker or a component of links fails or returns; the neighbours notice `detection_s` later."""
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
                process.kill(power=True)  # no peer is informed: that is what `detection_s` is for
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
        """One end resets its connections with the other and stops dialling it; or dials it again."""
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


def payload_of(publication: ScriptedEvent, publisher: str, ordering: str | None) -> bytes:
    """A payload that gives the event the scenario's length on a link, if the rest of it leaves room for it."""
    rest_bytes = ENVELOPE_BYTES + len(publisher) + len(wire.encode_plain(publication.attributes))
    if ordering is not None:
        rest_bytes += RECORD_ENTRY_BYTES * min(Policy.parse(ordering).record, wire.MAX_RECORD)
    return bytes(max(publication.size_bytes - rest_bytes, 0))


def access_links(scene: Scene) -> dict[tuple[str, str], Access]:
    """The links between clients and their brokers, both directions of each: bytes wait only in that of events."""
    ends = [(each.name, each.broker, each.access) for each in scene.publishers]
    ends += [(each.broker, each.name, each.access) for each in scene.subscribers]
    links = {}
    for source, target, access in ends:
        if access is not None:
            links[source, target] = access
            links[target, source] = msgspec.structs.replace(access, slowness=None)
    return links


def drawing(
    link: SceneLink | Access | None,
    into: DelayDistribution | None,
    generator: np.random.Generator,
    *,
    second: float = SECOND,
) -> Callable[[int], tuple[float, float]]:
    """The sending time of this many bytes, and their travel and processing time; one second of the scenario is
    `second`."""

    def draw(size_bytes: int) -> tuple[float, float]:
        sent_s = travels_s = 0.0
        if link is not None:
            if link.slowness is not None:
                sent_s = max(link.slowness.sample(generator), 0.0) * size_bytes / 1_000
            if link.propagation is not None:
                travels_s = link.propagation.sample(generator)
        if into is not None:
            travels_s += into.sample(generator)
        return sent_s * second, travels_s * second

    return draw


def require_playable(scene: Scene) -> None:
    """ConfigurationError, with what to write instead, if the protocol has no counterpart of a scenario's feature."""
    for broker in scene.topology.brokers:
        if broker.service is not None:
            raise ConfigurationError(
                f"broker {broker.name!r} has a service time: on the protocol brokers take no time of their own; write "
                "`processing` for a delay, leave it out, or simulate the scenario"
            )
    losses = {(link.source, link.target): link.loss for link in scene.topology.links}
    losses |= {ends: access.loss for ends, access in access_links(scene).items()}
    for (source, target), loss in losses.items():
        if loss > 0.0:
            raise ConfigurationError(
                f"link {source!r} -> {target!r} loses events, but connections lose nothing while they live; "
                "write `failures`, leave `loss` out, or simulate the scenario"
            )
    routing = policy("routing", scene.policies.routing)
    if not routing.has("live"):
        raise ConfigurationError(
            f'routing {routing.name!r}: {routing.missing["live"]}; write routing = "{DEFAULT_ROUTING}", or simulate '
            "the scenario"
        )
    relocation = scene.policies.relocation.name
    if relocation != DEFAULT_RELOCATION and (scene.has_failures or not scene.policies.faults.is_buffering):
        raise ConfigurationError(
            f"relocation {relocation!r}: here publishers move only where nothing fails and brokers store events; leave "
            'failures out and write faults = "buffer" or "bypass+buffer", or simulate the scenario'
        )
    changing = next((subscriber for subscriber in scene.subscribers if subscriber.churn is not None), None)
    if changing is not None:
        raise ConfigurationError(
            f"subscriber {changing.name!r} comes and goes, but here everybody stays; leave `churn` out, or simulate "
            "the scenario"
        )
    taken = {broker.name for broker in scene.topology.brokers} & scene.homes.keys()
    if taken:
        raise ConfigurationError(f"{min(taken)!r} is the name of a broker and of a client: give the client another")
