# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to change in containerd's files so that the daemon uses the wanted registry directory. No input or output."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..module_utils.finding import BLOCKER, finding
from ..module_utils.registry_names import DEFAULT_DIRECTORY
from .containerd_edit import EditError, apply_splices, prepend_version, pruned, set_value
from .containerd_effective import GRPC_CRI, IMAGES, V1_CRI, Daemon, Registry, effective_registry, registry_tables
from .containerd_files import ConfigFile, UnreadableError, Write, read_config
from .containerd_hosts_option import Entry
from .containerd_hosts_plan import plan_hosts
from .containerd_judge import judge_configs, judge_imports
from .containerd_migrate import Converted, HostsDirectory, RegistryDirectory, is_list, migrate
from .containerd_nri import UNCHANGED, nri_state, plan_nri
from .containerd_settings import Setting, apply_settings

REQUIREMENT = "secure-workload/Requirements and Prerequisites"


@dataclass(frozen=True)
class Options:
    """What is wanted. C(registry_config_path) None: keep a path that a file sets, else use DEFAULT_DIRECTORY.

    nri: C(enabled), C(disabled) or C(unchanged). nri_required_plugins: also its default validator on.

    locked: imported files that another program writes, with what to do instead.
    """

    registry_config_path: str | None = None
    convert_mirrors: bool = True
    locked: Mapping[str, str] = field(default_factory=dict)
    settings: Sequence[Setting] = ()
    nri: str = UNCHANGED
    nri_required_plugins: bool = False
    hosts: Sequence[Entry] = ()


@dataclass
class Plan:
    """C(before) and C(after) are what the daemon uses then; None when the files cannot be read.

    nri_before, nri_after: the same of NRI. more_changes: something else than the registry does, as the daemon sees it.
    hosts: what became of the option hosts. migrated: what mirrors become, by registry. remove_directories: those that
    a hosts.toml which goes was made with.
    rendered: files that an owner makes of the writes; they are tried, not written.
    """

    writes: list[Write] = field(default_factory=list)
    rendered: list[Write] = field(default_factory=list)
    findings: list[dict] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    converted: list[dict] = field(default_factory=list)
    hosts: list[dict] = field(default_factory=list)
    migrated: dict[str, Converted] = field(default_factory=dict)
    remove_directories: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    before: Registry | None = None
    after: Registry | None = None
    nri_before: dict | None = None
    nri_after: dict | None = None
    more_changes: bool = False

    def stay(self) -> None:
        """Drop the writes, and with them what would be different afterwards."""
        self.writes, self.rendered, self.converted, self.more_changes = [], [], [], False
        self.hosts, self.remove_directories = [], []
        self.after, self.nri_after = self.before, self.nri_before

    def refuse(self, finding_id: str, observed: str, expected: str, remedy: str) -> Plan:
        """Add a blocker and drop the writes."""
        self.stay()
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


def check_directory(path: object) -> str:
    """Return why a registry directory cannot be used, empty when it can."""
    if isinstance(path, str) and is_list(path):
        return (
            f"registry_config_path must be one directory, got the list {path!r}: containerd 2.1 and later pull through "
            "the transfer service, which takes the whole list as one directory name and ignores every hosts.toml"
        )
    if not isinstance(path, str) or not re.fullmatch(r"/+[^/\x00-\x1f\x7f][^\x00-\x1f\x7f]*", path):
        return f"registry_config_path must be an absolute path, such as {DEFAULT_DIRECTORY}, got {path!r}"
    return ""


