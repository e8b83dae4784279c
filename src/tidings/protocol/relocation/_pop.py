"""POP in the overlay: trace results, profile tables, and the walk to a publisher's place (paper E, sections 3.1, 3.2).

Rules:

- Every broker that takes on a traced event reports to the neighbour it came from how many subscribers were served here
  and behind it (`TraceResult`), as soon as all neighbours that it sent the event to have reported. If a result does not
  arrive within `relocation_wait_ns`, the whole sample is dropped: nothing is counted in part.
- The publisher's home counts the results. When there are enough, and none is outstanding, it starts the walk: a
  `RelocationRequest` that each broker forwards to the neighbour with the majority, and a `RelocationAnswer` that
  returns by the same brokers. If one of them is lost there is no move now, and another walk after as many more events.
- A table is of one publisher at one home, by neighbour: after a move, or with other neighbours, it begins anew.

The algorithms are those of `tidings.placement`; this module sends the messages.
"""

import zlib
from collections.abc import Callable
from typing import Any, Final

from tidings import placement
from tidings.protocol import wire
from tidings.protocol._effects import EventId
from tidings.protocol._settings import BrokerSettings

__all__ = ["Pop"]

_SHARES: Final = 2**32


class _Pending:
    """A traced event with outstanding results; `upstream` is the neighbour it came from, empty at its home."""

    __slots__ = ("behind", "due_ns", "local", "root", "upstream", "waiting")

    def __init__(self, root: str, upstream: str, waiting: set[str], local: int, due_ns: int) -> None:
        self.root = root
        self.upstream = upstream
        self.waiting = waiting
        self.local = local
        self.due_ns = due_ns
        self.behind: dict[str, int] = {}


class _Own:
    """A publisher that is at home here: how many of its events were traced since the last walk."""

    __slots__ = ("is_walking", "outstanding", "traced", "window")

    def __init__(self, window: "placement.TagWindow") -> None:
        self.window = window
        self.traced = 0
        self.outstanding = 0
        self.is_walking = False


