# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run of a fleet with every state in it, to test the report and to look at it.

From the root of the checkout: ``PYTHONPATH=.:.collections python -m tests.unit.plugins.plugin_utils.report_sample DIR``
writes portcullis-report.json and portcullis-report.html into DIR.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report import build, to_json
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_html import render_html

_CONFIG = """\
version = 2
root = "/var/lib/containerd"

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    sandbox_image = "registry.k8s.io/pause:3.9"
    [plugins."io.containerd.grpc.v1.cri".registry]
      config_path = ""
"""


def sample_run(node_count=40):
    """Return a run that stopped in its third wave."""
    nodes = {name: _node(index, node_count) for index, name in enumerate(_names(node_count))}
    reached = [name for name, node in nodes.items() if node["state"] != "not_reached"]
    return {
        "started": "2026-11-30T20:17:19+00:00",
        "ended": "2026-11-30T20:29:52+00:00",
        "check_mode": False,
        "engine": "native",
        "playbook": "site.yml",
        "phase": "change",
        "versions": {"portcullis.fleet": "0.1.0", "ansible-core": "2.19.14"},
        "nodes": nodes,
        "findings": _findings(list(nodes)),
        "changes": [change for name in reached for change in _changes(name, nodes[name]["state"])],
        "stopped": {"phase": "change", "reason": "worker-08 failed, and no failed node is allowed"},
    }


def blocked_run(node_count=40):
    """Return a run that preflight stopped before any change."""
    run = sample_run(node_count)
    for node in run["nodes"].values():
        node |= {"state": "not_reached", "reason": "blockers stopped the run before any change"}
    blockers = [
        finding(
            "cluster.pod_security",
            severity="blocker",
            requirement="runtime-enforcer/pod security",
            observed='a privileged pod is refused in namespace portcullis: violates PodSecurity "restricted:latest"',
            expected="a privileged pod is admitted",
            remedy="kubectl label namespace portcullis pod-security.kubernetes.io/enforce=privileged --overwrite",
        ),
        *(
            finding(
                "containerd.cri_not_serving",
                severity="blocker",
                requirement="runtime-enforcer/containerd",
                node=name,
                observed="no process listens on /run/containerd/containerd.sock",
                expected="CRI answers on /run/containerd/containerd.sock",
                remedy="Run systemctl start containerd, and look at journalctl -u containerd if it fails.",
            )
            for name in list(run["nodes"])[5:14]
        ),
    ]
    return run | {
        "findings": run["findings"] + blockers,
        "changes": [],
        "phase": "preflight",
        "stopped": {"phase": "preflight", "reason": ""},
    }


def _names(count):
    return [f"control-{number}" for number in (1, 2, 3)] + [f"worker-{number:02}" for number in range(1, count - 2)]


def _node(index, count):
    state, reason = "changed", ""
    if index == 9:
        state, reason = (
            "rolled_back",
            "containerd did not answer within 30 s; the old config.toml is back",
        )
    elif index == 10:
        state, reason = "failed", "busybox:1.33 could not be pulled: connection to the registry timed out"
    elif index == 12:
        state, reason = "unreachable", "ssh: connect to host worker-10 port 22: No route to host"
    elif index % 7 == 3:
        state = "unchanged"
    elif index > count // 2:
        state, reason = "not_reached", "the run stopped in wave 3"
    return {
        "groups": ["control_plane"] if index < 3 else ["workers"],
        "state": state,
        "wave": 1 if index == 0 else 2 if index < 5 else 3 if index <= count // 2 else 4,
        "reason": reason,
        "facts": {}
        if state == "unreachable"
        else {
            "kernel": "6.1.0-28-amd64" if index % 3 else "5.15.0-126-generic",
            "distribution": "Debian 12" if index % 3 else "Ubuntu 22.04",
            "containerd": "1.6.20" if index % 4 else "1.7.24",
            "kube-proxy mode": "ipvs" if index % 5 else "iptables",
            "enforcement": "BPF LSM" if index % 3 else "fmod_ret",
        },
    }


def _findings(names):
    found = [
        finding(
            "packet_filter.firewalld_active",
            severity="blocker",
            requirement="calico/system requirements",
            node=name,
            observed=f"firewalld is active on {name}",
            expected="no other manager of packet filter rules",
            remedy=f"ansible {name} -b -m systemd_service -a 'name=firewalld state=stopped enabled=false'",
        )
        | {"waived": True}
        for name in names[4:6]
    ]
    found += [
        finding(
            "time.not_synchronised",
            severity="warning",
            requirement="secure-workload/agent prerequisites",
            node=name,
            observed=f"the clock is {index % 4 + 2}.5 s ahead",
            expected="at most 1 s away from the time server",
            remedy="Start chronyd or systemd-timesyncd and let it reach its server.",
        )
        for index, name in enumerate(names[: len(names) // 2])
    ]
    found += [
        finding(
            "cluster.node_not_in_inventory",
            severity="warning",
            requirement="ansible/inventory",
            node="worker-99",
            observed="worker-99 is a node of the cluster",
            expected="every node of the cluster is in the inventory",
            remedy="Add worker-99 to the inventory, or remove it from the cluster.",
        ),
        finding(
            "containerd.config_imports",
            severity="warning",
            requirement="runtime-enforcer/containerd",
            node=names[-1],
            observed="<script>alert('from a node')</script>\u202e and an escape \x1b[31m",
            expected="files that imports names can be read",
            remedy="Look at the imports line of /etc/containerd/config.toml.",
        ),
    ]
    return found


def _changes(name, state):
    if state != "changed":
        return []
    after = _CONFIG.replace('config_path = ""', 'config_path = "/etc/containerd/certs.d"')
    diff = {
        "before_header": "/etc/containerd/config.toml",
        "after_header": f"/root/.ansible/tmp/{name}/config.toml",
        "before": _CONFIG,
        "after": after,
    }
    agent = {
        "before": "",
        "after": f'{{\n  "node": "{name}",\n  "mode": "monitor"\n}}\n',
    }
    found = [{"node": name, "what": "/etc/containerd/config.toml", "diff": diff}]
    if name.startswith("control"):
        found.append({"node": name, "what": "/etc/portcullis/agent.json", "diff": agent})
    return found


def main(argv):
    """Write the sample's report and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--blocked", action="store_true", help="the run that preflight stopped")
    options = parser.parse_args(argv)
    report = build((blocked_run if options.blocked else sample_run)(options.nodes))
    options.directory.mkdir(parents=True, exist_ok=True)
    (options.directory / "portcullis-report.json").write_text(to_json(report), encoding="utf-8")
    (options.directory / "portcullis-report.html").write_text(render_html(report), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
