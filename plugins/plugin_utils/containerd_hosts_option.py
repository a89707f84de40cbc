# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The option C(hosts) of containerd_config: what is wanted of each registry. No message shows a header's value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ansible.module_utils.common.validation import check_type_list
from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils.registry_names import DEFAULT_NAMESPACE
from .containerd_hosts import CAPABILITIES, PULL, Host, HostsFile, is_namespace
from .containerd_secrets import mask

_ENTRY_KEYS = ("registry", "server", "endpoints", "state")
_ENDPOINT_KEYS = ("url", "capabilities", "ca", "client", "skip_verify", "override_path", "header")
_URL = re.compile(r"https?://[^\s\x00-\x1f\x7f\"'\\<>]+", re.ASCII)
# A name of RFC 9110, 5.6.2, and a value of 5.5.
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Entry:
    """One registry. C(wanted) None: what this module wrote for it is to go."""

    registry: str
    wanted: HostsFile | None

    @property
    def files(self) -> list[str]:
        """The certificates and keys that the node must have, as they are spelt."""
        hosts = self.wanted.hosts if self.wanted else ()
        return [path for host in hosts for path in (*host.ca, *(file for pair in host.client for file in pair))]


def parse_hosts(items: Any) -> list[Entry]:
    """Return the entries of the option.

    :raises ValueError: with one line that says which one is wrong, and why.
    """
    if items is not None and not isinstance(items, list):
        raise ValueError(f"hosts must be a list of registries, got {kind_of(items)}")
    entries: list[Entry] = []
    for number, item in enumerate(items or [], 1):
        try:
            entry = _entry(_checked(item, _ENTRY_KEYS))
            if any(entry.registry == other.registry for other in entries):
                raise ValueError(f"{entry.registry} is there twice")
        except ValueError as error:
            raise ValueError(f"hosts, item {number}: {error}") from None
        entries.append(entry)
    return entries


def question(entries: list[Entry]) -> list[dict]:
    """Return what the node is asked about the entries, without anything secret."""
    return [{"registry": entry.registry, "files": entry.files} for entry in entries]


def _entry(item: dict) -> Entry:
    registry, state = item.get("registry"), item.get("state", "present")
    if not isinstance(registry, str) or not (registry == DEFAULT_NAMESPACE or is_namespace(registry)):
        raise ValueError(
            f"registry must be a host, with its port where images name one, such as docker.io, or {DEFAULT_NAMESPACE}; "
            f"got {_shown(registry)}"
        )
    registry = str(registry)
    endpoints, server = item.get("endpoints") or [], item.get("server")
    if state == "absent":
        if endpoints or server:
            raise ValueError(f"state absent takes no server and no endpoints for {registry}")
        return Entry(registry, None)
    if state != "present":
        raise ValueError(f"state must be present or absent, got {_shown(state)}")
    if not isinstance(endpoints, list):
        raise ValueError(f"endpoints of {registry} must be a list, got {kind_of(endpoints)}")
    if not endpoints and not server:
        raise ValueError(f"{registry} needs endpoints, or a server")
    last = Host(_url("server", server)) if server else None
    hosts = []
    for number, endpoint in enumerate(endpoints, 1):
        try:
            hosts.append(_endpoint(_checked(endpoint, _ENDPOINT_KEYS)))
        except ValueError as error:
            raise ValueError(f"endpoint {number} of {registry}: {error}") from None
    if twice := next((host for at, host in enumerate(hosts) if _is_in(host, hosts[:at])), None):
        raise ValueError(f"{twice.url} of {registry} leads to a place that an endpoint before it leads to")
    # A file with a server only is not understood by 1.6.
    return Entry(registry, HostsFile(registry, tuple(hosts) or (Host(last.url, PULL),), last))


def _is_in(host: Host, others: list[Host]) -> bool:
    """Say whether a host is there already; the same address twice is no valid file, whatever its path becomes."""
    return any(host.target == other.target or host.url == other.url for other in others)


