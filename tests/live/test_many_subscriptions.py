"""Many subscriptions, or long ones, at one broker: its neighbours learn of all of them, and the links stay."""

import asyncio
from typing import Any

import pytest
from tests.live.conftest import Place, all_up, run

from tidings.live import Network, connect
from tidings.live.operations._query import ask_network
from tidings.protocol import RequestError

TOGETHER = 200
"""So many requests are under way at once."""


async def known(network: Network, count: int) -> list[dict[str, Any]]:
    """Wait until both brokers hear each other and b knows so many subscriptions at a."""
    while True:
        found = await all_up(network)
        if found[1]["subscriptions_elsewhere"] == count:
            return found
        await asyncio.sleep(0.1)


async def subscribe(place: Place, client: str, filters: list[str]) -> None:
    """A durable client subscribes at a, and leaves."""
    async with connect(place.address("a"), name=client, durable=True, connect_s=60.0) as subscriber:
        for begin in range(0, len(filters), TOGETHER):
            numbered = list(enumerate(filters))[begin : begin + TOGETHER]
            await asyncio.gather(*(subscriber.subscribe(text, name=f"s{number}") for number, text in numbered))


async def tried(place: Place, filters: list[list[str]], event: dict[str, Any]) -> None:
    """Clients subscribe at a; b knows it, also after both have started again, and after a alone has."""
    network = place.write("a", "b")
    count = sum(map(len, filters))
    processes = {name: place.start("broker", str(network.path), "--name", name) for name in "ab"}
    await all_up(network)
    for number, theirs in enumerate(filters):
        await subscribe(place, f"c{number}", theirs)
    await known(network, count)
    for names in ("ab", "a"):
        for name in names:
            processes[name].terminate()
        for name in names:
            processes[name].wait()
            processes[name] = place.start("broker", str(network.path), "--name", name)
        found = await known(network, count)
        assert found[0]["subscriptions"] == count
    async with connect(place.address("b"), name="p", connect_s=60.0) as publisher:
        await publisher.publish(event)
    while not (await ask_network(network))[0]["stored"]:
        await asyncio.sleep(0.1)  # it is on its way to the clients, who are away
    why = [str(line.get("why", "")) for line in place.logs()]
    assert not [each for each in why if "frame" in each]


@pytest.mark.full
def test_long_subscriptions_do_not_cut_the_links_of_their_broker(place: Place) -> None:
    filters = [f"topic = '{number:03}{'-' * 13_000}'" for number in range(95)]
    run(tried(place, [filters], {"topic": f"007{'-' * 13_000}"}))


@pytest.mark.full
def test_very_many_subscriptions_do_not_cut_the_links_of_their_broker(place: Place) -> None:
    filters = [f"symbol = 'S{number}' AND price > {number % 97} AND volume < {number * 3}" for number in range(13_500)]
    event = {"symbol": "S9000", "price": 99, "volume": 1}
    run(tried(place, [filters[:6_750], filters[6_750:]], event))


def test_a_filter_that_is_too_long_is_refused_at_once(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        place.start("broker", str(network.path))
        async with connect(place.address("a"), name="c", connect_s=60.0) as client:
            with pytest.raises(RequestError, match="20006 characters; the limit is 16384: shorten it"):
                await client.subscribe(f"x = '{'y' * 20_000}'")
            await client.subscribe("x = 1")
            assert (await ask_network(network))[0]["subscriptions"] == 1

    run(work())
