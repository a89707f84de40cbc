# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to change in containerd's files so that the daemon uses the wanted registry directory. No input or output."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..module_utils.finding import BLOCKER, finding
from .containerd_edit import EditError, apply_splices, prepend_version, set_string
from .containerd_effective import GRPC_CRI, IMAGES, V1_CRI, Daemon, Registry, effective_registry, registry_tables
from .containerd_files import ConfigFile, UnreadableError, read_config

DEFAULT_DIRECTORY = "/etc/containerd/certs.d"
REQUIREMENT = "secure-workload/Requirements and Prerequisites"


@dataclass(frozen=True)
class Options:
    """What is wanted. C(registry_config_path) None: keep a path that a file sets, else use DEFAULT_DIRECTORY."""

    registry_config_path: str | None = None


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
    before: Registry | None = None
    after: Registry | None = None

    def refuse(self, finding_id: str, observed: str, expected: str, remedy: str) -> Plan:
        """Add a blocker and drop the writes."""
        self.writes = []
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


def plan_present(files: dict[str, bytes | None], daemon: Daemon, options: Options) -> Plan:
    """Return what sets the registry directory.

    :param files: bytes by path in the order in which the daemon loads them, the main file first; None when absent.
    """
    plan = Plan()
    _refuse_missing_imports(plan, files)
    try:
        configs = [read_config(path, content or b"", daemon) for path, content in files.items()]
    except UnreadableError as error:
        return plan.refuse(error.finding_id, str(error), "a configuration that this containerd accepts", error.remedy)
    plan.before = plan.after = _effective(configs, daemon)
    if _judge(plan, configs, daemon).findings:
        return plan
    wanted = options.registry_config_path or (plan.before.config_path if plan.before.is_set else DEFAULT_DIRECTORY)
    if plan.before.is_set and plan.before.config_path == wanted:
        _warn_of_list(plan)
        return plan
    if _refuse_legacy(plan, daemon).findings:
        return plan
    return _set_directory(plan, configs, daemon, wanted, files[configs[0].path])


def _refuse_missing_imports(plan: Plan, files: dict[str, bytes | None]) -> None:
    main, *imports = files
    for path in imports:
        if files[path] is None:
            plan.refuse(
                "containerd.import_missing",
                f"{path} is imported by {main}, or by a file that it imports, and does not exist",
                "every import without a wildcard to exist, else containerd does not start again",
                f"create {path}, or remove it from imports",
            )


def plan_restore(files: dict[str, bytes | None], daemon: Daemon, content: bytes | None) -> Plan:
    """Return what gives the main file the bytes of an undo record (None: no file) back."""
    plan = Plan()
    path, current = next(iter(files.items()))
    for attribute, main in (("before", current), ("after", content)):
        try:
            contents = {**files, path: main}
            configs = [read_config(name, data or b"", daemon) for name, data in contents.items()]
            setattr(plan, attribute, _effective(configs, daemon))
        except UnreadableError as error:
            plan.warnings.append(str(error))
    if current != content:
        plan.writes = [Write(path, current, content)]
    return plan


def _effective(configs: list[ConfigFile], daemon: Daemon) -> Registry:
    return effective_registry([(config.path, config.values) for config in configs], daemon)


def _judge(plan: Plan, configs: list[ConfigFile], daemon: Daemon) -> Plan:
    """Refuse files that this daemon does not start with, or that switch CRI off."""
    newest = daemon.newest_config_version
    main_version = configs[0].values.get("version", 0)
    version_text = ".".join(map(str, daemon.version))
    for config in configs:
        version = config.values.get("version", 0)
        if version > newest:
            plan.refuse(
                "containerd.config_version",
                f"{config.place('version')}: version = {version}",
                f"version = {newest} or older for containerd {version_text}",
                f"write the file for version {newest}, or run a containerd that reads version {version}",
            )
        elif daemon.migrates_each_file and main_version and version > main_version:
            plan.refuse(
                "containerd.import_version",
                f"{config.place('version')}: version = {version}, above the main file's {main_version}",
                "no imported file newer than the main one: containerd 2.3 and later refuse to start",
                f"set version = {version} in {configs[0].path} after migrating its tables",
            )
        for plugin in config.values.get("disabled_plugins", []):
            if plugin in (V1_CRI, GRPC_CRI, IMAGES):
                plan.refuse(
                    "containerd.cri_disabled",
                    f"{config.place('disabled_plugins')}: {plugin!r} in disabled_plugins",
                    "the CRI plugin enabled, since kubelet needs it and registry settings are its own",
                    f"remove {plugin!r} from disabled_plugins and restart containerd",
                )
    return plan


def _refuse_legacy(plan: Plan, daemon: Daemon) -> Plan:
    """Refuse to set config_path beside settings that take CRI down together with it."""
    tables = [("mirrors", plan.before.mirrors)]
    if daemon.refuses_tls_beside_config_path:
        tables.append(("configs.*.tls", plan.before.tls))
    present = [
        f"registry.{kind} for {name} in {path}" for kind, names in tables for name, path in sorted(names.items())
    ]
    if present:
        plan.refuse(
            "containerd.mirrors_present",
            "; ".join(present),
            "none of them: together with config_path CRI does not load, while the daemon stays up",
            "write each as hosts.toml below the registry directory, then remove it from the configuration",
        )
    return plan


def _warn_of_list(plan: Plan) -> None:
    if ":" in plan.before.config_path:
        plan.warnings.append(
            f"{plan.before.config_path_file or 'containerd'} sets config_path to the list "
            f"{plan.before.config_path!r}; pulls through the transfer service (default from containerd 2.1) take it as "
            "one directory and ignore every hosts.toml. Set registry_config_path to one directory"
        )


def _set_directory(plan: Plan, configs: list[ConfigFile], daemon: Daemon, wanted: str, content: bytes | None) -> Plan:
    """Try each table that the daemon may read until one makes the wanted path effective and changes nothing else."""
    reasons = []
    for table in registry_tables(configs[0].values, daemon):
        try:
            edited = _edit(configs[0], daemon, table, wanted)
        except EditError as error:
            reasons.append(str(error))
            continue
        after = _effective([edited, *configs[1:]], daemon)
        if after.config_path == wanted and after.other == plan.before.other:
            plan.writes = [Write(edited.path, content, edited.text.encode())]
            plan.after = after
            return plan
        if after.config_path_file not in ("", edited.path):
            reasons.append(f"{after.config_path_file} is loaded later and sets {after.config_path!r}")
    if not reasons:
        reasons.append(_overridden(configs, daemon))
    return plan.refuse(
        "containerd.config_path_overridden",
        f"config_path = {wanted!r} in {configs[0].path} does not take effect: {'; '.join(dict.fromkeys(reasons))}",
        f"effective config_path {wanted!r}",
        "set config_path in that file, or remove its registry table",
    )


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
    text = apply_splices(text, set_string(text, table, "config_path", wanted))
    return read_config(main.path, text.encode(), daemon)
