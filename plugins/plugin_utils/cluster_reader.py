# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of a cluster by kind, each list asked for once; what is refused is noted and is no error."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_text import one_line

# (status, object), or (status, list of objects); a refusal is an object with a message.
Answer = tuple[int, dict]
Get = Callable[..., Answer]
ListAll = Callable[..., tuple[int, dict | list]]


@dataclasses.dataclass(frozen=True)
class Resource:
    """A kind of objects. group: "" for the core API. spec: what is kept of their spec, empty for all of it."""

    group: str
    version: str
    plural: str
    kind: str
    spec: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """C(apiVersion) of such an object."""
        return f"{self.group}/{self.version}" if self.group else self.version


DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
NODES = Resource("", "v1", "nodes", "Node")
PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints")
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
SERVICE_OF_SLICE = "kubernetes.io/service-name"


class Reader:
    """Objects by C(get) and C(list_all) of a connection; what is refused is noted in C(unseen).

    C(groups) are the API groups of the cluster, empty where they cannot be read.
    """

    def __init__(self, get: Get, list_all: ListAll) -> None:
        """Read by these two: one object by resource, name and namespace; all objects of a resource."""
        self._get, self._list_all = get, list_all
        self._lists: dict[tuple, list[dict]] = {}
        self.groups: set[str] = set()
        self.unseen: dict[str, str] = {}

    def list(self, resource: Resource, **options: object) -> list[dict]:
        """All objects of a kind; none where the cluster does not have the kind.

        :param options: C(namespace), C(label_selector), and C(limit) for one page instead of all.
        """
        key = (resource, *sorted(options.items()))
        if key not in self._lists:
            status, found = self._list_all(resource, **options)
            if not isinstance(found, list):
                self._note(resource.plural, status, found)
                found = []
            self._lists[key] = found
        return self._lists[key]

    def one(self, resource: Resource, name: str, namespace: str) -> dict:
        """An object, empty where there is none."""
        status, found = self._get(resource, name, namespace)
        if status == 200:
            return found
        self._note(f"{resource.plural} {namespace}/{name}", status, found)
        return {}

    def _note(self, what: str, status: int, answer: dict) -> None:
        if status != 404:
            self.unseen[what] = one_line(answer.get("message") or f"status {status}")
