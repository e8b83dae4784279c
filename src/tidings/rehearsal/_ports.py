"""Ports for brokers that are started, killed and started again.

They lie below those that the system gives to outgoing connections: one of these may otherwise take a port between the
moment it was found free and the moment a broker listens at it, and who dials a port where nobody listens may even be
connected to itself, which keeps the broker from coming back. A process takes each port once, and begins elsewhere than
other processes.
"""

import os
import socket
from collections.abc import Iterator
from itertools import islice
from typing import Final

__all__ = ["free_ports"]

_FIRST: Final = 10_000
_MANY: Final = 20_000
_STEP: Final = 7_919
"""A prime: processes that were started one after another begin far from each other."""


def free_ports(count: int) -> list[int]:
    """Ports of this machine at which nobody listens, none of which was returned before."""
    return list(islice(_PORTS, count))


def _ports() -> Iterator[int]:
    start = _STEP * os.getpid()
    while True:
        for number in range(start, start + _MANY):
            port = _FIRST + number % _MANY
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            yield port


_PORTS: Final = _ports()