def plan_present(
    files: Mapping[str, bytes | None],
    daemon: Daemon,
    options: Options,
    hosts: Mapping[str, Mapping[str, HostsDirectory]] | None = None,
    *,
    present: frozenset[str] = frozenset(),
) -> Plan:
    """Return what sets the registry directory, with mirrors and registry TLS converted, NRI, settings and hosts.

    :param files: bytes by path in the order in which the daemon loads them, the main file first; None when absent.
    :param hosts: what is below registry directories already, by directory and name.
    :param present: those of the certificates and keys that the option hosts names which are files on the node.
    """
    plan = Plan()
    for refusal in judge_imports(files):
        plan.refuse(*refusal)
    try:
        configs = [read_config(path, content or b"", daemon) for path, content in files.items()]
    except UnreadableError as error:
        expected = "a configuration in TOML 1.0 that this containerd accepts"
        return plan.refuse(error.finding_id, str(error), expected, error.remedy)
    _warn_of_templates(plan, configs)
    plan.before = plan.after = _effective(configs, daemon)
    for refusal in judge_configs(configs, plan.before, daemon):
        plan.refuse(*refusal)
    try:
        plan.nri_before = plan.nri_after = nri_state(configs, daemon)
        if not plan.findings:
            configs = _plan_registry(plan, configs, daemon, options, hosts or {})
        if not plan.findings:
            _plan_settings(plan, configs, daemon, options)
        if not plan.findings:
            _plan_hosts(plan, daemon, options, hosts or {}, present)
    except EditError as error:
        plan.refuse(
            "containerd.edit_unsafe",
            f"{configs[0].path}: {error}",
            "a spelling that can be edited without touching anything else",
            "write the tables as [table] headers of their own",
        )
    return _with_config_writes(plan, files)


def _plan_registry(
    plan: Plan,
    configs: list[ConfigFile],
    daemon: Daemon,
    options: Options,
    hosts: Mapping[str, Mapping[str, HostsDirectory]],
) -> list[ConfigFile]:
    """Return the files with the registry directory set, and without mirrors and registry TLS.

    :raises EditError: they cannot be edited in place.
    """
    wanted = options.registry_config_path or (plan.before.config_path if plan.before.is_set else DEFAULT_DIRECTORY)
    is_wanted = plan.before.is_set and plan.before.config_path == wanted
    if is_wanted and not _legacy(plan.before, daemon):
        _warn_of_list(plan)
        return configs
    _warn_of_missing_version(plan, configs[0], daemon)
    edited = _migrated(plan, configs, daemon, options, RegistryDirectory(wanted, hosts.get(wanted, {})))
    return (
        edited
        if plan.findings
        else _set_directory(plan, edited, daemon, options, wanted, is_migrated=edited != configs)
    )


def _plan_settings(plan: Plan, configs: list[ConfigFile], daemon: Daemon, options: Options) -> None:
    """Add the settings and NRI to the plan; the registry directory must stay what it is by then.

    :raises EditError: they take the registry directory away, or bring mirrors.
    """
    edited, reasons = apply_settings(configs, daemon, options.settings)
    settings, more_reasons = plan_nri(edited, daemon, options.nri, options.nri_required_plugins)
    if not reasons + more_reasons:
        edited, reasons = apply_settings(edited, daemon, settings)
    if edited == configs and not reasons + more_reasons:
        return
    after = _effective(edited, daemon)
    for refusal in [*reasons, *more_reasons, *judge_configs(edited, after, daemon)]:
        plan.refuse(*refusal)
    if plan.findings:
        return
    if (after.config_path, after.mirrors, after.tls) != (plan.after.config_path, plan.after.mirrors, plan.after.tls):
        raise EditError("the settings change the registry directory that the daemon uses")
    plan.after, plan.more_changes, plan.nri_after = after, True, nri_state(edited, daemon)
    plan.texts = {config.path: config.text for config in edited}


