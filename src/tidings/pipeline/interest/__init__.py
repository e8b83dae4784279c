"""Interest: which event matches which subscription. The denominator of all scores."""

from tidings.pipeline.interest._index_file import Shipped, ship
from tidings.pipeline.interest._matcher import Matcher, by_kind
from tidings.pipeline.interest._matches import attributes_read, of, with_matches
from tidings.pipeline.interest._subscriptions import (
    BAD_FILTER,
    SUBSCRIPTIONS,
    FilterFault,
    Interests,
    are_no_filters,
    fingerprint,
    parse_filters,
)

__all__ = [
    "BAD_FILTER",
    "SUBSCRIPTIONS",
    "FilterFault",
    "Interests",
    "Matcher",
    "Shipped",
    "are_no_filters",
    "attributes_read",
    "by_kind",
    "fingerprint",
    "of",
    "parse_filters",
    "ship",
    "with_matches",
]
