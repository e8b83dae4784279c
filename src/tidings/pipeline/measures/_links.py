"""Links: what becomes of transmissions, how long they wait and take, and what that says of the link.

A link whose `source` is NULL is from the publishers to that broker. The queueing wait is `sent_ns` - `enqueued_ns`,
the transfer delay `received_ns` - `sent_ns`: size times slowness, then propagation. Where sizes vary, least squares of
the delay on the size separates the two: the slope is the mean slowness, the intercept the mean propagation; all
variation about the line is attributed to the slowness, which makes it proportional to the size. Where all sizes are
equal, slowness and propagation are NULL. The loss share is that of transmissions that ended, lost or received.

The traffic of a link is what it carried. A transmission is *expired work* if the target had all of it after the loosest
deadline of the subscriptions that its event matches: from then on it can be on time for nobody.

Brokers (_brokers.py) use the same partials: transmissions are counted once, by link.
"""

from typing import Any, Final

import pyarrow as pa

from tidings.pipeline.ingest import OUTCOMES
from tidings.pipeline.measures._estimates import (
    duration,
    duration_columns,
    floats,
    partial_columns,
    product_columns,
    sum_of_products,
    whole,
)
from tidings.pipeline.measures._sums import (
    Total,
    merged_products,
    merged_value,
)
from tidings.pipeline.rows import HopRows, grouped, grouped_products, grouped_value, table_of
from tidings.statistics import line_from_sums, ratio, wilson_interval

__all__ = [
    "LINKS",
    "PARTIAL_TRANSMISSIONS",
    "TRAFFIC",
    "TRANSMISSION_TOTALS",
    "finish_links",
    "traffic_counts",
    "transmissions_of",
]

# One unit of the slope, a nanosecond per byte, in seconds per kB.
_SLOPE_S_PER_KB: Final = 1e-9 * 1e3


def _column(outcome: str) -> str:
    return outcome.replace("-", "_")


LINKS = (
    "source string, target string, copies bigint, received bigint, lost bigint, expired bigint, hopeless bigint, "
    "in_flight bigint, failed bigint, loss double, loss_low double, loss_high double, bytes bigint, first_ns bigint, "
    "last_ns bigint, transmissions_per_s double, "
    f"{duration_columns('wait')}, {duration_columns('delay')}, "
    "slowness_mean_s_per_kb double, slowness_low_s_per_kb double, slowness_high_s_per_kb double, "
    "slowness_variance double, propagation_s double"
)


PARTIAL_TRANSMISSIONS: Final = (
    "publisher string, chunk bigint, source string, target string, copies bigint, "
    + "".join(f"{_column(outcome)} bigint, " for outcome in OUTCOMES)
    + "sent bigint, bytes bigint, first_sent_ns bigint, last_sent_ns bigint, arrivals bigint, received_bytes bigint, "
    "first_received_ns bigint, last_received_ns bigint, last_ended_ns bigint, in_vain bigint, in_vain_bytes bigint, "
    f"{partial_columns('wait')}, {partial_columns('delay')}, {partial_columns('size', sketch=False)}, "
    f"{product_columns('size_delay')}, {partial_columns('service')}, {partial_columns('waiting')}"
)


