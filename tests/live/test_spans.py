"""Spans of a live network: a tree from the publisher to each delivery, on request, and never at the expense of
delivery."""

import asyncio
import contextlib
import io
import sys
import time
import types
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from tests.live.collector import Collector, new_collector
from tests.live.conftest import Place, all_up, run, running, until

from tidings.errors import DeniedError
from tidings.live import connect, connect_blocking, read_network
from tidings.live.broker._node import BrokerNode
from tidings.live.operations._logs import Log
from tidings.live.operations._metrics import _metrics
from tidings.live.operations._status import overview
from tidings.live.traces import _exporter, _span_writer
from tidings.live.traces._exporter import SpanExporter
from tidings.live.traces._spans import span_id_of, trace_id_of
from tidings.live.traces._window import DELIVERY, PUBLICATION, rows_of
from tidings.protocol import Sampler, read_context

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CLOCKS_NS = 50_000_000
ASKED, NOT_ASKED = f"00-{TRACE_ID}-{PARENT_ID}-01", f"00-{TRACE_ID}-{PARENT_ID}-00"


@pytest.fixture
def collector() -> Collector:
    return new_collector()


def trace(collector: Collector, more: str = "") -> str:
    return f'[trace]\notlp = "{collector.url}"\n{more}\n'


def named(spans: list[dict[str, Any]], name: str, broker: str) -> dict[str, Any]:
    (found,) = [span for span in spans if (span["name"], span["attributes"]["tidings.broker"]) == (name, broker)]
    return found


def times(span: dict[str, Any]) -> tuple[int, int]:
    began_ns, ended_ns = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
    assert began_ns <= ended_ns
    return began_ns, ended_ns


def test_spans_are_a_tree_from_the_publisher_to_each_delivery(place: Place, collector: Collector) -> None:
    """Three broker processes; each exports by itself, and knows nothing of the others' spans."""

    async def work() -> None:
        network = place.write("a", "b", "c", more=trace(collector))
        place.start("up", str(network.path))
        await all_up(network)
        got: list[Any] = []
        async with (
            connect(place.address("a"), name="p") as p,
            connect(place.address("c"), name="s") as s,
        ):
            await s.subscribe("n >= 0", name="all", max_delay_s=20.0, callback=got.append)
            await s.subscribe("n >= 1", name="some", callback=got.append)
            while not got:  # until b and c are known to want it
                await p.publish({"n": 0})
                await asyncio.sleep(0.05)
            got.clear()
            first = await p.publish({"n": 1, "topic": "t/1", "traceparent": ASKED, "tracestate": "x=y"}, lifetime_s=60)
            await p.publish({"n": 2, "traceparent": NOT_ASKED})
            await until(lambda: len([each for each in got if each.attributes["n"] > 0]) == 4)
            await until(lambda: len(collector.spans) >= 5)
            assert {each.traceparent for each in got if each.sequence == first} == {ASKED}
            epoch = got[-1].epoch
        spans = collector.spans
        publish, onward, further = (
            named(spans, "publish", "a"),
            named(spans, "forward", "a"),
            named(spans, "forward", "b"),
        )
        delivered = [span for span in spans if span["name"] == "deliver"]
        assert len(spans) == 5
        assert publish["parentSpanId"] == PARENT_ID
        assert onward["parentSpanId"] == publish["spanId"]
        assert further["parentSpanId"] == onward["spanId"]
        assert {span["parentSpanId"] for span in delivered} == {further["spanId"]}
        assert len({span["spanId"] for span in spans}) == 5
        for span in spans:
            facts = span["attributes"]
            assert (span["traceId"], span["traceState"]) == (TRACE_ID, "x=y")
            assert facts["messaging.message.id"] == f"p/{epoch}/{first}"
            assert facts["messaging.destination.name"] == "t/1"
            assert 0.0 < facts["tidings.time_left_s"] <= 60.0
            assert facts["tidings.age_s"] >= 0.0
            assert "status" not in span
        began = [times(span)[0] for span in (publish, onward, further, delivered[0])]
        # Each process has a clock of its own, set once by that of the machine, which may be corrected in between.
        assert all(later_ns > earlier_ns - CLOCKS_NS for earlier_ns, later_ns in pairwise(began))
        assert times(publish)[1] <= times(onward)[0]
        assert [publish["kind"], onward["kind"], delivered[0]["kind"]] == [4, 1, 5]
        by_name = {span["attributes"]["messaging.destination.subscription.name"]: span for span in delivered}
        assert by_name.keys() == {"s/all", "s/some"}
        assert by_name["s/all"]["attributes"]["tidings.time_left_s"] <= 20.0
        for span in delivered:
            assert span["links"] == [{"traceId": TRACE_ID, "spanId": publish["spanId"]}]

    with collector.serving():
        run(work())


