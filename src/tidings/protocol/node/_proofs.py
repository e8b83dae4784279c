"""How the two ends of a connection prove who they are, without showing anybody what they prove it with.

- **By a token** that both ends have: each makes a code (HMAC-SHA256) of the opening of this very connection, in which
  both have a nonce. A code says which end made it, as what and under which name the one came, and whom it
  came to: so it cannot be reflected, replayed, or used with somebody else. The end that dialled goes first: whoever
  merely connects to a broker learns nothing of its token; and it goes on only with an end that has the token too.
- **By a key** of a client's own where there are no tokens: the client signs the same text (Ed25519). The key follows
  from a secret that the client has made and nobody else ever sees; brokers keep the public half. Neither who listens
  in a broker's place nor who reads its store can come as the client.
"""

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

if TYPE_CHECKING:
    from tidings.protocol.node._admission import Preamble

__all__ = ["NONCE_BYTES", "ClientKey", "Key", "Nonce", "Proof", "code_of", "is_code", "is_signed", "opening"]

NONCE_BYTES: Final = 32
_KEY_BYTES: Final = 32
_CONTEXT: Final = "tidings opening 1"

Nonce = Annotated[bytes, msgspec.Meta(max_length=NONCE_BYTES)]
Key = Annotated[bytes, msgspec.Meta(max_length=_KEY_BYTES)]


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """The second frame of whoever dialled, if it was challenged."""

    proof: Annotated[bytes, msgspec.Meta(max_length=64)]


def opening(end: Literal["dialler", "listener"], said: "Preamble", listener: str, nonce: bytes) -> bytes:
    """What one end of a connection makes a code of or signs: all that the other end has to be sure of."""
    who = (said.kind, said.name, said.speaks, said.detail, said.nonce)
    return msgspec.msgpack.encode((_CONTEXT, end, *who, listener, nonce))


def code_of(token: str, text: bytes) -> bytes:
    """The code that only who has the token can make."""
    return hmac.digest(token.encode(), text, "sha256")


def is_code(code: bytes, token: str, text: bytes) -> bool:
    """Whether a code was made with this token; how long that takes does not depend on the code."""
    return hmac.compare_digest(code, code_of(token, text))


class ClientKey:
    """The key of one client, made from its secret and its name: one secret may serve many clients."""

    def __init__(self, secret: str, name: str) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # takes long to load

        seed = hmac.digest(secret.encode(), f"tidings client {name}".encode(), sha256)
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    def sign(self, text: bytes) -> bytes:
        """The signature that only this key can make."""
        return self._key.sign(text)


def is_signed(signature: bytes, public: bytes, text: bytes) -> bool:
    """Whether the key with this public half has signed the text."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True