def _plan_hosts(
    plan: Plan,
    daemon: Daemon,
    options: Options,
    hosts: Mapping[str, Mapping[str, HostsDirectory]],
    present: frozenset[str],
) -> None:
    """Add the hosts.toml files of the option to the plan, below the directory that will be effective."""
    if not options.hosts:
        return
    path = plan.after.config_path
    placed = plan_hosts(options.hosts, RegistryDirectory(path, hosts.get(path, {})), daemon, plan.migrated, present)
    for problem in placed.problems:
        plan.refuse(*problem)
    if not placed.problems:
        plan.writes += placed.writes
        plan.warnings += placed.notes
        plan.hosts, plan.remove_directories = placed.results, placed.remove_directories


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
    if directory.fault:
        names = legacy or [f"registry.configs.*.tls for {name} in {path}" for name, path in plan.before.tls.items()]
        plan.refuse(
            "containerd.mirrors_present",
            f"{'; '.join(names)}, and config_path is {directory.fault}",
            "one directory that the hosts.toml files can be written to",
            "set registry_config_path to one directory",
        )
        return configs
    migration = migrate(configs, daemon, plan.before, directory, {entry.registry for entry in options.hosts})
    for finding_id, observed, remedy in migration.problems:
        plan.refuse(finding_id, observed, "mirrors and registry TLS that hosts.toml can say", remedy)
    if plan.findings:
        return configs
    plan.warnings += migration.notes
    plan.converted, plan.migrated = migration.converted, migration.placed
    plan.writes = migration.writes
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
    values = []
    for attribute, side in (("before", files), ("after", contents)):
        try:
            configs = [read_config(path, content or b"", daemon) for path, content in side.items()]
            setattr(plan, attribute, _effective(configs, daemon))
            setattr(plan, f"nri_{attribute}", nri_state(configs, daemon))
        except (UnreadableError, EditError) as error:
            plan.warnings.append(str(error))
        else:
            values.append([pruned(config.values) for config in configs])
    plan.more_changes = len(values) == 2 and values[0] != values[1]
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


def _warn_of_templates(plan: Plan, configs: list[ConfigFile]) -> None:
    """Name template expressions inside strings: the file can be read and edited, and may still be no real one."""
    plan.warnings += [
        f"{place} begins a template expression that nobody rendered; containerd takes it as it stands"
        for place in map(ConfigFile.find_template, configs)
        if place
    ]


def _warn_of_list(plan: Plan) -> None:
    if is_list(plan.before.config_path):
        plan.warnings.append(
            f"{plan.before.config_path_file or 'containerd'} sets config_path to the list "
            f"{plan.before.config_path!r}; pulls through the transfer service (default from containerd 2.1) take it as "
            "one directory and ignore every hosts.toml. Set registry_config_path to one directory"
        )


def _set_directory(
    plan: Plan, configs: list[ConfigFile], daemon: Daemon, options: Options, wanted: str, *, is_migrated: bool
) -> list[ConfigFile]:
    """Try each table that the daemon may read until one makes the wanted path effective and changes nothing else.

    The main file comes first; an imported file only where it wins over the main one.

    :param is_migrated: mirrors and registry TLS were taken out.
    """
    other = pruned(_effective(configs, daemon).other)
    if other != pruned(_without_legacy(plan.before.other) if is_migrated else plan.before.other):
        raise EditError("taking out mirrors and registry TLS would change what else the daemon uses")
    reasons = []
    # An empty import would get a version, which decides for other files too.
    for at in [0, *(at for at in range(len(configs) - 1, 0, -1) if configs[at].has_statements)]:
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
            if any(judge_configs(candidate, after, daemon)):
                continue
            if edited.path in options.locked:
                reasons.append(f"{edited.path} wins over it, and {options.locked[edited.path]}")
                continue
            plan.after = after
            plan.texts = {config.path: config.text for config in candidate}
            return candidate
    reasons.append(_overridden(configs, daemon))
    plan.refuse(
        "containerd.config_path_overridden",
        f"config_path = {wanted!r} in {configs[0].path} does not take effect: {'; '.join(dict.fromkeys(reasons))}",
        f"effective config_path {wanted!r}",
        "set config_path where it takes effect, or remove the table that is in the way",
    )
    return configs


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
