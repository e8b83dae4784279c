"""Those who attack a broker, for `live_attacks`: they speak raw bytes, and go on until they are ended.

``python -m benchmarks.live_attacks_raw KIND PORT`` says ``ready`` when the attack has begun. Whoever is cut off comes
again, under another name.
"""

import contextlib
import itertools
import random
import socket
import string
import sys
import threading
import time
from collections.abc import Iterator

import msgspec

from tidings.protocol import wire
from tidings.protocol.node import Preamble, Splitter, joined

__all__ = ["KINDS"]

FILTER_BYTES = 16_000
PIPELINED = 12
LARGE_EVENTS = 1_200
LARGE_BYTES = 900_000
SILENT = 400
POLLING = 4
SECOND = 10**9
_names = itertools.count()


class Raw:
    """A client by hand; a thread reads what it is sent, and forgets it, unless `is_slow`."""

    def __init__(self, port: int, name: str = "", *, is_slow: bool = False) -> None:
        self.name = name or f"attacker-{random.randrange(1 << 40)}-{next(_names)}"
        self.end = socket.create_connection(("127.0.0.1", port))
        hello = wire.Hello(wire.OLDEST_VERSION, self.name, "client", time.time_ns(), 256)
        self.end.sendall(joined([msgspec.msgpack.encode(Preamble("client", self.name)), wire.encode(hello)]))
        self.life = self._welcomed()
        self.number = itertools.count()
        if not is_slow:
            threading.Thread(target=self._drain, daemon=True).start()

    def _welcomed(self) -> int:
        splitter, frames = Splitter(1 << 20), list[bytes]()
        while len(frames) < 2:
            data = self.end.recv(65_536)
            if not data:
                raise ConnectionError("not let in")
            frames += splitter.feed(data)
        message = wire.decode(frames[1])
        assert isinstance(message, wire.Hello | wire.Welcome), message
        return message.epoch

    def _drain(self) -> None:
        splitter = Splitter(1 << 20)
        with contextlib.suppress(OSError):
            while data := self.end.recv(1 << 18):
                for frame in splitter.feed(data):
                    if frame[1] == _PING:
                        message = wire.decode(frame)
                        assert isinstance(message, wire.Ping)
                        self.say(wire.Pong(message.sent_ns, time.monotonic_ns()))

    def say(self, *messages: wire.Message) -> None:
        self.end.sendall(joined([wire.encode(message) for message in messages]))

    def subscribe(self, *texts: str) -> None:
        numbers = [next(self.number) for _ in texts]
        entries = [wire.Entry(f"n{n}", text, None, 1.0, 0) for n, text in zip(numbers, texts, strict=True)]
        self.say(*(wire.Subscribe(self.life, n, entry) for n, entry in zip(numbers, entries, strict=True)))


_PING = 16


def long_filters(count: int) -> list[str]:
    """Filters that were never sent before; they take long to read, and cost what may be."""
    mark = random.randrange(10**9)
    texts = []
    for number in range(count):
        parts = (f"(a{n} = {mark + number} AND b{n} > {n})" for n in range(FILTER_BYTES // 20))
        texts.append(" OR ".join(parts)[:FILTER_BYTES].rpartition(" OR ")[0])
    return texts


def filters(port: int) -> Iterator[None]:
    """Long filters in one piece, one lot after the other, and as they are refused, others."""
    raw = Raw(port)
    while True:
        raw.subscribe(*long_filters(PIPELINED))
        yield


def many_filters(port: int) -> Iterator[None]:
    """The same, by ten clients at once."""
    raws = [Raw(port) for _ in range(10)]
    while True:
        for raw in raws:
            raw.subscribe(*long_filters(2))
        yield


def away(port: int) -> Iterator[None]:
    """Large events for a client that is away."""
    gone = Raw(port)
    gone.subscribe("fat = 1")
    time.sleep(0.5)
    gone.end.close()
    raw = Raw(port)
    raw.say(wire.Advertise(raw.life, 0, "all", "TRUE"))
    content = wire.encode_content(wire.Content({"fat": 1}, b"", bytes(LARGE_BYTES)))
    yield
    for number in range(LARGE_EVENTS):
        event = wire.Publication(number, time.time_ns(), 0, 600 * SECOND, LARGE_BYTES, content)
        raw.say(wire.Publish(1, number, number, (event,)))
        yield
    while True:
        time.sleep(1.0)
        yield


def codes(port: int) -> Iterator[None]:
    """Errors with codes that were thought up."""
    raw = Raw(port)
    while True:
        made = ["".join(random.choices(string.ascii_letters, k=200)) for _ in range(100)]
        raw.say(*(wire.Error(code, code) for code in made))
        yield


def silent(port: int) -> Iterator[None]:
    """Connections that say nothing; as they are closed, others come."""
    ends: list[socket.socket] = []
    while True:
        ends.append(socket.create_connection(("127.0.0.1", port)))
        if len(ends) > SILENT:
            ends.pop(0).close()
        yield
        time.sleep(0.002)


def slow(port: int) -> Iterator[None]:
    """Somebody who wants everything, and reads nothing."""
    raw = Raw(port, is_slow=True)
    raw.subscribe("TRUE")
    while True:
        yield
        time.sleep(0.5)


def churn(port: int) -> Iterator[None]:
    """Subscriptions that come and go."""
    raw = Raw(port)
    while True:
        n = next(raw.number)
        entry = wire.Entry(f"n{n % 500}", f"symbol = 'S{n}' AND price > {n}", None, 1.0, 0)
        raw.say(wire.Subscribe(raw.life, n, entry), wire.Unsubscribe(raw.life, n + 1, f"n{(n - 250) % 500}"))
        if n % 50 == 0:
            yield


def status(port: int) -> Iterator[None]:
    """Somebody who asks for the status again and again, over many connections."""

    def poll() -> None:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as end:
                end.sendall(joined([msgspec.msgpack.encode(Preamble("status", "attacker"))]))
                while end.recv(1 << 18):
                    pass

    for _ in range(POLLING):
        threading.Thread(target=poll, daemon=True).start()
    while True:
        yield
        time.sleep(0.5)


KINDS = {
    "filters": filters,
    "many filters": many_filters,
    "away": away,
    "codes": codes,
    "silent": silent,
    "slow": slow,
    "churn": churn,
    "status": status,
}


def main() -> None:
    kind, port = KINDS[sys.argv[1]], int(sys.argv[2])
    is_said = False
    while True:
        try:
            for _ in kind(port):
                if not is_said:
                    print("ready", flush=True)
                    is_said = True
        except OSError:
            time.sleep(0.05)  # it was cut off


if __name__ == "__main__":
    main()
