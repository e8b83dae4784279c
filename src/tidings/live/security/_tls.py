"""TLS contexts: which certificate is presented, and which is required.

Between brokers both ends present one, and the name in it must be the broker's: addresses may change, names do not.
Clients check the broker's certificate, and present one if the network requires it. TLS 1.2 is the oldest version.

Certificates are revoked by the authority's list (`revoked`), or by a new authority. Both are checked for every new
connection, and for open connections when the network's file is reloaded (`Judge`).
"""

import datetime
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from tidings.errors import ConfigurationError

if TYPE_CHECKING:
    from cryptography import x509

    from tidings.live.configuration._config import Tls

__all__ = ["Judge", "client_context", "dialling_context", "listening_context"]


def listening_context(tls: "Tls") -> ssl.SSLContext:
    """The context for listening: brokers always present a certificate, clients if it is required."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _show(context, tls.certificate, tls.key)
    _trust(context, tls.authority)
    _distrust(context, tls.revoked)
    context.verify_mode = ssl.CERT_REQUIRED if tls.client_certificates else ssl.CERT_OPTIONAL
    return context


def dialling_context(tls: "Tls") -> ssl.SSLContext:
    """The context for connections to other brokers."""
    context = client_context(tls.authority, tls.certificate, tls.key)
    _distrust(context, tls.revoked)
    return context


def client_context(authority: Path, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """The context of a client: `authority` signs the brokers' certificates."""
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
            "`tidings certificates DIR` makes some for a trial"
        ) from None


def _trust(context: ssl.SSLContext, authority: Path) -> None:
    try:
        context.load_verify_locations(authority)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"authority {authority}: {error.strerror or error}; give the certificate that signed the others"
        ) from None


def _distrust(context: ssl.SSLContext, revoked: Path | None) -> None:
    if revoked is not None:
        _read_list(revoked)  # for a better error than OpenSSL's
        _trust(context, revoked)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _read_list(revoked: Path) -> "x509.CertificateRevocationList":
    from cryptography import x509

    try:
        return x509.load_pem_x509_crl(revoked.read_bytes())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigurationError(
            f"revoked {revoked}: {why}; give the authority's list of revoked certificates (PEM)"
        ) from None


class Judge:
    """Whether a certificate that was valid when it was presented still is, according to the present files."""

    def __init__(self, tls: "Tls") -> None:
        from cryptography import x509

        try:
            self._authorities = x509.load_pem_x509_certificates(tls.authority.read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"authority {tls.authority}: {getattr(error, 'strerror', None) or error}"
            ) from None
        self._revoked = None if tls.revoked is None else _read_list(tls.revoked)

    def objection(self, certificate: bytes | None) -> str:
        """Why it is no longer valid; empty if it is valid or there is none."""
        from cryptography import x509
        from cryptography.exceptions import InvalidSignature

        if certificate is None:
            return ""
        shown = x509.load_der_x509_certificate(certificate)
        if self._revoked is not None and self._revoked.get_revoked_certificate_by_serial_number(shown.serial_number):
            return "its certificate has been revoked"
        if shown.not_valid_after_utc < datetime.datetime.now(datetime.UTC):
            return "its certificate has expired"
        for authority in self._authorities:
            try:
                shown.verify_directly_issued_by(authority)
            except (InvalidSignature, ValueError, TypeError):
                continue
            return ""
        return "its certificate is from an authority that is no longer trusted"
