"""Faults: what crashes and repairs of brokers and connections do to on-time reliability, by scheme (paper D).

A `FaultGraph` says what fails and how; a `SchemePredictor` answers for a tree of it, a `Route`. `connectivity_of` gives
the chance that brokers are connected at all. docs/reference/faults.md shows them.
"""

from tidings.faults._chains import PHASES_MAX, phases_of
from tidings.faults._connectivity import Connectivity, EquivalentTree, connectivity_of
from tidings.faults._disjoint import disjoint_path_chances
from tidings.faults._graph import FaultGraph
from tidings.faults._schemes import SCHEMES, FaultModel, Route, Scheme, SchemePredictor

__all__ = [
    "PHASES_MAX",
    "SCHEMES",
    "Connectivity",
    "EquivalentTree",
    "FaultGraph",
    "FaultModel",
    "Route",
    "Scheme",
    "SchemePredictor",
    "connectivity_of",
    "disjoint_path_chances",
    "phases_of",
]
