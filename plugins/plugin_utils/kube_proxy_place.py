# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a cluster keeps kube-proxy's configuration, and whether it may be edited there; else what to change instead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from .cluster_providers import provider_of
from .containerd_edit import EditError
from .kube_proxy import KubeProxy, read_objects
from .kube_proxy_edit import KIND, configuration_of
from .kube_proxy_options import command_flags
from .kube_proxy_owners import LEVERS
from .manifests import as_list, as_mapping, metadata, name_of, pod_spec
from .yaml_edit import load_documents

# Our own DaemonSets and ConfigMaps of a rollout are no place to keep a configuration.
MANAGED_BY = "app.kubernetes.io/managed-by"
OURS = "portcullis"
# What these write is theirs: an edit is undone, or never read.
_WRITE_BACK = frozenset("openshift gke gardener addon-manager aks talos kops kind rke1 k0s static-pod".split())
_REWRITES = {
    "kubespray": "kubespray's next run writes it back: set kube_proxy_mode and kube_proxy_strict_arp in its inventory",
    "eks": "the add-on kube-proxy may write it back: set the same in its configuration values",
    "rke2": "the chart rke2-kube-proxy writes it back on an upgrade: set the same in a HelmChartConfig",
    "minikube": "minikube start writes it back: pass --extra-config=kube-proxy.mode=...",
}
_FILES = {
    "k3s": "/etc/rancher/k3s/config.yaml",
    "rke2": "/etc/rancher/rke2/config.yaml",
    "microk8s": "/var/snap/microk8s/current/args/kube-proxy",
    # A config.yaml of which nothing tells whose it is.
    "rancher": "",
}
_REPLACED_BY = {"cilium": "Cilium", "ovn-kubernetes": "OVN-Kubernetes", "calico": "Calico with eBPF"}
_GITOPS = ("argocd.argoproj.io/", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/")


@dataclass(frozen=True)
class Place:
    """Where the configuration is kept.

    kind: configmap; file (of each node, name is its path); document (a text that is in no cluster); elsewhere, with the
    reason, where it may not be edited, and the lever, what to change instead. daemon_set: its name, "" when it was not
    among the objects. flags: of its command line. warnings: by id.
    """

    kind: str
    namespace: str = ""
    name: str = ""
    key: str = ""
    daemon_set: str = ""
    owner: str = ""
    reason: str = ""
    lever: str = ""
    flags: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, str] = field(default_factory=dict)


def place_of(objects: Iterable[dict]) -> Place:
    """Return where kube-proxy's configuration is kept.

    :param objects: ConfigMaps, DaemonSets and Nodes of a cluster as the API server returns them, or what an installer
        is given.
    """
    items = [item for item in objects if not isinstance(item, dict) or not _is_ours(item)]
    nodes = [item for item in items if isinstance(item, dict) and item.get("kind") == "Node"]
    found = read_objects(item for item in items if item not in nodes and not _is_pod_of_a_daemon_set(item))
    mappings = [item for item in items if isinstance(item, dict)]
    linux = [item for item in mappings if _starts_kube_proxy(item) and not _is_windows(item)]
    node_owner = "" if linux else _node_owner(nodes) or ("" if _config_maps(mappings) else found.owner)
    reason = _reason(found, linux)
    if node_owner in _FILES and found.runs:
        place = Place("file", name=_FILES[node_owner], owner=node_owner)
    elif reason:
        place = _elsewhere(found.owner, reason)
    elif linux:
        place = _of_daemon_set(linux[0], mappings, found)
    else:
        place = _without_daemon_set(mappings, found)
    if found.place.startswith("Pod ") and found.owner not in {*_FILES, "static-pod"}:
        place = replace(place, lever="; ".join(filter(None, (place.lever, LEVERS["static-pod"]))))
    return replace(place, warnings={**_warnings(found, place.owner), **place.warnings})


def _reason(found: KubeProxy, linux: list[dict]) -> str:
    """Why there is nothing to edit, "" when that depends on the place."""
    if found.found and not found.runs:
        return f"kube-proxy is left out on purpose: {found.place}"
    if found.owner in _WRITE_BACK:
        return f"{found.owner} writes kube-proxy's configuration"
    if len(linux) > 1:
        return f"{len(linux)} DaemonSets start kube-proxy: {', '.join(sorted(map(name_of, linux)))}"
    return ""


