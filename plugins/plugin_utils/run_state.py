# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run has come to so far, from the results that its tasks registered. Report and gate both judge this.

The names of the registered results are the contract between the playbooks, the roles and this file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ansible_collections.portcullis.fleet.plugins.plugin_utils.requirements import left_out, probe_of

INPUTS = "__site_inputs"
STATE = "__report_state"
PROBE = "__preflight_probe"
REQUIREMENTS = "__preflight_requirements"
CHANGES = {"__containerd_config": "containerd configuration", "__containerd_images": "container images"}
VERIFY_PROBE = "__verify_probe"
VERIFY_REQUIREMENTS = "__verify_requirements"
FAILED_STATES = ("failed", "rolled_back", "unreachable")


@dataclasses.dataclass(frozen=True)
class RunState:
    """The registered results of a run.

    :param results: by host, its variables (only the names above are read).
    :param hosts: every host of the fleet, in inventory order.
    :param batch: the hosts of the wave that runs now; empty outside of the change.
    """

    results: Mapping[str, Mapping]
    hosts: tuple[str, ...]
    check_mode: bool
    batch: tuple[str, ...] = ()

    def once(self, name: str) -> dict:
        """A result that one task registered for all hosts of its play."""
        return next((self.results[host][name] for host in self.hosts if name in self.results[host]), {})

    def findings(self) -> list[dict]:
        """The findings of the newest judgement: after the change where there was one, for the nodes it covers."""
        before, after = self.once(REQUIREMENTS), self.once(VERIFY_REQUIREMENTS)
        if "findings" not in after:
            return before.get("findings", [])
        verified = {host for host in self.hosts if VERIFY_PROBE in self.results[host]}
        kept = [item for item in before["findings"] if item["node"] not in verified]
        return kept + [item for item in after["findings"] if item["node"] in verified]

    def waves(self) -> dict[str, int]:
        """The number of each node's wave, from 1, as far as the run has come: what earlier waves left, and this one."""
        earlier: dict[str, int] = {}
        for host in self.hosts:
            earlier.update(self.results[host].get(STATE, {}).get("waves") or {})
        return {**earlier, **dict.fromkeys(self.batch, max(earlier.values(), default=0) + 1)}

    def change_results(self, host: str) -> dict[str, Mapping]:
        """What the change did to a node: C({what: result}), without tasks that were skipped."""
        found = {what: self.results[host].get(name) for name, what in CHANGES.items()}
        return {what: result for what, result in found.items() if result and not result.get("skipped")}

    def node_state(self, host: str) -> tuple[str, str]:
        """C((state, reason)) of a node, in the report's words."""
        results = self.change_results(host)
        if not results:
            return self._untouched_state(host)
        for result in results.values():
            message = failure_message(result)
            if result.get("unreachable"):
                return "unreachable", message
            if result.get("failed"):
                return ("rolled_back" if result.get("rolled_back") else "failed"), message
        if not any(result.get("changed") for result in results.values()):
            return "unchanged", ""
        return ("would_change" if self.check_mode else "changed"), ""

    def _untouched_state(self, host: str) -> tuple[str, str]:
        """C((state, reason)) of a node that no change was tried on."""
        probe, judged = self.results[host].get(PROBE, {}), self.once(REQUIREMENTS)
        reason = str(probe.get("msg", ""))
        if probe.get("unreachable"):
            return "unreachable", reason
        if probe.get("failed"):
            return "failed", reason
        if not probe:
            return "not_reached", "not part of this run"
        if host in judged.get("changeable", []) or judged.get("blockers"):
            return "not_reached", "the run stopped before its turn"
        if host in left_out(judged.get("findings", [])):
            return "not_reached", "left out by its findings"
        return "unchanged", "no containerd in use here, nothing to change"

    def batch_failures(self) -> dict[str, str]:
        """The nodes of this wave that failed or could not be reached, each with why."""
        states = {host: self.node_state(host) for host in self.batch}
        return {host: reason for host, (state, reason) in states.items() if state in FAILED_STATES}

    def stopped(self) -> dict | None:
        """Where and why the run stops: C({phase, reason}), None while all is well."""
        failures = self.batch_failures()
        if failures:
            reasons = "; ".join(f"{host}: {' '.join(reason.split())}" for host, reason in failures.items())
            return {"phase": "change", "reason": reasons}
        for name, phase in ((VERIFY_REQUIREMENTS, "verify"), (REQUIREMENTS, "preflight")):
            found = self.once(name)
            if found.get("blockers"):
                count = len(found["blockers"])
                return {"phase": phase, "reason": f"{count} blocker{'s' if count != 1 else ''}"}
        return None

    def changes(self) -> list[dict]:
        """The diff of each change with its node."""
        return [
            {"node": host, "what": what, "diff": diff}
            for host in self.hosts
            for what, result in self.change_results(host).items()
            if result.get("changed")
            for diff in diffs_of(result)
        ]

    def facts(self, host: str) -> dict[str, str]:
        """What the per-node table shows of a node."""
        probe = probe_of(self.results[host].get(VERIFY_PROBE) or self.results[host].get(PROBE, {}))
        if "system" not in probe:
            return {}
        containerd = probe["containerd"]
        return {
            "distribution": probe["system"]["os"]["pretty_name"],
            "kernel": probe["system"]["kernel"],
            "containerd": containerd["cri"]["version"] if containerd["present"] else "none",
            "kube-proxy mode": probe["kube_proxy"]["mode"],
        }

    def run(self, *, ended: str, engine: str, playbook: str, versions: dict) -> dict:
        """The input of report.build."""
        nodes, waves = {}, self.waves()
        for host in self.hosts:
            state, reason = self.node_state(host)
            nodes[host] = {
                "groups": list(self.results[host].get("group_names", [])),
                "state": state,
                "wave": waves.get(host),
                "facts": self.facts(host),
                "reason": reason,
            }
        return {
            "started": self.once(INPUTS).get("started", ended),
            "ended": ended,
            "check_mode": self.check_mode,
            "engine": engine,
            "playbook": playbook,
            "versions": versions,
            "nodes": nodes,
            "findings": self.findings(),
            "changes": self.changes(),
            "stopped": self.stopped(),
        }


def failure_message(result: Mapping) -> str:
    """Why a task failed; of a loop, why its items did."""
    items = [str(item.get("msg", "")) for item in result.get("results", []) if item.get("failed")]
    return "; ".join(items) or str(result.get("msg", ""))


def diffs_of(result: Mapping) -> list:
    """The diffs of a task as a list: a module may return one or several, a loop has one for each item."""
    if "results" in result:
        return [diff for item in result["results"] for diff in diffs_of(item)]
    diff = result.get("diff") or []
    return list(diff) if isinstance(diff, list) else [diff]
