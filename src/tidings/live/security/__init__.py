"""TLS, secrets, and certificates for local trials."""

from typing import TYPE_CHECKING

from tidings.lazy import lazily

if TYPE_CHECKING:
    from tidings.live.security._certificates import make_certificates
    from tidings.live.security._secrets import client_secret_file, kept_secret, new_secret, read_secret, write_secret
    from tidings.live.security._tls import dialling_context, listening_context

__all__ = [
    "client_secret_file",
    "dialling_context",
    "kept_secret",
    "listening_context",
    "make_certificates",
    "new_secret",
    "read_secret",
    "write_secret",
]

__getattr__, __dir__ = lazily(__name__)
