"""One broker process beside its peers: the same events, the same subscribers, the same machine, one run.

The load is that of `benchmarks.live`: 1 publisher, 100 subscribers, events of about 1 kB of which each matches about
4.5 subscribers. Each peer filters as far as it can:

- Tidings by content: `symbol = 'S3' AND price > 50 AND volume < 500000`;
- ActiveMQ by the same kind of selector. What comes by STOMP are texts, which it does not compare with numbers, so the
  price is in the priority (0 to 9) and the volume in the moment of expiry (far away): those two are numbers;
- RabbitMQ by a headers exchange, which knows equality only: the publisher says for each event in which band it is;
- Mosquitto by topic and NATS by subject: the bands are words of it.

Each has a process of its own, with its data in a directory of its own, on a free port of this machine. Publishers have
at most as many events under way as `live` allows, and count an event as accepted when the peer has acknowledged it:
by a confirm (Tidings, RabbitMQ), a receipt (ActiveMQ), or by the answer to a ping that was sent after it (Mosquitto,
NATS). Latency is from the publisher's write to the subscriber's read, at half of the peer's own rate and at 3,000
events/s. `us/event` is what the peer's processes spent of the processors per event.

`durable`: every event is on disk before it is confirmed, and every event is confirmed: Tidings with its subscribers,
the others with nobody listening. ActiveMQ: a persistent message to a queue, with a receipt (KahaDB, which syncs before
it answers). NATS JetStream: a file stream, with a sync for every message, and as it comes (a sync every two minutes).

A peer that is not installed is named and skipped. NAMES="tidings,activemq,nats" chooses, TIDINGS_SECONDS is how long.
"""

import os
from collections.abc import Callable

from benchmarks import live
from benchmarks.live_peers_load import Figures
from benchmarks.live_peers_protocols import activemq, mosquitto, nats, rabbitmq, tidings


def main() -> None:
    wanted = os.environ.get("NAMES", ",".join(_PEERS)).split(",")
    print(f"peers: one broker, 1 publisher, {live.SUBSCRIBERS} subscribers, 1 kB events, {live.SECONDS:g} s each")
    print(f"{'':26}{'events/s':>10}{'deliveries/s':>14}{'us/event':>10}", end="")
    print(f"{'at half: p50, p99 ms':>24}{'at 3,000/s: p50, p99 ms':>26}{'Tidings is':>12}")
    for promise, peers in (("memory", _PEERS), ("durable", _DURABLE)):
        ours: Figures | None = None
        for name, run in peers.items():
            if name.split()[0] in wanted:
                figures = _tried(f"{name}, {promise}", run)
                ours = figures if name == "tidings" else ours
                if figures is not None:
                    _print(f"{name}, {promise}", figures, ours)


def _tried(name: str, run: Callable[[], Figures | str]) -> Figures | None:
    found = run()
    if isinstance(found, str):
        print(f"{name:26}passed over: {found}", flush=True)
        return None
    return found


def _print(name: str, figures: Figures, ours: Figures | None) -> None:
    half, steady = (f"{p50:.2f}, {p99:.2f}" if p50 else "-" for p50, p99 in (figures.half_ms, figures.steady_ms))
    ratio = f"{ours.events_per_s / figures.events_per_s:.1f} x" if ours is not None else ""
    print(
        f"{name:26}{figures.events_per_s:>10,.0f}{figures.deliveries_per_s:>14,.0f}{figures.us_per_event:>10.1f}"
        f"{half:>24}{steady:>26}{ratio:>12}",
        flush=True,
    )


_PEERS: dict[str, Callable[[], Figures | str]] = {
    "tidings": lambda: tidings("bypass"),
    "activemq": lambda: activemq(is_durable=False),
    "rabbitmq": rabbitmq,
    "mosquitto": mosquitto,
    "nats": lambda: nats(sync=None),
}
_DURABLE: dict[str, Callable[[], Figures | str]] = {
    "tidings": lambda: tidings("bypass+buffer"),
    "activemq": lambda: activemq(is_durable=True),
    "nats": lambda: nats(sync="always"),
    "nats unsynced": lambda: nats(sync='"2m"'),
}

if __name__ == "__main__":
    main()
