"""What a home broker knows of its clients' moves: under way, done, called off."""

from typing import Any

import pytest
from tests.protocol.conftest import Wire

from tidings.protocol import MovesView
from tidings.protocol import wire as messages
from tidings.protocol.relocation._moves import PATIENCE_NS, RECENT

SECOND = 10**9
MS = 10**6


def ended(view: MovesView) -> list[tuple[str, str, str, str, str]]:
    return [(move.client, move.target, move.by, move.phase, move.why) for move in view.recent]


def phases(view: MovesView) -> list[tuple[str, str, str, str]]:
    return [(move.client, move.target, move.by, move.phase) for move in view.under_way]


def test_a_move_that_is_asked_for_is_seen_from_the_beginning_to_the_end(row: Wire) -> None:
    row.machines["a"].ask_to_move("p", "c", row.now_ns)  # what it says is lost
    assert phases(row.machines["a"].moves()) == [("p", "c", "order", "asked")]
    row.holds_syncs = True
    row.call("a", "ask_to_move", "p", "c")
    assert phases(row.machines["a"].moves()) == [("p", "c", "order", "joining")]
    row.pass_time(2 * SECOND)
    since_ns = row.now_ns - row.machines["a"].moves().under_way[0].since_ns
    assert since_ns == 2 * SECOND
    row.holds_syncs = False
    row.settle()
    row.pass_time(SECOND)
    view = row.machines["a"].moves()
    assert phases(view) == []
    assert ended(view) == [("p", "c", "order", "done", "")]
    assert (view.asked, view.done, view.called_off) == (2, 1, 0)
    assert row.machines["c"].moves()[1:] == ([], [], 0, 0, 0)


def test_new_events_wait_while_the_old_ones_are_acknowledged(row: Wire) -> None:
    row.call("p", "publish", {"x": 6})
    row.holds_syncs = True
    row.call("p", "publish", {"x": 7})
    row.call("p", "move", "b")
    while row.syncs and phases(row.machines["a"].moves()) != [("p", "b", "client", "paused")]:
        name, _ = row.syncs[0]
        if name == "a":
            row.syncs.rotate(-1)
            continue
        row.sync()
        row.settle()
    assert phases(row.machines["a"].moves()) == [("p", "b", "client", "paused")]
    row.holds_syncs = False
    row.settle()
    row.pass_time(SECOND)
    view = row.machines["a"].moves()
    assert ended(view) == [("p", "b", "client", "done", "")]
    assert (view.asked, view.done, view.called_off) == (0, 1, 0)


def test_a_client_that_stays_says_so(wire: Wire) -> None:
    wire.chain("a", "b")
    wire.client("p", "a", may_be_moved=False)
    wire.call("a", "ask_to_move", "p", "b")
    view = wire.machines["a"].moves()
    assert ended(view) == [("p", "b", "order", "called off", "the client stays where it is")]
    assert (view.asked, view.done, view.called_off) == (1, 0, 1)


def test_a_move_that_is_called_off_counts_once_and_not_where_it_went(row: Wire) -> None:
    row.holds_syncs = True
    row.call("p", "move", "c")
    row.pass_time(8 * SECOND)
    assert phases(row.machines["a"].moves()) == [("p", "c", "client", "joining")]
    row.pass_time(4 * SECOND)
    row.holds_syncs = False
    row.settle()
    row.pass_time(SECOND)
    view = row.machines["a"].moves()
    assert ended(view) == [("p", "c", "client", "called off", "timeout")]
    assert (view.asked, view.done, view.called_off) == (0, 0, 1)
    assert row.machines["c"].moves()[1:] == ([], [], 0, 0, 0), (
        "c was asked to forget the client, and was never its home"
    )
    assert row.machines["p"].home.name == "a"


def test_a_report_lost_with_a_connection_is_repeated(row: Wire) -> None:
    row.holds_syncs = True
    row.call("p", "move", "c")
    row.cut("p", "a")
    row.pass_time(11 * SECOND)
    assert phases(row.machines["a"].moves()) == [("p", "c", "client", "joining")]
    row.mend("p", "a")
    row.disconnect("p", "a")
    row.connect("p", "a")
    row.settle()
    assert ended(row.machines["a"].moves()) == [("p", "c", "client", "called off", "timeout")]


def test_of_whom_nothing_is_heard_has_called_it_off(row: Wire) -> None:
    row.machines["a"].ask_to_move("p", "c", row.now_ns)
    row.pass_time(PATIENCE_NS + 6 * SECOND)  # brokers look at the clock when they ping
    assert ended(row.machines["a"].moves()) == [("p", "c", "order", "called off", "nothing was heard from it")]


def test_a_client_that_is_asked_to_go_elsewhere_goes_on(row: Wire) -> None:
    row.holds_syncs = True
    row.call("p", "move", "c")
    row.call("a", "ask_to_move", "p", "b")
    assert phases(row.machines["a"].moves()) == [("p", "c", "client", "joining")]
    row.holds_syncs = False
    row.settle()
    row.pass_time(SECOND)
    assert ended(row.machines["a"].moves()) == [("p", "c", "client", "done", "")]


@pytest.mark.parametrize("phase", ["joining", "paused"])
def test_old_moves_are_forgotten(row: Wire, phase: Any) -> None:
    moves = row.machines["a"].coordinator.moves
    for number in range(RECENT + 5):
        moves.heard(f"c{number}", messages.Moving("b", phase), row.now_ns)
        moves.departed(f"c{number}", "b", row.now_ns, was_known=True)
        moves.departed(f"c{number}", "b", row.now_ns, was_known=False)  # it says so until it is answered
    view = row.machines["a"].moves()
    assert [move.client for move in view.recent] == [f"c{number}" for number in reversed(range(5, RECENT + 5))]
    assert view.done == RECENT + 5


def test_a_forgotten_client_is_no_longer_moving(wire: Wire) -> None:
    wire.chain("a", "b")
    wire.client("p", "a")
    wire.crash("b")
    wire.call("p", "move", "b")
    wire.crash("p")
    wire.disconnect("p", "a")
    assert ended(wire.machines["a"].moves()) == [("p", "b", "client", "called off", "the client is gone")]


def test_a_broker_of_an_older_version_gets_no_message_that_it_does_not_know(row: Wire) -> None:
    client = row.machines["p"]
    for peer in client._migration.peers():
        peer.version = 2
    row.call("p", "move", "b")
    row.pass_time(SECOND)
    assert client.home.name == "b"
    assert client.sent["Moving"] == 1, "to b alone, which is of this version"
    assert ended(row.machines["a"].moves()) == [("p", "b", "client", "done", "")]
