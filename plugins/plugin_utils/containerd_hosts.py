# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hosts.toml, what containerd reads below its registry directory: https://github.com/containerd/containerd/blob/main/docs/hosts.md

The rules are those of core/remotes/docker/config/hosts.go at v2.4.2, and of 1.7 and 2.0 where nothing else is said.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ..module_utils.containerd_toml import Document, ScanError, scan
from ..module_utils.registry_names import directory_names
from .containerd_edit import BOM, dotted, literal, quote

# Where images of Docker Hub are without a server of their own (docker.DefaultHost).
DOCKER_HUB = "docker.io"
DOCKER_HUB_HOST = "registry-1.docker.io"
PULL = ("pull", "resolve")
CAPABILITIES = ("pull", "resolve", "push", "referrers")
# What core/remotes/docker/config/hosts.go takes for a table of a host, with what it must be.
_SHAPES = {
    "capabilities": "a list of pull, resolve, push and referrers",
    "ca": "a path or a list of paths",
    "client": "a path, a list of paths, or a list of pairs of paths",
    "skip_verify": "true or false",
    "override_path": "true or false",
    "header": "a table of strings or lists of strings",
}


@dataclass(frozen=True)
class Host:
    """One place that images are pulled from.

    ca: paths. client: pairs of paths, certificate and key. header: pairs of a name and its values.
    """

    url: str
    capabilities: tuple[str, ...] = ()
    ca: tuple[str, ...] = ()
    client: tuple[tuple[str, str], ...] = ()
    skip_verify: bool = False
    override_path: bool = False
    header: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def target(self) -> tuple[str, str, str]:
        """Scheme, host and path of the requests (parseHostConfig)."""
        return target(self.url, self.override_path)

    def settings(self) -> dict[str, Any]:
        """Return the keys of the host's table, without those that say what holds anyway, and without the header."""
        found = {
            "capabilities": list(self.capabilities),
            "override_path": self.override_path,
            "ca": self.ca[0] if len(self.ca) == 1 else list(self.ca),
            "client": [list(pair) for pair in self.client],
            "skip_verify": self.skip_verify,
        }
        return {key: value for key, value in found.items() if value}

    def header_values(self) -> dict[str, Any]:
        """Return the keys of the header's table."""
        return {name: values[0] if len(values) == 1 else list(values) for name, values in self.header}


@dataclass(frozen=True)
class HostsFile:
    """The hosts of one namespace in order, then the server that is tried last; None: the registry itself."""

    namespace: str
    hosts: tuple[Host, ...]
    server: Host | None = None

    @property
    def has_header(self) -> bool:
        return any(host.header for host in self.hosts)


class HostsError(Exception):
    """A hosts.toml that containerd refuses, or would not take for what it says. C(line) from 1, 0 for the whole."""

    def __init__(self, line: int, reason: str):
        super().__init__(reason)
        self.line = line


@dataclass(frozen=True)
class HostsText:
    """A hosts.toml that is there: its values, and where they stand. urls: the hosts in the order that counts."""

    text: str
    values: dict
    document: Document = field(repr=False)
    urls: tuple[str, ...]

    @property
    def server(self) -> str:
        return self.values.get("server", "")

    @property
    def server_target(self) -> tuple[str, str, str]:
        return target(self.server, self.values.get("override_path", False))

    def settings(self, *table: str) -> dict[str, Any]:
        """Return the keys of a host's table, of the root without a name."""
        found = self.values
        for name in table:
            found = found[name]
        return {key: value for key, value in found.items() if table or key not in ("server", "host")}

    def target_of(self, url: str) -> tuple[str, str, str]:
        return target(url, self.settings("host", url).get("override_path", False))

    def line(self, *path: str) -> int:
        """Return the line of a key or a table."""
        starts = [item.key_start for item in self.document.entries if item.path[: len(path)] == path]
        starts += [item.start for item in self.document.headers if item.path[: len(path)] == path]
        return self.text.count("\n", 0, min(starts)) + 1 if starts else 0


def target(url: str, override_path: bool) -> tuple[str, str, str]:
    """Return scheme, host and path of the requests that an address leads to (parseHostConfig)."""
    parts = urlsplit(url if url.startswith("http") else "https://" + url)
    path = posixpath.normpath(parts.path) if parts.path else ""
    if not override_path and not path.endswith("/v2"):
        path = path.rstrip("/") + "/v2"
    return parts.scheme, parts.netloc.rpartition("@")[2], path


def default_target(namespace: str) -> tuple[str, str, str]:
    """Return where the images of a registry are asked for last without a server."""
    return target(DOCKER_HUB_HOST if namespace == DOCKER_HUB else namespace, override_path=False)


def directory_name(namespace: str, existing: set[str]) -> str:
    """Return the directory of a namespace: the one that containerd finds first, else the plain name."""
    names = directory_names(namespace)
    return next((name for name in names if name in existing), names[-1])


