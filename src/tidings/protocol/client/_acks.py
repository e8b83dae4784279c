"""When a client acknowledges events: at once when events are rare, for many together when they are not.

An acknowledgement costs a broker about as much as a delivery. So the next one leaves `ack_wait_ns` after the last at
the earliest, or as much later as all frames in between have allowed (`Transfer.ease_ns`), unless there are `ack_many`
events to acknowledge, or a quarter of the client's window or of the broker's (shown by its credit): no peer may have to
wait for it. It states how long the last event was held, so that the wait does not look like slowness of the link.
Duplicates are acknowledged again at once: their sender is waiting.
"""

from collections.abc import Callable, Sequence
from typing import Final

from tidings.protocol._settings import ClientSettings
from tidings.protocol.links._peers import Peer, ranges
from tidings.protocol.wire import MAX_BATCH, Ack

__all__ = ["Acks"]

_SHARE: Final = 4
_MOST_EASE_NS: Final = 1_000_000_000
"""However long a broker allows, it is given an acknowledgement by then."""


class _Unanswered:
    """Numbers that were not acknowledged to one broker yet."""

    __slots__ = ("count", "ease_ns", "epoch", "is_asked_again", "last_ns", "numbers")

    def __init__(self, epoch: int, now_ns: int) -> None:
        self.epoch = epoch
        self.numbers: list[tuple[int, int]] = []
        self.count = 0
        self.last_ns = now_ns
        self.ease_ns: int | None = None
        self.is_asked_again = False


class Acks:
    """The acknowledgements of one client; `answer_at` gets the latest time for the next `flush`."""

    def __init__(
        self, settings: ClientSettings, *, send: Callable[[Peer, Ack], None], answer_at: Callable[[int], None]
    ) -> None:
        self._wait_ns = settings.ack_wait_ns
        self._many = min(settings.ack_many, settings.window // _SHARE)
        self._send = send
        self._answer_at = answer_at
        self._unanswered: dict[Peer, _Unanswered] = {}
        self._answered_ns: dict[Peer, int] = {}  # when the last acknowledgement left

    def __len__(self) -> int:
        return len(self._unanswered)

    def take(self, peer: Peer, new: Sequence[int], again: Sequence[int], now_ns: int, *, ease_ns: int = 0) -> None:
        """Events of these numbers were taken now, or before; the next acknowledgement may be this long after the
        last."""
        known = self._unanswered.get(peer)
        if known is None or known.epoch != peer.epoch:
            known = self._unanswered[peer] = _Unanswered(peer.epoch, now_ns)
        known.numbers += ranges(new) + ranges(again)
        known.count += len(new)
        known.last_ns = now_ns
        known.ease_ns = ease_ns if known.ease_ns is None else min(known.ease_ns, ease_ns)
        known.is_asked_again |= bool(again)

    def forget(self, peer: Peer) -> None:
        """The broker is gone: it will send unacknowledged events again."""
        self._unanswered.pop(peer, None)
        self._answered_ns.pop(peer, None)

    def flush(self, credit: int, now_ns: int, *, hurry: bool = False) -> None:
        """Acknowledge what does not wait any longer."""
        for peer, known in list(self._unanswered.items()):
            answered_ns = self._answered_ns.get(peer)
            due_ns = (
                now_ns
                if answered_ns is None
                else answered_ns + max(self._wait_ns, min(known.ease_ns or 0, _MOST_EASE_NS))
            )
            many = min(self._many, peer.outbox.credit // _SHARE)
            if now_ns < due_ns and known.count < many and not (known.is_asked_again or hurry):
                self._answer_at(due_ns)
                continue
            del self._unanswered[peer]
            if known.epoch == peer.epoch:
                self._answered_ns[peer] = now_ns
                self._acknowledge(peer, known, credit, now_ns)

    def _acknowledge(self, peer: Peer, known: _Unanswered, credit: int, now_ns: int) -> None:
        numbers = _joined(known.numbers)
        for begin in range(0, len(numbers), MAX_BATCH):
            some = tuple(numbers[begin : begin + MAX_BATCH])
            self._send(peer, Ack(known.epoch, some, now_ns - known.last_ns, credit, peer.outcomes.news()))


def _joined(numbers: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges, with adjacent ones joined."""
    found: list[tuple[int, int]] = []
    for first, last in numbers:
        if found and found[-1][1] + 1 == first:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found
