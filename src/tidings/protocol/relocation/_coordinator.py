"""A broker's part in finding better homes for publishers: what is traced, by which algorithm, and which client is asked
to move.

Every broker reports on traced events and forwards walks and surveys, whatever its own setting, which only decides
whether, and how, homes for its own publishers are sought. All of this is soft state: a lost message costs a sample or a
decision, never an event.

A publisher that has just come here, and one that has just been asked to move, stays for `relocation_stay_ns`: nothing
is traced, and it is not asked.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidings.errors import InputError
from tidings.protocol import wire
from tidings.protocol._settings import BrokerSettings
from tidings.protocol.links._peers import Peer, Peers, Ports
from tidings.protocol.relocation._grape import Grape
from tidings.protocol.relocation._moves import Moves
from tidings.protocol.relocation._on_time import OnTime, warm_up
from tidings.protocol.relocation._pop import Pop

if TYPE_CHECKING:
    from tidings.protocol.broker._held import Held
    from tidings.protocol.broker._link_state import LinkStateMap

__all__ = ["Coordinator", "RelocationMessage"]

RelocationMessage = (
    wire.TraceResult | wire.RelocationRequest | wire.RelocationAnswer | wire.TraceRequest | wire.TraceAnswer
)

_TYPICAL_BYTES: Final = 1_000


class Coordinator:
    """POP, GRAPE and on-time placement at one broker, and the moves that result from them."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        peers: Peers,
        ports: Ports,
        links: "LinkStateMap",
        now_ns: Callable[[], int],
        wake_at: Callable[[int], None],
    ) -> None:
        self.moves = Moves()
        self._settings = settings
        self._neighbours = peers.neighbours
        self._clients = peers.clients
        self._links = links
        self._send = ports.send
        self._count = ports.count
        self._now_ns = now_ns
        self._stays: dict[str, int] = {}  # by client at home here: until when it stays
        self._pop = Pop(settings, send_to=self._send_to, ask_to_move=self._advise)
        self._grape = Grape(
            settings,
            send_to=self._send_to,
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
        return max(len(self._pop), len(self._grape), len(self._on_time))

    def tag(self, held: "Held", now_ns: int) -> wire.Trace | None:
        """The trace of an event that is published here, if it is traced."""
        until_ns = self._stays.get(held.id[0])
        if until_ns is None:
            self._rest(held.id[0])
            until_ns = self._stays[held.id[0]]
        if now_ns < until_ns:
            return None
        match self._settings.relocation:
            case "pop":
                return self._pop.tag(held.id, now_ns)
            case "grape":
                return self._grape.tag(held.id, now_ns)
            case "on-time":
                self._on_time.note(held, now_ns)  # the home broker knows enough: no event has to be traced
        return None

    def taken(self, held: "Held", trace: wire.Trace, upstream: str, local: int, now_ns: int) -> None:
        """A traced event has arrived, from this neighbour or (empty) from its publisher, and was given to `local`
        clients."""
        onward = {parcel.peer.name for parcel in held.parcels.values()}
        if trace.number is None:
            self._pop.taken(held.id, held.root, upstream, local, onward, now_ns)
        else:
            self._grape.taken(held.id, held.root, trace, upstream, local, onward)

    def on_message(self, source: Peer, message: RelocationMessage, now_ns: int) -> None:
        """Handle a report, a question or an answer of a neighbour."""
        try:
            match message:
                case wire.TraceResult():
                    self._pop.on_result(source.name, message)
                case wire.RelocationRequest():
                    self._pop.on_request(message)
                case wire.RelocationAnswer():
                    self._pop.on_answer(message)
                case wire.TraceRequest():
                    self._grape.on_request(source.name, message, now_ns)
                case wire.TraceAnswer():
                    self._grape.on_answer(source.name, message)
        except InputError:
            self._count("trace refused")  # invalid figures: there is no decision

    def on_time(self, now_ns: int) -> None:
        """The timer has fired: end sessions, or ask again."""
        try:
            self._grape.on_time(now_ns)
            self._on_time.on_time(now_ns)
        except InputError:
            self._count("trace refused")

    def warm_up(self) -> None:
        """Load the code of decisions: that takes longer than events should wait."""
        if self._settings.relocation in ("grape", "on-time"):
            warm_up(type(self._links))

    def rewire(self, neighbours: frozenset[str]) -> None:
        """Use these neighbours from now on."""
        self._pop.rewire(neighbours)

    def forget(self, client: str) -> None:
        """A client is no longer at home here."""
        self._stays.pop(client, None)
        self._pop.forget(client)
        self._grape.forget(client)
        self._on_time.forget(client)

    def _rest(self, client: str) -> None:
        """Leave a client where it is for a while."""
        self._stays[client] = self._now_ns() + self._settings.relocation_stay_ns

    def _send_to(self, name: str, message: wire.Message) -> bool:
        peer = self._neighbours.get(name)
        if peer is None or not peer.is_up:
            return False
        self._send(peer, message)
        return True

    def _advise(self, client: str, target: str) -> bool:
        """An algorithm has found a better home."""
        self._rest(client)
        is_moving = self.moves.is_moving(client, self._now_ns())
        return not is_moving and self.ask_to_move(client, target, by=self._settings.relocation)

    def ask_to_move(self, client: str, target: str, *, by: str) -> bool:
        """Ask a client to make that broker its home; whether both are connected."""
        peer = self._clients.get(client)
        if peer is None or not peer.is_up or target == self._settings.name or target not in self._links.links():
            return False
        self._count("asked to move")
        self.moves.asked(client, target, by, self._now_ns())
        self._send(peer, wire.Move(target))
        return True

    def _times(self) -> tuple[int, dict[str, int]]:
        """The time from here to a client, on average, and to each neighbour: the queue, and the transfer."""
        clients = [_onward_ns(peer) for peer in self._clients.values() if peer.is_up]
        neighbours = {name: _onward_ns(peer) for name, peer in sorted(self._neighbours.items()) if peer.is_up}
        return sum(clients) // max(len(clients), 1), neighbours

    def _client_ns(self, client: str) -> int:
        peer = self._clients.get(client)
        return 0 if peer is None else _onward_ns(peer)


def _onward_ns(peer: Peer) -> int:
    waiting_ns = int(peer.outbox.queued * peer.meter.mean_s_per_kb * 1e9)
    return min(peer.meter.transit_ns(_TYPICAL_BYTES) + waiting_ns, wire.LONGEST_NS)
