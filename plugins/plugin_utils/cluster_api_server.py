# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the API servers of a cluster really listen, from Service C(kubernetes) and its endpoints.

The kubeconfig may name a load balancer; what pods and nodes reach is the Service's target port.
"""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import (
    ENDPOINT_SLICES,
    ENDPOINTS,
    SERVICE_OF_SLICE,
    SERVICES,
    Reader,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_list, as_mapping

NAME, NAMESPACE = "kubernetes", "default"
NO_API_SERVER = {"service_port": None, "target_port": None, "endpoints": []}


def read_api_server(reader: Reader) -> dict:
    """C({service_port, target_port, endpoints}); ports are null and the list is empty where they cannot be read.

    endpoints: C([{address, port}]), the port being the real secure port of the API server at that address.
    """
    spec = as_mapping(reader.one(SERVICES, NAME, NAMESPACE).get("spec"))
    port = _secure_port(spec)
    found = list(_of_slices(reader)) or list(_of_endpoints(reader))
    unique = sorted({(address, number) for address, number in found if isinstance(number, int)})
    return {
        "service_port": port.get("port"),
        "target_port": port.get("targetPort"),
        "endpoints": [{"address": address, "port": number} for address, number in unique],
    }


def _secure_port(item: dict) -> dict:
    """The port named https, else the first."""
    ports = [as_mapping(each) for each in as_list(item.get("ports"))]
    return next((each for each in ports if each.get("name") == "https"), ports[0] if ports else {})


def _of_slices(reader: Reader) -> Iterator[tuple[str, object]]:
    label = f"{SERVICE_OF_SLICE}={NAME}"
    for item in reader.list(ENDPOINT_SLICES, namespace=NAMESPACE, label_selector=label):
        for endpoint in map(as_mapping, as_list(item.get("endpoints"))):
            for address in as_list(endpoint.get("addresses")):
                yield str(address), _secure_port(item).get("port")


def _of_endpoints(reader: Reader) -> Iterator[tuple[str, object]]:
    """Before Kubernetes 1.21 there may be no slices."""
    for subset in map(as_mapping, as_list(reader.one(ENDPOINTS, NAME, NAMESPACE).get("subsets"))):
        for address in map(as_mapping, as_list(subset.get("addresses"))):
            yield str(address.get("ip")), _secure_port(subset).get("port")
