"""Who may come in, and what they may do: tokens, certificates, names, rules, limits."""

import asyncio
import time
from pathlib import Path

import msgspec
import pytest
from tests.live.conftest import Place, run, running, until

from tidings.live import DeniedError, Network, connect
from tidings.live.operations._query import ask_network
from tidings.live.security._certificates import make_certificates
from tidings.protocol import wire
from tidings.protocol.node import Answer, Preamble, Splitter, joined

SESAME, OPEN = "sesame, open yourself", "open, said the feed"
TOKENS = """
[[token]]
identity = "desk-*"
token = "sesame, open yourself"
[[token]]
identity = "feed"
token = "open, said the feed"
"""
RULES = """
[[rule]]
identity = "feed"
publish = "price > 0"
[[rule]]
identity = "desk-*"
subscribe = "symbol = 'S1'"
"""
TLS = """
[tls]
certificate = "certificates/{name}.pem"
key = "certificates/{name}.key"
authority = "certificates/authority.pem"
"""


def test_tokens(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", more=TOKENS)
        async with running(network) as nodes:
            async with connect(place.address("a"), name="desk-1", token=SESAME) as desk:
                await desk.publish({"x": 1})
            for name, token in (("desk-1", "wrong"), ("desk-1", None), ("feed", SESAME), ("other", SESAME)):
                with pytest.raises(DeniedError, match="needs a token, and has none or a wrong one") as denied:
                    async with connect(place.address("a"), name=name, token=token):
                        pass
                assert denied.value.code == "token"
            assert nodes["a"].machine.refused == {"token": 4}
            assert (await ask_network(network))[0]["up"]

    run(work())


def test_rules_deny_what_they_do_not_allow(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", more=TOKENS + RULES)
        async with (
            running(network),
            connect(place.address("a"), name="feed", token=OPEN) as feed,
            connect(place.address("a"), name="desk-1", token=SESAME) as desk,
        ):
            events = await desk.subscribe("symbol = 'S1' AND price < 10")
            for filter in ("symbol = 'S2'", "price < 10", "symbol = 'S1' OR price < 10"):
                with pytest.raises(DeniedError, match="no rule allows 'desk-1' to subscribe to this"):
                    await desk.subscribe(filter)
            with pytest.raises(DeniedError, match="no rule allows 'feed' to advertise this"):
                await feed.advertise("TRUE")
            await feed.advertise("price > 0 AND symbol IS NOT NULL", name="some")
            await feed.publish({"symbol": "S1", "price": 5})
            with pytest.raises(DeniedError, match="no rule allows 'feed' to publish this"):
                await feed.publish({"symbol": "S1", "price": 0})
            with pytest.raises(DeniedError, match="no rule allows 'feed' to subscribe"):
                await feed.subscribe("symbol = 'S1'")
            with pytest.raises(DeniedError, match="no rule allows 'desk-1' to advertise"):
                await desk.publish({"symbol": "S1", "price": 5})
            assert (await anext(events)).attributes == {"symbol": "S1", "price": 5}

    run(work())


def certified(place: Place, *names: str, more: str = "", days: float = 1.0) -> Network:
    make_certificates(place.directory / "certificates", names, days=days)
    return place.write("a", "b", more=TLS + more)


def test_tls_between_brokers_and_for_clients(place: Place) -> None:
    async def work() -> None:
        network = certified(place, "a", "b")
        authority = place.directory / "certificates" / "authority.pem"
        async with (
            running(network),
            connect(place.address("a"), name="p", authority=authority) as p,
            connect(place.address("b"), name="s", authority=authority, server_name="b") as s,
        ):
            events = await s.subscribe("x > 0")
            await asyncio.sleep(0.4)
            await p.publish({"x": 1}, payload=bytes(100_000))
            assert len((await anext(events)).payload) == 100_000
            assert all(broker["up"] for broker in await ask_network(network))
            with pytest.raises(DeniedError, match=r"(?i)hostname mismatch|certificate"):
                async with connect(place.address("b"), authority=authority, server_name="a"):
                    pass
            other = make_certificates(place.directory / "other", ("x",))[0]
            with pytest.raises(DeniedError, match=r"(?i)certificate"):
                async with connect(place.address("a"), authority=other):
                    pass

    run(work())


def test_certificates_of_clients(place: Place) -> None:
    async def work() -> None:
        network = certified(place, "a", "b", "desk", more="client_certificates = true\n")
        make_certificates(place.directory / "certificates", ("old",), days=-1)
        folder = place.directory / "certificates"

        def options(name: str) -> dict[str, Path]:
            return {
                "authority": folder / "authority.pem",
                "certificate": folder / f"{name}.pem",
                "key": folder / f"{name}.key",
            }

        async with running(network):
            async with connect(place.address("a"), name="desk", **options("desk")) as desk:  # type: ignore[arg-type]
                await desk.publish({"x": 1})
            with pytest.raises(DeniedError, match="the certificate of client 'boss' is for desk"):
                async with connect(place.address("a"), name="boss", **options("desk")):  # type: ignore[arg-type]
                    pass
            for refused in ({"authority": folder / "authority.pem"}, options("old")):
                with pytest.raises(Exception, match=r"(?i)lost|certificate|alert|reset|reach"):
                    async with connect(place.address("a"), name="old", connect_s=0.1, **refused):  # type: ignore[arg-type]
                        pass

    run(work())


def test_a_broker_whose_certificate_has_expired_or_is_anothers_is_not_let_in(place: Place) -> None:
    async def work() -> None:
        network = certified(place, "a", "b")
        make_certificates(place.directory / "certificates", ("a",), days=-1)
        async with running(network, "b") as nodes, running(network, "a") as others:
            log = others["a"].log._stream
            assert log is not None
            await until(lambda: "neighbour away" in log.getvalue())  # type: ignore[attr-defined]
            assert not nodes["b"].machine.neighbours

    run(work())


async def talk(address: str, *frames: bytes) -> list[bytes]:
    """Send frames, and everything that comes back until the other end closes or a second has passed."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(joined(list(frames)))
    found: list[bytes] = []
    splitter = Splitter(1 << 24)
    try:
        async with asyncio.timeout(1.0):
            while data := await reader.read(65_536):
                found += splitter.feed(data)
    except (TimeoutError, ConnectionResetError):
        pass
    writer.close()
    return found


def preamble(kind: str, name: str, token: str | None = None) -> bytes:
    """As version 2 has it, which showed its token."""
    return msgspec.msgpack.encode(Preamble(kind, name, token))  # type: ignore[arg-type]


def test_who_was_admitted_as_one_cannot_greet_as_another(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        async with running(network, "a") as nodes:
            hello = wire.Hello(wire.OLDEST_VERSION, "b", "broker", 5, 10)
            await talk(place.address("a"), preamble("client", "mallory"), wire.encode(hello))
            # The same greeting, its tag or its length written in a way that our own encoder never does.
            first, rest = wire.encode(hello)[:1], wire.encode(hello)[2:]
            sly = [first + b"\xcc\x01" + rest, b"\xdc\x00" + bytes([first[0] & 0x0F]) + b"\xcc\x01" + rest]
            for frame in sly:
                assert wire.decode(frame) == hello
                await talk(place.address("a"), preamble("client", "mallory"), frame)
            assert not nodes["a"].machine.neighbours
            assert "b" not in nodes["a"].machine.clients
            (answer,) = await talk(place.address("a"), preamble("broker", "stranger"))
            assert msgspec.msgpack.decode(answer, type=Answer).code == "unknown"

    run(work())


def test_brokers_share_a_token_where_there_is_no_tls(place: Place) -> None:
    async def work() -> None:
        place.secret("secret", "between us brokers")
        network = place.write("a", "b", network='broker_token_file = "secret"', more=TOKENS)
        async with running(network):
            (answer,) = await talk(place.address("b"), preamble("broker", "a"))
            assert msgspec.msgpack.decode(answer, type=Answer).code == "token"

    run(work())


def test_a_client_that_sends_too_fast_has_to_wait_and_loses_nothing(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", more='[limits]\nrate = "200 /s"\nsubscriptions = 2\n')
        async with running(network), connect(place.address("a"), name="p") as p:
            began_s = time.monotonic()
            for n in range(800):
                await p.offer({"n": n})
            await p.flush()
            lasted_s = time.monotonic() - began_s
            assert lasted_s > 1.0, "600 events above the first second's worth take 3 s, less what is taken in one go"
            await p.subscribe("n > 1")
            await p.subscribe("n > 2")
            with pytest.raises(DeniedError, match="has 2 subscriptions, the limit"):
                await p.subscribe("n > 3")

    run(work())


def test_a_broker_without_room_refuses_a_client_when_it_connects(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b", more="[limits]\nclients = 1\n")
        mine = {"name": "one", "secret": "what only the first one knows"}
        async with running(network), connect(place.address("a"), **mine) as one:
            await one.advertise("TRUE")
            with pytest.raises(DeniedError, match="has 1 clients, which is its limit") as refusal:
                await connect(place.address("a"), name="two").__aenter__()
            assert refusal.value.code == "too-many"
            async with connect([place.address("a"), place.address("b")], name="two") as two:
                assert two.home == "b", "the next address has room"
            async with connect(place.address("a"), **mine) as again:
                assert again.home == "a", "it knows this client"

    run(work())
