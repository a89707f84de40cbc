# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts.toml files the option C(hosts) writes, merges, leaves or takes back. No input or output."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..module_utils.registry_names import DEFAULT_NAMESPACE, FILE_NAME
from .containerd_effective import Daemon
from .containerd_files import SECRET_MODE, Write
from .containerd_hosts import HostsError, HostsFile, directory_name, read_hosts, render, same_hosts
from .containerd_hosts_merge import Merged, merge
from .containerd_hosts_option import Entry
from .containerd_migrate import Converted, HostsDirectory, RegistryDirectory, docker_certificates

COMMENT = "Written by the Ansible module portcullis.fleet.containerd_config, option hosts"
CONFLICT = "containerd.hosts_conflict"


@dataclass
class HostsPlan:
    """results: what the module returns, by registry. problems: why it cannot be done: id, observed, expected, remedy.

    remove_directories: those of this module that may be empty afterwards.
    """

    writes: list[Write] = field(default_factory=list)
    results: list[dict] = field(default_factory=list)
    problems: list[tuple[str, str, str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    remove_directories: list[str] = field(default_factory=list)


def plan_hosts(
    entries: Sequence[Entry],
    directory: RegistryDirectory,
    daemon: Daemon,
    converted: Mapping[str, Converted],
    present: frozenset[str],
) -> HostsPlan:
    """Return what makes each registry's hosts.toml say what is wanted.

    :param converted: what mirrors become in this run, by registry.
    :param present: the paths of certificates and keys that are files on the node.
    """
    plan = HostsPlan()
    if directory.fault:
        plan.problems.append(
            (
                "containerd.hosts_directory",
                f"config_path is {directory.fault}",
                "one directory that the hosts.toml files can be written to",
                "set registry_config_path to one directory",
            )
        )
        return plan
    for entry in entries:
        place = _Place(entry, directory)
        if entry.wanted:
            plan.problems += _unsupported(entry.wanted, place, daemon)
            plan.problems += _missing_files(entry, place, present)
            _write(plan, entry.wanted, place, converted.get(entry.registry))
            if place.is_new and daemon.reads_default_hosts:
                plan.notes += _shadowed(entry.wanted, place, entries, directory, converted)
        else:
            _take_back(plan, place, converted.get(entry.registry))
    return plan


class _Place:
    """Where a registry's file is, and what is there."""

    def __init__(self, entry: Entry, directory: RegistryDirectory):
        name = directory_name(entry.registry, set(directory.existing))
        self.registry = entry.registry
        self.directory = posixpath.join(directory.path, name)
        self.path = posixpath.join(self.directory, FILE_NAME)
        self.is_new = entry.registry != DEFAULT_NAMESPACE and name not in directory.existing
        self.there = directory.existing.get(name, HostsDirectory())

    def result(self, action: str) -> dict:
        return {"registry": self.registry, "file": self.path, "action": action}


def _unsupported(wanted: HostsFile, place: _Place, daemon: Daemon) -> Iterator[tuple[str, str, str, str]]:
    version = ".".join(map(str, daemon.version))
    if wanted.namespace == DEFAULT_NAMESPACE and not daemon.reads_default_hosts:
        yield (
            "containerd.hosts_unsupported",
            f"containerd {version} does not read {place.path}",
            "containerd 1.6.17 or later",
            f"upgrade containerd, or name each registry instead of {DEFAULT_NAMESPACE}",
        )
    urls = [host.url for host in wanted.hosts if "referrers" in host.capabilities]
    if urls and not daemon.knows_referrers:
        yield (
            "containerd.hosts_unsupported",
            f"containerd {version} refuses a {FILE_NAME} with the capability referrers, as wanted for "
            f"{', '.join(urls)} of {wanted.namespace}",
            "containerd 2.2 or later",
            "leave referrers out of the capabilities for this node",
        )


def _missing_files(entry: Entry, place: _Place, present: frozenset[str]) -> Iterator[tuple[str, str, str, str]]:
    paths = dict.fromkeys(posixpath.join(place.directory, path) for path in entry.files)
    if missing := [path for path in paths if path not in present]:
        yield (
            "containerd.hosts_file_missing",
            f"ca or client of {entry.registry} name {', '.join(missing)}, which is no file on the node",
            "files that containerd can read, since it fails every pull through this host otherwise",
            "copy them to the node first",
        )


def _write(plan: HostsPlan, wanted: HostsFile, place: _Place, converted: Converted | None) -> None:
    """Write the file, leave one that says the same, or say what stands in the way."""
    current = place.there.content
    is_ours = place.there.origin == "ours"
    if current is not None and not converted and same_hosts(current, wanted, place.directory):
        plan.results.append(place.result("left"))
        return
    base = place.there.former if is_ours else current
    if base is None and (certificates := docker_certificates(place.there)):
        plan.problems.append(
            (
                CONFLICT,
                f"{place.directory} holds {', '.join(certificates)}, which containerd ignores beside a {FILE_NAME}",
                "no other settings for the registry beside the wanted ones",
                "name these certificates as ca and client of the endpoints, and move them to another directory",
            )
        )
        return
    sources = [(converted.hosts, converted.comment, "the mirrors")] if converted else []
    text = base
    for hosts, comment, name in (*sources, (wanted, COMMENT, "hosts")):
        if text is None:
            text = render(hosts, comment).encode()
            continue
        merged = merge(text, hosts, place.directory)
        if merged.text is None:
            plan.problems.append(_conflict(merged, name, place, text, converted))
            return
        text = merged.text.encode()
        if merged.others and name == "hosts":
            plan.notes.append(
                f"{place.path} names {', '.join(merged.others)} for {place.registry} too, which stay, since somebody "
                "else wrote them"
            )
    _add(plan, place, text, wanted, is_whole=base is None)


def _add(plan: HostsPlan, place: _Place, text: bytes, wanted: HostsFile, *, is_whole: bool) -> None:
    if text == place.there.content:
        plan.results.append(place.result("left"))
        return
    plan.results.append(place.result("written" if is_whole else "merged"))
    plan.writes.append(
        Write(place.path, place.there.content, text, SECRET_MODE if is_whole and wanted.has_header else None)
    )
    if wanted.has_header and not is_whole:
        plan.notes.append(f"{place.path} holds headers now and keeps its mode: see that nobody but root can read it")


def _conflict(
    merged: Merged, name: str, place: _Place, text: bytes, converted: Converted | None
) -> tuple[str, str, str, str]:
    """Return a finding that names file, line and both values."""
    if text == place.there.content:
        where = place.path
    elif text == place.there.former:
        where = f"{place.path} (as it was before this module changed it)"
    else:
        where = f"{place.path} (as {' and '.join(converted.keys)} of {', '.join(converted.sources)} would become it)"
    return (
        CONFLICT,
        merged.told(where, name),
        f"one will for {place.registry}",
        f"make hosts say what shall hold for {place.registry}, or change {where.partition(' (')[0]} by hand"
        + (", and the mirrors in the configuration alike" if converted else ""),
    )


def _take_back(plan: HostsPlan, place: _Place, converted: Converted | None) -> None:
    """Give back what was there before this module's changes."""
    there = place.there
    if converted:
        plan.problems.append(
            (
                CONFLICT,
                f"{', '.join(converted.keys)} of {', '.join(converted.sources)} would become {place.path}, while hosts "
                f"want {place.registry} absent",
                f"one will for {place.registry}",
                f"take {', '.join(converted.keys)} out of the configuration, or {place.registry} out of hosts",
            )
        )
    elif there.origin == "ours":
        plan.writes.append(Write(place.path, there.content, there.former))
        plan.results.append(place.result("removed" if there.former is None else "restored"))
        plan.remove_directories += [path for path in there.made if f"{place.path}/".startswith(f"{path}/")]
    elif there.content is None or there.origin == "former":
        plan.results.append(place.result("left"))
    else:
        changed = there.origin == "changed"
        plan.problems.append(
            (
                "containerd.changed_since" if changed else CONFLICT,
                f"{place.path} was {'changed' if changed else 'written'} by somebody else",
                "a file as this module wrote it, so that it can be taken back",
                f"remove {place.path} by hand" + (", or make it what it was" if changed else ""),
            )
        )


def _shadowed(
    wanted: HostsFile,
    place: _Place,
    entries: Sequence[Entry],
    directory: RegistryDirectory,
    converted: Mapping[str, Converted],
) -> Iterator[str]:
    """Say which hosts of _default are not asked for a registry any more that gets a directory of its own."""
    chosen = [entry.wanted for entry in entries if entry.registry == DEFAULT_NAMESPACE]
    if not chosen and DEFAULT_NAMESPACE in converted:
        chosen = [converted[DEFAULT_NAMESPACE].hosts]
    targets = {host.target for host in (*wanted.hosts, *filter(None, [wanted.server]))}
    if chosen:
        default = chosen[0]
        hosts = (*default.hosts, *filter(None, [default.server])) if default else ()
        lost = [host.url for host in hosts if host.target not in targets]
    else:
        lost = [url for url, where in _hosts_in(directory.existing.get(DEFAULT_NAMESPACE)) if where not in targets]
    if lost:
        yield (
            f"{place.directory} takes {place.registry} out of {DEFAULT_NAMESPACE}, so that "
            f"{', '.join(dict.fromkeys(lost))} of {directory.path}/{DEFAULT_NAMESPACE} are not asked for it any more"
        )


def _hosts_in(there: HostsDirectory | None) -> list[tuple[str, tuple[str, str, str]]]:
    """Return address and target of what a file names; nothing where containerd refuses it."""
    try:
        found = read_hosts(there.content) if there and there.content is not None else None
    except HostsError:
        found = None
    if not found:
        return []
    server = [(found.server, found.server_target)] if found.server else []
    return [*((url, found.target_of(url)) for url in found.urls), *server]
