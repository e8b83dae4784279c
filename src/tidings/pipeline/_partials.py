"""The partials of units: the rows of whole units in, the partials of every measure out, as Arrow tables.

Partials of all kinds are rows of one table (PARTIALS): `kind` says which, and the column of that name holds it.
"""

from typing import Final

import pyarrow as pa

from tidings.pipeline.measures import (
    PARTIAL_COMPONENTS,
    PARTIAL_CONTENT,
    PARTIAL_PAIRS,
    PARTIAL_PUBLISHERS,
    PARTIAL_TRANSMISSIONS,
    RECEPTIONS,
    content_of,
    pairs_of,
    publishers_of,
    receptions_of,
    spans_of,
    transmissions_of,
)
from tidings.pipeline.rows import FAULTS, QUARANTINED, ROWS, Audience, Counting, arrow_schema, join_rows

__all__ = [
    "FAULTY",
    "KINDS",
    "PARTIALS",
    "PASSING",
    "RECEIVED",
    "UNITS",
    "UNIT_COLUMNS",
    "as_batch",
    "computed_of",
    "struct_of",
]

UNITS: Final = "units"
"""The name of the partials by unit in a run's folder."""
RECEIVED: Final = "receptions"
FAULTY: Final = "faults"
PASSING: Final = (RECEIVED, FAULTY)
"""Kinds that a run needs in between and does not keep."""

UNIT_COLUMNS: Final = "publisher string, chunk bigint, "
KINDS: Final[dict[str, str]] = {
    "pairs": PARTIAL_PAIRS,
    "transmissions": PARTIAL_TRANSMISSIONS,
    "publishers": PARTIAL_PUBLISHERS,
    "content": PARTIAL_CONTENT,
    "components": PARTIAL_COMPONENTS,
    "quarantine": QUARANTINED,
    "rows": ROWS,
    RECEIVED: UNIT_COLUMNS + RECEPTIONS,
    FAULTY: FAULTS,
}


def struct_of(columns: str) -> str:
    own = (column.split(" ", 1) for column in columns.removeprefix(UNIT_COLUMNS).split(", "))
    return f"struct<{', '.join(f'{name}: {kind}' for name, kind in own)}>"


PARTIALS: Final = f"kind string, {UNIT_COLUMNS}" + ", ".join(
    f"{kind} {struct_of(columns)}" for kind, columns in KINDS.items()
)


def computed_of(
    table: pa.Table, audience: Audience, counting: Counting, *, window_ns: int, by_unit: bool = False
) -> dict[str, pa.Table]:
    """The partials of these rows (GATHERED), which are all there is of their units, by kind.

    Receptions, which meet by slices of time, say their units only if asked to (`by_unit`).
    """
    joined = join_rows(table, audience, counting)
    pairs = pa.concat_tables(pairs_of(fates, audience, window_ns=window_ns) for fates in joined.fates)
    return {
        "pairs": pairs,
        "transmissions": transmissions_of(joined.hops),
        "publishers": publishers_of(joined.events),
        "content": content_of(joined.events, audience),
        "components": spans_of(joined.events),
        "quarantine": joined.quarantined,
        "rows": joined.rows,
        RECEIVED: receptions_of(joined.hops, by_unit=by_unit),
        FAULTY: joined.found.table(),
    }


def as_batch(kind: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of one kind as rows of PARTIALS; columns that the batch lacks are NULL."""
    length = batch.num_rows

    def column(field: pa.Field) -> pa.Array:
        has = field.name in batch.schema.names
        return batch.column(field.name) if has else pa.nulls(length, field.type)

    arrays = [pa.array([kind] * length, pa.string())]
    arrays += [column(field) for field in arrow_schema(UNIT_COLUMNS.removesuffix(", "))]
    for name, columns in KINDS.items():
        fields = list(arrow_schema(columns.removeprefix(UNIT_COLUMNS)))
        if name == kind:
            arrays.append(pa.StructArray.from_arrays([column(field) for field in fields], fields=fields))
        else:
            arrays.append(pa.nulls(length, pa.struct(fields)))
    return pa.RecordBatch.from_arrays(arrays, names=["kind", "publisher", "chunk", *KINDS])
