# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which objects of a cluster decide Calico and kube-proxy, and what of them leaves the cluster.

No Secret is read. Of a container's variables only those of Felix and Calico are kept, of a ConfigMap only what such a
variable or kube-proxy reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import (
    CONFIG_MAPS,
    DAEMON_SETS,
    PODS,
    SERVICES,
    Reader,
    Resource,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_object import ANNOTATION
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_options import command_flags
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import (
    as_list,
    as_mapping,
    metadata,
    name_of,
    pod_spec,
)

# Static pods of kube-proxy are the same on each node: one page shows their kinds. Labels of RKE2 and GKE, and of kops.
STATIC_PODS = 50
STATIC_POD_LABELS = ("component=kube-proxy", "k8s-app=kube-proxy")
KEPT_VARIABLE = re.compile(r"FELIX_|CALICO_|IP(?:_|6|$)|DATASTORE_TYPE$|ETCD_ENDPOINTS$", re.IGNORECASE)
# libcalico takes its credentials from CALICO_ETCD_PASSWORD, CALICO_ETCD_KEY and the like, too.
SECRET_VARIABLE = re.compile(r"PASSWORD|TOKEN|SECRET|INLINE|_KEY$", re.IGNORECASE)
# A name and password in an address.
USER_INFO = re.compile(r"(?<=//)[^/@,\s]*@")
CNI_CONFIG = "cni_network_config"
HASH = "kubeadm.kubernetes.io/component-config.hash"
SERVICE_CIDRS = Resource("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR")
INSTALLATIONS = Resource(
    "operator.tigera.io", "v1", "installations", "Installation", ("calicoNetwork", "cni", "variant")
)
OPENSHIFT_NETWORKS = Resource(
    "operator.openshift.io",
    "v1",
    "networks",
    "Network",
    ("deployKubeProxy", "kubeProxyConfig", "defaultNetwork", "serviceNetwork"),
)
# Groups that have Calico's own objects, the one that Felix reads first.
CALICO_GROUPS = (("crd.projectcalico.org", "v1"), ("projectcalico.org", "v3"))
CALICO_KINDS = (
    ("felixconfigurations", "FelixConfiguration", ()),
    ("ippools", "IPPool", ("cidr", "blockSize", "disabled", "nodeSelector", "ipipMode", "vxlanMode", "allowedUses")),
    ("clusterinformations", "ClusterInformation", ("calicoVersion",)),
)


def read_network(reader: Reader) -> dict:
    """C({calico, kube_proxy, service_ranges, unseen}): redacted objects, ranges as text, refusals by what was asked."""
    groups = reader.groups
    daemon_sets = [_workload(item, DAEMON_SETS) for item in reader.list(DAEMON_SETS)]
    calico = [item for item in daemon_sets if runs_calico(item)]
    proxies = [item for item in daemon_sets if runs_kube_proxy(item)]
    if not proxies and DAEMON_SETS.plural not in reader.unseen:
        proxies = _static_pods(reader)
    config_maps = [_proxy_config_map(item) for item in _named_config_maps(reader, proxies)]
    networks = reader.list(OPENSHIFT_NETWORKS) if OPENSHIFT_NETWORKS.group in groups else []
    kube_proxy = [*proxies, *config_maps, *(_own(item, OPENSHIFT_NETWORKS) for item in networks)]
    calico += [*_variables_config_maps(reader, calico), *_calico_objects(reader, groups)]
    return {
        "calico": calico,
        "kube_proxy": kube_proxy,
        "service_ranges": _service_ranges(reader, networks, groups) if calico else [],
        "unseen": dict(reader.unseen),
    }


def _containers(workload: dict) -> Iterator[dict]:
    for key in ("initContainers", "containers"):
        yield from map(as_mapping, as_list(pod_spec(workload).get(key)))


def runs_calico(workload: dict) -> bool:
    """Whether it runs Felix on Linux nodes."""
    return not _is_windows(workload) and any(
        item.get("name") == "calico-node" or any(name_of(entry).startswith("FELIX_") for entry in item.get("env", []))
        for item in _containers(workload)
    )


def runs_kube_proxy(workload: dict) -> bool:
    """Whether a container of it starts kube-proxy on Linux nodes."""
    return not _is_windows(workload) and any(_is_kube_proxy(item) for item in _containers(workload))


def _is_windows(workload: dict) -> bool:
    return as_mapping(pod_spec(workload).get("nodeSelector")).get("kubernetes.io/os") == "windows"


def _is_kube_proxy(container: dict) -> bool:
    words = [*as_list(container.get("command")), *as_list(container.get("args"))]
    return container.get("name") == "kube-proxy" or command_flags(words) is not None


def _workload(item: dict, resource: Resource) -> dict:
    """A DaemonSet or a Pod with what decides its settings. Annotations go: one holds all that was ever applied."""
    spec, data = pod_spec(item), metadata(item)
    pods = {
        "nodeSelector": as_mapping(spec.get("nodeSelector")),
        "initContainers": [_container(each) for each in map(as_mapping, as_list(spec.get("initContainers")))],
        "containers": [_container(each) for each in map(as_mapping, as_list(spec.get("containers")))],
        "volumes": [_volume(each) for each in map(as_mapping, as_list(spec.get("volumes")))],
    }
    owners = [
        {key: each.get(key) for key in ("apiVersion", "kind", "name")} for each in as_list(data.get("ownerReferences"))
    ]
    kept = {"name": data.get("name"), "namespace": data.get("namespace"), "labels": as_mapping(data.get("labels"))}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {**kept, "ownerReferences": owners},
        "spec": pods if resource is PODS else {"template": {"spec": pods}},
    }


