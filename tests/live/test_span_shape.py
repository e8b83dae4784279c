"""Spans as values: identifiers, JSON of OTLP, and the way back into the pipeline."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.live.collector import Collector, new_collector, plain
from tests.live.conftest import Place, run, running, until
from typer.testing import CliRunner

from tidings.cli._app import app
from tidings.live import connect
from tidings.live.traces._spans import Leg, Passage, as_export, span_id_of, span_of, topic_in, trace_id_of
from tidings.mqtt._mapping import read_event, to_attributes
from tidings.mqtt._packets import Publish
from tidings.pipeline._options import PipelineOptions
from tidings.pipeline.arrow import run_in_process
from tidings.pipeline.ingest._inspection import inspect_log
from tidings.protocol import TraceContext, wire
from tidings.protocol._effects import Arrival

MAPPING = Path(__file__).parents[2] / "examples" / "foreign" / "tidings.toml"
EVENT = ("desk/é", 3, 17)
CONTEXT = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", True, "a=1")
ARRIVAL = Arrival("a", 5_000_000_000, 1_000_000_000, 2_000_000_000, 99, b"")


def passage(source: str = "", context: TraceContext | None = CONTEXT) -> Passage:
    return Passage(EVENT, context, source, ARRIVAL, 1_500_000_000, "t")


def legs() -> list[dict[str, Any]]:
    return [
        span_of("a", passage(), Leg("a", None, 1_500_000_000)),
        span_of("a", passage(), Leg("b", 1_600_000_000, 1_900_000_000)),
        span_of("b", passage("a"), Leg("c", None, 3_200_000_000, "full")),
        span_of("b", passage("a"), Leg("s", 1_700_000_000, 1_800_000_000, "received", True, "x", 500_000_000)),
    ]


def test_identifiers_follow_from_the_event_and_the_hop() -> None:
    first, onward, further, delivered = legs()
    assert (first["parentSpanId"], onward["parentSpanId"]) == (CONTEXT.span_id, first["spanId"])
    assert further["parentSpanId"] == delivered["parentSpanId"] == onward["spanId"]
    assert delivered["links"] == [{"traceId": CONTEXT.trace_id, "spanId": first["spanId"]}]
    ids = {
        span_id_of(trace, event, *ends)
        for trace in ("1" * 32, "2" * 32)
        for event in (("p", 1, 2), ("p", 12, 2), ("p/1", 2, 2), ("q", 1, 2))
        for ends in (("", "a"), ("a", "b"), ("b", "a"), ("a", "b", "x"))
    }
    assert len(ids) == 32
    assert all(len(each) == 16 for each in ids)
    assert len({trace_id_of(event) for event in (("p", 1, 2), ("p", 2, 1), ("p/1", 2, 2))}) == 3
    assert len(trace_id_of(EVENT)) == 32
    rootless = span_of("a", passage(context=None), Leg("a", None, 1_500_000_000))
    assert rootless["traceId"] == trace_id_of(EVENT)
    assert "parentSpanId" not in rootless


def test_the_topic_of_an_event() -> None:
    for attributes, topic in (({"x": 1, "topic": "t/1"}, "t/1"), ({"topic": 1}, None), ({}, None)):
        assert topic_in(wire.encode_content(wire.Content(attributes, b"", b"payload"))) == topic
    assert topic_in(wire.encode_content(wire.Content({"topic": "t" * 5_000}, b"", b""))) == "t" * 1_024
    assert topic_in(b"rubbish") is None


def test_what_spans_state() -> None:
    first, onward, further, delivered = (plain(span["attributes"]) | span for span in legs())
    assert first["messaging.destination.name"] == "t"
    assert first["messaging.message.id"] == "desk/é/3/17"
    assert (first["tidings.lifetime_ns"], first["tidings.time_left_s"], first["tidings.age_s"]) == (2 * 10**9, 1.5, 0.5)
    assert (onward["tidings.target"], onward["tidings.queue_s"], onward["tidings.sent_ns"]) == ("b", 0.1, 1_600_000_000)
    assert (further["error.type"], further["tidings.outcome"], further["tidings.time_left_s"]) == (
        "full",
        "hopeless",
        -0.2,
    )
    assert further["status"] == {"code": 2, "message": "dropped: too many events waited"}
    assert further["tidings.queue_s"] == 1.7
    assert delivered["messaging.destination.subscription.name"] == "s/x"
    assert delivered["tidings.time_left_s"] == pytest.approx(-0.3)  # the subscriber's deadline is the tighter one
    assert delivered["tidings.arrived_ns"] == 5_800_000_000
    assert (delivered["startTimeUnixNano"], delivered["endTimeUnixNano"]) == ("1500000000", "1800000000")


def test_the_json_is_that_of_the_protocol() -> None:
    """A strict parser of OTLP's messages knows every field, and reads what was meant."""
    json_format = pytest.importorskip("google.protobuf.json_format")
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    body = msgspec.json.decode(as_export({"service.name": "tidings"}, "1", legs()))
    for span in body["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for holder in (
            span,
            *span.get("links", ()),
        ):  # OTLP's JSON has identifiers in hexadecimal, protobuf's in base64
            for key in ("traceId", "spanId", "parentSpanId"):
                if key in holder:
                    holder[key] = msgspec.json.decode(msgspec.json.encode(bytes.fromhex(holder[key])))
    request = json_format.ParseDict(body, service.ExportTraceServiceRequest())
    found = request.resource_spans[0].scope_spans[0].spans
    assert [span.name for span in found] == ["publish", "forward", "forward", "deliver"]
    assert found[3].trace_id.hex() == CONTEXT.trace_id
    assert found[3].parent_span_id == found[1].span_id
    assert (found[2].status.code, found[0].kind, found[3].kind) == (2, 4, 5)
    values = {each.key: each.value for each in found[1].attributes}
    assert (values["tidings.sent_ns"].int_value, values["tidings.queue_s"].double_value) == (1_600_000_000, 0.1)


