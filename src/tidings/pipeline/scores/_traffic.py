"""Traffic: what each link carried, and how much of it was for nothing, from the partials of profiles/_links.py.

A transmission is *expired work* if the target had all of it after the loosest deadline of the subscriptions that its
event matches: from then on it can be on time for nobody. Access links, from a publisher to its home broker, have no
source.
"""

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tidings.pipeline.profiles._links import SETS, merged_transmissions
from tidings.pipeline.profiles._pair_sums import of_set

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["TRAFFIC", "merge_traffic", "traffic_counts", "traffic_table"]

_COUNTS: Final[dict[str, tuple[str, ...]]] = {
    "enqueued": ("copies",),
    "sent": ("sent",),
    "received": ("arrivals",),
    "lost": ("lost",),
    "dropped": ("expired", "hopeless"),
    "sent_bytes": ("bytes",),
    "received_bytes": ("received_bytes",),
    "expired": ("in_vain",),
    "expired_bytes": ("in_vain_bytes",),
}
"""Columns of the table, and what they are the sums of."""

TRAFFIC: Final = "source string, target string, " + ", ".join(f"{name} bigint" for name in _COUNTS)
"""Per link: copies enqueued, sent, received, lost on it, dropped from its queue; bytes; expired work."""


def merge_traffic(partials: "DataFrame") -> "DataFrame":
    return traffic_table(merged_transmissions(partials))


def traffic_table(merged: "DataFrame") -> "DataFrame":
    """The table of `merged_transmissions`."""

    from pyspark.sql import functions as fn

    sums = [fn.expr(" + ".join(each)).cast("bigint").alias(name) for name, each in _COUNTS.items()]
    return of_set(merged, ("source", "target"), SETS).select("source", "target", *sums)


def traffic_counts(links: pa.Table) -> dict[str, list[int]]:
    """The sums of the table, for links in one process."""
    return {name: [int(sum(row.values())) for row in links.select(each).to_pylist()] for name, each in _COUNTS.items()}
