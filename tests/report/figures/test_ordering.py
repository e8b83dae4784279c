"""The price of order: the distribution of the pairs, and the results of a replay."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidings.errors import InputError
from tidings.ordering import violation_probability
from tidings.report.figures._ordering import ordering_of, read_replay
from tidings.statistics import PROBABILITIES

PUBLISHER = {
    "publisher": "p",
    "events": 100,
    "gap_count": 99,
    "gap_min_ns": 10_000_000,
    "gap_max_ns": 10_000_000,
    "gap_quantiles_ns": [10_000_000] * len(PROBABILITIES),
}
SCORES = pa.table({"on_time": [90], "late": [10], "fifo_violations": [7]})


def pairs(*rows: tuple[str, int, float | None]) -> pa.Table:
    made = [
        {"publisher": "p", "subscription": name, "matched": matched, "two_laplace_scale_s": scale_s}
        for name, matched, scale_s in rows
    ]
    return pa.Table.from_pylist(made)


def found(table: pa.Table, **known: Any) -> Any:
    return ordering_of(table, [PUBLISHER | known], SCORES, ["all", "half"], ())


def test_the_chance_of_a_constant_gap_is_equation_3() -> None:
    """All of 100 events a hundredth of a second apart; and every second one, which are twice as far apart."""
    ordering = found(pairs(("all", 100, 0.004), ("half", 50, 0.004)))
    holds = np.array(ordering.holds_s)
    np.testing.assert_allclose(ordering.curves["all"], violation_probability(0.004, 0.01 + holds))
    np.testing.assert_allclose(ordering.curves["half"], violation_probability(0.004, 0.02 + holds))
    both = (2 * np.array(ordering.curves["all"]) + np.array(ordering.curves["half"])) / 3
    np.testing.assert_allclose(ordering.curve, both)
    assert ordering.measured == 0.07


def test_without_differences_there_is_nothing_to_say() -> None:
    assert found(pairs(("all", 1, None))) is None
    assert found(pairs(("all", 100, 0.1)), gap_count=0) is None


def test_constant_delays_never_change_order() -> None:
    assert set(found(pairs(("all", 100, 0.0))).curve) == {0.0}


def test_a_replay_is_summed_by_policy(tmp_path: Path) -> None:
    names = ("policy", "received", "duplicates", "forgotten", "violations", "hold_ns")
    rows = [("CST-30", 50, 0, 0, 5, 10**9), ("CST-30", 60, 10, 0, 5, 10**9), ("P-0.05-0", 110, 10, 0, 1, 10**8)]
    (tmp_path / "pairs").mkdir()
    pq.write_table(
        pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows]), tmp_path / "pairs" / "x.parquet"
    )
    points = read_replay(tmp_path)
    assert [(point.policy, point.received, point.disorder, point.hold_s) for point in points] == [
        ("P-0.05-0", 110, 0.01, 0.001),
        ("CST-30", 110, 0.1, 0.02),
    ]


def test_what_is_no_replay_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a replay of orders"):
        read_replay(tmp_path / "nowhere")
