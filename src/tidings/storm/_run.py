"""One storm from its seed to its verdict: the plan is set up, happens, and is judged."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np

from tidings.ordering import Policy
from tidings.protocol import (
    Broker,
    BrokerSettings,
    Client,
    ClientSettings,
    Confirmed,
    Deliver,
    Failed,
    Moved,
    Note,
    RequestError,
)
from tidings.scheduling import strategy
from tidings.storm._connections import Connections
from tidings.storm._dice import Dice
from tidings.storm._faults import FaultInjector
from tidings.storm._garbage import seldom_collected
from tidings.storm._history import History, Moving, Published, Residence, Subscribed
from tidings.storm._invariants import CHECKS, Evidence, differences, view_of_fresh_network
from tidings.storm._network import Network, Node
from tidings.storm._plan import Move, Plan, Publication, SubscriptionPlan, make_plan
from tidings.storm._settings import StormSettings

__all__ = ["BrokerMaker", "ClientMaker", "Storm", "StormResult", "run_storm"]

MS: Final = 10**6
SECOND: Final = 10**9
_LOOK_NS: Final = SECOND // 2
_TRACED: Final = 10
"""Few events make a session here: publishers move on noise, and often."""

BrokerMaker = Callable[[BrokerSettings, dict[str, bytes]], Broker]
ClientMaker = Callable[[ClientSettings], Client]


class StormResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a storm did and whether it broke a promise; `violations` are (check, what happened)."""

    seed: int
    violations: tuple[tuple[str, str], ...]
    events: int
    accepted: int
    deliveries: int
    late: int
    faults: dict[str, int]
    moves: dict[str, int]
    drops: dict[str, int]
    frames: int
    sent: dict[str, int]
    converged_s: float | None
    digest: str


