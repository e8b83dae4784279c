"""From checked rows to the facts: where the rows of an event meet.

Theory of operation. Publications (with their matches), hops and deliveries are shuffled once, by publisher and chunk;
all that follows keeps that partitioning, so nothing is shuffled again:

- events: the rows of an event's publication are one group; the least of them is kept, whatever file it came from.
- pairs: the matches of events, one row each, and the deliveries are united and grouped by event and subscription. A
  group with no match, with several deliveries, or with an arrival before the departure is *suspect*. All numbers in
  this step are 64-bit integers, so Spark aggregates by hashing, not by sorting.
- hops: identical rows are one group, and its event adds departure, size and the loosest deadline.

Suspects are rare. Only their rows are read again and ranked exactly: the first arrival is kept, with ties decided by
all columns. So a clean trace does not pay for the care that a bad one needs.

A bad row travels with the good ones, its place in the quarantine (`bad`) being part of its group's key: one pass finds
facts and faults. Rows without a publisher or a sequence number are in the chunk WITHOUT_EVENT of no publisher.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from tidings.model.trace import TABLES
from tidings.pipeline._facts import CHUNK_EVENTS, WITHOUT_EVENT, Facts
from tidings.pipeline.ingest import DUPLICATE, NEGATIVE_DELAY, NOT_MATCHING, UNKNOWN_PUBLICATION, delay_is_negative
from tidings.pipeline.ingest._foreign import JSON_OPTIONS
from tidings.pipeline.ingest._paths import shown_path

__all__ = ["QUARANTINED", "UNIT", "Joined", "Sources", "Terms", "join_events", "quarantine_columns", "unit_columns"]

UNIT: Final = ("publisher", "chunk")
"""What is computed and replaced as one."""
EVENT: Final = ("publisher", "chunk", "sequence")
QUARANTINED: Final = "publisher string, chunk bigint, table string, file string, reasons array<string>, row string"
"""A row of the quarantine and the unit that it belongs to."""

_BAD: Final = "struct<file: string, reasons: array<string>, row: string>"
_KEPT: Final = ("departure_ns", "broker", "size_bytes", "lifetime_ns", "matches", "topic")

Materialise = Callable[[str, DataFrame], DataFrame]
"""Computes a DataFrame now, under a name for the progress, so that later uses do not compute it again."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Checked rows: the contract's columns, `_file`, `_raw` and `reasons`; publications have `matches` and `topic`."""

    publications: DataFrame
    hops: DataFrame
    deliveries: DataFrame


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What is counted: events from `counted_from_ns` on; clocks may differ by `clock_tolerance_ns`."""

    counted_from_ns: int = 0
    clock_tolerance_ns: int = 0
    partitions: int = 1


@dataclass(frozen=True, kw_only=True)
class Joined(Facts):
    """The facts, the rows that were found bad on the way (QUARANTINED), and how many rows there were.

    `rows` has the columns publisher, chunk, table, rows.
    """

    quarantined: DataFrame
    rows: DataFrame


def unit_columns() -> list[Column]:
    """The unit of a row, by its publisher and sequence number."""
    has_event = fn.col("publisher").isNotNull() & fn.col("sequence").isNotNull()
    chunk = fn.when(has_event, fn.expr(f"sequence div {CHUNK_EVENTS}L")).otherwise(fn.lit(WITHOUT_EVENT))
    return [fn.when(has_event, fn.col("publisher")).alias("publisher"), chunk.cast("bigint").alias("chunk")]


def quarantine_columns(table: str) -> list[Column]:
    """A checked row as a row of the quarantine."""
    shown = fn.coalesce(fn.col("_raw"), fn.to_json(fn.struct(*TABLES[table].names), JSON_OPTIONS))
    file = shown_path(fn.col("_file")).alias("file")
    return [fn.lit(table).alias("table"), file, fn.col("reasons"), shown.alias("row")]


def join_events(
    sources: Sources,
    subscriptions: DataFrame,
    topology: DataFrame,
    transitions: DataFrame,
    terms: Terms,
    materialise: Materialise,
) -> Joined:
    """The facts of all units that the sources have whole. `subscriptions` has the trace's columns and `number`."""
    publications = _placed("publications", sources.publications, [*_KEPT], terms)
    events = materialise("events", _events(publications, subscriptions))
    good = events.where("bad IS NULL")
    deliveries = _with_number(sources.deliveries, subscriptions)
    placed = _placed("deliveries", deliveries, ["number", "arrived_ns", "delivered_ns"], terms)
    pairs = materialise("pairs", _pairs(good, placed))
    is_suspect = fn.col("bad").isNull() & (
        fn.col("departure_ns").isNull() | (fn.col("copies") > 1) | _is_early("arrived_ns", terms)
    )
    suspects = pairs.where(is_suspect)
    found = pairs.where("bad IS NULL").where(~fn.coalesce(is_suspect, fn.lit(False)))
    found = found.select(*_PAIR, fn.lit(0).cast("bigint").alias("duplicates"))
    bad = [_bad_of("publications", events), _bad_of("deliveries", pairs)]
    if not suspects.isEmpty():
        ranked = materialise("suspects", _ranked(deliveries, suspects, good, terms))
        found = found.unionByName(_repaired(suspects, ranked))
        bad.append(_quarantined("deliveries", ranked))
    repeated = good.where("copies > 1")
    if not repeated.isEmpty():
        bad.append(_quarantined("publications", _repeats(sources.publications, repeated)))
    names = [name for name in TABLES["hops"].names if name not in EVENT]
    hops = materialise("hops", _hops(_placed("hops", sources.hops, names, terms), good, terms))
    bad += [_bad_of("hops", hops), _quarantined("hops", _faulty_hops(hops))]
    counted = fn.col("departure_ns") >= fn.lit(terms.counted_from_ns)
    quarantined = bad[0]
    for part in bad[1:]:
        quarantined = quarantined.unionAll(part)
    return Joined(
        events=good.where(counted).select(*EVENT, *_KEPT),
        fates=_fates(found.where(counted), subscriptions),
        transmissions=hops.where("bad IS NULL AND size(reasons) = 0").where(counted).select(*_TRANSMISSION),
        subscriptions=subscriptions,
        topology=topology,
        transitions=transitions,
        quarantined=quarantined,
        rows=_rows(events, pairs, hops),
    )


