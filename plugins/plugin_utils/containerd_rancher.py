# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""registries.yaml, of which k3s and RKE2 make hosts.toml files when they start: https://docs.k3s.io/installation/private-registry

Its keys are those of rancher/wharfie pkg/registries/types.go (v0.8), what becomes of them is in k3s-io/k3s
pkg/agent/containerd/config.go: an endpoint's path is taken as it is unless it is empty or /v2, TLS is found by the
endpoint's host, and the registry itself is always tried last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..module_utils.registry_names import DEFAULT_NAMESPACE
from .containerd_edit import EditError
from .containerd_files import Write
from .containerd_hosts import PULL, Host, HostsFile
from .containerd_hosts_option import Entry
from .containerd_plan import Plan
from .containerd_secrets import MASK
from .yaml_edit import load_yaml, set_yaml

# Credentials may come into it.
MODE = 0o600
_HUB = "registry-1.docker.io"
_SECRET_LINE = re.compile(
    r"""^([ \t#-]*["']?(?:auth|auths|username|password|identity_?token)["']?[ \t]*:[ \t]+)(?!#)\S.*$""",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True)
class Registries:
    """The file of an owner; content is None where there is none yet."""

    owner: str
    path: str
    content: bytes | None


@dataclass
class RegistriesPlan:
    """write: None without a change. results: by registry, as the module returns them. problems: why it cannot be."""

    write: Write | None = None
    results: list[dict] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def add_registries(plan: Plan, file: Registries, entries: Sequence[Entry], present: frozenset[str]) -> None:
    """Add registries.yaml to a plan, for the registries and so that it stays in use.

    :raises EditError: it cannot be read.
    """
    placed = plan_registries(file.path, file.content, entries, present)
    problems = list(placed.problems)
    if plan.before.config_path != plan.after.config_path:
        names = sorted({*named_registries(file.content), *(entry.registry for entry in entries)})
        if names:
            problems.append(
                f"what it says of {', '.join(names)} comes to {plan.before.config_path}, and not to the wanted "
                f"{plan.after.config_path}"
            )
    if not plan.before.is_set and plan.after.is_set:
        # k3s has written hosts.toml files, and set config_path for them, since 1.26.13 (k3s-io/k3s#8972).
        problems.append(
            f"this {file.owner} makes mirrors of it, with which CRI does not load beside config_path: upgrade it"
        )
    for problem in problems:
        plan.refuse(
            "containerd.source_cannot_say",
            f"{file.path}, of which {file.owner} makes hosts.toml files: {problem}",
            "registries that it can say, in the directory that it is made for",
            f"leave that out for the nodes of {file.owner}, or write {file.path} by hand",
        )
    if problems:
        return
    plan.hosts = placed.results
    if placed.write:
        plan.writes.append(placed.write)
        # The files that come of it are made at the next start only.
        plan.more_changes = True


def plan_registries(
    path: str, content: bytes | None, entries: Sequence[Entry], present: frozenset[str] = frozenset()
) -> RegistriesPlan:
    """Return what makes registries.yaml say what the option hosts does; what it cannot say is a problem.

    :param present: the certificates and keys of the entries that are files on the node.
    """
    plan = RegistriesPlan()
    try:
        before = text = (content or b"").decode("utf-8")
        for entry in entries:
            plan.problems += _problems(entry, load_yaml(text))
            if missing := [item for item in entry.files if item.startswith("/") and item not in present]:
                plan.problems.append(f"{', '.join(missing)} of {entry.registry} is no file on the node")
            edited = text if plan.problems else _with_mirror(text, entry)
            plan.results.append(
                {"registry": entry.registry, "file": path, "action": "left" if edited == text else "merged"}
            )
            text = edited
    except UnicodeDecodeError:
        plan.problems.append("it is not UTF-8")
    except EditError as error:
        plan.problems.append(str(error))
    if plan.problems:
        return RegistriesPlan(problems=plan.problems)
    if text != before:
        plan.write = Write(path, content, text.encode(), MODE if content is None else None)
    return plan


def named_registries(content: bytes | None) -> list[str]:
    """Return the registries that registries.yaml says something of.

    :raises EditError: it cannot be read.
    """
    values = load_yaml((content or b"").decode("utf-8", "replace"))
    return sorted({str(name) for key in ("mirrors", "configs") for name in values.get(key) or {}})


