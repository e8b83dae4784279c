"""The last 15 minutes of a broker: rows that add up, bounded, and cheap."""

import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.live.conftest import Place, run, running, until

from tidings.live import connect
from tidings.live.operations._history import EVERY_S, ROWS_MAX, History, network_history
from tidings.live.operations._status import snapshot

NOON_S = 1_700_000_000.0


def test_rows_have_what_happened_in_their_span(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        async with (
            running(network) as nodes,
            connect(place.address("a"), name="desk") as desk,
            connect(place.address("b"), name="reader") as reader,
        ):
            events = await reader.subscribe("n >= 0", name="all")
            await until(lambda: "b" in nodes["a"].machine.gossip.interests)
            sender, home = History(nodes["a"]), History(nodes["b"])
            for history in (sender, home):
                history.look(NOON_S)
            for n in range(20):
                await desk.publish({"n": n})
                await anext(events)
            await until(lambda: nodes["b"].machine.accounts.last_minute().on_time == 20 or look(nodes["b"]))
            for history in (sender, home):
                history.look(NOON_S + 1)  # not due yet
                history.look(NOON_S + EVERY_S)
                history.look(NOON_S + 2 * EVERY_S)
            facts, there = sender.facts(), home.facts()
            assert facts["history"]["at_s"] == [NOON_S + EVERY_S, NOON_S + 2 * EVERY_S]
            assert facts["history"]["span_s"] == [EVERY_S, EVERY_S]
            assert facts["history"]["published"] == [20, 0]
            assert facts["history"]["links"] == {"b": [0, 0]}
            assert there["history"]["delivered"] == there["history"]["on_time"] == [20, 0]
            assert there["history"]["delay_ms_p99"][0] > 0
            assert there["history"]["delay_ms_p99"][1] is None
            (publisher,) = facts["publishers"]
            assert (publisher["client"], publisher["published"], publisher["subscriptions"]) == ("desk", 20, 1)
            assert publisher["rate_per_s"] == 2.0
            assert (there["publishers"], there["published"]) == ([], 0)
            whole = network_history([facts, there])
            assert whole["published_per_s"] == [4.0, 0.0]
            assert whole["delivered_per_s"] == [4.0, 0.0]
            assert whole["on_time_reliability"] == [1.0, None]
            status = snapshot(nodes["a"])
            assert status["address"] == place.address("a")
            assert status["silent_s"] == {}

    def look(node: Any) -> bool:
        node.machine.accounts.look()
        return False

    run(work())


def test_the_history_of_a_broker_begins_with_its_first_event(place: Place) -> None:
    """Also if all events of its life come in its first second."""

    async def work() -> None:
        network = place.write("a")
        async with running(network) as nodes, connect(place.address("a"), name="desk") as desk:
            for n in range(3):
                await desk.publish({"n": n})
            nodes["a"].history.look(time.time() + EVERY_S)
            assert sum(nodes["a"].history.facts()["history"]["published"]) == 3

    run(work())


def test_a_history_is_bounded_and_says_who_is_silent(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        async with running(network) as nodes, connect(place.address("a"), name="desk") as desk:
            await desk.subscribe("n >= 0", name="all")
            history = History(nodes["a"])
            for number in range(ROWS_MAX + 20):
                history.look(NOON_S + number * EVERY_S)
            nodes["b"].stop()
            await until(lambda: not nodes["a"].machine.neighbours["b"].is_up)
            history.look(NOON_S + (ROWS_MAX + 20) * EVERY_S)
            facts = history.facts()
            assert {len(column) for name, column in facts["history"].items() if name != "links"} == {ROWS_MAX}
            assert len(facts["history"]["links"]["b"]) == ROWS_MAX
            assert facts["silent_s"]["b"] >= 0
            history.look(NOON_S)  # the wall clock was set back: the next row begins there
            history.look(NOON_S + EVERY_S)
            assert history.facts()["history"]["at_s"][-1] == NOON_S + EVERY_S

    run(work())


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), max_size=5), min_size=1, max_size=4
    )
)
def test_histories_add_up(brokers: list[list[tuple[int, int, int]]]) -> None:
    """Of brokers that have sampled all moments: nothing is counted twice or left out."""
    rows = min(map(len, brokers))
    histories = [history(broker[:rows]) for broker in brokers]
    found = network_history([{"history": each} for each in histories])
    assert found["at_s"] == [NOON_S + EVERY_S * number for number in range(rows)]
    for number in range(rows):
        counts = [broker[number] for broker in brokers]
        assert found["published_per_s"][number] == sum(each[0] for each in counts) / EVERY_S
        settled = sum(each[1] + each[2] for each in counts)
        share = round(sum(each[1] for each in counts) / settled, 6) if settled else None
        assert found["on_time_reliability"][number] == share


def history(rows: list[tuple[int, int, int]]) -> dict[str, Any]:
    """Rows of published, on time, dropped."""
    many = len(rows)
    return {
        "at_s": [NOON_S + EVERY_S * number for number in range(many)],
        "span_s": [float(EVERY_S)] * many,
        "published": [row[0] for row in rows],
        "delivered": [row[1] for row in rows],
        "on_time": [row[1] for row in rows],
        "dropped": [row[2] for row in rows],
        "delay_ms_p50": [1.0 if row[1] else None for row in rows],
        "delay_ms_p99": [2.0 if row[1] else None for row in rows],
        **{key: [0] * many for key in ("late", "lost", "queued", "utilisation")},
        "links": {},
    }


def test_the_last_moment_waits_for_all_brokers_but_not_for_one_that_hangs() -> None:
    quick, slow = history([(1, 1, 0)] * 3), history([(1, 1, 0)] * 2)
    assert len(network_history([{"history": quick}, {"history": slow}])["at_s"]) == 2
    stuck = history([(1, 1, 0)])
    assert len(network_history([{"history": quick}, {"history": stuck}, {"up": False}])["at_s"]) == 3
    assert network_history([{"up": False}])["at_s"] == []
