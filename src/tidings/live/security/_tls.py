"""Contexts for TLS: which certificate is shown, and which is asked for.

Between brokers both ends show one, and the name in it has to be the broker's: addresses may change, names do not.
Clients check the broker's certificate, and show one if the network asks for it. TLS 1.2 is the oldest that is spoken.
"""

import ssl
from pathlib import Path

from tidings.errors import ConfigurationError
from tidings.live.configuration._config import Tls

__all__ = ["client_context", "dialling_context", "listening_context", "renew"]


def listening_context(tls: Tls) -> ssl.SSLContext:
    """What a broker listens with: brokers always show a certificate, clients if they have to."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _show(context, tls.certificate, tls.key)
    _trust(context, tls.authority)
    context.verify_mode = ssl.CERT_REQUIRED if tls.client_certificates else ssl.CERT_OPTIONAL
    return context


def renew(context: ssl.SSLContext, tls: Tls) -> None:
    """Read a broker's certificate again: who connects from now on is shown that one."""
    _show(context, tls.certificate, tls.key)


def dialling_context(tls: Tls) -> ssl.SSLContext:
    """What a broker opens connections to other brokers with."""
    return client_context(tls.authority, tls.certificate, tls.key)


def client_context(authority: Path, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """What a client connects with: `authority` signs the brokers' certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _trust(context, authority)
    if certificate is not None:
        _show(context, certificate, key)
    return context


def _show(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"certificate {certificate} with key {key or certificate}: {error.strerror or error}; "
            "`tidings certificates DIR` makes some for trying it"
        ) from None


def _trust(context: ssl.SSLContext, authority: Path) -> None:
    try:
        context.load_verify_locations(authority)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"authority {authority}: {error.strerror or error}; give the certificate that signed the others"
        ) from None
