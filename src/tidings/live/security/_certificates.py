"""Certificates for local trials: a private authority, and a certificate for every name.

Not for production: the authority's key is stored beside the certificates. Keys are readable by their owner only.
"""

import datetime
import ipaddress
import os
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tidings.errors import InputError

__all__ = ["make_certificates"]

_AUTHORITY: Final = "authority"
_BACKDATED: Final = datetime.timedelta(minutes=5)
DAYS: Final = 365


def make_certificates(
    directory: Path,
    names: tuple[str, ...],
    *,
    days: float = DAYS,
    hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "::1"),
) -> list[Path]:
    """Write an authority (or use the existing one), and for each name `name.pem` and `name.key`; the files written.

    A certificate is valid for the name itself and for the hosts, for servers and clients alike. With negative days it
    has expired already.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        written: list[Path] = []
        authority_key, authority = _authority(directory, written)
        for name in names:
            if not name or "/" in name or name == _AUTHORITY:
                raise InputError(f"{name!r} cannot be the name of a certificate's file")
            key = ec.generate_private_key(ec.SECP256R1())
            certificate = _certificate(name, key, authority.subject, authority_key, days, hosts)
            written += _write(directory, name, key, certificate)
    except OSError as error:
        raise InputError(f"{directory}: cannot be written: {error.strerror or error}") from None
    return written


def _authority(directory: Path, written: list[Path]) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    pem, key_file = directory / f"{_AUTHORITY}.pem", directory / f"{_AUTHORITY}.key"
    if pem.exists() and key_file.exists():
        try:
            key = serialization.load_pem_private_key(key_file.read_bytes(), None)
            certificate = x509.load_pem_x509_certificate(pem.read_bytes())
        except ValueError as error:
            raise InputError(f"{pem}: not an authority: {error}; remove it, and one is made") from None
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key, certificate
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Tidings test authority")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=DAYS))
        .not_valid_after(now + datetime.timedelta(days=10 * DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    written += _write(directory, _AUTHORITY, key, certificate)
    return key, certificate


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    days: float,
    hosts: tuple[str, ...],
) -> x509.Certificate:
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    since = min(datetime.datetime.now(datetime.UTC), until - datetime.timedelta(days=1)) - _BACKDATED
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
        .add_extension(x509.SubjectAlternativeName([_general(host) for host in (name, *hosts)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(
    directory: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
) -> tuple[Path, Path]:
    pem, key_file = directory / f"{name}.pem", directory / f"{name}.key"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    handle = os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(secret)
    return pem, key_file
