# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change of kube-proxy on one node that keeps its flags in files: k3s, RKE2, MicroK8s."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_edit import EditError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_files import (
    KEY,
    argument_file_flags,
    edit_argument_file,
    edit_files,
    flags_in_force,
    flags_of,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_options import DEFAULT_MODE, parse_flags
from ansible_collections.portcullis.fleet.plugins.plugin_utils.rollout import RolloutError

# A service that runs all of Kubernetes takes longer than a pod.
TIMEOUT_FACTOR = 3


class Plan(NamedTuple):
    """What changes. files: new texts by path. old: the texts. before, after: all flags that kube-proxy is given."""

    files: dict[str, str]
    old: dict[str, str]
    before: dict[str, str]
    after: dict[str, str]


def planned(path: str, found: Mapping, config: Mapping) -> Plan:
    """Plan a change of the files of a node.

    :param path: the file that was asked for; a link may lead to another name. :param found: what kube_proxy_file read.
    :raises RolloutError: they cannot be changed, or it would have no effect.
    """
    if not found["unit"]:
        raise RolloutError("no service that reads these files is active here: start k3s, RKE2 or MicroK8s first")
    if found["other_file"]:
        raise RolloutError(f"{found['unit']} is told to read {found['other_file']}, not {path}: set {KEY} there")
    of_unit = parse_flags(f"--{word.lstrip('-')}" for word in found["command_line"])
    old = {}
    try:
        for item in found["files"]:
            old[item["path"]] = base64.b64decode(item["content"]).decode()
        before = {**_flags(path, old), **of_unit}
        flags = flags_of(config, before)
        told = sorted(flags.keys() & of_unit.keys())
        if told:
            raise RolloutError(
                f"{', '.join(told)}: set by --{KEY} on the command line of {found['unit']}: take it out there, and "
                "run systemctl daemon-reload"
            )
        if "config" in before:
            raise RolloutError(f"kube-proxy is given --config={before['config']}, beside which flags have no effect")
        if path.endswith(".yaml"):
            changed = edit_files(old, flags)
        else:
            edited = {name: edit_argument_file(text, flags) for name, text in old.items()}
            changed = {name: text for name, text in edited.items() if text != old[name]}
        return Plan(changed, old, before, {**_flags(path, {**old, **changed}), **of_unit})
    except EditError as error:
        raise RolloutError(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        raise RolloutError(f"{path}, or a file beside it, is no UTF-8: {error}") from error


def _flags(path: str, texts: Mapping[str, str]) -> dict[str, str]:
    return flags_in_force(texts) if path.endswith(".yaml") else argument_file_flags("\n".join(texts.values()))


def change_files(
    ask: Callable[[dict], dict], path: str, config: Mapping, before: Mapping, proof: Mapping, *, check_mode: bool
) -> dict:
    """Change the files of a node, proven by the live mode; what a killed run has left there is ended first.

    :param ask: runs kube_proxy_file on the node with these options. :param before: what kube_proxy_node read there.
    :param proof: C({metrics_address, address, port, timeout_s}).
    :returns: C({changed, mode_before, mode, removed, left, diff}).
    """
    found, live = ask({"step": "read", "path": path}), before["proxy_mode"]
    recovered = found["unfinished"]
    if recovered and not check_mode:
        ask({"step": "recover", "path": path})
        found, live = ask({"step": "read", "path": path}), ""
    plan = planned(path, found, config)
    wanted = plan.after.get("proxy-mode") or DEFAULT_MODE
    former = live or plan.before.get("proxy-mode") or DEFAULT_MODE
    result = {"mode_before": former, "mode": wanted, "removed": [], "left": []}
    if not plan.files:
        if config.get("mode") and former != wanted and not recovered:
            raise RolloutError(f"{path} has mode {wanted} and kube-proxy runs {former}: restart {found['unit']}")
        return {**result, "changed": recovered}
    diff = [
        {"before": plan.old[name], "after": text, "before_header": name, "after_header": name}
        for name, text in plan.files.items()
    ]
    if check_mode:
        return {**result, "changed": True, "diff": diff}
    digests = {item["path"]: item["sha256"] for item in found["files"]}
    writes = [
        {"path": name, "content": base64.b64encode(text.encode()).decode(), "expected_sha256": digests[name]}
        for name, text in plan.files.items()
    ]
    was, now = (
        {"mode": mode, "metrics_address": flags.get("metrics-bind-address") or proof["metrics_address"]}
        for mode, flags in ((former, plan.before), (wanted, plan.after))
    )
    proven = {**proof, **now, "before": was, "must_answer": before["answers"]}
    proven["timeout_s"] = proof["timeout_s"] * TIMEOUT_FACTOR
    written = ask({"step": "write", "path": path, "plan": json.dumps({"writes": writes, "proof": proven})})
    return {**result, "removed": written["removed"], "left": written["left"], "changed": True, "diff": diff}
