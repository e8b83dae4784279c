"""Planning: the cheapest changes with which every subscriber has its events on time, verified by simulation.

`plan(network, Objective(reliability=0.99))` searches; `what_if(network)` shows single remedies side by side;
`apply(network, changes)` makes changes. docs/reference/plan.md shows them at work.
"""

from tidings.planning._candidates import FACTORS
from tidings.planning._changes import (
    CHANGES_WRITTEN,
    KINDS,
    AllowLonger,
    Change,
    Kind,
    LiveLonger,
    MovePublisher,
    SpeedUpBroker,
    SpeedUpLink,
    UseOrdering,
    UseScheme,
    UseStrategy,
    apply,
    parse_change,
)
from tidings.planning._costs import Costs
from tidings.planning._estimating import Estimator
from tidings.planning._objective import LEVEL, Objective, Verification, verify
from tidings.planning._obstacles import Obstacle
from tidings.planning._plan import USUAL_KINDS, Plan, Planned, plan
from tidings.planning._what_if import ChangeOutcome, WhatIf, single_changes, what_if
from tidings.planning._writing import to_toml, write_toml

__all__ = [
    "CHANGES_WRITTEN",
    "FACTORS",
    "KINDS",
    "LEVEL",
    "USUAL_KINDS",
    "AllowLonger",
    "Change",
    "ChangeOutcome",
    "Costs",
    "Estimator",
    "Kind",
    "LiveLonger",
    "MovePublisher",
    "Objective",
    "Obstacle",
    "Plan",
    "Planned",
    "SpeedUpBroker",
    "SpeedUpLink",
    "UseOrdering",
    "UseScheme",
    "UseStrategy",
    "Verification",
    "WhatIf",
    "apply",
    "parse_change",
    "plan",
    "single_changes",
    "to_toml",
    "verify",
    "what_if",
    "write_toml",
]
