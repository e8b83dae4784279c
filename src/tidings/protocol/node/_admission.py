"""Admission: the first frames on a connection, before the protocol's own greeting.

The end that opened the connection states its kind, its name, and a nonce; the other end answers whether it is admitted,
and closes the connection if not. A peer with something to prove is challenged first (`_proofs`): an answer with a nonce
asks for a proof, and the answer to that proves in turn that this end has the token too. From then on the connection is
bound to that name: a greeting under another one closes it. Both also state which versions of the protocol they speak,
and use the latest common one; from version 3 on frames have checksums (`_frames`) unless the connection has TLS, which
has its own.

- A client proves its name by its certificate (if the network requires certificates of clients) and by its token (if the
  network has tokens). Without either it proves that it owns the key to which its name was bound at first contact; a
  name that no broker knows is bound to the first client's key.
- A broker proves its name by its certificate, or by the token that all brokers share.
- A token is never sent to a peer that has not proved that it has it, except over TLS, or if `wire_version` is 2:
  version 2 had no challenges. A peer without a nonce has that version: it sends its token, or is not bound to a key.

Once there are rules, everything that no rule allows is refused: the filter of a rule has to cover a subscription or an
advertisement, and to match an event.
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
    """The first frame of the end that opened the connection."""

    kind: Literal["broker", "client", "status", "directory", "operator"]
    """A broker or a client stays; the others ask a question and leave after the answer; `detail` is part of the
    question."""
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    token: str | None = None
    magic: str = _MAGIC
    version: int = _VERSION
    detail: bytes = b""
    speaks: tuple[int, int] = (2, 2)
    """The oldest and the latest version of the protocol; by default version 2, which does not send this field."""
    nonce: Nonce = b""
    """A peer with a nonce can be challenged."""
    key: Key = b""
    """The public half of a client's key."""


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The first frame back: an empty code is yes; `detail` is the answer to a question, `speaks` the agreed version of
    the protocol.

    With a nonce it is a challenge by the broker whose name is `text`: prove that you have what it `wants`. The answer
    to the proof contains the proof that the broker has the token, too.
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
    """The preamble in a frame; DeniedError if it contains none."""
    try:
        preamble = _PREAMBLE.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise DeniedError("malformed", "the first frame is no preamble: is this a Tidings client?") from None
    if preamble.magic != _MAGIC or preamble.version != _VERSION:
        raise DeniedError(
            "version", f"version {preamble.version} of the connection's opening, this is {_VERSION}: upgrade"
        )
    return preamble


def read_answer(frame: bytes) -> Answer:
    """The answer to a preamble; DeniedError if it is no."""
    try:
        answer = _ANSWER.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise DeniedError("malformed", "the other end does not answer like a Tidings broker") from None
    if answer.code:
        raise DeniedError(answer.code, answer.text)
    return answer


def read_proof(frame: bytes) -> bytes:
    """The answer to a challenge; DeniedError if it is none."""
    try:
        return _PROOF.decode(frame).proof
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise DeniedError("malformed", "the answer to a challenge is not a proof") from None


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
    """The owner of this secret may use this name."""

    identity: str
    secret: str


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """The means by which a dialling node can prove its identity; `secret` is a client's own. An implied token was made
    by the brokers themselves, and is never sent."""

    token: str | None = None
    secret: str | None = None
    is_token_implied: bool = False


class MistrustError(DeniedError):
    """Raised when a dialled peer cannot prove to belong to the network: it may be an impostor."""


