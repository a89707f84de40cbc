# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From C(registry.mirrors) and C(registry.configs.*.tls) to hosts.toml files that pull from the same places.

The old meaning is registryEndpoints and registryHosts of pkg/cri/server/image_pull.go at v1.7.34.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from ..module_utils.registry_names import DEFAULT_NAMESPACE
from .containerd_edit import dotted
from .containerd_hosts import DOCKER_HUB, DOCKER_HUB_HOST, PULL, Host, HostsFile, is_namespace

WILDCARD = "*"
REWRITE = "rewrite"  # of K3s and RKE2, whose containerd reads it


@dataclass
class Conversion:
    """files: by namespace. keys: the old keys that each replaces. problems: why it cannot be done. notes: warnings."""

    files: dict[str, HostsFile] = field(default_factory=dict)
    keys: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Tls:
    ca: tuple[str, ...] = ()
    client: tuple[tuple[str, str], ...] = ()
    skip_verify: bool = False

    def __bool__(self) -> bool:
        return bool(self.ca or self.client or self.skip_verify)


def convert(registry: dict) -> Conversion:
    """Return the hosts.toml files for the registry table that a daemon uses, C(config_path) left out.

    Images are pulled from the same places in the same order. One thing is added: a registry that only the wildcard's
    endpoints name is asked at its usual address last, which the old tables left out.
    """
    conversion = Conversion()
    mirrors = _read_mirrors(registry.get("mirrors", {}), conversion)
    tls = _read_tls(registry.get("configs", {}), conversion)
    for name, endpoints in mirrors.items():
        namespace = DEFAULT_NAMESPACE if name == WILDCARD else name
        conversion.files[namespace] = _mirror_file(namespace, endpoints, tls)
        conversion.keys[namespace] = [dotted(("registry", "mirrors", name))]
    for namespace in sorted({name for host in tls for name in _namespaces_at(host)} - set(conversion.files)):
        # A directory of its own takes the namespace out of _default's reach, so it repeats the wildcard's endpoints.
        conversion.files[namespace] = _mirror_file(namespace, mirrors.get(WILDCARD, []), tls)
    _note_tls_keys(conversion, tls)
    return conversion


def _namespaces_at(host: str) -> list[str]:
    """Return the namespaces whose images are at a host by default (docker.DefaultHost)."""
    if host == DOCKER_HUB:
        return []
    return [host, DOCKER_HUB] if host == DOCKER_HUB_HOST else [host]


def _note_tls_keys(conversion: Conversion, tls: dict[str, _Tls]) -> None:
    """Name the TLS table among the old keys of every file that it went into."""
    for host in tls:
        key = dotted(("registry", "configs", host, "tls"))
        users = [
            namespace
            for namespace, file in conversion.files.items()
            if any(urlsplit(item.url)[:2] == ("https", host) for item in (*file.hosts, *filter(None, [file.server])))
        ]
        for namespace in users:
            conversion.keys.setdefault(namespace, []).append(key)
        if not users:
            conversion.notes.append(f"{key} had no effect, since no endpoint is at https://{host}; it is dropped")


def _read_mirrors(mirrors: dict, conversion: Conversion) -> dict[str, list[str]]:
    """Return the endpoints by name, with a scheme; what has no equivalent becomes a problem."""
    found = {}
    for name, mirror in mirrors.items():
        key = dotted(("registry", "mirrors", name))
        endpoints = mirror.get("endpoint", []) if isinstance(mirror, dict) else None
        if not isinstance(endpoints, list) or not all(isinstance(item, str) and item for item in endpoints):
            conversion.problems.append(f"{key} is {mirror!r}, expected a table with endpoint = [URLs]")
            continue
        if REWRITE in mirror:
            conversion.problems.append(f"{key} has {REWRITE}, for which hosts.toml has no equivalent")
        if unknown := sorted(set(mirror) - {"endpoint", REWRITE}):
            conversion.notes.append(f"{key} has {', '.join(unknown)}, which containerd ignored; it is dropped")
        if name != WILDCARD and not is_namespace(name):
            conversion.notes.append(
                f"{key} had no effect, since {name!r} is no registry host and no image name leads to it; it is dropped"
            )
            continue
        urls = [_with_scheme(endpoint) for endpoint in endpoints]
        if wrong := next((url for url in urls if not _is_url(url)), None):
            conversion.problems.append(f"{key}: {wrong!r} is no URL, so pulls through it fail")
            continue
        found[name] = urls
        conversion.notes += [
            f"{key}: requests to {endpoint!r} go to its path without /v2, as before; drop the slash if that was no wish"
            for endpoint in found[name]
            if urlsplit(endpoint).path == "/"
        ]
    return found


