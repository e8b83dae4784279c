"""What is served besides metrics: the page, its files, and the status that it shows.

- `/status.json` is what `tidings status --json` prints: this broker asks all brokers of its network, itself included,
  and whoever does not answer within PATIENCE_S is down. However many look, the brokers are asked once in FRESH_S.
- The page may say more than metrics do (names of clients), and asks for no password. So it is served on loopback only,
  and only to who asks for it by a name of this machine: a web site that has its own name lead here gets nothing.
- The page loads nothing but its own files, and its headers let it load nothing else.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidings.errors import TidingsError
from tidings.live.configuration._config import is_loopback
from tidings.live.operations._asking import ask_network
from tidings.live.operations._status import network_status, snapshot

if TYPE_CHECKING:
    from tidings.live.broker._node import BrokerNode

__all__ = ["OverlayStatus", "Wsgi", "page_application"]

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

PATIENCE_S: Final = 1.0
FRESH_S: Final = 0.5
_ANSWER_S: Final = 10.0
_FILES: Final = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
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
    """The status of the whole network, as one broker finds it; asked for on the event loop."""

    def __init__(self, node: "BrokerNode") -> None:
        self._node = node
        self._asking: asyncio.Task[bytes] | None = None
        self._asked_s = float("-inf")

    async def now(self) -> bytes:
        """The status as JSON, at most FRESH_S old."""
        if self._asking is None or (self._asking.done() and time.monotonic() - self._asked_s >= FRESH_S):
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> bytes:
        node = self._node
        brokers = await ask_network(node.network, patience_s=PATIENCE_S, known={node.name: snapshot(node)})
        self._asked_s = time.monotonic()
        return msgspec.json.encode(network_status(brokers))


def page_application(node: "BrokerNode", metrics: Wsgi) -> Wsgi:
    """Metrics as given, and the page with its status; to be made on the event loop, and called by other threads."""
    status, loop = OverlayStatus(node), asyncio.get_running_loop()

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
                found = asyncio.run_coroutine_threadsafe(status.now(), loop).result(_ANSWER_S)
            except (TimeoutError, TidingsError, RuntimeError) as error:
                why = f"the broker is too busy to say: {error}\n".encode()
                return _answer(respond, "503 Service Unavailable", "text/plain", why)
            return _answer(respond, "200 OK", "application/json", found)
        if path in _FILES:
            name, kind = _FILES[path]
            return _answer(respond, "200 OK", kind, resources.files(__package__).joinpath(name).read_bytes())
        return _answer(respond, "404 Not Found", "text/plain", b"there are / and /metrics and /status.json\n")

    return application


def _is_of_this_machine(host: str) -> bool:
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return is_loopback(name.strip("[]"))


def _answer(respond: Callable[..., Any], status: str, kind: str, body: bytes) -> Iterable[bytes]:
    respond(status, [("Content-Type", kind), ("Content-Length", str(len(body))), *_HEADERS])
    return [body]
