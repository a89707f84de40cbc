"""Certificates."""

import base64
import ipaddress

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store

from tests.lab import pki


def names(pair: pki.Pair, oid: x509.ObjectIdentifier) -> list[str]:
    """Values of an attribute of the subject."""
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    return [attribute.value for attribute in certificate.subject.get_attributes_for_oid(oid)]


def test_issue_for_serving_verifies():
    """A verifier that trusts the authority accepts the names and addresses."""
    authority = pki.Authority.create("kubernetes")
    pair = authority.issue("server", hosts=["localhost", "10.77.0.1"])
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    store = Store([x509.load_pem_x509_certificate(authority.pair.certificate)])

    for subject in (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("10.77.0.1"))):
        PolicyBuilder().store(store).build_server_verifier(subject).verify(certificate, [])


def test_issue_for_a_user():
    """A user's name is the common name, its groups the organisations."""
    pair = pki.Authority.create("kubernetes").issue("system:node:w1", groups=["system:nodes"])

    assert names(pair, NameOID.COMMON_NAME) == ["system:node:w1"]
    assert names(pair, NameOID.ORGANIZATION_NAME) == ["system:nodes"]


def test_authority_is_read_back(tmp_path):
    """What one run of the lab wrote, a later one signs with; the key is root's alone."""
    pki.write_pair(tmp_path, "ca", pki.Authority.create("kubernetes").pair)
    pair = pki.Authority(pki.read_pair(tmp_path, "ca")).issue("late")

    assert names(pair, NameOID.COMMON_NAME) == ["late"]
    assert (tmp_path / "ca.key").stat().st_mode & 0o777 == 0o600


def test_kubeconfig():
    """Everything is inside the file."""
    value = yaml.safe_load(pki.kubeconfig("https://127.0.0.1:1", b"CA", pki.Pair(b"CERT", b"KEY"), "me"))

    assert value["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    assert base64.b64decode(value["users"][0]["user"]["client-key-data"]) == b"KEY"


def test_ssh_key():
    """ssh reads both halves."""
    pair = pki.ssh_key("lab")
    private = serialization.load_ssh_private_key(pair.key, password=None)
    public = serialization.load_ssh_public_key(pair.certificate)

    assert private.public_key() == public
