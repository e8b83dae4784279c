"""The MQTT clients of a storm, the doors that they connect to, and what they have seen."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tidings.mqtt import RETAINED_FILTER, Gateway, GatewaySettings, retaining_client
from tidings.mqtt.packets import V5, Connect, Kind, Ping, Publish, encode
from tidings.protocol import wire
from tidings.protocol.node import Node, Opened
from tidings.storm._dice import Dice
from tidings.storm._disk import Disk
from tidings.storm._history import History, Published, Subscribed
from tidings.storm._mqtt_client import MqttClient, Sent
from tidings.storm._mqtt_door import StormDoor, Tap
from tidings.storm._mqtt_history import Got, Greeting, MqttLoss, Stale
from tidings.storm._mqtt_plan import FRESH, MqttClientPlan, MqttPlan, MqttPublication
from tidings.storm._network import CLIENT_TOKEN, GUEST, Process, StormNetwork
from tidings.storm._settings import LONGEST_LIFE_S
from tidings.storm._sockets import Socket, connect
from tidings.storm._strangers import Stranger

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["GatewayMaker", "MqttHost", "MqttSide"]

SECOND: Final = 10**9
_TICK_NS: Final = SECOND // 4
_RETRY_NS: Final = (0.1e9, 0.8e9)
_DIAL_NS: Final = 2 * SECOND
_SLOW_NS: Final = (1e6, 300e6)
_LATENCY_NS: Final = (0.2e6, 2e6)
_NS_PER_BYTE: Final = (10, 200)
_STALE_NS: Final = SECOND
"""How much older an event may be than its broker believes, before all links on its path have been measured."""
_JSON_TOPICS: Final = ("#",)

GatewayMaker = Callable[..., Gateway]


class MqttHost:
    """The host of one client: it dials the broker's door again and again."""

    is_powered = True

    def __init__(self, network: StormNetwork, dice: Dice, client: MqttClient, door: StormDoor) -> None:
        self.client = client
        self.door = door
        self.name = client.plan.name
        self.away_since_ns: int | None = None
        self.socket: Socket | None = None
        self._network = network
        self._dice = dice
        self._dialled = 0
        self._is_reading_due = False

    def start(self) -> None:
        """Dial, and look at the time now and then."""
        self._dial()
        self._network.at(self._network.now_ns + _TICK_NS, self._tick)

    def _tick(self) -> None:
        self.client.wake(self._network.now_ns)
        self.flush()
        self._network.at(self._network.now_ns + _TICK_NS, self._tick)

    def _dial(self) -> None:
        network, broker = self._network, self.door.process
        self._dialled += 1
        there, back = network.path(self.name, broker.name), network.path(broker.name, self.name)
        if there.cuts or back.cuts or not broker.is_powered:
            network.covered["dials_unanswered"] += 1
            self._again(_DIAL_NS)
            return
        when_ns = network.now_ns + round(there.latency_ns + back.latency_ns)
        network.at(when_ns, self._connect)

    def _connect(self) -> None:
        network, broker = self._network, self.door.process
        if broker.node is None or not broker.is_powered:
            network.covered["dials_refused"] += broker.is_powered
            self._again(_DIAL_NS if not broker.is_powered else 0)
            return
        there, back = network.path(self.name, broker.name), network.path(broker.name, self.name)
        near, far = connect(network, (self, f"out-{self._dialled}", there), (self.door, self.door.next_name(), back))
        self.socket = near
        self.door.accept(far)
        plan = self.client.plan
        if plan.version == V5 and plan.is_kept and self._dice.happens(FRESH):  # 3.1.1 keeps no new session
            self.client.wants_fresh = True
        self.client.opened(network.now_ns)
        self.flush()

    def _again(self, after_ns: int) -> None:
        when_ns = self._network.now_ns + after_ns + round(self._dice.between(*_RETRY_NS))
        self._network.at(when_ns, self._dial)

    def flush(self) -> None:
        """Send what the client wants to send, and close the connection if it wants that."""
        socket, client = self.socket, self.client
        if socket is not None and client.out:
            data, client.out = client.out, b""
            socket.write([b"", data])
        if socket is not None and client.wants_to_close:
            client.wants_to_close = False
            socket.close(at_once=True)

    def stir(self, socket: Socket) -> None:
        """There are bytes to read."""
        if not self._is_reading_due and socket is self.socket:
            self._is_reading_due = True
            after_ns = self._dice.between(*_SLOW_NS) if self.client.plan.is_slow else 0
            self._network.at(self._network.now_ns + round(after_ns), self._read)

    def _read(self) -> None:
        self._is_reading_due = False
        if self.socket is not None:
            data = b"".join(self.socket.take())
            if data:
                self.client.received(data, self._network.now_ns)
                self.flush()

    def ended(self, socket: Socket, reason: str) -> None:  # noqa: ARG002
        """The connection is gone; what arrived over it before is read."""
        if socket is self.socket:
            self._read()
            self.socket = None
            self.client.lost()
            self._again(0)

    def congested(self, socket: Socket, is_congested: bool) -> None:
        """The client has no more under way than it may."""


