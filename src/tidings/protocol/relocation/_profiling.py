"""POP in the overlay: trace results, profile tables, and the walk to a publisher's place (paper E, sections 3.1, 3.2).

Rules:

- Every broker that takes on a traced event tells the neighbour it came from how many subscribers were served here and
  behind (`TraceResult`), as soon as all to whom it was sent on have told it the same. A result that does not come
  within `relocation_wait_ns` is given up, with the sample: nothing is counted by halves.
- The publisher's home counts the results. When there are enough, and none is outstanding, it starts the walk: a
  `RelocationRequest` that each broker sends on to the neighbour with the majority, and a `RelocationAnswer` that comes
  back by the same brokers. If one of them is lost there is no move now, and another walk after as many events more.
- A table is of one publisher at one home, by neighbours: after a move, or with other neighbours, it begins anew.

The algorithms are `tidings.placement`'s; here is who tells whom.
"""

import zlib
from collections.abc import Callable
from typing import Any, Final

from tidings import placement
from tidings.protocol import wire
from tidings.protocol._effects import EventId
from tidings.protocol._settings import BrokerSettings

__all__ = ["Profiling"]

_SHARES: Final = 2**32


class _Pending:
    """A traced event whose results have not all come; `upstream` is where it came from, empty at its home."""

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


class Profiling:
    """One broker's part; `tell` sends to a neighbour by name, and says whether it is there."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        tell: Callable[[str, wire.Message], bool],
        ask_to_move: Callable[[str, str], bool],
    ) -> None:
        self._settings = settings
        self._tell = tell
        self._ask_to_move = ask_to_move
        self._names = sorted(settings.neighbours)
        self._places = {name: place for place, name in enumerate(self._names)}
        self._tables: dict[str, tuple[str, placement.ProfileTable]] = {}
        self._pending: dict[EventId, _Pending] = {}
        self._own: dict[str, _Own] = {}

    def __len__(self) -> int:
        return max(len(self._tables), len(self._pending), len(self._own))

    def tag(self, id: EventId, now_ns: int) -> wire.Trace | None:
        """Whether an event that is published here is traced; the draw is the event's own, so it is always the same."""
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
            return None  # enough: the walk begins when the last results are here
        uniform = zlib.crc32(f"{id[1]}/{id[2]}/{id[0]}".encode()) / _SHARES
        return wire.Trace(0) if own.window.tag(now_ns, uniform) else None

    def taken(self, id: EventId, root: str, upstream: str, local: int, onward: set[str], now_ns: int) -> None:
        """A traced event was taken on, given to so many clients here, and sent on to these neighbours."""
        if id in self._pending:
            if upstream:  # another copy: who sent it counts nothing behind here
                self._tell(upstream, wire.TraceResult(*id, 0))
            return
        pending = _Pending(root, upstream, set(onward), local, now_ns + self._settings.relocation_wait_ns)
        if not upstream and id[0] in self._own:
            self._own[id[0]].outstanding += 1
        if len(self._pending) >= self._settings.max_traces:
            self._drop(next(iter(self._pending)))
        self._pending[id] = pending
        if not pending.waiting:
            self._complete(id, pending)

    def on_result(self, source: str, said: wire.TraceResult) -> None:
        """A neighbour says how many it has served."""
        id = (said.publisher, said.epoch, said.sequence)
        pending = self._pending.get(id)
        if pending is not None and source in pending.waiting:
            pending.waiting.discard(source)
            pending.behind[source] = said.subscribers
            if not pending.waiting:
                self._complete(id, pending)

    def on_request(self, said: wire.RelocationRequest) -> None:
        """The walk has come here: on, or back."""
        self._step(said.publisher, said.left_behind, said.brokers)

    def on_answer(self, said: wire.RelocationAnswer) -> None:
        """The walk has ended: hand the answer back, or act on it."""
        if said.brokers:
            self._tell(said.brokers[0], wire.RelocationAnswer(said.publisher, said.target, said.brokers[1:]))
        elif said.publisher in self._own and self._own[said.publisher].is_walking:
            self._own[said.publisher].is_walking = False
            self._ask_to_move(said.publisher, said.target)

    def rewire(self, neighbours: frozenset[str]) -> None:
        """These are the neighbours from now on: what was counted by those before is given up."""
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
        self._tables[id[0]] = (pending.root, table)  # the last one in is the last one to be forgotten
        _bound(self._tables, self._settings.max_traces)
        behind = {self._places[name]: count for name, count in pending.behind.items() if name != pending.upstream}
        table.record(local=pending.local, behind=behind, upstream=self._places.get(pending.upstream))
        if pending.upstream:
            served = pending.local + sum(pending.behind.values())
            self._tell(pending.upstream, wire.TraceResult(*id, served))
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
            if self._tell(self._names[following], request_on):
                return
        if brokers:
            self._tell(brokers[0], wire.RelocationAnswer(publisher, self._settings.name, brokers[1:]))

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
