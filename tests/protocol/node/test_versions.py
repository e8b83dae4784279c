"""Two versions of the wire side by side: nodes agree on the latest that both speak, and check frames if they can."""

import msgspec
import pytest
from tests.protocol.node.nodes import LATEST, SECOND, Wire, broker, client, network

from tidings.protocol import OLDEST_VERSION, VERSION, Deliver
from tidings.protocol.node import Answer, Node, Preamble, Report, Shut, Splitter, Unreached, Write, joined, read_answer

OLD = (OLDEST_VERSION, OLDEST_VERSION)


def delivered(wire: Wire, publisher: Node, count: int = 5) -> list[int]:
    for n in range(count):
        wire.call("p", publisher.machine.publish, {"n": n}, lifetime_ns=60 * SECOND)  # type: ignore[attr-defined]
    wire.run(1.0)
    return [effect.attributes["n"] for effect in wire.of("s", Deliver)]


def versions_of(node: Node) -> dict[str, int]:
    """By peer: the version that is spoken with it."""
    peers = {**getattr(node.machine, "neighbours", {}), **getattr(node.machine, "clients", {})}
    return {name: peer.version for name, peer in peers.items()}


@pytest.mark.parametrize("old", ["", "a", "b", "p", "s", "ab", "ps", "as", "abps"])
def test_every_mixture_of_versions_carries_events(old: str) -> None:
    wire = Wire()
    publisher, _ = network(wire, **dict.fromkeys(old, OLD))
    assert delivered(wire, publisher) == list(range(5))

    def spoken(one: str, other: str) -> int:
        return OLDEST_VERSION if one in old or other in old else VERSION

    assert versions_of(wire.nodes["a"]) == {"b": spoken("a", "b"), "p": spoken("a", "p")}
    assert versions_of(wire.nodes["b"]) == {"a": spoken("b", "a"), "s": spoken("b", "s")}


def test_a_peer_that_says_nothing_of_versions_is_of_the_oldest() -> None:
    wire = Wire()
    node = broker(wire, "a")
    wire.carry("a", node.opened("in", wire.now_ns))
    preamble = msgspec.msgpack.encode(["client", "x", None, "tidings", 1, b""])  # as version 2 writes it
    node.received("in", joined([preamble]))
    (write,) = [effect for effect in node.turn(wire.now_ns) if isinstance(effect, Write)]
    answer, hello = Splitter(1 << 20).feed(b"".join(write.parts))
    assert read_answer(answer).speaks == OLDEST_VERSION
    assert msgspec.msgpack.decode(hello)[:3] == [1, OLDEST_VERSION, "a"]


def test_an_answer_of_version_2_is_understood() -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(["", "", b""]), type=Answer).speaks == OLDEST_VERSION
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(["client", "x"]), type=Preamble).speaks == OLD


def test_a_peer_without_a_common_version_gets_both() -> None:
    wire = Wire()
    broker(wire, "a")
    client(wire, "x", "a", speaks=(VERSION + 1, VERSION + 2))
    wire.run(0.1)
    (unreached,) = wire.of("x", Unreached)
    assert unreached.code == "version"
    assert f"{VERSION + 1} to {VERSION + 2}" in unreached.why
    assert f"{LATEST[0]} to {LATEST[1]}" in unreached.why


@pytest.mark.parametrize("is_old", [False, True])
def test_a_flipped_bit_ends_the_connection_and_nothing_is_lost(is_old: bool) -> None:
    """Before frames were checked, a flipped bit of a payload was delivered as if it were sound."""
    wire = Wire()
    publisher, _ = network(wire, **({"a": OLD} if is_old else {}))
    (theirs,) = [theirs for (name, _), (other, theirs) in wire.ends.items() if (name, other) == ("a", "b")]
    received = wire.nodes["b"].received
    payloads, flips = [], [0]

    def flip(connection: str, data: bytes) -> bool:
        at = data.find(b"payload")
        if connection == theirs and at >= 0 and not flips[0]:
            flips[0] += 1
            data = data[:at] + b"P" + data[at + 1 :]
        return received(connection, data)

    wire.nodes["b"].received = flip  # type: ignore[method-assign]
    wire.call("p", publisher.machine.publish, {"n": 1}, payload=b"payload")  # type: ignore[attr-defined]
    wire.run(8.0)
    payloads = [effect.payload for effect in wire.of("s", Deliver)]
    damaged = [effect for effect in wire.of("b", Report) if effect.event == "frame damaged"]
    assert flips == [1]
    if is_old:  # nobody checked the frame; the content does not match its checksum, and is not delivered
        assert payloads == []
        assert wire.nodes["b"].machine.counts["damaged"] == 1
    else:
        assert payloads == [b"payload"]
        assert len(damaged) == 1
        assert any("damaged" in effect.reason for effect in wire.of("b", Shut))
        assert wire.nodes["b"].machine.refused["damaged"] == 1


def test_a_content_that_its_publisher_did_not_check_is_refused_by_name() -> None:
    wire = Wire()
    publisher, _ = network(wire)
    machine = publisher.machine
    wire.call("p", machine.publish, {"n": 1}, waits=True)  # type: ignore[attr-defined]
    (waiting,) = machine._publisher._waiting  # type: ignore[attr-defined]
    waiting.check ^= 1
    wire.call("p", machine.send)  # type: ignore[attr-defined]
    wire.run(1.0)
    assert machine.counts["told damaged"] == 1
    assert not wire.of("s", Deliver)


def test_with_tls_frames_have_no_checksums_of_their_own() -> None:
    wire = Wire()
    node = broker(wire, "a")
    wire.carry("a", node.opened("in", wire.now_ns, is_encrypted=True))
    node.received("in", joined([msgspec.msgpack.encode(Preamble("client", "x", speaks=LATEST))]))
    (write,) = [effect for effect in node.turn(wire.now_ns) if isinstance(effect, Write)]
    assert [len(prefix) for prefix in write.parts[::2]] == [4, 4]
