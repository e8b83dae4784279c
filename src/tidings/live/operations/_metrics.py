"""Prometheus metrics of one broker, in base units; nothing is labelled by event, client or subscription.

Histograms have a bucket per power of two nanoseconds, so they follow exactly from those of the broker
(`protocol/_histogram`), but for their sums: those are right within 6 %. No counter goes down: an event that counts as
dropped, and turns out to have arrived, stays counted until the next drop.

They are written by prometheus-client in a thread of their own; what they show is collected on the event loop, where the
machine is at rest. On loopback the operator's page is served beside them.
"""

import asyncio
import socket
import threading
from collections.abc import Iterator, Mapping
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
from tidings.live.page._application import page_application
from tidings.protocol import at_most, sum_ns

if TYPE_CHECKING:
    from tidings.live.broker._node import BrokerNode
    from tidings.protocol import Balance, Broker, Histogram

__all__ = ["MetricsServer", "serve_metrics"]

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
    "stored_events": ("stored", "Events that this broker answers for."),
    "remembered_events": ("seen", "Events remembered as delivered."),
}


class _Collector(Collector):
    """Asks the event loop whenever somebody looks."""

    def __init__(self, node: "BrokerNode") -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._outcomes: dict[str, int] = {}  # the most that was shown of each

    def collect(self) -> Iterator[Metric]:
        """The metrics of now."""
        yield from asyncio.run_coroutine_threadsafe(self._collect(), self._loop).result(PATIENCE_S)

    async def _collect(self) -> list[Metric]:
        machine = self._node.machine
        metrics = [*_metrics(overview(self._node)), *_histograms(machine)]
        deliveries = CounterMetricFamily(
            "tidings_deliveries", "What became of events that matched subscriptions here.", labels=["outcome"]
        )
        for outcome, many in _outcomes(machine.accounts.total, self._node.name).items():
            self._outcomes[outcome] = max(many, self._outcomes.get(outcome, 0))
            deliveries.add_metric([outcome], float(self._outcomes[outcome]))
        return [*metrics, deliveries]


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
    """How long events, and the frames with them, took."""
    transits = {name: peer.meter.transits for name, peer in sorted(machine.neighbours.items())}
    yield _histogram(
        "delivery_delay", "Age of events when applications here got them.", {"": machine.accounts.total.delays}
    )
    yield _histogram(
        "link_transit", "How long frames with events were under way from a neighbour.", transits, "neighbour"
    )
    yield _histogram("queue_wait", "How long those events waited in output queues that had to.", machine.waits, "peer")


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
        ("counts", "What happened to events that did not go straight through.", facts["counts"]),
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
        "Events that did not: it was too late, or too many waited.",
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
    yield CounterMetricFamily("tidings_store_commit_seconds", "Time spent in them.", value=store["commit_s"])
    yield GaugeMetricFamily("tidings_store_bytes", "Size of the durable store.", value=float(store["bytes"]))
    yield GaugeMetricFamily(
        "tidings_store_damaged_records", "Records that were damaged at the start.", value=float(store["damaged"])
    )
    yield GaugeMetricFamily("tidings_store_full", "1 while the store has no room.", value=float(store["full"]))
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
    """A thread for each request: one that waits for the event loop holds up nobody."""

    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    """Requests are not worth a line in the log."""

    timeout = PATIENCE_S

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class MetricsServer:
    """Metrics and page, served."""

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:
        self._server = server
        self._thread = thread

    def close(self) -> None:
        """Serve no more. A request may be waiting for the event loop, so the event loop must not wait for it."""
        threading.Thread(target=self._close, daemon=True).start()

    def _close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def serve_metrics(node: "BrokerNode", address: Address) -> MetricsServer:
    """Serve the metrics of a broker, and on loopback the page."""
    registry = CollectorRegistry()
    registry.register(_Collector(node))
    ProcessCollector(registry=registry)
    application: Any = make_wsgi_app(registry)
    if is_loopback(address.host):
        application = page_application(node, application)
        node.log.info("page", address=f"http://{address}/")
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