class MqttSide(Tap):
    """Everything about MQTT in one storm."""

    def __init__(
        self,
        plan: MqttPlan,
        seed: int,
        network: StormNetwork,
        history: History,
        *,
        make_gateway: GatewayMaker = Gateway,
        node_type: type[Node] = Node,
    ) -> None:
        self.plan = plan
        self.hosts: dict[str, MqttHost] = {}
        self._dice = Dice(np.random.default_rng([seed, 15]))
        self._network = network
        self._history = history
        self._make_gateway = make_gateway
        self._node_type = node_type
        self._clean: dict[str, bool] = {}
        self._welcomed_ns: dict[str, int] = {}

    def set_up(self) -> None:
        """Make the doors and the clients; the brokers start afterwards."""
        network = self._network
        for broker in self.plan.doors:
            process = network.processes[broker]
            process.door = StormDoor(network, process, Disk(self._dice), self)
            name = retaining_client(broker)
            known = Subscribed(name, "retained", broker, RETAINED_FILTER)
            self._history.subscribed[known.key] = known
        for client in self.plan.clients:
            network.join(client.name, client.broker, *self._link())
            door = network.processes[client.broker].door
            assert door is not None
            machine = MqttClient(client, self._password(client.name), self._noter(client))
            self.hosts[client.name] = MqttHost(network, self._dice, machine, door)
            for wish in client.wishes:
                known = Subscribed(client.name, wish.topic_filter, client.broker, wish.sql)
                known.max_delay_ns = wish.max_delay_ns
                self._history.subscribed[known.key] = known
        for publication in self.plan.publications:
            network.at(publication.at_ns, self._publish, publication)
        for host in self.hosts.values():
            network.at(round(self._dice.between(0.1, 2.0) * SECOND), host.start)

    def _link(self) -> tuple[float, float, float]:
        latency_ns = self._dice.between(*_LATENCY_NS)
        return latency_ns, latency_ns / 2, self._dice.between(*_NS_PER_BYTE)

    def _password(self, name: str) -> bytes:
        return (CLIENT_TOKEN if self._network.has_tokens else f"secret of {name}").encode()

    def start_door(self, process: Process) -> int:
        """Start the door of a broker that has started; returns how many damaged records its store has."""
        door = process.door
        assert door is not None
        found: Opened = self._node_type.read(door.disk.kept)
        damaged = len(door.disk.damaged)
        if damaged:
            self.lose(process.name, "records")
        settings = GatewaySettings(
            broker=process.name,
            has_tokens=self._network.has_tokens,
            retaining_token=CLIENT_TOKEN if self._network.has_tokens else None,
            json_topics=_JSON_TOPICS,
            max_lifetime_ns=round(LONGEST_LIFE_S * SECOND),
            max_session_s=90,
        )
        door.start(self._make_gateway(settings, chance=self._dice.share, found=found))
        return damaged

    def lose(self, broker: str, what: Any) -> None:
        """A broker has lost its disk or records, or its clock has jumped."""
        if broker in self.plan.doors:
            self._history.mqtt.losses.append(MqttLoss(self._network.now_ns, broker, what))

    def end(self) -> None:
        """Note what clients have published again."""
        for host in self.hosts.values():
            self._history.mqtt.repeated |= {sent.payload for sent in host.client.sent.values() if sent.is_repeated}

    def missing(self) -> "Iterator[str]":
        """The clients that are not connected, or wait for their subscriptions."""
        for name, host in self.hosts.items():
            if not (host.client.is_up and host.client.is_ready):
                yield f"{name} with the door of {host.door.process.name}"

    # -- faults ----------------------------------------------------------------------------------------------------

    def leave(self, client: str, *, resets: bool) -> None:
        """A client is cut off; both ends of its connection may notice at once."""
        host = self.hosts[client]
        if resets and host.socket is not None:
            for end in (host.socket, host.socket.far):
                if end is not None:
                    end.far = None
                    end.reset_soon(0)
        self._network.cut_off_host(client, 1)

    def come_back(self, client: str) -> None:
        """A client can reach its broker again."""
        self._network.cut_off_host(client, -1)

    def send_garbage(self, broker: str) -> None:
        """Send garbage to a door, from the first byte on or after a proper CONNECT."""
        process, dice, network = self._network.processes[broker], self._dice, self._network
        if process.node is None or not process.is_powered or process.door is None:
            return
        noise = bytes(dice.whole(256) for _ in range(1 + dice.whole(300)))
        proper = encode(
            Connect(client_id=GUEST, password=GUEST.encode(), properties={"session_expiry_s": dice.whole(5)})
        )
        packets = (encode(Ping(Kind.PINGREQ)), encode(Publish(topic="news", payload=b"no", qos=1, packet_id=7)))
        nonsense = bytearray(b"".join(dice.one_of(packets) for _ in range(1 + dice.whole(10))))
        nonsense[dice.whole(len(nonsense))] = dice.whole(256)
        streams = (noise, proper[: len(proper) // 2], proper + noise, proper + bytes(nonsense), proper + proper)
        stranger = Stranger("stranger", may_enter=True)
        there, back = network.path("stranger", broker), network.path(broker, "stranger")
        near, far = connect(network, (stranger, "out", there), (process.door, process.door.next_name(), back))
        process.door.accept(far)
        near.write([b"", dice.one_of(streams)])
        network.covered["mqtt_garbage"] += 1
        network.at(network.now_ns + round(dice.between(0.1e9, 8e9)), _leave, near, dice.happens(0.5))

    # -- what clients do and see -----------------------------------------------------------------------------------

    def _publish(self, publication: MqttPublication) -> None:
        host = self.hosts[publication.client]
        host.client.publish(publication)
        host.flush()

    def _noter(self, plan: MqttClientPlan) -> Callable[..., None]:
        def note(what: str, **facts: Any) -> None:
            getattr(self, f"_note_{what.replace('-', '_')}")(plan, **facts)

        return note

    def _note_asked(self, plan: MqttClientPlan, is_clean: bool) -> None:
        self._clean[plan.name] = is_clean

    def _note_welcome(self, plan: MqttClientPlan, is_present: bool) -> None:
        network, name = self._network, plan.name
        self._history.mqtt.greetings.append(
            Greeting(
                at_ns=network.now_ns,
                client=name,
                is_present=is_present,
                is_clean=self._clean[name],
                welcomed_ns=self._welcomed_ns.get(name),
                heard_ns=self.hosts[name].client.away_since_ns,
            )
        )
        network.covered["mqtt_connected"] += 1
        network.covered["mqtt_resumed"] += is_present
        if not is_present:
            self._welcomed_ns[name] = network.now_ns
            for wish in plan.wishes:
                self._history.subscribed[name, wish.topic_filter].confirmed_ns = None

    def _note_subscribed(self, plan: MqttClientPlan, number: int, reason: int) -> None:
        wish = plan.wishes[number - 1]
        if reason != wish.qos:
            self._strange(f"{plan.name} subscribed to {wish.topic_filter} with QoS {wish.qos}, and got reason {reason}")
        elif plan.is_kept and wish.qos:
            self._history.subscribed[plan.name, wish.topic_filter].confirmed_ns = self._network.now_ns

    def _note_got(self, plan: MqttClientPlan, topic: str, packet: Publish, number: int, is_new: bool) -> None:
        network, client = self._network, self.hosts[plan.name].client
        got = Got(
            at_ns=network.now_ns,
            client=plan.name,
            session=client.session,
            number=number,
            topic=topic,
            payload=packet.payload,
            qos=packet.qos,
            is_dup=packet.dup,
            is_new=is_new,
        )
        self._history.mqtt.got.append(got)
        network.covered[f"mqtt_qos_{packet.qos}"] += 1
        network.covered["mqtt_sent_again"] += packet.dup

    def _note_accepted(self, plan: MqttClientPlan, sent: Sent) -> None:
        ids = self._history.mqtt.events.get(sent.payload)
        published = self._history.published[ids[-1]] if ids else None
        if published is None or not published.accepted_ns:
            text = sent.plan.fields["text"]
            self._history.mqtt.unaccepted.append(f"{text} of {plan.name} at {self._network.now_ns / SECOND:.3f} s")
        if published is not None and published.confirmed_ns is None:
            published.confirmed_ns = self._network.now_ns

    def _note_not_accepted(self, plan: MqttClientPlan, sent: Sent, reason: int) -> None:  # noqa: ARG002
        self._network.covered["mqtt_not_accepted"] += 1

    def _note_refused(self, plan: MqttClientPlan, reason: int) -> None:  # noqa: ARG002
        self._network.covered["mqtt_refused"] += 1

    def _note_dismissed(self, plan: MqttClientPlan, reason: int) -> None:  # noqa: ARG002
        self._network.covered["mqtt_dismissed"] += 1

    def _note_broken(self, plan: MqttClientPlan, why: str) -> None:
        self._strange(f"{plan.name} was sent what is no packet: {why}")

    def _strange(self, what: str) -> None:
        self._history.mqtt.strange.append(f"{what}, at {self._network.now_ns / SECOND:.3f} s")

    # -- the tap ---------------------------------------------------------------------------------------------------

    def published(self, door: StormDoor, publisher: str, epoch: int, event: wire.Publication) -> None:
        """A client of a door publishes an event."""
        id = (publisher, epoch, event.sequence)
        if id in self._history.published:
            return  # it is sent again
        content = wire.decode_content(event.content)
        departed_ns = door.process.when_ns(event.departure_ns)
        known = Published(id, door.process.name, departed_ns, event.lifetime_ns, content.payload)
        known.attributes = dict(content.attributes)
        self._history.published[id] = known
        self._history.mqtt.events.setdefault(content.payload, []).append(id)
        sent = self._sent_by(publisher, content.payload)
        if sent is not None and (sent.plan.topic, sent.plan.qos) != (
            content.attributes.get("topic"),
            content.attributes.get("mqtt_qos"),
        ):
            self._strange(f"{sent.plan.fields['text']} was published as {content.attributes}")

    def _sent_by(self, publisher: str, payload: bytes) -> Sent | None:
        host = self.hosts.get(publisher)
        return None if host is None else host.client.sent.get(payload)

    def native(self, published: Published) -> None:
        """A native client publishes an event."""
        if self.plan.clients:
            self._history.mqtt.events.setdefault(published.payload, []).append(published.id)

    def sent(self, door: StormDoor, socket: Socket, packet: Publish) -> None:
        """A door sends a message: it must not be stale, unless it has been sent before with QoS 2."""
        ids = self._history.mqtt.events.get(packet.payload)
        host = self.hosts.get(socket.path.target)
        if not ids or host is None or (packet.dup and packet.qos == 2):
            return
        wish = host.client.plan.wishes[packet.properties.get("subscription_ids", (1,))[0] - 1]
        now_ns = self._network.now_ns
        for published in (self._history.published[id] for id in ids):
            limits = [limit for limit in (published.lifetime_ns, wish.max_delay_ns) if limit is not None]
            if now_ns - published.departed_ns < min(limits, default=now_ns) + _STALE_NS:
                return
        age_s = (now_ns - published.departed_ns) / SECOND
        self._history.mqtt.stale.append(Stale(now_ns, host.name, door.process.name, tuple(ids), age_s, packet.qos))


def _leave(socket: Socket, at_once: bool) -> None:
    socket.close(at_once=at_once)
