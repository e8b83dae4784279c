"""One reader that lags beside a healthy one, in the broker machine alone: virtual time, no sockets, no disk.

The events of `live_lagging` (RATE a second, BATCH at a time) reach a broker with two readers of all of them. The
healthy one acknowledges everything at once. The other does so too (`none`), or acknowledges SLOW_RATE events a second
and no more: its queue stands at the limit (`full`), or all that waits expires (`expired`), or it is away (`away`, its
queue at the limit too). Printed: processor time for each event, that of the clients included, and the ratio to
`none`.
"""

import statistics
import time
from collections import deque
from typing import Any

from tidings.protocol import Broker, BrokerSettings, Send, SetTimer, Sync, wire

RATE = 2_000
BATCH = 4
SLOW_RATE = 150
WARMUP = 12_000
EVENTS = 400
TURNS = 100
SECOND = 10**9
LIFETIME_NS = SECOND
LONG_NS = 600 * SECOND
PAYLOAD = bytes(200)
CASES = ("none", "full", "expired", "away")


class Run:
    """One broker with its clients."""

    def __init__(self, case: str) -> None:
        self.case = case
        self.now_ns = SECOND
        self.broker = Broker(BrokerSettings(name="b", neighbours=frozenset(), tracing=False))
        self._owed: deque[tuple[int, int]] = deque()  # numbers that the slow reader has yet to acknowledge
        self._session = 0
        self._sequence = 0
        self._next_ack_ns = 0
        self._wakes_ns = 0
        self._do(self.broker.start(self.now_ns))
        for name in ("source", "healthy", "other"):
            self._do(self.broker.connected(name, self.now_ns))
            self._say(name, wire.Hello(wire.VERSION, name, "client", 1, 256))
        epoch = self.broker.epoch
        self._say("source", wire.Advertise(epoch, 0, "all", "TRUE"))
        for name in ("healthy", "other"):
            self._say(name, wire.Subscribe(epoch, 0, wire.Entry("s", "n >= 0", None, 1.0, 0)))
        if case == "away":
            self._do(self.broker.disconnected("other", self.now_ns))

    def publish(self, count: int) -> None:
        lifetime_ns = LIFETIME_NS if self.case == "expired" else LONG_NS
        for _ in range(count // BATCH):
            self.now_ns += BATCH * SECOND // RATE
            numbers = range(self._sequence, self._sequence + BATCH)
            self._sequence += BATCH
            events = tuple(
                wire.Publication(
                    n, self.now_ns, 0, lifetime_ns, 200, wire.encode_content(wire.Content({"n": n}, b"", PAYLOAD))
                )
                for n in numbers
            )
            self._say("source", wire.Publish(1, numbers[0], numbers[0], events))
            while self._owed and self._next_ack_ns <= self.now_ns:
                first, last = self._owed.popleft()
                self._next_ack_ns = max(self._next_ack_ns, self.now_ns) + (last - first + 1) * SECOND // SLOW_RATE
                self._say("other", wire.Ack(self._session, ((first, last),), 0, 256))
            if self._wakes_ns <= self.now_ns:
                self._wakes_ns = LONG_NS * LONG_NS
                self._do(self.broker.wake(self.now_ns))

    def _say(self, name: str, message: wire.Message) -> None:
        self._do(self.broker.receive(name, wire.encode(message), self.now_ns))

    def _do(self, effects: list[Any]) -> None:
        while effects:
            more: list[Any] = []
            for effect in effects:
                if isinstance(effect, Sync):
                    more += self.broker.synced(effect.token, self.now_ns)
                elif isinstance(effect, SetTimer):
                    self._wakes_ns = effect.at_ns
                elif isinstance(effect, Send):
                    more += self._answer(effect)
            effects = more

    def _answer(self, effect: Send) -> list[Any]:
        frame = effect.frame
        if frame[1] != _TRANSFER_TAG:
            return []
        sent = wire.decode(frame)
        assert isinstance(sent, wire.Transfer)
        span = (sent.number, sent.number + len(sent.events) - 1)
        if effect.connection == "other" and self.case != "none":
            self._session = sent.session
            self._owed.append(span)
            return []
        return self.broker.receive(effect.connection, wire.encode(wire.Ack(sent.session, (span,), 0, 256)), self.now_ns)


_TRANSFER_TAG = 10


def measure() -> dict[str, float]:
    """Processor time for each event in us, by case: the cases take turns, so that other work is shared fairly."""
    runs = {case: Run(case) for case in CASES}
    spent_s: dict[str, list[float]] = {case: [] for case in CASES}
    for run in runs.values():
        run.publish(WARMUP)
    for _ in range(TURNS):
        for case, run in runs.items():
            began_s = time.process_time()
            run.publish(EVENTS)
            spent_s[case].append(time.process_time() - began_s)
    return {case: statistics.median(each) / EVENTS * 1e6 for case, each in spent_s.items()}


def main() -> None:
    print(f"lagging: a broker machine, two readers, {BATCH} events at a time; median of {TURNS} turns")
    found = measure()
    for case, cpu_us in found.items():
        print(f"{case:>10}{cpu_us:>10.1f} us{cpu_us / found['none']:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
