"""Who comes in, and as whom: the first frames on a connection, before the protocol's own greeting.

The end that opened the connection says what it is, its name, and a nonce; the other end answers whether it may go on,
and closes the connection if not. Whoever has something to prove is challenged first (`_proofs`): an answer with a nonce
wants a proof, and the answer to that proves in turn that this end has the token too. From then on a connection is held
to that name: a greeting under another one closes it. Both also say which versions of the protocol they speak, and go on
with the latest that both do; from version 3 on frames are checked (`_framing`) unless the connection has TLS, which
does that itself.

- A client proves its name by its certificate (if the network wants certificates of clients) and by its token (if the
  network has tokens). Without either it proves that it has the key that its name was bound to at first contact; a
  name that no broker knows is bound to the key of whoever comes first.
- A broker proves its name by its certificate, or by the token that all brokers share.
- Nobody shows a token to who has not proved to have it, but over TLS, or where `wire_version` is 2: version 2
  had no challenges. Who brings no nonce is of that version, and shows its token, or is not known by a key.

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
from tidings.protocol.node._proofs import ClientKey, Key, Nonce, Proof, code_of, is_code, is_signed, opening

__all__ = [
    "Admission",
    "Answer",
    "Challenge",
    "Credentials",
    "Demand",
    "MistrustError",
    "Opening",
    "Preamble",
    "Rights",
    "Rule",
    "Token",
    "common_version",
    "read_answer",
    "read_preamble",
    "read_proof",
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
    nonce: Nonce = b""
    """Whoever has one can be challenged."""
    key: Key = b""
    """The public half of a client's key."""


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The first frame back: an empty code is yes; `detail` is what a question of status is answered with, `speaks` the
    version of the protocol that both go on with.

    With a nonce it is a challenge by the broker whose name is `text`: prove to have what it `wants`. The answer to that
    carries the proof that the broker has the token, too.
    """

    code: str = ""
    text: str = ""
    detail: bytes = b""
    speaks: int = 2
    nonce: Nonce = b""
    wants: Literal["", "token", "key"] = ""
    proof: Annotated[bytes, msgspec.Meta(max_length=64)] = b""


_PREAMBLE: Final = msgspec.msgpack.Decoder(Preamble)
_ANSWER: Final = msgspec.msgpack.Decoder(Answer)
_PROOF: Final = msgspec.msgpack.Decoder(Proof)


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


def read_proof(frame: bytes) -> bytes:
    """The answer to a challenge; DeniedError if it is none."""
    try:
        return _PROOF.decode(frame).proof
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise DeniedError("malformed", "a challenge is answered by a proof, and this is none") from None


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


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """What a node can prove who it is with, when it dials; `secret` is a client's own. A token that is implied was
    made by the brokers themselves, and is shown to nobody."""

    token: str | None = None
    secret: str | None = None
    is_token_implied: bool = False


class MistrustError(DeniedError):
    """Raised when an end that was dialled cannot prove to be of the network: it may be anybody."""


class Opening:
    """The opening of a connection by the end that dialled it: what it says, and what it makes of the answers.

    `listener` is who is expected there, if that is known. `is_trusted`: the other end has proved who it is by TLS, or
    may be of version 2: it is shown the token, and need not prove that it has it.
    """

    def __init__(
        self,
        said: Preamble,
        credentials: Credentials,
        nonce: bytes,
        *,
        listener: str | None = None,
        is_trusted: bool = False,
    ) -> None:
        self._token = credentials.token
        own = credentials.secret is not None and said.kind == "client"
        self._key = ClientKey(str(credentials.secret), said.name) if own else None
        self._listener = listener
        self._trusts = is_trusted or self._token is None
        self._challenge: Answer | None = None
        self.said = msgspec.structs.replace(
            said,
            token=self._token if is_trusted and not credentials.is_token_implied else None,
            nonce=nonce,
            key=b"" if self._key is None else self._key.public,
        )

    @property
    def first(self) -> bytes:
        """The first frame."""
        return msgspec.msgpack.encode(self.said)

    def answered(self, frame: bytes) -> Answer | Proof:
        """What the other end has decided, or what to say next; DeniedError if this end is refused, or does not trust
        the other one."""
        answer = read_answer(frame)
        if self._challenge is not None:
            self._judge(answer, self._challenge)
        elif answer.nonce:
            self._challenge = answer
            return self._prove(answer)
        elif not self._trusts:
            raise MistrustError(
                "mistrust",
                "it does not ask for the token, so it may be anybody: it wants no token, is of an earlier version (see "
                "`wire_version`), or is none of the network's brokers",
            )
        return answer

    def _prove(self, challenge: Answer) -> Proof:
        if self._listener is not None and challenge.text != self._listener:
            raise MistrustError("mistrust", f"{challenge.text!r} is there, and not {self._listener!r}")
        if challenge.wants != "token" and not self._trusts:
            raise MistrustError("mistrust", f"{challenge.text!r} wants no token, so it may be anybody: connect without")
        text = opening("dialler", self.said, challenge.text, challenge.nonce)
        if challenge.wants == "key" and self._key is not None:
            return Proof(self._key.sign(text))
        if challenge.wants == "token" and self._token is not None:
            return Proof(code_of(self._token, text))
        return Proof(b"")  # and be told what is missing

    def _judge(self, answer: Answer, challenge: Answer) -> None:
        """MistrustError unless the other end has the token as well."""
        text = opening("listener", self.said, challenge.text, challenge.nonce)
        has_token = challenge.wants == "token" and is_code(answer.proof, self._token or "", text)
        if answer.nonce or not (has_token or self._trusts):
            raise MistrustError("mistrust", f"{challenge.text!r} does not have the token: it may be anybody")


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody has to prove: one of these tokens, or the key of its name; `denial` is what others are told."""

    wants: Literal["token", "key"]
    denial: str
    tokens: tuple[str, ...] = ()
    key: bytes = b""

    def require_shown(self, token: str | None) -> str:
        """The token that somebody shows who cannot be challenged; DeniedError if it is not one of these."""
        for each in self.tokens:
            if token is not None and hmac.compare_digest(token.encode(), each.encode()):
                return each
        raise DeniedError(self.code, self.denial)

    @property
    def code(self) -> str:
        """The rule that is broken by who cannot prove it."""
        return "token" if self.wants == "token" else "identity"


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who has been asked to prove something, and has yet to."""

    said: Preamble
    demand: Demand
    listener: str
    nonce: bytes

    def answer(self) -> Answer:
        """What it is asked."""
        return Answer(text=self.listener, nonce=self.nonce, wants=self.demand.wants)

    def met(self, proof: bytes) -> tuple[str | None, bytes]:
        """The token that was proved, and the proof that this end has it too; DeniedError if nothing was proved."""
        text = opening("dialler", self.said, self.listener, self.nonce)
        demand = self.demand
        if demand.wants == "key" and demand.key and is_signed(proof, demand.key, text):
            return None, b""
        for token in demand.tokens:
            if is_code(proof, token, text):
                return token, code_of(token, opening("listener", self.said, self.listener, self.nonce))
        raise DeniedError(demand.code, demand.denial)


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """Whom one broker lets in."""

    name: str
    brokers: frozenset[str] = frozenset()
    """All brokers of the network; whoever can prove to be one may give orders."""
    neighbours: frozenset[str] = frozenset()
    broker_token: str | None = None
    is_token_implied: bool = False
    """Whether nobody has given brokers a token, and they have made one: an earlier version does not know of it."""
    tokens: tuple[Token, ...] = ()
    rules: tuple[Rule, ...] = ()
    budgets: tuple[tuple[str, Budget], ...] = ()
    """By identity (`*` stands for any characters) what it may take; the first that fits counts."""
    budget: Budget = Budget()
    """What any other client may take."""
    has_certificates: bool = False
    client_certificates: bool = False
    """Whether clients need one too."""
    trusts_old: bool = False
    """Whether brokers of version 2, which cannot be challenged, may come in without the implied token."""

    def demand(self, said: Preamble, certified: Collection[str], keys: Collection[bytes] = ()) -> Demand | None:
        """What the end that holds a certificate for these names has to prove before it may come in as what it says,
        if anything; DeniedError if it may not. `keys` are those that the name of a client is bound to."""
        if said.kind == "broker":
            return self._broker(said, certified)
        if said.kind == "operator":
            return self._operator(certified)
        return self._client(said, certified, keys)

    def rights_of(self, client: str) -> Rights | None:
        """What a client may do; None if there are no rules."""
        rules = self.rules_of(client)
        return None if rules is None else Rights(rules)

    def budget_of(self, client: str, rights: Rights | None) -> Budget:
        """What a client may take; its rules may cap its rate."""
        found = next((budget for identity, budget in self.budgets if fnmatchcase(client, identity)), self.budget)
        return found if rights is None else found.capped(rights.rate_per_s)

    def rules_of(self, client: str) -> tuple[Rule, ...] | None:
        """The rules that name a client; None if there are none for anybody."""
        return tuple(rule for rule in self.rules if fnmatchcase(client, rule.identity)) if self.rules else None

    def is_valid(self, kind: str, name: str, token: str | None) -> bool:
        """Whether who was let in as this, by this token if any, would be let in by it now."""
        if token is None:
            return not (kind == "client" and self.tokens)
        if kind == "broker":
            return token == self.broker_token
        return any(token == each.secret and fnmatchcase(name, each.identity) for each in self.tokens)

    def _broker(self, said: Preamble, certified: Collection[str]) -> Demand | None:
        if said.name not in self.neighbours:
            raise DeniedError("unknown", f"broker {said.name!r} is not a neighbour of {self.name!r}")
        if self.has_certificates:
            if said.name not in certified:
                raise DeniedError("certificate", f"the certificate of broker {said.name!r} is for {_listed(certified)}")
            return None
        if self.broker_token is None or (self.trusts_old and not said.nonce):
            return None
        denial = f"broker {said.name!r} does not have the brokers' token"
        if self.is_token_implied:
            denial += (
                ": where brokers do not share the directory of their stores, give them a broker_token_file; while the "
                "network is upgraded from an earlier version, write wire_version = 2 under [network]"
            )
        return Demand(wants="token", tokens=(self.broker_token,), denial=denial)

    def _operator(self, certified: Collection[str]) -> Demand | None:
        """Who could come as one of the network's brokers may give orders."""
        if self.has_certificates:
            if not self.brokers & set(certified):
                raise DeniedError("certificate", "orders are taken from who has the certificate of a broker")
            return None
        if self.broker_token is not None:
            denial = "orders are taken from who has the brokers' token"
            return Demand(wants="token", tokens=(self.broker_token,), denial=denial)
        if self.tokens or self.rules:
            raise DeniedError("token", "nobody can prove to run this network: give [tls], or a broker_token_file")
        return None

    def _client(self, said: Preamble, certified: Collection[str], keys: Collection[bytes]) -> Demand | None:
        is_status = said.kind == "status"
        if self.client_certificates and not is_status and said.name not in certified:
            raise DeniedError("certificate", f"the certificate of client {said.name!r} is for {_listed(certified)}")
        if self.tokens:
            theirs = [token.secret for token in self.tokens if is_status or fnmatchcase(said.name, token.identity)]
            if is_status and self.broker_token is not None:
                theirs.append(self.broker_token)
            denial = f"{said.name!r} needs a token, and this is not it: ask whoever runs the network"
            return Demand(wants="token", tokens=tuple(theirs), denial=denial)
        if self.client_certificates or said.kind != "client":
            return None
        return self._key_of(said, keys)

    def _key_of(self, said: Preamble, keys: Collection[bytes]) -> Demand | None:
        """That a client has the key which its name is bound to, or will be."""
        if (keys and said.key not in keys) or (said.key and not said.nonce):
            raise DeniedError(
                "identity",
                f"the name {said.name!r} is another client's, or this one's with another secret: connect with the "
                "secret or secret_file of that time, take another name, or wait until the broker has forgotten it "
                "(10 minutes after it was there last)",
            )
        if not said.key:
            return None  # of an earlier version, and its name is nobody's
        denial = f"{said.name!r} has not proved that it has the key which it shows"
        return Demand(wants="key", key=said.key, denial=denial)


def _listed(names: Collection[str]) -> str:
    return ", ".join(names) or "nobody"
