"""Scores: who got what on time, by subscription, publisher, topic and window of time, and what links carried for it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from tidings.pipeline.scores._pairs import LEVEL, SCORES, merge_scores, scores_table
from tidings.pipeline.scores._traffic import TRAFFIC, merge_traffic, traffic_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "LEVEL",
    "PAIR_SCORES",
    "SCORES",
    "TRAFFIC",
    "merge_scores",
    "merge_traffic",
    "scores_table",
    "traffic_table",
]

PAIR_SCORES: "Final[Mapping[str, Callable[[DataFrame], DataFrame]]]" = {
    "subscriber_scores": partial(scores_table, keys=("subscription", "subscriber")),
    "publisher_scores": partial(scores_table, keys=("publisher",)),
    "topic_scores": partial(scores_table, keys=("topic",)),
    "window_scores": partial(scores_table, keys=("window_ns",)),
}
"""Every table of scores by name, and how it comes of `merged_pairs`."""
