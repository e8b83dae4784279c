"""Planning: the cheapest changes that meet an objective for on-time delivery, verified by simulation.

`plan(network, Objective(reliability=0.99))` searches; `what_if(network)` compares single remedies; `apply(network,
changes)` returns the changed network. See docs/reference/plan.md.
"""

from tidings.model.scenario_file import to_toml, write_toml
from tidings.planning._candidates import FACTORS, shortlist
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
from tidings.planning._estimator import Estimator
from tidings.planning._objective import LEVEL, Objective, Verification, verify
from tidings.planning._obstacles import Obstacle
from tidings.planning._plan import USUAL_KINDS, Plan, Planned, plan
from tidings.planning._what_if import ChangeOutcome, WhatIf, single_changes, what_if

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
    "shortlist",
    "single_changes",
    "to_toml",
    "verify",
    "what_if",
    "write_toml",
]
