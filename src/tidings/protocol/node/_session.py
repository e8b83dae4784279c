"""A session: one connection of a node, from the dialling or the accepting of it to its end."""

from collections.abc import Collection
from enum import Enum
from typing import Any

from tidings.protocol._budgets import Purse
from tidings.protocol.node._admission import Admission, Challenge, Opening, Preamble
from tidings.protocol.node._dials import Target
from tidings.protocol.node._frames import Splitter, plain

__all__ = ["Session", "SessionState"]


class SessionState(Enum):
    """Of a session. A question has a connection of its own, which is closed after the answer."""

    DIALLED = "dialled"
    """Dialled, or accepted and TLS is not through."""
    OPEN = "open"
    ADMITTED = "admitted"
    CLOSING = "closing"


class Session:
    """One connection."""

    __slots__ = (
        "address",
        "answers",
        "certified",
        "challenge",
        "is_admitted",
        "is_closing",
        "is_encrypted",
        "is_held_back",
        "is_local",
        "kind",
        "name",
        "opening",
        "passing",
        "peer",
        "preamble",
        "prefix",
        "purse",
        "since_ns",
        "splitter",
        "state",
        "tag_us",
        "target",
        "token",
        "unread_bytes",
        "unsent",
        "unsent_answers_bytes",
        "waiting",
    )

    def __init__(self, name: str, max_frame_bytes: int, target: Target | None, preamble: Preamble | None) -> None:
        self.name = name
        self.enter(SessionState.DIALLED)
        self.target = target  # the peer that this node has dialled
        self.preamble = preamble  # the first frame, if it was dialled
        self.opening: Opening | None = None  # the same, once the connection is open
        self.challenge: Challenge | None = None  # what the peer has to prove, if it was accepted
        self.token: str | None = None  # that admitted the peer here, or this node there
        self.kind = ""  # of the peer, as it states
        self.peer = ""  # name of the peer, as admitted
        self.address = ""
        self.certified: Collection[str] = ()
        self.is_encrypted = False
        self.is_local = False  # within the process: frames are handed over, without prefixes
        self.splitter = Splitter(max_frame_bytes, waits=True)
        self.prefix = plain
        self.unsent: list[Any] = []  # prefixes and frames, alternating
        self.unsent_answers_bytes = 0  # of the frames of this turn
        self.unread_bytes = 0  # of answers that were written and have not left, at most
        self.purse: Purse | None = None  # of a client
        self.is_held_back = False  # not read from: it was too fast, or its filters are being read
        self.passing = 0  # so many of its next frames are given to the machine whatever filters they have
        self.waiting: list[bytes] = []  # frames that it had sent already
        self.answers = 0  # how many answers to events it may send before they count as requests
        self.tag_us = 0.0  # of its requests (`_requests`)
        self.since_ns: int | None = None  # since when its requests wait

    def enter(self, state: SessionState) -> None:
        """Enter this state."""
        self.state = state
        self.is_admitted = state is SessionState.ADMITTED  # the machine knows it
        self.is_closing = state is SessionState.CLOSING

    def revocation(self, before: Admission, after: Admission, *, has_other_token: bool) -> str:
        """Why an admitted session would no longer be admitted; empty if it would."""
        kind, name, token = self.kind, self.peer, self.token
        if self.preamble is not None:
            return "the brokers' token has changed" if has_other_token and token is not None else ""
        if token is None and before.is_valid(kind, name, None) and not after.is_valid(kind, name, None):
            return f"{name!r} needs a token now"
        if token is not None and not after.is_valid(kind, name, token):
            return f"the token of {kind} {name!r} is no longer valid"
        if kind == "client" and before.rules_of(name) != after.rules_of(name):
            return f"the rules for {name!r} have changed"
        return ""
