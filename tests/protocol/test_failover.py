"""A client whose home does not come back goes on elsewhere, in this life or the next; what home kept comes after it."""

from typing import Any

from tests.protocol.test_migration import came, homes

from tidings.protocol import Client, ClientSettings

SECOND = 10**9


def know(net: Any, *clients: str) -> None:
    """What clients get when they are admitted."""
    for client in clients:
        net.machines[client].brokers.update("abc")


def crash(net: Any, broker: str) -> None:
    """A broker dies, and everybody's connection with it."""
    net.crash(broker)
    for other, machine in list(net.machines.items()):
        if (other, broker) in net.links:
            net.do(other, machine.disconnected(broker, net.now_ns))
    net.settle()


def restart(net: Any, broker: str, *neighbours: str) -> None:
    net.add(net.broker(broker, *neighbours, kept=net.disks[broker]))


def test_a_publisher_goes_on_elsewhere(row: Any) -> None:
    know(row, "p")
    row.call("p", "publish", {"x": 6})
    crash(row, "a")
    row.call("p", "publish", {"x": 7})  # it waits for a
    row.pass_time(4 * SECOND)
    assert row.machines["p"].home.name == "a"
    row.pass_time(3 * SECOND)
    assert row.machines["p"].home.name in ("b", "c")
    assert came(row) == [0, 1]
    row.call("p", "publish", {"x": 8})
    row.pass_time(SECOND)
    assert came(row) == [0, 1, 2]


def test_what_home_has_kept_comes_when_it_is_back_and_nothing_twice(row: Any) -> None:
    know(row, "s")
    row.call("p", "publish", {"x": 6})
    row.links.discard(("c", "s"))
    row.call("p", "publish", {"x": 7})  # c has it, and the subscriber not
    crash(row, "c")
    row.links.add(("c", "s"))
    row.pass_time(8 * SECOND)
    assert row.machines["s"].home.name in ("a", "b")
    row.call("p", "publish", {"x": 8})
    row.pass_time(SECOND)
    assert came(row) == [0, 2]
    restart(row, "c", "b")
    row.pass_time(30 * SECOND)
    assert sorted(came(row)) == [0, 1, 2]
    assert homes(row, "s") == [row.machines["s"].home.name]


def test_a_broker_that_does_not_take_it_in_is_given_up_for_the_next(row: Any) -> None:
    know(row, "p")
    crash(row, "a")
    crash(row, "b")
    row.pass_time(20 * SECOND)
    assert row.machines["p"].home.name == "c"


def test_a_home_that_is_back_in_time_stays_home(row: Any) -> None:
    know(row, "s")
    crash(row, "c")
    row.pass_time(3 * SECOND)
    restart(row, "c", "b")
    row.pass_time(30 * SECOND)
    assert homes(row, "s") == ["c"]


def test_a_client_may_wait_for_its_home(wire: Any) -> None:
    wire.chain("a", "b")
    wire.client("p", "a", failover_ns=0)
    know(wire, "p")
    crash(wire, "a")
    wire.pass_time(60 * SECOND)
    assert wire.machines["p"].home.name == "a"


def test_a_new_life_elsewhere_gets_what_the_old_home_has_kept(row: Any) -> None:
    """Its new home notifies the old one, which forgets it."""
    row.disconnect("s", "c")
    row.crash("s")
    for x in (6, 7, 8):
        row.call("p", "publish", {"x": x})
    row.add(Client(ClientSettings(name="s", epoch=2)), links=("b",))
    row.call("s", "subscribe", "some", "x > 5")
    row.pass_time(60 * SECOND)
    assert sorted(came(row)) == [0, 1, 2]
    assert homes(row, "s") == ["b"]
    assert row.machines["c"].counts["rehomed"] == 1
    row.call("p", "publish", {"x": 9})
    row.pass_time(SECOND)
    assert sorted(came(row)) == [0, 1, 2, 3]


def test_a_new_life_that_wants_less_takes_nothing_away(row: Any) -> None:
    row.call("s", "subscribe", "more", "x > 100")
    row.disconnect("s", "c")
    row.crash("s")
    row.add(Client(ClientSettings(name="s", epoch=2)), links=("b",))
    row.call("s", "subscribe", "some", "x > 5")
    row.pass_time(60 * SECOND)
    assert sorted(homes(row, "s")) == ["b", "c"]
    row.call("s", "subscribe", "more", "x > 100")
    row.pass_time(60 * SECOND)
    assert homes(row, "s") == ["b"]
