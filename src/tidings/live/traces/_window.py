"""What a broker has seen lately: rows of a trace in memory, over a sliding window of bounded time and bytes.

Rows are those that `[trace]` would write (`_recorder`), of a share of the events that the broker chooses itself:

- A window is a row of PIECES pieces, each of which may fill its part of the bytes. After a piece that would have been
  fuller, the share is halved until it fits; after one that was a quarter full, it is doubled. A piece that is full
  before its time ends at once. So the bytes bound the rows per second, and with them the processor time.
- Shares are powers of two, and samples are nested (`protocol.Sampler`): the events of the smallest share are in every
  broker's rows, so windows of several brokers are merged by leaving out the others (`_merged`).
- A piece states the smallest share since the piece before began: what was under way when the share was raised is known
  in part only.

Rows are kept encoded, as msgpack: they are not objects that the garbage collector looks at, their bytes are counted as
they are, and an answer copies them. A name is encoded once in each piece. Subscriptions are not part of the window: the
broker knows the present ones (`_recorder`).

No clock: times are arguments.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from tidings.protocol import EventId, Sampler

__all__ = [
    "DELIVERY",
    "HOP",
    "LINK",
    "OUTCOMES",
    "PAGE_BYTES",
    "PIECES",
    "PUBLICATION",
    "Piece",
    "Pieces",
    "Window",
    "rows_of",
]

PIECES: Final = 30
"""How many pieces a window has when none is full before its time."""
PAGE_BYTES: Final = 1_000_000
"""An answer has pieces of at most this size together, or one."""
LEAST_SHARE: Final = 2.0**-16
OUTCOMES: Final = ("received", "lost", "expired", "hopeless", "in-flight", "failed")
PUBLICATION, HOP, DELIVERY, LINK = range(4)
"""The first field of a row."""
_NAME_BYTES: Final = 100
"""What a name takes beside its characters."""
_HEAD_BYTES: Final = 5
"""Of the rows of a piece, as an array of msgpack."""
_BRIEFEST_NS: Final = 50_000_000
"""A rate is not measured over less."""

Row = tuple[Any, ...]
_NUMBERS: Final = {outcome: number for number, outcome in enumerate(OUTCOMES)}


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """The rows of some seconds, of a share of the events; in the rows, a number stands for one of the `names`."""

    number: int
    began_ns: int
    ended_ns: int
    share: float
    names: tuple[str, ...]
    rows: bytes


class Pieces(msgspec.Struct, frozen=True, array_like=True):
    """A part of a window: pieces, and whether later ones remain. The recording began at `since_ns`, it is `now_ns`."""

    since_ns: int
    now_ns: int
    pieces: tuple[Piece, ...]
    has_more: bool


class Window:
    """The rows of one broker over the last `span_ns`, in at most `size_bytes`."""

    def __init__(self, *, span_ns: int, size_bytes: int, now_ns: int) -> None:
        self.share = 1.0
        """The share of the events that is recorded now."""
        self.on_share: Callable[[float], None] = lambda _: None
        """Called with the new share when it changes."""
        self.since_ns = now_ns
        self._span_ns = span_ns
        self._size_bytes = size_bytes
        self._piece_bytes = size_bytes // (PIECES + 2)
        self._pieces: deque[Piece] = deque()
        self._held_bytes = 0
        self._number = 0
        self._least_share = self.share  # since the piece before began
        self._encode = msgspec.msgpack.Encoder().encode_into
        self._is_sampled = Sampler(self.share)
        self._begin(now_ns)

    def _begin(self, now_ns: int) -> None:
        self._began_ns = now_ns
        self._rows = bytearray()
        self._count = 0
        self._names: dict[str, int] = {}
        self._names_bytes = 0

    @property
    def held_bytes(self) -> int:
        """The size of all that is kept."""
        return self._held_bytes + len(self._rows) + self._names_bytes

    # -- rows ----------------------------------------------------------------------------------------------------

    def has(self, event: EventId) -> bool:
        """Whether an event is in the share that is recorded now."""
        return self._is_sampled(event)

    def publish(
        self,
        event: EventId,
        departure_ns: int,
        accepted_ns: int,
        size_bytes: int,
        lifetime_ns: int | None,
        attributes: Mapping[str, Any],
    ) -> None:
        """A client's event was accepted here."""
        own = (departure_ns, accepted_ns - departure_ns, size_bytes, lifetime_ns, attributes)
        self._add((PUBLICATION, self._publisher(event), event[2], *own), accepted_ns)

    def hop(
        self,
        event: EventId,
        peer: str,
        enqueued_ns: int,
        sent_ns: int | None,
        received_ns: int | None,
        outcome: str,
        now_ns: int,
    ) -> None:
        """An event's way to a neighbour has ended."""
        waited_ns = None if sent_ns is None else sent_ns - enqueued_ns
        took_ns = None if received_ns is None else received_ns - enqueued_ns
        own = (self._name(peer), enqueued_ns, waited_ns, took_ns, _NUMBERS[outcome])
        self._add((HOP, self._publisher(event), event[2], *own), now_ns)

    def deliver(
        self, event: EventId, client: str, subscriptions: Sequence[str], departure_ns: int, age_ns: int, now_ns: int
    ) -> None:
        """A client has received an event for these subscriptions, at this age."""
        for subscription in subscriptions:
            own = (self._name(client), self._name(subscription), departure_ns, age_ns)
            self._add((DELIVERY, self._publisher(event), event[2], *own), now_ns)

    def link(self, peer: str, at_ns: int, *, up: bool) -> None:
        """The link to a neighbour works, or no longer works."""
        self._add((LINK, self._name(peer), at_ns, up), at_ns)

    def _publisher(self, event: EventId) -> int:
        return self._name(f"{event[0]}/{event[1]}")

    def _name(self, name: str) -> int:
        number = self._names.get(name)
        if number is None:
            number = self._names[name] = len(self._names)
            self._names_bytes += len(name) + _NAME_BYTES
        return number

    def _add(self, row: Row, now_ns: int) -> None:
        self._encode(row, self._rows, -1)
        self._count += 1
        if len(self._rows) + self._names_bytes >= self._piece_bytes:
            self._end_piece(now_ns)

    # -- time ----------------------------------------------------------------------------------------------------

    def tick(self, now_ns: int) -> None:
        """End the piece that is old enough, and forget what is too old."""
        if now_ns - self._began_ns >= self._span_ns // PIECES:
            self._end_piece(now_ns)
        self._forget(now_ns)

    def _end_piece(self, now_ns: int) -> None:
        taken_bytes = len(self._rows) + self._names_bytes
        piece = self._open_piece(now_ns)
        self._pieces.append(piece)
        self._held_bytes += taken_bytes
        self._number += 1
        self._least_share = self.share
        self._adapt(taken_bytes / max(now_ns - self._began_ns, _BRIEFEST_NS))
        self._begin(now_ns)
        self._forget(now_ns)

    def _adapt(self, bytes_per_ns: float) -> None:
        """Choose the share with which the next piece is at most full, but not nearly empty."""
        expected_bytes, share = bytes_per_ns * (self._span_ns // PIECES), self.share
        while expected_bytes > self._piece_bytes and share > LEAST_SHARE:
            share, expected_bytes = share / 2.0, expected_bytes / 2.0
        if expected_bytes < self._piece_bytes / 4.0:
            share = min(2.0 * share, 1.0)
        self._least_share = min(self._least_share, share)
        if share != self.share:
            self.share = share
            self._is_sampled.take(share)
            self.on_share(share)

    def _forget(self, now_ns: int) -> None:
        while self._pieces and (
            self._pieces[0].ended_ns <= now_ns - self._span_ns or self.held_bytes > self._size_bytes
        ):
            gone = self._pieces.popleft()
            self._held_bytes -= len(gone.rows) - _HEAD_BYTES + sum(len(name) + _NAME_BYTES for name in gone.names)
            self.since_ns = gone.ended_ns

    # -- answers -------------------------------------------------------------------------------------------------

    def pieces_after(self, number: int, now_ns: int) -> Pieces:
        """The pieces after this number, or the first of them; the last is the open one as far as it is filled."""
        self.tick(now_ns)
        found: list[Piece] = []
        size_bytes = 0
        for piece in (*self._pieces, self._open_piece(now_ns)):
            if piece.number > number:
                size_bytes += len(piece.rows) + sum(map(len, piece.names))
                if found and size_bytes > PAGE_BYTES:
                    return Pieces(self.since_ns, now_ns, tuple(found), has_more=True)
                found.append(piece)
        return Pieces(self.since_ns, now_ns, tuple(found), has_more=False)

    def _open_piece(self, now_ns: int) -> Piece:
        rows = b"\xdd" + self._count.to_bytes(4, "big") + self._rows  # an array of msgpack
        return Piece(self._number, self._began_ns, now_ns, self._least_share, tuple(self._names), rows)


def rows_of(piece: Piece) -> list[list[Any]]:
    """The rows of a piece; ValueError if it is damaged."""
    rows: list[list[Any]] = msgspec.msgpack.decode(piece.rows, type=list[list[Any]])
    return rows
