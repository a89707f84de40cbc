# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to change in containerd's files so that the daemon uses the wanted registry directory. No input or output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..module_utils.finding import BLOCKER, finding
from .containerd_edit import EditError, apply_splices, prepend_version, pruned, set_value
from .containerd_effective import GRPC_CRI, IMAGES, V1_CRI, Daemon, Registry, effective_registry, registry_tables
from .containerd_files import ConfigFile, UnreadableError, read_config
from .containerd_judge import judge_configs, judge_imports
from .containerd_migrate import HostsDirectory, RegistryDirectory, migrate

DEFAULT_DIRECTORY = "/etc/containerd/certs.d"
REQUIREMENT = "secure-workload/Requirements and Prerequisites"


@dataclass(frozen=True)
class Options:
    """What is wanted. C(registry_config_path) None: keep a path that a file sets, else use DEFAULT_DIRECTORY.

    locked: imported files that another program writes, with what to do instead.
    """

    registry_config_path: str | None = None
    convert_mirrors: bool = True
    locked: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Write:
    """One file's bytes before and after; None where there is no file."""

    path: str
    before: bytes | None
    after: bytes | None


@dataclass
class Plan:
    """C(before) and C(after) are what the daemon uses then; None when the files cannot be read."""

    writes: list[Write] = field(default_factory=list)
    findings: list[dict] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    converted: list[dict] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    before: Registry | None = None
    after: Registry | None = None

    def refuse(self, finding_id: str, observed: str, expected: str, remedy: str) -> Plan:
        """Add a blocker and drop the writes."""
        self.writes, self.converted = [], []
        self.after = self.before
        self.findings.append(
            finding(
                finding_id,
                severity=BLOCKER,
                requirement=REQUIREMENT,
                observed=observed,
                expected=expected,
                remedy=remedy,
            )
        )
        return self


def check_directory(path: str) -> str:
    """Return why a registry directory cannot be used, empty when it can."""
    if ":" in path or ";" in path:
        return (
            f"registry_config_path must be one directory, got the list {path!r}: containerd 2.1 and later pull through "
            "the transfer service, which takes the whole list as one directory name and ignores every hosts.toml"
        )
    if not path.startswith("/") or re.search(r"[\x00-\x1f\x7f]", path):
        return f"registry_config_path must be an absolute path, such as {DEFAULT_DIRECTORY}, got {path!r}"
    return ""


def plan_present(
    files: Mapping[str, bytes | None],
    daemon: Daemon,
    options: Options,
    hosts: Mapping[str, Mapping[str, HostsDirectory]] | None = None,
) -> Plan:
    """Return what sets the registry directory, with mirrors and registry TLS converted.

    :param files: bytes by path in the order in which the daemon loads them, the main file first; None when absent.
    :param hosts: what is below registry directories already, by directory and name.
    """
    plan = Plan()
    for refusal in judge_imports(files):
        plan.refuse(*refusal)
    try:
        configs = [read_config(path, content or b"", daemon) for path, content in files.items()]
    except UnreadableError as error:
        return plan.refuse(error.finding_id, str(error), "a configuration that this containerd accepts", error.remedy)
    plan.before = plan.after = _effective(configs, daemon)
    for refusal in judge_configs(configs, plan.before, daemon):
        plan.refuse(*refusal)
    if plan.findings:
        return plan
    wanted = options.registry_config_path or (plan.before.config_path if plan.before.is_set else DEFAULT_DIRECTORY)
    is_wanted = plan.before.is_set and plan.before.config_path == wanted
    if is_wanted and not _legacy(plan.before, daemon):
        _warn_of_list(plan)
        return plan
    _warn_of_missing_version(plan, configs[0], daemon)
    try:
        directory = RegistryDirectory(wanted, (hosts or {}).get(wanted, {}))
        edited = _migrated(plan, configs, daemon, options, directory)
        if not plan.findings:
            _set_directory(plan, edited, daemon, options, wanted)
    except EditError as error:
        plan.refuse(
            "containerd.edit_unsafe",
            f"{configs[0].path}: {error}",
            "a spelling that can be edited without touching anything else",
            "write the registry tables as [table] headers of their own",
        )
    return _with_config_writes(plan, files)


def _migrated(
    plan: Plan, configs: list[ConfigFile], daemon: Daemon, options: Options, directory: RegistryDirectory
) -> list[ConfigFile]:
    """Return the files without mirrors and registry TLS; their hosts.toml files become writes of the plan."""
    legacy = _legacy(plan.before, daemon)
    if not legacy and not plan.before.tls:
        return configs
    if not options.convert_mirrors:
        if legacy:
            plan.refuse(
                "containerd.mirrors_present",
                "; ".join(legacy),
                "none of them: together with config_path CRI does not load, while the daemon stays up",
                "let convert_mirrors write them as hosts.toml, or do so by hand and remove them",
            )
        return configs
    if ":" in directory.path:
        plan.refuse(
            "containerd.mirrors_present",
            f"{'; '.join(legacy)}, and config_path is the list {directory.path!r}",
            "one directory that the hosts.toml files can be written to",
            "set registry_config_path to one directory",
        )
        return configs
    migration = migrate(configs, daemon, plan.before, directory)
    for finding_id, observed, remedy in migration.problems:
        plan.refuse(finding_id, observed, "mirrors and registry TLS that hosts.toml can say", remedy)
    if plan.findings:
        return configs
    plan.warnings += migration.notes
    plan.converted = migration.converted
    plan.writes = [Write(path, None, text.encode()) for path, text in migration.files.items()]
    return migration.configs


