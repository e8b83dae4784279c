"""Measures: what a trace says about publishers, content, brokers, links, components and pairs, and the scores of pairs.

A measure is computed from partial aggregates of chunks (or slices of time), which add up to the table; see
docs/reference/profiles.md. However the rows are split, the result is the same, except for values read off a quantile
sketch. Nothing here knows Spark.
"""

from tidings.pipeline.measures._brokers import (
    PARTIAL_ARRIVALS,
    RECEPTIONS,
    SLICE_NS,
    receptions_of,
)
from tidings.pipeline.measures._components import (
    PARTIAL_COMPONENTS,
    spans_of,
)
from tidings.pipeline.measures._content import (
    MOST_SIGNATURES,
    PARTIAL_CONTENT,
    content_of,
)
from tidings.pipeline.measures._estimates import LEVEL
from tidings.pipeline.measures._links import (
    PARTIAL_TRANSMISSIONS,
    TRAFFIC,
    transmissions_of,
)
from tidings.pipeline.measures._pair_scores import SCORES
from tidings.pipeline.measures._pairs import (
    BORDER_EVENTS,
    PARTIAL_PAIRS,
    WINDOW_NS,
    pairs_of,
)
from tidings.pipeline.measures._publishers import (
    PARTIAL_PUBLISHERS,
    publishers_of,
)
from tidings.pipeline.measures._sums import PROBABILITIES
from tidings.pipeline.rows import SKETCH_K

__all__ = [
    "BORDER_EVENTS",
    "LEVEL",
    "MOST_SIGNATURES",
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
    "content_of",
    "pairs_of",
    "publishers_of",
    "receptions_of",
    "spans_of",
    "transmissions_of",
]
