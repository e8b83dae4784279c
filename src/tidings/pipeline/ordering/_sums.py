"""Sums over what the workers found: a row for each policy, and the static latch that is as good as it.

How often each static latch is violated is known from how long overtaking lasted (`tidings.ordering.overtaken_ns`).
Counts by steps of LATCH_STEP_NS are all that it takes, some 200,000 numbers for a trace of any length, and every
policy's latch is then read from them.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from tidings.ordering import COUNTS, Policy
from tidings.pipeline.ordering._cells import LATCH_STEP_NS, OVERTAKEN, PAIR

__all__ = ["PairQuantiles", "PolicyReplay", "Summed", "sum_up"]

QUANTILES = (0.5, 0.9)
RANK_PRECISION = 10_000
"""Quantiles over pairs are those of a sketch; their ranks are off by at most one in so many."""


class PairQuantiles(msgspec.Struct, frozen=True, kw_only=True):
    """A time in ms: the mean over events, the median and 90th percentile of the means of pairs."""

    mean: float
    p50: float
    p90: float


class PolicyReplay(msgspec.Struct, frozen=True, kw_only=True):
    """What one policy did with a trace.

    `repaired` is the share of out-of-order receptions without a violation (None: there were none); `hold_ms` is
    delivery less arrival, `assessed_ms` the latch before anything cut it short; `static_latch_ms` is the least static
    latch with no more violations, to 10 microseconds (None: none up to 2 s).
    """

    policy: str
    received: int
    out_of_order: int
    violations: int
    repaired: float | None
    hold_ms: PairQuantiles
    assessed_ms: PairQuantiles
    static_latch_ms: float | None
    duplicates: int
    forgotten: int
    restarts: int
    forced: int


class Summed(msgspec.Struct, frozen=True, kw_only=True):
    """The policies in the order in which they were asked for, the number of pairs, and what was left out by reason."""

    policies: list[PolicyReplay]
    pairs: int
    left_out: dict[str, int]


def sum_up(found: DataFrame, policies: Sequence[Policy]) -> Summed:
    """One pass over FOUND."""
    delivered = fn.col("received") - fn.col("duplicates")
    by_pair = [
        fn.percentile_approx(fn.try_divide(name, delivered), list(QUANTILES), RANK_PRECISION).alias(f"{name}_quantiles")
        for name in ("hold_ns", "assessed_ns")
    ]
    sums = [fn.sum(name).alias(name) for name in COUNTS]
    rows = found.groupBy("fact", "policy", "place").agg(fn.count("*").alias("pairs"), *sums, *by_pair)
    table = rows.select(
        "fact", "policy", "place", "pairs", *COUNTS, "hold_ns_quantiles", "assessed_ns_quantiles"
    ).toArrow()
    facts = table["fact"].to_pylist()
    of = {name: table.filter(pa.array([fact == name for fact in facts], pa.bool_())) for name in set(facts)}
    found_pairs = {row["policy"]: row for row in of[PAIR].to_pylist()} if PAIR in of else {}
    latches = _StaticLatches(of.get(OVERTAKEN, table.slice(0, 0)))
    return Summed(
        policies=[
            _policy_replay(policy, found_pairs[number], latches)
            for number, policy in enumerate(policies)
            if number in found_pairs
        ],
        pairs=int(found_pairs[0]["pairs"]) if found_pairs else 0,
        left_out={name: int(rows["received"][0].as_py()) for name, rows in of.items() if name not in (PAIR, OVERTAKEN)},
    )


class _StaticLatches:
    """How many violations each static latch has."""

    def __init__(self, overtaken: pa.Table) -> None:
        place = overtaken["place"].to_numpy().astype(np.int64)
        order = np.argsort(place)
        times = overtaken["received"].to_numpy().astype(np.int64)[order]
        self._places = place[order]
        self._from = np.append(np.cumsum(times[::-1])[::-1], 0)  # of the i-th place and all longer ones

    def least_ms(self, violations: int, longest_ns: int = 2_000_000_000) -> float | None:
        """The least latch with no more violations."""
        # The latch just above a place lets all up to it wait long enough.
        first = int(np.argmax(self._from <= violations))
        latch_ns = int(self._places[first - 1] + 1) * LATCH_STEP_NS if first else 0
        return latch_ns / 1e6 if latch_ns <= longest_ns else None


def _policy_replay(policy: Policy, row: Mapping[str, object], latches: _StaticLatches) -> PolicyReplay:
    counts = {name: int(str(row[name])) for name in COUNTS}
    late, violations = counts["out_of_order"], counts["violations"]
    delivered = max(counts["received"] - counts["duplicates"], 1)

    def in_ms(name: str) -> PairQuantiles:
        p50, p90 = (value / 1e6 for value in row[f"{name}_quantiles"])  # type: ignore[attr-defined]
        return PairQuantiles(mean=counts[name] / delivered / 1e6, p50=p50, p90=p90)

    return PolicyReplay(
        policy=policy.name,
        repaired=1.0 - violations / late if late else None,
        hold_ms=in_ms("hold_ns"),
        assessed_ms=in_ms("assessed_ns"),
        static_latch_ms=latches.least_ms(violations),
        **{name: counts[name] for name in COUNTS if not name.endswith("_ns")},
    )
