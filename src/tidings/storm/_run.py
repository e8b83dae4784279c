"""One storm from its seed to its result: the plan is prepared, run and checked."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby, islice
from typing import Any, Final, Literal

import msgspec
import numpy as np

from tidings.mqtt import Gateway
from tidings.ordering import Policy
from tidings.protocol import (
    OLDEST_VERSION,
    Broker,
    BrokerSettings,
    Budget,
    Client,
    ClientSettings,
    Confirmed,
    Deliver,
    Failed,
    Moved,
    Note,
    RequestError,
)
from tidings.protocol.node import REQUESTS_SHARE, Admitted, ConnectionLimits, Node, Report
from tidings.scheduling import strategy
from tidings.storm._dice import Dice
from tidings.storm._faults import FaultInjector
from tidings.storm._garbage import seldom_collected
from tidings.storm._history import History, Moving, Published, Residence, Subscribed
from tidings.storm._invariants import CHECKS, Evidence, differences, view_of_fresh_network
from tidings.storm._mqtt import GatewayMaker, MqttSide
from tidings.storm._network import Process, StormNetwork
from tidings.storm._plan import (
    RELOADING_NS,
    ClientPlan,
    Fault,
    Move,
    Publication,
    StormPlan,
    SubscriptionPlan,
    make_plan,
)
from tidings.storm._settings import LONGEST_LIFE_S, StormSettings
from tidings.storm._strangers import Stranger
from tidings.storm._watch import connections_missing, leftovers_in_full_stores, reports, stores_still_full

__all__ = ["BrokerMaker", "ClientMaker", "Storm", "StormResult", "run_storm"]

MS: Final = 10**6
SECOND: Final = 10**9
_ELSEWHERE: Final = 0.5
"""How often a restarted subscriber starts at any broker. Not a publisher, nor one whose subscriptions end: its old home
keeps what the new process does not ask for until the client is forgotten."""
_LOOK_NS: Final = SECOND // 2
_COVERED: Final = (
    "commits_refused",
    "commits_retried",
    "congested",
    "connections_reset",
    "connections_timed_out",
    "dials_refused",
    "dials_unanswered",
    "early",
    "failed_over",
    "filters_in_slices",
    "glued_frames",
    "groups_over_one",
    "half_open",
    "interest_parts",
    "mqtt_connected",
    "mqtt_garbage",
    "mqtt_qos_0",
    "mqtt_qos_1",
    "mqtt_qos_2",
    "mqtt_resumed",
    "mqtt_sent_again",
    "noise",
    "outlasted",
    "paused",
    "rehomed",
    "requests_waited",
    "rewired",
    "split_frames",
    "started_elsewhere",
    "turns_with_several_frames",
)
"""Counters of what storms must exercise; a test checks that they do."""
_TIGHT_BYTES: Final = 150
_TIGHT_LARGE_BYTES: Final = 8_192
_TIGHT_STORED_BYTES: Final = 80_000
_TIGHT_UNDER_WAY_BYTES: Final = 1_000
_TIGHT_BUDGET: Final = Budget(queued_bytes=2_000, rate_per_s=100.0, bytes_per_s=10_000.0)
_TIGHT_SHARE: Final = 0.05
_LARGE_FILTERS: Final = tuple(f"level > {1_000 + step}" for step in range(100))
"""The filters of a large state: they match nothing that is published."""
_LARGE_PORTIONS: Final = 20
_LARGE_NS: Final = SECOND
"""The time over which a large state is requested or withdrawn."""
_OVERLOAD_BYTES: Final = (500, 4_000)
_OVERLOAD_EVENTS: Final = (30, 80)
_OVERLOAD_AT_ONCE: Final = 20
_TRACED: Final = 10
"""Few events make a session here: publishers move on noise, and often."""
_SLOW: Final = 0.25
"""How often restarted clients of a storm subscribe late, after the broker has sent what it has kept for them."""
_SLOW_NS: Final = SECOND
STAY_NS: Final = 3 * SECOND
"""How long brokers leave a publisher where it is."""

BrokerMaker = Callable[[BrokerSettings, dict[str, bytes]], Broker]
ClientMaker = Callable[[ClientSettings], Client]


class StormResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a storm; `violations` are (check, what happened)."""

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
    covered: dict[str, int]
    excused: dict[str, int] = {}
    """Deliveries that were lost with a disk, with damaged records, or to a clock that jumped."""
    converged_s: float | None
    digest: str


