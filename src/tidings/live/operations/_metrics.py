"""Prometheus metrics of one broker, in base units; nothing is labelled by event, client or subscription.

Histograms have a bucket per power of two nanoseconds, so they follow exactly from the broker's own
(`protocol/_histogram`), except for their sums, which are right within 6 %. No counter goes down: an event that was
counted as dropped and turns out to have arrived stays counted until the next drop.

A thread of prometheus-client writes them; their values are collected on the event loop, between two turns of the
machine. Beside them is `/ready`, for systems that decide whether a broker gets connections (Kubernetes, load
balancers), and on loopback the operator's page.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidings.errors import TidingsError
from tidings.live.configuration._config import is_loopback
from tidings.live.configuration._schema import Address
from tidings.live.operations._status import overview
from tidings.protocol import at_most, sum_ns

if TYPE_CHECKING:
    from tidings.live.broker._node import BrokerNode
    from tidings.protocol import Balance, Broker, Histogram

__all__ = ["MetricsServer", "Wsgi", "serve_metrics"]

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

PATIENCE_S: Final = 5.0
EDGES_NS: Final = tuple(1 << power for power in range(15, 37))
"""From 33 us to 69 s."""

_GAUGES: Final = {
    "up_seconds": ("up_s", "Age of this life of the broker."),
    "ready": ("ready", "1 if events are accepted."),
    "draining": ("draining", "1 if the broker is about to stop."),
    "utilisation_ratio": ("utilisation", "Share of one processor used in the last second."),
    "clients": ("clients", "Clients known, connected or not."),
    "clients_connected": ("clients_connected", "Clients connected."),
    "queued_events": ("queued", "Events that wait for a link or a client."),
    "under_way_events": ("under_way", "Events sent and not yet acknowledged."),
    "subscriptions": ("subscriptions", "Subscriptions of this broker's clients."),
    "remote_subscriptions": ("subscriptions_elsewhere", "Subscriptions known of other brokers."),
    "stored_events": ("stored", "Events that this broker holds."),
    "remembered_events": ("seen", "Events remembered as delivered."),
}


class _Collector(Collector):
    """Asks the event loop on every scrape."""

    def __init__(self, node: "BrokerNode") -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._outcomes: dict[str, int] = {}  # the largest value shown of each

    def collect(self) -> Iterator[Metric]:
        """The present metrics."""
        yield from asyncio.run_coroutine_threadsafe(self._collect(), self._loop).result(PATIENCE_S)

    async def _collect(self) -> list[Metric]:
        machine = self._node.machine
        metrics = [*_metrics(overview(self._node)), *_histograms(machine)]
        deliveries = CounterMetricFamily(
            "tidings_deliveries", "Outcomes of events that matched subscriptions here.", labels=["outcome"]
        )
        for outcome, many in _outcomes(machine.accounts.total, self._node.name).items():
            self._outcomes[outcome] = max(many, self._outcomes.get(outcome, 0))
            deliveries.add_metric([outcome], float(self._outcomes[outcome]))
        replaced = self._outcomes["replaced"] = max(machine.accounts.total.replaced, self._outcomes.get("replaced", 0))
        meaning = "Events for subscriptions here that a newer one of their key has replaced, as they want it."
        return [
            *metrics,
            deliveries,
            CounterMetricFamily("tidings_replaced_deliveries", meaning, value=float(replaced)),
        ]


def _outcomes(total: "Balance", name: str) -> dict[str, int]:
    here, client = total.dropped_by.get(name, 0), total.dropped_by.get("client", 0)
    return {
        "on_time": total.on_time,
        "late": total.late,
        "dropped_here": here,
        "dropped_upstream": total.dropped - here - client,
        "dropped_client": client,
        "lost": total.lost,
    }


def _histograms(machine: "Broker") -> Iterator[Metric]:
    """Delays of events and of the frames that carry them."""
    transits = {name: peer.meter.transits for name, peer in sorted(machine.neighbours.items())}
    yield _histogram(
        "delivery_delay", "Age of events when applications here got them.", {"": machine.accounts.total.delays}
    )
    yield _histogram("link_transit", "Transit time of frames with events from a neighbour.", transits, "neighbour")
    yield _histogram("queue_wait", "How long events waited in output queues, if they had to.", machine.waits, "peer")


def _histogram(name: str, meaning: str, found: Mapping[str, "Histogram"], label: str = "") -> Metric:
    metric = HistogramMetricFamily(f"tidings_{name}_seconds", meaning, labels=[label] if label else None)
    for value, histogram in found.items():
        below = zip((str(edge / 1e9) for edge in EDGES_NS), at_most(histogram, EDGES_NS), strict=True)
        buckets = [*((edge, float(many)) for edge, many in below), ("+Inf", float(sum(histogram.values())))]
        metric.add_metric([value] if label else [], buckets, sum_value=sum_ns(histogram) / 1e9)
    return metric


def _metrics(facts: dict[str, Any]) -> Iterator[Metric]:
    for name, (key, meaning) in _GAUGES.items():
        yield GaugeMetricFamily(f"tidings_{name}", meaning, value=float(facts[key]))
    for name, meaning, labels in (
        ("sent_frames", "Frames sent, by message.", facts["sent"]),
        ("counts", "What happened to events that could not leave at once.", facts["counts"]),
        ("refused_frames", "Frames and connections refused, by rule.", facts["refused"]),
    ):
        counter = CounterMetricFamily(f"tidings_{name}", meaning, labels=["kind"])
        for label, count in labels.items():
            counter.add_metric([label], float(count))
        yield counter
    yield CounterMetricFamily(
        "tidings_transfers", "Events that left this broker in time.", value=float(facts["transfers"])
    )
    yield CounterMetricFamily(
        "tidings_dropped_events",
        "Events that this broker dropped: too late, or too many waited.",
        value=float(facts["dropped"]),
    )
    moves = facts["moves"]
    yield GaugeMetricFamily("tidings_moves_under_way", "Clients that are moving away.", value=float(moves["moving"]))
    yield CounterMetricFamily("tidings_moves_asked", "Clients asked to move.", value=float(moves["asked"]))
    ended = CounterMetricFamily("tidings_moves", "Moves of clients from here, by how they ended.", labels=["outcome"])
    for outcome in ("done", "called_off"):
        ended.add_metric([outcome], float(moves[outcome]))
    yield ended
    store = facts["store"]
    yield CounterMetricFamily("tidings_store_commits", "Group commits.", value=float(store["commits"]))
    yield CounterMetricFamily("tidings_store_commit_seconds", "Time spent in commits.", value=store["commit_s"])
    yield GaugeMetricFamily("tidings_store_bytes", "Size of the durable store.", value=float(store["bytes"]))
    yield GaugeMetricFamily(
        "tidings_store_damaged_records", "Records that were damaged at the start.", value=float(store["damaged"])
    )
    yield GaugeMetricFamily("tidings_store_full", "1 while the store has no room.", value=float(store["full"]))
    if facts["spans"] is not None:
        spans = CounterMetricFamily("tidings_spans", "Spans, by what became of them.", labels=["outcome"])
        for outcome in ("exported", "dropped"):
            spans.add_metric([outcome], float(facts["spans"][outcome]))
        yield spans
        queued = float(facts["spans"]["queued"])
        yield GaugeMetricFamily("tidings_queued_spans", "Spans that wait for the collector.", value=queued)
    links = GaugeMetricFamily("tidings_link_up", "1 if the neighbour is heard.", labels=["neighbour"])
    for name in facts["absent"]:
        links.add_metric([name], 0.0)
    for name, peer in facts["neighbours"].items():
        links.add_metric([name], float(peer["up"]))
    yield links
    for key, metric, meaning in (
        ("queued", "link_queued_events", "Events that wait for the link."),
        ("rtt_s", "link_round_trip_seconds", "Smoothed round trip."),
        ("mean_s_per_kb", "link_slowness_seconds_per_kilobyte", "Measured slowness."),
    ):
        gauge = GaugeMetricFamily(f"tidings_{metric}", meaning, labels=["neighbour"])
        for name, peer in facts["neighbours"].items():
            if peer[key] is not None:
                gauge.add_metric([name], float(peer[key]))
        yield gauge


class _Server(ThreadingMixIn, WSGIServer):
    """One thread for each request: a request that waits for the event loop delays no other."""

    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    """Requests are not logged."""

    timeout = PATIENCE_S

    def setup(self) -> None:
        """A reader that takes nothing for PATIENCE_S is gone, which is no error of ours."""
        super().setup()
        write = self.wfile.write

        def write_or_end(data: Any) -> int:
            try:
                return write(data)
            except TimeoutError:
                raise BrokenPipeError from None

        self.wfile.write = write_or_end  # type: ignore[method-assign]

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


class MetricsServer:
    """The server of metrics and page."""

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:
        self._server = server
        self._thread = thread

    def close(self) -> None:
        """Stop serving. A request may be waiting for the event loop, so the event loop must not wait for it."""
        threading.Thread(target=self._close, daemon=True).start()

    def _close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _with_readiness(node: "BrokerNode", application: Wsgi) -> Wsgi:
    """The application, and `/ready`: 200 if events are accepted, 503 while the broker starts, drains or hangs."""
    loop = asyncio.get_running_loop()

    async def state() -> str:
        return "draining" if node.is_draining else "ready" if node.machine.is_ready else "starting"

    def answer(request: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        if request.get("PATH_INFO") != "/ready":
            return application(request, respond)
        try:
            found = asyncio.run_coroutine_threadsafe(state(), loop).result(PATIENCE_S)
        except (TimeoutError, RuntimeError):  # it has stopped, or is stuck
            found = "not answering"
        respond("200 OK" if found == "ready" else "503 Service Unavailable", [("Content-Type", "text/plain")])
        return [f"{found}\n".encode()]

    return answer


def serve_metrics(node: "BrokerNode", address: Address, page: "Callable[[BrokerNode, Wsgi], Wsgi]") -> MetricsServer:
    """Serve the metrics of a broker and `/ready`; on loopback, `page` adds the operator's page to the application."""
    registry = CollectorRegistry()
    registry.register(_Collector(node))
    ProcessCollector(registry=registry)
    application: Any = make_wsgi_app(registry)
    if is_loopback(address.host):
        application = page(node, application)
        node.log.info("page", address=f"http://{address}/")
    application = _with_readiness(node, application)
    kind = _Server6 if ":" in address.host else _Server
    try:
        server = make_server(address.host, address.port, application, kind, handler_class=_Quiet)
    except OSError as error:
        raise TidingsError(
            f"broker {node.name!r} cannot serve metrics at {address}: {error.strerror or error}; give another port"
        ) from None
    thread = threading.Thread(target=server.serve_forever, name="tidings-metrics", daemon=True)
    thread.start()
    node.log.info("metrics", address=f"http://{address}/metrics")
    return MetricsServer(server, thread)