def shadowed(desired: dict, flags: dict[str, str]) -> dict[str, str]:
    """Return the desired fields that flags of the command line outrank, with the reason, by field path.

    With C(--config) all flags are ignored but these. Source: kubernetes/kubernetes cmd/kube-proxy/app/options.go
    """
    result = {}
    if "hostnameOverride" in desired and flags.get("hostname-override"):
        result["hostnameOverride"] = "--hostname-override of the DaemonSet outranks it"
    logging = desired.get("logging")
    pairs = {
        "verbosity": "v",
        "vmodule": "vmodule",
        "format": "logging-format",
        "flushFrequency": "log-flush-frequency",
    }
    for name in logging if isinstance(logging, dict) else ():
        if pairs.get(name) in flags:
            result[f"logging.{name}"] = f"--{pairs[name]} of the DaemonSet outranks it"
    return result


def _elsewhere(owner: str, reason: str, **known) -> Place:
    return Place("elsewhere", owner=owner, reason=reason, lever=LEVERS.get(owner, ""), **known)


def _is_ours(item: dict) -> bool:
    return as_mapping(metadata(item).get("labels")).get(MANAGED_BY) == OURS


def _is_pod_of_a_daemon_set(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    owners = map(as_mapping, as_list(metadata(item).get("ownerReferences")))
    return item.get("kind") == "Pod" and any(owner.get("kind") == "DaemonSet" for owner in owners)


def _is_windows(workload: dict) -> bool:
    return "windows" in str(as_mapping(pod_spec(workload).get("nodeSelector")).get("kubernetes.io/os"))


def _container(workload: dict) -> dict:
    """The container that starts kube-proxy, empty without one."""
    for item in map(as_mapping, as_list(pod_spec(workload).get("containers"))):
        if command_flags([*as_list(item.get("command")), *as_list(item.get("args"))]) is not None:
            return item
    return {}


def _starts_kube_proxy(item: dict) -> bool:
    return item.get("kind") == "DaemonSet" and bool(_container(item))


def _flags(workload: dict) -> dict[str, str]:
    item = _container(workload)
    return command_flags([*as_list(item.get("command")), *as_list(item.get("args"))]) or {}


def _config_maps(items: list[dict]) -> list[dict]:
    return [item for item in items if item.get("kind") == "ConfigMap"]


def _node_owner(nodes: list[dict]) -> str:
    """Whose nodes these are, of those that keep the configuration in a file of each node."""
    for item in nodes:
        version = str(as_mapping(as_mapping(item.get("status")).get("nodeInfo")).get("kubeletVersion") or "")
        for name in ("k3s", "rke2"):
            if f"+{name}" in version:
                return name
        if "microk8s.io/cluster" in as_mapping(metadata(item).get("labels")):
            return "microk8s"
    return ""


def _of_daemon_set(workload: dict, items: list[dict], found: KubeProxy) -> Place:
    """Follow --config of a DaemonSet through its mounts to a key of a ConfigMap."""
    flags, namespace = _flags(workload), str(metadata(workload).get("namespace") or "kube-system")
    known = {"namespace": namespace, "daemon_set": name_of(workload), "flags": flags}
    path, owner = flags.get("config", ""), found.owner
    named = f"DaemonSet {namespace}/{name_of(workload)}"
    if as_mapping(workload.get("status")).get("desiredNumberScheduled") == 0:
        selector = as_mapping(pod_spec(workload).get("nodeSelector"))
        return _elsewhere(owner, f"{named} runs on no node, its nodeSelector is {selector}", **known)
    if not path:
        return _elsewhere(owner, f"{named} starts kube-proxy with flags, without --config", **known)
    source = _source_of(workload, path)
    if not source:
        reason = f"{path}, which {named} reads, comes from no ConfigMap"
        return _elsewhere(owner, reason, **known)
    name, key = source
    there = [item for item in _config_maps(items) if name_of(item) == name and _namespace(item) == namespace]
    if not there:
        return _elsewhere(owner, f"ConfigMap {namespace}/{name}, which {named} reads, was not found", **known)
    place = _of_config_map(there[0], Place("configmap", name=name, key=key, owner=owner, **known))
    windows = [item for item in items if _is_windows(item) and _mounts(item, name)]
    if windows:
        text = f"{', '.join(map(name_of, windows))} on Windows mounts it too: no mode but kernelspace starts there"
        place = replace(place, warnings={**place.warnings, "kube_proxy.windows": text})
    return place


def _source_of(workload: dict, path: str) -> tuple[str, str] | None:
    """Name and key of the ConfigMap behind a path in the container, None when it is something else."""
    mounts = [
        item
        for item in map(as_mapping, as_list(_container(workload).get("volumeMounts")))
        if f"{path}/".startswith(str(item.get("mountPath")).rstrip("/") + "/")
    ]
    if not mounts:
        return None
    mount = max(mounts, key=lambda item: len(str(item["mountPath"])))
    inside = path[len(str(mount["mountPath"]).rstrip("/")) :].lstrip("/")
    file = "/".join(filter(None, (str(mount.get("subPath") or ""), inside)))
    volumes = map(as_mapping, as_list(pod_spec(workload).get("volumes")))
    volume = next((item for item in volumes if item.get("name") == mount.get("name")), {})
    projected = [
        as_mapping(item).get("configMap") for item in as_list(as_mapping(volume.get("projected")).get("sources"))
    ]
    for source in map(as_mapping, [volume.get("configMap"), *projected]):
        items = {str(item.get("path")): str(item.get("key")) for item in map(as_mapping, as_list(source.get("items")))}
        if source.get("name") and (file in items or not items):
            return str(source["name"]), items.get(file, file)
    return None


def _mounts(workload: dict, name: str) -> bool:
    return any(
        as_mapping(as_mapping(item).get("configMap")).get("name") == name
        for item in as_list(pod_spec(workload).get("volumes"))
    )


def _namespace(item: dict) -> str:
    return str(metadata(item).get("namespace") or "kube-system")


def _without_daemon_set(items: list[dict], found: KubeProxy) -> Place:
    """ConfigMaps or texts alone, as an installer or a person has them."""
    for item in items:
        for note, text in found.notes.items():
            if note in {"kube_proxy.patch", "kube_proxy.wrong_key", "kube_proxy.no_configuration"}:
                return _elsewhere(found.owner, text)
        if item.get("kind") == KIND:
            reason = _unreadable(item)
            place = Place("document", owner=found.owner)
            return replace(place, kind="elsewhere", reason=reason) if reason else place
    prefix, _word, key = found.place.rpartition(" key ")
    if prefix.startswith("ConfigMap "):
        namespace, _slash, name = prefix.removeprefix("ConfigMap ").partition("/")
        place = Place("configmap", namespace, name, key, owner=found.owner)
        return _of_config_map(next(item for item in _config_maps(items) if name_of(item) == name), place)
    if found.found:
        return _elsewhere(found.owner, f"it is kept in {found.place}")
    instead = next(filter(None, (_REPLACED_BY.get(provider_of(item)) for item in items)), "")
    reason = f"no kube-proxy was found{f': {instead} takes its place' if instead else ''}"
    return _elsewhere("", reason)


def _unreadable(document: dict) -> str:
    version = str(document.get("apiVersion") or "")
    return "" if version.startswith("kubeproxy.config.k8s.io/") else f"its apiVersion is {version!r}"


def _of_config_map(item: dict, place: Place) -> Place:
    """A ConfigMap with its key, refused when an edit of the key's text would not be read."""
    text = as_mapping(item.get("data")).get(place.key)
    named = f"key {place.key} of ConfigMap {place.namespace}/{place.name}"
    reason = ""
    if item.get("immutable") is True:
        reason = f"ConfigMap {place.namespace}/{place.name} is immutable"
    elif not isinstance(text, str):
        reason = f"{named}, which kube-proxy reads, is not there; it holds {', '.join(as_mapping(item.get('data')))}"
    else:
        try:
            configuration_of(text)
            if as_mapping(load_documents(text)[0]).get("kind") != KIND:
                reason = f"{named}: the configuration is not the first document, the only one that kube-proxy reads"
        except EditError as error:
            reason = f"{named}: {error}"
    warnings = _managers(item)
    if reason:
        return replace(place, kind="elsewhere", reason=reason, lever=LEVERS.get(place.owner, ""), warnings=warnings)
    return replace(place, warnings=warnings)


def _warnings(found: KubeProxy, owner: str) -> dict[str, str]:
    text = _REWRITES.get(owner)
    return found.notes | ({"kube_proxy.rewritten": text} if text and found.found else {})


def _managers(item: dict) -> dict[str, str]:
    """Who may write the object back."""
    labels, notes = (as_mapping(metadata(item).get(key)) for key in ("labels", "annotations"))
    named = [f"{MANAGED_BY} {labels[MANAGED_BY]}"] if labels.get(MANAGED_BY) else []
    named += [key for key in {**labels, **notes} if str(key).startswith(_GITOPS)]
    owners = [
        f"{each.get('kind')} {each.get('name')}"
        for each in map(as_mapping, as_list(metadata(item).get("ownerReferences")))
    ]
    if not named and not owners:
        return {}
    return {"kube_proxy.managed": f"it is managed by {', '.join([*named, *owners])}, which may write it back"}
