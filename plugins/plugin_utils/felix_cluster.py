# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster says of Felix, in a number of requests that does not grow with its nodes but by pages of lists."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable

from ansible_collections.portcullis.fleet.plugins.plugin_utils import calico_install, kube_proxy
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_install import CalicoInstall
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import ClusterApi
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_objects import CALICO_GROUPS, runs_calico
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import DAEMON_SETS, NODES, PODS, Resource
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_desired import Ground
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_effective import (
    SELECTOR_SINCE,
    Effective,
    dataplane,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_object import known_schema
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import Version, parse_version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_stage import (
    DEFAULT,
    without_ours,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy import KubeProxy
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_mapping, metadata, name_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_known import Felix, felix_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.rollout import RolloutError

CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
# Says which group calico-node reads, where a cluster has both (Calico 3.32).
_GROUP_VARIABLE = "CALICO_API_GROUP"
_KUBELET_DROP_BIT, _KUBELET_DROPS_UNTIL = 0x8000, (1, 28)


@dataclasses.dataclass(frozen=True)
class FelixCluster:
    """Felix and its objects as they are now. objects: FelixConfigurations, with those of a change under way.

    daemon_set: of calico-node. pods: of it, listed with C(pods_of) (namespace and label selector). schema: the rules of
    C(spec) in this cluster's CRD, else those known of the version.
    """

    resource: Resource
    objects: list[dict]
    install: CalicoInstall
    proxy: KubeProxy
    nodes: dict[str, dict]
    daemon_set: dict
    pods: list[dict]
    pods_of: dict[str, str]
    schema: dict
    kubernetes: Version | None

    @property
    def default(self) -> dict | None:
        """FelixConfiguration default."""
        return self.named(DEFAULT)

    def named(self, name: str) -> dict | None:
        """A FelixConfiguration by its name."""
        return next((item for item in self.objects if name_of(item) == name), None)

    @functools.cached_property
    def felix_nodes(self) -> list[str]:
        """The nodes that run calico-node."""
        return sorted({name for pod in self.pods if (name := pod["spec"].get("nodeName")) in self.nodes})

    @property
    def nftables(self) -> bool | None:
        """Whether kube-proxy uses nftables, which Felix 3.32 follows; None where that is not decided in the cluster."""
        return self.proxy.mode == "nftables" if self.proxy.mode else None

    @property
    def ipvs(self) -> bool:
        """Whether Felix has to mark endpoints."""
        return self.proxy.mode == "ipvs"

    @functools.cached_property
    def others(self) -> list[dict]:
        """The FelixConfigurations as they would be without a change under way."""
        return without_ours(self.objects)

    def can_scope(self) -> bool:
        """Whether one object with a nodeSelector can carry a change; of two that match a node the older one counts."""
        theirs = [name_of(item) for item in self.others]
        return (
            "nodeSelector" in self.schema["properties"]
            and self.install.version is not None
            and self.install.version >= SELECTOR_SINCE
            and all(name == DEFAULT or name.startswith("node.") for name in theirs)
        )

    def effective(self, objects: Iterable[dict], node: str = "") -> Effective:
        """Felix's configuration on a node with these objects; what every node has without one."""
        labels = as_mapping(metadata(self.nodes.get(node, {})).get("labels"))
        return dataclasses.replace(self.install, objects=tuple(objects)).effective(node=node, labels=labels)

    def felix(self, config: Effective) -> Felix:
        """What decides about Felix's mark bits."""
        return felix_of(self.install.version, config, nftables=self.nftables, ipvs=self.ipvs)

    def ground(self) -> Ground:
        """What decides whether a setting can be had, without a change under way."""
        config = self.effective(self.others)
        others = {"kube-proxy": 1 << self.proxy.masquerade_bit}
        if self.kubernetes is not None and self.kubernetes < _KUBELET_DROPS_UNTIL:
            others["kubelet"] = _KUBELET_DROP_BIT
        plane = dataplane(config, nftables=self.nftables).kind
        return Ground(self.install.version, self.kubernetes, self.schema, self.felix(config), plane, others)


def read_felix_cluster(api: ClusterApi) -> FelixCluster:
    """Read everything that decides Felix's configuration.

    :raises RolloutError: there is no Felix, or it does not read the API server's objects.
    :raises ClusterError: the API server does not answer, or refuses what has to be read.
    """
    kubernetes = parse_version(api.version())
    reader = api.reader()
    network = api.network(reader)
    install = calico_install.read_objects(network["calico"])
    resource = _resource(reader.groups, install)
    for what in ("network", "API groups", DAEMON_SETS.plural, resource.plural):
        if why := network["unseen"].get(what):
            raise RolloutError(f"{what} cannot be read: {why}: use a kubeconfig of an administrator")
    workloads = [item for item in reader.list(DAEMON_SETS) if runs_calico(item)]
    if not workloads:
        raise RolloutError("no DaemonSet runs calico-node: this cluster has no Felix that its API server knows of")
    if install.etcd_endpoints:
        raise RolloutError(
            f"calico-node keeps its objects in etcd ({install.etcd_endpoints}): set them with calicoctl, by node first"
        )
    workload = workloads[0]
    labels = as_mapping(as_mapping(workload["spec"].get("selector")).get("matchLabels"))
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    pods_of = {"namespace": workload["metadata"]["namespace"], "label_selector": selector}
    crd = reader.one(CRDS, f"{resource.plural}.{resource.group}", "")
    schema = _spec_schema(crd, resource.version) or known_schema(install.version or (99, 0))
    return FelixCluster(
        resource=resource,
        objects=[{"apiVersion": resource.api_version, "kind": resource.kind, **item} for item in reader.list(resource)],
        install=install,
        proxy=kube_proxy.read_objects(network["kube_proxy"]),
        nodes={name_of(item): item for item in api.list(NODES)},
        daemon_set={"apiVersion": DAEMON_SETS.api_version, "kind": DAEMON_SETS.kind, **workload},
        pods=api.list(PODS, **pods_of),
        pods_of=pods_of,
        schema={"properties": {}, **schema},
        kubernetes=kubernetes,
    )


def _resource(groups: set[str], install: CalicoInstall) -> Resource:
    wanted = install.environment.get(_GROUP_VARIABLE)
    served = [item for item in CALICO_GROUPS if item[0] in groups]
    if not served:
        raise RolloutError("this cluster has no FelixConfigurations (crd.projectcalico.org or projectcalico.org)")
    named = [item for item in served if wanted and wanted.value and wanted.value.partition("/")[0] == item[0]]
    group, version = (named or served)[0]
    return Resource(group, version, "felixconfigurations", "FelixConfiguration")


def _spec_schema(crd: dict, version: str) -> dict:
    """The rules of C(spec) in a CRD, empty where it has none."""
    for item in as_mapping(crd.get("spec")).get("versions") or []:
        if item.get("name") == version:
            schema = as_mapping(as_mapping(item.get("schema")).get("openAPIV3Schema"))
            spec = as_mapping(as_mapping(schema.get("properties")).get("spec"))
            return spec if spec.get("properties") else {}
    return {}
