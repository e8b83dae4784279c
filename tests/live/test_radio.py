"""The radio link of the benchmark: it gives every recorded moment away once, and the limit bounds what that carries."""

import asyncio
import gzip
import itertools
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from benchmarks.radio import Limits, limits_of, outages_of, recoveries_s, result_of
from benchmarks.radio_limit import rank_bytes, share_limit, value_limit
from benchmarks.radio_link import PACKET_BYTES, Direction, TraceError, radio_link, read_trace
from benchmarks.radio_load import CLASSES, Class, Event, bulk_phases, events_of
from benchmarks.radio_player import Job, Record
from hypothesis import given, settings
from hypothesis import strategies as st


def sent(direction: Direction, until_s: float) -> list[tuple[float, int]]:
    """When how many bytes left."""
    return [(round(at_s, 6), len(data)) for at_s, _, data in direction.leave(until_s)]


def test_each_recorded_moment_carries_a_packet_once() -> None:
    direction = Direction([0.1, 0.1, 0.3, 0.7], length_s=1.0)
    direction.begin(100.0)
    direction.put(1, bytes(3 * PACKET_BYTES + 10), 100.05)
    assert sent(direction, 100.09) == []
    assert direction.next_s() == pytest.approx(100.1)
    assert sent(direction, 100.2) == [(100.1, PACKET_BYTES), (100.1, PACKET_BYTES)]
    assert sent(direction, 100.9) == [(100.3, PACKET_BYTES), (100.7, 10)]
    assert direction.used == 4


def test_a_moment_at_which_nothing_waits_is_lost() -> None:
    direction = Direction([0.1, 0.2, 0.3], length_s=1.0)
    direction.begin(0.0)
    direction.put(1, bytes(10), 0.15)
    direction.put(1, bytes(10), 0.25)
    assert sent(direction, 0.9) == [(0.2, 10), (0.3, 10)]
    direction.put(1, bytes(10), 0.95)
    assert sent(direction, 0.99) == []
    assert sent(direction, 1.0) == [(1.0, 10)]  # the replay is over


def test_small_pieces_share_a_packet_in_the_order_in_which_they_came() -> None:
    direction = Direction([0.5, 0.6], length_s=1.0)
    direction.begin(0.0)
    for number in range(3):
        direction.put(number, bytes([number]) * 600, 0.1)
    left = direction.leave(1.0)
    assert [(at_s, number, len(data)) for at_s, number, data in left] == [
        (0.5, 0, 600),
        (0.5, 1, 600),
        (0.5, 2, PACKET_BYTES - 1_200),
        (0.6, 2, 1_800 - PACKET_BYTES),
    ]


def test_it_is_free_before_the_replay_and_without_a_recording() -> None:
    direction = Direction([0.5], length_s=1.0)
    direction.put(1, bytes(5_000), 3.0)
    assert sent(direction, 3.0) == [(3.0, 5_000)]
    direction = Direction(None, length_s=1.0)
    direction.begin(0.0)
    direction.put(1, bytes(5_000), 0.5)
    assert sent(direction, 0.5) == [(0.5, 5_000)]


@given(
    moments=st.lists(st.integers(0, 50), max_size=40).map(sorted),
    puts=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 4_000)), max_size=12).map(sorted),
    looks=st.lists(st.integers(1, 60), max_size=10).map(sorted),
)
@settings(max_examples=100, deadline=None)
def test_what_leaves_does_not_depend_on_when_one_looks(
    moments: list[int], puts: list[tuple[int, int]], looks: list[int]
) -> None:
    def play(looks: Sequence[int]) -> tuple[list[tuple[float, int]], int]:
        direction = Direction([float(moment) for moment in moments], length_s=51.0)
        direction.begin(0.0)
        left = []
        times = sorted([(at, 0, size) for at, size in puts] + [(look, 1, 0) for look in looks])
        for at, is_look, size in times:
            if is_look:
                left += sent(direction, at)
            else:
                direction.put(1, bytes(size), at)
        left += sent(direction, 100.0)
        total: dict[float, int] = {}
        for at_s, size in left:
            total[at_s] = total.get(at_s, 0) + size
        return sorted(total.items()), direction.used

    by_time, used = play(looks)
    assert (by_time, used) == play([])
    assert sum(size for _, size in by_time) == sum(size for _, size in puts)
    assert all(size <= PACKET_BYTES * moments.count(int(at_s)) for at_s, size in by_time if at_s < 51.0)


