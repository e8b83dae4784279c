"""The gateway's own store: writes that are committed in groups, and actions for when they are durable.

All writes that arrive during one commit form the next one. Full stores, erasures that make room, and erasures that
nobody waits for are those of the broker's node (`protocol.node._commits`).
"""

from collections.abc import Callable

import msgspec

from tidings.mqtt._records import Incoming, Outgoing, RetainedRecord, SessionRecord, unpack
from tidings.protocol.node import Commit, Opened
from tidings.protocol.node import Commits as GroupCommits

__all__ = ["Commits", "Kept", "read_kept"]


class Commits:
    """The commits of one store, numbered from 1; one is under way at a time.

    Writes that a full store has refused are in the next commit, under its number.
    """

    def __init__(self) -> None:
        self.durable = 0
        """The number of the last durable commit."""
        self.filling = 1
        """The number of the commit that gathers writes."""
        self._commits = GroupCommits()
        self._synced = 0  # the last number that somebody waits for
        self._begun: Commit | None = None
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    @property
    def is_idle(self) -> bool:
        """Whether everything is durable."""
        return self._commits.is_idle

    @property
    def is_full(self) -> bool:
        """Whether there was no room for the last commit."""
        return self._commits.is_full

    @property
    def is_filling(self) -> bool:
        """Whether the next commit has something to write."""
        return self._commits.waiting > 0

    @property
    def due_ns(self) -> int | None:
        """When to call `begin` again, if nothing is stored before."""
        return self._commits.due_ns

    def store(self, key: str, value: bytes) -> int:
        """Store a value; returns the number of its commit."""
        self._commits.write(key, value)
        self._sync()
        return self.filling

    def erase(self, key: str) -> int:
        """Erase a value, ahead of other writes if there is no room for them."""
        self._commits.write(key, None, ahead=True)
        return self.filling

    def sync(self) -> int:
        """Commit everything stored and erased so far; returns the number of the commit after which it is durable."""
        if self._commits.waiting:
            self._sync()
            return self.filling
        return self.durable if self._begun is None else self.filling - 1

    def when_durable(self, do: Callable[[], None]) -> None:
        """Do something once everything stored and erased so far is durable."""
        number = self.sync()
        if number > self.durable:
            self._waiting.append((number, do))
        else:
            do()

    def _sync(self) -> None:
        if self._synced < self.filling:
            self._synced = self.filling
            self._commits.sync(self.filling)

    def begin(self, now_ns: int, *, hurry: bool = False) -> Commit | None:
        """The next commit, if there is something to write, it is time and none is under way."""
        commit = self._commits.next(now_ns, hurry=hurry)
        while commit is not None:
            self._begun = commit
            self.filling += not commit.is_ahead
            if commit.writes or commit.is_ahead:
                break
            self.end(now_ns)  # what was to be written has been erased ahead
            commit = self._commits.next(now_ns, hurry=hurry)
        return commit

    def end(self, now_ns: int) -> None:
        """The commit under way is durable."""
        commit, self._begun = self._begun, None
        assert commit is not None
        self._commits.done(now_ns)
        if commit.is_ahead:
            return
        self.durable = self.filling - 1
        waiting, self._waiting = self._waiting, []
        for number, do in waiting:
            if number <= self.durable:
                do()
            else:
                self._waiting.append((number, do))

    def refuse(self, now_ns: int) -> None:
        """There is no room for the commit under way."""
        self._begun = None
        self._commits.refused(now_ns)


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
