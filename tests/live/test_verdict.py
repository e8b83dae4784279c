"""The verdict: whatever a status says, everybody who is late or cut off is in it once, with a cause and a remedy."""

import copy
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.live.conftest import Place, run, running, until

from tidings.cli._troubles import duration, trouble_lines
from tidings.live import connect
from tidings.live.operations._query import ask_network
from tidings.live.operations._status import network_status
from tidings.live.operations._verdict import KINDS, ON_TIME_LEAST, STUCK_S, Trouble, Verdict, verdict_of

ROWS = 12
LATE = ("link-slow", "broker-busy", "reader-slow", "deadline-short", "late")


def figures(on_time: int, late: int = 0, dropped_by: dict[str, int] | None = None, lost: int = 0) -> dict[str, Any]:
    dropped = sum((dropped_by or {}).values())
    settled = on_time + late + dropped + lost
    return {
        "matched": settled,
        "on_time": on_time,
        "late": late,
        "dropped": dropped,
        "dropped_by": dropped_by or {},
        "lost": lost,
        "on_time_reliability": on_time / settled if settled else None,
        "delay_ms_p50": 1.0,
        "delay_ms_p99": 2.0,
    }


def subscriber(broker: str, recent: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    facts = {"broker": broker, "affected": False, "client": "desk", "connected": True, "queued": 0, "max_delay_s": None}
    return {**facts, **figures(10), "last_minute": recent or figures(10), **more}


def broker(name: str, *neighbours: str, **more: Any) -> dict[str, Any]:
    peers = {other: {"up": True, "queued": 0, "rtt_s": 0.001, "mean_s_per_kb": None} for other in neighbours}
    history = {
        "at_s": [1_000.0 + 5 * row for row in range(ROWS)],
        "span_s": [5.0] * ROWS,
        "utilisation": [0.1] * ROWS,
        "links": {other: [0] * ROWS for other in neighbours},
        **{key: [0] * ROWS for key in ("on_time", "late", "dropped", "lost")},
    }
    return {
        "name": name,
        "up": True,
        "up_s": 500.0,
        "ready": True,
        "draining": False,
        "utilisation": 0.1,
        "neighbours": peers,
        "absent": [],
        "subscribers_left_off": 0,
        "parked": {},
        "copies": None,
        "store": {"full": False, "damaged": 0},
        "moves": {"under_way": []},
        "budgets": {"clients": [], "refused": 0},
        "deliveries": {"last_minute": figures(10)},
        "history": history,
        **more,
    }


def down(name: str, *neighbours: str, left_off: int = 0) -> dict[str, Any]:
    facts = {"absent": list(neighbours), "subscribers_left_off": left_off}
    return {"name": name, "up": False, "why": "refused", **facts}


def publisher(client: str, rate: float = 5.0) -> dict[str, Any]:
    return {"client": client, "connected": True, "rate_per_s": rate, "published": 100, "subscriptions": 1}


def row_of(*names: str, **more: dict[str, Any]) -> list[dict[str, Any]]:
    """Brokers in a row; `more` by name."""
    found = []
    for number, name in enumerate(names):
        beside = [names[other] for other in (number - 1, number + 1) if 0 <= other < len(names)]
        found.append(broker(name, *beside, **more.get(name, {})))
    return found


def judged(brokers: list[dict[str, Any]], **subscribers: dict[str, Any]) -> Verdict:
    return verdict_of({"brokers": brokers, "subscribers": subscribers}, file="my net.toml")


def only(verdict: Verdict) -> Trouble:
    (found,) = verdict.troubles
    return found


def test_all_is_well() -> None:
    verdict = judged(row_of("a", "b"), s=subscriber("b"))
    assert (verdict.state, verdict.troubles, verdict.late) == ("OK", (), 0)
    assert verdict.line == "OK: 2 brokers, 1 link, 1 subscription, 100.0 % on time in the last minute"


def test_a_network_of_which_no_broker_answers_is_one_trouble() -> None:
    trouble = only(judged([down("a", "b"), down("b", "a", left_off=2)], s=subscriber("b", affected=True)))
    assert (trouble.what, trouble.why, trouble.brokers) == ("no broker answers", "refused", ("a", "b"))
    assert (trouble.command, trouble.affected) == ("tidings up 'my net.toml'", 3)


def test_a_broker_that_is_down_takes_everybody_with_it() -> None:
    brokers = [broker("a", "b", silent_s={"b": 12.5}, parked={"b": {"events": 7, "oldest_s": 3}}), down("b", "a")]
    brokers[0]["neighbours"]["b"]["up"] = False
    brokers[1]["subscribers_left_off"] = 4
    verdict = judged(brokers, s=subscriber("b", affected=True, connected=False), other=subscriber("a"))
    trouble = only(verdict)
    assert verdict.line == "down: broker b is down, 5 of 6 subscriptions affected"
    assert (trouble.kind, trouble.since_s, trouble.subscriptions, trouble.affected) == ("broker-down", 12.5, ("s",), 5)
    assert trouble.why == "refused; 7 events wait for it"
    assert trouble.command == "tidings broker 'my net.toml' --name b"
    assert verdict.affected == 5


def test_a_link_that_is_down_between_brokers_that_are_up() -> None:
    brokers = row_of("a", "b", "c")
    brokers[1]["neighbours"]["c"]["up"] = False
    trouble = only(judged(brokers, s=subscriber("c"), t=subscriber("a")))
    assert (trouble.kind, trouble.brokers, trouble.subscriptions) == ("link-down", ("b", "c"), ("s",))
    assert "both sides wait" in trouble.why
    ring = row_of("a", "b", "c")
    ring[0]["neighbours"]["c"] = ring[2]["neighbours"]["a"] = {"up": True, "queued": 0}
    ring[1]["neighbours"]["c"]["up"] = False
    trouble = only(judged(ring, s=subscriber("c")))
    assert trouble.subscriptions == ()
    assert "another path" in trouble.why


def test_late_because_of_a_link() -> None:
    """Told by who dropped, or by the queue on the path from the publisher."""
    for recent in (figures(5, dropped_by={"b": 5}), figures(5, late=5), figures(5, dropped_by={"client": 2, "c": 3})):
        brokers = row_of("a", "b", "c", a={"publishers": [publisher("source")]})
        brokers[1]["history"]["links"]["c"] = [0] * 8 + [9, 0, 40, 20]
        verdict = judged(brokers, s=subscriber("c", recent), fine=subscriber("c"))
        trouble = only(verdict)
        assert (trouble.kind, trouble.brokers, trouble.subscriptions) == ("link-slow", ("b", "c"), ("s",))
        assert (trouble.since_s, trouble.publishers) == (20.0, ("source",))
        assert "40 events waited" in trouble.why
        assert verdict.line == "late: link b -> c is too slow, 1 of 2 subscriptions affected"
    brokers = row_of("a", "b", "c", a={"publishers": [publisher("source")]})
    brokers[2]["history"]["links"]["b"] = [9] * ROWS  # the other way: not on the path
    assert only(judged(brokers, s=subscriber("c", figures(5, late=5)))).kind == "late"


def test_late_because_a_broker_is_too_busy() -> None:
    for recent in (figures(5, dropped_by={"b": 5}), figures(5, late=5)):
        brokers = row_of("a", "b", "c", a={"publishers": [publisher("source")]})
        brokers[1]["history"]["utilisation"] = [0.2] * 8 + [0.97] * 4
        trouble = only(judged(brokers, s=subscriber("c", recent)))
        assert (trouble.kind, trouble.brokers, trouble.since_s) == ("broker-busy", ("b",), 20.0)
        assert "97%" in trouble.why


def test_late_because_the_reader_lags() -> None:
    reader = subscriber("b", figures(5, dropped_by={"b": 5}), queued=30)
    brokers = row_of("a", "b")
    brokers[1]["history"] |= {"on_time": [10] * 10 + [1, 1], "dropped": [0] * 10 + [9, 9]}
    trouble = only(judged(brokers, s=reader))
    assert (trouble.kind, trouble.what, trouble.since_s) == ("reader-slow", "client desk reads too slowly", 10.0)
    brokers[1]["history"]["utilisation"] = [1.0] * ROWS
    assert only(judged(brokers, s=reader)).kind == "broker-busy"


def test_late_because_the_deadline_is_too_short_or_nobody_knows() -> None:
    tight = subscriber("b", figures(1, dropped_by={"client": 9}), max_delay_s=1e-3)
    trouble = only(judged(row_of("a", "b"), s=tight))
    assert trouble.kind == "deadline-short"
    assert "the shortest deadline is 1 ms" in trouble.why
    assert only(judged(row_of("a", "b"), s=subscriber("b", figures(9, late=1)))).kind == "late"


def test_other_troubles() -> None:
    move = {"client": "c", "from": "a", "to": "b", "by": "pop", "phase": "joining", "phase_s": STUCK_S + 1}
    held = {"client": "eager", "held_back": 3, "share": 0.1}
    for kind, facts in (
        ("store-full", {"store": {"full": True, "damaged": 0}}),
        ("store-damaged", {"store": {"full": False, "damaged": 3}}),
        ("broker-starting", {"ready": False, "up_s": 1.0}),
        ("broker-stuck", {"ready": False}),
        ("broker-draining", {"draining": True}),
        ("parked", {"parked": {"gone": {"events": 2, "oldest_s": 9.0}}}),
        ("move-stuck", {"moves": {"under_way": [move, move | {"phase_s": 1.0}]}}),
        ("budget", {"budgets": {"clients": [held], "refused": 0}}),
        ("budget", {"budgets": {"clients": [], "refused": 2}}),
        ("copies-missing", {"copies": {"waiting": 3, "keeper": None}}),
    ):
        verdict = judged(row_of("a", "b", a=facts))
        assert only(verdict).kind == kind
        assert (verdict.state == "OK") == (KINDS[kind] == "notice")
    away = judged(row_of("a", a={"away_s": {"desk": 77.0}}), s=subscriber("a", connected=False))
    assert (only(away).kind, only(away).since_s) == ("client-away", 77.0)
    assert away.line == "OK: 1 broker, 0 links, 1 subscription, 100.0 % on time in the last minute; 1 notice"


def test_brokers_of_an_earlier_version_are_judged_too() -> None:
    old = row_of("a", "b")
    for each in old:
        del each["history"]
    assert only(judged(old, s=subscriber("b", figures(5, late=5)))).since_s is None


shares = st.tuples(st.integers(0, 20), st.integers(0, 3), st.dictionaries(st.sampled_from("abcdx"), st.integers(1, 5)))


@st.composite
def statuses(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True))
    is_up = {name: draw(st.integers(0, 3)) > 0 for name in names}
    links = draw(st.sets(st.tuples(st.sampled_from(names), st.sampled_from(names))))
    brokers = []
    for name in names:
        others = sorted({two for one, two in links if one == name} | {one for one, two in links if two == name})
        others = [other for other in others if other != name]
        if not is_up[name]:
            brokers.append(down(name, *others, left_off=draw(st.integers(0, 2))))
            continue
        made = broker(name, *others, ready=draw(st.booleans()), draining=draw(st.booleans()))
        for other in others:
            made["neighbours"][other] |= {"up": draw(st.booleans()), "queued": draw(st.integers(0, 2))}
            made["history"]["links"][other] = draw(st.lists(st.integers(0, 2), min_size=ROWS, max_size=ROWS))
        made["history"]["utilisation"] = draw(st.lists(st.floats(0, 1), min_size=ROWS, max_size=ROWS))
        made["publishers"] = [publisher(f"p{name}", draw(st.floats(0, 9)))] if draw(st.booleans()) else []
        made["parked"] = {home: {"events": 1, "oldest_s": 1.0} for home in draw(st.sets(st.sampled_from("abcdx")))}
        made["store"]["full"] = draw(st.booleans())
        brokers.append(made)
    subscribers = {}
    for number in range(draw(st.integers(0, 5))):
        home = draw(st.sampled_from(names))
        on_time, late, dropped_by = draw(shares)
        recent = figures(on_time, late, dropped_by) if is_up[home] else None
        facts = subscriber(home, affected=not is_up[home], client=f"c{number}", queued=draw(st.integers(0, 2)))
        facts |= {"last_minute": recent, "connected": is_up[home] and draw(st.booleans())}
        facts |= {"max_delay_s": draw(st.sampled_from([None, 0.1]))}
        subscribers[f"c{number}/s"] = facts
    return {"brokers": brokers, "subscribers": subscribers}


