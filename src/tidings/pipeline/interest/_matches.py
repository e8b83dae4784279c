"""The stage itself: publications in, the same rows with the numbers of the subscriptions that each event matches out.

Only what filters read goes to Python: the departure time and those attributes, as Arrow arrays; the other columns stay
with Spark, which puts the answer beside them without a join.
"""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidings.errors import InputError
from tidings.pipeline.interest._index_file import ship
from tidings.pipeline.interest._matcher import Matcher
from tidings.pipeline.interest._subscriptions import Interests, parse_filters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["attributes_read", "of", "with_matches"]


def of(publications: "DataFrame", subscriptions: "DataFrame") -> "DataFrame":
    """Who wants what: `publisher`, `sequence`, `departure_ns` and `subscription` of every event that one matches.

    Subscriptions have a name and a `filter`, and may have `from_ns` and `until_ns`. InputError if a filter is none.
    """
    from pyspark.sql import functions as fn

    given = ["subscription", "filter", *(name for name in ("from_ns", "until_ns") if name in subscriptions.columns)]
    table = subscriptions.select(*given).toArrow().sort_by("subscription")
    for name in ("from_ns", "until_ns"):
        if name not in given:
            table = table.append_column(name, pa.nulls(len(table), pa.int64()))
    interests, faults = parse_filters(table.append_column("number", pa.array(range(len(table)), pa.int32())))
    names = table["subscription"].to_pylist()
    if faults:
        raise InputError(f"subscription {names[faults[0].number]!r}: {faults[0].message}")
    numbered = publications.sparkSession.createDataFrame(list(enumerate(names)), "number int, subscription string")
    found = with_matches(publications, interests).select(
        "publisher", "sequence", "departure_ns", fn.explode("matches").alias("number")
    )
    return found.join(fn.broadcast(numbered), "number", "inner").drop("number")


def with_matches(publications: "DataFrame", interests: Interests) -> "DataFrame":
    """`publications` (with `departure_ns` and the struct `attributes`) and a column ``matches array<int>``.

    It holds the numbers of the subscriptions that the event satisfies and that count when it departs, ascending; it is
    never NULL. An attribute that the struct does not have is NULL in every event, and so is a NaN or an infinity.
    """
    from pyspark.sql import functions as fn

    names = attributes_read(publications, interests)
    shipped = ship(publications.sparkSession, Matcher(interests))

    def matches(departures: pa.Array, *values: pa.Array) -> pa.Array:
        return shipped.value().matches(departures, dict(zip(names, values, strict=True)))

    udf: Any = fn.arrow_udf(matches, "array<int>")  # type: ignore[attr-defined]  # it has no stub
    arguments = [fn.col("departure_ns"), *(fn.col("attributes").getField(name) for name in names)]
    others = [name for name in publications.columns if name != "matches"]
    return publications.select(*others, udf(*arguments).alias("matches"))


def attributes_read(publications: "DataFrame", interests: Interests) -> dict[str, str]:
    """The attributes that filters read and events have, in a fixed order, with their types."""
    from pyspark.sql.types import BooleanType, NullType, NumericType, StringType, StructType

    kinds = publications.schema["attributes"].dataType
    if not isinstance(kinds, StructType):
        raise InputError(f"the column 'attributes' of the publications is of type {kinds.simpleString()}, not a struct")
    names = sorted(interests.attributes.intersection(kinds.names))
    comparable = (NumericType, StringType, BooleanType, NullType)
    for name in names:
        kind = kinds[name].dataType
        # One whose files disagree is a struct with a field for each kind.
        each = [field.dataType for field in kind] if isinstance(kind, StructType) else [kind]
        if not all(isinstance(one, comparable) for one in each):
            raise InputError(
                f"the attribute {name!r} is of type {kind.simpleString()}: a filter reads it, but events have numbers, "
                f"strings and booleans only; cast it before matching"
            )
    return {name: kinds[name].dataType.simpleString() for name in names}
