# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who writes containerd's configuration on a node: an edit that its owner overwrites is worse than none."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

ADMINISTRATOR = "administrator"


@dataclass(frozen=True)
class Owner:
    """Who writes the file, and how that is known.

    remedy: the lever of an owner that writes the file anew; empty when the file may be edited.
    caution: what to know of an owner whose file may be edited.
    """

    name: str
    evidence: str = ""
    remedy: str = ""
    caution: str = ""


# By path of the file that the daemon reads.
_BY_PATH = (
    (
        re.compile(r"^/var/lib/rancher/(k3s|rke2)/"),
        "write /etc/rancher/{0}/registries.yaml and restart {0}, which makes config.toml and certs.d of it",
    ),
    (
        re.compile(r"^/var/snap/(microk8s)/"),
        "put hosts.toml files into /var/snap/microk8s/current/args/certs.d, which its containerd-template.toml names",
    ),
    (re.compile(r"^/(?:var/lib|run)/(k0s)/"), "put a drop-in into /etc/k0s/containerd.d and restart k0s"),
    (re.compile(r"^/(nix)/store/"), "set virtualisation.containerd.settings in the NixOS configuration and rebuild"),
)
# By ID of os-release(5): the file belongs to an image or to a machine configuration.
_BY_OS = {
    "talos": "set machine.registries in the Talos machine configuration",
    "rhcos": "OpenShift runs CRI-O; use an ImageDigestMirrorSet or a MachineConfig",
    "flatcar": "set the file in the Ignition or Butane configuration of the machine",
    "cos": "set the node pool's containerd configuration with gcloud container node-pools update",
    "bottlerocket": "set settings.container-registry with apiclient",
    "nixos": "set virtualisation.containerd.settings in the NixOS configuration and rebuild",
}
_BY_MARK = {
    "/usr/bin/nodeadm": Owner(
        "nodeadm", remedy="set spec.containerd.config in the NodeConfig of the instance's user data"
    ),
    "/etc/eks/containerd": Owner(
        "eks-bootstrap", remedy="pass --containerd-config-file to /etc/eks/bootstrap.sh in the instance's user data"
    ),
    "/home/kubernetes/kube-env": Owner(
        "gke", remedy="set the node pool's containerd configuration with gcloud container node-pools update"
    ),
    "/etc/modules-load.d/kubespray-br_netfilter.conf": Owner(
        "kubespray",
        caution="it writes the file again at each run: set containerd_registries_mirrors there too",
    ),
    "/opt/azure/containers": Owner(
        "aks", caution="AKS writes the file when it makes or upgrades the node: run again after each node image upgrade"
    ),
}
# Tools that leave their name in what they render. Group 1 is the name.
_BY_COMMENT = re.compile(
    r"^[ \t]*#.*?\b(ansible(?: managed)?|kubespray|puppet|chef|salt|terraform|cloud-init|nodeadm|kubekey|sealos)\b",
    re.IGNORECASE | re.MULTILINE,
)
_GENERATED = re.compile(r"^[ \t]*#.*?\b(generated|managed by|do not edit|overwritten)\b", re.IGNORECASE | re.MULTILINE)
_HEAD = re.compile(r"\A\ufeff?(?:[ \t]*(?:#[^\n]*)?(?:\n|\Z))*")
_K0S_MANAGED = re.compile(r"\A\ufeff?#\s*k0s_managed\s*=\s*true\b")


def find_owner(config_file: str, text: str, os_id: str, marks: list[str]) -> Owner:
    """Return who writes the file.

    :param text: content of the file as far as it is text. :param os_id: ID of os-release. :param marks: paths that
        exist on the node and that only a certain owner has.
    """
    for pattern, remedy in _BY_PATH:
        if match := pattern.match(config_file):
            return Owner(match.group(1), f"the daemon reads {config_file}", remedy.format(match.group(1)))
    if _K0S_MANAGED.match(text):
        remedy = "put a drop-in into /etc/k0s/containerd.d, or remove the first line of the file to own it yourself"
        return Owner("k0s", f"the first line of {config_file} is # k0s_managed=true", remedy)
    if os_id in _BY_OS:
        return Owner(os_id, f"os-release says ID={os_id}", _BY_OS[os_id])
    for mark in marks:
        if mark in _BY_MARK:
            return replace(_BY_MARK[mark], evidence=f"{mark} exists")
    return _find_by_content(config_file, text)


def _find_by_content(config_file: str, text: str) -> Owner:
    """Recognise tools that render the file only when they are run: an edit holds until then."""
    # Only the comments above the first key speak of the whole file.
    text = _HEAD.match(text).group()
    again = "it writes the file again when it is run: make the same setting there"
    if match := _BY_COMMENT.search(text):
        line = text.count("\n", 0, match.end()) + 1
        return Owner(match.group(1).lower(), f"{config_file} line {line} names it", caution=again)
    if match := _GENERATED.search(text):
        line = text.count("\n", 0, match.end()) + 1
        caution = "a generated file may be written again: make the same setting in its source"
        return Owner("unknown generator", f"{config_file} line {line}: {match.group().strip()}", caution=caution)
    return Owner(ADMINISTRATOR)


# Imported files that another program writes again at each start.
_IMPORTS = (
    (
        re.compile(r"/[0-9]*-?nvidia[^/]*\.toml$"),
        "it is written by the NVIDIA container toolkit, from a copy of the whole CRI table: let nvidia-ctk runtime "
        "configure write it again after the main file was changed",
    ),
    (re.compile(r"^/run/k0s/"), "it is written by k0s at each start: put a drop-in into /etc/k0s/containerd.d"),
)


def find_locked(paths: list[str]) -> dict[str, str]:
    """Return the imported files that must not be edited, each with who writes it and what to do instead."""
    return {path: reason for path in paths for pattern, reason in _IMPORTS if pattern.search(path)}
