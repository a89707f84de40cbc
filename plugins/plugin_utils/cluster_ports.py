# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a cluster decides which ports its nodes need of each other: addresses, endpoints, pools, flannel's port."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable

from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster import Cluster
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_list, as_mapping, metadata
from ansible_collections.portcullis.fleet.plugins.plugin_utils.network_requirements import Network
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_text import one_line

CALICO_GROUP = ("crd.projectcalico.org", "v1")
# Where Calico and flannel write which address of a node they use. It need not be its InternalIP.
CALICO_ADDRESSES = {4: "projectcalico.org/IPv4Address", 6: "projectcalico.org/IPv6Address"}
ROUTE_REFLECTOR = "projectcalico.org/RouteReflectorClusterID"
FLANNEL_BACKEND = "flannel.alpha.coreos.com/backend-type"
FLANNEL_ADDRESS = "flannel.alpha.coreos.com/public-ip"
# flannel's ConfigMap: of its own manifest, of older ones, of canal, of RKE2.
FLANNEL_CONFIG = (
    ("kube-flannel", "kube-flannel-cfg"),
    ("kube-system", "kube-flannel-cfg"),
    ("kube-system", "canal-config"),
    ("kube-system", "rke2-canal-config"),
)


def is_address(text: object) -> bool:
    """Whether a text is an IP address."""
    try:
        ipaddress.ip_address(str(text))
    except ValueError:
        return False
    return True


def interface_of(text: object) -> tuple[str, str]:
    """C((address, network)) of an address with or without a prefix; both empty where it is none."""
    try:
        found = ipaddress.ip_interface(str(text))
    except ValueError:
        return "", ""
    return str(found.ip), str(found.network) if "/" in str(text) else ""


def node_places(node: dict) -> dict:
    """A Node's addresses: C({name, internal, calico, networks, flannel, flannel_backend, reflector}).

    C(internal), C(calico) and C(networks) are by IP version, as text, "4" and "6".
    """
    notes = as_mapping(metadata(node).get("annotations"))
    listed = as_list(as_mapping(node.get("status")).get("addresses"))
    internal: dict[str, str] = {}
    for item in listed:
        if item.get("type") == "InternalIP" and is_address(item.get("address")):
            internal.setdefault(str(ipaddress.ip_address(item["address"]).version), item["address"])
    found = {str(version): interface_of(notes.get(key, "")) for version, key in CALICO_ADDRESSES.items()}
    return {
        "name": metadata(node).get("name", ""),
        "internal": internal,
        "calico": {version: address for version, (address, _network) in found.items() if address},
        "networks": {version: network for version, (_address, network) in found.items() if network},
        "flannel": notes.get(FLANNEL_ADDRESS, "") if is_address(notes.get(FLANNEL_ADDRESS)) else "",
        "flannel_backend": str(notes.get(FLANNEL_BACKEND, "")),
        "reflector": bool(notes.get(ROUTE_REFLECTOR)),
    }


def slice_endpoints(items: list[dict]) -> list[dict]:
    """C([{address, port}]) of EndpointSlices, each once. An endpoint that is not ready counts: it shall be reached."""
    found = [
        {"address": address, "port": port["port"]}
        for item in items
        for endpoint in as_list(item.get("endpoints"))
        for address in as_list(endpoint.get("addresses"))
        for port in as_list(item.get("ports"))
        if isinstance(port.get("port"), int) and port.get("protocol", "TCP") == "TCP"
    ]
    return [item for index, item in enumerate(found) if item not in found[:index]]


def endpoints_of(item: dict) -> list[dict]:
    """The same of an Endpoints object, for a cluster without EndpointSlices."""
    return slice_endpoints(
        [
            {
                "endpoints": [{"addresses": [each.get("ip")]} for each in as_list(part.get(key))],
                "ports": part.get("ports"),
            }
            for part in as_list(item.get("subsets"))
            for key in ("addresses", "notReadyAddresses")
        ]
    )


def flannel_backend(config_map: dict) -> dict:
    """C({type, port}) of flannel's ConfigMap; port None where it does not say."""
    try:
        backend = as_mapping(json.loads(as_mapping(config_map.get("data")).get("net-conf.json", ""))).get("Backend")
    except (ValueError, TypeError):
        return {"type": "", "port": None}
    port = as_mapping(backend).get("Port")
    return {"type": str(as_mapping(backend).get("Type", "")), "port": port if isinstance(port, int) else None}


class PortsCluster(Cluster):
    """A cluster that is asked for what decides the ports. Reads only."""

    def read(self, network: Network) -> dict:
        """Everything: C({nodes, api, typha, pools, bgp, flannel, unseen}).

        :param network: what a cluster probe says of Calico.
        :raises ClusterError: the API server does not answer, or refuses to list nodes.
        """
        unseen: dict[str, str] = {}
        status, nodes = self._pages(self._core.list_node)
        found = {
            "nodes": [node_places(item) for item in nodes] if status == 200 else [],
            "api": self._endpoints("kubernetes", "default", unseen),
            "typha": [],
            "pools": [],
            "bgp": {},
            "flannel": {"type": "", "port": None},
            "unseen": unseen,
        }
        if status != 200:
            unseen["nodes"] = one_line(nodes.get("message") or status)
        if network.has_calico:
            found["typha"] = self._endpoints("calico-typha", network.install.namespace or "kube-system", unseen)
            found["pools"] = [as_mapping(item.get("spec")) for item in self._calico("ippools", unseen)]
            bgp = [
                item for item in self._calico("bgpconfigurations", unseen) if metadata(item).get("name") == "default"
            ]
            found["bgp"] = as_mapping(bgp[0].get("spec")) if bgp else {}
        if any(item["flannel_backend"] for item in found["nodes"]):
            found["flannel"] = self._flannel()
        return found

    def _endpoints(self, service: str, namespace: str, unseen: dict[str, str]) -> list[dict]:
        discovery = self._client.DiscoveryV1Api(self._api)
        status, answer = self._call(
            discovery.list_namespaced_endpoint_slice, namespace, label_selector=f"kubernetes.io/service-name={service}"
        )
        if status == 200 and answer["items"]:
            return slice_endpoints(answer["items"])
        status, answer = self._call(self._core.read_namespaced_endpoints, service, namespace)
        if status == 200:
            return endpoints_of(answer)
        if status != 404:
            unseen[f"endpoints {namespace}/{service}"] = one_line(answer.get("message") or status)
        return []

    def _calico(self, plural: str, unseen: dict[str, str]) -> list[dict]:
        read: Callable = self._client.CustomObjectsApi(self._api).list_cluster_custom_object
        status, items = self._pages(read, *CALICO_GROUP, plural)
        if status == 200:
            return items
        if status != 404:
            unseen[plural] = one_line(items.get("message") or status)
        return []

    def _flannel(self) -> dict:
        """The backend of the first ConfigMap that there is; k3s has none, and flannel's own port then."""
        for namespace, name in FLANNEL_CONFIG:
            status, answer = self._call(self._core.read_namespaced_config_map, name, namespace)
            if status == 200:
                return flannel_backend(answer)
        return {"type": "", "port": None}
