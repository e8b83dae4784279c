"""How the two ends of a connection prove who they are, without revealing the secret.

- **By a token** that both ends have: each makes a code (HMAC-SHA256) of the opening of this very connection, in which
  both have a nonce. A code contains which end made it, the kind and name of the dialling end, and the name of the other
  end: so it cannot be reflected, replayed, or used elsewhere. The end that dialled goes first: a stranger that connects
  to a broker learns nothing of its token. The dialling end continues only if the other end has the token too.
- **By a client's own key** if there are no tokens: the client signs the same text (Ed25519). The key is derived from a
  secret that the client has made and never reveals; brokers keep the public half. Neither an impostor of a broker nor a
  reader of its store can pose as the client.
"""

import hmac
from collections.abc import Callable
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
    """The second frame of the end that dialled, if it was challenged."""

    proof: Annotated[bytes, msgspec.Meta(max_length=64)]


def opening(end: Literal["dialler", "listener"], preamble: "Preamble", listener: str, nonce: bytes) -> bytes:
    """The text that one end of a connection signs or makes a code of: all that the other end has to be sure of."""
    who = (preamble.kind, preamble.name, preamble.speaks, preamble.detail, preamble.nonce)
    return msgspec.msgpack.encode((_CONTEXT, end, *who, listener, nonce))


def code_of(token: str, text: bytes) -> bytes:
    """The code that only an owner of the token can make."""
    return hmac.digest(token.encode(), text, "sha256")


def is_code(code: bytes, token: str, text: bytes) -> bool:
    """Whether a code was made with this token, in constant time."""
    return hmac.compare_digest(code, code_of(token, text))


class ClientKey:
    """The key of one client, derived from its secret and its name: one secret may serve many clients."""

    def __init__(self, secret: str, name: str) -> None:
        seed = hmac.digest(secret.encode(), f"tidings client {name}".encode(), sha256)
        self.public, self._sign = _signer(seed)

    def sign(self, text: bytes) -> bytes:
        """The signature that only this key can make."""
        return self._sign(text)


def _signer(seed: bytes) -> tuple[bytes, Callable[[bytes], bytes]]:
    """The public half of a key, and what signs with it. Both libraries make the same signatures.

    PyNaCl is what a client installs: `cryptography` alone is larger than all the rest of it.
    """
    try:
        from nacl.signing import SigningKey
    except ImportError:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # takes long to load

        private = Ed25519PrivateKey.from_private_bytes(seed)
        return private.public_key().public_bytes_raw(), private.sign
    key = SigningKey(seed)
    return bytes(key.verify_key), lambda text: bytes(key.sign(text).signature)


def is_signed(signature: bytes, public: bytes, text: bytes) -> bool:
    """Whether the key with this public half has signed the text."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True
