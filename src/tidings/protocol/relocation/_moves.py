"""The moves of a home broker's clients, as far as it knows: requested, under way, done or called off.

For observers; nothing depends on it. A client reports its progress to its home (`Moving`), and then its new home
(`MigrationUpdate`). Reports that were lost with a connection are repeated over the next one; a client that is silent
for PATIENCE_NS is assumed to have called its move off. There is one move for each client at a time, and the last RECENT
that have ended are remembered.
"""

from collections import Counter, deque
from typing import Final, NamedTuple

from tidings.protocol import wire

__all__ = ["PATIENCE_NS", "RECENT", "MoveSeen", "Moves", "MovesView"]

PATIENCE_NS: Final = 60_000_000_000
RECENT: Final = 20


class MoveSeen(NamedTuple):
    """One client's move to `target`: since when, who requested it (`by`), its phase, and since when."""

    client: str
    target: str
    by: str
    since_ns: int
    phase: str
    phase_ns: int
    why: str = ""


class MovesView(NamedTuple):
    """The moves from one broker at `now_ns`: those under way, the oldest first, the last that have ended, the latest
    first, and their numbers since the broker started."""

    now_ns: int
    under_way: list[MoveSeen]
    recent: list[MoveSeen]
    asked: int
    done: int
    called_off: int


class Moves:
    """The moves from one broker."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._recent: deque[MoveSeen] = deque(maxlen=RECENT)
        self._under_way: dict[str, MoveSeen] = {}

    def view(self, now_ns: int) -> MovesView:
        """All moves, for observers."""
        for move in list(self._under_way.values()):
            if now_ns - move.phase_ns > PATIENCE_NS:
                self._end(move, "called off", now_ns, "nothing was heard from it")
        under_way = sorted(self._under_way.values(), key=lambda move: (move.since_ns, move.client))
        counts = (self._counts[what] for what in ("asked", "done", "called off"))
        return MovesView(now_ns, under_way, list(reversed(self._recent)), *counts)

    def is_moving(self, client: str, now_ns: int) -> bool:
        """Whether a client is moving, or has just been asked to."""
        move = self._under_way.get(client)
        return move is not None and now_ns - move.phase_ns <= PATIENCE_NS

    def asked(self, client: str, target: str, by: str, now_ns: int) -> None:
        """A client was asked to move; one that is moving already continues with that."""
        self._counts["asked"] += 1
        before = self._under_way.get(client)
        if before is None or before.phase == "asked":
            self._under_way[client] = MoveSeen(client, target, by, now_ns, "asked", now_ns)

    def heard(self, client: str, message: wire.Moving, now_ns: int) -> None:
        """A client reports its progress; an unrequested move begins with that."""
        move = self._under_way.get(client)
        if message.phase == "at home":
            return
        if message.phase == "called off":
            if move is not None and move.target == message.target:
                self._end(move, "called off", now_ns, message.why)
            return
        if move is not None and move.target != message.target:
            self._end(move, "called off", now_ns, f"it went to {message.target} instead")
            move = None
        if move is None:
            move = MoveSeen(client, message.target, "client", now_ns, message.phase, now_ns)
        self._under_way[client] = move._replace(phase=message.phase, phase_ns=now_ns)

    def departed(self, client: str, home: str, now_ns: int, *, was_known: bool) -> None:
        """A client reports another home, until it is answered; it `was_known` here the first time."""
        move = self._under_way.get(client)
        if move is not None and move.target != home:
            self._end(move, "called off", now_ns, f"it went to {home} instead")
            move = None
        if move is not None or was_known:
            self._end(move or MoveSeen(client, home, "client", now_ns, "", now_ns), "done", now_ns)

    def forget(self, client: str, now_ns: int) -> None:
        """A client is gone."""
        move = self._under_way.get(client)
        if move is not None:
            self._end(move, "called off", now_ns, "the client is gone")

    def _end(self, move: MoveSeen, phase: str, now_ns: int, why: str = "") -> None:
        self._under_way.pop(move.client, None)
        self._counts[phase] += 1
        self._recent.append(move._replace(phase=phase, phase_ns=now_ns, why=why))
