"""Many subscriptions at once, over real sockets: asked together, all of them or none."""

import asyncio

import pytest
from tests.live.conftest import Place, all_up, run, running, until

from tidings.errors import FilterError, InputError
from tidings.live import Delivery, DeniedError, connect, connect_blocking
from tidings.live.client._client import TOGETHER


def test_many_are_asked_for_together_and_each_gets_its_own(place: Place) -> None:
    async def work() -> None:
        count = 3 * TOGETHER + 7
        got: list[Delivery] = []
        async with (
            running(place.write("a")) as nodes,
            connect(place.address("a"), name="s") as s,
            connect(place.address("a"), name="p") as p,
        ):
            first = await s.subscribe("n = -1")
            asking = asyncio.create_task(s.subscribe_many((f"n = {n}" for n in range(count)), callback=got.append))
            await asyncio.sleep(0)
            # A whole portion is under way before the first answer can have come.
            asked = [request for request in s._machine._requests._open.values() if not request.confirmed]
            assert len(asked) == TOGETHER
            made = await asking
            assert [each.filter for each in made] == [f"n = {n}" for n in range(count)]
            assert len({first.name, *(each.name for each in made)}) == count + 1
            assert len(nodes["a"].machine.gossip.local) == count + 1
            for n in (0, TOGETHER, count - 1):
                await p.publish({"n": n})
            await until(lambda: len(got) == 3)
        assert {each.subscription for each in got} == {made[n].name for n in (0, TOGETHER, count - 1)}

    run(work())


def test_a_client_that_leaves_takes_all_of_them_with_it(place: Place) -> None:
    async def work() -> None:
        async with running(place.write("a")) as nodes:
            async with connect(place.address("a"), name="s") as s:
                await s.subscribe_many(f"n = {n}" for n in range(600))
            await until(lambda: not len(nodes["a"].machine.gossip.local))

    run(work())


def test_if_one_is_refused_none_stands(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", more="[limits]\nsubscriptions = 20")
        async with running(network) as nodes, connect(place.address("a"), name="s") as s:
            kept = await s.subscribe("x > 0", name="kept")
            with pytest.raises(DeniedError, match="20 subscriptions, the limit"):
                await s.subscribe_many(f"n = {n}" for n in range(30))
            await until(lambda: len(nodes["a"].machine.gossip.local) == 1)
            made = await s.subscribe_many({f"again-{n}": f"n = {n}" for n in range(19)})
            assert [each.name for each in made] == [f"again-{n}" for n in range(19)]
            await s.publish({"x": 1, "n": 3})
            assert (await anext(aiter(kept))).attributes == {"x": 1, "n": 3}
            assert (await anext(aiter(made[3]))).attributes == {"x": 1, "n": 3}

    run(work())


def test_nothing_is_asked_if_one_of_them_cannot_be(place: Place) -> None:
    async def work() -> None:
        async with running(place.write("a")) as nodes, connect(place.address("a"), name="s") as s:
            with pytest.raises(FilterError):
                await s.subscribe_many(["n = 1", "n = = 2"])
            await s.subscribe("n = 1", name="one")
            with pytest.raises(InputError, match="has a subscription 'one' already"):
                await s.subscribe_many({"two": "n = 2", "one": "n = 1"})
            assert await s.subscribe_many([]) == []
            assert len(nodes["a"].machine.gossip.local) == 1
            assert not s._waiting

    run(work())


def test_the_blocking_twin_has_it_too(place: Place) -> None:
    network = place.write("a")
    place.start("broker", str(network.path))
    run(all_up(network))
    with connect_blocking(place.address("a"), name="s") as s, connect_blocking(place.address("a"), name="p") as p:
        made = s.subscribe_many([f"n = {n}" for n in range(300)], max_delay_s=60.0)
        p.publish({"n": 299})
        delivery = made[299].get(timeout_s=30.0)
        assert delivery is not None
        assert (delivery.subscription, delivery.attributes) == (made[299].name, {"n": 299})
        assert made[0].get(timeout_s=0.0) is None
