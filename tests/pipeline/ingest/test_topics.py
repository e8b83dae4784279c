"""Topics of Kafka as traces: spans of offsets, and what becomes of records; no broker is needed."""

from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidings.errors import ConfigurationError, InputError
from tidings.pipeline import PipelineOptions, run_in_process
from tidings.pipeline.ingest import _topics, find_files
from tidings.pipeline.ingest._topics import Span, is_topics, span_of, spans_below

PLACE = "kafka://one:9092,two:9092/overlay"
SERVERS = "one:9092,two:9092"


def listed(monkeypatch: pytest.MonkeyPatch, offsets: dict[tuple[str, int], tuple[int, int]]) -> None:
    def found(_session: Any, servers: str, is_wanted: Callable[[str], bool]) -> dict[tuple[str, int], tuple[int, int]]:
        assert servers == SERVERS
        return {key: ends for key, ends in offsets.items() if is_wanted(key[0])}

    monkeypatch.setattr(_topics, "_offsets", found)


def below(known: Iterable[Span] = ()) -> list[tuple[str, int, int, int]]:
    found = spans_below(SimpleNamespace(), PLACE, [span.path for span in known])  # type: ignore[arg-type]
    return [(name, span.partition, span.start, span.end) for name, span in found]


def test_what_was_counted_is_known_again_and_the_rest_is_one_span(monkeypatch: pytest.MonkeyPatch) -> None:
    listed(monkeypatch, {("overlay.hops", 0): (0, 50), ("overlay.hops", 1): (7, 7), ("other.hops", 0): (0, 9)})
    assert below() == [("hops", 0, 0, 50)]
    first, second = (Span(SERVERS, "overlay.hops", 0, *ends) for ends in ((0, 20), (20, 40)))
    assert below([second, first]) == [("hops", 0, 0, 20), ("hops", 0, 20, 40), ("hops", 0, 40, 50)]
    assert below([Span("elsewhere:9092", "overlay.hops", 0, 0, 20)]) == [("hops", 0, 0, 50)]
    assert span_of(first.path) == first
    assert is_topics(first.path)
    assert first.partition_path == f"kafka://{SERVERS}/overlay.hops/0"


def test_what_retention_or_a_new_topic_took_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = [Span(SERVERS, "overlay.hops", 0, *ends) for ends in ((0, 20), (20, 40))]
    listed(monkeypatch, {("overlay.hops", 0): (5, 50)})
    assert below(spans) == [("hops", 0, 5, 50)]
    listed(monkeypatch, {("overlay.hops", 0): (0, 30)})
    assert below(spans) == [("hops", 0, 0, 20), ("hops", 0, 20, 30)]
    listed(monkeypatch, {("overlay.hops", 0): (40, 40)})
    assert below(spans) == []


def test_adjoining_spans_are_read_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def span(partition: int, start: int, end: int) -> Span:
        return Span(SERVERS, "t", partition, start, end)

    read: list[list[Span]] = []

    def reading(_session: Any, _servers: str, spans: Iterable[Span]) -> Any:
        read.append(list(spans))
        return SimpleNamespace()

    monkeypatch.setattr(_topics, "_read", reading)
    given = [span(1, 5, 9), span(0, 10, 20), span(0, 0, 10), span(0, 30, 40)]
    monkeypatch.setattr(_topics, "reduce", lambda _union, parts: list(parts))
    _topics.topic_lines(SimpleNamespace(), given)  # type: ignore[arg-type]
    assert read == [[span(0, 0, 20), span(1, 5, 9)], [span(0, 30, 40)]]


@pytest.mark.parametrize("place", ["kafka://host", "kafka://host/overlay", "kafka://host:9092/a/b", "kafka:///x"])
def test_a_place_names_servers_and_at_most_a_prefix(place: str) -> None:
    with pytest.raises(InputError, match="write topics as kafka://HOST:PORT/PREFIX"):
        spans_below(SimpleNamespace(), place, ())  # type: ignore[arg-type]


def test_topics_need_spark(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="topics can be read with Spark only"):
        find_files([PLACE])
    with pytest.raises(InputError, match="the engine arrow reads and writes paths only"):
        run_in_process([PLACE], tmp_path / "out")


@pytest.mark.spark
def test_the_error_names_the_connector(spark: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"spark-sql-kafka-0-10_2\.13:{spark.version}$"):
        find_files([PLACE], session=spark)


def test_a_server_that_shows_no_jvm_is_refused() -> None:
    with pytest.raises(InputError, match="a Connect server does not show; run with --master"):
        find_files([PLACE], session=SimpleNamespace(conf=SimpleNamespace(getAll={})))  # type: ignore[arg-type]


