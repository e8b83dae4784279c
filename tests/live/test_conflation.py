"""The latest value only, over real sockets: slow readers, readers that were away, and their accounts."""

import asyncio
from typing import Any

import pytest
from tests.live.conftest import Place, run, running, until

from tidings.errors import InputError
from tidings.live import BrokerNode, connect
from tidings.protocol import Balance

SYMBOLS = ("IBM", "SAP", "YHOO")
EVENTS = 3_000


def account(nodes: dict[str, BrokerNode], broker: str, name: str) -> Balance:
    balance = nodes[broker].machine.accounts.balances()[name].known
    settled = balance.on_time + balance.late + balance.dropped + balance.lost
    assert balance.matched == settled + balance.replaced + balance.under_way
    return balance


def quotes(first: int, count: int) -> list[dict[str, Any]]:
    return [{"symbol": SYMBOLS[number % 3], "price": number} for number in range(first, first + count)]


def test_a_slow_reader_of_quotes_gets_the_latest_of_each_symbol_after_a_pause(place: Place) -> None:
    async def work() -> None:
        async with (
            running(place.write("a", "b")) as nodes,
            connect(place.address("a"), name="source") as source,
            connect(place.address("b"), name="slow") as slow,
            connect(place.address("b"), name="quick") as quick,
        ):
            every = await quick.subscribe("price >= 0")
            latest = await slow.subscribe("price >= 0", name="latest", conflate="symbol", max_delay_s=600.0)
            await until(lambda: len(nodes["a"].machine.gossip.interests) == 2)
            await source.publish_many(quotes(0, EVENTS))
            async for event in every:
                if event.attributes["price"] == EVENTS - 1:
                    break
            found = nodes["b"].machine
            await until(lambda: account({"b": nodes["b"]}, "b", "slow/latest").matched == EVENTS if found else False)
            prices: dict[str, list[int]] = {symbol: [] for symbol in SYMBOLS}
            async for event in latest:
                prices[event.attributes["symbol"]].append(event.attributes["price"])  # type: ignore[index,arg-type]
                if all(seen and seen[-1] >= EVENTS - 3 for seen in prices.values()):
                    break
            # What was on its way when the reader paused comes as it is, and of the rest nothing but the latest.
            assert sum(map(len, prices.values())) < EVENTS / 3
            assert all(seen == sorted(seen) for seen in prices.values())
            await until(lambda: account(nodes, "b", "slow/latest").under_way == 0)
            balance = account(nodes, "b", "slow/latest")
            assert (balance.matched, balance.dropped, balance.lost, balance.late) == (EVENTS, 0, 0, 0)
            assert balance.on_time == sum(map(len, prices.values()))
            assert balance.replaced > EVENTS / 2
            assert balance.on_time_share == 1.0

    run(work())


def test_a_durable_reader_that_was_away_gets_the_latest_first(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        async with running(network) as nodes, connect(place.address("a"), name="source") as source:
            async with connect(place.address("a"), name="desk", durable=True) as desk:
                await desk.subscribe("price >= 0", name="latest", conflate="symbol")
            await source.publish_many(quotes(0, 300))
            async with connect(place.address("a"), name="desk", durable=True) as desk:
                latest = await desk.subscribe("price >= 0", name="latest", conflate="symbol")
                found = [(await anext(latest)).attributes["price"] for _ in range(3)]
                assert sorted(found) == [297, 298, 299]  # type: ignore[type-var]
                await until(lambda: account(nodes, "a", "desk/latest").under_way == 0)
                assert account(nodes, "a", "desk/latest").replaced == 297

    run(work())


def test_a_key_has_names(place: Place) -> None:
    async def work() -> None:
        async with running(place.write("a")), connect(place.address("a"), name="c") as client:
            for conflate in ("symbol,", 7):
                with pytest.raises(InputError, match="conflate"):
                    await client.subscribe("price >= 0", conflate=conflate)  # type: ignore[arg-type]
            both = await client.subscribe_many(["price > 1", "price < 1"], conflate="symbol,venue")
            assert len(both) == 2
            await asyncio.sleep(0)

    run(work())
