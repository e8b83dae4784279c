"""Who comes in, and as whom: the first frame on a connection, before the protocol's own greeting.

The end that opened the connection says what it is, its name, and its token if it has one; the other end answers
whether it may go on, and closes the connection if not. From then on a connection is held to that name: a greeting
under another one closes it. Both also say which versions of the protocol they speak, and go on with the latest that
both do; from version 3 on frames are checked (`_framing`) unless the connection has TLS, which does that itself.

A client proves its name by its certificate (if the network wants certificates of clients) and by its token (if the
network has tokens); a broker by its certificate, or by the token that all brokers share.

Once there are rules, what no rule allows is refused: a subscription or an advertisement has to be covered by the
filter of a rule, an event has to satisfy it.
"""

import hmac
from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal

import msgspec

from tidings.protocol._budgets import Budget
from tidings.protocol._errors import DeniedError
from tidings.protocol._rights import Rights, Rule

__all__ = [
    "Admission",
    "Answer",
    "Preamble",
    "Rights",
    "Rule",
    "Token",
    "common_version",
    "read_answer",
    "read_preamble",
]

_MAGIC: Final = "tidings"
_VERSION: Final = 1


class Preamble(msgspec.Struct, frozen=True, array_like=True):
    """The first frame of whoever opened the connection."""

    kind: Literal["broker", "client", "status", "directory", "operator"]
    """Who comes to stay, or the question of one who goes when it is answered; `detail` is more of the question."""
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    token: str | None = None
    magic: str = _MAGIC
    version: int = _VERSION
    detail: bytes = b""
    speaks: tuple[int, int] = (2, 2)
    """The oldest and the latest version of the protocol; who does not say so is of version 2."""


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The first frame back: an empty code is yes; `detail` is what a question of status is answered with, `speaks` the
    version of the protocol that both go on with."""

    code: str = ""
    text: str = ""
    detail: bytes = b""
    speaks: int = 2


_PREAMBLE: Final = msgspec.msgpack.Decoder(Preamble)
_ANSWER: Final = msgspec.msgpack.Decoder(Answer)


def read_preamble(frame: bytes) -> Preamble:
    """Who wants to come in; DeniedError if the frame does not say so."""
    try:
        said = _PREAMBLE.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise DeniedError("malformed", "the first frame does not say who connects: is this a Tidings client?") from None
    if said.magic != _MAGIC or said.version != _VERSION:
        raise DeniedError("version", f"version {said.version} of the connection's opening, this is {_VERSION}: upgrade")
    return said


def read_answer(frame: bytes) -> Answer:
    """The answer to a preamble; DeniedError if it is no."""
    try:
        answer = _ANSWER.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise DeniedError("malformed", "the other end does not answer as a Tidings broker does") from None
    if answer.code:
        raise DeniedError(answer.code, answer.text)
    return answer


def common_version(ours: tuple[int, int], theirs: tuple[int, int]) -> int:
    """The latest version of the protocol that both speak; DeniedError if there is none."""
    version = min(ours[1], theirs[1])
    if version < max(ours[0], theirs[0]):
        raise DeniedError(
            "version",
            f"one end speaks versions {theirs[0]} to {theirs[1]} of the protocol, the other {ours[0]} to {ours[1]}: "
            "upgrade the older one",
        )
    return version


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """Who has this secret may call itself so."""

    identity: str
    secret: str


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """Whom one broker lets in."""

    name: str
    brokers: frozenset[str] = frozenset()
    """All brokers of the network; whoever can prove to be one may give orders."""
    neighbours: frozenset[str] = frozenset()
    broker_token: str | None = None
    tokens: tuple[Token, ...] = ()
    rules: tuple[Rule, ...] = ()
    budgets: tuple[tuple[str, Budget], ...] = ()
    """By identity (`*` stands for any characters) what it may take; the first that fits counts."""
    budget: Budget = Budget()
    """What any other client may take."""
    has_certificates: bool = False
    client_certificates: bool = False
    """Whether clients need one too."""

    def require(self, said: Preamble, certified: Collection[str]) -> None:
        """DeniedError unless the end that holds a certificate for these names may come in as what it says."""
        if said.kind == "broker":
            self._require_broker(said, certified)
        elif said.kind == "operator":
            self._require_operator(said, certified)
        else:
            self._require_client(said, certified)

    def rights_of(self, client: str) -> Rights | None:
        """What a client may do; None if there are no rules."""
        if not self.rules:
            return None
        return Rights([rule for rule in self.rules if fnmatchcase(client, rule.identity)])

    def budget_of(self, client: str) -> Budget:
        """What a client may take."""
        return next((budget for identity, budget in self.budgets if fnmatchcase(client, identity)), self.budget)

    def _require_broker(self, said: Preamble, certified: Collection[str]) -> None:
        if said.name not in self.neighbours:
            raise DeniedError("unknown", f"broker {said.name!r} is not a neighbour of {self.name!r}")
        if self.has_certificates:
            if said.name not in certified:
                raise DeniedError("certificate", f"the certificate of broker {said.name!r} is for {_listed(certified)}")
        elif self.broker_token is not None and not _same(said.token, self.broker_token):
            raise DeniedError("token", f"broker {said.name!r} does not have the brokers' token")

    def _require_operator(self, said: Preamble, certified: Collection[str]) -> None:
        """Who could come as one of the network's brokers may give orders."""
        if self.has_certificates:
            if not self.brokers & set(certified):
                raise DeniedError("certificate", "orders are taken from who has the certificate of a broker")
        elif self.broker_token is not None:
            if not _same(said.token, self.broker_token):
                raise DeniedError("token", "orders are taken from who has the brokers' token")
        elif self.tokens or self.rules:
            raise DeniedError("token", "nobody can prove to run this network: give [tls], or a broker_token_file")

    def _require_client(self, said: Preamble, certified: Collection[str]) -> None:
        is_status = said.kind == "status"
        if self.client_certificates and not is_status and said.name not in certified:
            raise DeniedError("certificate", f"the certificate of client {said.name!r} is for {_listed(certified)}")
        if is_status and self.broker_token is not None and _same(said.token, self.broker_token):
            return
        if self.tokens:
            theirs = [token for token in self.tokens if is_status or fnmatchcase(said.name, token.identity)]
            if not any(_same(said.token, token.secret) for token in theirs):
                raise DeniedError(
                    "token", f"{said.name!r} needs a token, and this is not it: ask whoever runs the network"
                )


def _listed(names: Collection[str]) -> str:
    return ", ".join(names) or "nobody"


def _same(one: str | None, other: str) -> bool:
    return one is not None and hmac.compare_digest(one.encode(), other.encode())