@given(statuses())
def test_everybody_in_trouble_is_in_the_verdict_once(status: dict[str, Any]) -> None:
    before = copy.deepcopy(status)
    verdict = verdict_of(status)
    assert status == before, "a verdict changes nothing"
    where: dict[str, list[str]] = {name: [] for name in status["subscribers"]}
    for trouble in verdict.troubles:
        for name in trouble.subscriptions:
            where[name].append(trouble.kind)
    for name, each in status["subscribers"].items():
        recent = each["last_minute"]
        is_late = recent is not None and (recent["on_time_reliability"] or 1.0) < ON_TIME_LEAST
        is_late = is_late or (recent is not None and recent["on_time_reliability"] == 0.0)
        assert where[name].count("broker-down") == each["affected"]
        assert sum(kind in LATE for kind in where[name]) == is_late
        assert ("client-away" in where[name]) == (not each["connected"] and not each["affected"])
    order = list(KINDS)
    assert [order.index(each.kind) for each in verdict.troubles] == sorted(
        order.index(t.kind) for t in verdict.troubles
    )
    assert (verdict.state == "OK") == all(each.gravity == "notice" for each in verdict.troubles)
    assert verdict.line.startswith(f"{verdict.state}: ")
    for trouble in verdict.troubles:
        assert trouble.gravity == KINDS[trouble.kind]
        assert all(line.strip() for line in trouble_lines(trouble))
        assert trouble.since_s is None or trouble.since_s >= 0
        assert "\n" not in trouble.what + trouble.why + trouble.remedy + trouble.command
    msgspec.json.encode(verdict)
    reversed_ = verdict_of({**status, "brokers": status["brokers"][::-1]})
    assert {each.what for each in reversed_.troubles} == {each.what for each in verdict.troubles}


def test_words() -> None:
    assert [duration(each) for each in (0.4, 100, 130, 7_300, 200_000)] == ["0 s", "100 s", "2 min", "2 h", "2 days"]


def test_a_reader_that_does_not_read_is_found_out_live(place: Place) -> None:
    async def work() -> None:
        network = place.write("a", "b")
        async with (
            running(network) as nodes,
            connect(place.address("a"), name="source") as source,
            connect(place.address("b"), name="lazy", window=2) as lazy,
            connect(place.address("b"), name="keen") as keen,
        ):
            await lazy.subscribe("n >= 0", name="all", max_held=2, max_delay_s=0.3)
            events = await keen.subscribe("n >= 0", name="all")
            await until(lambda: len(nodes["a"].machine.gossip.interests) == 2)
            found = None
            while found is None:
                for n in range(30):
                    await source.publish({"n": n})
                    await anext(events)
                verdict = network_status(await ask_network(network))["verdict"]
                found = next((each for each in verdict.troubles if each.kind == "reader-slow"), None)
            assert found.what == "client lazy reads too slowly"
            assert found.subscriptions == ("lazy/all",)

    run(work())
