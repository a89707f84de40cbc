"""A registry on the lab's bridge: Debian's docker-registry, with an access log for tests to read.

Pushing: https://github.com/opencontainers/distribution-spec/blob/v1.1.0/spec.md#push.
"""

import http.client
import io
import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.lab import cache, forward, images, rootfs
from tests.lab.errors import LabError
from tests.lab.namespace import GATEWAY, Namespace
from tests.lab.run import wait
from tests.lab.state import Store

_PACKAGE = "docker-registry"
_PROCESS = "registry"
_TIMEOUT_S = 20
# The combined log format, as docker-registry 2.8 writes it.
_ACCESS = re.compile(r'(\S+) - \S* \[[^]]*\] "(\S+) (\S+) HTTP/[\d.]+" (\d+) \d+ "[^"]*" "([^"]*)"')


class Request(NamedTuple):
    """A line of the access log."""

    client: str
    """An address."""
    method: str
    target: str
    """Path and query: a mirror is asked with `ns=` and the registry that it stands for."""
    status: int
    agent: str


def parse_access_log(text: str) -> list[Request]:
    """The requests in a log, in their order; other lines are left out."""
    found = (_ACCESS.match(line) for line in text.splitlines())
    return [Request(*match.group(1, 2, 3), int(match[4]), match[5]) for match in found if match]


def _program() -> Path:
    """docker-registry from Debian's package. It needs nothing but the C library, so it runs on any host."""

    def make(directory: Path) -> None:
        root = directory / "root"
        rootfs.debootstrap(root, "extract", [_PACKAGE])
        (root / "usr/bin" / _PACKAGE).rename(directory / _PACKAGE)
        shutil.rmtree(root)

    return cache.ensure("registry", cache.digest([rootfs.SUITE, _PACKAGE]), make) / _PACKAGE


def _configuration(storage: Path) -> str:
    return yaml.safe_dump(
        {
            "version": "0.1",
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": str(storage)}},
            # Relative: the pusher comes through another port than the one that the registry knows.
            "http": {"addr": Registry.ADDRESS, "secret": "lab", "relativeurls": True},
        }
    )


class Registry:
    """A registry that runs."""

    ADDRESS = f"{GATEWAY}:5000"
    """From the nodes; it speaks HTTP."""

    def __init__(self, port: int, logs: Path) -> None:
        """`port` on 127.0.0.1 leads to it."""
        self._port = port
        self.log = logs / f"{_PROCESS}.log"

    def requests(self) -> list[Request]:
        """What it was asked since it was started, pushes included."""
        return parse_access_log(self.log.read_text(errors="replace"))

    def push(self, name: str) -> None:
        """Store busybox as `name`, a repository and a tag: `team/app:1` (Docker's own are `library/...`)."""
        repository, _, tag = name.rpartition(":")
        if not repository or "/" in tag:
            raise LabError(f"image {name!r}: expected a repository and a tag, as in team/app:1")
        with tarfile.open(fileobj=io.BytesIO(images.busybox())) as archive:

            def blob(digest: str) -> bytes:
                member = archive.extractfile(f"blobs/{digest.replace(':', '/')}")
                return member.read() if member else b""

            index = archive.extractfile("index.json")
            entry = json.load(index)["manifests"][0] if index else {}
            manifest = blob(entry["digest"])
            described = json.loads(manifest)
            for part in (described["config"], *described["layers"]):
                where = self._ask("POST", f"/v2/{repository}/blobs/uploads/").headers["Location"]
                self._ask("PUT", f"{where}&digest={part['digest']}", blob(part["digest"]), "application/octet-stream")
        self._ask("PUT", f"/v2/{repository}/manifests/{tag}", manifest, entry["mediaType"])

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


def start(namespace: Namespace, store: Store) -> None:
    """Start it, wait until it answers, and push the nodes' busybox."""
    program = _program()
    storage, file = store.directory / "registry", store.directory / "registry.yml"
    storage.mkdir(exist_ok=True)
    file.write_text(_configuration(storage))
    if not namespace.running(_PROCESS):  # of a start that was killed on its way
        namespace.start(_PROCESS, [program, "serve", file])
    port = forward.start(namespace, f"forward-{_PROCESS}", Registry.ADDRESS)
    registry = Registry(port, namespace.logs)

    def ready() -> bool:
        namespace.check(_PROCESS)
        return registry.answers()

    wait("the registry answers", ready, timeout_s=_TIMEOUT_S)
    registry.push(f"library/{images.BUSYBOX}")
    with store.change() as state:
        state.registry_port = port
