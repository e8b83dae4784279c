"""What a client has asked of its home broker, and asks again until it is confirmed.

Every sending has a number of its own, so a confirmation of an older request of the same name is known for what it is.
What was confirmed by an earlier life of the broker is asked of the next one too.
"""

from collections.abc import Callable
from typing import Any, Final

from tidings.protocol import _messages as wire
from tidings.protocol._effects import Confirmed, Effect, Failed
from tidings.protocol._peers import Peer

__all__ = ["Requests"]

_OPPOSITES: Final = {
    "subscribe": "unsubscribe",
    "unsubscribe": "subscribe",
    "advertise": "unadvertise",
    "unadvertise": "advertise",
}


class _Request:
    """Something asked; `first` is the number of its first sending."""

    __slots__ = ("due_ns", "first", "is_confirmed", "is_told", "kind", "name", "what")

    def __init__(self, kind: Any, name: str, what: Any, first: int) -> None:
        self.kind = kind
        self.name = name
        self.what = what
        self.first = first
        self.is_confirmed = self.is_told = False
        self.due_ns = 0


class Requests:
    """The requests of one client, by kind and name."""

    def __init__(
        self,
        *,
        retry_ns: int,
        send: Callable[[Peer, wire.Message], None],
        emit: Callable[[Effect], None],
        ask_at: Callable[[int], None],
    ) -> None:
        self._retry_ns = retry_ns
        self._send = send
        self._emit = emit
        self._ask_at = ask_at
        self._open: dict[tuple[str, str], _Request] = {}
        self._number = 0

    def make(self, kind: str, name: str, what: Any, home: Peer | None, now_ns: int) -> None:
        """Ask for something, instead of what was asked for under this name before."""
        self._open.pop((_OPPOSITES[kind], name), None)
        request = self._open[kind, name] = _Request(kind, name, what, self._number)
        self._ask(request, home, now_ns)

    def ask_all(self, home: Peer, now_ns: int) -> None:
        """The broker lives anew: ask for everything again."""
        for request in self._open.values():
            request.is_confirmed = False
            self._ask(request, home, now_ns)

    def ask_again(self, home: Peer | None, now_ns: int) -> None:
        """Ask again for what has waited too long for its confirmation."""
        for request in self._open.values():
            if not request.is_confirmed:
                if request.due_ns <= now_ns:
                    self._ask(request, home, now_ns)
                else:
                    self._ask_at(request.due_ns)

    def on_done(self, said: wire.Done) -> None:
        """The broker has carried out a request."""
        request = self._open.get((said.kind, said.request))
        if request is None or said.number < request.first:
            return
        request.is_confirmed = True
        if not request.is_told:
            request.is_told = True
            self._emit(Confirmed(request.kind, request.name))
        if request.kind in ("unsubscribe", "unadvertise"):
            del self._open[request.kind, request.name]

    def on_error(self, said: wire.Error) -> bool:
        """The broker refuses something; whether it was a request that stands."""
        request = self._open.get((said.kind, said.request))
        if request is None or said.number < request.first:
            return False
        del self._open[said.kind, said.request]
        self._emit(Failed(said.kind, said.request, said.code, said.text))
        return True

    def _ask(self, request: _Request, home: Peer | None, now_ns: int) -> None:
        if home is None or not home.is_up:
            return
        head = (home.epoch, self._number)
        self._number += 1
        match request.kind:
            case "subscribe":
                message: wire.Request = wire.Subscribe(*head, request.what)
            case "unsubscribe":
                message = wire.Unsubscribe(*head, request.name)
            case "advertise":
                message = wire.Advertise(*head, request.name, request.what)
            case _:
                message = wire.Unadvertise(*head, request.name)
        self._send(home, message)
        request.due_ns = now_ns + self._retry_ns
        self._ask_at(request.due_ns)