def test_events_without_a_context_are_chosen_by_all_brokers_alike(place: Place, collector: Collector) -> None:
    async def work() -> None:
        network = place.write("a", "b", more=trace(collector, "otlp_sample = 0.3"))
        async with (
            running(network) as nodes,
            connect(place.address("a"), name="p") as p,
            connect(place.address("b"), name="s") as s,
        ):
            events = await s.subscribe("n >= 0", name="all")
            await until(lambda: len(nodes["a"].machine.gossip.interests) > 0)
            for n in range(400):
                await p.offer({"n": n})
            await p.offer({"n": 400, "traceparent": NOT_ASKED})
            await p.offer({"n": 401, "traceparent": "rubbish"})
            for _ in range(402):
                event = await anext(events)
            assert event.traceparent is None
            epoch, is_chosen = event.epoch, Sampler(0.3)
            chosen = {("p", epoch, n) for n in range(402) if n != 400 and is_chosen(("p", epoch, n))}
            await until(lambda: len(collector.spans) == 3 * len(chosen))
            assert 0 < len(chosen) < 400  # 26 tosses with .3
        spans = collector.spans
        by_trace: dict[str, list[dict[str, Any]]] = {}
        for span in spans:
            by_trace.setdefault(span["traceId"], []).append(span)
        assert by_trace.keys() == set(map(trace_id_of, chosen))
        for trace_id, found in by_trace.items():
            first = found[0]["attributes"]
            event = ("p", epoch, first["tidings.sequence"])
            assert trace_id == trace_id_of(event)
            assert sorted(span["name"] for span in found) == ["deliver", "forward", "publish"]
            publish, onward = named(found, "publish", "a"), named(found, "forward", "a")
            assert "parentSpanId" not in publish
            assert publish["spanId"] == span_id_of(trace_id, event, "", "a")
            assert onward["parentSpanId"] == publish["spanId"]
            assert named(found, "deliver", "b")["parentSpanId"] == onward["spanId"]

    with collector.serving():
        run(work())


def test_nothing_is_noted_unless_it_is_asked_for(place: Place, collector: Collector) -> None:
    async def work() -> None:
        network = place.write("a", more=trace(collector) + "[profiles]\nrecord = false\n")
        async with running(network) as nodes, connect(place.address("a"), name="s") as s:
            events = await s.subscribe("n >= 0")
            tracer = nodes["a"].driver.tracer
            assert tracer is not None
            noted: list[Any] = []
            tracer.note = lambda note, _: noted.append(note)  # type: ignore[method-assign]
            await s.publish({"n": 1})
            await s.publish({"n": 2, "traceparent": NOT_ASKED})
            assert [(await anext(events)).attributes["n"] for _ in range(2)] == [1, 2]
            assert noted == []
            await s.publish({"n": 3, "traceparent": ASKED})
            await anext(events)
            assert {note.kind for note in noted} == {"accepted", "local", "enqueued", "sent"}

    run(work())
    assert collector.requests == 0


def test_files_profiles_and_spans_have_their_own_events(place: Place, collector: Collector) -> None:
    """Of one publisher, files have a share, the window all events at this rate, and spans those that ask for it."""

    async def work() -> None:
        network = place.write("a", more=trace(collector, 'directory = "trace"\nsample = 0.3\nroll_age = "100 ms"'))
        async with running(network) as nodes, connect(place.address("a"), name="s") as s:
            events = await s.subscribe("n >= 0", name="all")
            for n in range(320):
                await s.offer({"n": n, "traceparent": ASKED} if n % 100 == 0 else {"n": n})
            for _ in range(320):
                event = await anext(events)
            ids = [("s", event.epoch, n) for n in range(320)]
            traced = [id[2] for id in ids if Sampler(0.3)(id)]
            await until(lambda: len(collector.spans) == 8)
            await until(lambda: written(place, "publications") == written(place, "deliveries") == traced)
            await until(lambda: recorded(nodes["a"], PUBLICATION) == recorded(nodes["a"], DELIVERY) == [*range(320)])
        assert {span["attributes"]["tidings.sequence"] for span in collector.spans} == {0, 100, 200, 300}

    with collector.serving():
        run(work())


