"""A broker's part in finding places for publishers: what is traced, by which algorithm, and who is asked to move.

Every broker answers for traced events and carries walks and surveys, whatever its own setting: that only says whether,
and how, the places of its own publishers are sought. All of this is soft: what is lost costs a sample or a decision,
never an event.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tidings.errors import InputError
from tidings.protocol import wire
from tidings.protocol._effects import EventId
from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._held import Held
from tidings.protocol.links._peers import Peer
from tidings.protocol.relocation._profiling import Profiling
from tidings.protocol.relocation._surveying import Surveying

__all__ = ["Relocating", "RelocationMessage"]

RelocationMessage = (
    wire.TraceResult | wire.RelocationRequest | wire.RelocationAnswer | wire.TraceRequest | wire.TraceAnswer
)

_TYPICAL_BYTES: Final = 1_000


class Relocating:
    """POP and GRAPE at one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        neighbours: Mapping[str, Peer],
        clients: Mapping[str, Peer],
        is_broker: Callable[[str], bool],
        send: Callable[[Peer, wire.Message], None],
        count: Callable[[str], None],
        wake_at: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._neighbours = neighbours
        self._clients = clients
        self._is_broker = is_broker
        self._send = send
        self._count = count
        self._profiling = Profiling(settings, tell=self._tell, ask_to_move=self.ask_to_move)
        self._surveying = Surveying(
            settings,
            tell=self._tell,
            ask_to_move=self.ask_to_move,
            times=self._times,
            client_ns=self._client_ns,
            wake_at=wake_at,
        )

    def __len__(self) -> int:
        return max(len(self._profiling), len(self._surveying))

    def tag(self, id: EventId, now_ns: int) -> wire.Trace | None:
        """How an event that is published here is traced, if it is."""
        if self._settings.relocation == "off":
            return None
        return (self._profiling if self._settings.relocation == "pop" else self._surveying).tag(id, now_ns)

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
        except InputError:
            self._count("trace refused")

    def rewire(self, neighbours: frozenset[str]) -> None:
        """These are the neighbours from now on."""
        self._profiling.rewire(neighbours)

    def forget(self, client: str) -> None:
        """A client is no longer at home here."""
        self._profiling.forget(client)
        self._surveying.forget(client)

    def _tell(self, name: str, message: wire.Message) -> bool:
        peer = self._neighbours.get(name)
        if peer is None or not peer.is_up:
            return False
        self._send(peer, message)
        return True

    def ask_to_move(self, client: str, target: str) -> bool:
        """Ask a client to make that broker its home; whether it, and the broker, are there."""
        peer = self._clients.get(client)
        if peer is None or not peer.is_up or target == self._settings.name or not self._is_broker(target):
            return False
        self._count("asked to move")
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
