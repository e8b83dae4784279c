"""The base of every machine: time and frames in, effects out, nothing else.

- All calls take the time of the machine's own clock, which never runs backwards and continues over a restart.
- A call returns the effects of that step. It never blocks, never raises an error for a peer's fault, never reads a
  clock.
- The same calls with the same arguments give the same effects, byte for byte.
- An *incarnation* is one run of a machine, from its start to its stop. It is numbered by its *epoch*, which never
  falls.
- Whether an event is traced depends on its identity alone (`Sampler`), and whether spans are made of it on its trace
  context as well (`_trace_context`), so every broker decides the same. A publisher's name and epoch are hashed once;
  the sequence number is mixed in by two multiplications and a shift (the first half of the finalizer of MurmurHash3),
  which is as good as random here and costs a fraction of a microsecond.
"""

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from tidings.protocol._agenda import Agenda
from tidings.protocol._budgets import Budget
from tidings.protocol._effects import Close, Effect, EventId, Remark, Send, SetTimer
from tidings.protocol._errors import REMEDIES, PeerError
from tidings.protocol._rights import Rights
from tidings.protocol.links._peers import Peer
from tidings.protocol.wire import VERSION, Error, Hello, Message, Publish, Welcome, encode

__all__ = ["Bound", "Machine", "Sampler", "clock_offset_ns", "next_epoch"]

SAMPLED_RUN: Final = 16
"""Events of a publisher in a row that are traced together (`Sampler`)."""
REMARK_NS: Final = 60 * 10**9
"""The same remark is logged at most once in this time."""
MAX_REMARKS: Final = 1_000
"""So many remarks are remembered; beyond that the oldest may be logged again early."""
MAX_WHY: Final = 500
"""The most characters of a reason in a remark."""
_EPOCHS_APART_NS: Final = 1_000_000
_BITS: Final = (1 << 32) - 1
_INCARNATIONS: Final = 65_536
_DECISIONS: Final = 4_096
"""Publishers whose last decision a `Sampler` remembers; at the bound it forgets all of them."""
Bound = tuple[int, int]
"""The present size, and the bound."""