_PAIR: Final = (*EVENT, "number", "departure_ns", "size_bytes", "lifetime_ns", "topic", "arrived_ns", "delivered_ns")
_TRANSMISSION: Final = (
    *EVENT,
    *(name for name in TABLES["hops"].names if name not in EVENT),
    *("departure_ns", "size_bytes", "deadline_ns"),
)


def _placed(table: str, rows: DataFrame, names: list[str], terms: Terms) -> DataFrame:
    """The rows at the place of their unit, with only these columns and `bad`, NULL for a good row."""
    place = fn.struct(*quarantine_columns(table)[1:])
    bad = fn.when(fn.size("reasons") > 0, place).cast(_BAD).alias("bad")
    return rows.select(*unit_columns(), "sequence", *names, bad).repartition(terms.partitions, *UNIT)


def _events(publications: DataFrame, subscriptions: DataFrame) -> DataFrame:
    """One row per event, and per bad publication; `deadline_ns` is the loosest of those who want it."""
    kept = publications.groupBy(*EVENT, "bad").agg(
        fn.min(fn.struct(*_KEPT)).alias("kept"), fn.count("*").alias("copies")
    )
    # Spark takes a subquery beside a lambda but not in it.
    known = kept.select(*EVENT, "kept.*", "bad", "copies", _delays(subscriptions).alias("delays"))
    longest = fn.array_max(fn.transform("matches", lambda number: fn.get("delays", number)))
    deadline = fn.least("lifetime_ns", fn.nullif(longest, fn.lit(_NO_DEADLINE)))
    return known.select(*EVENT, *_KEPT, "bad", "copies", deadline.alias("deadline_ns"))


_NO_DEADLINE: Final = (1 << 63) - 1


def _delays(subscriptions: DataFrame) -> Column:
    """The subscribers' deadlines in order of their numbers, as one value that all rows share."""
    delay = fn.coalesce("max_delay_ns", fn.lit(_NO_DEADLINE)).alias("delay")
    pairs = fn.array_sort(fn.collect_list(fn.struct("number", delay)))
    return subscriptions.agg(pairs["delay"].alias("delays")).scalar()


