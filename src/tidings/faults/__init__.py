"""Faults: the effect of crashes and repairs of brokers and connections on on-time shares, by scheme (paper D).

A `FaultGraph` holds the components and their failures; a `SchemePredictor` computes the shares for a tree of it, a
`Route`. `connectivity_of` gives the chance that brokers are connected. See docs/reference/faults.md.
"""

from tidings.faults._bypass import bypass_targets, topmost_reachable
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
    "bypass_targets",
    "connectivity_of",
    "disjoint_path_chances",
    "phases_of",
    "topmost_reachable",
]
