"""Keys and certificates of a control plane that lives as long as a test run."""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = dt.timedelta(days=7)
SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
SERVER_ADDRESSES = ("127.0.0.1", "::1", "10.77.0.1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """The PEM files, all in one folder."""

    authority: Path
    """What clients trust."""
    server: Path
    server_key: Path
    service_account_key: Path
    """Signs the tokens of service accounts."""


def write_certificates(folder: Path) -> Certificates:
    """Make an authority, a server certificate for this machine's loopback and a token key."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _authority_certificate(authority_key)
    server_key = ec.generate_private_key(ec.SECP256R1())
    server = _server_certificate(server_key, authority, authority_key)
    files = Certificates(
        authority=folder / "authority.crt",
        server=folder / "server.crt",
        server_key=folder / "server.key",
        service_account_key=folder / "service-accounts.key",
    )
    files.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    files.server.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    _write_key(files.server_key, server_key)
    _write_key(files.service_account_key, ec.generate_private_key(ec.SECP256R1()))
    return files


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def _builder(
    common_name: str, key: ec.EllipticCurvePrivateKey, issuer: x509.Name | None
) -> x509.CertificateBuilder:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    # An hour back: a server whose clock is a little behind must not refuse it.
    begin = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _authority_certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        _builder("test-authority", key, None)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )


def _server_certificate(
    key: ec.EllipticCurvePrivateKey, authority: x509.Certificate, authority_key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in SERVER_NAMES]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in SERVER_ADDRESSES]
    return (
        _builder("kube-apiserver", key, authority.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