def _with_number(deliveries: DataFrame, subscriptions: DataFrame) -> DataFrame:
    numbers = subscriptions.select("subscription", "number")
    return deliveries.join(fn.broadcast(numbers), "subscription", "left")


def _pairs(events: DataFrame, deliveries: DataFrame) -> DataFrame:
    """One row per event and subscription that it matches or was delivered to, and per bad delivery."""
    nothing = fn.lit(None).cast("bigint")
    wanted = events.select(
        *EVENT,
        fn.explode("matches").alias("number"),
        "departure_ns",
        "size_bytes",
        "lifetime_ns",
        fn.xxhash64("topic").alias("topic"),
        nothing.alias("arrived_ns"),
        nothing.alias("delivered_ns"),
        fn.lit(None).cast(_BAD).alias("bad"),
        fn.lit(0).cast("bigint").alias("copies"),
    )
    missing = [nothing.alias(name) for name in ("departure_ns", "size_bytes", "lifetime_ns", "topic")]
    got = deliveries.select(
        *EVENT, "number", *missing, "arrived_ns", "delivered_ns", "bad", fn.lit(1).cast("bigint").alias("copies")
    )
    firsts = [fn.min(name).alias(name) for name in _PAIR if name not in (*EVENT, "number")]
    return wanted.unionAll(got).groupBy(*EVENT, "number", "bad").agg(*firsts, fn.sum("copies").alias("copies"))


def _ranked(deliveries: DataFrame, suspects: DataFrame, events: DataFrame, terms: Terms) -> DataFrame:
    """Every delivery of a suspect pair, with its reasons; those that have none are the first arrivals."""
    pair = (*EVENT, "number")
    rows = deliveries.where(fn.size("reasons") == 0).select(*unit_columns(), *_others("deliveries"), "_file", "number")
    rows = rows.repartition(terms.partitions, *UNIT)
    known = suspects.select(*pair, "departure_ns").join(
        events.select(*EVENT, fn.lit(True).alias("is_published")), [*EVENT], "left"
    )
    judged = rows.join(known, [*pair], "inner").select(
        "*",
        fn.when(fn.col("is_published").isNull(), fn.lit(UNKNOWN_PUBLICATION))
        .when(fn.col("departure_ns").isNull(), fn.lit(NOT_MATCHING))
        .when(_is_early("arrived_ns", terms), fn.lit(NEGATIVE_DELAY))
        .alias("reason"),
    )
    order = Window.partitionBy(*pair, "reason").orderBy("arrived_ns", "delivered_ns", "broker")
    is_again = fn.col("reason").isNull() & (fn.row_number().over(order) > 1)
    reason = fn.when(is_again, fn.lit(DUPLICATE)).otherwise(fn.col("reason"))
    return judged.select(*rows.columns, fn.array_compact(fn.array(reason)).alias("reasons"))


def _repaired(suspects: DataFrame, ranked: DataFrame) -> DataFrame:
    """Suspect pairs that are wanted, with their first arrival, if one is left."""
    pair = (*EVENT, "number")
    wanted = suspects.where("departure_ns IS NOT NULL").select(
        *(name for name in _PAIR if name not in ("arrived_ns", "delivered_ns"))
    )
    is_again = fn.array_contains("reasons", DUPLICATE)
    firsts = ranked.groupBy(*pair).agg(
        fn.min(fn.when(fn.size("reasons") == 0, fn.col("arrived_ns"))).alias("arrived_ns"),
        fn.min(fn.when(fn.size("reasons") == 0, fn.col("delivered_ns"))).alias("delivered_ns"),
        fn.count_if(is_again).alias("duplicates"),
    )
    return wanted.join(firsts, [*pair], "left").select(*_PAIR, fn.coalesce("duplicates", fn.lit(0)).alias("duplicates"))


def _repeats(publications: DataFrame, repeated: DataFrame) -> DataFrame:
    """The publications of these events that are not kept."""
    rows = publications.where(fn.size("reasons") == 0).select(
        *unit_columns(), *_others("publications"), "_file", fn.struct(*_KEPT).alias("kept")
    )
    order = Window.partitionBy(*EVENT).orderBy("kept", fn.to_json("attributes"))
    again = rows.join(repeated.select(*EVENT), [*EVENT], "left_semi").select(
        "*", fn.row_number().over(order).alias("n")
    )
    return again.where("n > 1").select("*", fn.array(fn.lit(DUPLICATE)).alias("reasons"))


