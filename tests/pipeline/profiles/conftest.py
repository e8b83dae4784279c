"""Facts for the tests: of a simulated network whose parameters are known, joined in plain Python."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.facts import EVENTS, FATES, TRANSMISSIONS, Facts

from tidings.model import Filter, Scenario
from tidings.simulation import simulate

CHUNK = 512
"""Events in a chunk here: small, so that every publisher has several."""

KNOWN = """
duration = "300 s"
seed = 5
topology = { kind = "explicit", brokers = ["a", "b"], links = [["a", "b"]], direction = "forward" }

[links]
slowness = { law = "normal", mean = "20 ms/kB", sd = "4 ms/kB" }
propagation = "3 ms"
loss = 0.05

[brokers]
service = { law = "uniform", low = "0 ms", high = "20 ms" }

[[publishers]]
name = "p"
at = "a"
count = 2
rate = "10 /s"
size = { law = "uniform", low = "200 B", high = "1800 B" }
attributes = { x = { values = [1, 2, 3, 4] } }

[[subscribers]]
name = "near"
at = "a"
filter = "x > 0"

[[subscribers]]
name = "far"
at = "b"
filter = "x <= 3"

[policies]
scheduling = "fifo"
"""

Rows = list[dict[str, Any]]
ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "array<int>": pa.list_(pa.int32()),
}

SUBSCRIPTIONS = "subscription string, subscriber string, price double, number int"
TOPOLOGY = "kind string, source string, target string, length_km double, x double, y double"
TRANSITIONS = "kind string, source string, target string, at_ns bigint, up boolean"


def frame(rows: Rows, schema: str) -> pa.Table:
    """Rows as a table with exactly these columns; what a row does not say is NULL."""
    columns = [tuple(column.split()) for column in schema.split(", ")]
    kinds = pa.schema([(name, ARROW[kind]) for name, kind in columns])
    return pa.Table.from_pylist([{name: row.get(name) for name, _ in columns} for row in rows], kinds)


def make_facts(
    *,
    events: Rows = [],  # noqa: B006 (never changed)
    fates: Rows = [],  # noqa: B006
    transmissions: Rows = [],  # noqa: B006
    subscriptions: Rows = [],  # noqa: B006 (unless given, those of the fates)
    topology: Rows = [],  # noqa: B006
    transitions: Rows = [],  # noqa: B006
) -> Facts:
    if not subscriptions:
        names = sorted({row["subscription"] for row in fates})
        subscriptions = [{"subscription": name, "number": number} for number, name in enumerate(names)]
        numbers = {name: number for number, name in enumerate(names)}
        fates = [{**row, "number": numbers[row["subscription"]]} for row in fates]
    subscriptions = [{"price": 1.0, **row} for row in subscriptions]
    return Facts(
        events=frame(events, EVENTS),
        fates=frame(fates, FATES),
        transmissions=frame(transmissions, TRANSMISSIONS),
        subscriptions=frame(subscriptions, SUBSCRIPTIONS),
        topology=frame(topology, TOPOLOGY),
        transitions=frame(transitions, TRANSITIONS),
    )


def read(directory: Path, table: str) -> Rows:
    return list(pa.concat_tables(pq.read_table(part) for part in sorted((directory / table).iterdir())).to_pylist())


def join(directory: Path) -> dict[str, Rows]:
    """The facts of a trace, in memory: for small traces, and independent of how the job joins them."""
    subscriptions = [{**row, "number": number} for number, row in enumerate(read(directory, "subscriptions"))]
    filters = [Filter.parse(row["filter"]) for row in subscriptions]
    arrived = {
        (row["publisher"], row["sequence"], row["subscription"]): row["arrived_ns"]
        for row in read(directory, "deliveries")
    }
    events, fates = [], []
    for row in read(directory, "publications"):
        matches = [number for number, wanted in enumerate(filters) if wanted.matches(row["attributes"])]
        event = {**row, "chunk": row["sequence"] // CHUNK, "matches": matches}
        events.append(event)
        for number in matches:
            name = subscriptions[number]["subscription"]
            at_ns = arrived.get((row["publisher"], row["sequence"], name))
            fates.append({**event, "number": number, "subscription": name, "arrived_ns": at_ns, "delivered_ns": at_ns})
    by_event = {(row["publisher"], row["sequence"]): row for row in events}
    transmissions = [{**by_event[row["publisher"], row["sequence"]], **row} for row in read(directory, "hops")]
    return {
        "events": events,
        "fates": fates,
        "transmissions": transmissions,
        "subscriptions": subscriptions,
        "topology": read(directory, "topology"),
        "transitions": read(directory, "transitions"),
    }


@pytest.fixture(scope="session")
def known_rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    """What happened in the network KNOWN."""
    directory = tmp_path_factory.mktemp("known")
    (directory / "known.toml").write_text(KNOWN, "utf-8")
    simulate(Scenario.load(directory / "known.toml").expand(), out=directory / "trace")
    return join(directory / "trace")


@pytest.fixture(scope="session")
def known(known_rows: dict[str, Rows]) -> Facts:
    return make_facts(**known_rows)
