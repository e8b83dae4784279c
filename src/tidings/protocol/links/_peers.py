"""The other end of a connection: who it is, what is known of the link to it, and which of its transfers were taken.

The inbox makes a repeated frame harmless: of the numbers from the sender's floor on it knows which were taken, and
which of those were acknowledged. The floor comes with every transfer and only rises, so the inbox stays small; a
number more than MAX_RANGE above it is refused.

A client counts what becomes of the events that a broker gives it, and says so with its acknowledgements and whenever it
is pinged. Its counts are of its present life and the broker's, and only grow. It can speak of nothing but itself, and
of no more than it was given.
"""

from collections.abc import Sequence
from typing import Final

from tidings.protocol._errors import PeerError
from tidings.protocol._rights import Rights
from tidings.protocol._states import PEER_STEPS, PeerState, PeerStep
from tidings.protocol.links._outbox import Outbox
from tidings.protocol.wire import Tally

__all__ = ["MAX_RANGE", "Inbox", "Outcomes", "Peer", "ranges"]

MAX_RANGE: Final = 65_536


class Inbox:
    """The numbers taken from one sender in one of its sessions."""

    __slots__ = ("_floor", "_next", "_taken")

    def __init__(self) -> None:
        self._floor = 0
        self._next = 0  # from here on nothing was taken
        self._taken: dict[int, bool] = {}

    def __len__(self) -> int:
        return len(self._taken)

    @property
    def is_used(self) -> bool:
        """Whether anything was ever taken."""
        return self._next > 0

    def look(self, number: int, count: int, floor: int) -> tuple[Sequence[int], Sequence[int]]:
        """Of `count` numbers from this one on: which are new, and which were acknowledged.

        What lies below the floor was acknowledged or given up long ago.
        """
        if floor > self._floor:
            self._raise_floor(floor)
        end = number + count
        if end > self._floor + MAX_RANGE:
            raise PeerError("range", f"transfer {end - 1} is more than {MAX_RANGE} above the floor of {self._floor}")
        if number >= self._next and number >= self._floor:
            return range(number, end), ()
        taken = self._taken
        new = [each for each in range(max(number, self._floor), end) if each not in taken]
        done = [each for each in range(number, end) if each < self._floor or taken.get(each)]
        return new, done

    def _raise_floor(self, floor: int) -> None:
        taken = self._taken
        if floor - self._floor <= len(taken):
            for number in range(self._floor, floor):
                taken.pop(number, None)
        else:
            self._taken = {number: is_done for number, is_done in taken.items() if number >= floor}
        self._floor = floor

    def take(self, numbers: Sequence[int]) -> None:
        """The numbers are taken, and will be acknowledged when they are durable."""
        self._taken.update(dict.fromkeys(numbers, False))
        self._next = max(self._next, numbers[-1] + 1)

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """The numbers are acknowledged; repeats are acknowledged again."""
        taken = self._taken
        for number in numbers:
            if number in taken:
                taken[number] = True


def ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Numbers in order as ranges, first and last."""
    if not numbers:
        return []
    if numbers[-1] - numbers[0] + 1 == len(numbers):
        return [(numbers[0], numbers[-1])]
    found: list[tuple[int, int]] = []
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            found.append((first, last))
            first = number
        last = number
    return [*found, (first, last)]


class Outcomes:
    """What became of events that clients were given, counted by subscription: see `Tally`."""

    __slots__ = ("discarded", "late", "on_time")

    def __init__(self) -> None:
        self.on_time = self.late = self.discarded = 0

    def __len__(self) -> int:
        return self.on_time + self.late + self.discarded

    def add(self, more: Tally) -> None:
        """Count more of them."""
        self.on_time += more.on_time
        self.late += more.late
        self.discarded += more.discarded

    def tally(self) -> Tally:
        """The counts as they are told."""
        return Tally(self.on_time, self.late, self.discarded)


class Peer:
    """A neighbour or a client."""

    __slots__ = (
        "connection",
        "credit_told",
        "different",
        "epoch",
        "greeted_ns",
        "heard_ns",
        "hello_ns",
        "inbox",
        "is_up",
        "kind",
        "meter",
        "name",
        "outbox",
        "outcomes",
        "reported",
        "request",
        "rights",
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
        self.greeted_ns = 0  # since when they hear each other
        self.hello_ns = 0  # when it was greeted last because it spoke
        self.heard_ns = 0
        self.meter = outbox.meter
        self.inbox = Inbox()
        self.request = -1
        self.credit_told = 0
        self.outcomes = Outcomes()  # of what it was given, as it reports; of what it has given, on a client's side
        self.reported: Tally | None = None  # its last report in this life
        self.rights: Rights | None = None  # what it may do, if not everything
        self.different = 0  # in how many pings in a row its digest was another one

    def step(self, step: PeerStep) -> None:
        """Take a step of the table; one that it does not have is our own bug."""
        self.state = PEER_STEPS[self.state, step]
        self.is_up = self.state is PeerState.UP

    @property
    def has_asked(self) -> bool:
        """Whether it has sent a request or an event in this life."""
        return self.request >= 0 or self.inbox.is_used

    def report(self, said: Tally) -> Tally:
        """Note what a client reports of itself; what is new of it. An old report, or one that lies, changes nothing."""
        known = self.reported or Tally()
        news = Tally(said.on_time - known.on_time, said.late - known.late, said.discarded - known.discarded)
        count = news.on_time + news.late + news.discarded
        if min(news.on_time, news.late, news.discarded) >= 0 and len(self.outcomes) + count <= self.outbox.given:
            self.reported = said
            self.outcomes.add(news)
            return news
        if self.reported is None:
            self.reported = said  # it was known here before, and then forgotten: counting begins here
        return Tally()

    def greet(self, epoch: int) -> bool:
        """Note who speaks; True if it has started again since, so that its numbers count from 0."""
        if epoch == self.epoch:
            return False
        self.epoch = epoch
        self.inbox = Inbox()
        self.request = -1
        self.reported = None
        return True