class Storm:
    """A running storm; use `run_storm`."""

    def __init__(
        self,
        settings: StormSettings,
        seed: int,
        *,
        make_broker: BrokerMaker = Broker,
        make_client: ClientMaker = Client,
        make_gateway: GatewayMaker = Gateway,
        node_type: type[Node] = Node,
    ) -> None:
        self.settings = settings
        self.seed = seed
        self.plan: StormPlan = make_plan(settings, seed)
        self.history = History()
        self.network = StormNetwork(
            Dice(np.random.default_rng([seed, 2])),
            self._on_effect,
            node_type=node_type,
            on_store_failed=lambda process: self._faults.store_failed(process),
        )
        self._dice = Dice(np.random.default_rng([seed, 4]))
        self._is_slow = Dice(np.random.default_rng([seed, 13])).happens(_SLOW)
        self._make_broker = make_broker
        self._make_client = make_client
        self._graph = self.plan.graph()  # the present overlay: rewires change it
        self._subscriptions = list(self.plan.subscriptions)
        self._homes = {client.name: client.home for client in self.plan.clients}  # where clients dial first
        self._mqtt = MqttSide(
            self.plan.mqtt, seed, self.network, self.history, make_gateway=make_gateway, node_type=node_type
        )
        self._faults = FaultInjector(self.plan, self.network, self.history, self._dice, self)
        self._sent: Counter[str] = Counter()
        self._calms = self.plan.calms()
        self._full_since: dict[tuple[str, str], int] = {}
        self._set_up()

    def run(self) -> StormResult:
        """Run it and check it."""
        self.network.run(self.plan.end_ns)
        self._look()
        history = self.history
        self._mqtt.end()
        history.unconnected = self._unconnected()
        history.still_full = stores_still_full(self._brokers())
        brokers = ((name, self._broker(name)) for name in self.plan.brokers)
        history.tables = {name: len(broker.gossip.local) for name, broker in brokers if broker is not None}
        for name, process in self._clients().items():
            if process.node is not None and isinstance(process.node.machine, Client):
                history.held |= {(event, name, subscription) for subscription, event in process.node.machine.end()}
        history.reports = reports(self._brokers(), self._clients(), history)
        history.residence = {client.name: self._residence(client.name) for client in self.plan.clients}
        evidence = Evidence(settings=self.settings, plan=self.plan, history=history)
        violations = [(name, text) for name, check in CHECKS.items() for text in check(evidence)]
        for process in self.network.processes.values():
            self._count(process)
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
            covered={name: self.network.covered[name] for name in _COVERED},
            excused=dict(sorted(history.excused.items())),
            converged_s=None if converged_ns is None else (converged_ns - self.plan.heal_ns) / SECOND,
            digest=history.digest(),
        )

    # -- setting up ----------------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        plan, network = self.plan, self.network
        network.figures = plan.figures
        network.limits = ConnectionLimits(
            max_frame_bytes=network.limits.max_frame_bytes,
            max_unread_bytes=1_000_000,
            requests_share=_TIGHT_SHARE if self.plan.is_tight else REQUESTS_SHARE,
        )
        network.make_busy(self._dice, plan.busy_ms[0] * MS, plan.busy_ms[1] * MS)
        network.make_lopsided(Dice(np.random.default_rng([self.seed, 7])))
        network.has_tokens = Dice(np.random.default_rng([self.seed, 11])).happens(0.5)
        versions = Dice(np.random.default_rng([self.seed, 9]))
        is_mixed = any(fault.kind == "upgrade" for fault in plan.faults)
        for name in plan.everybody:
            process = network.add(name)
            if is_mixed and versions.happens(0.5):
                process.version = OLDEST_VERSION
        for link in plan.links:
            network.join(link.one, link.other, link.latency_ns, link.jitter_ns, link.ns_per_byte)
        self._mqtt.set_up()
        for broker in plan.brokers:
            self.start_broker(broker)
        for client in plan.clients:
            self._start_client(client, epoch=1)
        for subscription in plan.subscriptions:
            network.at(subscription.from_ns, self._app, subscription.client, self._subscribe, subscription)
            if subscription.until_ns is not None:
                network.at(subscription.until_ns, self._unsubscribe, subscription)
        for (at_ns, publisher), group in groupby(plan.publications, lambda each: (each.at_ns, each.publisher)):
            network.at(at_ns, self._app, publisher, self._publish, tuple(group))
        for move in plan.moves:
            network.at(move.at_ns, self._app, move.client, self._move, move)
        self._faults.schedule()
        for when_ns in range(_LOOK_NS, plan.end_ns, _LOOK_NS):
            network.at(when_ns, self._look)

    # -- lives ---------------------------------------------------------------------------------------------------

    def start_broker(self, name: str) -> None:
        """Start a broker, for the first time or from its disk."""
        process = self.network.processes[name]
        history, damaged = self.history, dict(process.disk.damaged)
        found = self.network.read(process)
        if not process.boot(found.noted_ns):
            history.lose(self.network.now_ns, name, "clock", process.disk.kept)
            self._mqtt.lose(name, "clock")
        if damaged:
            sound = [key for key, was_sound in damaged.items() if was_sound]
            history.lose(self.network.now_ns, name, "records", sound)
        broker = self._make_broker(self._broker_settings(name), found.kept)
        reported = history.damage_reported
        self.network.start_broker(process, broker, self.plan.brokers, found)
        if process.door is not None:
            damaged |= process.door.disk.damaged
            self._mqtt.start_door(process)
        reported = history.damage_reported - reported
        if reported != len(damaged):
            history.damage_missed.append(f"{name} reported {reported} of {len(damaged)}: {', '.join(damaged)}")
        self.network.covered["damaged_records"] += len(damaged)

    def end_life(self, process: Process, *, power: bool) -> None:
        """Note that a process is gone; its counts are kept."""
        if process.name in self._homes:
            self._homes[process.name] = self._home(process.name)
        self._count(process)
        process.kill(power=power)

    def restart_client(self, name: str) -> None:
        """Start a client in a new process, with its subscriptions requested again."""
        client = next(client for client in self.plan.clients if client.name == name)
        process = self.network.processes[name]
        process.boot()
        now_ns = self.network.now_ns
        wanted = [each for each in self._subscriptions if each.client == name]
        begun = [each for each in wanted if each.from_ns <= now_ns]
        ended = [each for each in begun if each.until_ns is not None and each.until_ns <= now_ns]
        is_steady = not client.advertises and all(each.until_ns is None for each in wanted)
        if is_steady and self.network.dice.happens(_ELSEWHERE):
            self._homes[name] = self.network.dice.one_of(self.plan.brokers)
            self.network.covered["started_elsewhere"] += 1
        self._start_client(client, epoch=1 + process.life)
        for subscription in ended:  # it is unknown whether the process before could still report it
            self._call(name, "unsubscribe", subscription.name)
        again = (process.life, [subscription for subscription in begun if subscription not in ended])
        if self._is_slow:
            self.network.at(now_ns + _SLOW_NS, self._app, name, self._subscribe_again, again)
        else:
            self._subscribe_again(again)

    def _subscribe_again(self, again: tuple[int, list[SubscriptionPlan]]) -> None:
        """Request the subscriptions of a restarted client, unless it has been restarted since."""
        life, subscriptions = again
        for subscription in subscriptions:
            if self.network.processes[subscription.client].life == life:
                self._subscribe(subscription)

    def _start_client(self, client: ClientPlan, epoch: int) -> None:
        process = self.network.processes[client.name]
        machine = self._make_client(self._client_settings(client.name, epoch))
        self.network.start_client(process, machine, self._homes[client.name])
        if client.advertises:
            self._call(client.name, "advertise", "all", "level >= 0")

    def _broker_settings(self, name: str) -> BrokerSettings:
        tight = self.plan.is_tight
        return BrokerSettings(
            name=name,
            neighbours=self._graph[name],
            graph=self._graph,
            scheme=self.settings.scheme,
            copies=self.plan.copies,
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
            max_lifetime_ns=round(LONGEST_LIFE_S * SECOND),
            seen_grace_ns=30 * SECOND,
            read_at_once=3,
            window=4 if tight else 16,
            interest_bytes=self._interest_bytes(),
            max_stored=150 if tight else 20_000,
            max_queued=12 if tight else 5_000,
            max_queued_client=6 if tight else 2_000,
            max_stored_bytes=_TIGHT_STORED_BYTES if tight else 100_000_000,
            max_under_way_bytes=_TIGHT_UNDER_WAY_BYTES if tight else 16_000_000,
            budget=self._budget(),
            max_subscriptions=self.settings.large_subscriptions + len(self.plan.subscriptions),
            relocation=self.plan.relocation,
            relocation_events=_TRACED,
            relocation_per_window=_TRACED,
            relocation_window_ns=10 * SECOND,
            relocation_wait_ns=1 * SECOND,
            relocation_stay_ns=STAY_NS,
        )

    @property
    def _is_large(self) -> bool:
        return any(fault.kind == "large-state" for fault in self.plan.faults)

    def _budget(self) -> Budget:
        """A tight storm limits clients; but one with thousands of subscriptions could never request them all."""
        if not self.plan.is_tight:
            return Budget()
        return Budget(queued_bytes=_TIGHT_BUDGET.queued_bytes) if self._is_large else _TIGHT_BUDGET

    def _interest_bytes(self) -> int:
        """A tight storm sends tables in parts of two or three subscriptions; a large table would take too many."""
        return 65_536 if not self.plan.is_tight else _TIGHT_LARGE_BYTES if self._is_large else _TIGHT_BYTES

    def _client_settings(self, name: str, epoch: int) -> ClientSettings:
        return ClientSettings(
            name=name,
            epoch=epoch,
            greet_ns=500 * MS,
            silence_ns=2600 * MS,
            retry_least_ns=150 * MS,
            retry_most_ns=1500 * MS,
            max_lifetime_ns=round(LONGEST_LIFE_S * SECOND),
            seen_grace_ns=30 * SECOND,
            move_ns=6 * SECOND,
            handover_ns=800 * MS,
            failover_ns=2 * SECOND,
            window=4 if self.plan.is_tight else 16,
        )

    # -- what applications do ------------------------------------------------------------------------------------

    def _app(self, client: str, do: Callable[[Any], None], what: Any) -> None:
        """An application does something as soon as its process runs."""
        self.network.processes[client].when_running(do, what)

    def _call(self, client: str, what: str, *arguments: Any, **more: Any) -> Any:
        process = self.network.processes[client]
        assert process.node is not None
        return process.call(getattr(process.node.machine, what), *arguments, **more)

    def _subscribe(self, plan: SubscriptionPlan) -> None:
        if plan.until_ns is not None and plan.until_ns <= self.network.now_ns:
            return  # the process was paused for so long
        known = self.history.subscribed.get((plan.client, plan.name))
        if known is None:
            known = Subscribed(plan.client, plan.name, self._home(plan.client), plan.filter)
            known.max_delay_ns, known.price, known.late_ns = plan.max_delay_ns, plan.price, plan.late_ns
            known.drops, known.is_ordered = plan.drops, plan.policy is not None
            known.conflate = plan.conflate
            self.history.subscribed[known.key] = known
        elif known.is_ordered:
            known.confirmed_ns = None  # what was held to restore order is gone with the process before
        policy = None if plan.policy is None else Policy.parse(plan.policy, late="drop" if plan.drops else "deliver")
        self._call(
            plan.client,
            "subscribe",
            plan.name,
            plan.filter,
            max_delay_ns=plan.max_delay_ns,
            price=plan.price,
            late_ns=plan.late_ns,
            policy=policy,
            conflate=plan.conflate,
        )

    def _unsubscribe(self, plan: SubscriptionPlan) -> None:
        known = self.history.subscribed.get((plan.client, plan.name))
        if known is not None:
            known.until_ns = self.network.now_ns
            self._app(plan.client, self._give_up, plan)

    def _give_up(self, plan: SubscriptionPlan) -> None:
        self._call(plan.client, "unsubscribe", plan.name)

    def _publish(self, together: tuple[Publication, ...]) -> None:
        """Publish several events of one publisher together, as a live client sends what it is offered in one turn."""
        publisher, waits = together[0].publisher, len(together) > 1
        for plan in together:
            try:
                self._publish_one(plan, waits=waits)
            except RequestError:
                break  # too many wait for their broker: the application has to wait
        if waits:
            self._call(publisher, "send")

    def _publish_one(self, plan: Publication, *, waits: bool) -> None:
        process = self.network.processes[plan.publisher]
        machine = None if process.node is None else process.node.machine
        assert isinstance(machine, Client)
        payload = self._payload(plan)
        # Events are sent after the call: the history knows an event before anybody receives it.
        sequence, effects = process.node.call(  # type: ignore[union-attr]
            machine.publish,
            process.clock_ns(),
            plan.attributes,
            payload=payload,
            lifetime_ns=plan.lifetime_ns,
            waits=waits,
        )
        id = (plan.publisher, machine.epoch, sequence)
        known = Published(id, self._home(plan.publisher), self.network.now_ns, plan.lifetime_ns, payload)
        known.attributes = plan.attributes
        self.history.published[id] = known
        self._mqtt.native(known)
        process.take(effects)

    def _payload(self, plan: Publication) -> bytes:
        """Bytes that are unique to the event."""
        text = f"{plan.publisher} {len(self.history.published)} "
        if self.plan.mqtt.clients and plan.payload_bytes < len(text):
            return text.encode()  # MQTT shows no other name of an event
        return (text * (plan.payload_bytes // len(text) + 1)).encode()[: plan.payload_bytes]

    def overload(self, publisher: str) -> str:
        """Have a publisher send far more than its links can carry; returns its home broker."""
        process, dice = self.network.processes[publisher], self._dice
        count = round(dice.between(*_OVERLOAD_EVENTS))
        for first in range(0, count, _OVERLOAD_AT_ONCE):
            together = tuple(
                Publication(
                    self.network.now_ns,
                    publisher,
                    {"topic": "alarm", "level": dice.whole(100), "urgent": False},
                    dice.one_of((2 * SECOND, 10 * SECOND, 25 * SECOND)),
                    round(dice.between(*_OVERLOAD_BYTES)),
                )
                for _ in range(min(_OVERLOAD_AT_ONCE, count - first))
            )
            process.when_running(self._publish, together)
        return self._home(publisher)

    def leave(self, fault: Fault) -> None:
        """Cut off an MQTT client."""
        self._mqtt.leave(fault.place, resets=not fault.power)

    def come_back(self, fault: Fault) -> None:
        """Let an MQTT client reach its broker again."""
        self._mqtt.come_back(fault.place)

    def send_mqtt_garbage(self, broker: str) -> None:
        """Send garbage to a door."""
        self._mqtt.send_garbage(broker)

    def lose_sessions(self, broker: str, what: Literal["disk", "clock", "records"]) -> None:
        """Note that the MQTT sessions of a broker are lost."""
        self._mqtt.lose(broker, what)

    def rewire(self, one: str, other: str) -> bool:
        """Remove a link from the network file or add it; each broker reads the file a little later."""
        is_there = other not in self._graph[one]
        changed = {one: self._graph[one] ^ {other}, other: self._graph[other] ^ {one}}
        self._graph = {**self._graph, **changed}
        for broker in self.plan.brokers:
            when_ns = round(self.network.now_ns + self._dice.between(0, RELOADING_NS))
            self.network.at(when_ns, self._app, broker, self._reload, broker)
        return is_there

    def _reload(self, broker: str) -> None:
        self.network.rewire(self.network.processes[broker], self._graph)

    def enlarge(self, fault: Fault) -> None:
        """Have a client make very many subscriptions, in portions, and end them in time unless they are to stay."""
        many = [
            SubscriptionPlan(
                client=fault.place,
                name=f"large-{number:05}",
                filter=_LARGE_FILTERS[number % len(_LARGE_FILTERS)],
                max_delay_ns=None,
                price=1.0,
                late_ns=0,
                policy=None,
                drops=False,
                from_ns=fault.at_ns + _LARGE_NS * number // fault.subscriptions,
                until_ns=None
                if fault.stays
                else fault.until_ns - _LARGE_NS + _LARGE_NS * number // fault.subscriptions,
            )
            for number in range(fault.subscriptions)
        ]
        self._subscriptions += many
        size = -(-fault.subscriptions // _LARGE_PORTIONS)
        for portion in (many[first : first + size] for first in range(0, fault.subscriptions, size)):
            last = portion[-1]
            self.network.at(last.from_ns, self._app, fault.place, self._as_one, (self._subscribe, portion))
            if last.until_ns is not None:
                self.network.at(last.until_ns, self._as_one, (self._unsubscribe, portion))

    def _as_one(self, what: tuple[Callable[[SubscriptionPlan], None], list[SubscriptionPlan]]) -> None:
        """A client's request for many subscriptions in one turn."""
        do, portion = what
        with self.network.processes[portion[0].client].one_turn():
            for plan in portion:
                do(plan)

    def _move(self, plan: Move) -> None:
        source = self._home(plan.client)
        if source == plan.broker:
            return
        move = Moving(self.network.now_ns, plan.client, source, plan.broker)
        self.history.moves.append(move)
        self._note_budget(move)
        try:
            self._call(plan.client, "move", plan.broker)
        except RequestError as error:
            move.failed = f"refused: {error.code}"

    def _note_budget(self, move: Moving) -> None:
        """Note how long the old home of a client may take, by the client's budget, for what it has sent."""
        rate, node = self._budget().bytes_per_s, self.network.processes[move.source].node
        if rate is None or node is None:
            return
        for socket in self.network.processes[move.client].sockets.values():
            if socket.path.target == move.source and socket.far is not None:
                waiting_bytes = socket.unread_bytes + node.waiting_bytes(socket.far.name)
                move.budgeted_ns = max(move.budgeted_ns, round(waiting_bytes / rate * SECOND))

    def _home(self, client: str) -> str:
        node = self.network.processes[client].node
        home = node.machine.home if node is not None and isinstance(node.machine, Client) else None
        return self._homes[client] if home is None else home.name

    def _brokers(self) -> dict[str, Process]:
        return {name: self.network.processes[name] for name in self.plan.brokers}

    def _clients(self) -> dict[str, Process]:
        return {client.name: self.network.processes[client.name] for client in self.plan.clients}

    def _broker(self, name: str) -> Broker | None:
        node = self.network.processes[name].node
        return node.machine if node is not None and isinstance(node.machine, Broker) else None

    def _residence(self, client: str) -> Residence:
        node = self.network.processes[client].node
        assert node is not None
        machine = node.machine
        assert isinstance(machine, Client)
        brokers = {name: self._broker(name) for name in self.plan.brokers}
        return Residence(
            home=None if machine.home is None else machine.home.name,
            is_moving=machine.is_moving,
            registered=tuple(name for name, it in brokers.items() if it is not None and client in it.clients),
            connected=tuple(name for name, target in node.dials.targets.items() if target.since_ns is not None),
        )

    # -- watching ------------------------------------------------------------------------------------------------

    def _on_effect(self, process: Process, effect: Any) -> None:
        now_ns, kind = self.network.now_ns, type(effect)
        if kind is Note:
            self.history.note(now_ns, process.name, effect)
        elif kind is Deliver:
            self._deliver(process, effect)
        elif kind is Confirmed:
            self._confirm(process, effect)
        elif kind is Moved or (kind is Failed and effect.kind == "move"):
            self.history.moved(now_ns, process.name, effect)
        elif kind is Report:
            if effect.event in ("store damaged", "MQTT store damaged"):
                self.history.damage_reported += effect.facts["records"]
        elif kind is Admitted:
            socket = process.sockets.get(effect.connection)  # None if it is gone again already
            host = None if socket is None else socket.far_host
            if effect.kind == "broker":
                self.history.connected[process.name, effect.peer].append(now_ns)
            if isinstance(host, Stranger) and not host.may_enter:
                self.history.intruders.append(f"{process.name} has admitted a stranger as {effect.kind} {effect.peer}")

    def _deliver(self, process: Process, effect: Deliver) -> None:
        home = self._home(process.name)
        client = None if process.node is None else process.node.machine
        epoch = client.home.epoch if isinstance(client, Client) and client.home is not None else -1
        self.history.deliver(self.network.now_ns, process.name, effect, (home, epoch), process.life)

    def _confirm(self, process: Process, effect: Confirmed) -> None:
        now_ns = self.network.now_ns
        if effect.kind == "publish":
            machine = None if process.node is None else process.node.machine
            assert isinstance(machine, Client)
            self.history.published[process.name, machine.epoch, int(effect.name)].confirmed_ns = now_ns
        elif effect.kind == "subscribe":
            known = self.history.subscribed[process.name, effect.name]
            if known.confirmed_ns is None:
                known.confirmed_ns = now_ns

    def _look(self) -> None:
        """Check all bounds, and after the faults also connections and routing."""
        history, now_ns = self.history, self.network.now_ns
        for process in self.network.processes.values():
            machine = None if process.node is None else process.node.machine
            if machine is not None and not machine.is_within_bounds():
                for what, (size, bound) in machine.bounds().items():
                    if size > bound:
                        history.bounds_broken.append(
                            f"{process.name} at {now_ns / SECOND:.1f} s: {what} {size} > {bound}"
                        )
            for what, (size, bound) in () if process.door is None else process.door.bounds():
                if size > bound:
                    history.bounds_broken.append(f"{process.name} at {now_ns / SECOND:.1f} s: {what} {size} > {bound}")
        for move in history.moves:
            if move.done_ns is None and move.failed is None:
                self._note_budget(move)
        erase_ns = round(self.settings.erase_s * SECOND)
        history.unerased += leftovers_in_full_stores(self._brokers(), now_ns, erase_ns, self._full_since)
        for begin, end in self._calms:
            if begin <= now_ns < end and begin not in history.settled_ns and not self._unconnected():
                history.settled_ns[begin] = now_ns
        if now_ns >= self.plan.heal_ns and (history.converged_ns is None or now_ns == self.plan.end_ns):
            most = None if now_ns == self.plan.end_ns else 1  # before the end, one is enough
            history.differences = list(islice(self._differences(), most))
            if history.differences:
                history.converged_ns = None
            elif history.converged_ns is None:
                history.converged_ns = now_ns

    def _unconnected(self) -> list[str]:
        brokers = {name: self._broker(name) for name in self.plan.brokers}
        clients = {}
        for name, process in self._clients().items():
            node = process.node
            clients[name] = node.machine if node is not None and isinstance(node.machine, Client) else None
        return [*connections_missing(self._graph, brokers, clients), *self._mqtt.missing()]

    def _differences(self) -> Iterator[str]:
        """Where brokers know something else than the brokers of a fresh network would."""
        subscribed = [known for known in self.history.subscribed.values() if known.until_ns is None]
        homes = {client.name: self._home(client.name) for client in self.plan.clients}
        for known in subscribed:
            known.home = homes.get(known.client, known.home)
        fresh = view_of_fresh_network(self._graph, subscribed)
        machines = ((name, self._broker(name)) for name in self.plan.brokers)
        views = ((name, None if machine is None else machine.view()) for name, machine in machines)
        return differences(self._graph, fresh, views)

    def _count(self, process: Process) -> None:
        if process.node is not None:
            self._sent.update(process.node.machine.sent)
            self.network.covered["filters_in_slices"] += process.node.readings.begun
            self.network.covered["requests_waited"] += process.node.requests.waited
            self.network.covered["commits_retried"] += process.node.commits.retried
            self.network.covered["interest_parts"] += process.node.machine.sent["InterestPart"]
            self.network.covered["early"] += process.node.machine.counts["early"]
            self.network.covered["failed_over"] += process.node.machine.counts["failover"]
            self.network.covered["rehomed"] += process.node.machine.counts["rehomed"]


def _outcomes(history: History) -> dict[str, int]:
    """The number of moves by outcome; those that brokers decided on are counted separately."""
    found = Counter({"relocated": history.relocated} if history.relocated else {})
    for move in history.moves:
        found["done" if move.done_ns is not None else move.failed or "unfinished"] += 1
    return dict(sorted(found.items()))


def run_storm(
    settings: StormSettings,
    seed: int,
    *,
    make_broker: BrokerMaker = Broker,
    make_client: ClientMaker = Client,
    make_gateway: GatewayMaker = Gateway,
    node_type: type[Node] = Node,
) -> StormResult:
    """Run the storm of this seed and check its guarantees."""
    with seldom_collected():
        return Storm(
            settings,
            seed,
            make_broker=make_broker,
            make_client=make_client,
            make_gateway=make_gateway,
            node_type=node_type,
        ).run()
