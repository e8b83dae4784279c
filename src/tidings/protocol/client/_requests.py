"""A client's requests to its home broker, repeated until they are confirmed.

Every attempt has a number of its own, so a confirmation of an older request of the same name is recognised. A request
is repeated after about a round trip, then each time after twice as long; but not while the broker confirms others,
since repeats would only add to the load of a busy broker. Requests that an earlier incarnation of the broker confirmed
are sent to the next one too. That includes withdrawals: a broker that has lost its store learns its clients'
subscriptions from others, which may not know that one has ended; so the last MOST_ENDED of them are kept. While a
client moves there are two brokers to ask. Each confirms for itself, and the application gets the confirmation of its
home broker.
"""

from collections.abc import Callable
from typing import Any, Final

from tidings.protocol import wire
from tidings.protocol._effects import Confirmed, Effect, Failed
from tidings.protocol.links._peers import Peer

__all__ = ["MOST_ENDED", "Requests"]

MOST_ENDED: Final = 32

_OPPOSITES: Final = {
    "subscribe": "unsubscribe",
    "unsubscribe": "subscribe",
    "advertise": "unadvertise",
    "unadvertise": "advertise",
}
_TYPICAL_BYTES: Final = 200
_TAKEN_BACK: Final = ("unsubscribe", "unadvertise")


class _Request:
    """A request; `first` is the number of its first sending; the brokers that have confirmed it; by broker when to
    repeat it."""

    __slots__ = ("confirmed", "due_ns", "first", "is_reported", "kind", "name", "tries", "what")

    def __init__(self, kind: Any, name: str, what: Any, first: int) -> None:
        self.kind = kind
        self.name = name
        self.what = what
        self.first = first
        self.is_reported = False
        self.confirmed: set[str] = set()
        self.due_ns: dict[str, int] = {}
        self.tries: dict[str, int] = {}


class Requests:
    """The requests of one client, by kind and name; `places` are its home broker and, in a move, the next one."""

    def __init__(
        self,
        *,
        retry_least_ns: int,
        retry_most_ns: int,
        places: Callable[[], list[Peer]],
        send: Callable[[Peer, wire.Message], None],
        emit: Callable[[Effect], None],
        ask_at: Callable[[int], None],
    ) -> None:
        self._retry_least_ns = retry_least_ns
        self._retry_most_ns = retry_most_ns
        self._places = places
        self._send = send
        self._emit = emit
        self._ask_at = ask_at
        self._open: dict[tuple[str, str], _Request] = {}
        self._ended: dict[tuple[str, str], None] = {}  # of these, withdrawals confirmed everywhere, the oldest first
        self._number = 0
        self._answered_ns: dict[str, int] = {}  # by broker: when it last confirmed something

    def patience_ns(self, place: Peer, tries: int) -> int:
        """How long to wait for an answer to a request that was sent so many times."""
        least_ns = max(place.meter.patience_ns(_TYPICAL_BYTES), self._retry_least_ns)
        return min(least_ns << min(tries - 1, 16), self._retry_most_ns)

    def next_number(self) -> int:
        """A number that no request had before."""
        self._number += 1
        return self._number - 1

    def make(self, kind: str, name: str, what: Any, now_ns: int) -> None:
        """Make a request, which replaces the one of the same name."""
        for former in (kind, _OPPOSITES[kind]):
            self._open.pop((former, name), None)
            self._ended.pop((former, name), None)
        request = self._open[kind, name] = _Request(kind, name, what, self._number)
        for place in self._places():
            self._ask(request, place, now_ns)

    def ask_all(self, place: Peer, now_ns: int) -> None:
        """The broker is new, or has a new epoch: send all requests."""
        for request in self._open.values():
            request.confirmed.discard(place.name)
            request.tries.pop(place.name, None)
            self._ask(request, place, now_ns)

    def ask_again(self, now_ns: int) -> None:
        """Repeat requests that have waited too long for their confirmation."""
        for place in self._places():
            waiting = [request for request in self._open.values() if place.name not in request.confirmed]
            answered_ns = self._answered_ns.get(place.name, 0)
            for request in waiting:
                if request.due_ns.get(place.name, 0) > now_ns:
                    continue
                again_ns = answered_ns + self.patience_ns(place, request.tries.get(place.name, 1))
                if again_ns > now_ns:
                    request.due_ns[place.name] = again_ns
                else:
                    self._ask(request, place, now_ns)
            later_ns = [at_ns for request in waiting if (at_ns := request.due_ns.get(place.name, 0)) > now_ns]
            if later_ns:
                self._ask_at(min(later_ns))

    def are_confirmed(self, place: Peer) -> bool:
        """Whether this broker has confirmed all requests that stand."""
        # The last first: they are confirmed in order, and this is checked after each.
        return all(place.name in request.confirmed for request in reversed(self._open.values()))

    def on_done(self, place: Peer, done: wire.Done, now_ns: int) -> None:
        """A broker has carried out a request."""
        self._answered_ns[place.name] = now_ns
        request = self._open.get((done.kind, done.request))
        if request is not None and done.number >= request.first:
            request.confirmed.add(place.name)
            self._settle(request, [place.name for place in self._places()])

    def leave(self, place: Peer) -> None:
        """The client has left this broker: requests that only it had not confirmed are confirmed now."""
        places = [place.name for place in self._places()]
        for request in list(self._open.values()):
            request.confirmed.discard(place.name)
            request.due_ns.pop(place.name, None)
            request.tries.pop(place.name, None)
            self._answered_ns.pop(place.name, None)
            self._settle(request, places)

    def _settle(self, request: _Request, places: list[str]) -> None:
        """Report what the home broker has confirmed to the application, and forget old withdrawals."""
        if not request.is_reported and request.confirmed.intersection(places[:1]):
            request.is_reported = True
            self._emit(Confirmed(request.kind, request.name))
        if request.kind in _TAKEN_BACK and places and request.confirmed.issuperset(places):
            self._ended.setdefault((request.kind, request.name))
            if len(self._ended) > MOST_ENDED:
                oldest = next(iter(self._ended))
                del self._ended[oldest], self._open[oldest]

    def on_error(self, error: wire.Error) -> bool:
        """The home broker refuses a request; whether the request still stands."""
        request = self._open.get((error.kind, error.request))
        if request is None or error.number < request.first:
            return False
        if (error.kind, error.request) in self._ended:
            return True  # its end was confirmed long ago
        del self._open[error.kind, error.request]
        self._emit(Failed(error.kind, error.request, error.code, error.text))
        return True

    def _ask(self, request: _Request, place: Peer, now_ns: int) -> None:
        if not place.is_up:
            return
        head = (place.epoch, self.next_number())
        match request.kind:
            case "subscribe":
                message: wire.Request = wire.Subscribe(*head, request.what)
            case "unsubscribe":
                message = wire.Unsubscribe(*head, request.name)
            case "advertise":
                message = wire.Advertise(*head, request.name, request.what)
            case _:
                message = wire.Unadvertise(*head, request.name)
        self._send(place, message)
        tries = request.tries[place.name] = request.tries.get(place.name, 0) + 1
        request.due_ns[place.name] = now_ns + self.patience_ns(place, tries)
        self._ask_at(request.due_ns[place.name])
