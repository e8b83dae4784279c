"""What a broker spends on what it keeps for `tidings profile`: processor time of an event without it and with it.

One broker machine as in `protocol`, in its three roles, with the recorder and the window of a live broker, and with a
clock that runs as fast as the load says. The window chooses the share of the events: all of few, and fewer of many. The
difference in processor time is the cost; of a core it is that times the rate. Rounds without and with the window take
turns, and the least time of each counts.
"""

import time
from types import SimpleNamespace
from typing import Any

from benchmarks.protocol import BATCH, SECOND, answer, frames_of, living
from tidings.live.traces._recorder import Recorder
from tidings.live.traces._window import Window
from tidings.protocol import Acknowledged, Broker, Note

RATES_PER_S = (50, 500, 5_000, 20_000)
SUBSCRIPTIONS = 100
SETTLING, MEASURED = 16_001, 4_800
ROUNDS = 3
WINDOW_NS, WINDOW_BYTES = 30 * SECOND, 400_000
"""A tenth of the default, which has the same rows per second: so the share is found in a tenth of the events."""


def main() -> None:
    print("profiles: processor time of an event at one broker, without and with the default window")
    print(
        f"{'role':10}{'events/s':>10}{'without us':>12}{'with us':>10}{'share':>9}{'of a core':>11}{'of its time':>13}"
    )
    for role in ("transit", "home", "last hop"):
        for rate_per_s in RATES_PER_S:
            rounds = [(_event_s(role, rate_per_s), _event_s(role, rate_per_s, has_window=True)) for _ in range(ROUNDS)]
            without_s = min(plain for (plain, _), _ in rounds)
            with_s, share = min(recorded for _, recorded in rounds)
            print(
                f"{role:10}{rate_per_s:>10,}{without_s * 1e6:>12.1f}{with_s * 1e6:>10.1f}{share:>9.4f}"
                f"{(with_s - without_s) * rate_per_s:>11.2%}{(with_s - without_s) / with_s:>13.1%}"
            )


def _event_s(role: str, rate_per_s: int, *, has_window: bool = False) -> tuple[float, float]:
    """Processor seconds of an event once the share is found, and that share."""
    frames = frames_of(role, SETTLING + MEASURED)
    broker, source = living(role, SUBSCRIPTIONS, profiles=has_window)
    recorder = _Recording(broker) if has_window else None
    began_s, now_ns = 0.0, 2 * SECOND
    for number, frame in enumerate(frames):
        if number == 1 + SETTLING // BATCH:
            began_s = time.process_time()
        now_ns += BATCH * SECOND // rate_per_s
        effects = broker.receive(source, frame, now_ns)
        if recorder is None:
            answer(broker, effects, _PEERS, now_ns)
        else:
            answer(broker, effects, _PEERS, now_ns, recorder.trace)
            recorder.tick(now_ns)
    took_s = time.process_time() - began_s
    return took_s / MEASURED, 1.0 if recorder is None else recorder.window.share


_PEERS = {"before", "after", "client"}


class _Recording:
    """The recorder of a live broker, beside a machine alone."""

    def __init__(self, broker: Broker) -> None:
        self.window = Window(span_ns=WINDOW_NS, size_bytes=WINDOW_BYTES, now_ns=SECOND)
        self._now_ns = self._ticked_ns = SECOND
        node: Any = SimpleNamespace(
            machine=broker,
            name="here",
            network=SimpleNamespace(links={"here": frozenset(("before", "after"))}),
            driver=SimpleNamespace(clock=SimpleNamespace(now_ns=lambda: self._now_ns)),
        )
        self._recorder = Recorder(node, self.window)

    def trace(self, effect: Any, now_ns: int) -> None:
        """What the driver does with these effects."""
        self._now_ns = now_ns
        if type(effect) is Note:
            self._recorder.note(effect, now_ns)
        elif type(effect) is Acknowledged:
            self._recorder.acknowledged(effect, now_ns)

    def tick(self, now_ns: int) -> None:
        """Four times a second."""
        if now_ns - self._ticked_ns >= SECOND // 4:
            self._now_ns = self._ticked_ns = now_ns
            self._recorder.tick()


if __name__ == "__main__":
    main()
