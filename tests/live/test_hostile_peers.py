"""A listening broker against peers that break every rule: it goes on serving whoever keeps them."""

import asyncio
import contextlib
import random
import socket
import struct

import pytest
from tests.live.conftest import Place, run, running, until
from tests.live.test_security import preamble, talk
from tests.protocol.test_hostile_frames import damaged, messages

from tidings.live import connect
from tidings.protocol import wire
from tidings.protocol.node import STEP_BYTES, checked, joined


async def still_serves(place: Place) -> None:
    async with connect(place.address("a"), name="honest") as client:
        events = await client.subscribe("x > 0")
        await client.publish({"x": 1})
        assert (await anext(events)).attributes == {"x": 1}


@pytest.mark.parametrize("kind", ["client", "broker"])
def test_the_protocols_hostile_frames_over_a_socket(place: Place, kind: str) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        async with running(network, "a") as nodes:
            dice = random.Random(kind)
            machine = nodes["a"].machine
            name = "b" if kind == "broker" else "c"
            for damage in ("cut", "flip", "grow", "swap"):
                hello = wire.encode(wire.Hello(wire.OLDEST_VERSION, name, kind, 5, 10))
                frames = [damaged(wire.encode(message), damage, dice) for message in messages(machine.epoch) * 3]
                noise = [dice.randbytes(dice.randrange(1, 80)) for _ in range(40)]
                first = preamble(kind, name, network.shared_token())
                await talk(place.address("a"), first, hello, *(frame for frame in frames if frame), *noise)
            assert sum(machine.refused.values()) > 20
            assert all(size <= bound for size, bound in machine.bounds().values())
            await still_serves(place)

    run(work())


FRAME_BYTES = 1 << 20


def test_one_who_goes_on_breaking_the_rules_is_cut_off(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        async with running(network) as nodes:
            hello = wire.encode(wire.Hello(wire.OLDEST_VERSION, "c", "client", 5, 10))
            answers = await talk(place.address("a"), preamble("client", "c"), hello, *[b"\xc1"] * 200)
            refusals = [answer for answer in answers[1:] if isinstance(wire.decode(answer), wire.Error)]
            assert len(refusals) == nodes["a"].machine.settings.max_refused
            await until(lambda: not nodes["a"].driver.connections)

    run(work())


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", 2**31),
        struct.pack(">I", 0),
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        joined([b"\xc1" * 50]),
        joined([preamble("client", "x" * 300)]),
        joined([preamble("client", "c")]) + struct.pack(">I", 2**20 + 1),
    ],
    ids=["huge", "empty", "http", "noise", "long name", "oversized frame"],
)
def test_streams_that_are_none_are_closed(place: Place, data: bytes) -> None:
    async def work() -> None:
        network = place.write("a")
        async with running(network) as nodes:
            host, port = place.address("a").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(data)
            async with asyncio.timeout(5.0):
                try:
                    while await reader.read(1_000):
                        pass
                except ConnectionResetError:
                    pass
            writer.close()
            await until(lambda: not nodes["a"].driver.connections)
            await still_serves(place)

    run(work())


def test_a_peer_that_sends_and_never_reads_is_given_up(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", more='[limits]\nunsent = "20 kB"\nsend_buffer = "10 kB"\n')
        async with running(network) as nodes:
            with socket.create_connection(("127.0.0.1", place.ports["a"])) as deaf:
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                deaf.setblocking(False)
                loop = asyncio.get_running_loop()
                hello = wire.encode(wire.Hello(wire.OLDEST_VERSION, "c", "client", 5, 10))
                repeat = wire.encode(wire.Hello(wire.OLDEST_VERSION, "c", "client", 5, 10))
                await loop.sock_sendall(deaf, joined([preamble("client", "c"), hello]))
                with contextlib.suppress(ConnectionError):
                    for _ in range(1_000):
                        await loop.sock_sendall(deaf, joined([repeat] * 1_000))
                    pytest.fail("it may send for ever")
            await until(lambda: not nodes["a"].driver.connections)
            await still_serves(place)

    run(work())


def test_a_stranger_that_says_nothing_is_shown_out(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.protocol.node._node.GRACE_NS", 200_000_000)

    async def work() -> None:
        network = place.write("a", more="[limits]\nconnections = 3\n")
        async with running(network) as nodes:
            host, port = place.address("a").split(":")
            silent = [await asyncio.open_connection(host, int(port)) for _ in range(5)]
            await until(lambda: not nodes["a"].driver.connections)
            for _, writer in silent:
                writer.close()
            await still_serves(place)

    run(work())


def test_what_waits_for_a_turn_is_bounded(place: Place) -> None:
    """Frames of one turn are one step of the machine, but not any number of bytes of them."""

    async def work() -> None:
        network = place.write("a")
        async with running(network) as nodes, connect(place.address("a"), name="c"):
            driver = nodes["a"].driver
            (connection,) = driver.connections.values()
            refused = nodes["a"].machine.refused
            driver.received(connection, checked(b"\xc1") + b"\xc1")
            assert not refused  # it waits for the end of the turn
            long = b"\xc1" * FRAME_BYTES
            driver.received(connection, (checked(long) + long) * (STEP_BYTES // FRAME_BYTES))
            (session,) = driver.node.requests  # as much was handled as may be at once
            assert refused.total() >= 2
            assert session.is_held_back  # and nothing more is read until the rest was
            assert sum(map(len, session.waiting)) <= STEP_BYTES
            await until(lambda: refused.total() == 1 + STEP_BYTES // FRAME_BYTES)
            await still_serves(place)

    run(work())
