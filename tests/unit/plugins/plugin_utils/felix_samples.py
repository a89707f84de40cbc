# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster with Felix in memory, whose requests are counted, and what its nodes show."""

from __future__ import annotations

import copy

from ansible_collections.portcullis.fleet.plugins.module_utils.packet_filters import packed
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster import ClusterError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import ConflictError, RefusedError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_objects import read_network
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import DAEMON_SETS, NODES, PODS, Reader
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_cluster import CRDS
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_object import known_schema

from tests.unit.plugins.plugin_utils.netfilter_samples import KUBE_PROXY_FILTER, save

FELIX = "felixconfigurations"
LABELS = {"k8s-app": "calico-node"}


def crd(version: tuple[int, int], *, group: str = "crd.projectcalico.org", api: str = "v1") -> dict:
    """A CRD with the rules of a version."""
    rules = {**known_schema(version)["properties"]}
    if version >= (3, 32):
        rules["nodeSelector"] = {"type": "string", "maxLength": 1024}
    schema = {"openAPIV3Schema": {"properties": {"spec": {"properties": rules}}}}
    return {
        "metadata": {"name": f"{FELIX}.{group}"},
        "spec": {"group": group, "versions": [{"name": api, "schema": schema}]},
    }


def calico_node(version: tuple[int, int], environment: dict[str, str] | None = None) -> dict:
    """The DaemonSet."""
    variables = {"FELIX_HEALTHENABLED": "true", **(environment or {})}
    container = {
        "name": "calico-node",
        "image": f"docker.io/calico/node:v{version[0]}.{version[1]}.0",
        "env": [{"name": name, "value": value} for name, value in variables.items()],
    }
    template = {"metadata": {"labels": dict(LABELS)}, "spec": {"containers": [container]}}
    return {
        "metadata": {"name": "calico-node", "namespace": "kube-system", "labels": dict(LABELS)},
        "spec": {"selector": {"matchLabels": dict(LABELS)}, "template": template},
    }


class FakeApi:
    """What ClusterApi offers, over dicts."""

    def __init__(
        self,
        nodes: list[str],
        *,
        version: tuple[int, int] = (3, 31),
        environment: dict | None = None,
        **default: object,
    ) -> None:
        self.calls, self.writes = 0, []
        self.groups = {"apps", "crd.projectcalico.org"}
        self.kubernetes = "v1.34.4"
        self.store: dict[str, dict[str, dict]] = {FELIX: {}, NODES.plural: {}, PODS.plural: {}, DAEMON_SETS.plural: {}}
        self.store[CRDS.plural] = {crd(version)["metadata"]["name"]: crd(version)}
        self.store[DAEMON_SETS.plural]["calico-node"] = calico_node(version, environment)
        for name in nodes:
            self.store[NODES.plural][name] = {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}
            pod = {"metadata": {"name": f"calico-node-{name}", "labels": dict(LABELS)}, "spec": {"nodeName": name}}
            self.store[PODS.plural][f"calico-node-{name}"] = pod
        if default:
            self.add("default", **default)

    def add(self, name: str, **spec: object) -> None:
        """A FelixConfiguration of somebody else's."""
        kind = {"apiVersion": "crd.projectcalico.org/v1", "kind": "FelixConfiguration"}
        self.store[FELIX][name] = {**kind, "metadata": {"name": name, "resourceVersion": "1"}, "spec": spec}

    @property
    def felix(self) -> dict[str, dict]:
        """The specs of the FelixConfigurations."""
        return {name: item["spec"] for name, item in self.store[FELIX].items()}

    def version(self) -> str:
        self.calls += 1
        return self.kubernetes

    def reader(self) -> Reader:
        self.calls += 1
        reader = Reader(self._get, self._list)
        reader.groups |= self.groups
        return reader

    def network(self, reader: Reader) -> dict:
        return read_network(reader)

    def _get(self, resource, name: str, namespace: str = "") -> tuple[int, dict]:
        self.calls += 1
        if resource.plural == FELIX and resource.group not in self.groups:
            raise ClusterError("does not answer as an API server does")
        found = self.store.get(resource.plural, {}).get(name)
        return (200, copy.deepcopy(found)) if found else (404, {"message": "not found"})

    def _list(self, resource, **_options: object) -> tuple[int, list]:
        self.calls += 1
        return 200, copy.deepcopy(list(self.store.get(resource.plural, {}).values()))

    def get(self, resource, name: str, namespace: str = "") -> dict | None:
        status, found = self._get(resource, name)
        return found if status == 200 else None

    def list(self, resource, **options: object) -> list[dict]:
        _field, _equals, node = str(options.get("field_selector", "")).partition("=")
        return [item for item in self._list(resource)[1] if not node or item["spec"]["nodeName"] == node]

    def create(self, resource, body: dict) -> dict:
        if body["metadata"]["name"] in self.store[resource.plural]:
            raise ConflictError("it is there", 409)
        return self._write("create", resource, body)

    def replace(self, resource, body: dict) -> dict:
        present = self.store[resource.plural][body["metadata"]["name"]]
        if body["metadata"].get("resourceVersion") != present["metadata"].get("resourceVersion"):
            raise ConflictError("it has changed", 409)
        return self._write("replace", resource, body)

    def _write(self, verb: str, resource, body: dict) -> dict:
        self.calls += 1
        self.writes.append(f"{verb} {body['metadata']['name']}")
        body = copy.deepcopy(body)
        body["metadata"]["resourceVersion"] = str(self.calls)
        self.store[resource.plural][body["metadata"]["name"]] = body
        return body

    def patch(self, resource, name: str, body: dict) -> dict:
        if name not in self.store[resource.plural]:
            raise RefusedError(f"{name} is not there", 404)
        item = copy.deepcopy(self.store[resource.plural][name])
        for part, changes in body["metadata"].items():
            merged = {**item["metadata"].get(part, {}), **changes}
            item["metadata"][part] = {key: value for key, value in merged.items() if value is not None}
        return self._write("patch", resource, item)

    def delete(self, resource, name: str) -> None:
        self.calls += 1
        self.writes.append(f"delete {name}")
        self.store[resource.plural].pop(name, None)


def reading(mode: str = "Insert", action: str = "ACCEPT", *, bits: int = 0x1B0000, age_s: float = 0.5) -> dict:
    """What felix_node reads of a node whose Felix runs so."""
    jump = '-A FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD'
    forward = KUBE_PROXY_FILTER.strip().splitlines()
    rules = [jump, *forward] if mode == "Insert" else [forward[0], jump, *forward[1:]]
    accepted = '-m comment --comment "cali:S93hcgKJrXEqnTfs" -m mark --mark 0x10000/0x10000 -j'
    rules += [
        f"-A FORWARD {accepted} {action}",
        f'-A cali-FORWARD -m comment --comment "cali:W_vvds1Nw3n9QE2f" -j MARK --set-xmark 0x0/{bits:#x}',
    ]
    mangle = [
        '-A PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING',
        f"-A cali-PREROUTING {accepted} {action}",
    ]
    texts = [packed(save(filter="\n".join(rules), mangle="\n".join(mangle)))]
    return {
        "file": None,
        "file_path": "/etc/calico/felix.cfg",
        "readiness": {"status": 200, "error": ""},
        "ages_s": [age_s],
        "packet_filters": {
            "saves": texts,
            "nft_json": [],
            "ip_rules": [],
            "programs": ["calico-node"],
            "units": [],
            "unseen": "",
        },
    }
