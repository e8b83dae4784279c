from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidings.errors import ConfigurationError, InputError
from tidings.ordering import COUNTS, Policy, optimal_static_latch, replay
from tidings.pipeline.ordering import ReplayOptions, _cells, _replay, replay_orders

pytestmark = pytest.mark.spark

NAMES = ("P-0.05-0", "P-0.05-25", "CST-3", "ours-record", "ours-quantile")
POLICIES = [Policy.parse(name) for name in NAMES]
EXACT = ReplayOptions(false_matches=0.0)
Make = Callable[..., Any]


def expected_pairs(trace: Any, policies: list[Policy] = POLICIES) -> dict[tuple[str, str, str], list[int]]:
    pairs = {}
    for publisher in range(trace.departure.shape[0]):
        for name, found in replay(trace.streams(publisher), policies).items():
            for reader, counts in enumerate(found.counts):
                pairs[f"p{publisher}", f"s{reader}", name] = counts.tolist()
    return pairs


def written_pairs(place: Path) -> dict[tuple[str, str, str], list[int]]:
    rows = pq.read_table(place / "pairs").to_pylist()
    return {(row["publisher"], row["subscription"], row["policy"]): [row[name] for name in COUNTS] for row in rows}


def test_every_pair_is_what_the_replay_of_its_stream_says(spark: Any, make_trace: Make, tmp_path: Path) -> None:
    trace = make_trace(1)
    result = replay_orders(spark, [trace.write(tmp_path / "trace")], POLICIES, tmp_path / "out", EXACT)
    expected = expected_pairs(trace)
    assert written_pairs(tmp_path / "out") == expected
    assert (result.pairs, result.received, result.bad) == (12, int(trace.came.sum()), {})
    assert result.table == str(tmp_path / "out" / "pairs")
    streams = [trace.streams(publisher) for publisher in range(3)]
    for policy, row in zip(POLICIES, result.policies, strict=True):
        of = {
            name: sum(e[place] for key, e in expected.items() if key[2] == policy.name)
            for place, name in enumerate(COUNTS)
        }
        assert row.policy == policy.name
        assert (row.received, row.out_of_order, row.violations) == (
            of["received"],
            of["out_of_order"],
            of["violations"],
        )
        assert row.repaired == 1 - of["violations"] / of["out_of_order"]
        assert row.hold_ms.mean == pytest.approx(of["hold_ns"] / of["received"] / 1e6)
        holds = [e[COUNTS.index("hold_ns")] / e[0] / 1e6 for key, e in expected.items() if key[2] == policy.name]
        assert row.hold_ms.p50 == pytest.approx(np.quantile(holds, 0.5, method="inverted_cdf"))
        assert row.hold_ms.p90 == pytest.approx(np.quantile(holds, 0.9, method="inverted_cdf"))
        latch_ns = optimal_static_latch(streams, row.violations, precision_ns=1)
        if row.static_latch_ms is None:
            assert latch_ns == 2_000_000_000
        else:
            assert 0 <= row.static_latch_ms * 1e6 - latch_ns <= _cells.LATCH_STEP_NS


def test_a_busy_publisher_in_several_cells_and_batches_of_any_size(
    spark: Any, make_trace: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = make_trace(2, publishers=2, readers=7)
    monkeypatch.setattr(_replay, "ROWS_PER_CELL", 200)
    policies = POLICIES[:2]
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "97")
    try:
        replay_orders(spark, [trace.write(tmp_path / "trace")], policies, tmp_path / "out", EXACT)
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)
    assert written_pairs(tmp_path / "out") == expected_pairs(trace, policies)


def test_what_cannot_be_replayed_is_counted(spark: Any, make_trace: Make, tmp_path: Path) -> None:
    trace = make_trace(3, publishers=1, readers=2)
    rows = trace.delivery_rows()
    wrong = [
        {**rows[0], "sequence": 9999},
        {**rows[1], "publisher": "nobody"},
        {**rows[2], "subscription": "nobody"},
        {**rows[3], "arrived_ns": 0, "delivered_ns": 0},
        {**rows[4], "arrived_ns": 10**9, "delivered_ns": 5},
    ]
    place = trace.write(tmp_path, [*rows, *wrong, rows[5]])
    result = replay_orders(spark, [place], POLICIES[:1], None, EXACT)
    assert result.bad == {"negative-delay": 2, "unknown-publication": 2, "unknown-subscription": 1}
    (row,) = result.policies
    assert (row.received, row.duplicates) == (len(rows) + 1, 1)
    assert result.table is None