def _endpoint(item: dict) -> Host:
    capabilities = _strings("capabilities", item.get("capabilities", list(PULL)))
    unknown = sorted(set(capabilities) - set(CAPABILITIES))
    if unknown or not capabilities:
        raise ValueError(f"capabilities must be some of {', '.join(CAPABILITIES)}, got {unknown or 'none'}")
    try:
        skip_verify, override_path = (boolean(item.get(key, False)) for key in ("skip_verify", "override_path"))
    except TypeError as error:
        raise ValueError(str(error)) from None
    return Host(
        _url("url", item.get("url")),
        tuple(name for name in CAPABILITIES if name in capabilities),
        tuple(_paths("ca", _strings("ca", item.get("ca") or []))),
        tuple(_pairs(item.get("client") or [])),
        skip_verify,
        override_path,
        tuple(_header(item.get("header") or {})),
    )


def _checked(item: Any, keys: tuple[str, ...]) -> dict:
    if not isinstance(item, dict):
        raise ValueError(f"expected {', '.join(keys)}, got {kind_of(item)}")
    if unknown := sorted(str(key) for key in set(item) - set(keys)):
        raise ValueError(f"expected {', '.join(keys)}, got {', '.join(unknown)}")
    # A key that a template leaves empty is one that is not given.
    return {key: value for key, value in item.items() if value is not None}


def _url(key: str, value: Any) -> str:
    if not isinstance(value, str) or not _URL.fullmatch(value):
        raise ValueError(f"{key} must be an address such as https://mirror.example:5000, got {_shown(value)}")
    try:
        parts = urlsplit(value)
        is_whole = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_whole = False
    if not is_whole or parts.query or parts.fragment:
        raise ValueError(f"{key} must be scheme, host, port and path, got {_shown(value)}")
    if "@" in parts.netloc:
        raise ValueError(
            f"{key} names a user in {_shown(value)}, which containerd ignores: give a header Authorization instead"
        )
    return str(value)


def _strings(key: str, value: Any) -> list[str]:
    found = check_type_list(value) if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(item, str) and item for item in found):
        raise ValueError(f"{key} must be a text or a list of texts, got {kind_of(value)}")
    return [str(item) for item in found]


def _paths(key: str, paths: list[str]) -> list[str]:
    if wrong := next((path for path in paths if _CONTROL.search(path) or path.startswith("~")), None):
        raise ValueError(f"{key} must be a path on the node, absolute or from the directory of the file, got {wrong!r}")
    return paths


def _pairs(value: Any) -> list[tuple[str, str]]:
    pairs = value if isinstance(value, list) and all(isinstance(item, list) for item in value) else [value]
    found = [_paths("client", _strings("client", pair)) for pair in pairs if pair]
    if any(len(pair) != 2 for pair in found):
        raise ValueError("client must be a pair of paths, certificate and key, or a list of such pairs")
    return [(pair[0], pair[1]) for pair in found]


def _header(value: Any) -> list[tuple[str, tuple[str, ...]]]:
    if not isinstance(value, dict):
        raise ValueError(f"header must be names with their values, got {kind_of(value)}")
    found = []
    for name, values in value.items():
        texts = [values] if isinstance(values, str) else values
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"header has {_shown(name)}, which is no name of a header")
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"header {name} must be a text or a list of texts; put numbers into quotes")
        if not all(_HEADER_VALUE.fullmatch(text) for text in texts):
            raise ValueError(f"header {name} has a control character, such as a line break, in its value")
        found.append((str(name), tuple(str(text) for text in texts)))
    names = [name.lower() for name, _values in found]
    if twice := next((name for at, name in enumerate(names) if name in names[:at]), None):
        raise ValueError(f"header {twice} is there twice")
    return found


def _shown(value: Any) -> str:
    """Return a value that is no secret, without the user of an address."""
    return mask(repr(str(value)), set()) if isinstance(value, str) else kind_of(value)


def kind_of(value: Any) -> str:
    """Return the kind of a value that may hold secrets."""
    # Templates give values of types of their own.
    names = {
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "a mapping",
    }
    kind = next((name for known, name in names.items() if isinstance(value, known)), f"type {type(value).__name__}")
    return "nothing" if value is None else kind
