# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run has come to so far, from the results that its tasks registered. Report and gate both judge this.

The names of the registered results are the contract between the playbooks, the roles and this file.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_fixes import mended_in_vain
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_text import numbered, one_line
from ansible_collections.portcullis.fleet.plugins.plugin_utils.requirements import left_out, probe_of

INPUTS = "__site_inputs"
STATE = "__report_state"
PROBE = "__preflight_probe"
REQUIREMENTS = "__preflight_requirements"
FIX = "__node_fix"
CHANGES = {
    FIX: "node settings",
    "__containerd_config": "containerd configuration",
    "__containerd_images": "container images",
    "__kube_proxy_start": "kube-proxy configuration",
    "__kube_proxy_config": "kube-proxy on the node",
    "__kube_proxy_finish": "kube-proxy's own DaemonSet",
    "__felix_start": "Felix configuration",
    "__felix_config": "Felix on the node",
    "__felix_finish": "Felix configuration default",
}
VERIFY_PROBE = "__verify_probe"
VERIFY_REQUIREMENTS = "__verify_requirements"
SHARED = (INPUTS, REQUIREMENTS, VERIFY_REQUIREMENTS)
NAMES = ("group_names", STATE, PROBE, *CHANGES, VERIFY_PROBE, *SHARED)
FAILED_STATES = ("failed", "rolled_back", "unreachable")


def read_results(variables_of: Callable[[str], Mapping], hosts: Iterable[str]) -> dict[str, dict]:
    """The results named above, by host. Each is read once: what Ansible hands out can be slow to read.

    :param variables_of: a host's variables. Results are no templates, so C(hostvars.raw_get) does, in a tenth of a
        millisecond; C(hostvars[host]) looks for templates in every text of a result, whoever asks for it again.
    """
    found = {}
    for host in hosts:
        variables = variables_of(host)
        found[host] = {name: variables[name] for name in NAMES if name in variables}
    return found


