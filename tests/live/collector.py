"""A collector of spans in a few lines: what OTLP over HTTP needs, and nothing else."""

import contextlib
import http.server
import threading
from collections.abc import Iterator
from typing import Any

import msgspec

from tidings.rehearsal._ports import free_ports


class Collector:
    """What was exported; `answers` are the statuses of the next requests, 200 for all others."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.port = port
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.answers: list[int] = []
        self.answer = b'{"partialSuccess":{}}'
        self.requests = 0

    @contextlib.contextmanager
    def serving(self) -> "Iterator[Collector]":
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.requests += 1
                status = collector.answers.pop(0) if collector.answers else 200
                if self.path != "/v1/traces":
                    status = 404
                if status == 200:
                    collector.bodies.append(body)
                    collector.headers.append(dict(self.headers))
                self.send_response(status)
                self.send_header("Content-Length", str(len(collector.answer)))
                self.end_headers()
                self.wfile.write(collector.answer)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    @property
    def spans(self) -> list[dict[str, Any]]:
        """All spans, with their attributes as a dictionary, and the broker that exported them."""
        found = []
        for body in self.bodies:
            for each in msgspec.json.decode(body)["resourceSpans"]:
                resource = plain(each["resource"]["attributes"])
                assert resource["service.name"] == "tidings"
                for scope in each["scopeSpans"]:
                    for span in scope["spans"]:
                        facts = plain(span["attributes"])
                        assert facts["tidings.broker"] == resource["service.instance.id"]
                        found.append({**span, "attributes": facts})
        return found


def plain(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    found = {}
    for each in attributes:
        ((kind, value),) = each["value"].items()
        found[each["key"]] = int(value) if kind == "intValue" else value
    return found


def new_collector() -> Collector:
    (port,) = free_ports(1)
    return Collector(port)
