"""Events that a client makes durable before it acknowledges them."""

from collections.abc import Sequence

import pytest
from tests.live.conftest import Place, run, running, until

from tidings.errors import InputError
from tidings.live import Delivery, StoreError, connect


def test_what_could_not_be_kept_is_not_acknowledged(place: Place) -> None:
    """The broker still has it, for the next life of the client."""

    async def work() -> None:
        network = place.write("a")
        async with running(network), connect(place.address("a"), name="p") as p:
            kept: list[int] = []

            def keep(came: Sequence[Delivery]) -> bool:
                if any(each.attributes["n"] == 3 for each in came):
                    raise OSError("the disk is full")
                kept.extend(int(each.attributes["n"]) for each in came)
                return True

            async with connect(place.address("a"), name="s", durable=True) as s:
                subscription = await s.subscribe("n >= 0", name="all", keep=keep)
                for n in range(3):
                    await p.publish({"n": n})
                await until(lambda: kept == [0, 1, 2])
                await p.publish({"n": 3})
                with pytest.raises(StoreError, match=r"'all': its events cannot be kept: the disk is full"):
                    await anext(subscription)
            async with connect(place.address("a"), name="s", durable=True) as s:
                again = await s.subscribe("n >= 0", name="all")
                await p.publish({"n": 4})
                came = [(await anext(again)).attributes["n"]]
                while came[-1] != 4:  # whether the first three were acknowledged in time is not said
                    came.append((await anext(again)).attributes["n"])
                assert came[-2:] == [3, 4]

    run(work())


def test_nothing_comes_while_there_is_no_room(place: Place) -> None:
    async def work() -> None:
        network = place.write("a")
        async with running(network), connect(place.address("a"), name="p") as p:
            kept: list[int] = []

            def keep(came: Sequence[Delivery]) -> bool:
                kept.extend(int(each.attributes["n"]) for each in came)
                return len(kept) not in range(5, 100)

            async with connect(place.address("a"), name="s", window=4) as s:
                subscription = await s.subscribe("n >= 0", keep=keep)
                for n in range(60):
                    await p.publish({"n": n})
                assert 5 <= len(kept) < 5 + 2 * 4  # what was under way comes even so
                kept += [-1] * 100
                subscription.resume()
                await until(lambda: len(kept) == 160)
                assert sorted(n for n in kept if n >= 0) == list(range(60))

    run(work())


def test_order_is_not_kept(place: Place) -> None:
    """What is held to restore order has been acknowledged."""

    async def work() -> None:
        network = place.write("a")
        async with running(network), connect(place.address("a"), name="s") as s:
            with pytest.raises(InputError, match="keep excludes callback and order"):
                await s.subscribe("n >= 0", keep=lambda came: bool(came), order="ours-record")

    run(work())


@pytest.mark.parametrize("many", [3, 30])  # all of them are under way, or some wait in the broker's queue
def test_a_client_that_asks_late_gets_what_was_kept_for_it(place: Place, many: int) -> None:
    """The broker sends as soon as it is greeted. What came before `subscribe` was lost once, and out of order later."""

    async def work() -> None:
        network = place.write("a")
        async with running(network), connect(place.address("a"), name="p") as p:
            async with connect(place.address("a"), name="s", durable=True) as s:
                await s.subscribe("n >= 0", name="all")
            for n in range(many):
                await p.publish({"n": n})
            async with connect(place.address("a"), name="s", durable=True) as s:
                await until(lambda: s._machine.counts["early"] > 0)
                events = await s.subscribe("n >= 0", name="all")
                for n in range(many, many + 10):
                    await p.publish({"n": n})
                assert [(await anext(events)).attributes["n"] for _ in range(many + 10)] == list(range(many + 10))
                await s.unsubscribe("all")

    run(work())
