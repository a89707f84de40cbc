# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hosts.toml, what containerd reads below its registry directory: https://github.com/containerd/containerd/blob/main/docs/hosts.md"""

from __future__ import annotations

import posixpath
import re
import tomllib
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ..module_utils.containerd_toml import scan
from .containerd_edit import quote

FILE_NAME = "hosts.toml"
DEFAULT_NAMESPACE = "_default"
PULL = ("pull", "resolve")


@dataclass(frozen=True)
class Host:
    """One place that images are pulled from. C(ca) and C(client) are paths; client is a pair, certificate and key."""

    url: str
    capabilities: tuple[str, ...] = ()
    ca: str = ""
    client: tuple[str, str] | None = None
    skip_verify: bool = False
    override_path: bool = False

    @property
    def target(self) -> tuple[str, str, str]:
        """Scheme, host and path of the requests (parseHostConfig of core/remotes/docker/config/hosts.go)."""
        url = urlsplit(self.url if self.url.startswith("http") else "https://" + self.url)
        path = posixpath.normpath(url.path) if url.path else ""
        if not self.override_path and not path.endswith("/v2"):
            path = path.rstrip("/") + "/v2"
        return url.scheme, url.netloc, path

    def settings(self) -> dict[str, Any]:
        """Return the keys of the host's table, without those that say what holds anyway."""
        client = [list(self.client)] if self.client else []
        found = {
            "capabilities": list(self.capabilities),
            "override_path": self.override_path,
            "ca": self.ca,
            "client": client,
            "skip_verify": self.skip_verify,
        }
        return {key: value for key, value in found.items() if value}


@dataclass(frozen=True)
class HostsFile:
    """The hosts of one namespace in order, then the server that is tried last; None: the registry itself."""

    namespace: str
    hosts: tuple[Host, ...]
    server: Host | None = None


def directory_name(namespace: str, existing: set[str]) -> str:
    """Return the directory of a namespace: the one that containerd finds first, else the plain name.

    HostDirFromRoot looks for C(host_port_), then C(host:port).
    """
    host, colon, port = namespace.rpartition(":")
    underscored = f"{host}_{port}_" if colon else namespace
    return underscored if underscored in existing else namespace


def is_namespace(name: str) -> bool:
    """Say whether a name can be a registry host, and so the name of a directory."""
    return bool(re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(:\d+)?|\[[0-9A-Fa-f:]+\](:\d+)?", name))


def render(hosts: HostsFile, comment: str) -> str:
    """Return the file's text. One comment line says where it comes from."""
    lines = [f"# {comment}"]
    if hosts.server:
        lines += [f"server = {quote(hosts.server.url)}", *_render_settings(hosts.server, "")]
    for host in hosts.hosts:
        lines += ["", f"[host.{quote(host.url)}]", *_render_settings(host, "  ")]
    return "\n".join(lines) + "\n"


def _render_settings(host: Host, indent: str) -> list[str]:
    return [f"{indent}{key} = {_literal(value)}" for key, value in host.settings().items()]


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return quote(value)


def same_hosts(text: str, wanted: HostsFile) -> bool:
    """Say whether a file means what is wanted: the same hosts in the same order with the same settings.

    Only C([host."..."]) headers count, as in getSortedHosts. A file that containerd cannot parse means nothing.
    """
    try:
        values = tomllib.loads(text)
        headers = [item.path for item in scan(text).headers if item.path[:1] == ("host",) and len(item.path) == 2]
    except ValueError:
        return False
    hosts = [(path[1], values["host"][path[1]]) for path in headers]
    root = {key: value for key, value in values.items() if key not in ("host", "server")}
    server = {"server": wanted.server.url, **wanted.server.settings()} if wanted.server else {}
    found = {**({"server": values["server"]} if "server" in values else {}), **_comparable(root)}
    return found == server and [(url, _comparable(value)) for url, value in hosts] == [
        (host.url, host.settings()) for host in wanted.hosts
    ]


def _comparable(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings without those that say what holds anyway, with a single CA as a string."""
    found = {key: value for key, value in settings.items() if value not in (False, "", [])}
    if isinstance(found.get("ca"), list) and len(found["ca"]) == 1:
        found["ca"] = found["ca"][0]
    return found
