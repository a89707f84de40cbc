# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Windows nodes, by what the API server knows of them: node_probe reads Linux nodes only.

Source: the requirement text of Secure Workload, "For Windows worker nodes".
"""

from __future__ import annotations

import re

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, WARNING, finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import parse_version

REQUIREMENT = "secure-workload/Requirements and Prerequisites"
# What kubelet reports as the kernel's version ends with the build.
BUILDS = {"17763": "Windows Server 2019", "20348": "Windows Server 2022"}
OLDEST_KUBELET = (1, 27)
# HostProcess pods need it. Source: Kubernetes, "Create a Windows HostProcess Pod".
OLDEST_CONTAINERD = (1, 6)
IMAGE = "mcr.microsoft.com/oss/kubernetes/windows-host-process-containers-base-image:v1.0.0"
# kubelet's nodeStatusMaxImages: a node with more does not name them all.
IMAGES_NAMED = 50


def is_windows(node: dict) -> bool:
    """Whether a node of the cluster is one."""
    return (node.get("labels") or {}).get("kubernetes.io/os") == "windows"


def windows_summary(node: dict) -> dict:
    """What these checks use of a Node object beside what all have: C({build, os_image, images}).

    C(images) are the names that kubelet reports, None where it may not have named them all.
    """
    status, info = node["status"], node["status"].get("nodeInfo") or {}
    build = re.search(r"10\.0\.(\d+)", info.get("kernelVersion") or "")
    images = status.get("images") or []
    names = [name for image in images for name in image.get("names") or []]
    return {
        "build": build[1] if build else "",
        "os_image": info.get("osImage") or "",
        "images": names if len(images) < IMAGES_NAMED else None,
    }


def windows_findings(nodes: list[dict], engine: str) -> list[dict]:
    """What is wrong with the Windows nodes of a cluster.

    :param nodes: as node_summary has them.
    """
    rows = WINDOWS_ROWS if engine == "secure_workload" else WINDOWS_ROWS[:1]
    found = []
    for node in filter(is_windows, nodes):
        for finding_id, severity, expected, remedy, observe in rows:
            observed = observe(node)
            if observed:
                words = {"observed": observed, "expected": expected, "remedy": remedy}
                found.append(
                    finding(finding_id, severity=severity, requirement=REQUIREMENT, node=node["name"], **words)
                )
    return found


def _not_covered(node: dict) -> str:
    return f"Windows ({node.get('windows', {}).get('os_image') or node['name']}): this collection knows Linux nodes"


def _other_build(node: dict) -> str | None:
    build = node.get("windows", {}).get("build", "")
    name = node.get("windows", {}).get("os_image") or "an unknown Windows"
    return None if build in BUILDS else f"{name}, build {build or 'unknown'}"


def _old_kubelet(node: dict) -> str | None:
    version = parse_version(node["kubelet"])
    is_known = version and version >= OLDEST_KUBELET
    return None if is_known else f"kubelet {node['kubelet'] or 'of an unknown version'}"


def _other_runtime(node: dict) -> str | None:
    name, _colon, text = node["runtime"].partition("://")
    version = parse_version(text)
    will_do = name == "containerd" and version and version >= OLDEST_CONTAINERD
    return None if will_do else f"the container runtime is {node['runtime'] or 'unknown'}"


def _no_image(node: dict) -> str | None:
    images = node.get("windows", {}).get("images")
    return None if images is None or IMAGE in images else f"not among the images that the node reports: {IMAGE}"


# id, severity, expected, remedy, predicate. The first is asked for whatever the engine.
WINDOWS_ROWS = (
    (
        "windows.not_covered",
        WARNING,
        "every node of the cluster is made ready",
        "set config_path and remove registry.mirrors in its containerd's config.toml by hand, restart containerd; then "
        "waive it: windows.not_covered",
        _not_covered,
    ),
    (
        "windows.build",
        WARNING,
        " or ".join(f"{known} (build {number})" for number, known in BUILDS.items()),
        "use a node pool of one of these, or waive it if your release of the agent supports the build: windows.build",
        _other_build,
    ),
    (
        "windows.kubernetes",
        WARNING,
        "Kubernetes 1.27 or newer",
        "upgrade the node, or waive it: windows.kubernetes",
        _old_kubelet,
    ),
    (
        "windows.runtime",
        BLOCKER,
        "containerd 1.6 or newer, which HostProcess pods need",
        "move the node to containerd",
        _other_runtime,
    ),
    (
        "windows.image_missing",
        WARNING,
        "the image is on the node, or the node can pull it",
        "nothing if the node reaches mcr.microsoft.com; else import it there (ctr -n k8s.io images import)",
        _no_image,
    ),
)
