"""The gateway's own store: writes that are committed in groups, and actions for when they are durable.

All writes that arrive during one commit form the next one.
"""

from collections.abc import Callable

import msgspec

from tidings.mqtt._records import Incoming, Outgoing, RetainedRecord, SessionRecord, unpack
from tidings.protocol.node import Commit, Opened, sealed

__all__ = ["Commits", "Kept", "read_kept"]


class Commits:
    """The commits of one store, numbered from 1; one is under way at a time."""

    def __init__(self) -> None:
        self.durable = 0
        """The number of the last durable commit."""
        self.filling = 1
        """The number of the commit that gathers writes."""
        self._writes: dict[str, bytes | None] = {}
        self._is_under_way = False
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    @property
    def is_idle(self) -> bool:
        """Whether everything is durable."""
        return not (self._is_under_way or self._writes)

    @property
    def is_filling(self) -> bool:
        """Whether the next commit has something to write."""
        return bool(self._writes)

    def store(self, key: str, value: bytes) -> int:
        """Store a value; returns the number of its commit."""
        self._writes[key] = sealed(key, value)
        return self.filling

    def erase(self, key: str) -> int:
        """Erase a value."""
        self._writes[key] = None
        return self.filling

    def when_durable(self, do: Callable[[], None]) -> None:
        """Do something once everything stored so far is durable."""
        if self._writes:
            self._waiting.append((self.filling, do))
        elif self._is_under_way:
            self._waiting.append((self.filling - 1, do))
        else:
            do()

    def begin(self) -> Commit | None:
        """The next commit, if there is something to write and none is under way."""
        if not self._writes or self._is_under_way:
            return None
        commit = Commit(self._writes)
        self._writes = {}
        self._is_under_way = True
        self.filling += 1
        return commit

    def end(self) -> None:
        """The commit under way is durable."""
        self._is_under_way = False
        self.durable += 1
        waiting, self._waiting = self._waiting, []
        for number, do in waiting:
            if number <= self.durable:
                do()
            else:
                self._waiting.append((number, do))


class Kept(msgspec.Struct, kw_only=True):
    """What a store holds of one session."""

    record: SessionRecord
    out: list[Outgoing] = []
    incoming: list[Incoming] = []
    given: list[tuple[int, str]] = []
    """Places and identities, in the order of places."""


def read_kept(found: Opened) -> tuple[list[Kept], list[RetainedRecord], list[str]]:
    """The sessions, the retained messages, and the keys of what belongs to no session."""
    sessions: dict[str, Kept] = {}
    retained: list[RetainedRecord] = []
    parts: list[tuple[str, bytes]] = []
    for key, value in found.kept.items():
        match key.split("/"):
            case ["session", name]:
                sessions[name] = Kept(record=unpack(value, SessionRecord))
            case ["retained", *_]:
                retained.append(unpack(value, RetainedRecord))
            case _:
                parts.append((key, value))
    orphans = []
    for key, value in parts:
        kind, name = key.split("/")[:2]
        session = sessions.get(name)
        if session is None:
            orphans.append(key)
        elif kind == "out":
            session.out.append(unpack(value, Outgoing))
        elif kind == "in":
            known: Incoming = unpack(value, Incoming)
            session.incoming.append(Incoming(packet_id=known.packet_id, identity=known.identity))
        elif kind == "given":
            identity, place = unpack(value, tuple[str, int])
            session.given.append((place, identity))
    for session in sessions.values():
        session.given.sort()
    return list(sessions.values()), retained, orphans
