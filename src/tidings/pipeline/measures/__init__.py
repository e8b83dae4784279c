"""Measures: what a trace says about publishers, content, brokers, links, components and pairs, and the scores of pairs.

A measure is computed from partial aggregates of chunks (or slices of time), which add up to the table; see
docs/reference/profiles.md. However the rows are split, the result is the same, except for values read off a quantile
sketch. Nothing here imports PySpark before it is used, apart from `_merges.py`, the list of all measures on Spark.
"""

from tidings.pipeline.measures._brokers import (
    PARTIAL_ARRIVALS,
    RECEPTIONS,
    SLICE_NS,
    arrivals_in_slices,
    brokers_table,
    merge_arrivals,
    receptions_of,
)
from tidings.pipeline.measures._components import (
    PARTIAL_COMPONENTS,
    merge_components,
    small_components,
    spans_of,
)
from tidings.pipeline.measures._content import (
    MOST_SIGNATURES,
    PARTIAL_CONTENT,
    content_of,
    merge_content,
)
from tidings.pipeline.measures._estimates import LEVEL
from tidings.pipeline.measures._links import (
    PARTIAL_TRANSMISSIONS,
    TRAFFIC,
    links_table,
    merged_transmissions,
    traffic_table,
    transmissions_of,
)
from tidings.pipeline.measures._pair_scores import PAIR_SCORES, SCORES, scores_table
from tidings.pipeline.measures._pair_sums import merged_pairs
from tidings.pipeline.measures._pairs import (
    BORDER_EVENTS,
    PARTIAL_PAIRS,
    WINDOW_NS,
    pairs_of,
    pairs_table,
    unmatched,
)
from tidings.pipeline.measures._publishers import (
    PARTIAL_PUBLISHERS,
    merge_publishers,
    publishers_of,
)
from tidings.pipeline.measures._sums import PROBABILITIES
from tidings.pipeline.rows import SKETCH_K

__all__ = [
    "BORDER_EVENTS",
    "LEVEL",
    "MOST_SIGNATURES",
    "PAIR_SCORES",
    "PARTIAL_ARRIVALS",
    "PARTIAL_COMPONENTS",
    "PARTIAL_CONTENT",
    "PARTIAL_PAIRS",
    "PARTIAL_PUBLISHERS",
    "PARTIAL_TRANSMISSIONS",
    "PROBABILITIES",
    "RECEPTIONS",
    "SCORES",
    "SKETCH_K",
    "SLICE_NS",
    "TRAFFIC",
    "WINDOW_NS",
    "arrivals_in_slices",
    "brokers_table",
    "content_of",
    "links_table",
    "merge_arrivals",
    "merge_components",
    "merge_content",
    "merge_publishers",
    "merged_pairs",
    "merged_transmissions",
    "pairs_of",
    "pairs_table",
    "publishers_of",
    "receptions_of",
    "scores_table",
    "small_components",
    "spans_of",
    "traffic_table",
    "transmissions_of",
    "unmatched",
]
