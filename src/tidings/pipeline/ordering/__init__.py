"""Ordering on Spark: what receivers would have done, replayed over whole traces or watched while a trace grows.

    replayed = replay_orders(spark, ["trace"], [Policy.parse("P-0.05-25"), Policy.parse("CST-30")])
    watch_orders(spark, "trace", "orders", [Policy.parse("ours-quantile")], listener=print)

docs/reference/ordering.md describes both.
"""

from tidings.pipeline.ordering._replay import OrderReplay, ReplayOptions, replay_orders
from tidings.pipeline.ordering._sums import PairQuantiles, PolicyReplay
from tidings.pipeline.ordering._watch import OrderTotals, PolicyTotals, WatchOrders, watch_orders

__all__ = [
    "OrderReplay",
    "OrderTotals",
    "PairQuantiles",
    "PolicyReplay",
    "PolicyTotals",
    "ReplayOptions",
    "WatchOrders",
    "replay_orders",
    "watch_orders",
]
