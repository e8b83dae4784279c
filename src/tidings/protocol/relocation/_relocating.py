"""A broker's part in finding places for publishers: what is traced, by which algorithm, and who is asked to move.

Every broker answers for traced events and carries walks and surveys, whatever its own setting: that only says whether,
and how, the places of its own publishers are sought. All of this is soft: what is lost costs a sample or a decision,
never an event.

A publisher that has just come here, by a move or by itself, and one that has just been asked to move, stays for
`relocation_stay_ns`: nothing is traced, and nobody is asked.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tidings.errors import InputError
from tidings.protocol import wire
from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._held import Held
from tidings.protocol.broker._link_state import LinkStateMap
from tidings.protocol.links._peers import Peer
from tidings.protocol.relocation._moves import Moves
from tidings.protocol.relocation._on_time import OnTime, warm_up
from tidings.protocol.relocation._profiling import Profiling
from tidings.protocol.relocation._surveying import Surveying

__all__ = ["Relocating", "RelocationMessage"]

RelocationMessage = (
    wire.TraceResult | wire.RelocationRequest | wire.RelocationAnswer | wire.TraceRequest | wire.TraceAnswer
)

_TYPICAL_BYTES: Final = 1_000


class Relocating:
    """POP, GRAPE and on-time placement at one broker, and the moves that come of them."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        neighbours: Mapping[str, Peer],
        clients: Mapping[str, Peer],
        links: LinkStateMap,
        send: Callable[[Peer, wire.Message], None],
        count: Callable[[str], None],
        now_ns: Callable[[], int],
        wake_at: Callable[[int], None],
    ) -> None:
        self.moves = Moves()
        self._settings = settings
        self._neighbours = neighbours
        self._clients = clients
        self._links = links
        self._send = send
        self._count = count
        self._now_ns = now_ns
        self._stays: dict[str, int] = {}  # by client at home here: until when it is left alone
        self._profiling = Profiling(settings, tell=self._tell, ask_to_move=self._advise)
        self._surveying = Surveying(
            settings,
            tell=self._tell,
            ask_to_move=self._advise,
            times=self._times,
            client_ns=self._client_ns,
            wake_at=wake_at,
        )
        self._on_time = OnTime(
            settings,
            links=links,
            ask_to_move=self._advise,
            rest=self._rest,
            times_ns=lambda client: (self._client_ns(client), self._times()[0]),
            wake_at=wake_at,
        )

    def __len__(self) -> int:
        return max(len(self._profiling), len(self._surveying), len(self._on_time))

    def tag(self, held: Held, now_ns: int) -> wire.Trace | None:
        """How an event that is published here is traced, if it is."""
        until_ns = self._stays.get(held.id[0])
        if until_ns is None:
            self._rest(held.id[0])
            until_ns = self._stays[held.id[0]]
        if now_ns < until_ns:
            return None
        match self._settings.relocation:
            case "pop":
                return self._profiling.tag(held.id, now_ns)
            case "grape":
                return self._surveying.tag(held.id, now_ns)
            case "on-time":
                self._on_time.note(held, now_ns)  # the home knows enough: no event has to be traced
        return None

    def taken(self, held: Held, trace: wire.Trace, upstream: str, local: int, now_ns: int) -> None:
        """A traced event has come, from this neighbour or (empty) from its publisher, and was given to so many here."""
        onward = {parcel.peer.name for parcel in held.parcels.values()}
        if trace.number is None:
            self._profiling.taken(held.id, held.root, upstream, local, onward, now_ns)
        else:
            self._surveying.taken(held.id, held.root, trace, upstream, local, onward)

    def on_message(self, source: Peer, said: RelocationMessage, now_ns: int) -> None:
        """A neighbour tells, asks or answers."""
        try:
            match said:
                case wire.TraceResult():
                    self._profiling.on_result(source.name, said)
                case wire.RelocationRequest():
                    self._profiling.on_request(said)
                case wire.RelocationAnswer():
                    self._profiling.on_answer(said)
                case wire.TraceRequest():
                    self._surveying.on_request(source.name, said, now_ns)
                case wire.TraceAnswer():
                    self._surveying.on_answer(source.name, said)
        except InputError:
            self._count("trace refused")  # figures that cannot be weighed: there is no decision

    def on_time(self, now_ns: int) -> None:
        """Something has to be ended or asked again."""
        try:
            self._surveying.on_time(now_ns)
            self._on_time.on_time(now_ns)
        except InputError:
            self._count("trace refused")

    def warm_up(self) -> None:
        """Load what decisions need: it takes longer than events should wait."""
        if self._settings.relocation in ("grape", "on-time"):
            warm_up()

    def rewire(self, neighbours: frozenset[str]) -> None:
        """These are the neighbours from now on."""
        self._profiling.rewire(neighbours)

    def forget(self, client: str) -> None:
        """A client is no longer at home here."""
        self._stays.pop(client, None)
        self._profiling.forget(client)
        self._surveying.forget(client)
        self._on_time.forget(client)

    def _rest(self, client: str) -> None:
        """Leave a client where it is for a while."""
        self._stays[client] = self._now_ns() + self._settings.relocation_stay_ns

    def _tell(self, name: str, message: wire.Message) -> bool:
        peer = self._neighbours.get(name)
        if peer is None or not peer.is_up:
            return False
        self._send(peer, message)
        return True

    def _advise(self, client: str, target: str) -> bool:
        """An algorithm knows a better place."""
        self._rest(client)
        is_moving = self.moves.is_moving(client, self._now_ns())
        return not is_moving and self.ask_to_move(client, target, by=self._settings.relocation)

    def ask_to_move(self, client: str, target: str, *, by: str) -> bool:
        """Ask a client to make that broker its home; whether it, and the broker, are there."""
        peer = self._clients.get(client)
        if peer is None or not peer.is_up or target == self._settings.name or target not in self._links.links():
            return False
        self._count("asked to move")
        self.moves.asked(client, target, by, self._now_ns())
        self._send(peer, wire.Move(target))
        return True

    def _times(self) -> tuple[int, dict[str, int]]:
        """From here to a client, on average, and to each neighbour: what waits, and the transfer."""
        clients = [_onward_ns(peer) for peer in self._clients.values() if peer.is_up]
        neighbours = {name: _onward_ns(peer) for name, peer in sorted(self._neighbours.items()) if peer.is_up}
        return sum(clients) // max(len(clients), 1), neighbours

    def _client_ns(self, client: str) -> int:
        peer = self._clients.get(client)
        return 0 if peer is None else _onward_ns(peer)


def _onward_ns(peer: Peer) -> int:
    waiting_ns = int(peer.outbox.queued * peer.meter.mean_s_per_kb * 1e9)
    return min(peer.meter.transit_ns(_TYPICAL_BYTES) + waiting_ns, wire.LONGEST_NS)
