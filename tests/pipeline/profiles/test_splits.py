"""However the facts are split, the profiles are the same: exactly, but for what is read off sketches.

Rows come in another order, and partials are made of other groups of chunks, each on its own.
"""

import random
from functools import reduce
from typing import Any

import pytest
from tests.pipeline.facts import PROFILES

from tidings.pipeline.measures import SLICE_NS

from .conftest import Rows, make_facts

pytestmark = pytest.mark.spark

SKETCHED = ("_quantiles_ns", "_sketch", "_distance")
EVENTS = 1500
"""First events of each publisher that are used: two and a half slices of time."""


def chunked(rows: dict[str, Rows]) -> dict[str, Rows]:
    """The first events of each publisher in chunks of 256."""
    small = {name: rows[name] for name in ("subscriptions", "topology")}
    transitions = [
        {"kind": "link", "source": "a", "target": "b", "at_ns": at, "up": up}
        for at, up in [(10**9, False), (2 * 10**9, True), (2 * 10**9, True), (5 * 10**9, False)]
    ]
    kept = {
        name: [{**row, "chunk": row["sequence"] // 256} for row in rows[name] if row["sequence"] < EVENTS]
        for name in ("events", "fates", "transmissions")
    }
    return {**small, **kept, "transitions": transitions}


def exact(table: Any) -> list[tuple[Any, ...]]:
    columns = [name for name in table.columns if not name.endswith(SKETCHED)]
    return sorted(tuple(map(repr, row)) for row in table.select(*columns).collect())


def partials_by_group(spark: Any, rows: dict[str, Rows], profile: Any, groups: int, generator: random.Random) -> Any:
    """Partials of groups of chunks (or of slices) made one group at a time, from rows in random order."""
    group: dict[Any, int] = {}

    def mine(row: dict[str, Any], number: int) -> bool:
        if profile.by == "chunk":
            key: Any = row["publisher"], row["chunk"]
        else:
            key = (row.get("received_ns") or 0) // SLICE_NS
        return group.setdefault(key, generator.randrange(groups)) == number

    parts = []
    for number in range(groups):
        kept = {
            name: [row for row in table if name not in ("events", "fates", "transmissions") or mine(row, number)]
            for name, table in rows.items()
        }
        for table in kept.values():
            generator.shuffle(table)
        facts = make_facts(spark, **kept)
        part = profile.partial(facts)
        if number > 0 and profile.name == "components":
            part = part.where("chunk >= 0")  # the small tables are one chunk, made once
        parts.append(part)
    return reduce(lambda left, right: left.unionByName(right), parts)


QUICK = ("links", "pairs")  # one whose partials others share, and one with windows; all of them in the full tests


@pytest.mark.parametrize(
    "profile",
    [pytest.param(each, id=each.name, marks=[] if each.name in QUICK else [pytest.mark.full]) for each in PROFILES],
)
def test_any_split_merges_to_the_same(spark: Any, known_rows: dict[str, Rows], profile: Any) -> None:
    rows = chunked(known_rows)
    whole = exact(profile.merge(profile.partial(make_facts(spark, **rows))))
    assert whole
    generator = random.Random(profile.name)
    split = partials_by_group(spark, rows, profile, 3, generator)
    assert exact(profile.merge(split.repartition(3))) == whole


def test_without_facts_there_are_no_rows(spark: Any) -> None:
    nothing = make_facts(spark)
    for profile in PROFILES:
        table = profile.merge(profile.partial(nothing))
        assert table.count() == 0, profile.name
        assert len(table.columns) > 3