class Opening:
    """The opening of a connection by the end that dialled it: its frames, and its judgement of the answers.

    `listener` is the expected peer, if that is known. `is_trusted`: the other end has proved its identity by TLS, or
    may have version 2: it is shown the token, and need not prove that it has it.
    """

    def __init__(
        self,
        preamble: Preamble,
        credentials: Credentials,
        nonce: bytes,
        *,
        listener: str | None = None,
        is_trusted: bool = False,
    ) -> None:
        self._token = credentials.token
        own = credentials.secret is not None and preamble.kind == "client"
        self._key = ClientKey(str(credentials.secret), preamble.name) if own else None
        self._listener = listener
        self._trusts = is_trusted or self._token is None
        self._challenge: Answer | None = None
        self.preamble = msgspec.structs.replace(
            preamble,
            token=self._token if is_trusted and not credentials.is_token_implied else None,
            nonce=nonce,
            key=b"" if self._key is None else self._key.public,
        )

    @property
    def first(self) -> bytes:
        """The first frame."""
        return msgspec.msgpack.encode(self.preamble)

    def answered(self, frame: bytes) -> Answer | Proof:
        """The decision of the other end, or the next frame to send; DeniedError if this end is refused, or does not
        trust the other one."""
        answer = read_answer(frame)
        if self._challenge is not None:
            self._judge(answer, self._challenge)
        elif answer.nonce:
            self._challenge = answer
            return self._prove(answer)
        elif not self._trusts:
            raise MistrustError(
                "mistrust",
                "it does not ask for the token, so it may be an impostor: it needs none, has an earlier version (see "
                "`wire_version`), or is no broker of the network",
            )
        return answer

    def _prove(self, challenge: Answer) -> Proof:
        if self._listener is not None and challenge.text != self._listener:
            raise MistrustError("mistrust", f"{challenge.text!r} answers instead of {self._listener!r}")
        if challenge.wants != "token" and not self._trusts:
            raise MistrustError(
                "mistrust", f"{challenge.text!r} asks for no token, so it may be an impostor: connect without"
            )
        text = opening("dialler", self.preamble, challenge.text, challenge.nonce)
        if challenge.wants == "key" and self._key is not None:
            return Proof(self._key.sign(text))
        if challenge.wants == "token" and self._token is not None:
            return Proof(code_of(self._token, text))
        return Proof(b"")  # the answer states what is missing

    def _judge(self, answer: Answer, challenge: Answer) -> None:
        """MistrustError unless the other end has the token as well."""
        text = opening("listener", self.preamble, challenge.text, challenge.nonce)
        has_token = challenge.wants == "token" and is_code(answer.proof, self._token or "", text)
        if answer.nonce or not (has_token or self._trusts):
            raise MistrustError("mistrust", f"{challenge.text!r} does not have the token: it may be an impostor")


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What a peer has to prove: one of these tokens, or the key of its name; `denial` is the reason given to others."""

    wants: Literal["token", "key"]
    denial: str
    tokens: tuple[str, ...] = ()
    key: bytes = b""

    def require_shown(self, token: str | None) -> str:
        """The token shown by a peer that cannot be challenged; DeniedError if it is not one of these."""
        for each in self.tokens:
            if token is not None and hmac.compare_digest(token.encode(), each.encode()):
                return each
        raise DeniedError(self.code, self.denial)

    @property
    def code(self) -> str:
        """The rule broken by a peer that cannot prove it."""
        return "token" if self.wants == "token" else "identity"


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """A peer that has been asked to prove something, and has yet to."""

    preamble: Preamble
    demand: Demand
    listener: str
    nonce: bytes

    def answer(self) -> Answer:
        """The challenge as a frame."""
        return Answer(text=self.listener, nonce=self.nonce, wants=self.demand.wants)

    def met(self, proof: bytes) -> tuple[str | None, bytes]:
        """The token that was proved, and the proof that this end has it too; DeniedError if nothing was proved."""
        text = opening("dialler", self.preamble, self.listener, self.nonce)
        demand = self.demand
        if demand.wants == "key" and demand.key and is_signed(proof, demand.key, text):
            return None, b""
        for token in demand.tokens:
            if is_code(proof, token, text):
                return token, code_of(token, opening("listener", self.preamble, self.listener, self.nonce))
        raise DeniedError(demand.code, demand.denial)


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """The rules by which one broker admits connections."""

    name: str
    brokers: frozenset[str] = frozenset()
    """All brokers of the network; a peer that can prove to be one may give orders."""
    neighbours: frozenset[str] = frozenset()
    broker_token: str | None = None
    is_token_implied: bool = False
    """Whether brokers have made a token because none was configured: an earlier version does not know of it."""
    tokens: tuple[Token, ...] = ()
    rules: tuple[Rule, ...] = ()
    budgets: tuple[tuple[str, Budget], ...] = ()
    """By identity (`*` stands for any characters), a budget; the first that fits counts."""
    budget: Budget = Budget()
    """The budget of all other clients."""
    has_certificates: bool = False
    client_certificates: bool = False
    """Whether clients need one too."""
    trusts_old: bool = False
    """Whether brokers of version 2, which cannot be challenged, are admitted without the implied token."""

    def demand(self, preamble: Preamble, certified: Collection[str], keys: Collection[bytes] = ()) -> Demand | None:
        """What a peer with a certificate for these names has to prove before it is admitted under its preamble, if
        anything; DeniedError if it may not. `keys` are those that a client's name is bound to."""
        if preamble.kind == "broker":
            return self._broker(preamble, certified)
        if preamble.kind == "operator":
            return self._operator(certified)
        return self._client(preamble, certified, keys)

    def rights_of(self, client: str) -> Rights | None:
        """The rights of a client; None if there are no rules."""
        rules = self.rules_of(client)
        return None if rules is None else Rights(rules)

    def budget_of(self, client: str, rights: Rights | None) -> Budget:
        """The budget of a client; its rules may cap its rate."""
        found = next((budget for identity, budget in self.budgets if fnmatchcase(client, identity)), self.budget)
        return found if rights is None else found.capped(rights.rate_per_s)

    def rules_of(self, client: str) -> tuple[Rule, ...] | None:
        """The rules that name a client; None if there are no rules at all."""
        return tuple(rule for rule in self.rules if fnmatchcase(client, rule.identity)) if self.rules else None

    def is_valid(self, kind: str, name: str, token: str | None) -> bool:
        """Whether a peer that was admitted as this, by this token if any, would be admitted now."""
        if token is None:
            return not (kind == "client" and self.tokens)
        if kind == "broker":
            return token == self.broker_token
        return any(token == each.secret and fnmatchcase(name, each.identity) for each in self.tokens)

    def _broker(self, preamble: Preamble, certified: Collection[str]) -> Demand | None:
        if preamble.name not in self.neighbours:
            raise DeniedError("unknown", f"broker {preamble.name!r} is not a neighbour of {self.name!r}")
        if self.has_certificates:
            if preamble.name not in certified:
                raise DeniedError(
                    "certificate", f"the certificate of broker {preamble.name!r} is for {_listed(certified)}"
                )
            return None
        if self.broker_token is None or (self.trusts_old and not preamble.nonce):
            return None
        denial = f"broker {preamble.name!r} does not have the brokers' token"
        if self.is_token_implied:
            denial += (
                ": where brokers do not share the directory of their stores, give them a broker_token_file; while the "
                "network is upgraded from an earlier version, write wire_version = 2 under [network]"
            )
        return Demand(wants="token", tokens=(self.broker_token,), denial=denial)

    def _operator(self, certified: Collection[str]) -> Demand | None:
        """A peer that could connect as one of the network's brokers may give orders."""
        if self.has_certificates:
            if not self.brokers & set(certified):
                raise DeniedError("certificate", "orders need the certificate of a broker")
            return None
        if self.broker_token is not None:
            denial = "orders need the brokers' token"
            return Demand(wants="token", tokens=(self.broker_token,), denial=denial)
        if self.tokens or self.rules:
            raise DeniedError("token", "orders need a proof: configure [tls], or a broker_token_file")
        return None

    def _client(self, preamble: Preamble, certified: Collection[str], keys: Collection[bytes]) -> Demand | None:
        is_status = preamble.kind == "status"
        if self.client_certificates and not is_status and preamble.name not in certified:
            raise DeniedError("certificate", f"the certificate of client {preamble.name!r} is for {_listed(certified)}")
        if self.tokens:
            theirs = [token.secret for token in self.tokens if is_status or fnmatchcase(preamble.name, token.identity)]
            if is_status and self.broker_token is not None:
                theirs.append(self.broker_token)
            denial = f"{preamble.name!r} needs a token, and has none or a wrong one: ask the operator of the network"
            return Demand(wants="token", tokens=tuple(theirs), denial=denial)
        if self.client_certificates or preamble.kind != "client":
            return None
        return self._key_of(preamble, keys)

    def _key_of(self, preamble: Preamble, keys: Collection[bytes]) -> Demand | None:
        """Demand the key that a client's name is bound to, or will be."""
        if (keys and preamble.key not in keys) or (preamble.key and not preamble.nonce):
            raise DeniedError(
                "identity",
                f"the name {preamble.name!r} is another client's, or this one's with another secret: connect with the "
                "former secret or secret_file, take another name, or wait until the broker has forgotten it "
                "(10 minutes after its last connection)",
            )
        if not preamble.key:
            return None  # an earlier version, and a free name
        denial = f"{preamble.name!r} has not proved that it owns the key that it presents"
        return Demand(wants="key", key=preamble.key, denial=denial)


def _listed(names: Collection[str]) -> str:
    return ", ".join(names) or "nobody"
