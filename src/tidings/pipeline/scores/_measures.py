"""The scores as measures: name, partial of the facts, and the tables that come of it."""

from collections.abc import Callable, Mapping
from functools import partial

from pyspark.sql import DataFrame

from tidings.pipeline._facts import Facts
from tidings.pipeline.scores._pairs import merge_scores, partial_scores
from tidings.pipeline.scores._traffic import merge_traffic, partial_traffic

__all__ = ["scores_measures"]

Table = Callable[[DataFrame], DataFrame]


def scores_measures(*, window_ns: int) -> list[tuple[str, Callable[[Facts], DataFrame], Mapping[str, Table]]]:
    """All of them; `window_ns` is the length of the windows of departure."""
    tables = {
        "subscriber_scores": ("subscription", "subscriber"),
        "publisher_scores": ("publisher",),
        "topic_scores": ("topic",),
        "window_scores": ("window_ns",),
    }
    return [
        (
            "scores",
            partial(partial_scores, window_ns=window_ns),
            {name: partial(merge_scores, keys=keys) for name, keys in tables.items()},
        ),
        ("traffic", partial_traffic, {"traffic": merge_traffic}),
    ]
