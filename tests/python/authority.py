"""Certificates for the tests."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Somebody who signs certificates, which lie in a folder."""

    def __init__(self, folder: Path, name: str = "authority"):
        self.folder, self.name = folder, name
        self.ca = folder / f"{name}.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.ca.write_bytes(self._sign(self._subject, self._key, x509.BasicConstraints(ca=True, path_length=None)))

    def issue(self, name: str = "127.0.0.1") -> tuple[Path, Path]:
        """The files of a new certificate for this host, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        cert_path, key_path = (self.folder / f"{self.name}-{name}-{kind}.pem" for kind in ("cert", "key"))
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        cert_path.write_bytes(self._sign(subject, key, address))
        form = serialization.PrivateFormat.PKCS8
        key_path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
        key_path.chmod(0o600)
        return cert_path, key_path

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType) -> bytes:
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = x509.CertificateBuilder(self._subject, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(days=1))
        signed = builder.add_extension(extension, critical=False).sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)
