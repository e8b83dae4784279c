"""Clocks of hosts from what a log shows and what a mapping declares."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import InputError, TidingsError
from tidings.pipeline.ingest import load_mapping
from tidings.pipeline.ingest._clocks import BUCKETS, HOSTS_MAX, LEAST_DELAYS, LEGS, find_clocks, least_delays
from tidings.pipeline.ingest._mapping import Clock, Clocks

MS = 1_000_000


def seen(*rows: tuple[Any, ...], step_ns: int = 1) -> pa.Table:
    """Rows as (source, target, least delay), or with the time first."""
    full = [row if len(row) == 4 else (0, *row) for row in rows]
    columns = {
        "source": [row[1] for row in full],
        "target": [row[2] for row in full],
        "at_ns": [row[0] for row in full],
        "least_ns": [row[3] for row in full],
        "source_step_ns": [step_ns] * len(full),
        "target_step_ns": [step_ns] * len(full),
    }
    return pa.table(columns, LEAST_DELAYS)


BOTH = seen(("a", "b", 12 * MS), ("b", "a", -6 * MS))
"""b is ahead by 9 ms, and both directions take 3 ms, if they take the same."""


def test_two_hosts() -> None:
    found = find_clocks(Clocks(), BOTH)
    assert found.reference == "a"
    assert found.ahead_ns.tolist() == [0, 9 * MS]
    assert found.error_ns.tolist() == [0, 3 * MS]
    assert found.low_ns.tolist() == [[0, -3 * MS], [-3 * MS, 0]]
    assert found.high_ns.tolist() == [[0, 3 * MS], [3 * MS, 0]]
    assert found.summary()["b"] == {"ahead_s": 0.009, "error_s": 0.003, "drift_ppm": 0.0}


def test_the_reference_is_right() -> None:
    found = find_clocks(Clocks(reference="b"), BOTH)
    assert found.ahead_ns.tolist() == [-9 * MS, 0]
    with pytest.raises(InputError, match=r"reference = 'c': no row is of this host; there are: a, b"):
        find_clocks(Clocks(reference="c"), BOTH)


def test_what_is_declared_narrows_what_is_seen() -> None:
    """Between 6 and 12 ms by the traffic, between 5 and 8 ms by somebody's word."""
    hosts = {"a": Clock(ahead_ns=0), "b": Clock(ahead_ns=6_500_000, error_ns=1_500_000)}
    found = find_clocks(Clocks(hosts=hosts), BOTH)
    assert found.ahead_ns.tolist() == [0, 7 * MS]
    assert found.error_ns.tolist() == [0, MS]
    alone = find_clocks(Clocks(hosts=hosts, estimate=False), BOTH)
    assert alone.ahead_ns.tolist() == [0, 6_500_000]
    with pytest.raises(InputError, match=r"clocks of b cannot be estimated"):
        find_clocks(Clocks(hosts={"a": hosts["a"]}, estimate=False), BOTH)
    assert find_clocks(Clocks(error_ns=MS, estimate=False), BOTH).error_ns.tolist() == [MS, MS]


def test_traffic_decides_about_differences_and_declarations_about_the_rest() -> None:
    """A wide error for all does not move the difference that traffic tells; where traffic tells little, nor does that
    move what is declared."""
    found = find_clocks(Clocks(error_ns=50 * MS), BOTH)
    assert (found.ahead_ns[1] - found.ahead_ns[0], found.reference) == (9 * MS, None)
    assert (found.low_ns[0, 1], found.high_ns[0, 1]) == (-3 * MS, 3 * MS)
    assert (found.error_ns >= 47 * MS).all()
    one_way = find_clocks(Clocks(error_ns=20 * MS), seen(("a", "b", 5 * MS)))
    assert one_way.ahead_ns.tolist() == [0, 0]
    assert (one_way.low_ns[0, 1], one_way.high_ns[0, 1]) == (-5 * MS, 40 * MS)


MACHINES = st.integers(0, 4)


