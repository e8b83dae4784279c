"""Brokers that find their publishers' places and ask them to move, as the network file says."""

import asyncio

import pytest
from tests.live.conftest import Place, run, running

from tidings.errors import TidingsError
from tidings.live import Delivery, connect


@pytest.mark.parametrize("relocation", [pytest.param("pop", marks=pytest.mark.full), "grape"])
def test_a_publisher_moves_to_where_its_subscribers_are(place: Place, relocation: str) -> None:
    """Under load, and nothing is lost or comes twice."""

    async def work() -> None:
        network = place.write(
            "a", "b", "c", network=f'relocation = "{relocation}"\n', more='[relocation]\nstay = "0 s"\n'
        )
        got: list[Delivery] = []
        accepted = []
        async with (
            running(network),
            connect(place.address("a"), name="p") as p,
            connect(place.address("a"), name="fixed", may_be_moved=False) as fixed,
            connect(place.address("c"), name="s") as s,
        ):
            await s.subscribe("n >= 0", callback=got.append)
            while not got:  # until a knows of the subscription
                await p.publish({"n": 0})
            while p.home != "c":
                for client in (p, fixed):
                    accepted.append(await client.publish({"n": len(accepted) + 1}))
                await asyncio.sleep(0.005)
            accepted.append(await p.publish({"n": len(accepted) + 1}))
            while len({each.attributes["n"] for each in got}) <= len(accepted):
                await asyncio.sleep(0.01)
            assert fixed.home == "a"
        numbers = [each.attributes["n"] for each in got if each.attributes["n"]]
        assert sorted(numbers) == list(range(1, len(accepted) + 1))

    run(work(), within_s=150.0)


def test_it_needs_a_scheme_that_keeps_events(place: Place) -> None:
    with pytest.raises(TidingsError, match="needs a scheme with buffers"):
        place.write("a", network='relocation = "pop"\nscheme = "bypass"\n')