class Storm:
    """A storm while it happens; `run_storm` is the way to have one."""

    def __init__(
        self,
        settings: StormSettings,
        seed: int,
        *,
        make_broker: BrokerMaker = Broker,
        make_client: ClientMaker = Client,
    ) -> None:
        self.settings = settings
        self.seed = seed
        self.plan: Plan = make_plan(settings, seed)
        self.history = History()
        self.network = Network(Dice(np.random.default_rng([seed, 2])), self._on_effect)
        self._make_broker = make_broker
        self._make_client = make_client
        self._graph = self.plan.graph()
        self._first_homes = {client.name: client.home for client in self.plan.clients}
        self._faults = FaultInjector(self.plan, self.network, self.history, self.start_broker, self._count_sent)
        self._connections = Connections(
            self.network,
            Dice(np.random.default_rng([seed, 4])),
            self.plan.brokers,
            self._first_homes.items(),
            self._faults.how_cut,
        )
        self._sent: Counter[str] = Counter()
        self._set_up()

    def run(self) -> StormResult:
        """Let it happen, and judge it."""
        self.network.run(self.plan.end_ns)
        self._look()
        history = self.history
        history.residence = {client: self._residence(client) for client in self._first_homes}
        evidence = Evidence(settings=self.settings, plan=self.plan, history=history)
        violations = [(name, text) for name, check in CHECKS.items() for text in check(evidence)]
        for node in self.network.nodes.values():
            self._count_sent(node)
        converged_ns = history.converged_ns
        return StormResult(
            seed=self.seed,
            violations=tuple(violations),
            events=len(history.published),
            accepted=sum(published.confirmed_ns is not None for published in history.published.values()),
            deliveries=len(history.deliveries),
            late=sum(delivery.late for delivery in history.deliveries),
            faults=dict(sorted(history.faults.items())),
            moves=_outcomes(history),
            drops=dict(sorted(history.drops.items())),
            frames=self.network.frames,
            sent=dict(sorted(self._sent.items())),
            converged_s=None if converged_ns is None else (converged_ns - self.plan.heal_ns) / SECOND,
            digest=history.digest(),
        )

    # -- setting up ----------------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        plan, network = self.plan, self.network
        for name in (*plan.brokers, *self._first_homes):
            network.add(name)
        for link in plan.links:
            network.join(link.one, link.other, link.latency_ns, link.jitter_ns, link.ns_per_byte)
        network.loss, network.doubling, network.overtaking = plan.loss, plan.doubling, plan.overtaking
        for broker in plan.brokers:
            self.start_broker(broker)
        for client in plan.clients:
            node = network.nodes[client.name]
            network.start(node, self._make_client(self._client_settings(client.name)))
            if client.advertises:
                network.at(0, self._call, node, "advertise", "all", "level >= 0")
        for subscription in plan.subscriptions:
            network.at(subscription.from_ns, self._subscribe, subscription)
            if subscription.until_ns is not None:
                network.at(subscription.until_ns, self._unsubscribe, subscription)
        for publication in plan.publications:
            network.at(publication.at_ns, self._publish, publication)
        for move in plan.moves:
            network.at(move.at_ns, self._move, move)
        self._faults.schedule()
        for when_ns in range(_LOOK_NS, plan.end_ns, _LOOK_NS):
            network.at(when_ns, self._look)

    def start_broker(self, name: str) -> None:
        """A broker starts, for the first time or from what its disk has kept."""
        node = self.network.nodes[name]
        self.network.start(node, self._make_broker(self._broker_settings(name), dict(node.disk.kept)))

    def _broker_settings(self, name: str) -> BrokerSettings:
        tight = self.plan.is_tight
        return BrokerSettings(
            name=name,
            neighbours=self._graph[name],
            graph=self._graph,
            scheme=self.settings.scheme,
            strategy=strategy(self.settings.strategy),
            ping_ns=500 * MS,
            silence_ns=1600 * MS,
            ping_client_ns=1000 * MS,
            silence_client_ns=2600 * MS,
            refresh_ns=2 * SECOND,
            timeout_ns=8 * SECOND,
            client_timeout_ns=100 * SECOND,
            retry_least_ns=150 * MS,
            retry_most_ns=1500 * MS,
            probe_ns=500 * MS,
            max_lifetime_ns=30 * SECOND,
            seen_grace_ns=30 * SECOND,
            read_at_once=3,
            window=4 if tight else 16,
            interest_bytes=150 if tight else 65_536,
            max_stored=150 if tight else 20_000,
            max_queued=12 if tight else 5_000,
            max_queued_client=6 if tight else 2_000,
            relocation=self.plan.relocation,
            relocation_events=_TRACED,
            relocation_per_window=_TRACED,
            relocation_window_ns=10 * SECOND,
            relocation_wait_ns=1 * SECOND,
        )

    def _client_settings(self, name: str) -> ClientSettings:
        return ClientSettings(
            name=name,
            greet_ns=500 * MS,
            silence_ns=2600 * MS,
            retry_least_ns=150 * MS,
            retry_most_ns=1500 * MS,
            max_lifetime_ns=30 * SECOND,
            seen_grace_ns=30 * SECOND,
            move_ns=6 * SECOND,
            handover_ns=800 * MS,
            window=4 if self.plan.is_tight else 16,
        )

    # -- what applications do ------------------------------------------------------------------------------------

    def _call(self, node: Node, what: str, *arguments: Any, **more: Any) -> Any:
        return self.network.call(node, getattr(node.machine, what), *arguments, **more)

    def _subscribe(self, plan: SubscriptionPlan) -> None:
        known = Subscribed(plan.client, plan.name, self._home(plan.client), plan.filter)
        known.max_delay_ns, known.price, known.late_ns = plan.max_delay_ns, plan.price, plan.late_ns
        known.drops = plan.drops
        self.history.subscribed[known.key] = known
        policy = None if plan.policy is None else Policy.parse(plan.policy, late="drop" if plan.drops else "deliver")
        self._call(
            self.network.nodes[plan.client],
            "subscribe",
            plan.name,
            plan.filter,
            max_delay_ns=plan.max_delay_ns,
            price=plan.price,
            late_ns=plan.late_ns,
            policy=policy,
        )

    def _unsubscribe(self, plan: SubscriptionPlan) -> None:
        self.history.subscribed[plan.client, plan.name].until_ns = self.network.now_ns
        self._call(self.network.nodes[plan.client], "unsubscribe", plan.name)

    def _publish(self, plan: Publication) -> None:
        node = self.network.nodes[plan.publisher]
        machine = node.machine
        assert isinstance(machine, Client)
        now_ns = self.network.now_ns
        payload = bytes(plan.payload_bytes)
        sequence, effects = machine.publish(
            plan.attributes, node.clock_ns(now_ns), payload=payload, lifetime_ns=plan.lifetime_ns
        )
        id = (plan.publisher, machine.settings.epoch, sequence)
        known = Published(id, self._home(plan.publisher), now_ns, plan.lifetime_ns, len(payload))
        known.attributes = plan.attributes
        self.history.published[id] = known
        self.network.step(node, effects)

    def _move(self, plan: Move) -> None:
        source = self._home(plan.client)
        if source == plan.broker:
            return
        move = Moving(self.network.now_ns, plan.client, source, plan.broker)
        self.history.moves.append(move)
        try:
            self._call(self.network.nodes[plan.client], "move", plan.broker)
        except RequestError as error:
            move.failed = f"refused: {error.code}"

    def _home(self, client: str) -> str:
        machine = self.network.nodes[client].machine
        home = machine.home if isinstance(machine, Client) else None
        return self._first_homes[client] if home is None else home.name

    def _residence(self, client: str) -> Residence:
        machine = self.network.nodes[client].machine
        assert isinstance(machine, Client)
        brokers = {name: self.network.nodes[name].machine for name in self.plan.brokers}
        return Residence(
            home=None if machine.home is None else machine.home.name,
            is_moving=machine.is_moving,
            registered=tuple(name for name, it in brokers.items() if isinstance(it, Broker) and client in it.clients),
            connected=self._connections.of(client),
        )

    # -- watching ------------------------------------------------------------------------------------------------

    def _on_effect(self, node: Node, effect: Any) -> None:
        now_ns, kind = self.network.now_ns, type(effect)
        if kind is Note:
            self.history.note(now_ns, node.name, effect)
        elif kind is Deliver:
            self.history.deliver(now_ns, node.name, effect, self._home(node.name))
        elif kind is Confirmed:
            self._confirm(node, effect)
        elif kind is Moved or (kind is Failed and effect.kind == "move"):
            self.history.moved(now_ns, node.name, effect)
        else:
            self._connections.on_effect(node, effect)

    def _confirm(self, node: Node, effect: Confirmed) -> None:
        now_ns = self.network.now_ns
        if effect.kind == "publish":
            assert isinstance(node.machine, Client)
            self.history.published[node.name, node.machine.settings.epoch, int(effect.name)].confirmed_ns = now_ns
        elif effect.kind == "subscribe":
            self.history.subscribed[node.name, effect.name].confirmed_ns = now_ns

    def _look(self) -> None:
        """Are all bounds kept? Is routing as it should be, once faults are over?"""
        history, now_ns = self.history, self.network.now_ns
        for node in self.network.nodes.values():
            if node.machine is not None and not node.machine.is_within_bounds():
                for what, (size, bound) in node.machine.bounds().items():
                    if size > bound:
                        history.bounds_broken.append(f"{node.name} at {now_ns / SECOND:.1f} s: {what} {size} > {bound}")
        if now_ns >= self.plan.heal_ns and (history.converged_ns is None or now_ns == self.plan.end_ns):
            history.differences = self._differences()
            if history.differences:
                history.converged_ns = None
            elif history.converged_ns is None:
                history.converged_ns = now_ns

    def _differences(self) -> list[str]:
        """Where brokers know something else than those of a fresh network would."""
        subscribed = [known for known in self.history.subscribed.values() if known.until_ns is None]
        for known in subscribed:
            known.home = self._home(known.client)
        fresh = view_of_fresh_network(self._graph, subscribed)
        machines = {broker: self.network.nodes[broker].machine for broker in self.plan.brokers}
        views = {name: machine.view() if isinstance(machine, Broker) else None for name, machine in machines.items()}
        return differences(self._graph, fresh, views)

    def _count_sent(self, node: Node) -> None:
        if node.machine is not None:
            self._sent.update(node.machine.sent)


def _outcomes(history: History) -> dict[str, int]:
    """How many moves ended how; those that brokers decided on are counted apart."""
    found = Counter({"relocated": history.relocated} if history.relocated else {})
    for move in history.moves:
        found["done" if move.done_ns is not None else move.failed or "unfinished"] += 1
    return dict(sorted(found.items()))


def run_storm(
    settings: StormSettings, seed: int, *, make_broker: BrokerMaker = Broker, make_client: ClientMaker = Client
) -> StormResult:
    """The storm of this seed: what happened, and which promises were broken."""
    with seldom_collected():
        return Storm(settings, seed, make_broker=make_broker, make_client=make_client).run()
