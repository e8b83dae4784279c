"""Portions: whole units with what they match, bounded in matches, however many subscriptions an event has."""

import pyarrow as pa
import pytest

from tidings.pipeline import _portions
from tidings.pipeline._portions import portions
from tidings.pipeline._units import CHUNK_EVENTS
from tidings.pipeline.interest import Matcher, parse_filters
from tidings.pipeline.rows import GATHERED

SUBSCRIPTIONS = 10


def matcher() -> Matcher:
    filters = [f"x >= {number}" for number in range(SUBSCRIPTIONS)]
    table = pa.table(
        {
            "number": pa.array(range(SUBSCRIPTIONS), pa.int32()),
            "filter": filters,
            "from_ns": pa.nulls(SUBSCRIPTIONS, pa.int64()),
            "until_ns": pa.nulls(SUBSCRIPTIONS, pa.int64()),
        }
    )
    return Matcher(parse_filters(table)[0])


def rows(units: int, events: int) -> pa.Table:
    """Units of so many events and a hop for each, in no order, and two rows without an event."""
    given = []
    for sequence in range(events):
        for unit in range(units):
            event = {"publisher": f"p{unit % 2}", "sequence": unit // 2 * CHUNK_EVENTS + sequence}
            given += [
                {**event, "of": 1, "target": "b", "sent_ns": 5},
                {**event, "of": 0, "departure_ns": 1, "attributes": {"x": sequence % 12}},
            ]
    given += [{"of": 0, "publisher": "p0"}, {"of": 2, "sequence": 3}]
    schema = GATHERED.remove(GATHERED.get_field_index("matches"))
    return pa.Table.from_pylist(given, schema.append(pa.field("attributes", pa.struct([("x", pa.int64())]))))


def unit_of(row: dict[str, object]) -> tuple[object, object]:
    sequence = row["sequence"]
    return row["publisher"], sequence // CHUNK_EVENTS if isinstance(sequence, int) else None


@pytest.mark.parametrize(("most", "least_portions"), [(1 << 23, 1), (200, 3), (1, 8)])
def test_portions_are_whole_units_with_their_matches(
    most: int, least_portions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_portions, "MATCHES_MOST", most)
    monkeypatch.setattr(_portions, "EVENTS_LEAST", 1)
    given = rows(8, 12)
    found = [part.to_pylist() for part in portions(given, matcher(), SUBSCRIPTIONS)]
    assert len(found) >= least_portions
    units = [{unit_of(row) for row in part} for part in found]
    assert sum(map(len, units)) == len(set.union(*units))
    for part in found:
        assert len({unit_of(row) for row in part if row["of"] == 0}) == 1 or (
            sum(len(row["matches"] or ()) for row in part) <= most
        )
        for row in part:
            assert list(row) == GATHERED.names
            if row["of"] == 0 and row["departure_ns"] is not None:
                assert row["matches"] == list(range(min(SUBSCRIPTIONS, row["sequence"] % CHUNK_EVENTS % 12 + 1)))
    asked = [name for name in GATHERED.names if name != "matches"]
    before, after = (
        sorted(map(repr, (tuple(row[name] for name in asked) for row in some)))
        for some in (given.to_pylist(), [row for part in found for row in part])
    )
    assert before == after


def test_no_filter_reads_an_attribute() -> None:
    given = rows(1, 2).drop_columns("attributes")
    (found,) = portions(given, matcher(), SUBSCRIPTIONS)
    assert [row["matches"] for row in found.to_pylist() if row["of"] == 0] == [[], [], []]
