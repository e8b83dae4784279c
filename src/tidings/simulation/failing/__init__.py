"""The simulation of networks whose brokers and links fail (paper D): its own event loop beside the other one."""

from tidings.simulation.failing._plan import FailingPlan, plan_failing
from tidings.simulation.failing._run import FailingRun

__all__ = ["FailingPlan", "FailingRun", "plan_failing"]
