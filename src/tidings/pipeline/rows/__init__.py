"""Rows as arrays: what is computed of the rows of a unit, where Arrow hands a worker a whole partition of them.

Columns and names, groups and their exact sums, sketches, and the facts as arrays. Nothing here knows Spark but for
`over_partitions`, which is how a function of a table reaches the workers.
"""

from tidings.pipeline.rows._batches import BATCHES_MOST, batch_columns, grouped_batches
from tidings.pipeline.rows._columns import (
    Names,
    Values,
    arrow_schema,
    names_of,
    names_taken,
    over_partitions,
    table_of,
    values_of,
)
from tidings.pipeline.rows._facts import Audience, EventRows, FateRows, HopRows, audience_of
from tidings.pipeline.rows._gathered import BAD, FAULTS, GATHERED, KEPT_IN, OWN, together
from tidings.pipeline.rows._groups import (
    LONGEST,
    LOW_BITS,
    Groups,
    grouped,
    grouped_products,
    grouped_value,
    packed,
    stable_order,
    truncated_quotient,
    turns,
)
from tidings.pipeline.rows._join import QUARANTINED, ROWS, Counting, JoinedRows, join_rows
from tidings.pipeline.rows._sketches import SKETCH_K, merged_sketches, sketch_quantiles, sketches

__all__ = [
    "BAD",
    "BATCHES_MOST",
    "FAULTS",
    "GATHERED",
    "KEPT_IN",
    "LONGEST",
    "LOW_BITS",
    "OWN",
    "QUARANTINED",
    "ROWS",
    "SKETCH_K",
    "Audience",
    "Counting",
    "EventRows",
    "FateRows",
    "Groups",
    "HopRows",
    "JoinedRows",
    "Names",
    "Values",
    "arrow_schema",
    "audience_of",
    "batch_columns",
    "grouped",
    "grouped_batches",
    "grouped_products",
    "grouped_value",
    "join_rows",
    "merged_sketches",
    "names_of",
    "names_taken",
    "over_partitions",
    "packed",
    "sketch_quantiles",
    "sketches",
    "stable_order",
    "table_of",
    "together",
    "truncated_quotient",
    "turns",
    "values_of",
]
