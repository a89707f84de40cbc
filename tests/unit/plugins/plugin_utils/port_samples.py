# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters whose ports are tried, for the tests of what plans and judges it."""

from __future__ import annotations

from ansible_collections.portcullis.fleet.plugins.plugin_utils.network_requirements import Network

from .network_samples import network

NAMES = ("cp1", "w1", "w2")


def node_object(name: str, *addresses: str, **annotations: str) -> dict:
    """A Node as the API server has it."""
    listed = [{"type": "InternalIP", "address": address} for address in addresses]
    return {
        "metadata": {"name": name, "annotations": annotations},
        "status": {"addresses": [*listed, {"type": "Hostname", "address": name}]},
    }


def place(name: str, number: int, **changes: object) -> dict:
    """What cluster_ports.node_places makes of a node."""
    base = {
        "name": name,
        "internal": {"4": f"10.0.0.{number}"},
        "calico": {},
        "networks": {},
        "flannel": "",
        "flannel_backend": "",
        "reflector": False,
    }
    return {**base, **changes}


def places(**changes: object) -> list[dict]:
    """Three nodes alike."""
    return [place(name, number, **changes) for number, name in enumerate(NAMES, start=11)]


def read_of(**changes: object) -> dict:
    """What PortsCluster.read returns, of a cluster without Calico and flannel."""
    base = {
        "nodes": places(),
        "api": [{"address": "10.0.0.11", "port": 6443}],
        "typha": [],
        "pools": [],
        "bgp": {},
        "flannel": {"type": "", "port": None},
        "unseen": {},
    }
    return {**base, **changes}


def network_of(*calico: dict) -> Network:
    """A cluster of three nodes with these objects of Calico."""
    labels = {"kubernetes.io/os": "linux"}
    nodes = [{"name": name, "labels": labels, "addresses": [], "machine_id": ""} for name in NAMES]
    return Network({"network": network(*calico), "nodes": nodes, "kubernetes": "v1.34.4"})
