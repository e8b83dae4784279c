"""Order and deadlines together, on a real broker: a slow reader, and a strategy that sends the urgent first."""

import asyncio
import contextlib
import random

from tests.live.conftest import Place, run, running

from tidings.live import Delivery, Subscription, connect

EVENTS = 1_500
READ_S = 0.002
BACKLOG = 150
"""So many events wait, or are about to: enough for triage to find that there is no time for all at four turns each, and
few enough for the last of them to be read within the shortest lifetime, on a slow machine too."""


def out_of_order(got: list[Delivery]) -> int:
    highest, found = -1, 0
    for delivery in got:
        found += delivery.sequence < highest
        highest = max(highest, delivery.sequence)
    return found


def test_a_slow_reader_that_wants_order_gets_it(place: Place) -> None:
    """Beside one that wants none, whose events the strategy sends as it likes."""

    async def work() -> None:
        network, dice = place.write("a", network='strategy = "triage"\n'), random.Random(3)
        async with (
            running(network),
            connect(place.address("a"), name="source", max_in_flight=EVENTS) as source,
            connect(place.address("a"), name="free") as free,
            connect(place.address("a"), name="ordered") as ordered,
        ):
            unordered = await free.subscribe("TRUE", max_held=16)
            in_order = await ordered.subscribe("TRUE", max_held=16, order="ours-record")

            got: tuple[list[Delivery], list[Delivery]] = ([], [])

            async def read(events: Subscription, into: list[Delivery]) -> None:
                with contextlib.suppress(TimeoutError):
                    while True:
                        async with asyncio.timeout(3.0):
                            into.append(await anext(events))
                        await asyncio.sleep(READ_S)

            readers = [asyncio.create_task(read(*each)) for each in zip((unordered, in_order), got, strict=True)]
            for number in range(EVENTS):
                await source.offer({"x": number}, lifetime_s=dice.uniform(2.0, 20.0))
                while number - min(map(len, got)) > BACKLOG and not any(reader.done() for reader in readers):
                    await asyncio.sleep(READ_S)
            await source.flush()
            await asyncio.gather(*readers)
        freely, kept = got
        assert out_of_order(freely) > 100
        assert out_of_order(kept) == 0
        assert not any(delivery.out_of_order or delivery.late for delivery in kept)
        assert len(kept) >= len(freely) - EVENTS // 100
        assert ordered._machine.counts["out of order"] == 0

    run(work())
