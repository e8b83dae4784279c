"""Events that are under way to one peer under numbers that follow each other, and that nobody looks at one by one.

A broker that keeps events sends many of one course at a time, and they are acknowledged as they were sent. So what is
under way is a lot, for each peer of the course. It ends whole: whatever concerns a part of it (an acknowledgement of
some, an event that expires, a peer that is lost or has to be sent to again) has it undone first, into parcels.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidings.protocol.links._peers import Peer

__all__ = ["Lot"]


class Lot:
    """The numbers from `first` to `last`; `undo` puts parcels in its place."""

    __slots__ = ("due_ns", "end", "first", "last", "peer", "sent_ns", "undo")

    def __init__(
        self,
        peer: "Peer",
        first: int,
        last: int,
        *,
        sent_ns: int,
        due_ns: int,
        end: "Callable[[Peer], None]",
        undo: Callable[[], None],
    ) -> None:
        self.peer = peer
        self.first = first
        self.last = last
        self.sent_ns = sent_ns
        self.due_ns = due_ns
        self.end = end
        self.undo = undo

    @property
    def size(self) -> int:
        """How many events it is."""
        return self.last - self.first + 1
