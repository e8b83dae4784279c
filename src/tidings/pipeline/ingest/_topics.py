"""Trace rows in Kafka's topics: which there are, and how Spark reads them.

Theory of operation. A partition of a topic only grows, and a record never changes, so a span of offsets is as good as a
file: it is counted once and known again (`_manifest.py`). A run lists the offsets that each partition has now; what
lies behind the spans of the last run is one new span. If retention has removed records of a known span, or a topic was
made anew, the spans that no longer fit are gone, and what is left is one new span.

A place is ``kafka://HOST:PORT[,HOST:PORT]/PREFIX``. Its tables are the topics ``PREFIX.TABLE`` (without a prefix:
``TABLE``), each record a row as a JSON object with the columns of the contract; or, with a mapping, the topics that fit
its patterns after the prefix. Rows are read by Spark's own Kafka source, which is a jar of its own. Offsets are asked
for by the client that comes with it, since Spark's source tells them by reading every record.

Settings of Kafka's clients (``security.protocol`` and the like) are those of the session that begin with
``spark.tidings.kafka.``.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tidings.errors import ConfigurationError, InputError
from tidings.model.trace import TABLES
from tidings.pipeline._reachability import require_reachable
from tidings.pipeline._session import cause_in_jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "VARIANT_KINDS",
    "Span",
    "is_topics",
    "kinds_in",
    "new_records",
    "span_of",
    "spans_below",
    "spans_of_batch",
    "topic_lines",
]

SCHEME: Final = "kafka://"
SETTINGS: Final = "spark.tidings.kafka."
LIST_WAIT_S: Final = 30
ROWS_PER_TASK: Final = 400_000
"""A partition of a topic is one task of Spark's unless it has more; then its offsets are split."""

_PLACE: Final = re.compile(r"kafka://(?P<servers>[^/\s]+:\d+)(?:/(?P<prefix>[A-Za-z0-9._-]*))?")
_PATH: Final = re.compile(r"kafka://([^/]+)/([^/]+)/(\d+)/(\d+)-(\d+)")


class Span(NamedTuple):
    """The records of a partition from one offset up to another, as far as they are still there."""

    servers: str
    topic: str
    partition: int
    start: int
    end: int

    @property
    def path(self) -> str:
        return f"{self.partition_path}/{self.start}-{self.end}"

    @property
    def partition_path(self) -> str:
        """What rows name as their file: where they are, whatever span they were counted in."""
        return f"{SCHEME}{self.servers}/{self.topic}/{self.partition}"

    @property
    def records(self) -> int:
        return self.end - self.start


def is_topics(place: str) -> bool:
    """Whether a place, or the path of a file, is Kafka's."""
    return place.startswith(SCHEME)


def span_of(path: str) -> Span:
    found = _PATH.fullmatch(path)
    assert found is not None, path
    return Span(found[1], found[2], *map(int, found.groups()[2:]))


def spans_below(session: "SparkSession", place: str, known: Iterable[str]) -> list[tuple[str, Span]]:
    """Every span of records in a place, with the topic's name after the prefix; `known` are paths of earlier spans."""
    servers, prefix = _split(place)
    before: dict[tuple[str, int], list[Span]] = {}
    for span in sorted(span_of(path) for path in known if path.startswith(f"{SCHEME}{servers}/")):
        before.setdefault((span.topic, span.partition), []).append(span)
    offsets = _offsets(session, servers, lambda topic: topic.startswith(prefix))
    found = []
    for (topic, partition), (first, end) in sorted(offsets.items()):
        kept, at = [], first
        for span in before.get((topic, partition), []):
            if span.start != at or span.end > end:
                break
            kept.append(span)
            at = span.end
        new = [Span(servers, topic, partition, at, end)] if at < end else []
        found += [(topic.removeprefix(prefix), span) for span in (*kept, *new)]
    return found