def _others(table: str) -> list[str]:
    return [name for name in TABLES[table].names if name != "publisher"]


def _hops(hops: DataFrame, events: DataFrame, terms: Terms) -> DataFrame:
    """One row per hop, with what its event adds and the reasons why it is bad."""
    known = events.select(*EVENT, "departure_ns", "size_bytes", "deadline_ns")
    once = hops.groupBy(*hops.columns).agg(fn.count("*").alias("copies"))
    reasons = fn.array_compact(
        fn.array(
            fn.when(fn.col("departure_ns").isNull(), fn.lit(UNKNOWN_PUBLICATION)),
            fn.when(_is_early("enqueued_ns", terms), fn.lit(NEGATIVE_DELAY)),
        )
    )
    none = fn.array().cast("array<string>")
    is_fine = fn.col("departure_ns").isNotNull() & ~_is_early("enqueued_ns", terms)
    return once.join(known.hint("shuffle_hash"), [*EVENT], "left").select(
        "*", fn.when(fn.col("bad").isNotNull() | is_fine, none).otherwise(reasons).alias("reasons")
    )


def _faulty_hops(hops: DataFrame) -> DataFrame:
    """Hops of no event or out of time, and those that are there more than once, as often as they are too many."""
    good = hops.where("bad IS NULL")
    faulty = good.where("size(reasons) > 0").select("*", fn.explode(fn.expr("sequence(1L, copies)")))
    again = good.where("copies > 1 AND size(reasons) = 0").select("*", fn.explode(fn.expr("sequence(2L, copies)")))
    again = again.withColumn("reasons", fn.array(fn.lit(DUPLICATE)))
    return faulty.unionByName(again).withColumn("_file", fn.lit(None).cast("string"))


def _is_early(name: str, terms: Terms) -> Column:
    """Whether something is before the departure of its event, beyond the tolerance."""
    early = delay_is_negative(fn.col("departure_ns"), fn.col(name), clock_tolerance_ns=terms.clock_tolerance_ns)
    return fn.coalesce(early, fn.lit(False))


def _fates(pairs: DataFrame, subscriptions: DataFrame) -> DataFrame:
    terms = fn.broadcast(subscriptions.select("number", "subscription", "max_delay_ns"))
    delay = fn.col("arrived_ns") - fn.col("departure_ns")
    fate = (
        fn.when(fn.col("arrived_ns").isNull(), "lost")
        .when(fn.col("deadline_ns").isNull() | (delay < fn.col("deadline_ns")), "on-time")
        .otherwise("late")
    )
    known = pairs.join(terms, "number", "inner").withColumn("deadline_ns", fn.least("lifetime_ns", "max_delay_ns"))
    return known.select(
        *EVENT,
        "subscription",
        "departure_ns",
        "size_bytes",
        "deadline_ns",
        "arrived_ns",
        "delivered_ns",
        fate.alias("fate"),
        "number",
        "topic",
        "duplicates",
    )


def _bad_of(table: str, rows: DataFrame) -> DataFrame:
    """The rows that were bad when they were read, as often as they were there."""
    bad = rows.where("bad IS NOT NULL").select(*UNIT, "bad", fn.explode(fn.expr("sequence(1L, copies)")))
    return bad.select(*UNIT, fn.lit(table).alias("table"), "bad.file", "bad.reasons", "bad.row")


def _quarantined(table: str, rows: DataFrame) -> DataFrame:
    """Rows with reasons in the quarantine's form."""
    row = fn.to_json(fn.struct(*TABLES[table].names), JSON_OPTIONS)
    file = shown_path(fn.col("_file")).alias("file")
    bad = rows.where(fn.size("reasons") > 0)
    return bad.select(*UNIT, fn.lit(table).alias("table"), file, "reasons", row.alias("row"))


def _rows(events: DataFrame, pairs: DataFrame, hops: DataFrame) -> DataFrame:
    """How many rows each table has in each unit."""
    counts = [
        rows.groupBy(*UNIT).agg(fn.sum("copies").alias("rows")).select(*UNIT, fn.lit(table).alias("table"), "rows")
        for table, rows in (("publications", events), ("deliveries", pairs), ("hops", hops))
    ]
    return counts[0].unionAll(counts[1]).unionAll(counts[2])