def written(place: Place, table: str) -> list[int]:
    """The sequence numbers in the files of a trace."""
    files = (place.directory / "trace" / table).glob("[!_]*.parquet")
    return sorted(row["sequence"] for file in files for row in pq.read_table(file).to_pylist())


def recorded(node: BrokerNode, kind: int) -> list[int]:
    """The sequence numbers in a broker's window."""
    assert node.recorder is not None
    pieces = node.recorder.window.pieces_after(-1, node.driver.clock.now_ns()).pieces
    return sorted(row[2] for piece in pieces for row in rows_of(piece) if row[0] == kind)


def test_a_collector_that_is_down_delays_no_delivery_and_gets_the_spans_later(
    place: Place, collector: Collector
) -> None:
    async def work() -> None:
        network = place.write("a", more=trace(collector))
        async with running(network) as nodes, connect(place.address("a"), name="s") as s:
            spans, log = nodes["a"].spans, nodes["a"].log
            assert spans is not None
            log._stream = io.StringIO()
            events = await s.subscribe("n >= 0")
            for n in range(20):
                await s.publish({"n": n, "traceparent": ASKED})
            for _ in range(20):
                assert not (await anext(events)).late
            await until(lambda: "spans not exported" in log._stream.getvalue())  # type: ignore[union-attr]
            await until(lambda: spans.queued == 40)
            assert (spans.exported, spans.dropped) == (0, 0)
            with collector.serving():
                await until(lambda: spans.exported == 40)
            await until(lambda: "spans exported again" in log._stream.getvalue())  # type: ignore[union-attr]
            assert log._stream.getvalue().count("spans not exported") == 1
            await s.publish({"n": 20, "traceparent": ASKED})
            await anext(events)
            await until(lambda: spans.queued == 2)
            shown = {metric.name: metric for metric in _metrics(overview(nodes["a"]))}
            outcomes = {sample.labels["outcome"]: sample.value for sample in shown["tidings_spans"].samples}
            assert outcomes == {"exported": 40.0, "dropped": 0.0}
            assert shown["tidings_queued_spans"].samples[0].value == 2.0
        await until(lambda: (spans.exported, spans.dropped, spans.queued) == (40, 2, 0))
        assert len(collector.spans) == 40

    run(work())


def test_an_event_that_is_dropped_has_a_span_that_says_why(place: Place, collector: Collector) -> None:
    async def work() -> None:
        network = place.write("a", more=trace(collector))
        async with (
            running(network) as nodes,
            connect(place.address("a"), name="p") as p,
            connect(place.address("a"), name="s") as s,
        ):
            await s.subscribe("n >= 0", name="slow", max_held=1)
            await p.publish({"n": 0})
            await until(lambda: nodes["a"].machine.clients["s"].outbox.credit == 0)
            for n in range(1, 6):  # the broker sends one now and then, to see whether there is room
                await p.publish({"n": n, "traceparent": ASKED}, lifetime_s=0.2)
            await until(lambda: any("status" in span for span in collector.spans))
        span = next(span for span in collector.spans if "status" in span)
        assert (span["name"], span["status"]["code"]) == ("deliver", 2)
        assert span["attributes"]["error.type"] in ("expired", "hopeless")
        assert span["attributes"]["messaging.destination.subscription.name"] == "s/slow"
        assert span["attributes"]["tidings.time_left_s"] < 0.2

    with collector.serving():
        run(work())


