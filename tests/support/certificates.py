"""An authority, and certificates of it, for Dask's TLS."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make_certificates(folder: Path, name: str = "ours") -> dict[str, str]:
    """Dask's settings, as environment variables, for all its processes: one certificate for all of them."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"authority {name}")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"dask {name}")])
    authority = _signed(issuer, issuer, authority_key.public_key(), authority_key, authority=True)
    certificate = _signed(subject, issuer, key.public_key(), authority_key, authority=False)
    pem = serialization.Encoding.PEM
    files = {
        "CA_FILE": authority.public_bytes(pem),
        "CERT": certificate.public_bytes(pem),
        "KEY": key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    }
    paths = {kind: folder / f"{name}-{kind.lower()}.pem" for kind in files}
    for kind, content in files.items():
        paths[kind].write_bytes(content)
    roles = [f"{role}__{kind}" for role in ("CLIENT", "SCHEDULER", "WORKER") for kind in ("CERT", "KEY")]
    names = {"CA_FILE": paths["CA_FILE"]} | {role: paths[role.rpartition("__")[2]] for role in roles}
    return {f"DASK_DISTRIBUTED__COMM__TLS__{name}": str(path) for name, path in names.items()}


def _signed(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, key: ec.EllipticCurvePrivateKey,
    authority: bool,
) -> x509.Certificate:  # fmt: skip
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    return builder.sign(key, hashes.SHA256())
