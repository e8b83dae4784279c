"""The whole batch run: against the simulator's own counts, run after run, and on traces that are not clean."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.errors import InputError
from tidings.model.scenario import Scenario
from tidings.model.tables import table_place
from tidings.simulation import Options, Result, simulate

pytestmark = pytest.mark.spark
pipeline = pytest.importorskip("tidings.pipeline")
pytest.importorskip("pyspark.sql")

SCENARIO = """
seed = 3
duration = "{duration}"
warmup = "1 s"
[topology]
kind = "explicit"
brokers = ["a", "b", "c", "d"]
links = [["a", "b"], ["b", "c"], ["a", "d"], ["d", "c"]]
[links]
bandwidth = "60 kbit/s"
loss = 0.03
[[publishers]]
name = "p"
at = ["a", "b"]
count = 2
rate = "40 /s"
size = {{ law = "uniform", low = "100 B", high = "300 B" }}
lifetime = "2 s"
attributes = {{ x = {{ range = [1, 6] }}, topic = {{ values = ["red", "blue"] }} }}
[[subscribers]]
name = "s"
at = "all"
per_broker = 2
filter = "x <= {{number}}"
max_delay = [ {{ delay = "40 ms", price = 3 }}, {{ delay = "150 ms", price = 0.1 }} ]
[[subscribers]]
name = "nobody"
at = "c"
filter = "x > 9"
[policies]
scheduling = "{scheduling}"
routing = "{routing}"
expired = "{expired}"
"""


def simulated(out: Path, *, sample: float = 1.0, **changes: str) -> Result:
    words = {"duration": "6 s", "scheduling": "eb", "routing": "single-path", "expired": "drop", **changes}
    text = SCENARIO.format(**words)
    if words["routing"] != "single-path":  # several paths at once need all publishers at one broker
        text = text.replace('at = ["a", "b"]', 'at = "a"')
    network = Scenario.parse(text).expand()
    return simulate(network, Options(sample=sample), out=out)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    out = tmp_path_factory.mktemp("traces") / "trace"
    return out, simulated(out)


def command(trace: Path, out: Path, *options: str) -> Any:
    return CliRunner().invoke(app, ["pipeline", "run", str(trace), "--out", str(out), *options])


@pytest.fixture(scope="module")
def said(trace: tuple[Path, Result], spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Where the command was told to write, and what it said; it finds the session that the tests have."""
    assert spark is not None
    out = tmp_path_factory.mktemp("runs") / "out"
    return out, command(trace[0], out, "--json")


@pytest.fixture(scope="module")
def scored(said: tuple[Path, Any]) -> tuple[Path, Any]:
    out, done = said
    assert done.exit_code == 0, done.stderr
    return out, msgspec.json.decode(done.stdout, type=pipeline.PipelineResult)


def counts(scores: dict[str, Any]) -> dict[str, tuple[int, int, int, float | None]]:
    return {
        name: (score.matched, score.on_time, score.late, score.on_time_reliability) for name, score in scores.items()
    }


def comparable(result: Any) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(result)
    return {name: document[name] for name in document if name not in ("files", "new_files", "recomputed", "tables")}