@pytest.fixture
def records(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Puts lines into topics that nobody serves: `records(publications=[...])`, a partition of each."""
    from tidings.pipeline.ingest import _foreign

    held: dict[str, list[str]] = {}

    def topic_lines(_session: Any, spans: Iterable[Span]) -> Any:
        rows = [(line, span.partition_path) for span in spans for line in held[span.topic][span.start : span.end]]
        return spark.createDataFrame(rows, "value string, _path string")

    def put(**lines: list[str]) -> str:
        for table, some in lines.items():
            held.setdefault(f"overlay.{table}", []).extend(some)
        listed(monkeypatch, {(topic, 0): (0, len(some)) for topic, some in held.items()})
        return PLACE

    monkeypatch.setattr(_foreign, "topic_lines", topic_lines)
    monkeypatch.setattr(_topics, "topic_lines", topic_lines)
    return put


PUBLICATIONS = [
    '{"publisher":"p","sequence":0,"departure_ns":1000,"attributes":{"x":1,"y":"a","z z":true,"$w":{"q":1}}}',
    '{"publisher":"p","sequence":1,"departure_ns":2000,"attributes":{"x":2.5,"y":7}}',
    '{"publisher":"p","sequence":2,"departure_ns":3000,"attributes":{"x":null,"y":false}}',
    '{"publisher":"p","sequence":3,"departure_ns":"4000","attributes":{"x":17.0}}',
    "",
]
SUBSCRIPTIONS = [
    '{"subscription":"above","filter":"x > 1.5"}',
    '{"subscription":"seven","filter":"y = 7"}',
    '{"subscription":"letter","filter":"y = \'a\'"}',
    '{"subscription":"seventeen","filter":"x = 17"}',
    '{"subscription":"no","filter":"y = FALSE"}',
    '{"subscription":"spaced","filter":"\\"z z\\""}',
]


@pytest.mark.spark
def test_every_value_of_an_attribute_stays_what_it_was(spark: Any, records: Callable[..., str], tmp_path: Path) -> None:
    from tidings.pipeline import run_pipeline, table_paths

    place = records(publications=PUBLICATIONS, subscriptions=SUBSCRIPTIONS)
    result = run_pipeline(spark, [place], tmp_path / "out")
    assert {name: score.matched for name, score in result.subscribers.items()} == {
        "above": 2,
        "seven": 1,
        "letter": 1,
        "seventeen": 1,
        "no": 1,
        "spaced": 1,
    }
    assert result.bad == 0
    assert result.rows["publications"] == 4
    # What comes later is a span of its own, and what no row can be made of is in the quarantine.
    arrival = '{"publisher":"p","sequence":3,"subscription":"above","arrived_ns":5000}'
    records(deliveries=[arrival, '{"publisher": 5', "[1]", arrival.replace(":3,", ':"x",')])
    again = run_pipeline(spark, [place], tmp_path / "out", PipelineOptions(max_bad=1.0))
    assert (again.new_files, again.recomputed, again.on_time) == (1, None, 1)
    assert again.quarantined == {"malformed": 2, "wrong-type": 1}
    bad = spark.read.parquet(table_paths(tmp_path / "out")["quarantine"]).collect()
    assert {row["file"] for row in bad} == {f"kafka://{SERVERS}/overlay.deliveries/0"}
    assert '{"line":"[1]"}' in {row["row"] for row in bad}
    assert run_pipeline(spark, [place], tmp_path / "out", PipelineOptions(max_bad=1.0)).new_files == 0


@pytest.mark.spark
def test_a_mapping_reads_records_too(spark: Any, records: Callable[..., str], tmp_path: Path) -> None:
    from tidings.pipeline import run_pipeline

    mapping = tmp_path / "mapping.toml"
    mapping.write_text("""
        time = { unit = "ms" }
        [publications]
        files = "sent*"
        format = "json-lines"
        columns = { publisher = "by", sequence = "n", departure_ns = "at" }
        [deliveries]
        files = "got"
        format = "json-lines"
        columns = { publisher = "by", sequence = "n", arrived_ns = "at", subscription = "who" }
        [[subscribers]]
        subscriber = "billing"
        filter = "TRUE"
        max_delay = "5 ms"
    """)
    sent = ['{"by":"a","n":0,"at":10}', '{"by":"a","n":1,"at":20}']
    got = ['{"by":"a","n":0,"at":12,"who":"billing"}', '{"by":"a","n":1,"at":29,"who":"billing"}']
    place = records(**{"sent-a": sent, "got": got, "other": ["x"]})
    result = run_pipeline(spark, [place], tmp_path / "out", PipelineOptions(mapping=mapping))
    assert (result.on_time, result.late, result.bad, result.files) == (1, 1, 0, 2)
    mapping.write_text(mapping.read_text().replace('"json-lines"', '"csv"'))
    with pytest.raises(InputError, match="the mapping reads deliveries as CSV, and records have no header line"):
        run_pipeline(spark, [place], tmp_path / "out", PipelineOptions(mapping=mapping))
