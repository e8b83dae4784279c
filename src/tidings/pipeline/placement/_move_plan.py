"""From decisions to a plan: each move with what is expected of it, ranked, and what all of them change together.

The loads of brokers stay with Spark, publisher by publisher; what comes to the driver is a row for each move and one
figure for each broker.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from tidings.pipeline.placement._subscribers import ReaderMove
from tidings.placement import Aim, Change, Client, Expected, Move
from tidings.routing import Overlay

__all__ = ["Planning"]

BENEFIT_DIGITS: Final = 9
"""What is left beyond is rounding: moves that gain nothing by the objective are to be equal."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Planning:
    """The network, what its brokers take for an event, and what the plan is for."""

    overlay: Overlay
    service_s: Floats
    aim: Aim

    def loads(self, rows: DataFrame, *names: str) -> list[Floats]:
        """What all publishers together make each broker handle a second, for each of these columns of lists."""
        brokers = rows.select(fn.posexplode(fn.arrays_zip(*names)))
        summed = brokers.groupBy("pos").agg(*(fn.sum(f"col.{name}").alias(name) for name in names)).toArrow()
        found = []
        for name in names:
            loads = np.zeros(self.overlay.broker_count)
            loads[summed["pos"].to_numpy()] = summed[name].to_numpy()
            found.append(loads)
        return found

    def busiest(self, loads: Floats) -> float:
        return float((loads * self.service_s).max())

    def total(self, decided: DataFrame, after: DataFrame, now: Floats, then: Floats) -> Expected:
        """What all moves together change; `after` (JUDGED) is under the loads that they make."""
        first = decided.agg(*_means("_now")).collect()[0]
        last = after.agg(*_means("")).collect()[0]
        return Expected(
            messages_per_s=Change(now=float(now.sum()), then=float(then.sum())),
            delay_ms=Change(now=1e3 * first["delay_s"], then=1e3 * last["delay_s"]),
            busiest=Change(now=self.busiest(now), then=self.busiest(then)),
            on_time=_on_time(first["on_time"], last["on_time"]),
        )

    def publisher_moves(self, decided: DataFrame, now: Floats) -> list[Move]:
        """Those that should be elsewhere; the busiest broker is found by Spark, where the loads are."""
        of_network = decided.sparkSession.createDataFrame(
            [(now.tolist(), self.service_s.tolist())], "total array<double>, service array<double>"
        )
        added = fn.zip_with("loads_then", "loads_now", lambda then, before: then - before)
        changed = fn.zip_with(added, "total", lambda change, total: change + total)
        utilisation = fn.zip_with(changed, "service", lambda rate, mean: rate * mean)
        rows = decided.where("target <> home").crossJoin(fn.broadcast(of_network))
        kept = [name for name in decided.columns if not name.startswith("loads")]
        found = rows.select(*kept, fn.array_max(utilisation).alias("busiest")).toArrow().to_pylist()
        return [self._publisher_move(row, self.busiest(now)) for row in found]

    def _publisher_move(self, row: dict[str, Any], busiest: float) -> Move:
        expected = Expected(
            messages_per_s=Change(now=row["messages_per_s_now"], then=row["messages_per_s_then"]),
            delay_ms=Change(now=1e3 * row["delay_s_now"], then=1e3 * row["delay_s_then"]),
            busiest=Change(now=busiest, then=row["busiest"]),
            on_time=_on_time(row["on_time_now"], row["on_time_then"]),
        )
        rates = (row["deliveries_per_s"], row["promised_per_s"])
        return self._move("publisher", row["publisher"], (row["home"], row["target"]), expected, rates)

    def reader_moves(self, moves: Sequence[ReaderMove], before: Floats) -> list[Move]:
        """A subscriber's own delay and deadlines, and what its move in its turn changes in the whole network, where
        `before` are the loads with publishers at their targets."""
        messages, busiest = float(before.sum()), self.busiest(before)
        found = []
        for move in moves:
            expected = Expected(
                messages_per_s=Change(now=messages, then=messages + move.messages_per_s),
                delay_ms=Change(now=1e3 * move.delay_s[0], then=1e3 * move.delay_s[1]),
                busiest=Change(now=busiest, then=move.busiest),
                on_time=None if move.on_time is None else _on_time(*move.on_time),
            )
            rates = (move.read_per_s, move.read_per_s)
            found.append(self._move("subscriber", move.name, (move.home, move.target), expected, rates))
        return found

    def _move(
        self, client: Client, name: str, ends: tuple[int, int], expected: Expected, rates: tuple[float, float]
    ) -> Move:
        return Move(
            client=client,
            name=name,
            origin=self.overlay.brokers[ends[0]],
            target=self.overlay.brokers[ends[1]],
            benefit=round(self._benefit(expected, *rates), BENEFIT_DIGITS),
            expected=expected,
        )

    def _benefit(self, expected: Expected, deliveries_per_s: float, promised_per_s: float) -> float:
        if self.aim.objective == "load":
            return expected.messages_per_s.now - expected.messages_per_s.then
        if self.aim.objective == "delay":
            return (expected.delay_ms.now - expected.delay_ms.then) / 1e3 * deliveries_per_s
        return 0.0 if expected.on_time is None else (expected.on_time.then - expected.on_time.now) * promised_per_s


def _on_time(now: float | None, then: float | None) -> Change | None:
    return None if now is None or then is None else Change(now=now, then=then)


def _means(when: str) -> list[Column]:
    """Means over all deliveries, and over all that was promised where there are deadlines."""
    deliveries = fn.sum("deliveries_per_s")
    promised = fn.sum(fn.when(fn.col(f"on_time{when}").isNotNull(), fn.col("promised_per_s")))
    return [
        fn.try_divide(fn.sum(fn.col(f"delay_s{when}") * fn.col("deliveries_per_s")), deliveries).alias("delay_s"),
        fn.try_divide(fn.sum(fn.col(f"on_time{when}") * fn.col("promised_per_s")), promised).alias("on_time"),
    ]
