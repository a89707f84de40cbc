# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubewarden's policies that will refuse the agent in a namespace that is not there yet.

In one that is there a dry run tells. Of the policies the modules of Kubewarden's own recommended set are known, with
their settings. Source: kubewarden/{host-namespaces-psp,hostpaths-psp,capabilities-psp,user-group-psp,pod-privileged}
-policy, README of each.
"""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import WARNING, finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils.agent_pod import CAPABILITIES, host_path
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import Reader, Resource
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_webhooks import asked_about
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_list, as_mapping, name_of

POLICIES = Resource("policies.kubewarden.io", "v1", "clusteradmissionpolicies", "ClusterAdmissionPolicy")
SETTINGS = {
    "host-namespaces-psp": ("allow_host_pid",),
    "hostpaths-psp": ("allowedHostPaths",),
    "capabilities-psp": ("allowed_capabilities",),
    "user-group-psp": ("run_as_user",),
    "pod-privileged": (),
}


def read_policies(reader: Reader, namespace: dict) -> list[dict]:
    """Policies in protect mode that are asked about pods of a namespace that is not there yet.

    C([{name, module, settings, conditions}]); of the settings those that decide.

    :param namespace: as the probe has it.
    """
    if namespace["exists"] or POLICIES.group not in reader.groups:
        return []
    found = []
    for item in reader.list(POLICIES):
        spec = as_mapping(item.get("spec"))
        module = str(spec.get("module") or "").partition("@")[0].rpartition("/")[2].partition(":")[0]
        if module in SETTINGS and spec.get("mode", "protect") == "protect" and "pods" in asked_about(spec, namespace):
            settings = as_mapping(spec.get("settings"))
            found.append(
                {
                    "name": name_of(item),
                    "module": module,
                    "settings": {key: settings[key] for key in SETTINGS[module] if key in settings},
                    "conditions": bool(spec.get("matchConditions")),
                }
            )
    return found


def refused_field(policy: dict, engine: str) -> str:
    """What of the agent a policy refuses, "" for nothing."""
    module, settings = policy["module"], policy["settings"]
    is_privileged = engine != "runtime_enforcer"
    if module == "host-namespaces-psp":
        return "" if settings.get("allow_host_pid") is True else "hostPID"
    if module == "hostpaths-psp":
        prefixes = [str(as_mapping(item).get("pathPrefix")) for item in as_list(settings.get("allowedHostPaths"))]
        own = host_path(engine)
        return "" if any(own == each or own.startswith(each.rstrip("/") + "/") for each in prefixes) else "hostPath"
    if module == "capabilities-psp":
        allowed = set(map(str, as_list(settings.get("allowed_capabilities"))))
        return "" if is_privileged or "*" in allowed or set(CAPABILITIES) <= allowed else "capabilities.add"
    if module == "user-group-psp":
        rule = as_mapping(settings.get("run_as_user")).get("rule", "RunAsAny")
        return "" if rule == "RunAsAny" else "runAsNonRoot"
    return "privileged" if is_privileged else ""


def policy_findings(policies: list[dict], namespace: str, engine: str) -> Iterator[dict]:
    """Policies that do not leave out the namespace and will refuse the agent."""
    for policy in policies:
        field = refused_field(policy, engine)
        if field and not policy["conditions"]:
            yield finding(
                "cluster.policy_refuses",
                severity=WARNING,
                requirement="runtime-enforcer/Agent security context",
                observed=f"ClusterAdmissionPolicy {policy['name']} ({policy['module']}, mode protect) will refuse the "
                f"agent because of {field}: it does not leave out namespace {namespace}, which is not there yet",
                expected="policies that forbid what the agent needs leave out its namespace",
                remedy="name the namespace in recommendedPolicies.skipAdditionalNamespaces of the Admission "
                "Controller's chart, or in spec.namespaceSelector of that policy: "
                f"kubernetes.io/metadata.name NotIn [{namespace}]",
            )
