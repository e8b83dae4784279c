"""Brokers and clients over real sockets: what is published arrives, once, whatever happens to connections."""

import asyncio
import inspect
import itertools
from collections import Counter
from typing import Any

import pytest
from tests.live.conftest import Place, run, running, until

from tidings.errors import (
    ConnectionLostError,
    DeniedError,
    EventError,
    FilterError,
    FilterWarning,
    InputError,
    RequestError,
)
from tidings.live import BlockingTidings, Delivery, Tidings, connect, connect_blocking


async def take(events: Any, count: int) -> list[Delivery]:
    found = []
    async for event in events:
        found.append(event)
        if len(found) == count:
            break
    return found


def test_three_brokers_in_a_row_carry_an_event_to_whom_it_matches(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b", "c")
        async with (
            running(network),
            connect(place.address("a"), name="p") as p,
            connect(place.address("c"), name="s") as s,
        ):
            cheap = await s.subscribe("price < 10", max_delay_s=5.0, price=2.0)
            dear = await s.subscribe("price >= 10")
            await asyncio.sleep(0.3)
            for price in (3, 30, 4, 40):
                await p.publish({"price": price, "symbol": "S"}, payload=b"x" * price, lifetime_s=10.0)
            assert [event.attributes["price"] for event in await take(cheap, 2)] == [3, 4]
            found = await take(dear, 2)
            assert [(event.publisher, event.sequence, len(event.payload)) for event in found] == [
                ("p", 1, 30),
                ("p", 3, 40),
            ]
            assert all(0.0 < event.age_s < 5.0 and not event.late for event in found)
            await cheap.close()
            await p.publish({"price": 5})
            assert [event async for event in cheap] == []

    run(work())


def test_a_broker_that_starts_again_goes_on_where_it_was(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        async with (
            running(network, "b"),
            connect(place.address("b"), name="s", durable=True) as s,
        ):
            async with running(network, "a"):
                events = await s.subscribe("n >= 0", name="all")
                async with connect(place.address("a"), name="p") as p:
                    await asyncio.sleep(0.5)
                    for n in range(20):
                        await p.publish({"n": n})
            # A has gone, drained. A publisher that waits for it is served when it is back.
            late = asyncio.create_task(publish_one(place.address("a"), 20))
            await asyncio.sleep(0.3)
            async with running(network, "a"):
                await late
                found = await take(events, 21)
        assert sorted(event.attributes["n"] for event in found) == list(range(21))

    run(work())


async def publish_one(address: str, n: int) -> None:
    async with connect(address, name="q", connect_s=30.0) as q:
        await q.publish({"n": n})


def test_a_connection_that_breaks_is_made_again_and_nothing_comes_twice_or_not_at_all(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        async with (
            running(network) as nodes,
            connect(place.address("a"), name="p") as p,
            connect(place.address("a"), name="s") as s,
        ):
            events = await s.subscribe("n >= 0")
            outcomes = []
            for n in range(300):
                outcomes.append(await p.offer({"n": n}))
                if n % 60 == 30:
                    for connection in list(nodes["a"].driver.connections.values()):
                        connection.abort("a test")
                await asyncio.sleep(0.001)
            found = Counter(event.attributes["n"] for event in await take(events, 300))
            await asyncio.gather(*outcomes)
            assert found == dict.fromkeys(range(300), 1)

    run(work())


def test_a_durable_client_gets_what_came_while_it_was_away(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        async with running(network), connect(place.address("a"), name="p") as p:
            async with connect(place.address("a"), name="s", durable=True) as s:
                await s.subscribe("n >= 0", name="all")
            for n in range(5):
                await p.publish({"n": n})
            async with connect(place.address("a"), name="s", durable=True) as s:
                events = await s.subscribe("n >= 0", name="all")
                assert sorted(event.attributes["n"] for event in await take(events, 5)) == [0, 1, 2, 3, 4]
            async with connect(place.address("a"), name="s") as s:
                await s.subscribe("n >= 0", name="all")
            await p.publish({"n": 5})
            async with connect(place.address("a"), name="s") as s:
                events = await s.subscribe("n >= 0", name="all")
                await p.publish({"n": 6})
                assert [event.attributes["n"] for event in await take(events, 1)] == [6]

    run(work())


def test_a_slow_reader_holds_up_nobody_else_and_gets_everything(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        async with (
            running(network) as nodes,
            connect(place.address("a"), name="p") as p,
            connect(place.address("a"), name="slow", window=8) as slow,
            connect(place.address("a"), name="fast") as fast,
        ):
            slowly = await slow.subscribe("n >= 0", max_held=10)
            quickly = await fast.subscribe("n >= 0")
            for n in range(400):
                await p.offer({"n": n}, payload=bytes(500))
            assert len(await take(quickly, 400)) == 400
            outbox = nodes["a"].machine.clients["slow"].outbox
            assert outbox.queued > 300, "the backlog is in the broker's queue, not in sockets"
            assert slowly.held < 40
            assert sorted(event.attributes["n"] for event in await take(slowly, 400)) == list(range(400))

    run(work())


def test_a_congested_socket_keeps_the_backlog_in_the_queue(place: Place) -> None:
    """A client that stops reading from its socket altogether: what the socket cannot carry is not sent."""

    async def work() -> None:
        network = place.write("a", more='[limits]\nsend_buffer = "20 kB"\nwindow = 64\n')
        async with (
            running(network) as nodes,
            connect(place.address("a"), name="p") as p,
            connect(place.address("a"), name="deaf", window=64) as deaf,
        ):
            await deaf.subscribe("n >= 0")
            transport = next(iter(deaf._driver.connections.values()))._transport
            assert transport is not None
            transport.pause_reading()
            for n in range(600):
                await p.offer({"n": n}, payload=bytes(20_000), lifetime_s=60.0)
            await p.flush()
            machine = nodes["a"].machine
            assert machine.clients["deaf"].outbox.queued > 400
            events = deaf._subscriptions["s1"]
            transport.resume_reading()
            assert len(await take(events, 600)) == 600

    run(work())


def test_late_events_order_and_callbacks(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        got: list[Delivery] = []
        async with (
            running(network),
            connect(place.address("a"), name="p") as p,
            connect(place.address("a"), name="s") as s,
        ):
            await s.subscribe("n >= 0", callback=got.append, order="ours-record")
            hurried = await s.subscribe("n >= 0", max_delay_s=1e-9, late_s=60.0)
            never = await s.subscribe("n >= 0", max_delay_s=1e-9)
            for n in range(10):
                await p.publish({"n": n})
            assert all(event.late for event in await take(hurried, 10))
            await until(lambda: len(got) == 10)
            assert [event.sequence for event in got] == list(range(10))
            assert never.held == 0

    run(work())


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"max_delay_s": "2 s"}, r"max_delay_s is '2 s': give a number of seconds"),
        ({"max_delay_s": -1.0}, "max_delay_s is -1: give from 0 to"),
        ({"late_s": float("nan")}, "late_s is nan: give a number of seconds"),
        ({"price": "much"}, "price is 'much': give a number"),
        ({"price": -1}, "price is -1: give a number that is not negative"),
        ({"filter": 5}, "the filter is 5: give its text"),
    ],
)
def test_terms_that_no_broker_could_read_are_refused_at_once(place: Place, terms: dict[str, Any], message: str) -> None:
    """The broker ended the connection, the client came back and asked again, and `subscribe` never returned."""

    async def work() -> None:
        async with running(place.write("a")), connect(place.address("a"), name="p") as p:
            with pytest.raises(InputError, match=message):
                await p.subscribe(**({"filter": "price > 1"} | terms))
            assert await p.publish({"price": 1}) == 0

    run(work())


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"attributes": {"x": float("nan")}}, EventError, "attribute 'x' is nan: send a finite number"),
        ({"attributes": {"x": [1]}}, EventError, "attribute 'x' has a value of type list"),
        ({"attributes": {5: 1}}, EventError, "an attribute's name is 5: names are strings"),
        ({"attributes": dict.fromkeys(map(str, range(257)), 1)}, EventError, "an event of 257 attributes: at most 256"),
        ({"attributes": 5}, EventError, "the attributes are 5: give a dictionary"),
        ({"payload": "text"}, InputError, "the payload is of type str: give bytes"),
        ({"lifetime_s": "1 s"}, InputError, "lifetime_s is '1 s': give a number of seconds"),
    ],
)
def test_what_is_no_event_is_refused_by_the_client(
    place: Place, given: dict[str, Any], kind: type[InputError], message: str
) -> None:
    async def work() -> None:
        async with running(place.write("a")), connect(place.address("a"), name="p") as p:
            with pytest.raises(kind, match=message):
                await p.publish(**({"attributes": {"price": 1}} | given))

    run(work())


