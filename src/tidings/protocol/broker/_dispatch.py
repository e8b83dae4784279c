"""What leaves a broker for its peers: each part of an event as a parcel, when its peer takes it (papers C, D).

- A parcel leaves at once if nothing waits for its peer and one more may be under way. Otherwise it waits in the peer's
  outbox, where the strategy decides what leaves next, and what is not worth sending any more.
- All parcels of a step leave at its end, in as few frames as can be (`flush`).
- A parcel ends when its peer has acknowledged it, or when the queue has let it go: the event is no longer owed to those
  whom it was for. Without buffering it ends as it leaves.
"""

from collections.abc import Callable

from tidings.protocol._settings import BrokerSettings
from tidings.protocol.broker._courses import Courses
from tidings.protocol.broker._holdings import Holdings
from tidings.protocol.links._peers import Peer
from tidings.protocol.links._window import Parcel
from tidings.protocol.wire import Ack
from tidings.scheduling import Reason

__all__ = ["Dispatch"]


class Dispatch:
    """The exit of one broker; `retry_at` is told when something may have to be sent again to a peer."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        holdings: Holdings,
        courses: Courses,
        send_events: Callable[[Peer, str, bytes], None],
        note: Callable[..., None],
        count: Callable[..., None],
        retry_at: Callable[[Peer, int], None],
    ) -> None:
        self.epoch = 0
        self.events_out = 0
        """How many events have left, in whatever frames; those that were sent again count once."""
        self._buffers = settings.buffers
        self._probe_ns = settings.probe_ns
        self._holdings = holdings
        self._courses = courses
        self._send_events = send_events
        self._note = note
        self._count = count
        self._retry_at = retry_at
        self._leaving: list[Peer] = []  # those who are sent something at the end of this step

    @property
    def is_stirred(self) -> bool:
        """Whether something leaves at the end of this step."""
        return bool(self._leaving)

    def leaves_for(self, peer: Peer) -> None:
        """Something leaves for a peer with this step, the first."""
        self._leaving.append(peer)

    def flush(self, now_ns: int) -> None:
        """Send what leaves with this step."""
        leaving, self._leaving = self._leaving, []
        for peer in leaving:
            outbox = peer.outbox
            self.events_out += len(outbox.leaving)
            for frame in outbox.frames(self.epoch, now_ns):
                self._send_events(peer, "Transfer", frame)
            self._retry_at(peer, outbox.left_due_ns)

    def offer(self, parcel: Parcel, now_ns: int) -> None:
        """Let a parcel leave, or wait."""
        peer = parcel.peer
        outbox = peer.outbox
        self._note("enqueued", parcel.held.id, peer.name)
        if peer.is_up and outbox.takes(1):
            self._send(parcel, now_ns)
            return
        for dropped in outbox.enqueue(parcel, now_ns):
            self._lose(dropped, "full")
        self.pump(peer, now_ns)
        if peer.is_up and not outbox.under_way:
            self._retry_at(peer, now_ns + self._probe_ns)

    def pump(self, peer: Peer, now_ns: int, *, probing: bool = False) -> None:
        """Send what may be sent, in the order of the strategy."""
        outbox = peer.outbox
        while peer.is_up and (outbox.window.room > 0 or probing):
            probing = False
            parcel, deleted = outbox.next(now_ns)
            for gone, reason in deleted:
                self._lose(gone, reason)
            if parcel is None:
                return
            if parcel.targets:
                self._send(parcel, now_ns)

    def resend(self, peer: Peer, now_ns: int) -> None:
        """Send again what was not acknowledged in time."""
        outbox = peer.outbox
        outbox.window.let_lost_go(now_ns)
        for count, frame in outbox.again(self.epoch, now_ns):
            self._count("resent", count)
            self._send_events(peer, "Transfer", frame)

    def acknowledged(self, peer: Peer, said: Ack, now_ns: int) -> None:
        """A peer has taken events on."""
        for parcel in peer.outbox.acknowledge(said.numbers, said.held_ns, now_ns):
            self._end(parcel)
        if peer.outbox.queued:
            self.pump(peer, now_ns)

    def withdraw(self, peer: Peer) -> None:
        """Take back what waits for a peer, and if it is lost what is under way to it: others may get it there."""
        for parcel in peer.outbox.withdraw(under_way=not peer.is_up):
            self._note("withdrawn", parcel.held.id, peer.name)
            self.unlink(parcel)

    def unlink(self, parcel: Parcel) -> list[str]:
        """Nothing is on its way any more to where this parcel, and no later one, was to go."""
        if parcel.peer.kind == "client":
            on_their_way, places = parcel.held.handed, [parcel.peer.name]
        else:
            on_their_way, places = parcel.held.parcels, list(parcel.targets)
        ended = [place for place in places if on_their_way.get(place) is parcel]
        for place in ended:
            del on_their_way[place]
        return ended

    def _send(self, parcel: Parcel, now_ns: int) -> None:
        peer, held = parcel.peer, parcel.held
        targets = self._courses.targets_of(parcel.targets, is_client=peer.kind == "client")
        if not peer.outbox.leaving:
            self._leaving.append(peer)
        peer.outbox.send(parcel, targets, held.encode_once(now_ns), now_ns)
        self._note("sent", held.id, peer.name, parcel.number, tuple(parcel.targets))
        if not self._buffers:
            self._end(parcel)

    def _lose(self, parcel: Parcel, reason: Reason) -> None:
        """The queue has let an event go: it is too late for it, or there were too many."""
        self._count(reason)
        self._note(reason, parcel.held.id, parcel.peer.name)
        self._end(parcel)

    def _end(self, parcel: Parcel) -> None:
        """The event is no longer owed to those whom the parcel was for."""
        held = parcel.held
        for target in self.unlink(parcel):
            (held.local if parcel.peer.kind == "client" else held.targets).pop(target, None)
        self._holdings.settle(held)
