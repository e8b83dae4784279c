import numpy as np
import pytest

from tidings.placement import TraceSession, bit_words
from tidings.routing import overlay_of_links, shortest_path_tree


def random_session(seed: int, brokers: int, events: int, *, home: int | None = None) -> TraceSession:
    """A random tree, every figure drawn; brokers that get nothing and that get everything both occur."""
    generator = np.random.default_rng(seed)
    links = [(int(generator.integers(child)), child, 1.0) for child in range(1, brokers)]
    overlay = overlay_of_links(brokers, links, both_ways=True)
    root = int(generator.integers(brokers)) if home is None else home
    share = generator.choice([0.0, 0.05, 0.5, 1.0], size=brokers)
    delivered = generator.random((brokers, events)) < share[:, None]
    padded = np.zeros((brokers, bit_words(events) * 64), bool)
    padded[:, :events] = delivered
    return TraceSession(
        overlay=overlay,
        tree=shortest_path_tree(overlay, root),
        events=events,
        bits=np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64),
        deliveries=delivered.sum(axis=1) * generator.integers(1, 5, size=brokers),
        to_client_ns=generator.integers(0, 10**7, size=brokers),
        onward_ns=generator.integers(0, 10**8, size=overlay.link_count),
        ping_ns=generator.integers(0, 10**8, size=brokers),
    )


@pytest.fixture(scope="session")
def make_session():
    return random_session
