"""The cluster's certificates, laid out as kubeadm does (https://kubernetes.io/docs/setup/best-practices/certificates)."""

import base64
import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = datetime.timedelta(days=365)
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _subject(name: str, groups: Sequence[str]) -> x509.Name:
    """A Kubernetes user is the common name; its groups are the organisations."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + _VALID)


def _usage(*, signs: bool) -> x509.KeyUsage:
    others = dict.fromkeys(("content_commitment", "data_encipherment", "key_agreement", "encipher_only"), False)
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        decipher_only=False,
        **others,
    )


class Authority:
    """A certificate authority."""

    def __init__(self, pair: Pair) -> None:
        """From its PEM files."""
        self.pair = pair
        self._certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key

    @classmethod
    def create(cls, name: str) -> "Authority":
        """A new one."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name, [])
        builder = _builder(subject, subject, key)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs=True), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = builder.add_extension(identifier, critical=False).sign(key, hashes.SHA256())
        return cls(Pair(certificate.public_bytes(_PEM), _key_pem(key)))

    def issue(self, name: str, *, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> Pair:
        """A client certificate; with `hosts` (names and addresses) one for serving as well."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_subject(name, groups), self._certificate.subject, key)
        builder = builder.add_extension(_usage(signs=False), critical=True)
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_host, hosts))), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = builder.add_extension(issuer, critical=False).sign(self._key, hashes.SHA256())
        return Pair(certificate.public_bytes(_PEM), _key_pem(key))


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def signing_key() -> Pair:
    """The key that signs service account tokens, with its public half."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(_PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return Pair(public, _key_pem(key))


def ssh_key(comment: str) -> Pair:
    """An SSH key: the public line, and the private file."""
    key = ed25519.Ed25519PrivateKey.generate()
    openssh = serialization.PrivateFormat.OpenSSH
    private = key.private_bytes(_PEM, openssh, serialization.NoEncryption())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return Pair(public + f" {comment}\n".encode(), private)


def kubeconfig(server: str, authority: bytes, client: Pair, user: str) -> str:
    """A kubeconfig with everything inside it."""
    text = {"certificate-authority-data": authority, "client-certificate-data": client.certificate}
    text["client-key-data"] = client.key
    data = {name: base64.b64encode(value).decode() for name, value in text.items()}
    cluster = {"server": server, "certificate-authority-data": data.pop("certificate-authority-data")}
    value = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": user, "user": data}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
        "current-context": "lab",
    }
    return yaml.safe_dump(value, sort_keys=False)


def write(path: Path, data: bytes | str, mode: int = 0o600) -> Path:
    """Write a file that only root reads, unless `mode` says otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=mode)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    path.chmod(mode)
    return path


def write_pair(directory: Path, name: str, pair: Pair) -> None:
    """NAME.crt and NAME.key."""
    write(directory / f"{name}.crt", pair.certificate, 0o644)
    write(directory / f"{name}.key", pair.key)


def read_pair(directory: Path, name: str) -> Pair:
    """What write_pair wrote."""
    return Pair((directory / f"{name}.crt").read_bytes(), (directory / f"{name}.key").read_bytes())
