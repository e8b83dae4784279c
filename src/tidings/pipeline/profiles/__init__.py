"""Profiles: what the facts say of publishers, their content, brokers, links, components and pairs.

Each is a measure: partial aggregates of chunks (or slices of time) that add up to the table; see
docs/reference/profiles.md. All but what is read off a quantile sketch is exactly the same however the facts are split.
"""

from typing import Final

from tidings.pipeline.profiles._brokers import (
    SLICE_NS,
    merge_arrivals,
    merge_brokers,
    partial_arrivals,
)
from tidings.pipeline.profiles._components import merge_components, partial_components
from tidings.pipeline.profiles._content import MOST_SIGNATURES, merge_content, partial_content
from tidings.pipeline.profiles._links import merge_links, partial_transmissions
from tidings.pipeline.profiles._pairs import BORDER_EVENTS, WINDOW_NS, merge_pairs, partial_pairs
from tidings.pipeline.profiles._profile import LEVEL, Profile
from tidings.pipeline.profiles._publishers import merge_publishers, partial_publishers
from tidings.pipeline.profiles._sums import PROBABILITIES, SKETCH_K

__all__ = [
    "BORDER_EVENTS",
    "LEVEL",
    "MOST_SIGNATURES",
    "PROBABILITIES",
    "PROFILES",
    "SKETCH_K",
    "SLICE_NS",
    "WINDOW_NS",
    "Profile",
    "merge_arrivals",
    "merge_brokers",
    "merge_components",
    "merge_content",
    "merge_links",
    "merge_pairs",
    "merge_publishers",
    "partial_arrivals",
    "partial_components",
    "partial_content",
    "partial_pairs",
    "partial_publishers",
    "partial_transmissions",
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
