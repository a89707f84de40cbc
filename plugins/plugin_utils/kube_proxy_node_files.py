# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change of kube-proxy on one node that keeps its flags in files: k3s, RKE2, MicroK8s."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping

from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_edit import EditError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_files import (
    KEY,
    edit_argument_file,
    edit_files,
    flags_of,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_options import parse_flags
from ansible_collections.portcullis.fleet.plugins.plugin_utils.rollout import RolloutError

# A service that runs all of Kubernetes takes longer than a pod.
TIMEOUT_FACTOR = 3


def planned(found: Mapping, config: Mapping) -> dict[str, str]:
    """The files that change, by path, with their new text.

    :param found: what kube_proxy_file read.
    :raises RolloutError: they cannot be changed, or it would have no effect.
    """
    if not found["unit"]:
        raise RolloutError("no service that reads these files is active here: start k3s, RKE2 or MicroK8s first")
    try:
        flags = flags_of(config)
        told = sorted(flags.keys() & parse_flags(found["command_line"]).keys())
        if told:
            raise RolloutError(
                f"{', '.join(told)}: set by --{KEY} on the command line of {found['unit']}: take it out there, and "
                "run systemctl daemon-reload"
            )
        texts = {item["path"]: base64.b64decode(item["content"]).decode() for item in found["files"]}
        if next(iter(texts)).endswith(".yaml"):
            return edit_files(texts, flags)
        changed = {path: edit_argument_file(text, flags) for path, text in texts.items()}
        return {path: text for path, text in changed.items() if text != texts[path]}
    except EditError as error:
        raise RolloutError(f"{found['files'][0]['path']}: {error}") from error
    except UnicodeDecodeError as error:
        raise RolloutError(f"{found['files'][0]['path']} is no UTF-8: {error}") from error


def change_files(
    ask: Callable[[dict], dict], path: str, config: Mapping, before: Mapping, proof: Mapping, *, check_mode: bool
) -> dict:
    """Change the files of a node, proven by the live mode.

    :param ask: runs kube_proxy_file on the node with these options. :param before: what kube_proxy_node read there.
    :param proof: C({metrics_address, address, port, timeout_s}).
    :returns: C({changed, mode_before, mode, removed, left, diff}).
    """
    found = ask({"step": "read", "path": path})
    texts = {item["path"]: base64.b64decode(item["content"]).decode("utf-8", "replace") for item in found["files"]}
    edited = planned(found, config)
    wanted = config.get("mode") or before["proxy_mode"] or "iptables"
    result = {"mode_before": before["proxy_mode"], "mode": wanted, "removed": [], "left": []}
    if not edited:
        if config.get("mode") and before["proxy_mode"] not in ("", wanted):
            raise RolloutError(
                f"{path} has mode {wanted} and kube-proxy runs {before['proxy_mode']}: restart {found['unit']}"
            )
        return {**result, "changed": False}
    diff = [
        {"before": texts[name], "after": text, "before_header": name, "after_header": name}
        for name, text in edited.items()
    ]
    if check_mode:
        return {**result, "changed": True, "diff": diff}
    digests = {item["path"]: item["sha256"] for item in found["files"]}
    writes = [
        {"path": name, "content": base64.b64encode(text.encode()).decode(), "expected_sha256": digests[name]}
        for name, text in edited.items()
    ]
    proven = {**proof, "mode": wanted, "mode_before": before["proxy_mode"]}
    proven["timeout_s"] = proof["timeout_s"] * TIMEOUT_FACTOR
    plan = {"writes": writes, "proof": proven}
    written = ask({"step": "write", "path": path, "plan": json.dumps(plan)})
    return {**result, "removed": written["removed"], "left": written["left"], "changed": True, "diff": diff}
