"""The other end of a connection: its identity, its link, and the numbers of its transfers that were taken.

The inbox makes a repeated frame harmless: it knows which numbers from the sender's floor on were taken, and which of
those were acknowledged. The floor arrives with every transfer and only rises, so the inbox stays small; a number more
than MAX_RANGE above it is refused.

A client counts the outcomes of the events that a broker gives it (`Outcomes`), and reports them with its
acknowledgements and whenever it is pinged. The counts are of its present epoch and the broker's.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from tidings.protocol._budgets import Budget
from tidings.protocol._effects import EventId
from tidings.protocol._errors import PeerError
from tidings.protocol._histogram import bucket_of
from tidings.protocol._rights import Rights
from tidings.protocol._states import PEER_STEPS, PeerState, PeerStep
from tidings.protocol.links._outbox import Outbox
from tidings.protocol.wire import MAX_OUTCOMES, VERSION, Handover, Outcome

__all__ = ["MAX_RANGE", "Inbox", "Outcomes", "Peer", "Peers", "Ports", "Tally", "ranges"]

MAX_RANGE: Final = 65_536
_NO_BUDGET: Final = Budget()


class Inbox:
    """The numbers taken from one sender in one of its sessions."""

    __slots__ = ("_floor", "_next", "_run", "_taken")

    def __init__(self) -> None:
        self._floor = 0
        self._next = 0  # nothing was taken from here on
        self._run = range(0)  # the last numbers, if they were taken and acknowledged in one go
        self._taken: dict[int, bool] = {}  # the numbers before

    def __len__(self) -> int:
        return len(self._taken) + len(self._run)

    @property
    def is_used(self) -> bool:
        """Whether anything was ever taken."""
        return self._next > 0

    def look(self, number: int, count: int, floor: int) -> tuple[Sequence[int], Sequence[int]]:
        """Of `count` numbers from this one on: which are new, and which were acknowledged.

        Numbers below the floor were acknowledged or given up long ago.
        """
        if floor > self._floor:
            self._raise_floor(floor)
        end = number + count
        if end > self._floor + MAX_RANGE:
            raise PeerError("range", f"transfer {end - 1} is more than {MAX_RANGE} above the floor of {self._floor}")
        if number >= self._next and number >= self._floor:
            return range(number, end), ()
        self._end_run()
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
        if self._run:
            self._run = range(min(max(self._run.start, floor), self._run.stop), self._run.stop)

    def _end_run(self) -> None:
        self._taken.update(dict.fromkeys(self._run, True))
        self._run = range(0)

    def acknowledged(self) -> list[int]:
        """The acknowledged numbers that the sender may not know of."""
        self._end_run()
        return sorted(number for number, is_done in self._taken.items() if is_done)

    def take_at_once(self, numbers: range) -> None:
        """Take new numbers, and acknowledge them."""
        if self._run and self._run.stop == numbers.start:
            self._run = range(self._run.start, numbers.stop)
        else:
            self._end_run()
            self._run = numbers
        self._next = numbers.stop

    def take(self, numbers: Sequence[int]) -> None:
        """Take the numbers; they will be acknowledged when they are durable."""
        self._end_run()
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


class Tally:
    """The outcomes of the events of one subscription: see `wire.Outcome`."""

    __slots__ = ("again", "delays", "discarded", "held", "holds", "late", "new_delays", "new_holds", "on_time",
                 "out_of_order")  # fmt: skip

    def __init__(self) -> None:
        self.on_time = self.late = self.discarded = self.again = self.out_of_order = self.held = 0
        self.delays: dict[int, int] = {}
        self.holds: dict[int, int] = {}
        self.new_delays: dict[int, int] = {}  # those that have changed since the last report
        self.new_holds: dict[int, int] = {}

    def note(self, delay_ns: int, held_ns: int) -> None:
        """Count an event that was given to the application: its age, and how long it was held."""
        bucket = bucket_of(delay_ns)
        self.new_delays[bucket] = self.delays[bucket] = self.delays.get(bucket, 0) + 1
        if held_ns:
            bucket = bucket_of(held_ns)
            self.new_holds[bucket] = self.holds[bucket] = self.holds.get(bucket, 0) + 1

    def note_on_time(self, many: int, delays: Mapping[int, int]) -> None:
        """Count events that were given to the application on time and at once: their ages, by size."""
        self.on_time += many
        for bucket, count in delays.items():
            self.new_delays[bucket] = self.delays[bucket] = self.delays.get(bucket, 0) + count

    def report(self) -> Outcome:
        """The counts for a report; of those by size, the changed ones."""
        counts = (self.on_time, self.late, self.discarded, self.again, self.out_of_order, self.held)
        delays, self.new_delays = self.new_delays, {}
        holds, self.new_holds = self.new_holds, {}
        return Outcome(*counts, delays, holds)


class Outcomes:
    """The outcomes of the events that one broker gave a client, by subscription."""

    __slots__ = ("_changed", "_tallies", "given", "is_traced")

    def __init__(self) -> None:
        self.is_traced: Callable[[EventId], bool] | None = None  # which events the broker traces
        self.given: list[Handover] = []
        self._tallies: dict[str, Tally] = {}
        self._changed: dict[str, Tally] = {}

    def of(self, subscription: str) -> Tally:
        """The tally of a subscription, which will be reported."""
        tally = self._tallies.get(subscription)
        if tally is None:
            tally = self._tallies[subscription] = Tally()
        self._changed[subscription] = tally
        return tally

    def drop(self, subscription: str) -> None:
        """Forget a subscription."""
        self._tallies.pop(subscription, None)
        self._changed.pop(subscription, None)

    def news(self) -> dict[str, Outcome]:
        """What has changed since the last call, or a part of it: the rest is reported next time."""
        changed, self._changed = self._changed, {}
        if len(changed) > MAX_OUTCOMES:
            self._changed = dict(islice(changed.items(), MAX_OUTCOMES, None))
        return {name: tally.report() for name, tally in islice(changed.items(), MAX_OUTCOMES)}

    def repeat(self) -> None:
        """Report everything again on a new connection: the last report may have been lost with the old one."""
        for name, tally in self._tallies.items():
            self._changed[name] = tally
            tally.new_delays, tally.new_holds = dict(tally.delays), dict(tally.holds)


class Peer:
    """A neighbour or a client."""

    __slots__ = (
        "budget",
        "connection",
        "course",
        "credit_sent",
        "different",
        "epoch",
        "greeted_ns",
        "heard_ns",
        "hello_ns",
        "inbox",
        "is_up",
        "key",
        "kind",
        "meter",
        "name",
        "outbox",
        "outcomes",
        "published",
        "record",
        "request",
        "rights",
        "state",
        "version",
    )

    def __init__(self, name: str, kind: str, outbox: Outbox) -> None:
        self.name = name
        self.kind = kind
        self.outbox = outbox
        self.connection: str | None = None
        self.version = VERSION  # of the protocol, on the last connection
        self.state = PeerState.AWAY
        self.is_up = False  # both have greeted, and still hear each other
        self.epoch = -1
        self.greeted_ns = 0  # since when they hear each other
        self.hello_ns = 0  # when it was last greeted because of a frame
        self.heard_ns = 0
        self.meter = outbox.meter
        self.inbox = Inbox()
        self.request = -1
        self.credit_sent = 0
        self.outcomes = Outcomes()  # on a client's side, of the events it has sent
        self.record = 0  # how many of its last events each event should describe
        self.rights: Rights | None = None  # None: everything is allowed
        self.budget = _NO_BUDGET  # of a client
        self.published = 0  # by a client: events that were accepted
        self.course: Any = None  # of the last of them (`broker._courses`)
        self.key = b""  # that a client's name is bound to; empty: none
        self.different = 0  # in how many pings in a row its digest differed

    def step(self, step: PeerStep) -> None:
        """Take a step of the table; a missing step is our own bug."""
        self.state = PEER_STEPS[self.state, step]
        self.is_up = self.state is PeerState.UP

    @property
    def has_asked(self) -> bool:
        """Whether it has sent a request or an event in this epoch."""
        return self.request >= 0 or self.inbox.is_used

    def greet(self, epoch: int) -> bool:
        """Note the peer's epoch; True if it is new, so that its numbers count from 0."""
        if epoch == self.epoch:
            return False
        self.epoch = epoch
        self.inbox = Inbox()
        self.request = -1
        return True


class Peers(NamedTuple):
    """The peers of a broker, by name."""

    neighbours: Mapping[str, Peer]
    clients: Mapping[str, Peer]


class Ports(msgspec.Struct, frozen=True):
    """How the parts of a broker reach the outside: messages, frames with events, notes for a trace, and counters.

    What happens to an event is noted if it is traced (`Held.is_noted`): `is_noted` decides that, when it comes.
    """

    send: Callable[[Peer, Any], None]
    send_events: Callable[[Peer, str, Any], None]
    note: Callable[..., None]
    is_noted: Callable[[EventId], bool]
    count: Callable[..., None]