def table(out: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ds.dataset(table_place(out, name), format="parquet").to_table().to_pylist()
    return rows


def test_scores_are_the_simulators_own(trace: tuple[Path, Result], scored: tuple[Path, Any]) -> None:
    """With loss, drops of what is expired, a warm-up and a subscription that nothing matches."""
    truth, result = trace[1], scored[1]
    assert counts(result.subscribers) == counts(truth.subscribers)
    assert result.subscribers["nobody"].matched == 0
    assert (result.matched, result.on_time, result.late) == (truth.matched, truth.on_time, truth.late)
    assert result.lost == truth.lost + truth.in_flight
    assert result.earnings == pytest.approx(truth.earnings)
    assert 0 < result.on_time < result.matched
    assert result.late > 0
    assert result.quarantined == {}


def test_the_command_tells_its_stages_and_where_its_tables_are(
    said: tuple[Path, Any], scored: tuple[Path, Any]
) -> None:
    assert said[1].stderr.startswith("looking for files\n")
    assert "starting Spark" in said[1].stderr
    assert {name: str(table_place(said[0], name)) for name in scored[1].tables} == scored[1].tables
    assert all(Path(place).is_dir() for place in scored[1].tables.values())


def test_traffic_is_the_simulators_own(trace: tuple[Path, Result], scored: tuple[Path, Any]) -> None:
    rows = table(scored[0], "traffic")
    assert sum(row["received"] for row in rows) == trace[1].traffic
    assert sum(row["lost"] for row in rows) > 0


def test_tables_agree_with_a_plain_recount(trace: tuple[Path, Result], scored: tuple[Path, Any]) -> None:
    """Delays, topics, windows and violations of order, counted again with plain Python from the trace's rows."""
    rows = {name: ds.dataset(trace[0] / name, format="parquet").to_table().to_pylist() for name in pipeline_tables()}
    events = {(row["publisher"], row["sequence"]): row for row in rows["publications"] if row["departure_ns"] >= 10**9}
    delivered = [row for row in rows["deliveries"] if (row["publisher"], row["sequence"]) in events]
    topics: dict[str, int] = {}
    windows: dict[int, int] = {}
    delays = []
    by_pair: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row in delivered:
        event = events[row["publisher"], row["sequence"]]
        topics[event["attributes"]["topic"]] = topics.get(event["attributes"]["topic"], 0) + 1
        window = event["departure_ns"] // 60_000_000_000 * 60_000_000_000
        windows[window] = windows.get(window, 0) + 1
        delays.append(row["arrived_ns"] - event["departure_ns"])
        by_pair.setdefault((row["publisher"], row["subscription"]), []).append((row["sequence"], row["delivered_ns"]))
    violations = 0
    for pairs in by_pair.values():
        earliest = float("inf")
        for _, at_ns in sorted(pairs, reverse=True):
            violations += at_ns > earliest
            earliest = min(earliest, at_ns)
    out = scored[0]
    found = {row["topic"]: row["on_time"] + row["late"] for row in table(out, "topic_scores")}
    assert found == topics
    assert {row["window_ns"]: row["on_time"] + row["late"] for row in table(out, "window_scores")} == windows
    publishers = table(out, "publisher_scores")
    assert sum(row["fifo_violations"] for row in publishers) == violations > 0
    assert min(row["delay_min_ns"] for row in publishers) == min(delays)
    assert max(row["delay_max_ns"] for row in publishers) == max(delays)
    assert sum(row["delay_mean_ns"] * (row["on_time"] + row["late"]) for row in publishers) == pytest.approx(
        sum(delays)
    )


def pipeline_tables() -> tuple[str, ...]:
    return ("publications", "deliveries")


@pytest.mark.full
@pytest.mark.parametrize(
    ("changes", "sample"),
    [
        ({"routing": "literal-table", "expired": "forward", "scheduling": "fifo"}, 1.0),
        ({"routing": "multi-path"}, 1.0),
        ({}, 0.3),
    ],
    ids=["literal-table", "multi-path", "sampled"],
)
def test_scores_under_other_policies(spark: Any, tmp_path: Path, changes: dict[str, str], sample: float) -> None:
    truth = simulated(tmp_path / "trace", sample=sample, **changes)
    result = pipeline.run_pipeline(spark, [tmp_path / "trace"], tmp_path / "out")
    if sample == 1.0:
        assert counts(result.subscribers) == counts(truth.subscribers)
    else:
        # The same run, whole: what became of the sampled events is the same there.
        simulated(tmp_path / "whole", **changes)
        assert comparable(result) == comparable(restricted(spark, tmp_path))
    assert result.quarantined == {}


def restricted(spark: Any, tmp_path: Path) -> Any:
    """The result of the whole trace, cut down to the events that the sample has."""
    sampled = ds.dataset(tmp_path / "trace" / "publications", format="parquet").to_table()
    kept = set(zip(sampled["publisher"].to_pylist(), sampled["sequence"].to_pylist(), strict=True))
    for name in ("publications", "hops", "deliveries"):
        rewrite(tmp_path / "whole" / name, lambda row: (row["publisher"], row["sequence"]) in kept)
    return pipeline.run_pipeline(spark, [tmp_path / "whole"], tmp_path / "out-whole")


def rewrite(folder: Path, keep: Callable[[dict[str, Any]], bool]) -> None:
    for path in sorted(folder.glob("*.parquet")):
        rows = pq.read_table(path)
        pq.write_table(rows.filter(pa.array([keep(row) for row in rows.to_pylist()], pa.bool_())), path)


def test_a_run_with_nothing_new_computes_nothing(trace: tuple[Path, Result], scored: tuple[Path, Any]) -> None:
    out, before = scored

    def no_session() -> Any:
        raise AssertionError("there is nothing to compute")

    again = pipeline.run_pipeline(no_session, [trace[0]], out)
    assert comparable(again) == comparable(before)
    assert again.new_files == 0
    shown = command(trace[0], out)
    assert shown.exit_code == 0
    assert "the least reliable first" in shown.stdout
    assert "independent events these are worth, as events are late together" in shown.stdout
    assert "0 of them new" in shown.stdout
    assert "starting Spark" not in shown.stderr


ANY_SHARE = pipeline.PipelineOptions(max_bad=1.0)  # rows come before those that they refer to, and come again


def split_rows(source: Path, name: str, parts: int, generator: random.Random) -> list[pa.Table]:
    """A table's rows dealt to so many parts at random, some of them to two."""
    rows = ds.dataset(source / name, format="parquet").to_table()
    owners = [generator.randrange(parts) for _ in range(len(rows))]
    again = [generator.random() < 0.02 for _ in range(len(rows))]
    tables = []
    for part in range(parts):
        mask = [o == part or (a and (o + 1) % parts == part) for o, a in zip(owners, again, strict=True)]
        chosen = rows.filter(pa.array(mask, pa.bool_()))
        order = list(range(len(chosen)))
        generator.shuffle(order)
        tables.append(chosen.take(pa.array(order, pa.int64())))
    return tables


def runs_of_parts(spark: Any, source: Path, place: Path, *, parts: int, seed: int) -> Iterator[Any]:
    """The results of run after run, with the files of one part more each time."""
    generator = random.Random(seed)
    shutil.copytree(source, place / "trace")
    pieces = {}
    for name in ("publications", "hops", "deliveries"):
        pieces[name] = split_rows(source, name, parts, generator)
        shutil.rmtree(place / "trace" / name)
    for part in range(parts):
        for name, tables in pieces.items():
            folder = place / "trace" / name
            folder.mkdir(exist_ok=True)
            pq.write_table(tables[part], folder / f"part-{generator.randrange(10**9):09}.parquet")
        yield pipeline.run_pipeline(spark, [place / "trace"], place / "out", ANY_SHARE)


def without_duplicates(result: Any) -> dict[str, Any]:
    """What does not count how often rows were repeated."""
    document = comparable(result)
    document["subscribers"] = {
        name: {key: value for key, value in score.items() if key != "duplicates"}
        for name, score in document["subscribers"].items()
    }
    return {name: document[name] for name in document if name not in ("rows", "bad", "unread_files", "quarantined")}


def check_increments(spark: Any, trace: Path, scored: Any, place: Path, *, parts: int, seed: int) -> None:
    result = None
    for result in runs_of_parts(spark, trace, place, parts=parts, seed=seed):
        assert result.recomputed is None
    assert result is not None
    assert without_duplicates(result) == without_duplicates(scored)
    assert set(result.quarantined) <= {"duplicate"}
    assert result.bad == sum(result.rows.values()) - sum(scored.rows.values())
    afresh = pipeline.run_pipeline(spark, [place / "trace"], place / "afresh", ANY_SHARE)
    assert comparable(afresh) == comparable(result)
    for name in ("subscriber_scores", "traffic", "arrivals", "publishers"):
        assert plain(table(place / "out", name)) == plain(table(place / "afresh", name)), name


def plain(rows: list[dict[str, Any]]) -> list[str]:
    """Rows in an order of their own; sketches throw coins."""
    shown = [
        {key: value for key, value in row.items() if "sketch" not in key and "quantiles" not in key and "_p" not in key}
        for row in rows
    ]
    return sorted(json.dumps(row, sort_keys=True, default=repr) for row in shown)


@pytest.mark.full
def test_run_after_run_gives_the_answer_of_one_run(
    trace: tuple[Path, Result], scored: tuple[Path, Any], spark: Any, tmp_path: Path
) -> None:
    check_increments(spark, trace[0], scored[1], tmp_path, parts=2, seed=1)


@pytest.mark.full
@pytest.mark.parametrize(("parts", "seed"), [(1, 2), (3, 3), (5, 4)])
def test_any_split_gives_the_same_answer(
    trace: tuple[Path, Result], scored: tuple[Path, Any], spark: Any, tmp_path: Path, parts: int, seed: int
) -> None:
    check_increments(spark, trace[0], scored[1], tmp_path, parts=parts, seed=seed)


def test_a_dirty_trace_is_counted_and_set_aside(
    trace: tuple[Path, Result], scored: tuple[Path, Any], spark: Any, tmp_path: Path
) -> None:
    """Bad rows are counted by reason and change nothing else. More than 1 % of them are an error, unless allowed."""
    place = tmp_path / "trace"
    shutil.copytree(trace[0], place)
    folder = place / "deliveries"
    good = ds.dataset(folder, format="parquet").to_table().slice(0, 1)
    row = good.to_pylist()[0]
    departed = 10**15
    bad = [
        {**row, "sequence": 10**7},
        {**row, "subscription": "nobody"},
        {**row, "subscription": "stranger"},
        {**row, "broker": "elsewhere"},
        {**row, "publisher": None},
        {**row, "arrived_ns": -departed, "delivered_ns": 0},
        {**row, "arrived_ns": row["arrived_ns"] + 1, "delivered_ns": row["arrived_ns"] + 1},
    ]
    loose = pa.schema([field.with_nullable(True) for field in good.schema])
    loose = loose.append(pa.field("nobody asked", pa.timestamp("ns")))
    pq.write_table(pa.Table.from_pylist(bad, loose), folder / "bad.parquet")
    hops = ds.dataset(place / "hops", format="parquet").to_table().slice(0, 2).to_pylist()
    odd = [{**hops[0], "sequence": 10**7}, hops[1]]
    pq.write_table(
        pa.Table.from_pylist(odd, pq.read_schema(place / "hops" / "part-00000.parquet")), place / "hops" / "x.parquet"
    )
    (folder / "torn.parquet").write_bytes(b"PAR1 torn")
    unreadable = ds.dataset(trace[0] / "deliveries", format="parquet").to_table()
    arrived = unreadable.schema.get_field_index("arrived_ns")
    times = pa.nulls(len(unreadable), pa.time64("ns"))
    pq.write_table(unreadable.set_column(arrived, "arrived_ns", times), folder / "unreadable.parquet")
    failed = command(place, tmp_path / "out", "--json")
    assert failed.exit_code == 1
    error = json.loads(failed.stdout)["error"]
    assert error["kind"] == "TooManyBadRows"
    assert f"{10 + len(unreadable):,} of " in error["message"]
    assert f"more than 1 %: unreadable-file ({1 + len(unreadable):,})" in error["message"]
    assert str(table_place(tmp_path / "out", "quarantine")) in error["message"]
    # The tables are there even so; nothing is computed again to see them.
    allowed = command(place, tmp_path / "out", "--json", "--max-bad", "60%")
    assert allowed.exit_code == 0, allowed.stderr
    assert "starting Spark" not in allowed.stderr
    result = msgspec.json.decode(allowed.stdout, type=pipeline.PipelineResult)
    assert (result.unread_files, result.new_files) == (1, 0)
    shown = command(place, tmp_path / "out", "--max-bad", "60%").stdout
    assert f"{result.bad:,} (" in shown
    assert "unread files  1, with an unknown number" in shown
    assert result.quarantined == {
        "duplicate": 2,
        "missing-id": 1,
        "negative-delay": 1,
        "not-matching": 1,
        "unknown-broker": 1,
        "unknown-publication": 2,
        "unknown-subscription": 1,
        "unreadable-file": 1 + len(unreadable),
    }
    aside = table(tmp_path / "out", "quarantine")
    assert result.bad == 10 + len(unreadable) == sum(each["rows"] for each in aside)
    assert len(aside) == 11
    files = {(each["table"], each["reasons"][0]): Path(each["file"]).name for each in aside}
    assert files["hops", "unknown-publication"] == files["hops", "duplicate"] == "x.parquet"
    assert files["deliveries", "unknown-publication"] == files["deliveries", "duplicate"] == "bad.parquet"
    assert without_duplicates(result) == without_duplicates(scored[1])
    assert result.subscribers[row["subscription"]].duplicates in (0, 1)
    with pytest.raises(pipeline.TooManyBadRows) as raised:
        pipeline.run_pipeline(spark, [place], tmp_path / "out")
    assert comparable(raised.value.result) == comparable(result)
    (folder / "bad.parquet").unlink()
    left = pipeline.run_pipeline(spark, [place], tmp_path / "out", pipeline.PipelineOptions(max_bad=1.0))
    assert left.recomputed == f"{folder / 'bad.parquet'} was counted and is gone (1 such files)"
    assert without_duplicates(left) == without_duplicates(scored[1])
    assert left.bad < result.bad


def test_a_damaged_page_is_named(trace: tuple[Path, Result], spark: Any, tmp_path: Path) -> None:
    """The footer is whole, so only reading the data can tell."""
    shutil.copytree(trace[0], tmp_path / "trace")
    path = tmp_path / "trace" / "hops" / "part-00000.parquet"
    data = bytearray(path.read_bytes())
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"hops/part-00000\.parquet: .* damaged; bring a whole copy"):
        pipeline.run_pipeline(spark, [tmp_path / "trace"], tmp_path / "out")


