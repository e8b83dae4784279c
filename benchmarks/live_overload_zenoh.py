"""A Zenoh router for a link that is too slow, as the peer of `live_overload`: `... live_overload_zenoh PORT`.

A message to a batch, a few batches to each priority's queue, little in the kernel: what finds no room is dropped.
"""

import json
import signal
import sys
from typing import Any

__all__ = ["session"]

KERNEL_BYTES = 4_096
BATCH_BYTES = 1_500
QUEUED = 16  # the most that there can be; at 80 messages/s that is a wait of .2 s
QUEUES = (
    *("control", "real_time", "interactive_high", "interactive_low"),
    *("data_high", "data", "data_low", "background"),
)


def session(mode: str, settings: dict[str, Any]) -> Any:
    """A session that finds others by nothing but the settings, and sends through sockets only."""
    import zenoh

    config = zenoh.Config()
    quiet = {"mode": mode, "scouting/multicast/enabled": False, "transport/shared_memory/enabled": False}
    for key, value in {**quiet, **settings}.items():
        config.insert_json5(key, json.dumps(value))
    return zenoh.open(config)


def main(port: int) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # before there are threads, so that none of them gets it
    router = session(
        "router",
        {
            "listen/endpoints": [f"tcp/127.0.0.1:{port}#so_sndbuf={KERNEL_BYTES}"],
            "transport/link/tx/batch_size": BATCH_BYTES,
            "transport/link/tx/queue/batching/enabled": False,
            "transport/link/tx/queue/size": dict.fromkeys(QUEUES, QUEUED),
        },
    )
    signal.sigwait({signal.SIGTERM})
    router.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