def _volume(item: dict) -> dict:
    """A volume; of what it comes from only the host's path or the ConfigMap's name."""
    host, config = as_mapping(item.get("hostPath")), as_mapping(item.get("configMap"))
    kept = {"hostPath": {"path": host.get("path")}} if host else {"configMap": {"name": config.get("name")}}
    return {"name": item.get("name"), **(kept if host or config else {})}


def _container(item: dict) -> dict:
    keys = ("command", "args") if _is_kube_proxy(item) else ()
    words = {key: [USER_INFO.sub("", str(word)) for word in as_list(item.get(key))] for key in keys}
    mounts = [{key: each.get(key) for key in ("name", "mountPath")} for each in as_list(item.get("volumeMounts"))]
    return {
        "name": item.get("name"),
        "image": item.get("image"),
        **words,
        "env": [_variable(entry) for entry in as_list(item.get("env")) if _is_kept(name_of(entry))],
        "envFrom": as_list(item.get("envFrom")),
        "volumeMounts": mounts,
    }


def _is_kept(variable: str) -> bool:
    return KEPT_VARIABLE.match(variable) is not None or variable == CNI_CONFIG.upper()


def _variable(entry: dict) -> dict:
    """A variable; of one that comes from elsewhere than a ConfigMap only that it does."""
    source = as_mapping(entry.get("valueFrom"))
    if not source:
        return {"name": entry["name"], "value": _shown(entry["name"], str(entry.get("value") or ""))}
    return {
        "name": entry["name"],
        "valueFrom": {key: value if key == "configMapKeyRef" else {} for key, value in source.items()},
    }


def _static_pods(reader: Reader) -> list[dict]:
    """One static pod of kube-proxy for each way in which it is started."""
    for label in STATIC_POD_LABELS:
        pods = reader.list(PODS, namespace="kube-system", label_selector=label, limit=STATIC_PODS)
        found = {}
        for item in (_workload(each, PODS) for each in pods):
            if runs_kube_proxy(item):
                words = [each.get("command", []) + each.get("args", []) for each in _containers(item)]
                found.setdefault(repr(words), item)
        if found:
            return list(found.values())
    return []


def _named_config_maps(reader: Reader, workloads: list[dict]) -> Iterator[dict]:
    """The ConfigMaps that these workloads mount, each once."""
    names = dict.fromkeys(
        (metadata(item).get("namespace"), name_of(as_mapping(volume.get("configMap"))))
        for item in workloads
        for volume in pod_spec(item)["volumes"]
        if "configMap" in volume
    )
    for namespace, name in names:
        found = reader.one(CONFIG_MAPS, name, namespace)
        if found:
            yield found


