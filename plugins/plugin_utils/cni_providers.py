# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose a CNI configuration is, by the plugins that it calls."""

from __future__ import annotations

# Plugins that bring pods a network of their own, by type. What they chain (portmap, bandwidth, tuning) and what many
# share (bridge, ptp, host-local, loopback) says nothing.
PROVIDERS = {
    "calico": "calico",
    "flannel": "flannel",
    "cilium-cni": "cilium",
    "weave-net": "weave",
    "antrea": "antrea",
    "ovn-k8s-cni-overlay": "ovn-kubernetes",
    "kube-ovn": "kube-ovn",
    "aws-cni": "aws-vpc-cni",
    "azure-vnet": "azure-cni",
    "openshift-sdn": "openshift-sdn",
    "kindnet": "kindnet",
}
# They call other files' plugins by design, or do nothing for a pod's network.
DELEGATING = {"multus", "multus-shim", "genie", "loopback"}
# Its file calls calico alone, but flannel is the other half of it.
CANAL, CANALS = "canal", {"calico", "flannel"}


def providers_in(file: dict) -> list[str]:
    """The network providers of one file of a probe's C(cni), in the order of its plugins."""
    return list(dict.fromkeys(PROVIDERS[kind] for kind in file["types"] if kind in PROVIDERS))


def chosen(files: list[dict]) -> dict | None:
    """The file that decides: the first, or the one behind a delegating plugin's. None without a usable file."""
    usable = [item for item in files if not item["error"]]
    own = [item for item in usable if not set(item["types"]) <= DELEGATING]
    return (own or usable or [None])[0]


def leftovers(files: list[dict]) -> list[dict]:
    """Files of another provider than the one that decides, which may be a mere bridge."""
    first = chosen(files)
    if first is None:
        return []
    own = CANALS if CANAL in first["name"] else set(providers_in(first))
    return [item for item in files if item is not first and set(providers_in(item)) - own]