def _with_config_writes(plan: Plan, files: Mapping[str, bytes | None]) -> Plan:
    """Add the configuration files that changed, after the hosts.toml files that they will rely on."""
    if not plan.findings:
        plan.writes += [
            Write(path, files[path], text.encode()) for path, text in plan.texts.items() if text.encode() != files[path]
        ]
    return plan


def plan_restore(files: Mapping[str, bytes | None], daemon: Daemon, restored: Mapping[str, Write]) -> Plan:
    """Return what gives files the bytes of their undo records back.

    :param restored: by path; C(before) is what is there now, C(after) the bytes of the record (None: no file).
    """
    plan = Plan(writes=[write for write in restored.values() if write.before != write.after])
    contents = {path: restored[path].after if path in restored else content for path, content in files.items()}
    for attribute, side in (("before", files), ("after", contents)):
        try:
            configs = [read_config(path, content or b"", daemon) for path, content in side.items()]
            setattr(plan, attribute, _effective(configs, daemon))
        except UnreadableError as error:
            plan.warnings.append(str(error))
    return plan


def _effective(configs: list[ConfigFile], daemon: Daemon) -> Registry:
    return effective_registry([(config.path, config.values) for config in configs], daemon)


def _legacy(registry: Registry, daemon: Daemon) -> list[str]:
    """Return what takes CRI down together with config_path, in words."""
    tables = [("mirrors", registry.mirrors)]
    if daemon.refuses_tls_beside_config_path:
        tables.append(("configs.*.tls", registry.tls))
    return [f"registry.{kind} for {name} in {path}" for kind, names in tables for name, path in sorted(names.items())]


def _warn_of_missing_version(plan: Plan, main: ConfigFile, daemon: Daemon) -> None:
    """Say that tables are read by nobody: without a version, 1.x takes short names only and 2.0 to 2.2 migrate none."""
    if not main.has_statements or main.values.get("version", 0) >= 2 or daemon.migrates_each_file:
        return
    ignored = (GRPC_CRI, IMAGES) if daemon.version < (2,) else (V1_CRI, GRPC_CRI)
    found = sorted(name for name in main.values.get("plugins", {}) if name in ignored)
    if found:
        plan.warnings.append(
            f"{main.path} has no version, so containerd takes it for version 1 and ignores {', '.join(found)}; if that "
            "is no wish, add version = 2 at its top"
        )


def _warn_of_list(plan: Plan) -> None:
    if ":" in plan.before.config_path:
        plan.warnings.append(
            f"{plan.before.config_path_file or 'containerd'} sets config_path to the list "
            f"{plan.before.config_path!r}; pulls through the transfer service (default from containerd 2.1) take it as "
            "one directory and ignore every hosts.toml. Set registry_config_path to one directory"
        )


def _set_directory(plan: Plan, configs: list[ConfigFile], daemon: Daemon, options: Options, wanted: str) -> None:
    """Try each table that the daemon may read until one makes the wanted path effective and changes nothing else.

    The main file comes first; an imported file only where it wins over the main one.
    """
    other = pruned(_effective(configs, daemon).other)
    if other != pruned(_without_legacy(plan.before.other) if plan.converted else plan.before.other):
        raise EditError("taking out mirrors and registry TLS would change what else the daemon uses")
    reasons = []
    for at in [0, *range(len(configs) - 1, 0, -1)]:
        for table in registry_tables(configs[at].values, daemon, is_import=at > 0):
            try:
                edited = _edit(configs[at], daemon, table, wanted)
            except EditError as error:
                reasons.append(str(error))
                continue
            candidate = [*configs[:at], edited, *configs[at + 1 :]]
            after = _effective(candidate, daemon)
            if after.config_path != wanted or not after.is_set or pruned(after.other) != other:
                continue
            if edited.path in options.locked:
                reasons.append(f"{edited.path} wins over it, and {options.locked[edited.path]}")
                continue
            plan.after = after
            plan.texts = {config.path: config.text for config in candidate}
            return
    reasons.append(_overridden(configs, daemon))
    plan.refuse(
        "containerd.config_path_overridden",
        f"config_path = {wanted!r} in {configs[0].path} does not take effect: {'; '.join(dict.fromkeys(reasons))}",
        f"effective config_path {wanted!r}",
        "set config_path where it takes effect, or remove the table that is in the way",
    )


def _without_legacy(other: dict) -> dict:
    """Return a registry table's values without mirrors and TLS."""
    configs = {
        host: {key: value for key, value in config.items() if key != "tls"} if isinstance(config, dict) else config
        for host, config in other.get("configs", {}).items()
    }
    rest = {key: value for key, value in other.items() if key not in ("mirrors", "configs")}
    return {**rest, "configs": configs}


def _overridden(configs: list[ConfigFile], daemon: Daemon) -> str:
    """Name the imported file that replaces the plugin's whole table without a path of its own."""
    for config in reversed(configs[1:]):
        names = [name for name in config.values.get("plugins", {}) if name in (V1_CRI, GRPC_CRI, IMAGES)]
        if names:
            return f"{config.path} is loaded later and has the whole table of {names[-1]}"
    return f"containerd {'.'.join(map(str, daemon.version))} reads no registry table of it"


def _edit(main: ConfigFile, daemon: Daemon, table: tuple[str, ...], wanted: str) -> ConfigFile:
    text = main.text
    if not main.has_statements:
        # Version 2 is read by every 1.x, 3 by every 2.x.
        version = 2 if daemon.version < (2,) else 3
        text = apply_splices(text, [prepend_version(text, version)])
        table = ("plugins", GRPC_CRI if version == 2 else IMAGES, "registry")
    text = apply_splices(text, set_value(text, table, "config_path", wanted))
    return read_config(main.path, text.encode(), daemon)
