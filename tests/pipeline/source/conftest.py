"""A broker process for a Spark job to connect with."""

import asyncio
import time
from collections.abc import Callable

import pytest
from tests.live.conftest import Place, all_up, place, state

__all__ = ["place", "state"]


@pytest.fixture
def broker(place: Place) -> str:
    """The address of one that runs."""
    network = place.write("a")
    place.start("up", str(network.path))
    asyncio.run(all_up(network))
    return place.address("a")


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Wait until something holds."""

    def wait(holds: Callable[[], bool], within_s: float = 600.0) -> None:
        end_s = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < end_s, "it never came true"
            time.sleep(0.05)

    return wait
