import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.errors import InputError
from tidings.placement import PrintedEvaluation, TraceSession, evaluate, loads_from
from tidings.placement._evaluation import priced_messages
from tidings.routing import overlay_of_links, shortest_path_tree

SEEDS = st.integers(0, 2**32 - 1)


@settings(deadline=None)  # the first call compiles
@given(seed=SEEDS, brokers=st.integers(1, 40), events=st.sampled_from([1, 63, 64, 65, 100, 200]))
def test_every_candidate_is_worth_what_the_printed_algorithms_say(make_session, seed, brokers, events) -> None:
    session = make_session(seed, brokers, events)
    printed = PrintedEvaluation(session)
    found = evaluate(session)
    assert found.total_delay_ns.tolist() == [printed.total_delay_ns(b) for b in found.brokers.tolist()]
    assert found.messages.tolist() == [printed.total_messages(b) for b in found.brokers.tolist()]


@settings(deadline=None)  # the first call compiles
@given(seed=SEEDS, brokers=st.integers(1, 25))
def test_loads_and_prices_add_up_to_the_messages(make_session, seed, brokers) -> None:
    session = make_session(seed, brokers, 70)
    found = evaluate(session)
    prices = np.random.default_rng(seed).random(brokers)
    priced = priced_messages(session, prices)
    for place, broker in enumerate(found.brokers.tolist()):
        loads = loads_from(session, broker)
        assert loads.sum() == found.messages[place]
        assert loads @ prices == pytest.approx(priced[place])


@settings(deadline=None)  # the first call compiles
@given(seed=SEEDS, brokers=st.integers(2, 25))
def test_the_home_that_asks_makes_no_difference(make_session, seed, brokers) -> None:
    def by_broker(home: int) -> dict[int, tuple[int, int]]:
        session = make_session(seed, brokers, 100, home=home)
        found = evaluate(session)
        return dict(zip(found.brokers.tolist(), zip(found.total_delay_ns, found.messages, strict=True), strict=True))

    assert by_broker(0) == by_broker(brokers - 1)


def chain(**changes: object) -> TraceSession:
    """a - b - c, publisher at a; two events, both delivered at c, the first at b too."""
    overlay = overlay_of_links(("a", "b", "c"), [(0, 1, 1.0), (1, 2, 1.0)], both_ways=True)
    figures: dict[str, object] = {
        "overlay": overlay,
        "tree": shortest_path_tree(overlay, 0),
        "events": 2,
        "bits": np.array([[0], [1], [3]], np.uint64),
        "deliveries": np.array([0, 1, 4]),
        "to_client_ns": np.array([1, 1, 1]),
        "onward_ns": np.array([10, 12, 20, 22]),  # a-b, b-a, b-c, c-b
        "ping_ns": np.array([5, 6, 7]),
    }
    return TraceSession(**{**figures, **changes})  # type: ignore[arg-type]


def test_a_chain_by_hand() -> None:
    found = evaluate(chain())
    assert found.brokers.tolist() == [0, 1, 2]
    # from a: b gets 1 x (5+10+1), c 4 x (5+10+20+1); from b: 1 x (6+1) + 4 x (6+20+1); from c: 1 x (7+22+1) + 4 x (7+1)
    assert found.total_delay_ns.tolist() == [16 + 144, 7 + 108, 30 + 32]
    assert found.messages.tolist() == [2 + 2 + 2, 2 + 2, 1 + 2]
    assert found.average_delay_ns.tolist() == pytest.approx([32.0, 23.0, 12.4])
    assert found.hops.tolist() == [0, 1, 2]


def test_no_deliveries_make_all_places_equal() -> None:
    found = evaluate(chain(bits=np.zeros((3, 1), np.uint64), deliveries=np.zeros(3, np.int64)))
    assert found.average_delay_ns.tolist() == [0.0, 0.0, 0.0]
    assert found.messages.tolist() == [0, 0, 0]


def test_what_is_wrong_with_a_session_is_said() -> None:
    with pytest.raises(InputError, match="deliveries has shape"):
        chain(deliveries=np.zeros(2, np.int64))
    with pytest.raises(InputError, match="ping_ns must hold whole numbers of at least 0"):
        chain(ping_ns=np.array([1, -1, 0]))
    with pytest.raises(InputError, match="are they in nanoseconds"):
        chain(onward_ns=np.full(4, 2**60))
    oneway = overlay_of_links(("a", "b"), [(0, 1, 1.0)])
    with pytest.raises(InputError, match="no link leads from broker 'b' back to 'a'"):
        chain(
            overlay=oneway,
            tree=shortest_path_tree(oneway, 0),
            bits=np.zeros((2, 1), np.uint64),
            deliveries=np.zeros(2, np.int64),
            to_client_ns=np.zeros(2, np.int64),
            onward_ns=np.zeros(1, np.int64),
            ping_ns=np.zeros(2, np.int64),
        )
    with pytest.raises(InputError, match="broker 9 is not a candidate"):
        evaluate(chain()).at(9)
