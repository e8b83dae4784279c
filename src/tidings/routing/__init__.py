"""Routing: which neighbours an event must be sent to, and along which paths.

Pure algorithms on dense numbers and arrays: an `Overlay` of brokers and links, one dissemination `Tree` per publisher,
path figures along it, forwarding sets for matched events, and load-balanced trees, one or several per publisher.
docs/reference/routing.md shows them at work.
"""

from tidings.routing._balance import BalancedRoutes, Demand, balance_routes, link_utilisations
from tidings.routing._figures import PathFigures, RootFigures, root_figures, shortest_path_figures, tree_figures
from tidings.routing._forwarding_sets import (
    Forwarded,
    ForwardingTables,
    child_slot_towards,
    compile_forwarding,
    forward,
    forwarding_set,
    forwarding_sets,
)
from tidings.routing._overlay import NO_BROKER, NO_LINK, Overlay, Weight, overlay_of_links
from tidings.routing._reachability import ReachabilityTable, downstream_links, reachability_table
from tidings.routing._spread import SpreadRoutes, TreeChoice, spread_routes
from tidings.routing._trees import Tree, require_reached, shortest_path_tree, shortest_path_trees, tree_of_parents

__all__ = [
    "NO_BROKER",
    "NO_LINK",
    "BalancedRoutes",
    "Demand",
    "Forwarded",
    "ForwardingTables",
    "Overlay",
    "PathFigures",
    "ReachabilityTable",
    "RootFigures",
    "SpreadRoutes",
    "Tree",
    "TreeChoice",
    "Weight",
    "balance_routes",
    "child_slot_towards",
    "compile_forwarding",
    "downstream_links",
    "forward",
    "forwarding_set",
    "forwarding_sets",
    "link_utilisations",
    "overlay_of_links",
    "reachability_table",
    "require_reached",
    "root_figures",
    "shortest_path_figures",
    "shortest_path_tree",
    "shortest_path_trees",
    "spread_routes",
    "tree_figures",
    "tree_of_parents",
]
