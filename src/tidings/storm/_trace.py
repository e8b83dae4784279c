"""A storm as a trace (model/trace.py is the contract): the pipeline reads it like any other run.

Times are true time. A subscription is named `client/name`. A hop that was sent several times has the times of its first
sending and its first receipt; brokers take no time to process, so beginning and end are the receipt. An event dropped
by a full queue has the outcome `hopeless`, like one that a strategy gave up. An event arrives when its client has it,
and is delivered when the application gets it, possibly after the client has held it to restore order.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidings.errors import InputError
from tidings.model.trace import TABLES, publications
from tidings.storm._history import History
from tidings.storm._plan import StormPlan

__all__ = ["write_trace"]

_PUBLICATIONS = publications({"topic": "string", "level": "whole", "urgent": "boolean", "region": "string"})


def write_trace(directory: Path, plan: StormPlan, history: History) -> None:
    """Write all tables to a directory that holds no trace yet."""
    schemas = {**TABLES, "publications": _PUBLICATIONS}
    for name, schema in schemas.items():
        folder = directory / name
        if folder.is_dir() and any(folder.iterdir()):
            raise InputError(f"{directory} already holds a trace ({name}): give another directory, or remove it first")
        _write(folder, pa.Table.from_pylist(_ROWS[name](plan, history), schema=schema))


def _write(folder: Path, table: pa.Table) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / "_part-00000.parquet"
        pq.write_table(table, unfinished, compression="zstd")
        unfinished.rename(folder / "part-00000.parquet")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from None


def _publication_rows(_: StormPlan, history: History) -> list[dict[str, Any]]:
    return [
        {
            "publisher": published.id[0],
            "sequence": published.id[2],
            "departure_ns": published.departed_ns,
            "broker": published.broker,
            "size_bytes": published.size_bytes,
            "lifetime_ns": published.lifetime_ns,
            "attributes": published.attributes,
        }
        for published in history.published.values()
    ]


def _hop_rows(plan: StormPlan, history: History) -> list[dict[str, Any]]:
    rows = [
        _hop_row(id[0], id[2], None, published.broker, published.departed_ns, published.departed_ns, accepted_ns)
        for id, published in history.published.items()
        for accepted_ns in published.accepted_ns[:1]
    ]
    for (id, source, target), hop in history.hops.items():
        if target in plan.brokers:  # links to clients are not hops of the overlay
            row = _hop_row(id[0], id[2], source, target, hop.enqueued_ns, hop.sent_ns, hop.received_ns)
            rows.append({**row, "outcome": hop.outcome})
    return rows


def _hop_row(
    publisher: str,
    sequence: int,
    source: str | None,
    target: str,
    enqueued_ns: int,
    sent_ns: int | None,
    received_ns: int | None,
) -> dict[str, Any]:
    return {
        "publisher": publisher,
        "sequence": sequence,
        "source": source,
        "target": target,
        "enqueued_ns": enqueued_ns,
        "sent_ns": sent_ns,
        "received_ns": received_ns,
        "began_ns": received_ns,
        "ended_ns": received_ns,
        "outcome": "received",
    }


def _delivery_rows(_: StormPlan, history: History) -> list[dict[str, Any]]:
    return [
        {
            "publisher": delivery.event[0],
            "sequence": delivery.event[2],
            "subscription": f"{delivery.client}/{delivery.subscription}",
            "broker": delivery.home,
            "arrived_ns": delivery.at_ns - delivery.held_ns,
            "delivered_ns": delivery.at_ns,
        }
        for delivery in history.deliveries
    ]


def _subscription_rows(plan: StormPlan, history: History) -> list[dict[str, Any]]:
    mqtt = {client.name for client in plan.mqtt.clients}
    return [
        {
            "subscription": f"{known.client}/{known.name}",
            "subscriber": known.client,
            "broker": known.home,
            "filter": known.filter,
            "max_delay_ns": known.max_delay_ns,
            "price": known.price,
            "from_ns": known.confirmed_ns,
            "until_ns": known.until_ns,
        }
        for known in history.subscribed.values()
        if known.confirmed_ns is not None and known.client not in mqtt  # deliveries are those to native clients
    ]


def _transition_rows(_: StormPlan, history: History) -> list[dict[str, Any]]:
    return [
        {"kind": kind, "source": source, "target": target, "at_ns": at_ns, "up": up}
        for at_ns, kind, source, target, up in history.transitions
    ]


def _topology_rows(plan: StormPlan, _: History) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"kind": "broker", "source": broker} for broker in plan.brokers]
    pairs = [(link.one, link.other) for link in plan.links if link.one in plan.brokers]
    for one, other in (*pairs, *plan.added_links()):
        rows += [{"kind": "link", "source": one, "target": other}, {"kind": "link", "source": other, "target": one}]
    return rows


_ROWS = {
    "publications": _publication_rows,
    "hops": _hop_rows,
    "deliveries": _delivery_rows,
    "subscriptions": _subscription_rows,
    "transitions": _transition_rows,
    "topology": _topology_rows,
}
