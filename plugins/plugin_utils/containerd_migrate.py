# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Move C(registry.mirrors) and C(registry.configs.*.tls) out of configuration files into hosts.toml files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from ..module_utils.registry_names import DEFAULT_NAMESPACE, FILE_NAME
from .containerd_edit import apply_splices, dotted, remove_path
from .containerd_effective import Daemon, Registry, registry_tables
from .containerd_files import SECRET_MODE, ConfigFile, Write, read_config
from .containerd_hosts import HostsFile, directory_name, render, same_hosts
from .containerd_hosts_merge import merge
from .containerd_mirrors import convert
from .containerd_secrets import mask

# Docker's layout, which containerd reads where there is no hosts.toml (loadCertFiles).
_CERTIFICATES = (".crt", ".cert", ".key")


@dataclass(frozen=True)
class HostsDirectory:
    """One directory below the registry directory: its file names, and the bytes of hosts.toml (None: there is none).

    origin, former, made: what the journal says of that file, as C(containerd_registries.trace) returns it.
    """

    names: tuple[str, ...] = ()
    content: bytes | None = None
    origin: str = ""
    former: bytes | None = None
    made: tuple[str, ...] = ()


@dataclass(frozen=True)
class RegistryDirectory:
    """The registry directory that will be effective, with what is below it already, by name."""

    path: str
    existing: Mapping[str, HostsDirectory] = field(default_factory=dict)

    @property
    def fault(self) -> str:
        """Why no file can be written below it, "" when files can."""
        if is_list(self.path):
            return f"the list {self.path!r}"
        return "" if self.path.startswith("/") else f"no absolute path: {self.path!r}"


def is_list(path: str) -> bool:
    """Say whether containerd splits a path, as it does at C(:), on Windows at C(;); a drive letter is no list."""
    return bool(re.search(r"[:;]", path)) and not re.match(r"[A-Za-z]:[\\/][^:;]*\Z", path)


@dataclass(frozen=True)
class Converted:
    """What the old tables of one registry become. keys: their names. sources: the files that they are in."""

    hosts: HostsFile
    keys: list[str]
    sources: list[str]

    @property
    def comment(self) -> str:
        return f"Converted from {', '.join(self.keys)} of {', '.join(self.sources)}"