def transmissions_of(hops: HopRows) -> pa.Table:
    """The partials (PARTIAL_TRANSMISSIONS) of these hops."""
    groups = grouped(hops.publisher.codes, hops.chunk, hops.source.codes, hops.target.codes)
    size = hops.size_bytes
    enqueued, sent, received, began, ended = hops.times_ns.values()
    # From its loosest deadline on an event can be on time for nobody.
    taken = received.minus(hops.departure_ns)
    is_expired = taken.known & hops.deadline_ns.known & (taken.values >= hops.deadline_ns.values)
    delay = received.minus(sent)
    size_sent = size.where(delay.known)
    firsts = groups.firsts
    columns = {
        "publisher": hops.publisher.at(firsts),
        "chunk": hops.chunk[firsts],
        "source": hops.source.at(firsts),
        "target": hops.target.at(firsts),
        "copies": groups.counts(),
        **{_column(outcome): groups.sums(hops.outcome == number) for number, outcome in enumerate(OUTCOMES)},
        "sent": groups.sums(sent.known),
        "bytes": groups.sums(size.where(sent.known).values),
        "first_sent_ns": groups.least(sent),
        "last_sent_ns": groups.greatest(sent),
        "arrivals": groups.sums(received.known),
        "received_bytes": groups.sums(size.where(received.known).values),
        "first_received_ns": groups.least(received),
        "last_received_ns": groups.greatest(received),
        "last_ended_ns": groups.greatest(ended.where(received.known)),
        "in_vain": groups.sums(is_expired),
        "in_vain_bytes": groups.sums(size.where(is_expired).values),
        **grouped_value("wait", groups, sent.minus(enqueued)),
        **grouped_value("delay", groups, delay),
        **grouped_value("size", groups, size_sent, sketch=False),
        **grouped_products("size_delay", groups, size_sent, delay),
        **grouped_value("service", groups, ended.minus(began).where(received.known)),
        **grouped_value("waiting", groups, began.minus(received)),
    }
    return table_of(columns, PARTIAL_TRANSMISSIONS)


TRANSMISSION_TOTALS: Final = (
    *(Total(name, "sum") for name in ("copies", *map(_column, OUTCOMES), "sent", "arrivals", "in_vain")),
    *(Total(name, "exact") for name in ("bytes", "received_bytes", "in_vain_bytes")),
    *(Total(f"first_{name}_ns", "least") for name in ("sent", "received")),
    *(Total(f"last_{name}_ns", "greatest") for name in ("sent", "received", "ended")),
    *merged_value("wait"),
    *merged_value("delay"),
    *merged_value("size", sketch=False),
    *merged_products("size_delay"),
    *merged_value("service"),
    *merged_value("waiting"),
)


def finish_links(batch: pa.RecordBatch, *, level: float) -> dict[str, Any]:
    lost = floats(batch, "lost")
    ended = lost + floats(batch, "received")
    loss_low, loss_high = wilson_interval(lost, ended, level=level)
    line = line_from_sums(
        whole(batch, "delay_count"),
        whole(batch, "size_sum"),
        sum_of_products(batch, "size_squares"),
        whole(batch, "delay_sum"),
        sum_of_products(batch, "delay_squares"),
        sum_of_products(batch, "size_delay"),
        whole(batch, "size_max"),
        level=level,
    )
    lasted_s = (floats(batch, "last_ns") - floats(batch, "first_ns")) / 1e9
    return {
        **duration(batch, "wait"),
        **duration(batch, "delay"),
        "loss": ratio(lost, ended),
        "loss_low": loss_low,
        "loss_high": loss_high,
        "transmissions_per_s": ratio(floats(batch, "sent") - 1.0, lasted_s),
        "slowness_mean_s_per_kb": line.slope * _SLOPE_S_PER_KB,
        "slowness_low_s_per_kb": line.slope_low * _SLOPE_S_PER_KB,
        "slowness_high_s_per_kb": line.slope_high * _SLOPE_S_PER_KB,
        "slowness_variance": line.slope_variance * _SLOPE_S_PER_KB**2,
        "propagation_s": line.intercept / 1e9,
    }


_TRAFFIC_COUNTS: Final[dict[str, tuple[str, ...]]] = {
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

TRAFFIC: Final = "source string, target string, " + ", ".join(f"{name} bigint" for name in _TRAFFIC_COUNTS)
"""Per link: copies enqueued, sent, received, lost on it, dropped from its queue; bytes; expired work."""


def traffic_counts(links: pa.Table) -> dict[str, list[int]]:
    """The sums of the table, for links in one process."""
    return {
        name: [int(sum(row.values())) for row in links.select(each).to_pylist()]
        for name, each in _TRAFFIC_COUNTS.items()
    }
