"""What brokers keep of their last events: bounded, nested samples, merged into a trace that the pipeline can read."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidings.cli._place import _rows_of
from tidings.live.operations._profiles import BrokerWindow
from tidings.live.traces import merged, write_merged
from tidings.live.traces._recorder import RecordedSubscription
from tidings.live.traces._window import HOP, PAGE_BYTES, PUBLICATION, Window, rows_of
from tidings.pipeline import PipelineResult, run_in_process
from tidings.protocol import EventId, Sampler

SECOND = 10**9
LINKS = {"a": ("b",), "b": ("a",)}


def window(*, size_bytes: int = 4_000_000, span_s: int = 300, now_ns: int = 0) -> Window:
    return Window(span_ns=span_s * SECOND, size_bytes=size_bytes, now_ns=now_ns)


def publish(to: Window, event: EventId, at_ns: int) -> None:
    to.publish(event, at_ns, at_ns + 1_000, 100, None, {"n": event[2]})


def whole(of: Window, now_ns: int) -> list[Any]:
    """All pieces, page by page."""
    found: list[Any] = []
    while True:
        part = of.pieces_after(found[-1].number if found else -1, now_ns)
        assert sum(len(piece.rows) for piece in part.pieces) <= PAGE_BYTES or len(part.pieces) == 1
        found += part.pieces
        if not part.has_more:
            return found


def test_rows_come_back_as_they_were() -> None:
    kept = window()
    publish(kept, ("p", 3, 7), 5_000)
    kept.hop(("p", 3, 7), "b", 6_000, 6_500, 9_000, "received", 10_000)
    kept.hop(("p", 3, 7), "c", 6_000, None, None, "expired", 10_000)
    (piece,) = whole(kept, 20_000)
    assert piece.share == 1.0
    names, rows = piece.names, rows_of(piece)
    assert rows[0] == [PUBLICATION, names.index("p/3"), 7, 5_000, 1_000, 100, None, {"n": 7}]
    assert rows[1] == [HOP, names.index("p/3"), 7, names.index("b"), 6_000, 500, 3_000, 0]
    assert rows[2] == [HOP, names.index("p/3"), 7, names.index("c"), 6_000, None, None, 2]


def test_what_is_too_old_is_forgotten() -> None:
    kept = window(span_s=30)
    for second in range(120):
        publish(kept, ("p", 1, second), second * SECOND)
        kept.tick(second * SECOND)
    departures = [row[3] for piece in whole(kept, 120 * SECOND) for row in rows_of(piece)]
    assert departures == [second * SECOND for second in range(departures[0] // SECOND, 120)]
    assert 29 * SECOND <= 120 * SECOND - kept.since_ns <= 32 * SECOND


@pytest.mark.parametrize("per_s", [20, 2_000])
def test_bytes_are_bounded_and_the_share_follows_the_load(per_s: int) -> None:
    kept, told = window(size_bytes=500_000, span_s=60), list[float]()
    kept.on_share = told.append
    sequence = 0
    for tick in range(4 * 30):
        for _ in range(per_s // 4):
            sequence += 1
            event = ("p", 1, sequence)
            if kept.has(event):
                publish(kept, event, tick * SECOND // 4)
        kept.tick(tick * SECOND // 4)
        assert kept.held_bytes <= 500_000 + 2_000
    assert (kept.share == 1.0) is (per_s == 20)
    assert kept.held_bytes > 10_000
    if told:
        assert told[-1] == kept.share
        busy = kept.share
        for tick in range(30, 600):  # quiet again
            kept.tick(tick * SECOND)
        assert kept.share == 1.0 > busy


def test_a_piece_states_the_smallest_share_since_the_one_before_began() -> None:
    kept = window(size_bytes=500_000, span_s=30)
    sequence = 0
    while kept.share == 1.0:
        sequence += 1
        publish(kept, ("p", 1, sequence), sequence)
    assert kept.share == 2.0**-5  # 250 kB in no time would have been 33 times too much
    for second in range(1, 9):
        kept.tick(second * SECOND)
    assert [piece.share for piece in whole(kept, 8 * SECOND)] == [1.0, *(2.0**-n for n in (5, 5, 4, 3, 2, 1, 0, 0))]


def network(*, share_b: float = 1.0, events: int = 2_000, now_ns: int = 100 * SECOND) -> list[BrokerWindow]:
    """A publisher at `a`, a subscriber at `b`; the clock of b is an hour ahead, and it records a share."""
    ahead_ns, gap_ns = 3_600 * SECOND, 40_000_000
    a, b = window(), window(now_ns=ahead_ns)
    is_there = Sampler(share_b)
    for number in range(events):
        event, at_ns = ("p", 1, number), number * gap_ns
        a.tick(at_ns)
        b.tick(at_ns + ahead_ns)
        publish(a, event, at_ns)
        a.hop(event, "b", at_ns + 1_000, at_ns + 2_000, at_ns + 5_000_000, "received", at_ns)
        if is_there(event) and number % 10:  # one in ten never arrives
            b.deliver(event, "c", ["s", "gone"], at_ns, 6_000_000, at_ns + ahead_ns)
    pieces_b = tuple(msgspec.structs.replace(piece, share=share_b) for piece in whole(b, now_ns + ahead_ns))
    wanted = RecordedSubscription("c", "s", "n >= 0", 10_000_000, 1.0, 0)
    return [
        BrokerWindow(name="a", since_ns=0, now_ns=now_ns, pieces=tuple(whole(a, now_ns)), subscriptions=()),
        BrokerWindow(name="b", since_ns=ahead_ns, now_ns=now_ns + ahead_ns, pieces=pieces_b, subscriptions=(wanted,)),
    ]


def scores(windows: list[BrokerWindow], directory: Path, **more: Any) -> tuple[PipelineResult, float, int]:
    rows = merged(windows, LINKS, **more)
    write_merged(rows, directory / "window")
    return run_in_process([directory / "window"], directory), rows.share, rows.events


def test_merged_windows_are_a_trace_that_the_pipeline_reads(tmp_path: Path) -> None:
    result, share, events = scores(network(), tmp_path)
    assert (result.bad, share, events) == (0, 1.0, 2_000)
    score = result.subscribers["c/s"]
    assert (score.matched, score.on_time, score.late, score.lost) == (2_000, 1_800, 0, 200)
    assert list(result.subscribers) == ["c/s"]


def test_events_that_one_broker_did_not_record_are_left_out_everywhere(tmp_path: Path) -> None:
    result, share, events = scores(network(share_b=0.25), tmp_path)
    assert (result.bad, share) == (0, 0.25)
    assert events == sum(map(Sampler(0.25), [("p", 1, number) for number in range(2_000)]))
    score = result.subscribers["c/s"]
    assert score.matched == events
    assert score.on_time == sum(
        number % 10 > 0 and Sampler(0.25)(("p", 1, number)) for number in range(2_000)
    )  # none is lost because b did not record it


def test_what_may_be_under_way_does_not_count(tmp_path: Path) -> None:
    asked = network(events=2_000, now_ns=80 * SECOND)  # the last event has just left
    result, _, events = scores(asked, tmp_path)
    assert 2_000 - 2 * 25 - 1 <= events < 2_000
    assert result.subscribers["c/s"].matched == events


def test_the_last_part_alone(tmp_path: Path) -> None:
    result, _, events = scores(network(now_ns=82 * SECOND), tmp_path, last_ns=22 * SECOND)
    assert 470 <= events <= 501
    assert result.subscribers["c/s"].matched == events


def test_the_trace_begins_where_it_has_most_events() -> None:
    windows = network(now_ns=90 * SECOND)
    first, *rest = windows[0].pieces
    thin = [msgspec.structs.replace(first, share=2.0**-10), *rest]  # a burst, a minute and a half ago
    rows = merged([msgspec.structs.replace(windows[0], pieces=tuple(thin)), windows[1]], LINKS)
    assert rows.share == 1.0
    assert 1_700 <= rows.events <= 1_760


def test_nothing_at_all() -> None:
    empty = BrokerWindow(name="a", since_ns=0, now_ns=SECOND, pieces=(), subscriptions=())
    rows = merged([empty], {"a": ()})
    assert rows.events == 0
    assert len(rows.tables["topology"]) == 1


def test_place_reads_the_rows_in_a_directory_of_profiles(tmp_path: Path) -> None:
    scores(network(), tmp_path)
    assert _rows_of(str(tmp_path)) == str(tmp_path / "window")
    assert _rows_of(str(tmp_path / "window")) == str(tmp_path / "window")