def is_namespace(name: str) -> bool:
    """Say whether a name can be a registry host, and so the name of a directory."""
    return bool(re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(:\d+)?|\[[0-9A-Fa-f:]+\](:\d+)?", name))


def render(hosts: HostsFile, comment: str) -> str:
    """Return the file's text. One comment line says where it comes from."""
    lines = [f"# {comment}"]
    if hosts.server:
        lines += [f"server = {quote(hosts.server.url)}", *_render(hosts.server.settings(), "")]
    for host in hosts.hosts:
        lines += ["", f"[host.{quote(host.url)}]", *_render(host.settings(), "  ")]
        if host.header:
            # A table of its own, as upstream's documentation has it; it counts as part of the host above.
            lines += [f"  [host.{quote(host.url)}.header]", *_render(host.header_values(), "    ")]
    return "\n".join(lines) + "\n"


def _render(values: dict[str, Any], indent: str) -> list[str]:
    return [f"{indent}{dotted((key,))} = {literal(value)}" for key, value in values.items()]


def read_hosts(content: bytes) -> HostsText:
    """Return what a hosts.toml says.

    :raises HostsError: containerd refuses it, or one line reads it otherwise than the next.
    """
    try:
        text = content.decode("utf-8")
        document = scan(text)
        values = tomllib.loads(text.removeprefix(BOM))
    except UnicodeDecodeError as error:
        raise HostsError(content.count(b"\n", 0, error.start) + 1, "it is not UTF-8") from error
    except ScanError as error:
        raise HostsError(error.line, error.reason) from error
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"\(at line (\d+)", str(error))
        raise HostsError(int(match.group(1)) if match else 0, str(error)) from error
    hosts = values.get("host", {})
    headers = [item for item in document.headers if item.path[:1] == ("host",) and len(item.path) > 1]
    found = HostsText(text, values, document, tuple(dict.fromkeys(item.path[1] for item in headers)))
    if not isinstance(found.server, str):
        raise HostsError(found.line("server"), "server is no string")
    if text.startswith(BOM):
        raise HostsError(1, "a byte order mark, which containerd 2.0 and later refuse")
    if not isinstance(hosts, dict) or set(hosts) != set(found.urls) or any(item.is_array for item in headers):
        raise HostsError(
            found.line("host"), 'a host that is not written as [host."..."], which containerd 2.0 and later ignore'
        )
    for table in ((), *(("host", url) for url in found.urls)):
        for key, value in found.settings(*table).items():
            if key in _SHAPES and not _has_shape(key, value):
                raise HostsError(found.line(*table, key), f"{key} is not {_SHAPES[key]}")
    return found


def _has_shape(key: str, value: Any) -> bool:
    """Say whether containerd takes the value of a key."""
    if key in ("skip_verify", "override_path"):
        return isinstance(value, bool)
    if key == "header":
        return isinstance(value, dict) and all(isinstance(item, str) or _is_strings(item) for item in value.values())
    if key == "capabilities":
        return _is_strings(value) and {item.lower() for item in value} <= set(CAPABILITIES)
    if isinstance(value, str) or _is_strings(value):
        return True
    pairs = value if key == "client" and isinstance(value, list) else [None]
    return all(isinstance(item, str) or (_is_strings(item) and len(item) == 2) for item in pairs)


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def comparable(settings: dict[str, Any], directory: str) -> dict[str, Any]:
    """Return the keys of a table that says something, by meaning: order, spelling and the base of paths aside.

    :param directory: where the file is; relative paths start there.
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if key == "capabilities":
            found[key] = frozenset(item.lower() for item in value) or frozenset(CAPABILITIES)
        elif key == "ca":
            found[key] = frozenset(posixpath.join(directory, item) for item in _listed(value))
        elif key == "client":
            pairs = [(item, "") if isinstance(item, str) else item for item in _listed(value)]
            found[key] = frozenset(
                tuple(posixpath.join(directory, path) if path else "" for path in pair) for pair in pairs
            )
        elif key == "header":
            found[key] = {name.lower(): tuple(_listed(item)) for name, item in value.items()}
        else:
            found[key] = value
    return {key: value for key, value in found.items() if value or key == "capabilities"}


def _listed(value: Any) -> list:
    return value if isinstance(value, list) else [value]


def same_hosts(content: bytes, wanted: HostsFile, directory: str = "/") -> bool:
    """Say whether a file means what is wanted and nothing else: the same hosts in the same order, the same settings.

    A file that containerd refuses means nothing.
    """
    try:
        found = read_hosts(content)
    except HostsError:
        return False
    server = {"server": wanted.server.url, **comparable(wanted.server.settings(), directory)} if wanted.server else {}
    there = {"server": found.server} if found.server else {}
    return {**there, **comparable(found.settings(), directory)} == server and [
        (url, comparable(found.settings("host", url), directory)) for url in found.urls
    ] == [(host.url, comparable(_all_settings(host), directory)) for host in wanted.hosts]


def _all_settings(host: Host) -> dict[str, Any]:
    header = host.header_values()
    return {**host.settings(), **({"header": header} if header else {})}
