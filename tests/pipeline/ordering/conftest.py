"""A small trace that is out of order, as files, and the same as plain arrays to compare with."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidings.model.trace import TABLES, publications
from tidings.ordering import Streams

MS = 1_000_000


class Trace:
    """Publishers p0, p1, ..., subscriptions s0, s1, ... that want x below a limit; some of it is lost."""

    def __init__(self, seed: int, *, publishers: int = 3, events: int = 300, readers: int = 4) -> None:
        rng = np.random.default_rng(seed)
        self.departure = np.cumsum(rng.exponential(MS, (publishers, events)), axis=1).astype(np.int64)
        delay = 5 * MS + rng.exponential(2 * MS, (readers, publishers, events))
        self.arrival = self.departure + delay.astype(np.int64)
        self.x = rng.random((publishers, events)).round(6)
        self.limit = np.linspace(0.4, 0.9, readers).round(3)
        self.matched = self.x < self.limit[:, None, None]
        self.came = self.matched & (rng.random(self.matched.shape) > 0.05)

    def streams(self, publisher: int) -> Streams:
        reader, event = np.nonzero(self.came[:, publisher])
        arrival = self.arrival[reader, publisher, event]
        order = np.lexsort((event, arrival, reader))
        return Streams.of_one_publisher(
            departure_ns=self.departure[publisher],
            stream=reader[order],
            sequence=event[order],
            arrival_ns=arrival[order],
            wanted=self.matched[:, publisher],
        )

    def publication_rows(self) -> list[dict[str, Any]]:
        return [
            {
                "publisher": f"p{publisher}",
                "sequence": event,
                "departure_ns": int(self.departure[publisher, event]),
                "broker": "b",
                "size_bytes": 100,
                "lifetime_ns": None,
                "attributes": {"x": float(self.x[publisher, event])},
            }
            for publisher, event in np.ndindex(*self.departure.shape)
        ]

    def delivery_rows(self) -> list[dict[str, Any]]:
        rows = [
            {
                "publisher": f"p{publisher}",
                "sequence": int(event),
                "subscription": f"s{reader}",
                "broker": "b",
                "arrived_ns": int(self.arrival[reader, publisher, event]),
                "delivered_ns": int(self.arrival[reader, publisher, event]),
            }
            for reader, publisher, event in zip(*np.nonzero(self.came), strict=True)
        ]
        return sorted(rows, key=lambda row: (row["arrived_ns"], row["subscription"]))

    def subscription_rows(self) -> list[dict[str, Any]]:
        return [
            {
                "subscription": f"s{reader}",
                "subscriber": f"s{reader}",
                "broker": "b",
                "filter": f"x < {limit}",
                "max_delay_ns": None,
                "price": 1.0,
                "from_ns": 0,
                "until_ns": None,
            }
            for reader, limit in enumerate(self.limit)
        ]

    def write(self, place: Path, deliveries: list[dict[str, Any]] | None = None) -> Path:
        put(place, "publications", self.publication_rows())
        put(place, "deliveries", self.delivery_rows() if deliveries is None else deliveries)
        put(place, "subscriptions", self.subscription_rows())
        return place


def put(place: Path, table: str, rows: list[dict[str, Any]], part: int = 0) -> None:
    """One file of a table."""
    schema = publications({"x": "number"}) if table == "publications" else TABLES[table]
    folder = place / table
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"_part-{part}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema), temporary)
    temporary.rename(folder / f"part-{part}.parquet")


@pytest.fixture
def make_trace() -> Callable[..., Trace]:
    return Trace


@pytest.fixture
def put_rows() -> Callable[..., None]:
    return put