def test_a_client_with_many_subscriptions_has_some_spans_and_a_count(
    place: Place, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_span_writer, "MAX_TOGETHER", 2)

    async def work() -> None:
        network = place.write("a", more=trace(collector))
        async with running(network) as nodes, connect(place.address("a"), name="s") as s:
            await s.subscribe_many({f"n{number}": "n >= 0" for number in range(5)})
            await s.publish({"n": 1, "traceparent": ASKED})
            spans = nodes["a"].spans
            assert spans is not None
            await until(lambda: spans.exported == 3)
            assert spans.dropped == 3

    with collector.serving():
        run(work())


def test_a_broker_that_starts_again_goes_on_with_the_trace(place: Place, collector: Collector) -> None:
    async def work() -> None:
        network = place.write("a", more=trace(collector))
        async with running(network):
            async with connect(place.address("a"), name="s", durable=True) as s:
                await s.subscribe("n >= 0", name="all")
            async with connect(place.address("a"), name="p") as p:
                await p.publish({"n": 1, "traceparent": ASKED})
            await until(lambda: [span["name"] for span in collector.spans] == ["publish"])
        async with running(read_network(network.path)), connect(place.address("a"), name="s", durable=True) as s:
            await anext(await s.subscribe("n >= 0", name="all"))
            await until(lambda: len(collector.spans) == 2)
        publish, deliver = collector.spans
        assert deliver["parentSpanId"] == publish["spanId"]
        assert deliver["attributes"]["tidings.restored"] is True
        assert times(deliver)[0] >= times(publish)[1]

    with collector.serving():
        run(work())


def test_a_refusal_is_logged_with_the_trace_id(place: Place) -> None:
    async def work() -> None:
        async with running(place.write("a")) as nodes, connect(place.address("a"), name="p") as p:
            log = nodes["a"].log
            log._stream = io.StringIO()
            await p.advertise("n > 0")
            with pytest.raises(DeniedError):
                await p.publish({"n": -1, "traceparent": NOT_ASKED})
            lines = [msgspec.json.decode(line) for line in log._stream.getvalue().splitlines()]
            (line,) = [line for line in lines if line["event"] == "refused"]
            assert line["trace_id"] == TRACE_ID

    run(work())


def test_traces_hold_their_own_sample_alone(place: Place, collector: Collector) -> None:
    """Both at once: events that were noted for their spans do not get into the Parquet files."""
    import pyarrow.parquet as pq

    more = trace(collector, 'directory = "trace"\nsample = 0.000001')

    async def work() -> None:
        async with running(place.write("a", more=more)), connect(place.address("a"), name="s") as s:
            events = await s.subscribe("n >= 0")
            await s.publish({"n": 1, "traceparent": ASKED})
            await anext(events)
            await until(lambda: len(collector.spans) == 2)

    with collector.serving():
        run(work())
    tables = {path.parent.name for path in (place.directory / "trace").glob("*/[!_]*.parquet")}
    assert "publications" not in tables
    assert pq.read_table(place.directory / "trace" / "topology").num_rows == 1


# -- the exporter ----------------------------------------------------------------------------------------------------


def wait_until(holds: Any) -> None:
    end_s = time.monotonic() + 300.0
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.005)


def exporter(collector: Collector, log: io.StringIO | None = None) -> SpanExporter:
    return SpanExporter(collector.url, msgspec.json.encode, Log("a", stream=log or io.StringIO()))


def test_the_queue_is_bounded_and_what_does_not_fit_is_counted(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_exporter, "MAX_QUEUED", 10)
    monkeypatch.setattr(_exporter, "BATCH", 4)
    log = io.StringIO()
    found = exporter(collector, log)
    for number in range(100):
        found.put(number)
    assert found.queued <= 14
    assert found.dropped >= 86
    found.close()
    wait_until(lambda: (found.exported, found.dropped, found.queued) == (0, 100, 0))
    found.put(100)
    assert found.dropped == 101
    assert log.getvalue().count("spans not exported") == 1


def test_what_the_collector_cannot_take_now_is_sent_again(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_exporter, "LEAST_PAUSE_S", 0.01)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b, other=2")
    collector.answers = [503, 429]
    with collector.serving():
        found = exporter(collector)
        found.put(1)
        wait_until(lambda: found.exported == 1)
        assert (collector.requests, collector.bodies, found.dropped) == (3, [b"[1]"], 0)
        assert (collector.headers[0]["x-key"], collector.headers[0]["other"]) == ("a b", "2")
        found.close()