def find_yaml_secrets(content: bytes | None) -> set[str]:
    """Return the credentials of a registries.yaml; short ones are left out, they would hide other words."""
    try:
        values = load_yaml((content or b"").decode("utf-8", "replace"))
    except EditError:
        return set()
    return {text for text in _texts(values, False) if len(text) >= 4}


def without_yaml_secrets(text: str) -> str:
    """Return a registries.yaml with every credential replaced that stands on the line of its key, in comments too."""
    return _SECRET_LINE.sub(rf"\1{MASK}", text)


def _texts(tree: object, is_secret: bool) -> Iterator[str]:
    """Yield the texts below auth and auths."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _texts(value, is_secret or key in ("auth", "auths"))
    elif is_secret and tree is not None:
        yield str(tree)


def _problems(entry: Entry, values: dict) -> Iterator[str]:
    """Yield what registries.yaml cannot say of one registry."""
    name, wanted = _name(entry.registry), entry.wanted
    mirror = _mapping(values, "mirrors").get(name)
    if wanted is None:
        if mirror:
            yield f"mirrors.{name} is there, and whose it is cannot be known: take it out by hand"
        return
    if wanted.server and wanted.server.target != _own_target(wanted):
        yield f"server of {entry.registry}: the registry itself is always tried last"
    for host in wanted.hosts:
        for reason in _host_problems(host, _mapping(values, "configs").get(_tls_name(host)) or {}):
            yield f"{host.url} of {entry.registry}: {reason}"
    if isinstance(mirror, dict) and mirror.get("rewrite"):
        yield f"mirrors.{name} has a rewrite, which would change what is asked of each endpoint"


def _host_problems(host: Host, config: dict) -> Iterator[str]:
    if set(host.capabilities) != set(PULL):
        yield f"capabilities are always {', '.join(PULL)}"
    if host.header:
        yield "it has no headers; credentials are configs.*.auth there"
    if len(host.ca) > 1 or len(host.client) > 1:
        yield "one CA and one client certificate are all that it takes"
    if host.override_path and host.target[2] in ("", "/"):
        yield "an empty path becomes /v2"
    if relative := [path for path in (*host.ca, *(path for pair in host.client for path in pair)) if path[:1] != "/"]:
        yield f"{', '.join(relative)} is no absolute path"
    there = config.get("tls") or {}
    for key, value in _tls(host).items():
        if there.get(key, value) != value:
            yield f"configs.{_tls_name(host)}.tls.{key} is something else already, and holds for every mirror of it"


def _with_mirror(text: str, entry: Entry) -> str:
    """Return the text with the endpoints of a registry, and the TLS settings of their hosts.

    :raises EditError: they cannot be put there.
    """
    if entry.wanted is None:
        return text
    endpoints = [_endpoint(host) for host in entry.wanted.hosts]
    text = set_yaml(text, ("mirrors", _name(entry.registry), "endpoint"), endpoints)
    for host in entry.wanted.hosts:
        for key, value in _tls(host).items():
            text = set_yaml(text, ("configs", _tls_name(host), "tls", key), value)
    return text


def _endpoint(host: Host) -> str:
    scheme, netloc, path = host.target
    return f"{scheme}://{netloc}" + ("" if path == "/v2" else path)


def _tls(host: Host) -> dict[str, str | bool]:
    """Return what configs.*.tls says of a host."""
    found: dict[str, str | bool] = {}
    if host.ca:
        found["ca_file"] = host.ca[0]
    if host.client:
        found["cert_file"], found["key_file"] = host.client[0]
    if host.skip_verify:
        found["insecure_skip_verify"] = True
    return found


def _tls_name(host: Host) -> str:
    netloc = host.target[1]
    return "docker.io" if netloc == _HUB else netloc


def _own_target(wanted: HostsFile) -> tuple[str, str, str]:
    return "https", _HUB if wanted.namespace == "docker.io" else wanted.namespace, "/v2"


def _name(registry: str) -> str:
    return "*" if registry == DEFAULT_NAMESPACE else registry


def _mapping(values: dict, key: str) -> dict:
    """Return a mapping of the file.

    :raises EditError: something else stands there.
    """
    found = values.get(key)
    if found is not None and not isinstance(found, dict):
        raise EditError(f"{key} is no mapping")
    return found or {}
