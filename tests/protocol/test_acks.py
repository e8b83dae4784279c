"""When a client acknowledges: at once when events are rare, seldom when they are many, never too late."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tidings.protocol import Client, ClientSettings, Effect, Send, wire

MS = 10**6
START = 10**12
EPOCH = 5


def subscriber(**settings: Any) -> Client:
    client = Client(ClientSettings(name="s", **settings))
    client.start(START)
    client.subscribe("some", "x > 5", START)
    client.connected("b", START)
    client.receive("b", wire.encode(wire.Hello(wire.VERSION, "b", "broker", EPOCH, 64)), START)
    return client


def transfer(number: int, count: int = 1, *, session: int = EPOCH, floor: int = 0, ease_ms: int = 0) -> bytes:
    content = wire.encode_content(wire.Content({"x": 7}, b"", b""))
    events = tuple(
        wire.Event("p", 1, place, "b", 0, 0, None, 10, 0, content) for place in range(number, number + count)
    )
    return wire.encode(wire.Transfer(session, number, floor, ({"some": ()},) * count, events, ease_ns=ease_ms * MS))


def acks(effects: list[Effect]) -> list[wire.Ack]:
    """What is acknowledged; what became of the events is tried in `test_accounts`."""
    message = [wire.decode(effect.frame) for effect in effects if isinstance(effect, Send)]
    return [msgspec.structs.replace(each, outcomes={}) for each in message if isinstance(each, wire.Ack)]


def test_rare_events_are_acknowledged_at_once() -> None:
    client = subscriber()
    for number in range(5):
        (ack,) = acks(client.receive("b", transfer(number), START + number * 25 * MS))
        assert ack == wire.Ack(EPOCH, ((number, number),), 0, 64)


def test_many_events_are_acknowledged_together_with_the_time_held() -> None:
    client = subscriber()
    assert acks(client.receive("b", transfer(0), START))
    assert not acks(client.receive("b", transfer(1), START + 3 * MS))
    assert not acks(client.receive("b", transfer(2, 4), START + 8 * MS))
    assert not acks(client.wake(START + 24 * MS))
    assert acks(client.wake(START + 25 * MS)) == [wire.Ack(EPOCH, ((1, 5),), 17 * MS, 64)]
    assert not acks(client.wake(START + 60 * MS))


def test_a_quarter_of_the_window_does_not_wait() -> None:
    client = subscriber(window=16)
    assert acks(client.receive("b", transfer(0), START))
    assert not acks(client.receive("b", transfer(1, 3), START + 1 * MS))
    assert acks(client.receive("b", transfer(4), START + 2 * MS)) == [wire.Ack(EPOCH, ((1, 4),), 0, 16)]


def test_acknowledgements_are_as_far_apart_as_every_frame_since_the_last_allows() -> None:
    client = subscriber()
    assert acks(client.receive("b", transfer(0, ease_ms=100), START))  # rare events are acknowledged at once still
    assert not acks(client.receive("b", transfer(1, ease_ms=100), START + 30 * MS))
    assert not acks(client.wake(START + 99 * MS))
    assert acks(client.wake(START + 100 * MS)) == [wire.Ack(EPOCH, ((1, 1),), 70 * MS, 64)]
    assert not acks(client.receive("b", transfer(2, ease_ms=100), START + 110 * MS))
    assert acks(client.receive("b", transfer(3), START + 130 * MS)) == [wire.Ack(EPOCH, ((2, 3),), 0, 64)]
    assert not acks(client.receive("b", transfer(4, ease_ms=10**6), START + 140 * MS))
    assert acks(client.wake(START + 1_130 * MS))  # however much is allowed


def test_what_comes_again_is_acknowledged_at_once() -> None:
    client = subscriber()
    assert acks(client.receive("b", transfer(0), START))
    assert not acks(client.receive("b", transfer(1), START + 1 * MS))
    assert acks(client.receive("b", transfer(0), START + 2 * MS)) == [wire.Ack(EPOCH, ((1, 1), (0, 0)), 0, 64)]


def test_a_restarted_broker_gets_no_acknowledgements_of_its_last_epoch() -> None:
    client = subscriber()
    assert acks(client.receive("b", transfer(0), START))
    assert not acks(client.receive("b", transfer(1), START + 1 * MS))
    client.receive("b", wire.encode(wire.Hello(wire.VERSION, "b", "broker", EPOCH + 1, 64)), START + 2 * MS)
    assert not acks(client.wake(START + 30 * MS))
    (ack,) = acks(client.receive("b", transfer(0, session=EPOCH + 1), START + 31 * MS))
    assert (ack.session, ack.numbers) == (EPOCH + 1, ((0, 0),))


def test_a_connection_that_is_lost_takes_what_was_unsaid_with_it() -> None:
    client = subscriber()
    assert acks(client.receive("b", transfer(0), START))
    assert not acks(client.receive("b", transfer(1), START + 1 * MS))
    client.disconnected("b", START + 2 * MS)
    client.connected("b", START + 3 * MS)
    client.receive("b", wire.encode(wire.Hello(wire.VERSION, "b", "broker", EPOCH, 64)), START + 4 * MS)
    assert not acks(client.wake(START + 30 * MS))
    assert acks(client.receive("b", transfer(1), START + 31 * MS)) == [wire.Ack(EPOCH, ((1, 1),), 0, 64)]


def test_who_leaves_leaves_nothing_unsaid() -> None:
    client = subscriber()
    assert acks(client.receive("b", transfer(0), START))
    assert not acks(client.receive("b", transfer(1, 2), START + 1 * MS))
    assert acks(client.leave(START + 3 * MS)) == [wire.Ack(EPOCH, ((1, 2),), 2 * MS, 64)]
    assert not acks(client.leave(START + 4 * MS))


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30)), min_size=1, max_size=30))
def test_everything_is_acknowledged_once_and_in_time(steps: list[tuple[int, int]]) -> None:
    """Whatever comes when: each number is acknowledged once, within the wait."""
    client, now_ns, number = subscriber(), START, 0
    took: dict[int, int] = {}
    answered: list[int] = []

    def note(effects: list[Effect]) -> None:
        for ack in acks(effects):
            for first, last in ack.numbers:
                answered.extend(range(first, last + 1))
                assert all(now_ns - took[each] <= 25 * MS for each in range(first, last + 1))

    for wait_ms, count in steps:
        for _ in range(wait_ms):
            now_ns += 1 * MS
            note(client.wake(now_ns))
        took.update(dict.fromkeys(range(number, number + count), now_ns))
        note(client.receive("b", transfer(number, count), now_ns))
        number += count
    for _ in range(25):
        now_ns += 1 * MS
        note(client.wake(now_ns))
    assert answered == list(range(number))
