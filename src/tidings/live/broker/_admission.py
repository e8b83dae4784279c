"""Who comes in, and as whom: the first frame on a connection, before the protocol's own greeting.

The end that opened the connection says what it is, its name, and its token if it has one; the other end answers
whether it may go on, and closes the connection if not. From then on a connection is held to that name: a greeting
under another one closes it. A stranger has GRACE_S to say who it is.

A client proves its name by its certificate (if the network wants certificates of clients) and by its token (if the
network has tokens); a broker by its certificate, or by the token that all brokers share.

Once there are rules, what no rule allows is refused: a subscription or an advertisement has to be covered by the
filter of a rule, an event has to satisfy it.
"""

import hmac
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

import msgspec

from tidings.live._errors import DeniedError
from tidings.live.configuration._config import Network, Rule
from tidings.live.configuration._schema import Name
from tidings.live.transport._connection import Connection
from tidings.live.transport._driver import HELLO, WELCOME
from tidings.model.filters import Filter
from tidings.protocol import PeerError, parsed, wire

__all__ = ["GRACE_S", "Admitted", "Answer", "Preamble", "admit", "read_answer", "read_preamble"]

GRACE_S: Final = 5.0
_MAGIC: Final = "tidings"
_VERSION: Final = 1
_ADVERTISE, _SUBSCRIBE = 5, 7
_GREETINGS: Final = frozenset((HELLO, WELCOME))
_RULED: Final = frozenset((_ADVERTISE, _SUBSCRIBE))


class Preamble(msgspec.Struct, frozen=True, array_like=True):
    """The first frame of whoever opened the connection."""

    kind: Literal["broker", "client", "status", "directory", "operator"]
    """Who comes to stay, or the question of one who goes when it is answered; `detail` is more of the question."""
    name: Name
    token: str | None = None
    magic: str = _MAGIC
    version: int = _VERSION
    detail: bytes = b""


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The first frame back: an empty code is yes; `detail` is what a question of status is answered with."""

    code: str = ""
    text: str = ""
    detail: bytes = b""


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


def admit(
    said: Preamble, connection: Connection, network: Network, broker: str, clock: Callable[[], int]
) -> "Admitted":
    """The guard of a connection; DeniedError if it may not come in."""
    if said.kind == "broker":
        _admit_broker(said, connection, network, broker)
        return Admitted("broker", said.name)
    if said.kind == "operator":
        _admit_operator(said, connection, network)
        return Admitted("operator", said.name)
    _admit_client(said, connection, network)
    rate_per_s = network.document.limits.rate_per_s
    rules = [rule for rule in network.rules if fnmatchcase(said.name, rule.identity)] if network.rules else None
    return Admitted("client", said.name, rules=rules, rate_per_s=rate_per_s, now_ns=clock())


def _admit_broker(said: Preamble, connection: Connection, network: Network, broker: str) -> None:
    if said.name not in network.links[broker]:
        raise DeniedError("unknown", f"broker {said.name!r} is not a neighbour of {broker!r}")
    if network.document.tls is not None:
        if said.name not in connection.certificate_names:
            named = ", ".join(connection.certificate_names) or "nobody"
            raise DeniedError("certificate", f"the certificate of broker {said.name!r} is for {named}")
    elif network.broker_token is not None and not _same(said.token, network.broker_token):
        raise DeniedError("token", f"broker {said.name!r} does not have the brokers' token")


def _admit_operator(said: Preamble, connection: Connection, network: Network) -> None:
    """Who could come as one of the network's brokers may give orders."""
    if network.document.tls is not None:
        if not network.brokers.keys() & set(connection.certificate_names):
            raise DeniedError("certificate", "orders are taken from who has the certificate of a broker")
    elif network.broker_token is not None:
        if not _same(said.token, network.broker_token):
            raise DeniedError("token", "orders are taken from who has the brokers' token")
    elif network.tokens or network.rules:
        raise DeniedError("token", "nobody can prove to run this network: give [tls], or a broker_token_file")


def _admit_client(said: Preamble, connection: Connection, network: Network) -> None:
    is_status = said.kind == "status"
    tls = network.document.tls
    needs_certificate = tls is not None and tls.client_certificates and not is_status
    if needs_certificate and said.name not in connection.certificate_names:
        named = ", ".join(connection.certificate_names) or "nobody"
        raise DeniedError("certificate", f"the certificate of client {said.name!r} is for {named}")
    if is_status and network.broker_token is not None and _same(said.token, network.broker_token):
        return
    if network.tokens:
        theirs = [token for token in network.tokens if is_status or fnmatchcase(said.name, token.identity)]
        if not any(_same(said.token, token.secret) for token in theirs):
            raise DeniedError("token", f"{said.name!r} needs a token, and this is not it: ask whoever runs the network")


def _same(one: str | None, other: str) -> bool:
    return one is not None and hmac.compare_digest(one.encode(), other.encode())


class Admitted:
    """The guard of an admitted connection: its name, what it may do, how fast."""

    def __init__(
        self,
        kind: str,
        name: str,
        *,
        rules: Iterable[Rule] | None = None,
        rate_per_s: float | None = None,
        now_ns: int = 0,
    ) -> None:
        self.kind = kind
        self.name = name
        self.is_ruled = rules is not None
        self.watched = _GREETINGS if rules is None else _GREETINGS | _RULED
        self._rules = tuple(rules or ())
        self._rate_per_s = rate_per_s
        self._allowance = rate_per_s or 0.0
        self._filled_ns = now_ns

    def may_publish(self, attributes: Mapping[str, Any]) -> bool:
        """Whether a rule allows an event."""
        return any(_matches(rule.publish, attributes) for rule in self._rules)

    def takes(self, count: int, now_ns: int) -> float:
        """A bucket that fills at the allowed rate, up to one second's worth."""
        rate_per_s = self._rate_per_s
        if rate_per_s is None:
            return 0.0
        filled = self._allowance + (now_ns - self._filled_ns) * 1e-9 * rate_per_s
        self._allowance = min(filled, rate_per_s) - count
        self._filled_ns = now_ns
        return max(-self._allowance / rate_per_s, 0.0)

    def allows(self, tag: int, frame: bytes) -> bytes | None:
        """None if the frame may pass, or the answer to it; an empty one closes the connection."""
        try:
            said: Any = wire.decode(frame)
            if tag in _GREETINGS:
                return None if (said.name, said.kind) == (self.name, self.kind) else b""
            if tag == _ADVERTISE:
                wanted = parsed(said.filter)
                return self._unless(any(_covers(rule.advertise, wanted) for rule in self._rules), "advertise", said)
            wanted = parsed(said.entry.filter)
            return self._unless(any(_covers(rule.subscribe, wanted) for rule in self._rules), "subscribe", said)
        except PeerError:
            return None  # the machine refuses it, and says why

    def _unless(self, is_allowed: bool, kind: str, said: Any) -> bytes | None:
        if is_allowed:
            return None
        name = said.entry.name if kind == "subscribe" else said.name
        text = f"no rule allows {self.name!r} to {kind} this: ask whoever runs the network"
        return wire.encode(wire.Error("denied", text, kind, name, said.number))


def _matches(allowed: Filter | bool, attributes: Mapping[str, Any]) -> bool:
    return allowed if isinstance(allowed, bool) else allowed.matches(attributes)


def _covers(allowed: Filter | bool, wanted: Filter) -> bool:
    return allowed if isinstance(allowed, bool) else allowed.covers(wanted) is True