def new_records(session: "SparkSession", place: str, patterns: Mapping[str, tuple[str, str]] | None) -> "DataFrame":
    """The stream of all records in a place: `topic`, `partition`, `offset` and `modified_us`."""
    from pyspark.sql import functions as f

    servers, prefix = _split(place)
    # Each translated by itself, and with the end of a text as Java writes it.
    named = [fnmatch.translate(pattern).replace(r"\Z", r"\z") for pattern, _ in (patterns or {}).values()]
    wanted = "|".join([*(re.escape(table) for table in TABLES), *named])
    rows = (
        session.readStream.format("kafka")
        .options(**_reader_options(session, servers))
        .option("subscribePattern", f"{re.escape(prefix)}({wanted})")
        .option("startingOffsets", "earliest")
        .load()
    )
    return rows.select("topic", "partition", "offset", f.unix_micros("timestamp").alias("modified_us"))


def spans_of_batch(place: str, records: "DataFrame") -> list[tuple[str, Span, int]]:
    """The spans of a batch of `new_records`, each with the topic's name after the prefix and when the last was made."""
    from pyspark.sql import functions as f

    servers, prefix = _split(place)
    found = records.groupBy("topic", "partition").agg(f.min("offset"), f.max("offset"), f.max("modified_us")).collect()
    return [
        (topic.removeprefix(prefix), Span(servers, topic, partition, first, last + 1), modified_us)
        for topic, partition, first, last, modified_us in sorted(map(tuple, found))
    ]


def topic_lines(session: "SparkSession", spans: Iterable[Span]) -> "DataFrame":
    """The records as `value` (text) and `_path` (kafka://SERVERS/TOPIC/PARTITION)."""
    from pyspark.sql import DataFrame

    by_servers: dict[str, list[Span]] = {}
    for span in spans:
        by_servers.setdefault(span.servers, []).append(span)
    parts = [_read(session, servers, layer) for servers, own in sorted(by_servers.items()) for layer in _layers(own)]
    return reduce(DataFrame.unionAll, parts)


def kinds_in(session: "SparkSession", spans: Sequence[Span]) -> dict[str, tuple[str, ...]]:
    """By path of a span of publications its attributes, each as ``KIND NAME``, a line for every kind of value."""
    from pyspark.sql import functions as f

    if not spans:
        return {}
    attributes = f.try_variant_get(f.try_parse_json("value"), f.lit("$.attributes"), "variant")
    lines = topic_lines(session, spans).select("_path", attributes.alias("attributes"))
    each = lines.lateralJoin(session.tvf.variant_explode(f.col("attributes").outer()))
    kind = f.regexp_extract(f.schema_of_variant("value"), "^[A-Z]+", 0)
    names = each.groupBy("_path", "key").agg(f.collect_set(kind).alias("kinds")).collect()
    found: dict[str, set[str]] = {}
    for row in names:
        some = {VARIANT_KINDS.get(kind, "string") for kind in row["kinds"]} - {""}
        found.setdefault(row["_path"], set()).update(f"{kind} {row['key']}" for kind in some)
    return {span.path: tuple(sorted(found.get(span.partition_path, ()))) for span in spans}


VARIANT_KINDS: Final = {
    "BIGINT": "whole",
    "DECIMAL": "number",
    "DOUBLE": "number",
    "FLOAT": "number",
    "BOOLEAN": "boolean",
    "VOID": "",
}
"""What a value of JSON is as an attribute; all others are text. A null says nothing."""


def _split(place: str) -> tuple[str, str]:
    """The servers of a place, and what its topics' names begin with."""
    found = _PLACE.fullmatch(place)
    if found is None:
        raise InputError(f"{place}: write topics as kafka://HOST:PORT/PREFIX, or with several HOST:PORT,HOST:PORT")
    return found["servers"], f"{found['prefix']}." if found["prefix"] else ""


def _reader_options(session: "SparkSession", servers: str) -> dict[str, str]:
    """What Spark's Kafka source needs to know beside topics."""
    given = {f"kafka.{name}": value for name, value in _settings(session).items()}
    return {**given, "kafka.bootstrap.servers": servers}


def _settings(session: "SparkSession") -> dict[str, str]:
    return {
        name.removeprefix(SETTINGS): value for name, value in session.conf.getAll.items() if name.startswith(SETTINGS)
    }


