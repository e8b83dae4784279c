"""Events for somebody whose broker is out of reach wait, and are seen to; or are refused, if that is asked for."""

from typing import Any

from tests.protocol.conftest import Wire
from tests.protocol.test_migration import came

from tidings.protocol import Failed

SECOND = 10**9


def test_events_that_wait_for_an_unreachable_broker_are_reported(row: Any) -> None:
    assert row.machines["a"].parked() == {}
    row.disconnect("b", "c")
    row.pass_time(SECOND)
    for x in (6, 7, 8):
        row.call("p", "publish", {"x": x})
    row.pass_time(5 * SECOND)
    parked = row.machines["a"].parked() | row.machines["b"].parked()
    assert list(parked) == ["c"]
    assert parked["c"].events == 3
    assert parked["c"].size_bytes > 0
    assert parked["c"].oldest_ns == 5 * SECOND
    row.connect("b", "c")
    row.pass_time(20 * SECOND)
    assert came(row) == [0, 1, 2]
    assert row.machines["a"].parked() == row.machines["b"].parked() == {}


def test_what_must_reach_everybody_is_refused_meanwhile(row: Any) -> None:
    row.call("p", "publish", {"x": 6}, must_reach=True)
    row.disconnect("b", "c")
    row.pass_time(SECOND)
    row.call("p", "publish", {"x": 7}, must_reach=True)
    row.call("p", "publish", {"x": 1}, must_reach=True)  # for nobody
    row.call("p", "publish", {"x": 8})
    failed = [effect for name, effect in row.effects if name == "p" and isinstance(effect, Failed)]
    assert [(effect.name, effect.code) for effect in failed] == [("1", "unreachable")]
    assert "out of reach: c" in failed[0].message
    row.connect("b", "c")
    row.pass_time(20 * SECOND)
    assert came(row) == [0, 3]


def test_parked_events_are_bounded_and_publishers_get_errors() -> None:
    net = Wire()
    net.chain("a", "b", max_parked_bytes=1_000)
    net.client("p", "a")
    net.client("s", "b")
    net.call("p", "advertise", "all", "x > 0")
    net.call("s", "subscribe", "some", "x > 5")
    net.settle()
    net.disconnect("a", "b")
    net.pass_time(SECOND)
    for x in range(6, 16):
        net.call("p", "publish", {"x": x}, payload=bytes(300))
    net.call("p", "publish", {"x": 1}, payload=bytes(300))  # for nobody
    failed = [effect for name, effect in net.effects if name == "p" and isinstance(effect, Failed)]
    assert {effect.code for effect in failed} == {"parked"}
    assert "for broker 'b', which is out of reach; the limit is 1,000" in failed[0].message
    assert net.machines["a"].parked()["b"].events == 10 - len(failed) == 2
    net.connect("a", "b")
    net.pass_time(20 * SECOND)
    net.call("p", "publish", {"x": 9}, payload=bytes(300))
    assert len(net.delivered("s")) == 3
