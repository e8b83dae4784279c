"""A broker process for a Spark job to connect with."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from tests.live.conftest import Place, all_up, state

__all__ = ["state"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one that runs; clients of a test are told from those of others by their names."""
    place = Place(tmp_path_factory.mktemp("broker"))
    network = place.write("a")
    place.start("up", str(network.path))
    asyncio.run(all_up(network))
    yield place.address("a")
    place.end()


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Wait until something holds."""

    def wait(holds: Callable[[], bool], within_s: float = 600.0) -> None:
        end_s = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < end_s, "it never came true"
            time.sleep(0.05)

    return wait