def test_mqtt_clients_pass_the_context_on_as_a_user_property() -> None:
    pair = ("traceparent", f"00-{CONTEXT.trace_id}-{CONTEXT.span_id}-01")
    packet = Publish(topic="t", payload=b"x", properties={"user": (pair,)})
    attributes = to_attributes(packet)
    assert attributes["traceparent"] == pair[1]
    there = read_event(attributes, b"x", 0)
    assert there is not None
    assert there.properties["user"] == (pair,)
    native = read_event({"topic": "t", "traceparent": pair[1]}, b"x", 0)
    assert native is not None
    assert pair in native.properties["user"]


@pytest.fixture
def collector() -> Collector:
    return new_collector()


def test_exported_spans_are_a_trace_that_the_pipeline_reads(place: Place, collector: Collector) -> None:
    """What a collector has kept gives the same figures as the accounts of the brokers."""

    async def work() -> None:
        network = place.write("a", "b", "c", more=f'[trace]\notlp = "{collector.url}"\notlp_sample = 1.0\n')
        got: list[Any] = []
        async with (
            running(network) as nodes,
            connect(place.address("a"), name="feed") as p,
            connect(place.address("c"), name="desk-1") as s,
        ):
            await s.subscribe("n >= 0", name="all", max_delay_s=2.0, callback=got.append)
            await until(lambda: len(nodes["a"].machine.gossip.interests) > 0)
            for n in range(20):
                await p.publish({"n": n, "topic": f"t/{n % 2}"})
            await until(lambda: len(got) == 20)
            await until(lambda: nodes["c"].machine.accounts.total.on_time == 20)
            await until(lambda: len(collector.spans) == 80)

    spans = place.directory / "spans"
    with collector.serving():
        run(work())
    spans.mkdir()
    (spans / "spans.jsonl").write_bytes(b"\n".join(collector.bodies))
    found = inspect_log([spans], MAPPING)
    assert (found.bad, found.collision, found.advice) == ([], None, [])
    assert {name: found.tables[name].rows for name in ("publications", "hops", "deliveries")} == {
        "publications": 20,
        "hops": 40,
        "deliveries": 20,
    }
    assert found.topics == {"t/0": 10, "t/1": 10}
    shown = CliRunner().invoke(app, ["import", "check", str(spans), "--mapping", str(MAPPING)])
    assert shown.exit_code == 0, shown.output
    result = run_in_process([spans], place.directory / "scores", PipelineOptions(mapping=MAPPING))
    assert (result.matched, result.on_time, result.late, result.lost, result.bad) == (20, 20, 0, 0, 0)