def test_what_the_collector_refuses_is_dropped(collector: Collector) -> None:
    log = io.StringIO()
    collector.answers = [400]
    with collector.serving():
        found = exporter(collector, log)
        found.put(1)
        wait_until(lambda: found.dropped == 1)
        assert "400 Bad Request" in log.getvalue()
        collector.answer = b'{"partialSuccess": {"rejectedSpans": "1", "errorMessage": "too old"}}'
        found.put(2)
        wait_until(lambda: found.dropped == 2)
        collector.answer = b""
        found.put(3)
        wait_until(lambda: found.exported == 1)
        assert (found.dropped, log.getvalue().count("spans not exported")) == (2, 1)
        found.close()


def test_a_bug_in_a_span_does_not_end_the_export(collector: Collector) -> None:
    log = io.StringIO()
    with collector.serving():
        found = exporter(collector, log)
        found.put(object())
        wait_until(lambda: found.dropped == 1)
        assert "TypeError" in log.getvalue()
        found.put(2)
        wait_until(lambda: found.exported == 1)
        found.close()


# -- clients ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def current_span(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """What the client sees of OpenTelemetry: a current span, here always the same."""
    context = types.SimpleNamespace(
        is_valid=True,
        trace_id=int(TRACE_ID, 16),
        span_id=int(PARENT_ID, 16),
        trace_flags=1,
        trace_state=types.SimpleNamespace(to_header=lambda: "vendor=1"),
    )
    span = types.SimpleNamespace(get_span_context=lambda: context)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", types.SimpleNamespace(get_current_span=lambda: span))
    return context


def test_a_published_event_gets_the_current_span(place: Place, current_span: types.SimpleNamespace) -> None:
    async def work() -> None:
        async with running(place.write("a")), connect(place.address("a"), name="s") as s:
            events = await s.subscribe("n >= 0")
            own = f"00-{'1' * 32}-{'2' * 16}-00"
            await s.publish({"n": 1})
            await s.publish({"n": 2, "traceparent": own})
            await s.publish({"n": 3, "traceparent": None})  # type: ignore[dict-item]
            await s.publish_many([{"n": 4}, {"n": 5, "traceparent": own}])
            await s.publish({f"n{i}": i for i in range(255)} | {"n": 6})  # no room for more attributes
            current_span.is_valid = False
            await s.publish({"n": 7})
            got = [await anext(events) for _ in range(7)]
            assert [each.traceparent for each in got] == [ASKED, own, None, ASKED, own, None, None]
            assert got[0].attributes["tracestate"] == "vendor=1"
            assert "tracestate" not in got[1].attributes
            assert "traceparent" not in got[6].attributes

    run(work())


def test_real_opentelemetry(place: Place) -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    propagate = pytest.importorskip("opentelemetry.propagate")
    tracer = sdk.TracerProvider().get_tracer("test")

    async def work() -> None:
        async with running(place.write("a")), connect(place.address("a"), name="s") as s:
            events = await s.subscribe("n >= 0")
            with tracer.start_as_current_span("order") as span:
                await s.publish({"n": 1})
            context = propagate.extract((await anext(events)).attributes)
            parent = trace.get_current_span(context).get_span_context()
            assert (parent.trace_id, parent.span_id) == (
                span.get_span_context().trace_id,
                span.get_span_context().span_id,
            )

            def publish_elsewhere() -> int:
                with tracer.start_as_current_span("script") as inner, connect_blocking(place.address("a")) as t:
                    t.publish({"n": 2})
                    return inner.get_span_context().span_id

            span_id = await asyncio.to_thread(publish_elsewhere)
            found = read_context((await anext(events)).traceparent)
            assert found is not None
            assert (int(found.span_id, 16), found.is_sampled) == (span_id, True)

    run(work())


def test_closing_does_not_wait_for_a_collector_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setattr(_exporter, "FAREWELL_S", 0.1)
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as deaf:
        found = SpanExporter(
            f"http://127.0.0.1:{deaf.getsockname()[1]}", msgspec.json.encode, Log("a", stream=io.StringIO())
        )
        found.put(1)
        wait_until(lambda: len(found._batch) == 1)
        found.close()  # and is back before the collector answers, which is never
        assert found.exported == 0
