"""A registry on the lab's bridge: Debian's docker-registry over HTTP and TLS, with access logs for tests to read.

Configuration: https://distribution.github.io/distribution/about/configuration.
Pushing: https://github.com/opencontainers/distribution-spec/blob/v1.1.0/spec.md#push.
"""

import http.client
import io
import json
import re
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.lab import cache, forward, images, pki, rootfs
from tests.lab.errors import LabError
from tests.lab.namespace import GATEWAY, Namespace
from tests.lab.run import wait
from tests.lab.state import Store

_PACKAGE = "docker-registry"
_TIMEOUT_S = 20
# The combined log format, as docker-registry 2.8 writes it.
_ACCESS = re.compile(r'(\S+) - \S* \[[^]]*\] "(\S+) (\S+) HTTP/[\d.]+" (\d+) \d+ "([^"]*)" "([^"]*)"')


class Request(NamedTuple):
    """A line of the access log."""

    client: str
    """An address."""
    method: str
    target: str
    """Path and query: a mirror is asked with `ns=` and the registry that it stands for."""
    status: int
    referer: str
    """The header Referer. The log shows no other one that a client may choose freely."""
    agent: str


def parse_access_log(text: str) -> list[Request]:
    """The requests in a log, in their order; other lines are left out."""
    found = (_ACCESS.match(line) for line in text.splitlines())
    return [Request(*match.group(1, 2, 3), int(match[4]), *match.group(5, 6)) for match in found if match]


def _program() -> Path:
    """docker-registry from Debian's package. It needs nothing but the C library, so it runs on any host."""

    def make(directory: Path) -> None:
        root = directory / "root"
        rootfs.debootstrap(root, "extract", [_PACKAGE])
        (root / "usr/bin" / _PACKAGE).rename(directory / _PACKAGE)
        shutil.rmtree(root)

    return cache.ensure("registry", cache.digest([rootfs.SUITE, _PACKAGE]), make) / _PACKAGE


def _configuration(storage: Path, address: str, tls: Mapping[str, object]) -> str:
    # Relative: the pusher comes through another port than the one that the registry knows.
    http = {"addr": address, "secret": "lab", "relativeurls": True, **({"tls": dict(tls)} if tls else {})}
    store = {"filesystem": {"rootdirectory": str(storage)}}
    return yaml.safe_dump({"version": "0.1", "log": {"level": "warn"}, "storage": store, "http": http})


