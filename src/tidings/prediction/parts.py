"""The parts of a prediction, for a caller that has the content in pieces: the pipeline on Spark puts them together.

The layout needs only the masses by [publisher, broker], `settle` only the layout, and `arrival_chances` is the
contribution of one publisher to R' of any few subscriptions.
"""

from tidings.prediction._content import match_columns
from tidings.prediction._deadlines import spread_latest
from tidings.prediction._flows import Layout, Stations, layout_of, union_masses
from tidings.prediction._knowledge import SHARE_QUANTUM, FloatArray, IntArray, LongArray
from tidings.prediction._network import BALANCE_SAMPLE, Asked, Samples, deadlines_of, homes_of, outline_of_network
from tidings.prediction._paths import PathDelays, Waits
from tidings.prediction._predict import arrival_chances, settle
from tidings.prediction._profiles import SETTING_TABLES, brokers_of_topology, lifetime_distribution, outline_of_profiles

__all__ = [
    "BALANCE_SAMPLE",
    "SETTING_TABLES",
    "SHARE_QUANTUM",
    "Asked",
    "FloatArray",
    "IntArray",
    "Layout",
    "LongArray",
    "PathDelays",
    "Samples",
    "Stations",
    "Waits",
    "arrival_chances",
    "brokers_of_topology",
    "deadlines_of",
    "homes_of",
    "layout_of",
    "lifetime_distribution",
    "match_columns",
    "outline_of_network",
    "outline_of_profiles",
    "settle",
    "spread_latest",
    "union_masses",
]