class Machine(ABC):
    """A broker or a client."""

    __slots__ = (  # there may be many in one process
        "__dict__",  # of subclasses, and of tests
        "_agenda",
        "_budgets",
        "_by_connection",
        "_congested",
        "_effects",
        "_identities",
        "_is_draining",
        "_keys",
        "_local",
        "_max_refused",
        "_now_ns",
        "_refused_by",
        "_remarks",
        "_rights",
        "_timer_ns",
        "_versions",
        "brokers",
        "counts",
        "events_in",
        "name",
        "read_us",
        "refused",
        "sent",
    )

    def __init__(self, name: str, *, max_refused: int) -> None:
        self.name = name
        self.sent: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.events_in = 0
        """How many events have arrived, in all frames."""
        self.read_us = 0.0
        """The estimated time spent on reading filters (`_budgets`)."""
        self.brokers: set[str] = set()
        """The brokers of the network, as reported to a client when it is admitted."""
        self._max_refused = max_refused
        self._agenda = Agenda()
        self._effects: list[Effect] = []
        self._now_ns = 0
        self._timer_ns: int | None = None
        self._by_connection: dict[str, Peer | None] = {}
        self._refused_by: Counter[str] = Counter()
        self._is_draining = False
        self._identities: dict[str, tuple[str, str]] = {}  # by connection: the kind and name it was admitted as
        self._rights: dict[str, Rights] = {}  # by connection, where not everything is allowed
        self._budgets: dict[str, Budget] = {}  # by connection of a client
        self._keys: dict[str, bytes] = {}  # by connection of a client that proves its name by its key
        self._versions: dict[str, int] = {}  # by connection: the version of the protocol that both ends speak
        self._congested: set[str] = set()  # connections that accept no more for now
        self._local: set[str] = set()  # connections within the process
        self._remarks: dict[tuple[str, str], tuple[int, int]] = {}  # when to log again, and the number of times since

    def mend(self, damaged: Sequence[str]) -> list[Effect]:  # noqa: ARG002
        """These records of its store are lost; called before it starts, and before they are erased."""
        return []

    @abstractmethod
    def start(self, now_ns: int) -> list[Effect]:
        """Start the machine."""

    def connected(
        self,
        connection: str,
        now_ns: int,
        *,
        identity: tuple[str, str] | None = None,
        rights: Rights | None = None,
        budget: Budget | None = None,
        version: int = VERSION,
        key: bytes | None = None,
        is_local: bool = False,
    ) -> list[Effect]:
        """A connection is open, under a name that the driver chose; the two ends have not greeted each other yet.

        The peer is held to `identity`, the kind and name that it was admitted as, to `rights`, and to `budget`. Both
        speak this version of the protocol. `key` is the one that a client has proved to have (empty: none); None if it
        has proved its name otherwise. `is_local`: it is in the same process.
        """
        self._now_ns = now_ns
        self._by_connection[connection] = None
        if identity is not None:
            self._identities[connection] = identity
        if rights is not None:
            self._rights[connection] = rights
        if budget is not None:
            self._budgets[connection] = budget
        if key is not None:
            self._keys[connection] = key
        self._versions[connection] = version
        if is_local:
            self._local.add(connection)
        self._refused_by.pop(connection, None)
        self._on_connected(connection)
        return self._finish()

    def disconnected(self, connection: str, now_ns: int) -> list[Effect]:
        """The connection is gone."""
        self._now_ns = now_ns
        peer = self._by_connection.pop(connection, None)
        self._identities.pop(connection, None)
        self._rights.pop(connection, None)
        self._budgets.pop(connection, None)
        self._keys.pop(connection, None)
        self._versions.pop(connection, None)
        self._congested.discard(connection)
        self._local.discard(connection)
        if peer is not None and peer.connection == connection:
            self._on_disconnected(peer)
        return self._finish()

    def congested(self, connection: str, is_congested: bool, now_ns: int) -> list[Effect]:
        """The socket accepts no more for now, or accepts more again: events wait meanwhile."""
        self._now_ns = now_ns
        if is_congested:
            self._congested.add(connection)
        else:
            self._congested.discard(connection)
        peer = self._by_connection.get(connection)
        if peer is not None and peer.connection == connection:
            peer.outbox.is_congested = is_congested
            if not is_congested:
                self._on_uncongested(peer)
        return self._finish()

    def drain(self, now_ns: int) -> list[Effect]:
        """Take on no more events: they are not acknowledged, so their senders keep them."""
        self._now_ns = now_ns
        self._is_draining = True
        return self._finish()

    def receive(self, connection: str, frame: bytes, now_ns: int) -> list[Effect]:
        """A frame has arrived; an invalid or forbidden one is refused and changes nothing but a counter."""
        self._now_ns = now_ns
        if connection in self._by_connection:
            try:
                self._on_frame(connection, frame)
            except PeerError as error:
                self._refuse(connection, error)
        return self._finish()

    def receive_many(self, came: Iterable[tuple[str, Sequence[bytes]]], now_ns: int) -> list[Effect]:
        """Frames that arrived together, by connection and in order; their effects leave together.

        No frames: part of a long one has arrived. Its sender is alive, however long the rest takes.
        """
        self._now_ns = now_ns
        known, on_frame = self._by_connection, self._on_frame
        for connection, frames in came:
            if not frames and (peer := known.get(connection)) is not None and peer.is_up:
                peer.heard_ns = now_ns
            for frame in frames:
                if connection not in known:
                    break
                try:
                    on_frame(connection, frame)
                except PeerError as error:
                    self._refuse(connection, error)
        return self._finish()

    def wake(self, now_ns: int) -> list[Effect]:
        """The time of the timer has come, or has passed."""
        self._now_ns = now_ns
        self._timer_ns = None
        agenda = self._agenda
        while agenda.next_ns is not None and agenda.next_ns <= now_ns:
            self._on_task(agenda.pop(now_ns))
        return self._finish()

    def synced(self, token: int, now_ns: int) -> list[Effect]:
        """Everything stored before this `Sync` is durable."""
        self._now_ns = now_ns
        self._on_synced(token)
        return self._finish()

    def last_epoch(self, client: str, key: bytes | None = None) -> int:  # noqa: ARG002
        """The latest known epoch of a client, with this key if it has one; -1 if there is none."""
        return -1

    def keys_of(self, client: str) -> Collection[bytes] | None:  # noqa: ARG002
        """The keys that a client's name is bound to, anywhere; None if that is not known yet."""
        return ()

    def why_full(self, client: str) -> str:  # noqa: ARG002
        """Why there is no room for a client; empty if there is."""
        return ""

    def restrict(self, rights_of: Callable[[str], Rights | None], now_ns: int) -> list[Effect]:  # noqa: ARG002
        """Apply new rights: requests of clients that are no longer allowed end."""
        self._now_ns = now_ns
        return self._finish()

    def note_admission(self, brokers: Iterable[str], last_epoch: int) -> None:  # noqa: ARG002
        """A broker has admitted this client: the brokers of the network, and the client's last epoch there."""
        self.brokers.clear()
        self.brokers.update(brokers)

    @abstractmethod
    def bounds(self) -> Mapping[str, Bound]:
        """Everything that could grow, with its bound."""

    def is_within_bounds(self) -> bool:
        """Whether nothing has outgrown its bound."""
        return all(size <= bound for size, bound in self.bounds().values())

    @abstractmethod
    def _on_connected(self, connection: str) -> None: ...

    @abstractmethod
    def _on_disconnected(self, peer: Peer) -> None: ...

    @abstractmethod
    def _on_uncongested(self, peer: Peer) -> None: ...

    @abstractmethod
    def _on_frame(self, connection: str, frame: bytes) -> None: ...

    @abstractmethod
    def _on_task(self, task: Hashable) -> None: ...

    @abstractmethod
    def _on_synced(self, token: int) -> None: ...

    @abstractmethod
    def _answers_errors(self, connection: str) -> bool:
        """Whether the peer is sent errors: two machines that both did so would never stop."""

    def _finish(self) -> list[Effect]:
        due_ns = self._agenda.next_ns
        if due_ns is not None and (self._timer_ns is None or due_ns < self._timer_ns):
            self._timer_ns = due_ns
            self._effects.append(SetTimer(due_ns))
        effects = self._effects
        if effects:
            self._effects = []
            return effects
        return []

    def _emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _send(self, peer: Peer, message: Message) -> None:
        if peer.connection is not None:
            self.sent[type(message).__name__] += 1
            self._effects.append(Send(peer.connection, encode(message), is_event=type(message) is Publish))

    def _send_all(self, peers: Iterable[Peer], message: Message) -> None:
        """Send the same frame to all of them."""
        kind, frame = type(message).__name__, encode(message)
        for peer in peers:
            if peer.connection is not None:
                self.sent[kind] += 1
                self._effects.append(Send(peer.connection, frame))

    def _send_events(self, peer: Peer, kind: str, frame: Any) -> None:
        if peer.connection is not None:
            self.sent[kind] += 1
            self._effects.append(Send(peer.connection, frame, is_event=True))

    def _send_over(self, connection: str, message: Message) -> None:
        self.sent[type(message).__name__] += 1
        self._effects.append(Send(connection, encode(message)))

    def _require_version(self, connection: str, greeting: Hello | Welcome) -> None:
        """PeerError unless a greeting has the version that was agreed on."""
        version = self._versions[connection]
        if greeting.version != version:
            raise PeerError(
                "version", f"{greeting.name!r} greets in version {greeting.version}, but {version} was agreed on"
            )

    def _remark(self, event: str, key: str = "", **facts: Any) -> None:
        """Log a remark, once in REMARK_NS for each event and key; then also the number of times since."""
        again_ns, times = self._remarks.pop((event, key), (0, 0))
        if len(self._remarks) >= MAX_REMARKS:
            del self._remarks[next(iter(self._remarks))]
        if self._now_ns < again_ns:
            self._remarks[event, key] = (again_ns, times + 1)
            return
        self._remarks[event, key] = (self._now_ns + REMARK_NS, 0)
        self._effects.append(Remark(event, {**facts, "times_before": times} if times else facts))

    def _remark_refusal(self, peer: Peer | None, kind: str, error: PeerError, **more: Any) -> None:
        name, code = "" if peer is None else peer.name, error.code
        facts = {"peer": name, "kind": kind, "code": code, "why": str(error)[:MAX_WHY], "remedy": REMEDIES[code]}
        self._remark("refused", f"{code} {name}", **facts, **more)

    def _refuse(self, connection: str, error: PeerError) -> None:
        self.refused[error.code] += 1
        self._remark_refusal(self._by_connection.get(connection), "frame", error)
        self._refused_by[connection] += 1
        if self._answers_errors(connection):
            self._send_over(connection, Error(error.code, str(error)[:4096]))
        if self._refused_by[connection] >= self._max_refused:
            self._effects.append(Close(connection, f"{self._max_refused} frames were refused, the last: {error}"[:500]))
            peer = self._by_connection.pop(connection, None)
            if peer is not None and peer.connection == connection:
                self._on_disconnected(peer)