class Pop:
    """One broker's part; `send_to` sends to a neighbour by name, and reports whether it is up."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        send_to: Callable[[str, wire.Message], bool],
        ask_to_move: Callable[[str, str], bool],
    ) -> None:
        self._settings = settings
        self._send_to = send_to
        self._ask_to_move = ask_to_move
        self._names = sorted(settings.neighbours)
        self._places = {name: place for place, name in enumerate(self._names)}
        self._tables: dict[str, tuple[str, placement.ProfileTable]] = {}
        self._pending: dict[EventId, _Pending] = {}
        self._own: dict[str, _Own] = {}

    def __len__(self) -> int:
        return max(len(self._tables), len(self._pending), len(self._own))

    def tag(self, id: EventId, now_ns: int) -> wire.Trace | None:
        """Whether an event that is published here is traced; the draw depends on the event alone, so it is always the
        same."""
        settings = self._settings
        self._give_up(now_ns)
        own = self._own.get(id[0])
        if own is None:
            window = placement.TagWindow(most=settings.relocation_per_window, window_ns=settings.relocation_window_ns)
            own = self._own[id[0]] = _Own(window)
            _bound(self._own, settings.max_traces)
        if own.traced >= settings.relocation_events:
            self._start_walk(id[0], own)
        if own.traced + own.outstanding >= settings.relocation_events:
            return None  # enough: the walk begins when the last results have arrived
        uniform = zlib.crc32(f"{id[1]}/{id[2]}/{id[0]}".encode()) / _SHARES
        return wire.Trace(0) if own.window.tag(now_ns, uniform) else None

    def taken(self, id: EventId, root: str, upstream: str, local: int, onward: set[str], now_ns: int) -> None:
        """A traced event was taken on, given to `local` clients here, and sent to these neighbours."""
        if id in self._pending:
            if upstream:  # a duplicate: its sender counts nothing behind here
                self._send_to(upstream, wire.TraceResult(*id, 0))
            return
        pending = _Pending(root, upstream, set(onward), local, now_ns + self._settings.relocation_wait_ns)
        if not upstream and id[0] in self._own:
            self._own[id[0]].outstanding += 1
        if len(self._pending) >= self._settings.max_traces:
            self._drop(next(iter(self._pending)))
        self._pending[id] = pending
        if not pending.waiting:
            self._complete(id, pending)

    def on_result(self, source: str, message: wire.TraceResult) -> None:
        """A neighbour reports how many subscribers it has served."""
        id = (message.publisher, message.epoch, message.sequence)
        pending = self._pending.get(id)
        if pending is not None and source in pending.waiting:
            pending.waiting.discard(source)
            pending.behind[source] = message.subscribers
            if not pending.waiting:
                self._complete(id, pending)

    def on_request(self, message: wire.RelocationRequest) -> None:
        """The walk has arrived here: forward it, or answer."""
        self._step(message.publisher, message.left_behind, message.brokers)

    def on_answer(self, message: wire.RelocationAnswer) -> None:
        """The walk has ended: return the answer, or act on it."""
        if message.brokers:
            self._send_to(
                message.brokers[0], wire.RelocationAnswer(message.publisher, message.target, message.brokers[1:])
            )
        elif message.publisher in self._own and self._own[message.publisher].is_walking:
            self._own[message.publisher].is_walking = False
            self._ask_to_move(message.publisher, message.target)

    def rewire(self, neighbours: frozenset[str]) -> None:
        """Use these neighbours from now on; counts by the former ones are given up."""
        while self._pending:
            self._drop(next(iter(self._pending)))
        self._tables.clear()
        for own in self._own.values():
            own.traced = 0
        self._names = sorted(neighbours)
        self._places = {name: place for place, name in enumerate(self._names)}

    def forget(self, publisher: str) -> None:
        """A client is no longer at home here."""
        self._own.pop(publisher, None)

    def _complete(self, id: EventId, pending: _Pending) -> None:
        del self._pending[id]
        kept = self._tables.pop(id[0], None)
        table = kept[1] if kept is not None and kept[0] == pending.root else self._new_table()
        self._tables[id[0]] = (pending.root, table)  # the latest is forgotten last
        _bound(self._tables, self._settings.max_traces)
        behind = {self._places[name]: count for name, count in pending.behind.items() if name != pending.upstream}
        table.record(local=pending.local, behind=behind, upstream=self._places.get(pending.upstream))
        if pending.upstream:
            served = pending.local + sum(pending.behind.values())
            self._send_to(pending.upstream, wire.TraceResult(*id, served))
        elif id[0] in self._own:
            own = self._own[id[0]]
            own.outstanding -= 1
            own.traced += 1
            if own.traced >= self._settings.relocation_events:
                self._start_walk(id[0], own)

    def _new_table(self) -> "placement.ProfileTable":
        return placement.ProfileTable(tuple(self._places.values()))

    def _start_walk(self, publisher: str, own: _Own) -> None:
        if not own.outstanding:
            own.traced = 0
            own.is_walking = True
            self._step(publisher, 0.0, ())

    def _step(self, publisher: str, left_behind: float, brokers: tuple[str, ...]) -> None:
        root, table = self._tables.get(publisher, ("", None))
        home = brokers[-1] if brokers else self._settings.name
        following = None
        if table is not None and root == home and len(brokers) < wire.MAX_PATH:
            been = tuple(self._places[name] for name in brokers if name in self._places)
            request = placement.RelocationRequest(left_behind=left_behind, brokers=been)
            following = placement.next_broker(table, request)
        if following is not None and table is not None:
            left_there = table.local + sum(count for place, count in table.behind.items() if place != following)
            path = (self._settings.name, *brokers)
            request_on = wire.RelocationRequest(publisher, min(left_behind + left_there, 1e12), path)
            if self._send_to(self._names[following], request_on):
                return
        if brokers:
            self._send_to(brokers[0], wire.RelocationAnswer(publisher, self._settings.name, brokers[1:]))

    def _give_up(self, now_ns: int) -> None:
        while self._pending:
            id = next(iter(self._pending))
            if self._pending[id].due_ns > now_ns:
                return
            self._drop(id)

    def _drop(self, id: EventId) -> None:
        pending = self._pending.pop(id)
        if not pending.upstream and id[0] in self._own:
            self._own[id[0]].outstanding -= 1


def _bound(table: dict[str, Any], most: int) -> None:
    while len(table) > most:
        del table[next(iter(table))]