@dataclass
class Migration:
    """configs: the files without the old tables. writes: the hosts.toml files.

    converted: what became of what, as the module returns it. problems: why it cannot be done, each with what to do.
    placed: what the old tables become, by registry, with what is left to the option hosts.
    """

    configs: list[ConfigFile]
    writes: list[Write] = field(default_factory=list)
    converted: list[dict] = field(default_factory=list)
    problems: list[tuple[str, str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    placed: dict[str, Converted] = field(default_factory=dict)


def migrate(
    configs: list[ConfigFile],
    daemon: Daemon,
    registry: Registry,
    directory: RegistryDirectory,
    claimed: Set[str] = frozenset(),
) -> Migration:
    """Return the configuration files without the old tables, and the hosts.toml files that take their place.

    :param claimed: registries that the option hosts names, whose files it writes.
    :raises EditError: the tables cannot be taken out without changing something else.
    """
    conversion = convert(registry.other)
    migration = Migration([_without_legacy(config, daemon, index) for index, config in enumerate(configs)])
    migration.notes = conversion.notes
    migration.problems = [
        ("containerd.mirrors_not_convertible", problem, "convert it by hand and remove it from the configuration")
        for problem in conversion.problems
    ]
    if DEFAULT_NAMESPACE in conversion.files and not daemon.reads_default_hosts:
        migration.problems.append(
            (
                "containerd.mirrors_not_convertible",
                f'registry.mirrors."*" needs {DEFAULT_NAMESPACE}, which this containerd does not read yet',
                "upgrade containerd to 1.6.17 or later, or name each registry under mirrors instead of the wildcard",
            )
        )
    sources = sorted({*registry.mirrors.values(), *registry.tls.values()})
    for hosts in conversion.files.values():
        converted = Converted(hosts, conversion.keys[hosts.namespace], sources)
        migration.placed[hosts.namespace] = converted
        _place(migration, converted, directory, is_claimed=hosts.namespace in claimed)
    if not registry.config_path:
        _note_dormant(migration, directory)
    _note_engine(migration, daemon, registry)
    return migration


def _without_legacy(config: ConfigFile, daemon: Daemon, index: int) -> ConfigFile:
    text = config.text
    for table in registry_tables(config.values, daemon, is_import=index > 0):
        registry = config.values
        for name in table:
            registry = registry.get(name, {})
        for path in _legacy_paths(table, registry):
            text = apply_splices(text, remove_path(text, path))
    return config if text == config.text else read_config(config.path, text.encode(), daemon)


def _legacy_paths(table: tuple[str, ...], registry: dict) -> list[tuple[str, ...]]:
    """Return what goes: mirrors, each TLS table, and what is empty without it."""
    paths = [(*table, "mirrors")] if "mirrors" in registry else []
    configs = registry.get("configs", {})
    with_tls = [host for host, config in configs.items() if isinstance(config, dict) and "tls" in config]
    only_tls = [host for host in with_tls if set(configs[host]) == {"tls"}]
    if with_tls and len(only_tls) == len(configs):
        return [*paths, (*table, "configs")]
    paths += [(*table, "configs", host) for host in only_tls]
    return paths + [(*table, "configs", host, "tls") for host in with_tls if host not in only_tls]


def docker_certificates(there: HostsDirectory) -> list[str]:
    """Return the certificates and keys in Docker's layout, which containerd ignores beside a hosts.toml."""
    return [] if there.content is not None else [name for name in there.names if name.endswith(_CERTIFICATES)]


def _place(migration: Migration, converted: Converted, directory: RegistryDirectory, *, is_claimed: bool) -> None:
    """Write a hosts.toml, add what is missing to one, or say what is in the way; the option hosts writes its own."""
    hosts, keys = converted.hosts, ", ".join(converted.keys)
    name = directory_name(hosts.namespace, set(directory.existing))
    path = posixpath.join(directory.path, name, FILE_NAME)
    migration.converted.append({"registry": hosts.namespace, "keys": converted.keys, "file": path})
    if is_claimed:
        return
    there = directory.existing.get(name, HostsDirectory())
    if certificates := docker_certificates(there):
        migration.problems.append(
            (
                "containerd.hosts_conflict",
                f"{directory.path}/{name} holds {', '.join(certificates)}, which containerd ignores beside the "
                f"{FILE_NAME} that {keys} would become",
                f"write {path} by hand with these certificates as ca and client",
            )
        )
    elif there.content is None:
        text = render(hosts, converted.comment)
        has_secret = text != mask(text, set())
        migration.writes.append(Write(path, None, text.encode(), SECRET_MODE if has_secret else None))
    elif not same_hosts(there.content, hosts, f"{directory.path}/{name}"):
        merged = merge(there.content, hosts, f"{directory.path}/{name}")
        if merged.text is not None and same_hosts(merged.text.encode(), hosts, f"{directory.path}/{name}"):
            migration.writes.append(Write(path, there.content, merged.text.encode()))
            return
        observed = merged.told(path, keys) or f"{path} says more than {keys}"
        remedy = f"make {path} say what shall hold, then remove {keys} from the configuration"
        migration.problems.append(("containerd.hosts_conflict", observed, remedy))


def _note_dormant(migration: Migration, directory: RegistryDirectory) -> None:
    """Name directories that were there all along and come into effect with the registry directory."""
    placed = {entry["file"].split("/")[-2] for entry in migration.converted}
    dormant = sorted(
        name for name, there in directory.existing.items() if there.content is not None and name not in placed
    )
    if dormant:
        migration.notes.append(f"hosts.toml files that were not in use come into effect for {', '.join(dormant)}")


def _note_engine(migration: Migration, daemon: Daemon, registry: Registry) -> None:
    """containerd 2.1 pulls through the transfer service unless mirrors or configs are there."""
    left = any("configs" in _registry_of(config, daemon, at) for at, config in enumerate(migration.configs))
    if daemon.version >= (2, 1) and not left and (registry.mirrors or registry.other.get("configs")):
        migration.notes.append(
            "without registry.mirrors and registry.configs containerd pulls through its transfer service"
        )
    keys = {key for entry in migration.converted for key in entry["keys"]}
    names = ", ".join(sorted(host for host in registry.tls if dotted(("registry", "configs", host, "tls")) in keys))
    if daemon.version >= (2,) and names:
        migration.notes.append(f"registry.configs.*.tls of {names}, which containerd 2.x ignored, takes effect again")


def _registry_of(config: ConfigFile, daemon: Daemon, index: int) -> dict:
    """Return all keys of the registry tables that the daemon may read in a file."""
    found: dict = {}
    for table in registry_tables(config.values, daemon, is_import=index > 0):
        registry = config.values
        for name in table:
            registry = registry.get(name, {})
        found.update(registry)
    return found
