"""What is fuzzed: functions of bytes that must not raise, whatever the bytes are, and must keep what they promise.

Each is made anew for a run of inputs (`TARGETS`): what it has been given before may matter, so a failure is told with
all of them.
"""

import re
import shutil
import socket
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.mqtt.world import World
from tests.protocol.test_hostile_frames import NOW, living_broker

from tidings.errors import ConfigurationError, EventError, FilterError
from tidings.live import read_network
from tidings.model.filters import Filter
from tidings.protocol import Broker, BrokerSettings, Budget
from tidings.protocol.node import Admission, Commit, ConnectionLimits, Node, Preamble, Rule, Token

Target = Callable[[bytes], None]
MS = 10**6
LONGEST_FILTER = 2_000
ATTRIBUTES: dict[str, Any] = {"x": 3, "y": -0.5, "z": True, "symbol": "YHOO", "price": 10**300, "n": 2**63 - 1}


def frames() -> Target:
    """A broker that has a neighbour, a client and a stranger: the first byte says who sends the rest as a frame."""
    machine = living_broker()
    machine._max_refused = 1 << 60
    machine.connected("stranger", NOW)
    now_ns = NOW

    def receive(data: bytes) -> None:
        nonlocal now_ns
        if not data:
            return
        now_ns += (data[0] >> 2) * MS
        effects = machine.receive(("b", "c", "stranger", "c")[data[0] & 3], data[1:], now_ns)
        effects += machine.wake(now_ns)
        for effect in effects:
            token = getattr(effect, "token", None)
            if token is not None:
                machine.synced(token, now_ns)
        assert machine.is_within_bounds(), machine.bounds()

    return receive


def greeting() -> Target:
    """A node that somebody connects to: the bytes are all that he sends, in two pieces."""
    rules = (Rule(identity="desk-*", publish=True, advertise=True, subscribe=Filter.parse("x > 0")),)
    admission = Admission(
        name="a",
        brokers=frozenset("ab"),
        neighbours=frozenset("b"),
        broker_token="secret",
        tokens=(Token(identity="desk-*", secret="token"), Token(identity="c", secret="token")),
        rules=rules,
        budget=Budget(rate_per_s=20.0, bytes_per_s=2_000.0),
    )
    machine = Broker(BrokerSettings(name="a", neighbours=frozenset("b"), max_refused=20))
    limits = ConnectionLimits(max_frame_bytes=4_096, max_connections=8)
    facts: dict[str, Any] = {"preamble": Preamble("broker", "a", "secret"), "limits": limits, "admission": admission}
    node = Node(machine, chance=lambda: 0.5, **facts)
    now_ns, count = NOW, 0

    def carry(effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Commit):
                carry(node.committed(now_ns))

    carry(node.start(now_ns))

    def connect(data: bytes) -> None:
        nonlocal now_ns, count
        count += 1
        name = f"in-{count}"
        carry(node.opened(name, now_ns, address="somewhere"))
        middle = len(data) // 2
        for part in (data[:middle], data[middle:]):
            node.received(name, part)
            carry(node.turn(now_ns))
            now_ns += 50 * MS
            carry(node.wake(now_ns))
        carry(node.turn(now_ns))
        carry(node.lost(name, "fuzzed", now_ns))
        assert machine.is_within_bounds(), machine.bounds()

    return connect


def filters() -> Target:
    """A filter as a text: it is read, asked, written and read again, or refused with the place."""

    def read(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")[:LONGEST_FILTER]
        try:
            found = Filter.parse(text)
        except FilterError as error:
            _require(bool(str(error)), "refused without a reason")
            return
        again = Filter.parse(found.to_sql())
        assert again == found
        assert found.covers(again) is not False
        assert len(found.clauses) <= 64
        try:
            answer = found.evaluate(ATTRIBUTES)
        except EventError:
            return
        assert again.evaluate(ATTRIBUTES) == answer
        assert answer is not True or found.clauses

    return read


def network() -> Target:
    """A `network.toml`: it is read, or refused with the file; no host is looked up, no file outside is read."""
    directory = Path(tempfile.mkdtemp(prefix="tidings-fuzz-"))
    path = directory / "network.toml"

    def look_up(host: str, *_: Any, **__: Any) -> list[Any]:
        if not re.fullmatch(r"[0-9.:]+|localhost", host):
            raise OSError("no host is looked up")
        return []

    def read(data: bytes) -> None:
        path.write_bytes(re.sub(rb"_file\s*=", b"_fil_=", data))
        known, socket.getaddrinfo = socket.getaddrinfo, look_up  # type: ignore[assignment]
        try:
            found = read_network(path)
        except ConfigurationError as error:
            _require(str(path) in str(error), "refused without the file")
            return
        finally:
            socket.getaddrinfo = known
        for name in found.brokers:
            found.settings_of(name)
        assert found.budget.queued_bytes >= 0

    weakref.finalize(read, shutil.rmtree, directory)
    return read


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


def mqtt() -> Target:
    """A door with a client that is admitted and one that is not: the first byte says who sends the rest, in two pieces.

    Whatever comes, nothing may raise, and a client that is dismissed is told so or closed; others go on.
    """
    world = World()
    watcher = world.connect("watcher")
    watcher.subscribe("#", 1)
    client = world.connect("c")
    stranger = world.open()

    def receive(data: bytes) -> None:
        nonlocal client, stranger
        if not data:
            return
        if not client.is_open:
            client = world.connect("c", version=4 + (data[0] >> 1 & 1))
        if not stranger.is_open:
            stranger = world.open()
        sender = client if data[0] & 1 else stranger
        half = len(data) // 2
        for piece in (data[1:half], data[half:]):
            if sender.is_open:
                sender.send_bytes(piece)
        world.wait((data[0] >> 2) * 0.01)
        watcher.got.clear()
        assert watcher.is_open

    return receive


TARGETS: dict[str, Callable[[], Target]] = {
    "frames": frames,
    "greeting": greeting,
    "filters": filters,
    "network": network,
    "mqtt": mqtt,
}
