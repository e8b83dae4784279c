"""Profiles: what the facts say of publishers, their content, brokers, links, components and pairs.

Each is a measure: partial aggregates of chunks (or slices of time) that add up to the table; see
docs/reference/profiles.md. All but what is read off a quantile sketch is exactly the same however the facts are split.
"""

from typing import Final

from tidings.pipeline.profiles._brokers import (
    PARTIAL_ARRIVALS,
    RECEPTIONS,
    SLICE_NS,
    arrivals_in_slices,
    brokers_table,
    merge_arrivals,
    merge_brokers,
    partial_arrivals,
    receptions_of,
)
from tidings.pipeline.profiles._components import (
    PARTIAL_COMPONENTS,
    merge_components,
    partial_components,
    small_components,
    spans_of,
)
from tidings.pipeline.profiles._content import (
    MOST_SIGNATURES,
    PARTIAL_CONTENT,
    content_of,
    merge_content,
    partial_content,
)
from tidings.pipeline.profiles._links import (
    PARTIAL_TRANSMISSIONS,
    links_table,
    merge_links,
    merged_transmissions,
    partial_transmissions,
    transmissions_of,
)
from tidings.pipeline.profiles._pair_sums import merged_pairs
from tidings.pipeline.profiles._pairs import (
    BORDER_EVENTS,
    PARTIAL_PAIRS,
    WINDOW_NS,
    merge_pairs,
    pairs_of,
    pairs_table,
    partial_pairs,
    unmatched,
)
from tidings.pipeline.profiles._profile import LEVEL, Profile
from tidings.pipeline.profiles._publishers import (
    PARTIAL_PUBLISHERS,
    merge_publishers,
    partial_publishers,
    publishers_of,
)
from tidings.pipeline.profiles._sums import PROBABILITIES
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
    "PROFILES",
    "RECEPTIONS",
    "SKETCH_K",
    "SLICE_NS",
    "WINDOW_NS",
    "Profile",
    "arrivals_in_slices",
    "brokers_table",
    "content_of",
    "links_table",
    "merge_arrivals",
    "merge_brokers",
    "merge_components",
    "merge_content",
    "merge_links",
    "merge_pairs",
    "merge_publishers",
    "merged_pairs",
    "merged_transmissions",
    "pairs_of",
    "pairs_table",
    "partial_arrivals",
    "partial_components",
    "partial_content",
    "partial_pairs",
    "partial_publishers",
    "partial_transmissions",
    "publishers_of",
    "receptions_of",
    "small_components",
    "spans_of",
    "transmissions_of",
    "unmatched",
]

PROFILES: Final = (
    Profile(name="publishers", by="chunk", partial=partial_publishers, merge=merge_publishers),
    Profile(name="content", by="chunk", partial=partial_content, merge=merge_content),
    Profile(name="brokers", by="chunk", partial=partial_transmissions, merge=merge_brokers),
    Profile(name="arrivals", by="slice", partial=partial_arrivals, merge=merge_arrivals),
    Profile(name="links", by="chunk", partial=partial_transmissions, merge=merge_links),
    Profile(name="components", by="chunk", partial=partial_components, merge=merge_components),
    Profile(name="pairs", by="chunk", partial=partial_pairs, merge=merge_pairs),
)
"""All profiles, in the order that their tables are shown in."""