def respelled(trace: Path, place: Path) -> None:
    """The trace with names in upper case, times as timestamps with a zone, sequence numbers of another width, and an
    attribute that is a number in one file and a whole number in another."""
    shutil.copytree(trace, place)
    for name in ("publications", "hops", "deliveries"):
        for path in (place / name).iterdir():
            rows = pq.read_table(path)
            for number, field in enumerate(rows.schema):
                if field.name.endswith("_ns") and field.name != "lifetime_ns":
                    times = rows[field.name].cast(pa.timestamp("ns")).cast(pa.timestamp("ns", "UTC"))
                    rows = rows.set_column(number, field.name, times)
                elif field.name == "sequence":
                    rows = rows.set_column(number, field.name, rows[field.name].cast(pa.uint32()))
            pq.write_table(rows.rename_columns([each.upper() for each in rows.column_names]), path)
    path = next((place / "publications").iterdir())
    rows = pq.read_table(path)
    half, place_of = len(rows) // 2, rows.column_names.index("ATTRIBUTES")
    attributes = rows["ATTRIBUTES"].combine_chunks()
    columns = {field.name: attributes.field(field.name) for field in attributes.type}
    columns["x"] = columns["x"].cast(pa.float64() if pa.types.is_integer(columns["x"].type) else pa.int32())
    other = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
    pq.write_table(rows.slice(0, half), path)
    pq.write_table(rows.set_column(place_of, "ATTRIBUTES", other).slice(half), path.with_name("other.parquet"))


