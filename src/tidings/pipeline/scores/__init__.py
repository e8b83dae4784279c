"""Scores: who got what on time, by subscription, publisher, topic and window of time, and what links carried for it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from pyspark.sql import DataFrame

from tidings.pipeline.scores._pairs import LEVEL, SCORES, merge_scores
from tidings.pipeline.scores._traffic import TRAFFIC, merge_traffic

__all__ = ["LEVEL", "PAIR_SCORES", "SCORES", "TRAFFIC", "merge_scores", "merge_traffic"]

PAIR_SCORES: Final[Mapping[str, Callable[[DataFrame], DataFrame]]] = {
    "subscriber_scores": partial(merge_scores, keys=("subscription", "subscriber")),
    "publisher_scores": partial(merge_scores, keys=("publisher",)),
    "topic_scores": partial(merge_scores, keys=("topic",)),
    "window_scores": partial(merge_scores, keys=("window_ns",)),
}
"""Every table of scores by name, and how it comes of the partials of pairs."""
