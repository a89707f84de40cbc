# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who writes containerd's configuration on a node: an edit that its owner overwrites is worse than none."""

from __future__ import annotations

import re
from dataclasses import dataclass

ADMINISTRATOR = "administrator"


@dataclass(frozen=True)
class Owner:
    """C(remedy) names the lever of an owner that writes the file anew; empty when the file may be edited."""

    name: str
    evidence: str = ""
    remedy: str = ""


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
    "/usr/bin/nodeadm": (
        "nodeadm",
        "set spec.containerd.config in the NodeConfig of the instance's user data",
    ),
}
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
            name, remedy = _BY_MARK[mark]
            return Owner(name, f"{mark} exists and writes {config_file} at each boot", remedy)
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