def _proxy_config_map(item: dict) -> dict:
    """kube-proxy's ConfigMap with its configuration; a kubeconfig beside it goes, its key stays."""
    data = metadata(item)
    texts = {
        key: text if "KubeProxyConfiguration" in text else "" for key, text in as_mapping(item.get("data")).items()
    }
    marks = {HASH: ""} if HASH in as_mapping(data.get("annotations")) else {}
    kept = {"name": data.get("name"), "namespace": data.get("namespace"), "labels": as_mapping(data.get("labels"))}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**kept, "annotations": marks}, "data": texts}


def _variables_config_maps(reader: Reader, workloads: list[dict]) -> Iterator[dict]:
    """The ConfigMaps that calico-node's variables come from, with these keys only; an absent one sets nothing."""
    wanted: dict[tuple[str, str], set[str]] = {}
    for item in workloads:
        namespace = metadata(item).get("namespace")
        for container in _containers(item):
            for entry in container["env"]:
                reference = as_mapping(as_mapping(entry.get("valueFrom")).get("configMapKeyRef"))
                if reference:
                    wanted.setdefault((namespace, name_of(reference)), set()).add(str(reference.get("key")))
            for entry in container["envFrom"] if container["name"] == "calico-node" else []:
                if "configMapRef" in entry:
                    wanted.setdefault((namespace, name_of(entry["configMapRef"])), set())
    for (namespace, name), keys in wanted.items():
        status = len(reader.unseen)
        found = reader.one(CONFIG_MAPS, name, namespace)
        if len(reader.unseen) == status:
            data = {
                key: _shown(key, str(text))
                for key, text in as_mapping(found.get("data")).items()
                if key in keys or KEPT_VARIABLE.match(key)
            }
            named = {"name": name, "namespace": namespace}
            yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": data}


def _shown(name: str, text: str) -> str:
    """What of a value may leave the cluster."""
    if name.lower() == CNI_CONFIG:
        return _host_local(text)
    return "" if SECRET_VARIABLE.search(name) else USER_INFO.sub("", text)


def _host_local(text: str) -> str:
    """What counts of a CNI configuration: whether Calico's pools give the addresses."""
    match = re.search(r'"type"\s*:\s*"host-local"', text)
    return match[0] if match else ""


def _calico_objects(reader: Reader, groups: set[str]) -> Iterator[dict]:
    group, version = next((item for item in CALICO_GROUPS if item[0] in groups), ("", ""))
    for plural, kind, spec in CALICO_KINDS if group else ():
        resource = Resource(group, version, plural, kind, spec)
        for item in reader.list(resource):
            yield _own(item, resource)
    if INSTALLATIONS.group in groups:
        for item in reader.list(INSTALLATIONS):
            yield _own(item, INSTALLATIONS)


def _own(item: dict, resource: Resource) -> dict:
    """An object of Calico or OpenShift; of its annotations those that Felix reads."""
    data, spec = metadata(item), as_mapping(item.get("spec"))
    notes = {key: text for key, text in as_mapping(data.get("annotations")).items() if key.startswith(ANNOTATION)}
    kept = {"name": data.get("name"), "creationTimestamp": data.get("creationTimestamp"), "annotations": notes}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": kept,
        "spec": {key: value for key, value in spec.items() if not resource.spec or key in resource.spec},
    }


def _service_ranges(reader: Reader, networks: list[dict], groups: set[str]) -> list[str]:
    """The ranges of services; before ServiceCIDR (Kubernetes 1.33) an address of one, which shows an overlap too."""
    found = [str(text) for item in networks for text in as_list(as_mapping(item.get("spec")).get("serviceNetwork"))]
    if not found and SERVICE_CIDRS.group in groups:
        items = reader.list(SERVICE_CIDRS)
        found = [str(text) for item in items for text in as_list(as_mapping(item.get("spec")).get("cidrs"))]
    if found:
        return found
    service = as_mapping(reader.one(SERVICES, "kubernetes", "default").get("spec"))
    return [str(text) for text in as_list(service.get("clusterIPs"))]