def test_an_attribute_that_is_none_is_left_out(place: Place) -> None:
    async def work() -> None:
        async with running(place.write("a")), connect(place.address("a"), name="p") as p:
            subscription = await p.subscribe("y IS NULL")
            await p.publish({"x": 1, "y": None})
            assert (await anext(aiter(subscription))).attributes == {"x": 1}

    run(work())


def test_two_requests_under_one_name_are_both_answered(place: Place) -> None:
    """The first of them waited for ever."""

    async def work() -> None:
        async with running(place.write("a")), connect(place.address("a"), name="p") as p:
            await asyncio.gather(p.advertise("x = 1"), p.advertise("x = 2"))
            with pytest.raises(DeniedError):
                await p.publish({"x": 1})
            assert await p.publish({"x": 2}) == 1
            assert not p._waiting

    run(work())


def test_a_client_that_was_not_entered_says_how_to_use_it() -> None:
    async def work() -> None:
        client = connect("127.0.0.1:7001", name="early")
        for asked in (client.publish({"x": 1}), client.subscribe("x = 1"), client.advertise("x = 1")):
            with pytest.raises(RequestError, match="client 'early' is not connected: use it as `async with"):
                await asked
        assert client.home is None
        assert not client.is_connected

    run(work())


def test_the_blocking_client_has_the_arguments_and_the_documentation_of_the_other() -> None:
    for name in ("advertise", "flush", "move", "publish", "subscribe", "subscribe_many"):
        blocking, other = getattr(BlockingTidings, name), getattr(Tidings, name)
        assert list(inspect.signature(blocking).parameters) == list(inspect.signature(other).parameters)
        assert blocking.__doc__ == other.__doc__
    assert inspect.signature(connect_blocking).parameters == inspect.signature(connect).parameters
    assert "to be used with `with`" in (connect_blocking.__doc__ or "")


