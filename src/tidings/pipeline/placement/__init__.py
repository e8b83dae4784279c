"""Placement on Spark: where the clients of a network should be, found from its traces (docs/reference/place.md).

placement = place_on_spark(spark, ["trace"], PlaceOptions(aim=Aim(objective="delay")))
write_plan(placement.plan, "plan.json")
"""

from tidings.pipeline.placement._place import Placement, PlaceOptions, place_on_spark

__all__ = ["PlaceOptions", "Placement", "place_on_spark"]
