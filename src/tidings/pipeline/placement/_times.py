"""The times of a network, from the traced events: sums by link and by broker, added up by Spark, then `times_of`."""

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from tidings.errors import InputError
from tidings.pipeline.placement._network import NetworkTables
from tidings.pipeline.placement._sessions import LEGS, Events, to_client_of
from tidings.placement import Sums, Times, times_of

__all__ = ["measured_times"]


def measured_times(tables: NetworkTables, events: Events, legs: DataFrame, *, needs_links: bool = False) -> Times:
    """Times on links and at brokers are of `legs_of`; those to clients of the deliveries.

    Where all readers of all publishers are at their brokers, no link has a time; `needs_links` makes that an error.
    """
    overlay = tables.overlay
    names = [f"{leg}_{field}" for leg in LEGS for field in Sums._fields]
    sums = [(fn.min if "_least_" in name else fn.sum)(name).alias(name) for name in names]
    rows = (
        legs.groupBy("source", "target")
        .agg(*sums)
        .join(fn.broadcast(tables.brokers.toDF("target", "at")), "target", "inner")
        .join(fn.broadcast(tables.links), ["source", "target"], "left")
        .select("at", "link", *names)
        .toArrow()
    )
    clients = to_client_of(events.delivered, events.hops).join(fn.broadcast(tables.brokers), "broker", "inner")
    transfer = _summed(rows, "transfer", "link", overlay.link_count)
    if needs_links and overlay.link_count and not transfer.samples.any():
        raise InputError(
            "no traced event got from one broker to another, so nothing is known of links: for deadlines, trace a "
            'network that forwards events that are late (expired = "forward"), or choose objective load or delay'
        )
    return times_of(
        overlay,
        residence=_summed(rows, "residence", "at", overlay.broker_count),
        wait=_summed(rows, "wait", "at", overlay.broker_count),
        service=_summed(rows, "service", "at", overlay.broker_count),
        transfer=transfer,
        to_client=_summed(clients.toArrow(), "client", "at", overlay.broker_count),
    )


def _summed(rows: pa.Table, leg: str, key: str, count: int) -> Sums:
    """The sums of a leg by broker or link; rows that are of none (the links of publishers) are left out."""
    at = rows[key].to_numpy(zero_copy_only=False).astype(np.float64)
    known = ~np.isnan(at)
    found = {}
    for name in Sums._fields:
        values = rows[f"{leg}_{name}"].to_numpy(zero_copy_only=False).astype(np.float64)[known]
        combine, nothing = (np.minimum, np.inf) if name.startswith("least") else (np.add, 0.0)
        summed = np.full(count, nothing)
        combine.at(summed, at[known].astype(np.int64), np.where(np.isnan(values), nothing, values))
        found[name] = np.where(np.isinf(summed), 0.0, summed)
    return Sums(**found)
