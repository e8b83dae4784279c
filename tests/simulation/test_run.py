"""Whole runs: the same seed, the same bytes; nothing lost from the books; traces that say what the result says."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

import tidings.simulation
from tidings.errors import ConfigurationError, InputError
from tidings.model import Network, Scenario
from tidings.model.trace import TABLES, check_schema
from tidings.simulation import Options, Result, _run, _trace, simulate

Make = Callable[..., Network]


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


def figures(result: Result) -> Result:
    return msgspec.structs.replace(result, wall_s=0.0)


def test_public_names_exist() -> None:
    assert all(hasattr(tidings.simulation, name) for name in tidings.simulation.__all__)


def test_same_seed_same_bytes(mesh: Make, tmp_path: Path) -> None:
    first = simulate(mesh(), out=tmp_path / "first")
    second = simulate(mesh(), out=tmp_path / "second")
    assert figures(first) == figures(second)
    assert files(tmp_path / "first") == files(tmp_path / "second")
    assert figures(simulate(mesh(seed=2))) != figures(first)


def test_buffers_change_nothing(mesh: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = mesh(rate=12)
    monkeypatch.setattr(_trace, "ROWS_PER_GROUP", 500)
    monkeypatch.setattr(_trace, "GROUPS_PER_PART", 2)
    usual = simulate(network, out=tmp_path / "usual")
    monkeypatch.setattr(_run, "OUTPUT_ROWS", 16)
    small = simulate(network, Options(chunk_events=7, steps_per_call=50), out=tmp_path / "small")
    assert figures(usual) == figures(small)
    assert files(tmp_path / "usual") == files(tmp_path / "small")
    assert len(list((tmp_path / "usual" / "hops").iterdir())) > 1


def test_a_trace_does_not_move_the_run(mesh: Make, tmp_path: Path) -> None:
    network = mesh()
    assert figures(simulate(network)) == figures(simulate(network, Options(sample=0.3), out=tmp_path / "trace"))


@pytest.mark.parametrize("routing", ["single-path", "multi-path"])
def test_the_trace_says_what_the_result_says(mesh: Make, tmp_path: Path, routing: str) -> None:
    network = mesh(rate=10, routing=routing, duration=30)
    out = tmp_path / "trace"
    result = simulate(network, Options(drain_s=0.5), out=out)
    tables = {name: pq.read_table(out / name) for name in TABLES}
    for name, table in tables.items():
        check_schema(name, table.schema)
        for field in TABLES[name]:
            assert field.nullable or table.column(field.name).null_count == 0
    assert not list(out.rglob("_*"))
    events = {(row["publisher"], row["sequence"]): row for row in tables["publications"].to_pylist()}
    terms = {row["subscription"]: row for row in tables["subscriptions"].to_pylist()}
    assert tables["publications"].num_rows > result.published  # those of the warm-up too
    on_time, late = Counter[str](), Counter[str]()
    for row in tables["deliveries"].to_pylist():
        event, term = events[row["publisher"], row["sequence"]], terms[row["subscription"]]
        if event["departure_ns"] >= 2_000_000_000:
            delay_ns = row["arrived_ns"] - event["departure_ns"]
            limits = [limit for limit in (event["lifetime_ns"], term["max_delay_ns"]) if limit is not None]
            (on_time if delay_ns < min(limits) else late)[row["subscription"]] += 1
    filters = {subscription.id: subscription.filter for subscription in network.subscriptions}
    for name, row in result.subscribers.items():
        assert (on_time[name], late[name]) == (row.on_time, row.late)
        counted = [event for event in events.values() if event["departure_ns"] >= 2_000_000_000]
        assert row.matched == sum(filters[name].matches(event["attributes"]) for event in counted)
        assert row.on_time_reliability == on_time[name] / row.matched


def test_hops_tell_the_life_of_every_copy(mesh: Make, tmp_path: Path) -> None:
    network = mesh(rate=12)
    result = simulate(network, Options(drain_s=0.2), out=tmp_path / "trace")
    rows = pq.read_table(tmp_path / "trace" / "hops").to_pylist()
    outcomes = Counter(row["outcome"] for row in rows)
    assert set(outcomes) <= {"received", "lost", "expired", "hopeless", "in-flight"}
    assert {"received", "lost", "hopeless", "in-flight"} <= set(outcomes)
    for row in rows:
        times = [row[f"{name}_ns"] for name in ("enqueued", "sent", "received", "began", "ended")]
        known = [time for time in times if time is not None]
        assert known == sorted(known)
        assert times[: len(known)] == known
        assert (row["outcome"] == "received") == (len(known) == 5)
        if row["outcome"] in ("expired", "hopeless"):
            assert len(known) == 1
    counted = sum(row["received_ns"] is not None and row["enqueued_ns"] >= 2_000_000_000 for row in rows)
    assert abs(counted - result.traffic) < 0.05 * result.traffic  # they differ by events of the warm-up on their way
    links = {(link.source, link.target) for link in network.topology.links}
    assert all(row["source"] is None or (row["source"], row["target"]) in links for row in rows)


def test_a_sample_holds_whole_events(mesh: Make, tmp_path: Path) -> None:
    network = mesh(duration=100)
    simulate(network, out=tmp_path / "all")
    simulate(network, Options(sample=0.25), out=tmp_path / "some")
    keys = {
        name: {
            table: Counter(zip(*(rows.column(c).to_pylist() for c in ("publisher", "sequence")), strict=True))
            for table in ("publications", "hops", "deliveries")
            if (rows := pq.read_table(tmp_path / name / table)) is not None
        }
        for name in ("all", "some")
    }
    chosen = set(keys["some"]["publications"])
    share = len(chosen) / len(keys["all"]["publications"])
    assert share == pytest.approx(0.25, abs=4 * np.sqrt(0.25 * 0.75 / 800))  # 4 standard errors
    for table in ("hops", "deliveries"):
        assert keys["some"][table] == {key: n for key, n in keys["all"][table].items() if key in chosen}
    metadata = pq.read_schema(tmp_path / "some" / "hops" / "part-00000.parquet").metadata
    assert metadata[b"tidings.sample"] == b"0.25"
    assert metadata[b"tidings.warmup_ns"] == b"2000000000"  # that of the mesh, two seconds


def test_interruption_leaves_complete_files(mesh: Make, tmp_path: Path) -> None:
    def interrupt(share: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(mesh(duration=60), Options(chunk_events=50), out=tmp_path / "trace", progress=interrupt)
    for name in TABLES:
        assert [path.name for path in (tmp_path / "trace" / name).iterdir()] == ["part-00000.parquet"]
    departures = pq.read_table(tmp_path / "trace" / "publications").column("departure_ns").to_pylist()
    assert 30e9 < max(departures) < 60e9


def test_overload_ends_with_an_error_that_names_the_queue(mesh: Make, tmp_path: Path) -> None:
    network = mesh(rate=200, duration=1000, expired="forward", scheduling='"fifo"', brokers=2, broker="")
    with pytest.raises(ConfigurationError, match=r"overload: after .* more than 2,000 copies in flight.*link 'b"):
        simulate(network, Options(copies_max=2000), out=tmp_path / "trace")
    assert pq.read_table(tmp_path / "trace" / "hops").num_rows > 0


def test_overload_with_deadlines_is_a_result(mesh: Make) -> None:
    result = simulate(mesh(rate=300, duration=20, broker=""))
    assert result.delivery_rate is not None
    assert 0 < result.delivery_rate < 0.5
    assert result.in_flight == 0


BARE = """
duration = "10 s"
topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }
policies = { scheduling = "fifo" }
"""
PUBLISHER = '[[publishers]]\nname = "p"\nat = "a"\nrate = "10 /s"\nattributes = { x = 1 }\n'
SUBSCRIBER = '[[subscribers]]\nname = "s"\nat = "b"\nfilter = "x = {number}"\n'


def test_nothing_to_do() -> None:
    nobody = simulate(Scenario.parse(BARE).expand())
    assert (nobody.published, nobody.matched, nobody.traffic, nobody.delivery_rate) == (0, 0, 0, None)
    assert simulate(Scenario.parse(BARE + SUBSCRIBER).expand()).subscribers["s"].on_time_reliability is None


def test_nobody_listens(tmp_path: Path) -> None:
    """Events that nobody wants still load their home broker, and only that."""
    result = simulate(Scenario.parse(BARE + PUBLISHER).expand(), out=tmp_path / "trace")
    assert result.published == result.traffic > 50
    assert result.matched == 0
    assert pq.read_table(tmp_path / "trace" / "deliveries").num_rows == 0


def test_nobody_is_interested() -> None:
    result = simulate(Scenario.parse(BARE + PUBLISHER.replace("x = 1", "x = 2") + SUBSCRIBER).expand())
    assert result.subscribers["s"].matched == 0
    assert result.subscribers["s"].on_time_reliability is None


def test_events_without_attributes(tmp_path: Path) -> None:
    """Parquet has no empty structs, so their column is not there; filters see NULL everywhere."""
    bare = PUBLISHER.replace("attributes = { x = 1 }\n", "")
    everything = SUBSCRIBER.replace("x = {number}", "x IS NULL")
    result = simulate(Scenario.parse(BARE + bare + everything).expand(), out=tmp_path / "trace")
    assert result.matched == result.published > 50
    schema = pq.read_schema(next((tmp_path / "trace" / "publications").iterdir()))
    assert "attributes" not in schema.names
    check_schema("publications", schema)


def test_values_of_several_types_in_one_attribute(tmp_path: Path) -> None:
    mixed = PUBLISHER.replace("x = 1", 'x = { values = [1, "one", true] }, y = { law = "uniform", low = 0, high = 1 }')
    other = PUBLISHER.replace('"p"', '"q"').replace("x = 1", "y = 5")
    result = simulate(Scenario.parse(BARE + mixed + other + SUBSCRIBER).expand(), out=tmp_path / "trace")
    rows = pq.read_table(tmp_path / "trace" / "publications").to_pylist()
    assert {row["attributes"]["x"] for row in rows} == {"1", "one", "True", None}
    assert result.matched == sum(row["attributes"]["x"] == "1" for row in rows) > 0


def test_a_second_trace_in_the_same_place_is_refused(mesh: Make, tmp_path: Path) -> None:
    simulate(mesh(duration=5), out=tmp_path)
    with pytest.raises(InputError, match="already holds a trace"):
        simulate(mesh(duration=5), out=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        simulate(mesh(duration=5), out=tmp_path / "file")


def test_impossible_options() -> None:
    for wrong in ({"sample": 0.0}, {"drain_s": -1.0}, {"copies_max": 0}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            Options(**wrong)
    network = Scenario.parse(BARE + PUBLISHER).expand()
    with pytest.raises(ConfigurationError, match="access_slowness has 0 distributions for 1 publishers"):
        simulate(network, Options(access_slowness=[]))
    with pytest.raises(ConfigurationError, match="0 trees are given for 1 publishers"):
        simulate(network, Options(trees=[]))
    fast = Scenario.parse(BARE + PUBLISHER.replace("10 /s", "1000000000 /s")).expand()
    with pytest.raises(ConfigurationError, match="'p' publishes 1e\\+09 events a second"):
        simulate(fast)


def test_spread_routes_reach_every_subscriber_once_over_several_trees(tmp_path: Path) -> None:
    """A mesh in which one tree cannot carry it all: with time enough everybody gets every event, once."""
    text = """
    duration = "300 s"
    topology = { kind = "layered-mesh", layers = [1, 3, 4], fan_in = ["all", 2], direction = "downstream" }
    links = { slowness = "100 ms/kB" }
    policies = { routing = "spread", expired = "forward" }
    [[publishers]]
    name = "p"
    at = "layer:1"
    per_broker = 1
    rate = "6 /min"
    size = "50 kB"
    [[subscribers]]
    name = "s"
    at = "layer:3"
    per_broker = 2
    filter = "TRUE"
    """
    network = Scenario.parse(text).expand()
    result = simulate(network, Options(drain_s=100_000.0), out=tmp_path)
    assert result.published > 10
    assert {row.matched for row in result.subscribers.values()} == {result.published}
    assert {row.on_time for row in result.subscribers.values()} == {result.published}
    hops = pq.read_table(tmp_path / "hops").to_pylist()
    entered = Counter((row["sequence"], row["target"]) for row in hops if row["source"])
    assert set(entered.values()) == {1}
    paths = {(row["source"], row["target"]) for row in hops if row["target"].startswith("l3")}
    assert len(paths) > 4  # some broker gets events over both of its links
    assert result == msgspec.structs.replace(simulate(network, Options(drain_s=100_000.0)), wall_s=result.wall_s)


@pytest.mark.parametrize("attributes", ["", 'attributes = { a = { values = ["one", 2, true] } }'])
def test_balanced_routes_are_for_any_content(attributes: str) -> None:
    """No attributes make no column to match, and values of several types do not fit one."""
    network = Scenario.parse(
        f"""
        duration = "60 s"
        topology = {{ kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]] }}
        links = {{ slowness = "1 ms/kB" }}
        policies = {{ routing = "balanced" }}
        [[publishers]]
        name = "p"
        at = "a"
        rate = "1 /s"
        {attributes}
        [[subscribers]]
        name = "s"
        at = "b"
        filter = "TRUE"
        """
    ).expand()
    result = simulate(network)
    assert result.on_time == result.published > 0


def test_spread_routes_need_attributes() -> None:
    network = Scenario.load("examples/quickstart.toml").expand()
    network = msgspec.structs.replace(network, policies=msgspec.structs.replace(network.policies, routing="spread"))
    with pytest.raises(ConfigurationError, match="spread routes need their attributes: leave out"):
        simulate(network, Options(kinds=[]))
