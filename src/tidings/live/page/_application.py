"""The page beside the metrics: its files, and the status that it shows.

- `/status.json` is what `tidings status --json` prints: this broker asks all brokers of its network, itself included,
  and those that do not answer within PATIENCE_S are down. However many readers there are, the brokers are asked once
  per FRESH_S.
- `/events` pushes the same once per PUSH_S, as server-sent events, to at most READERS_MAX readers, each in a thread of
  its own; further ones are refused, and their pages ask for `/status.json` instead.
- The page shows more than metrics do (names of clients), and asks for no password. So it is served on loopback only,
  and only if the request names this machine: a web site whose own name resolves to this machine gets nothing.
- The page loads nothing but its own files, and its headers allow nothing else.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidings.errors import TidingsError
from tidings.live.configuration._config import is_loopback
from tidings.live.operations._metrics import Wsgi
from tidings.live.operations._query import ask_network
from tidings.live.operations._status import network_status

if TYPE_CHECKING:
    from tidings.live.broker._node import BrokerNode

__all__ = ["OverlayStatus", "page_application"]

PATIENCE_S: Final = 1.0
FRESH_S: Final = 0.5
PUSH_S: Final = 1.0
READERS_MAX: Final = 32
_ANSWER_S: Final = 10.0
_NO_ANSWER: Final = (TimeoutError, TidingsError, RuntimeError)
_FILES: Final = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    **{
        f"/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8")
        for name in ("map", "page", "status", "subscriber", "tables", "tiles", "troubles", "words")
    },
}
_HEADERS: Final = [
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
]


class OverlayStatus:
    """The status of the whole network as seen by one broker; requested on the event loop."""

    def __init__(self, node: "BrokerNode") -> None:
        self._node = node
        self._asking: asyncio.Task[bytes] | None = None
        self._asked_s = float("-inf")
        self._histories: dict[str, Any] = {}  # the last of each broker, for when it is down

    async def now(self) -> bytes:
        """The status as JSON, at most FRESH_S old."""
        if self._asking is None or (self._asking.done() and time.monotonic() - self._asked_s >= FRESH_S):
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> bytes:
        node = self._node
        brokers = await ask_network(node.network, patience_s=PATIENCE_S, known={node.name: node.snapshots.latest()})
        self._asked_s = time.monotonic()
        known = {broker["name"]: broker["history"] for broker in brokers if "history" in broker}
        self._histories |= known
        self._histories = {name: self._histories[name] for name in node.network.brokers if name in self._histories}
        for broker in brokers:
            if not broker["up"] and broker["name"] in self._histories:
                broker["history"] = self._histories[broker["name"]]
        return msgspec.json.encode(network_status(brokers, file=str(node.network.path)))


class _Pushed:
    """A stream of server-sent events, until the reader or the broker is gone."""

    def __init__(self, ask: Callable[[], bytes], readers: threading.BoundedSemaphore) -> None:
        self._ask = ask
        self._readers: threading.BoundedSemaphore | None = readers

    def __iter__(self) -> Iterator[bytes]:
        while True:
            try:
                found = self._ask()
            except _NO_ANSWER:
                return
            yield b"data: " + found + b"\n\n"
            time.sleep(PUSH_S)

    def close(self) -> None:
        """Called by the server at the end, whatever ended it."""
        readers, self._readers = self._readers, None
        if readers is not None:
            readers.release()


def page_application(node: "BrokerNode", metrics: Wsgi) -> Wsgi:
    """The given metrics, and the page with its status; made on the event loop, called by other threads."""
    status, loop = OverlayStatus(node), asyncio.get_running_loop()
    readers = threading.BoundedSemaphore(READERS_MAX)

    def ask() -> bytes:
        return asyncio.run_coroutine_threadsafe(status.now(), loop).result(_ANSWER_S)

    def application(request: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        path = request.get("PATH_INFO", "/")
        if path == "/metrics":
            return metrics(request, respond)
        if request.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return _answer(respond, "405 Method Not Allowed", "text/plain", b"read only\n")
        if not _is_of_this_machine(request.get("HTTP_HOST", "")):
            return _answer(respond, "403 Forbidden", "text/plain", b"ask for the page at 127.0.0.1 or localhost\n")
        if path == "/status.json":
            try:
                found = ask()
            except _NO_ANSWER as error:
                why = f"the broker is too busy to answer: {error}\n".encode()
                return _answer(respond, "503 Service Unavailable", "text/plain", why)
            return _answer(respond, "200 OK", "application/json", found)
        if path == "/events":
            if not readers.acquire(blocking=False):
                return _answer(respond, "503 Service Unavailable", "text/plain", b"too many readers\n")
            respond("200 OK", [("Content-Type", "text/event-stream"), *_HEADERS])
            return _Pushed(ask, readers)
        if path in _FILES:
            name, kind = _FILES[path]
            return _answer(respond, "200 OK", kind, resources.files(__package__).joinpath(name).read_bytes())
        return _answer(respond, "404 Not Found", "text/plain", b"there are / and /metrics, /status.json and /events\n")

    return application


def _is_of_this_machine(host: str) -> bool:
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return is_loopback(name.strip("[]"))


def _answer(respond: Callable[..., Any], status: str, kind: str, body: bytes) -> Iterable[bytes]:
    respond(status, [("Content-Type", kind), ("Content-Length", str(len(body))), *_HEADERS])
    return [body]
