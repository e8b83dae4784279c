"""Readers move nearer to what they read: less traffic with every move, nobody later, no broker beyond its room."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import InputError
from tidings.placement import Reader, Source, place_readers
from tidings.routing import overlay_of_links, shortest_path_tree

EVENTS = 20


def random_case(seed: int, brokers: int, readers: int, streams: int) -> tuple[list[Source], list[Reader]]:
    generator = np.random.default_rng(seed)
    links = [(int(generator.integers(child)), child, 1.0) for child in range(1, brokers)]
    overlay = overlay_of_links(brokers, links, both_ways=True)
    sources = []
    for _ in range(streams):
        tree = shortest_path_tree(overlay, int(generator.integers(brokers)))
        sources.append(
            Source(
                tree=tree,
                rate_per_s=float(generator.uniform(0.5, 5)),
                events=EVENTS,
                reach_ns=tree.depth.astype(np.int64) * 50_000_000,
            )
        )
    people = []
    for _ in range(readers):
        read = generator.choice(streams, size=int(generator.integers(1, streams + 1)), replace=False)
        people.append(
            Reader(
                broker=int(generator.integers(brokers)),
                matches={int(s): generator.random(EVENTS) < generator.choice([0.1, 0.5, 1.0]) for s in read},
                access_ns=generator.integers(0, 60_000_000, size=brokers),
                movable=bool(generator.random() < 0.9),
            )
        )
    return sources, people


def handled_per_s(sources: list[Source], readers: list[Reader], homes: tuple[int, ...]) -> np.ndarray:
    """Rate of every broker, by walking each event to each of its readers."""
    rate = np.zeros(len(sources[0].tree.parent))
    for number, source in enumerate(sources):
        for event in range(source.events):
            touched = {source.tree.root}
            for reader, home in zip(readers, homes, strict=True):
                if number in reader.matches and reader.matches[number][event]:
                    touched |= set(source.tree.path(home))
            rate[list(touched)] += source.rate_per_s / source.events
    return rate


def delay_ns(sources: list[Source], reader: Reader, home: int) -> float:
    return sum(
        float(flags.sum()) * sources[s].rate_per_s * (sources[s].reach_ns[home] + reader.access_ns[home])
        for s, flags in reader.matches.items()
    )


@settings(deadline=None, max_examples=60)  # the first call compiles
@given(seed=st.integers(0, 2**32 - 1), brokers=st.integers(1, 9), readers=st.integers(1, 8), streams=st.integers(1, 3))
def test_traffic_falls_and_nobody_is_worse_off(seed, brokers, readers, streams) -> None:
    sources, people = random_case(seed, brokers, readers, streams)
    now = handled_per_s(sources, people, tuple(reader.broker for reader in people))
    room = np.random.default_rng(seed).uniform(0, 10, size=brokers)
    plan = place_readers(sources, people, room_per_s=room)
    then = handled_per_s(sources, people, plan.targets)
    assert plan.messages_per_s_now == pytest.approx(now.sum())
    assert plan.messages_per_s == pytest.approx(then.sum())
    assert then.sum() <= now.sum() + 1e-9
    assert (then <= np.maximum(room, now) + 1e-9).all()
    for reader, target in zip(people, plan.targets, strict=True):
        assert delay_ns(sources, reader, target) <= delay_ns(sources, reader, reader.broker) + 1e-3
        assert reader.movable or target == reader.broker


def test_all_come_to_the_publisher_if_access_is_equal() -> None:
    overlay = overlay_of_links(4, [(0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0)], both_ways=True)
    tree = shortest_path_tree(overlay, 0)
    source = Source(tree=tree, rate_per_s=2.0, events=4, reach_ns=tree.depth.astype(np.int64) * 1000)
    equal = np.full(4, 500)
    flags = np.array([True, True, False, False])
    readers = [Reader(broker=b, matches={0: flags}, access_ns=equal) for b in (1, 2, 3)]
    plan = place_readers([source], readers)
    assert plan.targets == (0, 0, 0)
    assert (plan.messages_per_s_now, plan.messages_per_s) == (2.0 + 3 * 1.0, 2.0)
    stay = [Reader(broker=3, matches={0: flags}, access_ns=np.array([9000, 9000, 9000, 0]))]
    assert place_readers([source], stay).targets == (3,)  # every other broker is too far away for it


def test_readers_of_the_same_events_leave_a_broker_together() -> None:
    """Neither of two saves anything by going alone; both are served sooner at the home, and then the link rests."""
    overlay = overlay_of_links(2, [(0, 1, 1.0)], both_ways=True)
    tree = shortest_path_tree(overlay, 0)
    source = Source(tree=tree, rate_per_s=1.0, events=2, reach_ns=np.array([0, 1000]))
    pair = [Reader(broker=1, matches={0: np.ones(2, bool)}, access_ns=np.array([100, 100])) for _ in range(2)]
    plan = place_readers([source], pair)
    assert plan.targets == (0, 0)
    assert (plan.messages_per_s_now, plan.messages_per_s) == (2.0, 1.0)


def test_what_is_wrong_is_said() -> None:
    overlay = overlay_of_links(2, [(0, 1, 1.0)], both_ways=True)
    tree = shortest_path_tree(overlay, 0)
    source = Source(tree=tree, rate_per_s=1.0, events=4, reach_ns=np.zeros(2, np.int64))
    short = Reader(broker=0, matches={0: np.ones(3, bool)}, access_ns=np.zeros(2, np.int64))
    with pytest.raises(InputError, match="3 flags for source 0, which traced 4"):
        place_readers([source], [short])
    with pytest.raises(InputError, match="at least one traced event"):
        Source(tree=tree, rate_per_s=1.0, events=0, reach_ns=np.zeros(2, np.int64))
    with pytest.raises(InputError, match="one time for each broker"):
        Source(tree=tree, rate_per_s=1.0, events=1, reach_ns=np.zeros(1, np.int64))
    assert place_readers([], []).targets == ()