def test_bytes_of_two_connections_cross_real_sockets_unchanged() -> None:
    asyncio.run(_cross_real_sockets())


async def _cross_real_sockets() -> None:
    ended = asyncio.Semaphore(0)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()
        await writer.wait_closed()
        ended.release()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    back = Direction([number / 1_000 for number in range(60_000)], length_s=60.0)
    async with radio_link(server.sockets[0].getsockname()[1], Direction(None, length_s=60.0), back) as link:
        link.begin(time.monotonic())

        async def cross(letter: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
            writer.write(letter * 100_000)
            data = await reader.readexactly(100_000)
            writer.close()
            await writer.wait_closed()
            return data

        found = await asyncio.wait_for(asyncio.gather(cross(b"a"), cross(b"b")), 120.0)
        for _ in found:
            await asyncio.wait_for(ended.acquire(), 120.0)
    assert found == [b"a" * 100_000, b"b" * 100_000]
    assert back.carried_bytes == 200_000
    assert back.used >= 200_000 / PACKET_BYTES
    server.close()
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", link.port), 5.0):
        pass


# -- recordings ----------------------------------------------------------------------------------------------------


def test_a_recording_is_read_from_a_second_on(tmp_path: Path) -> None:
    path = tmp_path / "ride.down.gz"
    path.write_bytes(gzip.compress(b"0\n500\n1000\n1000\n1500\n2900\n"))
    assert read_trace(str(path), begin_s=1.0, length_s=1.5) == [0.0, 0.0, 0.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [("5\n3\n", "do not ascend"), ("one\n", "is not a recording"), ("0\n100\n", "ends before second 3")],
)
def test_what_is_not_a_recording_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "ride"
    path.write_text(text, "utf-8")
    with pytest.raises(TraceError, match=message):
        read_trace(str(path), begin_s=0.0, length_s=3.0)


def test_a_recording_that_is_absent_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIDINGS_DATA", str(tmp_path))
    with pytest.raises(TraceError, match=r"no recording .ride.*lte_capacity.*Set TIDINGS_DATA"):
        read_trace("ride", begin_s=0.0, length_s=3.0)


# -- the limit -----------------------------------------------------------------------------------------------------

TINY = (
    Class("small", price=3.0, deadline_s=1.0, payload_bytes=1, share=0.0, per_s=1.0),
    Class("large", price=4.0, deadline_s=3.0, payload_bytes=2, share=0.0, per_s=1.0),
)
BARE = {"delay_s": 0.0, "packet_bytes": 1}


def events(*facts: tuple[float, int]) -> list[Event]:
    return [Event(at_s, number, kind) for number, (at_s, kind) in enumerate(sorted(facts))]


def test_the_limit_of_a_link_drawn_by_hand() -> None:
    # Two moments before 1.0 for a small and a large one (of two bytes): the small one takes one; the large one has
    # the other, and the one at 2.5.
    assert value_limit(events((0.0, 0), (0.0, 1)), [0.2, 0.4, 2.5], TINY, **BARE) == pytest.approx(7.0)
    # Without the last moment half of the large one is carried, and counts as half.
    assert value_limit(events((0.0, 0), (0.0, 1)), [0.2, 0.4], TINY, **BARE) == pytest.approx(5.0)
    # A moment after all deadlines, and one before the event, are of no use.
    assert value_limit(events((1.0, 0)), [0.5, 2.5], TINY, **BARE) == 0.0
    # What comes must have travelled: sent at 0.9, it is there at 1.1.
    assert value_limit(events((0.0, 0)), [0.9], TINY, delay_s=0.2, packet_bytes=1) == 0.0
    assert value_limit(events((0.0, 0)), [0.8], TINY, delay_s=0.2, packet_bytes=1) == 3.0


def test_what_is_due_first_goes_first() -> None:
    served = rank_bytes(events((0.0, 1), (0.5, 0)), [0.0, 0.6, 0.7], TINY, **BARE)
    assert served == {0: 2, 1: 1}  # the first has had one byte, waits for the second, and is finished


def best_by_trying(chosen: Sequence[Event], moments: Sequence[float], classes: Sequence[Class]) -> float:
    """The greatest value over all sets of whole events that fit, by trying all; one byte to a moment."""

    def fits(some: Sequence[Event]) -> bool:
        bytes_of = [classes[event.kind].payload_bytes for event in some]
        served = rank_bytes(some, moments, classes, **BARE)
        return sum(served.values()) == sum(bytes_of)

    sets = itertools.chain.from_iterable(itertools.combinations(chosen, size) for size in range(len(chosen) + 1))
    return max(sum(classes[event.kind].price for event in some) for some in sets if fits(some))


@given(
    facts=st.lists(st.tuples(st.integers(0, 8).map(lambda each: each / 2), st.integers(0, 1)), max_size=7),
    moments=st.lists(st.integers(0, 12).map(lambda each: each / 2), max_size=10).map(sorted),
)
@settings(max_examples=150, deadline=None)
def test_no_set_of_events_that_fits_is_worth_more_than_the_limit(
    facts: list[tuple[float, int]], moments: list[float]
) -> None:
    chosen = events(*facts)
    best = best_by_trying(chosen, moments, TINY)
    bound = value_limit(chosen, moments, TINY, **BARE)
    assert best <= bound + 1e-9
    small = [event for event in chosen if event.kind == 0]
    alike = best_by_trying(small, moments, TINY) / TINY[0].price
    if small:  # events of one byte cannot be carried in part: the bound is what can be reached
        assert value_limit(small, moments, TINY, **BARE) == pytest.approx(best_by_trying(small, moments, TINY))
        assert share_limit(small, moments, TINY, **BARE) == pytest.approx(alike / len(small))


# -- the load and what is counted ----------------------------------------------------------------------------------


def test_the_load_is_the_same_for_everybody_and_follows_the_link() -> None:
    found = events_of(500_000.0, 40.0)
    assert found == events_of(500_000.0, 40.0)
    bulk = [event for event in found if CLASSES[event.kind].is_bulk]
    assert all(any(begin <= event.at_s < end for begin, end in bulk_phases(40.0)) for event in bulk)
    offered = sum(CLASSES[event.kind].payload_bytes for event in bulk) / 20.0
    assert offered == pytest.approx(1.2 * 500_000.0, rel=0.1)


def test_what_came_is_counted_and_an_outage_is_over_when_it_is_over() -> None:
    moments = [number / 100 for number in range(1_000) if not 300 <= number < 500]
    alarms = [Event(number / 10, number, 0) for number in range(100)]
    job = Job("", "ride", 0.0, 10.0)
    came = {each.number: each.at_s + 0.1 for each in alarms if not 2.5 <= each.at_s < 6.0}
    came[30] = alarms[30].due_s + 0.01  # late
    result = result_of(Record(came, 10, 300 * len(came), 0.0, 0.0), job, moments, alarms)
    assert result.on_time[0] == pytest.approx((len(came) - 1) / 100)
    assert result.value == pytest.approx(10.0 * (len(came) - 1))
    assert result.carried == pytest.approx(1.0)
    assert outages_of(moments, 10.0) == [(2.99, 5.0)]
    (recovery_s,) = result.recoveries_s
    assert recovery_s == pytest.approx(0.9, abs=0.051)  # nine of ten alarms of a second are enough
    limits: Limits = limits_of(job, moments, alarms)
    assert limits.on_time[0] == pytest.approx(0.9, abs=0.02)
    assert recoveries_s(Record({}, 0, 0, 0.0, 0.0), 10.0, moments, alarms) == [None]
