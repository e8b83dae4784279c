"""What a subscription costs does not depend on how many there are, at its home broker and at its neighbours.

Counted in lines of Python that are executed, so it is the same on every machine.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from tests.protocol.conftest import SECOND, Wire

FEW, MANY = 300, 1_800
GROWTH = 1.2
"""Six times as many may make a step by so much longer."""


def lines(do: Callable[[], Any]) -> int:
    """How many lines something takes."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:  # noqa: ARG001
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)
    return count


def network(count: int) -> Wire:
    """Two brokers, and a client of a with so many subscriptions; both have matched an event."""
    net = Wire()
    net.chain("a", "b", interest_bytes=1_000)
    net.client("s", "a")
    net.client("p", "b")
    net.call("p", "advertise", "all", "x >= 0")
    for number in range(count):
        net.do("s", net.machines["s"].subscribe(f"s{number}", f"x = {number}", net.now_ns))
        if number % 100 == 0:
            net.settle()
    net.settle()
    net.call("p", "publish", {"x": 0})
    assert len(net.machines["b"].gossip.interests) == count
    return net


def subscribe(net: Wire) -> None:
    net.call("s", "subscribe", "more", "x = 1000000")


def change(net: Wire) -> None:
    net.call("s", "subscribe", "s7", "x = 1000000")


def unsubscribe(net: Wire) -> None:
    net.call("s", "unsubscribe", "s7")


def reconnect(net: Wire) -> None:
    net.disconnect("a", "b")
    net.connect("a", "b")
    net.settle()


def refresh(net: Wire) -> None:
    for name in "ab":
        net.machines[name].gossip.refresh(net.now_ns)
        net.machines[name].gossip.digest()


@pytest.mark.parametrize("step", [subscribe, change, unsubscribe, reconnect, refresh])
def test_a_step_takes_as_long_with_many_subscriptions_as_with_few(step: Callable[[Wire], None]) -> None:
    few, many = network(FEW), network(MANY)
    step(few)  # once, for what is remembered of the first time
    step(many)
    few, many = network(FEW), network(MANY)
    assert lines(lambda: step(many)) < GROWTH * lines(lambda: step(few)) + 50


def restart(net: Wire) -> None:
    net.crash("a")
    net.add(net.broker("a", "b", kept=dict(net.disks["a"]), interest_bytes=1_000))


def lose_everything(net: Wire) -> None:
    net.crash("b")
    net.disks["b"].clear()
    net.add(net.broker("b", "a", interest_bytes=1_000))


def forget(net: Wire) -> None:
    """The client is forgotten, with all that it wanted."""
    net.cut("s", "a")
    machine = net.machines["a"]
    net.do("a", machine.disconnected("s", net.now_ns))
    machine.clients["s"].heard_ns = net.now_ns - 2 * machine.settings.client_timeout_ns
    net.pass_time(6 * SECOND)
    assert "s" not in machine.clients


@pytest.mark.parametrize("step", [restart, lose_everything, forget])
def test_what_is_done_with_all_of_them_grows_with_their_number(step: Callable[[Wire], None]) -> None:
    few, many = network(FEW), network(MANY)
    assert lines(lambda: step(many)) < GROWTH * MANY / FEW * lines(lambda: step(few))
    assert few.machines["a"].view().interests == few.machines["b"].view().interests
    assert many.machines["a"].view().interests == many.machines["b"].view().interests
