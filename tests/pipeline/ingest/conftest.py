"""A small trace to spoil: two publishers, two brokers, one subscription, written as files the way a test wants."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidings.model.trace import TABLES, publications

Row = dict[str, Any]
Write = Callable[..., Path]

ROWS: dict[str, list[Row]] = {
    "publications": [
        {
            "publisher": publisher,
            "sequence": sequence,
            "departure_ns": 1000 * sequence,
            "broker": "a",
            "size_bytes": 10,
            "lifetime_ns": None,
            "attributes": {"x": sequence + 0.5, "s": "red"},
        }
        for publisher in ("p", "q")
        for sequence in range(3)
    ],
    "hops": [
        {
            "publisher": "p",
            "sequence": 0,
            "source": None,
            "target": "a",
            "enqueued_ns": 0,
            "sent_ns": 5,
            "received_ns": 10,
            "began_ns": 10,
            "ended_ns": 20,
            "outcome": "received",
        }
    ],
    "deliveries": [
        {
            "publisher": "p",
            "sequence": 0,
            "subscription": "s",
            "broker": "b",
            "arrived_ns": 100,
            "delivered_ns": 100,
        }
    ],
    "subscriptions": [
        {
            "subscription": "s",
            "subscriber": "me",
            "broker": "b",
            "filter": "x > 0",
            "max_delay_ns": 1_000_000,
            "price": 1.0,
            "from_ns": 0,
            "until_ns": None,
        }
    ],
    "transitions": [],
    "topology": [
        {"kind": "broker", "source": "a", "target": None, "length_km": None, "x": None, "y": None},
        {"kind": "broker", "source": "b", "target": None, "length_km": None, "x": None, "y": None},
        {"kind": "link", "source": "a", "target": "b", "length_km": 1.0, "x": None, "y": None},
    ],
}


@pytest.fixture
def rows() -> dict[str, list[Row]]:
    """The rows of the trace, to change before they are written."""
    return {table: [dict(row) for row in some] for table, some in ROWS.items()}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes rows of one table as a file below the trace directory and gives its path."""

    def write_rows(table: str, some: list[Row], *, name: str = "part-0", schema: pa.Schema | None = None) -> Path:
        contract = publications({"x": "number", "s": "string"}) if table == "publications" else TABLES[table]
        path = tmp_path / "trace" / table / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        loose = pa.schema([field.with_nullable(True) for field in schema or contract], (schema or contract).metadata)
        pq.write_table(pa.Table.from_pylist(some, loose), path)
        return path

    return write_rows


@pytest.fixture
def trace(rows: dict[str, list[Row]], write: Write, tmp_path: Path) -> Path:
    """The whole trace as it should be."""
    for table, some in rows.items():
        write(table, some)
    return tmp_path / "trace"