def _read_tls(configs: dict, conversion: Conversion) -> dict[str, _Tls]:
    """Return the TLS settings by endpoint host."""
    found = {}
    for host, config in configs.items():
        settings = config.get("tls") if isinstance(config, dict) else None
        if not isinstance(settings, dict):
            continue
        key = dotted(("registry", "configs", host, "tls"))
        certificate, private = settings.get("cert_file", ""), settings.get("key_file", "")
        if bool(certificate) != bool(private):
            conversion.problems.append(f"{key} has only one of cert_file and key_file")
        if not is_namespace(host):
            conversion.notes.append(
                f"{key} had no effect, since {host!r} is not the host of any endpoint; it is dropped"
            )
            continue
        client = ((_absolute(certificate), _absolute(private)),) if certificate and private else ()
        authority = settings.get("ca_file", "")
        skip_verify = settings.get("insecure_skip_verify", False) is True
        tls = _Tls((_absolute(authority),) if authority else (), client, skip_verify)
        if tls:
            found[host] = tls
    return found


def _mirror_file(namespace: str, endpoints: list[str], tls: dict[str, _Tls]) -> HostsFile:
    hosts = [_with_tls(_host(endpoint), tls) for endpoint in endpoints]
    server = None
    if namespace != DEFAULT_NAMESPACE:
        # An endpoint of the registry itself was the last resort; else the registry is, at its usual address.
        own = next((host for host in hosts if urlsplit(host.url).netloc == namespace), None)
        address = DOCKER_HUB_HOST if namespace == DOCKER_HUB else namespace
        fallback = own or _with_tls(Host(f"{_default_scheme(address)}://{address}"), tls)
        if own or fallback != Host(f"https://{address}") or not hosts:
            server = replace(fallback, capabilities=())
    if not hosts and server:
        # A file with a server only is not understood by 1.5 and 1.6.
        hosts = [replace(server, capabilities=PULL)]
    return HostsFile(namespace, _unique(hosts), server)


def _host(endpoint: str) -> Host:
    """Return the host of an endpoint; its path was used as it stands, while hosts.toml appends /v2."""
    path = urlsplit(endpoint).path
    return Host(endpoint, PULL, override_path=bool(path) and not posixpath.normpath(path).endswith("/v2"))


def _with_tls(host: Host, tls: dict[str, _Tls]) -> Host:
    """Add the TLS settings of the host. A plain HTTP endpoint had none; with them newer lines would try HTTPS first."""
    url = urlsplit(host.url)
    settings = tls.get(url.netloc) if url.scheme == "https" else None
    return replace(host, ca=settings.ca, client=settings.client, skip_verify=settings.skip_verify) if settings else host


def _unique(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """Drop later hosts with the same target: the same table twice is no valid file (k3s#9693)."""
    found: dict[tuple, Host] = {}
    for host in hosts:
        found.setdefault(host.target, host)
    return tuple(found.values())


def _with_scheme(endpoint: str) -> str:
    if "://" in endpoint:
        return endpoint
    return f"{_default_scheme(endpoint.partition('/')[0])}://{endpoint}"


def _is_url(endpoint: str) -> bool:
    try:
        url = urlsplit(endpoint)
        return bool(url.hostname) and (url.port is None or url.port > 0) and not re.search(r"[\s{}\x7f]", endpoint)
    except ValueError:
        return False


def _default_scheme(host: str) -> str:
    """Plain HTTP for this machine (docker.MatchLocalhost)."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    is_local = name in ("localhost", "::1", "[::1]") or name.startswith("127.")
    return "http" if is_local else "https"


def _absolute(path: str) -> str:
    """A relative path was looked up in the daemon's working directory, hosts.toml has its own."""
    return posixpath.join("/", path)