def _offsets(
    session: "SparkSession", servers: str, is_wanted: Callable[[str], bool]
) -> dict[tuple[str, int], tuple[int, int]]:
    """The first offset of each partition, and the one after its last."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    jvm: Any = getattr(session, "_jvm", None)
    if jvm is None:
        raise InputError(
            f"{SCHEME}{servers}: topics are listed by the session's own JVM, which a Connect server does not show; run "
            "with --master, or read the topics into DataFrames (docs/reference/pipeline.md#in-a-notebook)"
        )
    client, format = jvm.org.apache.kafka.clients.consumer.KafkaConsumer, jvm.org.apache.kafka.common.serialization
    if type(client).__name__ == "JavaPackage":
        raise ConfigurationError(
            f"{SCHEME}{servers}: Spark's Kafka source is not there; add it with --conf "
            f"spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:{session.version}"
        )
    addresses = [
        (host.strip("[]"), int(port)) for host, _, port in (each.rpartition(":") for each in servers.split(","))
    ]
    require_reachable(addresses, what="Kafka broker", remedy="is it running, and is this its address?")
    settings = jvm.java.util.HashMap()
    for name, value in {**_settings(session), "bootstrap.servers": servers}.items():
        settings.put(name, value)
    try:
        consumer = client(settings, format.ByteArrayDeserializer(), format.ByteArrayDeserializer())
        try:
            partitions = jvm.java.util.ArrayList()
            for topic, held in dict(consumer.listTopics(jvm.java.time.Duration.ofSeconds(LIST_WAIT_S))).items():
                for each in held if is_wanted(topic) else ():
                    partitions.add(jvm.org.apache.kafka.common.TopicPartition(topic, each.partition()))
            first, end = consumer.beginningOffsets(partitions), consumer.endOffsets(partitions)
            return {(each.topic(), each.partition()): (first[each], end[each]) for each in partitions}
        finally:
            consumer.close()
    except Py4JError as error:
        raise InputError(
            f"{SCHEME}{servers}: its topics cannot be listed: {cause_in_jvm(error)}; settings of Kafka's clients are "
            f"given as --conf {SETTINGS}NAME=VALUE"
        ) from error


def _layers(spans: Iterable[Span]) -> list[list[Span]]:
    """Adjoining spans as one, and in each list at most one of a partition, as Spark reads one range of each."""
    joined: dict[tuple[str, int], list[Span]] = {}
    for span in sorted(spans):
        own = joined.setdefault((span.topic, span.partition), [])
        if own and own[-1].end == span.start:
            own[-1] = own[-1]._replace(end=span.end)
        else:
            own.append(span)
    deepest = max((len(own) for own in joined.values()), default=0)
    return [[own[level] for own in joined.values() if level < len(own)] for level in range(deepest)]


def _read(session: "SparkSession", servers: str, spans: Sequence[Span]) -> "DataFrame":
    """One range of some partitions."""
    from pyspark.sql import functions as f

    def by_topic(value: Callable[[Span], int]) -> str:
        found: dict[str, dict[str, int]] = {}
        for span in spans:
            found.setdefault(span.topic, {})[str(span.partition)] = value(span)
        return msgspec.json.encode(found).decode()

    assigned: dict[str, list[int]] = {}
    for span in spans:
        assigned.setdefault(span.topic, []).append(span.partition)
    tasks = max(len(spans), ceil(sum(span.records for span in spans) / ROWS_PER_TASK))
    rows = (
        session.read.format("kafka")
        .options(**_reader_options(session, servers))
        .option("assign", msgspec.json.encode(assigned).decode())
        .option("startingOffsets", by_topic(lambda span: span.start))
        .option("endingOffsets", by_topic(lambda span: span.end))
        .option("minPartitions", tasks)
        .load()
    )
    path = f.concat(f.lit(f"{SCHEME}{servers}/"), f.col("topic"), f.lit("/"), f.col("partition").cast("string"))
    # A record without a value says that its key is deleted: it is no row.
    return rows.where("value IS NOT NULL").select(f.col("value").cast("string").alias("value"), path.alias("_path"))
