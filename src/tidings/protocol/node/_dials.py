"""The peers that a node dials, and when: again after every loss, more and more rarely while connections do not last.

A target waits to be dialled, is being dialled, or is connected; it stays wanted until it is given up. The wait before
each further attempt is twice as long as the last one, up to MOST_NS, and randomised. A connection that was lost again
within STEADY_NS does not shorten it.

The addresses of a target with several are tried in turn, until one has answered: that is the peer.
"""

from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["LEAST_NS", "MOST_NS", "STEADY_NS", "Dials", "Target"]

LEAST_NS: Final = 50_000_000
MOST_NS: Final = 5_000_000_000
STEADY_NS: Final = 5_000_000_000


class Target:
    """A peer to be connected with; the driver knows what `address` means."""

    __slots__ = ("address", "connection", "name", "others", "server_name", "since_ns", "trouble", "wait_ns")

    def __init__(self, name: str, address: str, server_name: str | None, others: Sequence[str] = ()) -> None:
        self.name = name
        self.address = address
        self.others = list(others)  # the addresses to try next
        self.server_name = server_name
        self.connection: str | None = None  # being opened, or open
        self.since_ns: int | None = None  # when it was connected, if it is
        self.wait_ns = LEAST_NS
        self.trouble = ""  # why it could not be reached, as last reported


class Dials:
    """The targets of one node; `chance` gives numbers between 0 and 1."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self.targets: dict[str, Target] = {}
        self._chance = chance

    def want(self, name: str, address: str, server_name: str | None, others: Sequence[str] = ()) -> bool:
        """Keep a connection with a peer, and dial again whenever it is lost; whether that is new."""
        if name in self.targets:
            return False
        self.targets[name] = Target(name, address, server_name, others)
        return True

    def rename(self, target: Target, name: str) -> None:
        """A peer known by its address alone has stated its name."""
        if target.name != name and self.targets.pop(target.name, None) is not None:
            target.name = name
            self.targets[name] = target

    def dialled(self, target: Target, connection: str) -> None:
        """A connection is being opened."""
        target.connection = connection

    def connected(self, target: Target, now_ns: int) -> None:
        """It was admitted."""
        target.since_ns, target.trouble = now_ns, ""
        target.others.clear()

    def ended(self, target: Target, now_ns: int) -> int:
        """The connection has ended, or could not be opened: when to try again."""
        if target.since_ns is not None and now_ns - target.since_ns >= STEADY_NS:
            target.wait_ns = LEAST_NS
        if target.others:
            target.others.append(target.address)
            target.address = target.others.pop(0)
        target.connection = target.since_ns = None
        wait_ns, target.wait_ns = target.wait_ns, min(2 * target.wait_ns, MOST_NS)
        return now_ns + round(wait_ns * (0.5 + 0.5 * self._chance()))