def test_what_applications_do_wrong_is_told(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        async with running(network), connect(place.address("a"), name="p") as p:
            await p.advertise("price > 0")
            with pytest.raises(DeniedError, match="is not what 'p' has advertised"):
                await p.publish({"price": -1})
            with pytest.raises(FilterError, match="found the end") as wrong:
                await p.subscribe("price >")
            assert (wrong.value.text, wrong.value.position) == ("price >", 7)
            with pytest.warns(FilterWarning, match=r'"UK" is compared as an attribute, .*character 11') as caught:
                await p.subscribe('country = "UK"')
            assert caught[0].filename == __file__
            with pytest.raises(RequestError, match="does not fit into a frame"):
                await p.publish({"price": 1}, payload=bytes(1 << 20))
            with pytest.raises(RequestError, match="a lifetime of"):
                await p.publish({"price": 1}, lifetime_s=1e6)
            await p.subscribe("price > 1", name="twice")
            with pytest.raises(InputError, match="has a subscription 'twice' already"):
                await p.subscribe("price > 1", name="twice")
            assert await p.publish({"price": 1}) >= 0
        with pytest.raises(ConnectionLostError, match="cannot be reached: Connection refused; is the broker running"):
            async with connect(place.address("a"), connect_s=0.2):
                pass

    run(work())


def test_a_callback_that_fails_is_reported_and_stops_nobody_else(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        troubles: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, facts: troubles.append(facts["message"]))
        async with running(network), connect(place.address("a"), name="p") as p:
            await p.subscribe("n >= 0", name="broken", callback=lambda event: {}[event.sequence])
            events = await p.subscribe("n >= 0")
            await p.publish({"n": 1})
            assert (await anext(events)).attributes == {"n": 1}
        assert troubles == ["the callback of subscription 'broken' failed"]

    run(work())


def test_the_blocking_twin(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        async with running(network):
            await asyncio.get_running_loop().run_in_executor(None, script, place.address("a"))

    run(work())


def script(address: str) -> None:
    with connect_blocking(address, name="p") as p, connect_blocking(address) as s:
        events = s.subscribe("n > 1", max_delay_s=5.0)
        assert [p.publish({"n": n}) for n in range(4)] == [0, 1, 2, 3]
        offered = [p.offer({"n": n}) for n in (7, 8)]
        p.flush()
        assert [future.result(5) for future in offered] == [4, 5]
        assert [event.attributes["n"] for event in itertools.islice(events, 4)] == [2, 3, 7, 8]
        assert events.get(timeout_s=0.05) is None
        events.close()
        assert list(events) == []


def test_a_broker_drains_before_it_leaves(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        async with running(network) as nodes, connect(place.address("a"), name="s") as s:
            events = await s.subscribe("n >= 0")
            async with connect(place.address("a"), name="p") as p:
                for n in range(200):
                    await p.offer({"n": n})
                await p.flush()
            nodes["a"].stop()
            found = await take(events, 200)
            assert [event.attributes["n"] for event in found] == list(range(200))
            await until(lambda: not s.is_connected)
            assert not nodes["a"].machine.carrier.holdings.held

    run(work())


def test_clients_move_to_another_home_under_load_and_nothing_is_lost_or_comes_twice(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b", "c")
        got: list[Any] = []
        async with (
            running(network) as nodes,
            connect(place.address("a"), name="p") as p,
            connect(place.address("c"), name="s") as s,
        ):
            await s.subscribe("n >= 0", callback=lambda event: got.append(event.attributes["n"]))
            await asyncio.sleep(0.4)
            publishing = asyncio.create_task(publish_many(p, 400))
            for mover, target in ((p, "b"), (s, "b"), (p, "c"), (s, "a")):
                await asyncio.sleep(0.1)
                await mover.move(target)
                assert mover.home == target
            await publishing
            await until(lambda: len(got) >= 400)
            await asyncio.sleep(0.3)
            assert sorted(got) == list(range(400))
            await until(lambda: [*nodes["a"].machine.clients] == ["s"] and not nodes["b"].machine.clients)
            with pytest.raises(InputError, match="there is no broker 'x' in the network; there are: a, b, c"):
                await p.move("x")

    run(work())


async def publish_many(client: Any, count: int) -> None:
    for n in range(count):
        await client.offer({"n": n})
        await asyncio.sleep(0.002)
    await client.flush()