class Registry:
    """A registry that runs. Its addresses, from the nodes, serve the same images."""

    ADDRESS = f"{GATEWAY}:5000"
    """It speaks HTTP."""
    TLS_ADDRESS = f"{GATEWAY}:5443"
    """It speaks TLS, with a certificate that `ca` has signed."""
    MTLS_ADDRESS = f"{GATEWAY}:5444"
    """It speaks TLS too, and takes only clients with a certificate that `ca` has signed, as `client` is."""

    def __init__(self, port: int, directory: Path) -> None:
        """`port` on 127.0.0.1 leads to it; `directory` is the lab's."""
        self._port = port
        self._logs, self._pki = directory / "log", directory / "pki/registry"

    @property
    def ca(self) -> str:
        """The certificate of its authority, as PEM."""
        return pki.read_pair(self._pki, "ca").certificate.decode()

    @property
    def client(self) -> tuple[str, str]:
        """A certificate and its key for MTLS_ADDRESS, as PEM."""
        pair = pki.read_pair(self._pki, "client")
        return pair.certificate.decode(), pair.key.decode()

    def log(self, address: str = ADDRESS) -> Path:
        """Where the requests to one of its addresses are written."""
        return self._logs / f"{_PROCESSES[address]}.log"

    def requests(self, address: str = ADDRESS) -> list[Request]:
        """What was asked of one of its addresses since it was started, pushes (always to ADDRESS) included."""
        return parse_access_log(self.log(address).read_text(errors="replace"))

    def push(self, name: str, archive: bytes | None = None) -> str:
        """Store an OCI archive's first image (None: busybox) as `name`, a repository and a tag; return its digest.

        Docker's own images are `library/...`; any other is as in `team/app:1`.
        """
        repository, _, tag = name.rpartition(":")
        if not repository or "/" in tag:
            raise LabError(f"image {name!r}: expected a repository and a tag, as in team/app:1")
        with tarfile.open(fileobj=io.BytesIO(images.busybox() if archive is None else archive)) as files:

            def read(path: str) -> bytes:
                member = files.extractfile(path)
                return member.read() if member else b""

            def blob(entry: Mapping[str, str]) -> bytes:
                return read(f"blobs/{entry['digest'].replace(':', '/')}")

            def store(entry: Mapping[str, str], reference: str) -> None:
                manifest = json.loads(blob(entry))
                for inner in manifest.get("manifests", ()):
                    store(inner, inner["digest"])
                for part in (manifest["config"], *manifest["layers"]) if "config" in manifest else ():
                    where = self._ask("POST", f"/v2/{repository}/blobs/uploads/").headers["Location"]
                    self._ask("PUT", f"{where}&digest={part['digest']}", blob(part), "application/octet-stream")
                self._ask("PUT", f"/v2/{repository}/manifests/{reference}", blob(entry), entry["mediaType"])

            entry = json.loads(read("index.json"))["manifests"][0]
            store(entry, tag)
        return entry["digest"]

    def answers(self) -> bool:
        """Whether it serves the API."""
        try:
            return self._ask("GET", "/v2/").status == http.client.OK
        except OSError:
            return False

    def _ask(self, method: str, target: str, body: bytes = b"", content_type: str = "") -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S)
        try:
            connection.request(method, target, body, {"Content-Type": content_type} if content_type else {})
            answer = connection.getresponse()
            text = answer.read()
        except http.client.HTTPException as error:
            raise ConnectionError(f"{method} {target}: {error!r}") from error
        finally:
            connection.close()
        if answer.status >= http.client.BAD_REQUEST:
            raise LabError(f"registry: {method} {target}: {answer.status} {text.decode(errors='replace')[:1000]}")
        return answer


_PROCESSES = {
    Registry.ADDRESS: "registry",
    Registry.TLS_ADDRESS: "registry-tls",
    Registry.MTLS_ADDRESS: "registry-mtls",
}


def _make_pki(directory: Path) -> None:
    if (directory / "client.key").exists():  # of a start that was killed on its way
        return
    authority = pki.Authority.create("registry-ca")
    pki.write_pair(directory, "ca", authority.pair)
    pki.write_pair(directory, "server", authority.issue("registry", hosts=[GATEWAY]))
    pki.write_pair(directory, "client", authority.issue("registry-client"))


def _start_process(namespace: Namespace, store: Store, program: Path, address: str, tls: Mapping[str, object]) -> None:
    process = _PROCESSES[address]
    file = store.directory / f"{process}.yml"
    file.write_text(_configuration(store.directory / "registry", address, tls))
    if not namespace.running(process):  # of a start that was killed on its way
        namespace.start(process, [program, "serve", file])


def start(namespace: Namespace, store: Store) -> None:
    """Start it, wait until it answers on all its addresses, and push the nodes' busybox."""
    program, certificates = _program(), store.directory / "pki/registry"
    (store.directory / "registry").mkdir(exist_ok=True)
    _make_pki(certificates)
    tls = {"certificate": str(certificates / "server.crt"), "key": str(certificates / "server.key")}
    _start_process(namespace, store, program, Registry.ADDRESS, {})
    _start_process(namespace, store, program, Registry.TLS_ADDRESS, tls)
    mutual = {**tls, "clientcas": [str(certificates / "ca.crt")]}
    _start_process(namespace, store, program, Registry.MTLS_ADDRESS, mutual)
    port = forward.start(namespace, "forward-registry", Registry.ADDRESS)
    registry = Registry(port, store.directory)

    def ready() -> bool:
        for process in _PROCESSES.values():
            namespace.check(process)
        listening = namespace.run(["ss", "-Hltn"]).split()
        return registry.answers() and all(address in listening for address in _PROCESSES)

    wait("the registry answers", ready, timeout_s=_TIMEOUT_S)
    registry.push(f"library/{images.BUSYBOX}")
    with store.change() as state:
        state.registry_port = port