@given(
    ahead=st.lists(st.integers(-30, 30), min_size=5, max_size=5),
    traffic=st.lists(st.tuples(MACHINES, MACHINES, st.integers(0, 20)), max_size=20),
    declared=st.sets(MACHINES),
    error=st.none() | st.just(30),
)
def test_the_truth_is_within_the_ends_whatever_is_known(
    ahead: list[int], traffic: list[tuple[int, int, int]], declared: set[int], error: int | None
) -> None:
    rows = [(str(a), str(b), delay + ahead[b] - ahead[a]) for a, b, delay in traffic if a != b]
    hosts = {str(each): Clock(ahead_ns=ahead[each] // 2 * 2, error_ns=2) for each in declared}
    found, problem = None, ""
    try:
        found = find_clocks(Clocks(hosts=hosts, error_ns=error), seen(*rows))
    except InputError as refused:
        problem = str(refused)
    if found is None:
        assert "cannot be estimated" in problem
        return
    numbers = [int(host) for host in found.hosts]
    true = np.array(ahead)[numbers] if numbers else np.zeros(0, np.int64)
    errors = (found.ahead_ns[None, :] - found.ahead_ns[:, None]) - (true[None, :] - true[:, None])
    assert (found.low_ns <= errors).all()
    assert (errors <= found.high_ns).all()
    assert (found.low_ns <= 0).all()
    assert (found.high_ns >= 0).all()
    if found.reference is None:
        assert (np.abs(found.ahead_ns - true) <= found.error_ns).all()
    places = {host: place for place, host in enumerate(found.hosts)}
    assert all(least - found.ahead_ns[places[b]] + found.ahead_ns[places[a]] >= 0 for a, b, least in rows)


def test_errors_of_a_pair_are_those_of_the_pair() -> None:
    """b and c are far from the reference and near each other: 1 ms, not the sum of two times 50 ms."""
    far = [(x, y, 50 * MS) for x, y in (("a", "b"), ("b", "a"), ("a", "c"), ("c", "a"))]
    found = find_clocks(Clocks(reference="a"), seen(*far, ("b", "c", MS), ("c", "b", MS)))
    assert found.error_ns.tolist() == [0, 50 * MS, 50 * MS]
    assert (found.low_ns[1, 2], found.high_ns[1, 2]) == (-MS, MS)


def test_a_coarse_clock_adds_its_step() -> None:
    """Times in whole milliseconds are up to one of them too early, at either end."""
    found = find_clocks(Clocks(), seen(("a", "b", 12 * MS), ("b", "a", -6 * MS), step_ns=MS))
    step = MS - 1
    assert found.error_ns[1] == 3 * MS + step
    assert (found.low_ns[0, 1], found.high_ns[0, 1]) == (-3 * MS - 2 * step, 3 * MS + 2 * step)


def test_one_direction_is_not_enough() -> None:
    one_way = seen(("a", "b", 5 * MS))
    with pytest.raises(InputError, match=r'cannot be estimated: .* error = "5 ms"'):
        find_clocks(Clocks(), one_way)
    found = find_clocks(Clocks(error_ns=20 * MS), one_way)
    assert (found.error_ns <= 20 * MS).all()
    assert found.high_ns[0, 1] - found.low_ns[0, 1] == 45 * MS  # b ahead of a by 5 ms at most, behind by 40


def test_times_that_no_clocks_explain() -> None:
    with pytest.raises(InputError, match=r"clocks of a, b contradict each other: going there and back"):
        find_clocks(Clocks(), seen(("a", "b", 5 * MS), ("b", "a", -6 * MS)))
    hosts = {"a": Clock(ahead_ns=0), "b": Clock(ahead_ns=50 * MS)}
    with pytest.raises(InputError, match=r"a declared error is too small"):
        find_clocks(Clocks(hosts=hosts), BOTH)


def test_drift() -> None:
    """100 parts in a million over 1,000 s are 100 ms: more than a constant explains, and nothing once it is known."""
    times = np.linspace(0, 1000, 20)
    rows = []
    for number, at_s in enumerate(times.tolist()):
        drifted = round(at_s * 100_000)
        delay = 2 * MS + (number % 3) * MS
        rows += [(round(at_s * 1e9), "a", "b", delay + drifted), (round(at_s * 1e9), "b", "a", delay - drifted)]
    with pytest.raises(InputError, match=r"drift = true"):
        find_clocks(Clocks(), seen(*rows))
    found = find_clocks(Clocks(drift=True), seen(*rows))
    assert found.rate == pytest.approx([0.0, 100e-6], abs=1e-6)
    assert abs(found.ahead_ns[1]) <= found.error_ns[1] < 3 * MS


def test_too_many_hosts() -> None:
    rows = [("a", str(number), 0) for number in range(HOSTS_MAX)]
    with pytest.raises(InputError, match=r"1,001 hosts, but the clocks of at most 1,000"):
        find_clocks(Clocks(), seen(*rows))


def test_clocks_in_a_mapping(tmp_path: Any) -> None:
    text = """
    [time]
    unit = "ms"
    [publications]
    files = "*.csv"
    format = "csv"
    host = ["rack", "machine"]
    columns = { publisher = "p", sequence = "n", departure_ns = "at" }
    [clocks]
    error = "20 ms"
    [clocks.hosts]
    edge = "-35 ms"
    core = { ahead = "1 ms", error = "2 ms" }
    """
    path = tmp_path / "mapping.toml"
    path.write_text(text)
    mapping = load_mapping(path)
    assert mapping.clocks == Clocks(
        error_ns=20 * MS,
        hosts={"edge": Clock(ahead_ns=-35 * MS), "core": Clock(ahead_ns=MS, error_ns=2 * MS)},
    )
    assert mapping.is_whole
    assert mapping.tables["publications"].file_columns() == ["p", "n", "at", "rack", "machine"]
    for old, new, message in (
        ('"-35 ms"', "35", r"clocks.hosts.edge: expected a table"),
        ('"-35 ms"', '"35"', r"clocks.hosts.edge.*no unit"),
        ('error = "2 ms"', 'error = "-2 ms"', r"error: '-2 ms' is negative"),
        ('error = "20 ms"', 'tolerance = "20 ms"', r"unknown key `tolerance`"),
    ):
        path.write_text(text.replace(old, new))
        with pytest.raises(TidingsError, match=message):
            load_mapping(path)


def test_least_delays_of_legs() -> None:
    """The least of each pair, when it was sent, and the finest step of either clock; some legs show nothing."""
    rows = [
        ("a", "b", 3 * MS, 5 * MS),
        ("a", "b", 10 * MS, 11 * MS + 500),
        ("b", "a", 7_000, 9 * MS),
        ("a", "a", 0, 1),
        ("a", None, 0, 1),
        ("a", "b", 0, (1 << 62)),
    ]
    found = least_delays(pa.table([list(column) for column in zip(*rows, strict=True)], schema=LEGS), drift=False)
    assert found.to_pylist() == [
        dict(zip(LEAST_DELAYS.names, row, strict=True))
        for row in [("a", "b", 10 * MS, MS + 500, MS, 1), ("b", "a", 7_000, 9 * MS - 7_000, 1_000, MS)]
    ]
    assert len(least_delays(LEGS.empty_table(), drift=True)) == 0


def test_least_delays_in_parts_of_the_time() -> None:
    rng = np.random.default_rng(2)
    sent = np.sort(rng.integers(0, 3_600 * 10**9, 5_000))
    delay = rng.integers(MS, 50 * MS, 5_000)
    ends = np.where(rng.random((2, 5_000)) < [[0.5]], "a", "b")
    legs = pa.table([pa.array(ends[0]), pa.array(np.where(ends[0] == "a", "b", "a")), sent, sent + delay], schema=LEGS)
    found = least_delays(legs, drift=True).to_pandas()
    by_pair = found.groupby("source")
    assert (by_pair.size() <= BUCKETS).all()
    assert (by_pair.size() >= 30).all()  # of 60 minutes, some of whose least delays share a part
    for source, some in by_pair:
        mine = ends[0] == source
        assert some["least_ns"].min() == delay[mine].min()
        shown = dict(zip(sent[mine].tolist(), delay[mine].tolist(), strict=True))
        assert all(shown[at] == least for at, least in zip(some["at_ns"], some["least_ns"], strict=True))
