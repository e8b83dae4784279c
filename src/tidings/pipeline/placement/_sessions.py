"""Trace sessions of all publishers at once: which events are traced, who delivered them, how long everything took.

Theory of operation. A session is SESSION_EVENTS consecutive events of one publisher, and its bits one 64-bit word. Of
each publisher at most `words` sessions are traced, spread evenly over the time that it has been at its present home,
and pooled: so what is looked at does not grow with the trace, and no part of the trace is left out of sight. Which
session an event belongs to follows from its publisher's `spans` and its sequence number alone; deliveries and hops of
other events are left where they are read, before anything is shuffled. What is left is bounded by publishers, brokers
and subscriptions, and is joined, freed of duplicates and counted with native expressions: bit_or for bit vectors, sums
for times.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from tidings.pipeline.ingest import KEYS, delay_is_negative, first_of
from tidings.pipeline.interest import Interests, with_matches

__all__ = [
    "LEGS",
    "SESSION_EVENTS",
    "Events",
    "bits_of",
    "legs_of",
    "spans_of",
    "to_client_of",
    "traced_events",
    "wanted_of",
]

SESSION_EVENTS: Final = 64

_EVENT: Final = ("publisher", "sequence")


def spans_of(publications: DataFrame, *, words: int) -> DataFrame:
    """By publisher its present home, its traced sessions, and how many events it sent from when to when."""
    by_home = publications.groupBy("publisher", "broker").agg(
        fn.min("sequence").alias("first"),
        fn.max("sequence").alias("last"),
        fn.min("departure_ns").alias("from_ns"),
        fn.max("departure_ns").alias("until_ns"),
    )
    last = fn.max_by(fn.struct("broker", "first", "last"), fn.col("last"))
    spans = by_home.groupBy("publisher").agg(
        last.alias("home"),
        (fn.max("last") - fn.min("first") + 1).alias("sent"),
        fn.min("from_ns").alias("from_ns"),
        fn.max("until_ns").alias("until_ns"),
    )
    first_session = fn.expr(f"home.first div {SESSION_EVENTS}")
    sessions = fn.expr(f"home.last div {SESSION_EVENTS}") - first_session + 1
    return spans.select(
        "publisher",
        fn.col("home.broker").alias("home"),
        first_session.alias("first_session"),
        sessions.alias("sessions"),
        fn.least(sessions, fn.lit(words)).alias("words"),
        "sent",
        "from_ns",
        "until_ns",
    )


def _traced(rows: DataFrame, spans: DataFrame) -> DataFrame:
    """The rows of events in traced sessions, with the number of the `word` that their session is, and their `bit`."""
    rank = f"(sequence div {SESSION_EVENTS} - first_session)"
    word = f"{rank} * words div sessions"
    begins = f"{rank} = 0 OR ({rank} - 1) * words div sessions < {word}"
    chosen = fn.expr(f"{rank} >= 0 AND {rank} < sessions AND ({begins})")
    near = rows.join(fn.broadcast(spans), "publisher", "inner").where(chosen)
    return near.select(
        *rows.columns,
        "home",
        fn.expr(word).cast("int").alias("word"),
        (fn.col("sequence") % SESSION_EVENTS).cast("int").alias("bit"),
    )


@dataclass(frozen=True, kw_only=True)
class Events:
    """The traced events and what became of them, each row once.

    `published`: publisher, sequence, word, bit, lifetime_ns, matches. `delivered`: publisher, sequence, word, bit,
    number, broker, arrived_ns. `hops`: publisher, sequence, source, target, and the times of receptions.
    """

    published: DataFrame
    delivered: DataFrame
    hops: DataFrame

    def release(self) -> None:
        for frame in (self.published, self.delivered, self.hops):
            frame.unpersist()


def traced_events(
    publications: DataFrame,
    deliveries: DataFrame,
    hops: DataFrame,
    spans: DataFrame,
    interests: Interests,
    *,
    clock_tolerance_ns: int,
) -> Events:
    """From good rows of the three large tables, kept by Spark until `release`."""
    at_home = _traced(publications, spans).where("broker = home")
    first = fn.row_number().over(Window.partitionBy(*KEYS["publications"]).orderBy(*first_of("publications")))
    each = at_home.withColumn("_turn", first).where("_turn = 1").drop("_turn")
    published = (
        with_matches(each, interests)
        .select("publisher", "sequence", "word", "bit", "departure_ns", "lifetime_ns", "matches")
        .persist()
    )
    is_early = delay_is_negative(fn.col("departure_ns"), fn.col("arrived_ns"), clock_tolerance_ns=clock_tolerance_ns)
    came = _traced(deliveries, spans).select(*_EVENT, "number", "broker", "arrived_ns")
    delivered = (
        came.join(published, [*_EVENT], "inner")
        .where(fn.array_contains("matches", fn.col("number")) & ~is_early)
        .groupBy(*_EVENT, "word", "bit", "number")
        .agg(
            fn.min_by("broker", fn.struct("arrived_ns", "broker")).alias("broker"),
            fn.min("arrived_ns").alias("arrived_ns"),
        )
        .persist()
    )
    received = _traced(hops, spans).where("outcome = 'received' AND received_ns IS NOT NULL")
    kept = (
        received.join(published.select(*_EVENT), [*_EVENT], "left_semi")
        .dropDuplicates([*KEYS["hops"]])
        .select(*_EVENT, "source", "target", "enqueued_ns", "received_ns", "began_ns", "ended_ns")
        .persist()
    )
    return Events(published=published, delivered=delivered, hops=kept)


def bits_of(delivered: DataFrame, at: Column) -> DataFrame:
    """By publisher, broker number and word: which events were delivered there, and how many deliveries that were."""
    own = fn.expr("shiftleft(1L, bit)")
    counted = delivered.withColumn("at", at).groupBy("publisher", "at", "word")
    return counted.agg(fn.bit_or(own).alias("bits"), fn.count("*").alias("deliveries")).select(
        "publisher", "at", "word", "bits", "deliveries"
    )


def wanted_of(published: DataFrame, subscribed: DataFrame, *keys: str) -> DataFrame:
    """How many deliveries were promised, by publisher, these keys of the subscriptions, and deadline (NULL: none)."""
    each = published.select("publisher", "lifetime_ns", fn.explode("matches").alias("number"))
    deadline = fn.least("lifetime_ns", "max_delay_ns").alias("deadline_ns")
    owned = each.join(fn.broadcast(subscribed), "number", "inner").select("publisher", *keys, deadline)
    return owned.groupBy("publisher", *keys, "deadline_ns").agg(fn.count("*").alias("promised"))


LEGS: Final = {
    "transfer": "received_ns - enqueued_ns",
    "residence": "ended_ns - received_ns",
    "wait": "began_ns - received_ns",
    "service": "ended_ns - began_ns",
}


def legs_of(hops: DataFrame) -> DataFrame:
    """By publisher, source and target: receptions, and the sums of the times on the link and at the target.

    Clocks may be a little off: a time below 0 counts as 0.
    """
    sums = [column for name, text in LEGS.items() for column in _sums(name, fn.expr(text))]
    return hops.groupBy("publisher", "source", "target").agg(fn.count("*").alias("receptions"), *sums)


def to_client_of(delivered: DataFrame, hops: DataFrame) -> DataFrame:
    """By broker: the sums of the times from an event's arrival there to its arrival at a subscriber."""
    entered = hops.groupBy(*_EVENT, fn.col("target").alias("broker")).agg(fn.min("received_ns").alias("received_ns"))
    both = delivered.join(entered, [*_EVENT, "broker"], "inner")
    return both.groupBy("broker").agg(*_sums("client", fn.expr("arrived_ns - received_ns")))


def _sums(name: str, value: Column) -> list[Column]:
    """In floating point: no sum of squares of nanoseconds is sure to fit into a whole number."""
    taken = fn.when(value.isNotNull(), fn.greatest(value, fn.lit(0))).cast("double")  # greatest passes over NULL
    return [
        fn.count(taken).alias(f"{name}_samples"),
        fn.sum(taken).alias(f"{name}_total_ns"),
        fn.sum(taken * taken).alias(f"{name}_squares_ns2"),
        fn.min(taken).alias(f"{name}_least_ns"),
    ]