@pytest.mark.full
def test_false_matches_wait_longer(spark: Any, make_trace: Make, tmp_path: Path) -> None:
    place = make_trace(4, publishers=1, readers=2).write(tmp_path)
    policy = [Policy.parse("P-0.001-25")]
    few, many = (
        replay_orders(spark, [place], policy, None, ReplayOptions(false_matches=share)).policies[0]
        for share in (0.0, 0.3)
    )
    assert many.hold_ms.mean > 1.05 * few.hold_ms.mean
    assert many.out_of_order == few.out_of_order


def test_bad_input_is_said_before_spark_is_started(make_trace: Make, tmp_path: Path) -> None:
    def spark() -> Any:
        raise AssertionError("Spark was started")

    trace = make_trace(5, publishers=1, events=20, readers=1)
    with pytest.raises(ConfigurationError, match="no policy to replay"):
        replay_orders(spark, [tmp_path], [])
    with pytest.raises(ConfigurationError, match="CST-3 is given twice"):
        replay_orders(spark, [tmp_path], [POLICIES[2], POLICIES[2]])
    place = trace.write(tmp_path / "trace")
    (tmp_path / "out" / "pairs").mkdir(parents=True)
    with pytest.raises(InputError, match="there is a replay already"):
        replay_orders(spark, [place], POLICIES, tmp_path / "out")
    sampled = place / "deliveries" / "part-0.parquet"
    table = pq.read_table(sampled)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, b"tidings.sample": b"0.1"}), sampled)
    with pytest.raises(InputError, match=r"holds 0\.1 of the events"):
        replay_orders(spark, [place], POLICIES)
    sampled.unlink()
    with pytest.raises(InputError, match="no files of table 'deliveries'"):
        replay_orders(spark, [place], POLICIES)
    with pytest.raises(ConfigurationError, match="false matches"):
        ReplayOptions(false_matches=1.0)
    with pytest.raises(ConfigurationError, match="clock tolerance"):
        ReplayOptions(clock_tolerance_ns=-1)


def test_a_trace_without_deliveries_is_refused(spark: Any, make_trace: Make, tmp_path: Path) -> None:
    trace = make_trace(6, publishers=1, events=20, readers=1)
    with pytest.raises(InputError, match="no deliveries to replay"):
        replay_orders(spark, [trace.write(tmp_path / "empty", [])], POLICIES[:1])


def test_a_stream_of_a_million_events_passes_a_worker() -> None:
    """Without Spark: the worker's part, over one pair that fills many batches."""
    events = 1_000_000
    rng = np.random.default_rng(7)
    departure = np.cumsum(rng.integers(1, 2_000, events))
    arrival = departure + rng.integers(1_000, 5_000, events)
    rows = pa.table(
        {
            "cell": np.zeros(2 * events, np.int64),
            "subscription": pa.array(np.repeat([-1, 3], events), pa.int32()),
            "sequence": np.tile(np.arange(events), 2),
            "time_ns": np.concatenate([departure, arrival]),
            "publisher": pa.array(["p"] * events + [None] * events, pa.string()),
            "matches": pa.concat_arrays(
                [
                    pa.FixedSizeListArray.from_arrays(pa.array(np.full(events, 3), pa.int32()), 1).cast(
                        pa.list_(pa.int32())
                    ),
                    pa.array([[]] * events, pa.list_(pa.int32())),
                ]
            ),
        }
    )
    work = _cells.CellReplay(
        policies=(Policy.parse("CST-0"), Policy.parse("ours-record")),
        clock_tolerance_ns=0,
        false_matches=0.0,
        unknown="unknown",
        early="early",
    )
    found = pa.Table.from_batches(list(work(iter(rows.to_batches(max_chunksize=10_000))))).to_pylist()
    pairs = [row for row in found if row["fact"] == "pair"]
    assert [(row["policy"], row["subscription"], row["received"]) for row in pairs] == [(0, 3, events), (1, 3, events)]
    assert pairs[0]["violations"] == pairs[0]["out_of_order"] > 100_000
    assert sum(row["received"] for row in found if row["fact"] == "overtaken") == pairs[0]["out_of_order"]
