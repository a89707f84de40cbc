# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One task of containerd_config on one node: from what was read to the plan, and to the result in documented keys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

from ansible.module_utils.common.validation import check_type_int, check_type_list
from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils.files import decoded, encoded, sha256
from ..module_utils.image_reference import parse_reference
from ..module_utils.registry_names import FILE_NAME
from .containerd_effective import parse_version
from .containerd_files import Write
from .containerd_gate import PODS, check_accepted, judge_change
from .containerd_hosts_option import parse_hosts, question
from .containerd_migrate import HostsDirectory
from .containerd_nri import UNCHANGED, check_nri
from .containerd_owners import find_locked, find_owner, owned_registry_directories
from .containerd_plan import Options, Plan, check_directory, plan_present, plan_restore
from .containerd_rancher import find_yaml_secrets, without_yaml_secrets
from .containerd_secrets import find_secrets, mask, without_secrets
from .containerd_settings import parse_settings
from .containerd_sources import find_source, plan_source
from .containerd_units import restart_cautions

# Conditions of the CRI status that must hold after a restart when they held before.
PROVEN_CONDITIONS = ("RuntimeReady", "NetworkReady")
# Options that may hold credentials and that only this half reads: a node that got them would tell them at -vvv.
_KEPT_HERE = ("hosts", "settings")
_PATH = re.compile(r"/[^\x00-\x1f\x7f]+")


def check_arguments(arguments: dict) -> str:
    """Return why a task can never work, empty when it may; nothing was asked of the node yet."""
    directory, file = arguments.get("registry_config_path"), arguments.get("config_file")
    if directory not in (None, "") and (reason := check_directory(directory)):
        return reason
    if file not in (None, "") and not (isinstance(file, str) and _PATH.fullmatch(file)):
        return f"config_file must be an absolute path on the node, such as /etc/containerd/config.toml, got {file!r}"
    try:
        check_images(arguments.get("images"))
        accepted = _converted("accept_restart_of", check_type_list, arguments.get("accept_restart_of") or [])
        if reason := check_accepted(accepted):
            return reason
        if (timeout_s := _converted("health_timeout", check_type_int, arguments.get("health_timeout", 60))) < 1:
            return f"health_timeout must be seconds from 1, got {timeout_s}"
        settings = parse_settings(arguments.get("settings"))
        parse_hosts(arguments.get("hosts"))
        required = _converted("nri_required_plugins", boolean, arguments.get("nri_required_plugins", False))
        _converted("allow_owner_source", boolean, arguments.get("allow_owner_source", False))
    except (ValueError, TypeError) as error:
        return str(error)
    return check_nri(arguments.get("nri", UNCHANGED), required, settings)


