"""How often the driver of a client has its node take a turn."""

import asyncio

from tests.live.conftest import Place, run, running

import tidings


def test_publishing_takes_no_turn_in_which_nothing_happens(place: Place) -> None:
    """What is offered leaves at once; the turn that would have sent it was still taken afterwards."""

    async def work() -> None:
        async with running(place.write("a")), tidings.connect(place.address("a"), name="p") as client:
            await client.publish({"n": 0})
            node = client._driver.node
            turn, stirred = node.turn, list[bool]()

            def noted(now_ns: int) -> object:
                stirred.append(node.is_stirred)
                return turn(now_ns)

            node.turn = noted  # type: ignore[method-assign, assignment]
            for n in range(20):
                await client.publish({"n": n})
            await asyncio.sleep(0)
            assert len(stirred) >= 40  # one to send it, and one for its acknowledgement
            assert all(stirred)

    run(work())
