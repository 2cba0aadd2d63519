"""Make a certificate authority, certificates, and the keys by which the server knows nodes."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ..util.errors import InputError

YEARS = 5
# Names under which Flower's programs on one machine talk to each other.
LOCAL_HOSTS = ("localhost", "127.0.0.1")


def make_keys(folder: Path, hosts: Sequence[str], nodes: Sequence[int]) -> list[Path]:
    """Write what is missing: the authority, the server's certificate, keys of nodes.

    Args:
        folder: where the files go; only its owner can enter it.
        hosts: names under which nodes reach the server.
        nodes: the first client of each node.

    Returns:
        The files that are new.

    Raises:
        InputError: the authority of the folder is not complete, or cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    files: list[Path] = []
    if not (folder / "ca.key").exists():
        if (folder / "ca.crt").exists():
            raise InputError(
                f"{folder}: has ca.crt but not ca.key, so nothing can be signed; choose another "
                "folder"
            )
        key = _generate_key()
        files += _store(folder, "ca", key, _certificate("fedbr authority", key, None))
    authority = _read_authority(folder)
    if not (folder / "server.crt").exists():
        key = _generate_key()
        certificate = _certificate("fedbr server", key, authority, [*hosts, *LOCAL_HOSTS])
        files += _store(folder, "server", key, certificate)
    for node in nodes:
        if (folder / f"node-{node}").exists():
            continue
        key = _generate_key()
        certificate = _certificate(f"fedbr node {node}", key, authority, LOCAL_HOSTS)
        files += _store(folder, f"node-{node}.tls", key, certificate)
        files += _store_ssh(folder, f"node-{node}")
    return files


def _generate_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _read_authority(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    try:
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
        certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{folder}: ca.key and ca.crt cannot be read ({error})") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(
            f"{folder / 'ca.key'}: was not created by fedbr (expected an elliptic-curve key)"
        )
    return key, certificate


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    authority: tuple[ec.EllipticCurvePrivateKey, x509.Certificate] | None,
    hosts: Sequence[str] = (),
) -> x509.Certificate:
    """Sign a certificate.

    Args:
        name: of its owner.
        key: the owner's.
        authority: the key and the certificate of who signs; None: it is an authority itself.
        hosts: names and addresses of the owner.
    """
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    if authority is None:
        signer, issuer = key, subject
    else:
        signer, issuer = authority[0], authority[1].subject
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .add_extension(_usage(authority is None), critical=True)
    )
    if hosts:
        names = [_name(host) for host in dict.fromkeys(hosts)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signer, hashes.SHA384())


def _usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _store(
    folder: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
) -> list[Path]:
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    key_file, certificate_file = folder / f"{name}.key", folder / f"{name}.crt"
    _write_secret(key_file, pem)
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return [key_file, certificate_file]


def _store_ssh(folder: Path, name: str) -> list[Path]:
    """Write the key by which the SuperLink knows a node, in the form that Flower reads."""
    key = _generate_key()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    private_file, public_file = folder / name, folder / f"{name}.pub"
    public_file.write_bytes(public + b"\n")
    _write_secret(private_file, private)
    return [private_file, public_file]


def _write_secret(file: Path, content: bytes) -> None:
    """Write a file that only its owner can read, from its first moment on."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