def test_a_trace_in_another_spelling_gives_the_same_answer(
    trace: tuple[Path, Result], scored: tuple[Path, Any], spark: Any, tmp_path: Path
) -> None:
    respelled(trace[0], tmp_path / "trace")
    result = pipeline.run_pipeline(spark, [tmp_path / "trace"], tmp_path / "out")
    assert comparable(result) == comparable(scored[1])
    assert plain(table(tmp_path / "out", "topic_scores")) == plain(table(scored[0], "topic_scores"))


@pytest.mark.full
def test_attributes_that_differ_only_in_case_are_two(spark: Any, tmp_path: Path) -> None:
    words = {"duration": "3 s", "scheduling": "eb", "routing": "single-path", "expired": "drop"}
    text = SCENARIO.format(**words).replace("attributes = { x =", "attributes = { X = { values = [1, 2] }, x =")
    network = Scenario.parse(text.replace("x > 9", "x > 3 AND X = 1")).expand()
    truth = simulate(network, out=tmp_path / "trace")
    result = pipeline.run_pipeline(spark, [tmp_path / "trace"], tmp_path / "out")
    assert counts(result.subscribers) == counts(truth.subscribers)
    assert 0 < result.subscribers["nobody"].matched < result.matched


@pytest.mark.full
def test_foreign_events_known_by_their_ids(spark: Any, tmp_path: Path) -> None:
    """The same logs with an id for each event instead of the publisher's sequence numbers: `archive` wants everything,
    and has got what the log of deliveries says."""
    numbered = Path(__file__).parents[2] / "examples" / "foreign"
    by_id = tmp_path / "trace"
    by_id.mkdir()
    for name, key in (("sends.csv", 0), ("receives.csv", 1)):
        rows = [line.split(",") for line in (numbered / name).read_text().splitlines()]
        joined = [["id" if not n else "-".join(row[key : key + 2]), *row] for n, row in enumerate(rows)]
        (by_id / name).write_text("".join(",".join(row) + "\n" for row in joined))
    mapping = (numbered / "mapping.toml").read_text()
    mapping = mapping.replace('sequence = "number", departure', 'event = "id", departure')
    mapping = mapping.replace('publisher = "producer", sequence = "number", arrived', 'event = "id", arrived')
    (tmp_path / "mapping.toml").write_text(mapping)
    result = pipeline.run_pipeline(
        spark, [by_id], tmp_path / "out", pipeline.PipelineOptions(mapping=tmp_path / "mapping.toml")
    )
    sent, received = ((numbered / name).read_text().splitlines()[1:] for name in ("sends.csv", "receives.csv"))
    archive = result.subscribers["archive"]
    assert archive.matched == len(sent)
    assert archive.on_time + archive.late == len({line.rsplit(",", 1)[0] for line in received if "archive" in line})
