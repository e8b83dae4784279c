"""Who subscribes at a broker stays known, for status, when routing has forgotten the broker."""

from typing import Any

from tidings.protocol.broker._interests import Interests
from tidings.protocol.broker._last_known import MOST_BROKERS, MOST_CLIENTS, LastKnown

SECOND = 10**9


def nobody() -> LastKnown:
    return LastKnown(Interests(timeout_ns=None, max_origins=10, max_entries=10))


def test_subscribers_outlive_the_interests_of_their_broker(row: Any) -> None:
    row.call("s", "subscribe", "more", "x > 7")
    known = row.machines["a"].gossip.last_known
    assert known.subscribers("c") == ({"s": 2}, 0)
    row.crash("c")
    row.pass_time(60 * SECOND)
    assert "c" not in row.machines["a"].gossip.interests
    assert known.subscribers("c") == ({"s": 2}, 0)
    row.add(row.broker("c", "b", kept=dict(row.disks["c"])))
    row.pass_time(20 * SECOND)
    row.call("s", "unsubscribe", "more")
    assert known.subscribers("c") == ({"s": 1}, 0)
    assert len(known) == 0


def test_who_has_moved_away_is_not_counted_twice() -> None:
    known = nobody()
    known.forget("b", ["desk/s1", "desk/s2", "c\0other/s1"])
    assert known.subscribers("b").clients == {"desk": 2}
    assert known.subscribers("c") == ({}, 0)


def test_what_is_remembered_is_bounded() -> None:
    known = nobody()
    for number in range(MOST_BROKERS + 5):
        known.forget(
            f"b{number}", [f"client-{place:05}/s1" for place in range(MOST_CLIENTS + 7 if number > 255 else 1)]
        )
    assert len(known) == MOST_BROKERS
    assert known.subscribers("b4") == ({}, 0)
    last = known.subscribers(f"b{MOST_BROKERS}")
    assert (len(last.clients), last.left_off) == (MOST_CLIENTS, 7)
