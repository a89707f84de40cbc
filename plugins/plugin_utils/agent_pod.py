# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pod that an engine's agent is, as far as admission looks at it; only ever sent as a dry run."""

from __future__ import annotations

# Source: the requirement texts. Runtime Enforcer's chart sets no privileged and adds these four.
CAPABILITIES = ("BPF", "PERFMON", "SYS_RESOURCE", "SYS_PTRACE")
PRIVILEGED = {"privileged": True, "runAsUser": 0}
NOT_PRIVILEGED = {"privileged": False, "capabilities": {"add": list(CAPABILITIES), "drop": ["ALL"]}}


def host_path(engine: str) -> str:
    """The directory of the node that the agent mounts."""
    return "/var/run/nri" if engine == "runtime_enforcer" else "/sys/fs/bpf"


def agent_pod(namespace: str, engine: str) -> dict:
    """A pod with what the engine's agent needs and a restrictive admission refuses."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "portcullis-admission-", "namespace": namespace},
        "spec": {
            "hostPID": True,
            "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "agent",
                    "image": "docker.io/library/busybox:1.33",
                    "securityContext": NOT_PRIVILEGED if engine == "runtime_enforcer" else PRIVILEGED,
                    "volumeMounts": [{"name": "host", "mountPath": host_path(engine)}],
                }
            ],
            "volumes": [{"name": "host", "hostPath": {"path": host_path(engine)}}],
        },
    }