@dataclasses.dataclass(frozen=True)
class RunState:
    """The registered results of a run.

    :param results: what C(read_results) returns, for every host of the fleet in inventory order.
    :param phase: one of C(report_outcome.PHASES): where the run is, C(done) when nothing is left to do.
    :param batch: the hosts of the wave that runs now; empty outside of the change.
    :param stopped_reason: why the run stops in this phase, where that is not in the results; empty when it does not.
    """

    results: Mapping[str, Mapping]
    phase: str
    check_mode: bool = False
    batch: tuple[str, ...] = ()
    stopped_reason: str = ""

    @functools.cached_property
    def _shared(self) -> dict[str, Mapping]:
        return {name: found[name] for found in self.results.values() for name in SHARED if name in found}

    @functools.cached_property
    def _changeable(self) -> frozenset[str]:
        return frozenset(self.once(REQUIREMENTS).get("changeable", ()))

    @functools.cached_property
    def _left_out(self) -> set[str]:
        return left_out(self.once(REQUIREMENTS).get("findings", ()))

    @functools.cached_property
    def _unproven(self) -> dict[str, list[str]]:
        """By node, the ids of its blockers at the last look; of waived ones, those that keep a run from the node."""
        found = self.once(VERIFY_REQUIREMENTS)
        excluded, against = left_out(found.get("findings", ())), {}
        for item in found.get("findings", ()):
            if item["severity"] == BLOCKER and (not item["waived"] or item["node"] in excluded):
                against.setdefault(item["node"], []).append(item["id"])
        return against

    def once(self, name: str) -> Mapping:
        """A result that one task registered for all hosts of its play; empty when that task did not run."""
        return self._shared.get(name, {})

    def findings(self) -> list[dict]:
        """The findings of the newest judgement: after the change where there was one, for the nodes it covers."""
        before, after = self.once(REQUIREMENTS).get("findings", []), self.once(VERIFY_REQUIREMENTS)
        if "findings" not in after:
            return list(before)
        verified = {host for host, found in self.results.items() if VERIFY_PROBE in found}
        if after.get("node_names"):
            verified.add("")  # the cluster was read again, too
        return [item for item in before if item["node"] not in verified] + list(after["findings"])

    def waves(self) -> dict[str, int]:
        """The number of each node's wave, from 1, as far as the run has come: what earlier waves left, and this one."""
        left = (found.get(STATE, {}).get("waves") or {} for found in self.results.values())
        # Each gate adds its wave to those before it.
        earlier = dict(max(left, key=len, default={}))
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
        verify_alone = not self.once(REQUIREMENTS)
        probe = self.results[host].get(VERIFY_PROBE if verify_alone else PROBE, {})
        if not probe:
            return "not_reached", "not part of this run"
        if probe.get("unreachable") or probe.get("failed"):
            return ("unreachable" if probe.get("unreachable") else "failed"), failure_message(probe)
        return self._verified_state(host) if verify_alone else self._unchanged_state(host)

    def _verified_state(self, host: str) -> tuple[str, str]:
        """C((state, reason)) of a node that was only verified; check mode judges what a run would begin with."""
        if host in self._unproven:
            return "not_proven", ", ".join(self._unproven[host])
        return ("looked_at" if self.check_mode else "proven"), ""

    def _unchanged_state(self, host: str) -> tuple[str, str]:
        """C((state, reason)) of a node that was read, and that no change was tried on."""
        if self.once(REQUIREMENTS).get("blockers"):
            return "not_reached", "blockers stopped the run before any change"
        if host in self._left_out:
            return "not_reached", "left out by its findings"
        if self.phase == "done" and not self.once(VERIFY_REQUIREMENTS):
            return "looked_at", ""
        if host in self._changeable:
            return "not_reached", "its turn had not come"
        return "unchanged", "no containerd in use here, nothing to change"

    def batch_failures(self) -> dict[str, str]:
        """The nodes of this wave that failed, could not be reached or were mended in vain, each with why."""
        states = {host: self.node_state(host) for host in self.batch}
        failures = {host: reason for host, (state, reason) in states.items() if state in FAILED_STATES}
        return failures | {host: reason for host in self.batch if (reason := self._in_vain(host))}

    def _in_vain(self, host: str) -> str:
        """What was mended on a node and is found there all the same, by its own newest judgement."""
        results = self.results[host]
        if self.phase != "fix" or self.check_mode or not results.get(FIX, {}).get("changed"):
            return ""
        ids = mended_in_vain(results[FIX], results.get(REQUIREMENTS, {}).get("findings", []), host)
        return f"mended, and found all the same: {', '.join(ids)}" if ids else ""

    def stopped(self) -> dict | None:
        """Where and why the run stops: C({phase, reason}), None while all is well."""
        if self.stopped_reason:
            return {"phase": self.phase, "reason": one_line(self.stopped_reason)}
        failures = self.batch_failures()
        if failures:
            reasons = "; ".join(f"{host}: {one_line(reason)}" for host, reason in failures.items())
            return {"phase": self.phase if self.phase == "fix" else "change", "reason": reasons}
        if self.phase == "fix":
            return None  # what is in the way may be what is being mended
        has_fixed = any(FIX in found for found in self.results.values())
        for name, phase in ((VERIFY_REQUIREMENTS, "verify"), (REQUIREMENTS, "fix" if has_fixed else "preflight")):
            found = self.once(name)
            if found.get("blockers"):
                return {"phase": phase, "reason": numbered(len(found["blockers"]), "blocker")}
        return None

    def changes(self) -> list[dict]:
        """The diff of each change with its node."""
        return [
            {"node": host, "what": what, "diff": diff}
            for host in self.results
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
        for host in self.results:
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
            "phase": self.phase,
            "versions": versions,
            "nodes": nodes,
            "findings": self.findings(),
            "changes": self.changes(),
            "stopped": self.stopped(),
        }


def failure_message(result: Mapping) -> str:
    """Why a task failed or did not reach its node; of a loop, why its items did, each reason once."""
    items = [item for item in result.get("results", []) if item.get("failed") or item.get("unreachable")]
    reasons = [str(item.get("msg", "")) for item in items or [result]]
    return "; ".join(dict.fromkeys(filter(None, reasons))) or "no reason was given"


def diffs_of(result: Mapping) -> list:
    """The diffs of a task as a list: a module may return one or several, a loop has one for each item."""
    if "results" in result:
        return [diff for item in result["results"] for diff in diffs_of(item)]
    diff = result.get("diff") or []
    return list(diff) if isinstance(diff, list) else [diff]