def _converted(name: str, convert: Callable, value: object):
    """Return a value as the module's own check will have it.

    :raises ValueError: it cannot be that; the text names the option.
    """
    try:
        return convert(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from None


def node_arguments(arguments: dict) -> dict:
    """Return what the node half gets of a task's arguments, with its question about the registries."""
    rest = {key: value for key, value in arguments.items() if key not in _KEPT_HERE}
    return {**rest, "_registries": json.dumps(question(parse_hosts(arguments.get("hosts"))))}


def check_images(items: object) -> None:
    """Raise ValueError for a name that is none; what is no list of named items is left to the module's own check."""
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and isinstance(item.get("name"), str):
            parse_reference(item["name"])


class ConfigTask:
    """One run on one node: what was read, the plan, and the result in the documented keys."""

    def __init__(self, arguments: dict, facts: dict, host: str):
        self.facts = facts
        self.host = host
        self.restart_allowed = arguments.get("restart", "auto") == "auto"
        self.accepted = check_type_list(arguments.get("accept_restart_of") or [])
        self.validate = arguments.get("validate", "daemon")
        self.health_timeout = check_type_int(arguments.get("health_timeout", 60))
        self.state = arguments.get("state", "present")
        self.files = {item["path"]: decoded(item["content"]) for item in facts["files"]}
        self.daemon = parse_version(facts["version"])
        options = Options(
            registry_config_path=arguments.get("registry_config_path"),
            convert_mirrors=boolean(arguments.get("convert_mirrors", True)),
            locked=find_locked(dict(list(self.files.items())[1:])),
            settings=parse_settings(arguments.get("settings")),
            nri=arguments.get("nri", UNCHANGED),
            nri_required_plugins=boolean(arguments.get("nri_required_plugins", False)),
            hosts=parse_hosts(arguments.get("hosts")),
        )
        self.registries = _registries(facts["hosts"])
        self.owner = find_owner(
            facts["config_file"],
            (self.files[facts["config_file"]] or b"").decode("utf-8", "replace"),
            facts["os"],
            facts["marks"],
            facts["files"][0]["real_path"],
        )
        self.source = None
        if boolean(arguments.get("allow_owner_source", False)):
            self._use_source({item["path"]: decoded(item["content"]) for item in facts["sources"]})
        self.plan = self._plan(options) if self.daemon else Plan()
        self._keep_off_registry_directories()
        self.secrets = set().union(*(find_secrets(content) for content in self._contents()))
        sources = [decoded(item["content"]) for item in facts["sources"]]
        self.secrets |= set().union(*map(find_yaml_secrets, [*sources, *self._written()]))
        if not self.daemon:
            self.plan.refuse(
                "containerd.version_unknown",
                f"containerd said {facts['version']!r} when asked for its version",
                "a version such as 1.7.24, since each line reads other tables",
                f"check that {facts['binary'] or 'containerd'} --version answers",
            )
        elif self.plan.writes or self.restart_is_due:
            self._gate()

    def _use_source(self, sources: dict[str, bytes | None]) -> None:
        """Let the owner's source be edited, where it has one."""
        self.source = find_source(self.owner.name, self.files, sources)
        if self.source:
            caution = f"it makes the file of {self.source.path} when {self.facts['unit_name']} starts"
            self.owner = replace(self.owner, remedy="", caution=caution)

    def _keep_off_registry_directories(self) -> None:
        """Refuse to write below a registry directory that a program clears."""
        for directory, name, remedy in owned_registry_directories(self.facts["marks"]):
            if any(write.path.startswith(f"{directory}/") for write in self.plan.writes):
                self.plan.refuse(
                    "containerd.hosts_owned",
                    f"{directory} belongs to {name}, which clears it whenever it starts",
                    "a registry directory whose files stay",
                    remedy,
                )

    def _plan(self, options: Options) -> Plan:
        if self.state == "present":
            present = frozenset(self.facts["present"])
            if self.source:
                return plan_source(self.source, self.files, self.daemon, options, self.registries, present=present)
            return plan_present(self.files, self.daemon, options, self.registries, present=present)
        undo = self.facts["undo"] or {"files": []}
        if changed := [item["path"] for item in undo["files"] if not item["matches"]]:
            return Plan().refuse(
                "containerd.changed_since",
                f"{', '.join(changed)} was changed by somebody else after the last journal entry",
                "the file as this module left it, so that the original bytes can be given back",
                "take the setting out by hand; the journal on the node has every previous content",
            )
        restored = {
            item["path"]: Write(item["path"], decoded(item["current"]), decoded(item["content"]))
            for item in undo["files"]
        }
        real = {item["path"]: item["real_path"] for item in self.facts["files"]}
        plan = plan_restore({real[path]: content for path, content in self.files.items()}, self.daemon, restored)
        # The generated file is as it was until the owner makes it anew.
        sources = {item["real_path"] for item in self.facts["sources"]}
        plan.more_changes = plan.more_changes or any(write.path in sources for write in plan.writes)
        return plan

    def _contents(self) -> list[bytes | None]:
        there = [item for names in self.registries.values() for item in names.values()]
        return [
            *self.files.values(),
            *self._written(),
            *(item.content for item in there),
            *(item.former for item in there),
        ]

    def _written(self) -> list[bytes | None]:
        return [content for write in self.plan.writes for content in (write.before, write.after)]

    @property
    def will_restart(self) -> bool:
        """A restart is needed when what the daemon uses changes; an unreadable side counts as a change."""
        return self.restart_allowed and (self._needs_restart if self.plan.writes else self.restart_is_due)

    @property
    def _needs_restart(self) -> bool:
        return self.plan.before is None or self.plan.before != self.plan.after or self.plan.more_changes

    @property
    def restart_is_due(self) -> bool:
        """The files are as wanted, and the daemon runs with others since its last start."""
        if self.plan.writes or self.plan.findings or not self.restart_allowed or not self.facts["cri"]["serving"]:
            return False
        return self.facts["restart_due"] or (self.state == "present" and self._loads_other_directory)

    @property
    def _loads_other_directory(self) -> bool:
        loaded = self.facts["cri"]["loaded_config_path"]
        return bool(self.plan.after) and loaded not in (None, self.plan.after.config_path)

    @property
    def validation(self) -> str:
        """How the daemon tries what is written; hosts.toml files are none of its configuration."""
        is_concerned = self.will_restart or any(not write.path.endswith(f"/{FILE_NAME}") for write in self.plan.writes)
        return self.validate if is_concerned else "none"

    @property
    def needs_second_trip(self) -> bool:
        return bool(self.plan.writes or self.will_restart or self.facts["unfinished"])

    def _gate(self) -> None:
        findings = judge_change(
            self.facts,
            self.daemon,
            self.owner,
            self.will_restart,
            accepted=self.accepted,
            will_be_tried=self.validation == "daemon",
        )
        if findings:
            self.plan.stay()
            self.plan.findings += findings

    def prediction(self) -> dict:
        """Return the result as far as it is known before anything is written."""
        plan, facts = self.plan, self.facts
        result = {
            "changed": bool(plan.writes) or self.will_restart,
            "config_file": facts["config_file"],
            "owner": self.owner.name,
            "imports": [item["path"] for item in facts["files"][1:] if item["sha256"]],
            "findings": [{**item, "node": self.host} for item in plan.findings],
            "restarted": self.will_restart,
            "cri_ready": facts["cri"]["serving"],
            "images": facts["images"],
            "rolled_back": False,
        }
        if self.source:
            result["owner_source"] = self.source.path
        if plan.after:
            result["config_version"] = plan.after.version
            result["effective_config_path"] = plan.after.config_path
        if plan.nri_after:
            result["nri"] = plan.nri_after
        warnings = self._warnings()
        if warnings:
            result["warnings"] = warnings
        if plan.converted:
            result["converted"] = plan.converted
        if plan.hosts:
            result["hosts"] = plan.hosts
        if plan.writes:
            result["diff"] = [self._diff(write) for write in plan.writes]
        if plan.findings:
            result["failed"] = True
            result["msg"] = " | ".join(
                f"{item['id']}: {item['observed']}; expected {item['expected']}; {item['remedy']}"
                for item in result["findings"]
            )
        return self._masked(result)

    def _warnings(self) -> list[str]:
        warnings = list(self.plan.warnings)
        if self.owner.caution and self.plan.writes:
            warnings.append(f"{self.owner.name}: {self.owner.evidence}; {self.owner.caution}")
        if self.facts["config_file"] != self.facts["daemon_config"]:
            warnings.append(
                f"the running daemon reads {self.facts['daemon_config']}, not the given {self.facts['config_file']}"
            )
        if self.plan.writes and self._needs_restart and not self.restart_allowed:
            warnings.append("restart=never: the change takes effect, unproven, when containerd is started again")
        if not self.plan.writes and not self.will_restart and self._loads_other_directory:
            warnings.append(
                f"the file says config_path = {self.plan.after.config_path!r}, but the daemon runs with "
                f"{self.facts['cri']['loaded_config_path']!r} since its last start: restart it"
            )
        if self.will_restart:
            warnings += restart_cautions(self.facts["unit_name"], self.facts["unit"])
        if self.facts["unfinished"]:
            warnings.append(f"a run was killed here before: {', '.join(self.facts['unfinished'])}")
        return warnings

    def _diff(self, write) -> dict:
        hidden = without_yaml_secrets if write.path.endswith(".yaml") else without_secrets
        before, after = (hidden((content or b"").decode("utf-8", "replace")) for content in (write.before, write.after))
        return {"before_header": write.path, "after_header": write.path, "before": before, "after": after}

    def node_plan(self) -> dict:
        """Return what the node half writes and proves."""
        undo = self.facts.get("undo") or {"directories": []}
        return {
            "writes": [
                {
                    "path": write.path,
                    "expected_sha256": _digest(write.before),
                    "content": encoded(write.after),
                    "mode": write.mode,
                }
                for write in self.plan.writes
            ],
            "rendered": [{"path": write.path, "content": encoded(write.after)} for write in self.plan.rendered],
            "note": {
                "unit": self.facts["unit_name"],
                "socket": self.facts["socket"],
                "restart": self.will_restart,
                "health_timeout": self.health_timeout,
                "config_path": self.plan.after.config_path if self.plan.after else None,
                # Others, such as ContainerdHasNoDeprecationWarnings, may change with any restart.
                "conditions": [name for name in self.facts["cri"]["conditions"] if name in PROVEN_CONDITIONS],
                "restart_needed": self._needs_restart,
                "dependents": self.facts["dependents"],
                "pods_may_end": PODS in self.accepted,
                "repairs": "" if self.facts["cri"]["serving"] else self.facts["cri"]["error"],
                "undo": self.state == "absent",
                "config_file": self.facts["config_file"],
                "remove_directories": undo["directories"] + self.plan.remove_directories,
            },
        }

    def outcome(self, predicted: dict, written: dict) -> dict:
        """Merge what the node did into what was predicted."""
        result = {**predicted, **written}
        if result["cri_ready"] is None:
            result["cri_ready"] = predicted["cri_ready"]
        if reason := result.pop("not_validated", None):
            result["warnings"] = [*predicted.get("warnings", []), reason]
        if not written.get("recovered"):
            result.pop("recovered", None)
        if not written.get("backup"):
            result.pop("backup", None)
        if written.get("failed"):
            if not written.get("changed"):
                result.pop("diff", None)
                result.pop("converted", None)
                result.pop("hosts", None)
                result["changed"] = False
                result["restarted"] = bool(written.get("restarted"))
            if self.plan.before and not written.get("changed"):
                result["effective_config_path"] = self.plan.before.config_path
            if self.plan.nri_before and not written.get("changed"):
                result["nri"] = self.plan.nri_before
        return self._masked(result)

    def _masked(self, value):
        if isinstance(value, str):
            return mask(value, self.secrets)
        if isinstance(value, dict):
            return {key: self._masked(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._masked(item) for item in value]
        return value


def _registries(facts: dict) -> dict[str, dict[str, HostsDirectory]]:
    return {path: {name: _registry(item) for name, item in there.items()} for path, there in facts.items()}


def _registry(item: dict) -> HostsDirectory:
    return HostsDirectory(
        tuple(item["names"]), decoded(item["content"]), item["origin"], decoded(item["former"]), tuple(item["made"])
    )


def _digest(content: bytes | None) -> str:
    return "" if content is None else sha256(content)
