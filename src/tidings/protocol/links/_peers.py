"""The other end of a connection: who it is, what is known of the link to it, and which of its transfers were taken.

The inbox makes a repeated frame harmless: of the numbers from the sender's floor on it knows which were taken, and
which of those were acknowledged. The floor comes with every transfer and only rises, so the inbox stays small; a
number more than MAX_RANGE above it is refused.
"""

from typing import Final, Literal

from tidings.protocol._errors import PeerError
from tidings.protocol._states import PEER_STEPS, PeerState, PeerStep
from tidings.protocol.links._outbox import Outbox

__all__ = ["MAX_RANGE", "Inbox", "Peer"]

MAX_RANGE: Final = 65_536


class Inbox:
    """The numbers taken from one sender in one of its sessions."""

    __slots__ = ("_floor", "_taken")

    def __init__(self) -> None:
        self._floor = 0
        self._taken: dict[int, bool] = {}

    def __len__(self) -> int:
        return len(self._taken)

    def look(self, number: int, floor: int) -> Literal["new", "pending", "acknowledged"]:
        """What is known of a number; what lies below the floor was acknowledged or given up long ago."""
        if floor > self._floor:
            self._floor = floor
            self._taken = {taken: done for taken, done in self._taken.items() if taken >= floor}
        if number >= self._floor + MAX_RANGE:
            raise PeerError("range", f"transfer {number} is more than {MAX_RANGE} above the floor of {self._floor}")
        if number < self._floor:
            return "acknowledged"
        done = self._taken.get(number)
        return "new" if done is None else "acknowledged" if done else "pending"

    def take(self, number: int) -> None:
        """The number is taken, and will be acknowledged when it is durable."""
        self._taken[number] = False

    def acknowledge(self, number: int) -> None:
        """The number is acknowledged; repeats are acknowledged again."""
        if number in self._taken:
            self._taken[number] = True


class Peer:
    """A neighbour or a client."""

    __slots__ = (
        "connection",
        "credit_told",
        "different",
        "epoch",
        "heard_ns",
        "inbox",
        "is_up",
        "kind",
        "meter",
        "name",
        "outbox",
        "request",
        "state",
    )

    def __init__(self, name: str, kind: str, outbox: Outbox) -> None:
        self.name = name
        self.kind = kind
        self.outbox = outbox
        self.connection: str | None = None
        self.state = PeerState.AWAY
        self.is_up = False  # they have greeted each other and still hear each other
        self.epoch = -1
        self.heard_ns = 0
        self.meter = outbox.meter
        self.inbox = Inbox()
        self.request = -1
        self.credit_told = 0
        self.different = 0  # in how many pings in a row its digest was another one

    def step(self, step: PeerStep) -> None:
        """Take a step of the table; one that it does not have is our own bug."""
        self.state = PEER_STEPS[self.state, step]
        self.is_up = self.state is PeerState.UP

    def greet(self, epoch: int) -> bool:
        """Note who speaks; True if it has started again since, so that its numbers count from 0."""
        if epoch == self.epoch:
            return False
        self.epoch = epoch
        self.inbox = Inbox()
        self.request = -1
        return True