def clock_offset_ns(*, wall_ns: int, steady_ns: int, noted_ns: int) -> int:
    """What to add to the steady clock in this incarnation: it begins with the wall clock, but not before `noted_ns`."""
    return max(wall_ns, noted_ns) - steady_ns


def next_epoch(stored: int | None, now_ns: int) -> int:
    """The epoch of a new incarnation: one more than the stored one; by the clock if none is stored."""
    return max(now_ns // _EPOCHS_APART_NS, 1) if stored is None else stored + 1


@lru_cache(maxsize=_INCARNATIONS)
def _origin(publisher: str, epoch: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{epoch}/{publisher}".encode(), digest_size=4).digest(), "big")


class Sampler:
    """Decides whether an event is in a share of all events; the events of a share are also in every larger one.

    SAMPLED_RUN events of a publisher in a row are decided together. So the gaps between successive events can be
    seen in a sample, and for most events the last decision is enough.
    """

    __slots__ = ("_below", "_last")

    def __init__(self, share: float) -> None:
        self._below = 0
        self._last: dict[str, tuple[int, int, bool]] = {}  # by publisher: epoch, run, decision
        self.take(share)

    def take(self, share: float) -> None:
        """Take this share from now on."""
        self._below = round(share * (_BITS + 1))
        self._last.clear()

    def __call__(self, event: EventId) -> bool:
        below = self._below
        if not 0 < below <= _BITS:
            return below > 0
        publisher, epoch, sequence = event
        run = sequence // SAMPLED_RUN
        last = self._last.get(publisher)
        if last is not None and last[1] == run and last[0] == epoch:
            return last[2]
        mixed = (_origin(publisher, epoch) + run * 0x9E3779B1) & _BITS
        is_sampled = ((mixed ^ mixed >> 16) * 0x85EBCA6B) & _BITS < below
        if len(self._last) >= _DECISIONS:
            self._last.clear()
        self._last[publisher] = (epoch, run, is_sampled)
        return is_sampled
