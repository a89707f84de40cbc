# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where containerd pulls from, by the old tables and by hosts.toml files, modelled on its own code."""

from __future__ import annotations

import posixpath
import tomllib
from urllib.parse import urlsplit


def old_targets(registry, namespace):
    """registryEndpoints and registryHosts (pkg/cri/server/image_pull.go at v1.7.34): scheme, host, path, TLS."""
    mirrors = registry.get("mirrors", {})
    endpoints = list(mirrors.get(namespace, mirrors.get("*", {})).get("endpoint", []))
    endpoints = [item if "://" in item else "https://" + item for item in endpoints]
    if namespace not in [urlsplit(item).netloc for item in endpoints]:
        endpoints.append("https://" + ("registry-1.docker.io" if namespace == "docker.io" else namespace))
    found = []
    for endpoint in endpoints:
        url = urlsplit(endpoint)
        tls = registry.get("configs", {}).get(url.netloc, {}).get("tls", {}) if url.scheme == "https" else {}
        path = posixpath.normpath(url.path) if url.path else "/v2"
        found.append((url.scheme, url.netloc, path, tls.get("ca_file", ""), tls.get("insecure_skip_verify", False)))
    return list(dict.fromkeys(found))


def new_targets(files, namespace):
    """HostDirFromRoot, parseHostsFile and ConfigureHosts (core/remotes/docker/config/hosts.go at v2.3.4)."""
    text = files.get(namespace, files.get("_default", ""))
    values = tomllib.loads(text)
    server = values.pop("server", "")
    hosts = [*values.pop("host", {}).items(), (server, values)]
    found = []
    for address, settings in hosts:
        url = urlsplit(address)
        path = posixpath.normpath(url.path) if url.path else ""
        if not path.endswith("/v2") and not settings.get("override_path"):
            path = path + "/v2"
        if not address:
            host = "registry-1.docker.io" if namespace == "docker.io" else namespace
            found.append(("https", host, "/v2", settings.get("ca", ""), settings.get("skip_verify", False)))
            continue
        found.append((url.scheme, url.netloc, path, settings.get("ca", ""), settings.get("skip_verify", False)))
    return list(dict.fromkeys(found))
