"""From what was measured to a decision: times, trees, aims, and what a move comes to."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tidings.errors import ConfigurationError
from tidings.placement import (
    Aim,
    Reader,
    Scatter,
    Service,
    Source,
    Sums,
    Times,
    Traced,
    Wanted,
    chance_on_time,
    choose,
    figures_at,
    loads_at,
    on_time_shares,
    place_readers,
    reach,
    saved_in_turn,
    times_of,
    tree_of_use,
)
from tidings.routing import Overlay, overlay_of_links

MS = 1e6
CHAIN = overlay_of_links(("a", "b", "c"), [(0, 1, 1.0), (1, 2, 1.0)], both_ways=True)
RING = overlay_of_links(("a", "b", "c", "d"), [(0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0), (3, 0, 1.0)], both_ways=True)


def scatter(mean: list[float], least: float = 0.0, variance: float = 0.0) -> Scatter:
    means = np.array(mean, float)
    return Scatter(means, np.full(len(means), least), np.full(len(means), variance))


def times(overlay: Overlay, *, variance: float = 0.0) -> Times:
    brokers, links = overlay.broker_count, overlay.link_count
    return Times(
        residence=scatter([5 * MS] * brokers, 0.0, variance),
        wait_ns=np.full(brokers, 1 * MS),
        service=Service(mean_s=np.full(brokers, 0.004), scv=np.ones(brokers)),
        transfer=scatter([20 * MS] * links, 10 * MS, variance),
        to_client=scatter([6 * MS] * brokers, 0.0, variance),
    )


def traced(overlay: Overlay, home: int, bits: list[int], deliveries: list[int], wanted: Wanted | None = None) -> Traced:
    return Traced(
        name="p",
        rate_per_s=10.0,
        tree=tree_of_use(overlay, home, dict.fromkeys(range(overlay.link_count), 1)),
        bits=np.array(bits, np.uint64)[:, None],
        deliveries=np.array(deliveries),
        traced=4,
        wanted=wanted or Wanted(broker=np.zeros(0, int), deadline_s=np.zeros(0), deliveries=np.zeros(0)),
    )


def test_figures_of_a_move_by_hand() -> None:
    """Four events from a, three of them read at c by two: 5 + 20 ms for each link, 6 ms to the client."""
    publisher = traced(CHAIN, 0, [0, 0, 0b0111], [0, 0, 6])
    now, then = (figures_at(publisher, CHAIN, times(CHAIN), broker) for broker in (0, 2))
    assert now.messages_per_s == pytest.approx(10.0 * (4 + 3 + 3) / 4)  # the home handles the fourth as well
    assert then.messages_per_s == pytest.approx(10.0)
    assert now.delay_s == pytest.approx(0.056)
    assert then.delay_s == pytest.approx(0.006)
    assert now.on_time is None
    assert choose(publisher, CHAIN, times(CHAIN), Aim(objective="load")) == 2
    assert publisher.deliveries_per_s == pytest.approx(15.0)


def test_on_time_counts_what_no_event_reaches_as_late() -> None:
    apart = overlay_of_links(("a", "b", "c"), [(0, 1, 1.0), (1, 0, 1.0)])
    wanted = Wanted(broker=np.array([1, 2]), deadline_s=np.array([1.0, 1.0]), deliveries=np.array([3.0, 1.0]))
    publisher = traced(apart, 0, [0, 1, 0], [0, 1, 0], wanted)
    assert figures_at(publisher, apart, times(apart), 0).on_time == pytest.approx(0.75)


def test_on_time_with_less_weight_leaves_the_choice_to_the_load() -> None:
    """Readers of everything at a with a loose deadline, one of little at c with a tight one."""
    wanted = Wanted(broker=np.array([0, 2]), deadline_s=np.array([9.0, 0.02]), deliveries=np.array([4.0, 1.0]))
    publisher = traced(CHAIN, 0, [0b1111, 0, 0b0001], [4, 0, 1], wanted)
    known = times(CHAIN)
    assert choose(publisher, CHAIN, known, Aim(objective="on-time", weight=99.0, hysteresis=0.0)) == 2
    assert choose(publisher, CHAIN, known, Aim(objective="on-time", weight=0.0, hysteresis=0.0)) == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"objective": "speed"}, "no objective 'speed'"),
        ({"weight": 101.0}, "from 0 to 100"),
        ({"hysteresis": 1.0}, "below 1"),
    ],
)
def test_an_aim_that_cannot_be(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Aim(**wrong)  # type: ignore[arg-type]  # wrong on purpose


def test_waits_follow_the_load() -> None:
    known = times(CHAIN)
    now, then = np.array([50.0, 50.0, 0.0]), np.array([50.0, 125.0, 100.0])
    under = known.under(now, then)
    assert under.wait_ns[0] == pytest.approx(1 * MS)
    # from a utilisation of .2 to .5, the wait of the queue with exponential service is four times as long
    assert under.wait_ns[1] == pytest.approx(4 * MS)
    assert under.residence.mean_ns[1] == pytest.approx(8 * MS)
    assert under.to_client.mean_ns[1] == pytest.approx(9 * MS)
    # where nothing was handled before, it is that of the queue
    assert under.wait_ns[2] == pytest.approx(0.004 * 0.4 / 0.6 * 1e9)
    assert known.without_waits().residence.mean_ns.tolist() == [4 * MS] * 3


def sums(samples: list[list[float]]) -> Sums:
    return Sums(
        np.array([len(s) for s in samples], float),
        np.array([sum(s) for s in samples], float),
        np.array([sum(x * x for x in s) for s in samples], float),
        np.array([min(s, default=0.0) for s in samples], float),
    )


def test_what_was_not_measured_is_taken_from_what_was() -> None:
    at_brokers = sums([[2.0, 4.0], [], [6.0]])
    links = sums([[10.0, 30.0], [], [], []])  # a-b, b-a, b-c, c-b
    found = times_of(
        CHAIN,
        residence=at_brokers,
        wait=at_brokers,
        service=at_brokers,
        transfer=links,
        to_client=sums([[7.0], [], []]),
    )
    assert found.residence.mean_ns.tolist() == [3.0, 4.5, 6.0]
    assert found.residence.least_ns.tolist() == [2.0, 4.0, 6.0]
    assert found.transfer.mean_ns.tolist() == [20.0, 20.0, 20.0, 20.0]  # b-a as a-b; the others as the mean
    assert found.transfer.variance_ns2[0] == pytest.approx(100.0)
    assert found.to_client.mean_ns.tolist() == [7.0, 4.5, 6.0]
    assert found.service.scv[0] == pytest.approx(1.0 / 9.0)


def test_the_tree_of_a_mesh_is_made_of_the_links_used_most() -> None:
    named = {
        (RING.brokers[s], RING.brokers[t]): link
        for link, (s, t) in enumerate(zip(RING.source.tolist(), RING.target.tolist(), strict=True))
    }
    used = {named["a", "b"]: 9, named["b", "c"]: 5, named["d", "c"]: 1, named["a", "d"]: 7}
    assert tree_of_use(RING, 0, used).parent.tolist() == [-1, 0, 1, 0]
    assert tree_of_use(RING, 0, {named["a", "b"]: 1}).order.tolist() == [0, 1]
    assert tree_of_use(CHAIN, 2, {}).parent.tolist() == [1, 2, -1]  # without cycles there is one tree only


def test_a_reader_is_on_time_as_on_time_shares_says() -> None:
    known = times(CHAIN, variance=(4 * MS) ** 2)
    wanted = Wanted(broker=np.array([2, 2]), deadline_s=np.array([0.05, 0.06]), deliveries=np.array([1.0, 1.0]))
    publisher = traced(CHAIN, 0, [0, 0, 1], [0, 0, 1], wanted)
    way = reach(CHAIN, known, publisher.tree)
    chances = chance_on_time(way, 2, wanted.deadline_s * 1e9)
    assert figures_at(publisher, CHAIN, known, 0).on_time == pytest.approx(chances.mean())
    assert 0.1 < chances[0] < chances[1] < 0.99
    assert way.mean_ns[2] == pytest.approx(56 * MS)


def test_what_readers_save_in_turn_adds_up_to_what_their_plan_saves() -> None:
    def flags(*events: int) -> NDArray[np.bool_]:
        found = np.zeros(4, np.bool_)
        found[list(events)] = True
        return found

    tree = tree_of_use(CHAIN, 0, {})
    source = Source(tree=tree, rate_per_s=8.0, events=4, reach_ns=np.array([1, 2, 3]))
    access = np.zeros(3, np.int64)
    readers = [Reader(broker=2, matches={0: flags(0, 1)}, access_ns=access) for _ in range(2)]
    readers.append(Reader(broker=1, matches={0: flags(1, 2)}, access_ns=access, movable=False))
    plan = place_readers([source], readers)
    changes = list(saved_in_turn([source], readers, plan.targets))
    assert [number for number, _ in changes] == [0, 1]
    total = sum(float(change.sum()) for _, change in changes)
    assert plan.messages_per_s_now + total == pytest.approx(plan.messages_per_s)
    assert changes[0][1].sum() == 0.0  # the other one still wants the same events


def test_loads_are_what_brokers_handle() -> None:
    publisher = traced(CHAIN, 0, [0, 0b0011, 0b0110], [0, 2, 2])
    session = publisher.session(CHAIN, times(CHAIN))
    assert loads_at(publisher, session, 0).tolist() == [10.0, 7.5, 5.0]
    assert loads_at(publisher, session, 1).tolist() == [0.0, 10.0, 5.0]
    assert on_time_shares(session, publisher.wanted).tolist() == [0.0, 0.0, 0.0]  # nothing was promised
