# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Calico was installed, from its objects or manifests: version, calico-node's environment, Felix objects, pools."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_pools import Pool, read_pools
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_effective import Effective, EnvValue, effective
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_object import API_VERSIONS
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import BY_CONFIG, Version, parse_version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import (
    as_list,
    as_mapping,
    is_expression,
    mappings,
    metadata,
    name_of,
    parse_documents,
    pod_spec,
    render_text,
    template_variables,
)

MANIFEST, OPERATOR, VALUES, OBJECTS = "manifest", "operator", "values", "objects"
# The data plane that an Installation names, as the operator writes it into FelixConfiguration default.
_DATAPLANES = {
    "bpf": {"bpfEnabled": True},
    "nftables": {"nftablesMode": "Enabled"},
    "iptables": {"nftablesMode": "Disabled"},
}
# The oldest whose settings are known (felix_parameters).
OLDEST = (3, 0)
# Who installed Calico, by what only that installer writes.
_DISTRIBUTIONS = (
    ("kops", re.compile(r"\bkops\b")),
    ("kubespray", re.compile(r"kubespray|\bcalico_(?:felix|iptables|node)_\w+:")),
    ("microk8s", re.compile(r"/var/snap/microk8s/")),
    ("rke2", re.compile(r"\brke2[-/]|rancher/hardened-|system_default_registry|rancher/rke2")),
    ("gardener", re.compile(r"gardener\.cloud/")),
    ("gke", re.compile(r"gke\.gcr\.io|cloud\.google\.com/gke")),
    ("addon-manager", re.compile(r"addonmanager\.kubernetes\.io/mode")),
    ("k0s", re.compile(r"\bk0s\b|k0sproject\.io|\benvVars:\s*\n\s*[\"']?FELIX_")),
    ("oke", re.compile(r"\bociname\b|\"oci\"")),
)
# Where an override in the environment is changed, by installer. {name}: object spelling, {variable}: FELIX_...
_LEVERS = {
    "kops": "set spec.networking.calico.{name} with kops edit cluster, then kops update cluster --yes",
    "kubespray": "set {variable} in calico_node_extra_envs (or calico_felix_chaininsertmode, calico_iptables_backend) "
    "of the inventory and run kubespray's network plugin again",
    "rke2": "set calico.felix{upper} in valuesContent of the HelmChartConfig rke2-canal in kube-system",
    "microk8s": "remove {variable} from /var/snap/microk8s/current/args/cni-network/cni.yaml and apply that file",
    "k0s": "set {variable} in spec.network.calico.envVars of k0s.yaml and restart the k0s controllers",
    "gardener": "Gardener writes this DaemonSet back: set what spec.networking.providerConfig of the Shoot offers",
    "addon-manager": "take {variable} out of the manifest in /etc/kubernetes/addons: the add-on manager writes it back",
    "gke": "GKE manages this DaemonSet and writes it back: no edit lasts",
}


@dataclass(frozen=True)
class CalicoInstall:
    """What the objects say of an installation.

    method: manifest, operator, values (of a chart or installer), objects (only Calico's own), or "" for none of these.
    variant: canal or calico. environment: of the calico-node container. unread: what may set more variables there.
    host_file: calico-node sees the host's /etc/calico, so that felix.cfg there counts.
    implied: FelixConfiguration fields that the operator keeps. notes: what else is to be known, by id.
    """

    method: str = ""
    variant: str = ""
    distribution: str = ""
    version: Version | None = None
    namespace: str = ""
    environment: dict[str, EnvValue] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    host_file: bool = False
    objects: tuple[dict, ...] = ()
    implied: dict[str, object] = field(default_factory=dict)
    pools: tuple[Pool, ...] = ()
    notes: dict[str, str] = field(default_factory=dict)

    def effective(self, **where: object) -> Effective:
        """Felix's configuration of this installation; C(version) may be given where the objects do not name it.

        :param where: as for felix_effective.effective: version, file_text, node, labels.
        """
        objects = list(self.objects)
        if self.implied:
            default = next((item for item in objects if metadata(item).get("name") == "default"), {})
            spec = {**as_mapping(default.get("spec")), **self.implied}
            objects = [item for item in objects if item is not default]
            objects.append({**default, "metadata": {**metadata(default), "name": "default"}, "spec": spec})
        version = where.pop("version", None) or self.version
        return effective(version, environment=self.environment, objects=objects, **where)

    @property
    def policy_only(self) -> bool:
        """Whether another plugin gives the pods their addresses and routes."""
        backend, prefix = (
            self.environment.get("CALICO_NETWORKING_BACKEND"),
            self.environment.get("FELIX_INTERFACEPREFIX"),
        )
        return (
            "calico.policy_only" in self.notes
            or bool(backend and backend.value == "none")
            or bool(prefix and prefix.value and "cali" not in prefix.value)
        )

    @property
    def etcd_endpoints(self) -> str:
        """Where calico-node keeps its objects when that is etcd, "" when it is the Kubernetes API."""
        kinds = [self.environment.get(name) for name in ("FELIX_DATASTORETYPE", "DATASTORE_TYPE")]
        kind = next((item.value for item in kinds if item and item.value), "")
        endpoints = self.environment.get("ETCD_ENDPOINTS")
        if kind.startswith("etcd") or (endpoints and endpoints.value and not kind):
            return (endpoints and endpoints.value) or "not named in its environment"
        return ""

    def lever(self, name: str) -> str:
        """Where the environment's value of a setting is changed or taken away."""
        variable = BY_CONFIG[name.lower()].environment if name.lower() in BY_CONFIG else f"FELIX_{name.upper()}"
        if self.method == OPERATOR:
            return f"the operator owns this environment: set {name} in FelixConfiguration default"
        text = _LEVERS.get(self.distribution, "")
        if not text:
            daemon = "canal" if self.variant == "canal" else "calico-node"
            text = f"kubectl -n {self.namespace or 'kube-system'} set env daemonset/{daemon} {{variable}}-"
        return text.format(name=name, variable=variable, upper=name[:1].upper() + name[1:])


def read_install(text: str) -> CalicoInstall:
    """Read manifests, values or templates. Nothing in them is an error: what cannot be judged is a note."""
    documents = parse_documents(text)
    if not documents.items and documents.is_template:
        return _read_template(text)
    install = read_objects(documents.items, source_text=text)
    if documents.error:
        install = replace(install, notes={**install.notes, "calico.unreadable": documents.error})
    return install


def read_objects(items: Iterable[object], source_text: str = "") -> CalicoInstall:
    """Read objects as the API server returns them.

    :param source_text: what they were read from, for the marks of an installer in it.
    """
    documents = [item for item in items if isinstance(item, dict)]
    values = [inner for item in documents if (inner := _chart_values(item))]
    text = source_text or render_text(documents)
    config_maps = {name_of(item): as_mapping(item.get("data")) for item in documents if item.get("kind") == "ConfigMap"}
    workload, container = _calico_node(documents)
    environment, unread = _environment(container, config_maps, _place(workload))
    environment = {**_mapped_environment([*documents, *values]), **environment}
    installation = _installation(documents, values)
    felix = [
        _felix_object(item)
        for item in documents
        if item.get("kind") == "FelixConfiguration" and item.get("apiVersion") in API_VERSIONS
    ]
    felix += [_default_object(value) for value in [*values, *documents] if _sets_default(value)]
    pools, pool_notes = read_pools(documents, environment, installation)
    version = _version(documents, container)
    return CalicoInstall(
        method=_method(workload, installation, environment, felix or pools),
        variant=_variant(workload),
        distribution=next((name for name, mark in _DISTRIBUTIONS if mark.search(text)), ""),
        version=version,
        namespace=_namespace(workload, installation),
        environment=environment,
        unread=tuple(unread),
        host_file=_sees_host_file(workload, container),
        objects=tuple(felix),
        implied=_DATAPLANES.get(str(_network(installation).get("linuxDataplane", "")).lower(), {}),
        pools=tuple(pools),
        notes={**_object_notes(documents, installation, workload), **pool_notes},
    )


def _chart_values(item: dict) -> dict:
    """The values that a HelmChartConfig carries as text."""
    content = as_mapping(item.get("spec")).get("valuesContent")
    if not isinstance(content, str):
        return {}
    return next((as_mapping(value) for value in parse_documents(content).items), {})


def _calico_node(documents: list[dict]) -> tuple[dict, dict]:
    """The workload that runs Felix and its container; empty mappings without one."""
    candidates = [
        (workload, container)
        for document in documents
        for workload in mappings(document)
        for container in as_list(pod_spec(workload).get("containers"))
        if isinstance(container, dict)
    ]
    for workload, container in candidates:
        if container.get("name") == "calico-node":
            return workload, container
    for workload, container in candidates:
        if any(name_of(as_mapping(item)).startswith("FELIX_") for item in as_list(container.get("env"))):
            return workload, container
    return {}, {}


def _place(workload: dict) -> str:
    kind, name = workload.get("kind") or "container", metadata(workload).get("name") or "calico-node"
    return f"{kind} {name}"


def _environment(container: dict, config_maps: dict, place: str) -> tuple[dict[str, EnvValue], list[str]]:
    """The container's variables, the later one winning as kubelet has it, and the sources that were not read."""
    found, unread = {}, []
    for entry in map(as_mapping, as_list(container.get("envFrom"))):
        prefix = str(entry.get("prefix") or "")
        for kind in ("configMapRef", "secretRef"):
            name = name_of(as_mapping(entry.get(kind)))
            if name and kind == "configMapRef" and name in config_maps:
                origin = f"{place}, envFrom ConfigMap {name}"
                found |= {f"{prefix}{key}": EnvValue(_text(value), origin) for key, value in config_maps[name].items()}
            elif name:
                unread.append(f"{'ConfigMap' if kind == 'configMapRef' else 'Secret'} {name}")
    for entry in map(as_mapping, as_list(container.get("env"))):
        if name_of(entry):
            found[name_of(entry)] = _variable(entry, config_maps, found, place)
    return found, unread


def _variable(entry: dict, config_maps: dict, earlier: dict[str, EnvValue], place: str) -> EnvValue:
    source = as_mapping(entry.get("valueFrom"))
    reference = as_mapping(source.get("configMapKeyRef"))
    if reference:
        value = as_mapping(config_maps.get(name_of(reference))).get(str(reference.get("key")))
        return EnvValue(None if value is None else _text(value), f"{place}, ConfigMap {name_of(reference)}")
    if source:
        return EnvValue(None, f"{place}, {next(iter(source))}")
    value = _text(entry.get("value"))
    for name in re.findall(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", value):
        known = earlier.get(name, EnvValue(None, "")).value
        if known is None:
            return EnvValue(None, place)
        value = value.replace(f"$({name})", known)
    return EnvValue(None if is_expression(value) else value, place)


def _text(value: object) -> str:
    """A value as a container gets it: unquoted true in YAML is the word."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _mapped_environment(documents: list[dict]) -> dict[str, EnvValue]:
    """Variables in an installer's own configuration: FELIX_X: value, and keys that stand for one."""
    found = {}
    for document in documents:
        for item in mappings(document):
            for key, value in item.items():
                if isinstance(value, dict | list) or not isinstance(key, str):
                    continue
                parameter = BY_CONFIG.get(_felix_key(key))
                if parameter:
                    found[parameter.environment] = EnvValue(_text(value), f"chart value {key}")
                elif re.fullmatch(r"FELIX_[A-Z0-9_]+", key):
                    found[key] = EnvValue(_text(value), f"installer's setting {key}")
    return found


def _felix_key(key: str) -> str:
    """What a chart's or an inventory's key names in Felix's spelling: felixX of RKE2, calico_felix_x of kubespray."""
    name = re.sub(r"^(?:calico_)?felix_?|^calico_(?=iptables_backend$)", "", key)
    return name.replace("_", "").lower() if name != key else ""


def _installation(documents: list[dict], values: list[dict]) -> dict:
    """The spec of the operator's Installation, from the object or from the chart's values; empty without one."""
    for item in documents:
        if item.get("kind") == "Installation" and str(item.get("apiVersion", "")).startswith("operator.tigera.io/"):
            return as_mapping(item.get("spec")) or {"variant": "Calico"}
    for value in [*values, *documents]:
        if isinstance(value.get("installation"), dict):
            return value["installation"]
    return {}


def _network(installation: dict) -> dict:
    return as_mapping(installation.get("calicoNetwork"))


def _felix_object(item: dict) -> dict:
    """The parts that Felix reads, each of the kind it has to be."""
    data = metadata(item)
    kept = {"name": str(data.get("name") or ""), "annotations": as_mapping(data.get("annotations"))}
    return {"metadata": {**data, **kept}, "spec": as_mapping(item.get("spec"))}


def _sets_default(values: dict) -> bool:
    """Whether the operator's chart makes FelixConfiguration default."""
    return as_mapping(values.get("defaultFelixConfiguration")).get("enabled") is True


def _default_object(values: dict) -> dict:
    spec = {key: value for key, value in values["defaultFelixConfiguration"].items() if key != "enabled"}
    return {"metadata": {"name": "default"}, "spec": spec}


def _version(documents: list[dict], container: dict) -> Version | None:
    """The image's, else what Calico noted; an image may be tagged by a site's own count, which is below Calico's."""
    texts = [str(container.get("image", "")).rpartition("/")[2].partition(":")[2]]
    notes = (as_mapping(item.get("spec")) for item in documents if item.get("kind") == "ClusterInformation")
    texts += [str(spec.get("calicoVersion", "")) for spec in notes]
    versions = map(parse_version, texts)
    return next((version for version in versions if version and version >= OLDEST), None)


def _method(workload: dict, installation: dict, environment: dict, own: object) -> str:
    owners = [as_mapping(owner).get("apiVersion", "") for owner in as_list(metadata(workload).get("ownerReferences"))]
    if installation or any(str(owner).startswith("operator.tigera.io/") for owner in owners):
        return OPERATOR
    if workload:
        return MANIFEST
    return VALUES if environment else OBJECTS if own else ""


def _variant(workload: dict) -> str:
    names = {name_of(as_mapping(item)) for item in as_list(pod_spec(workload).get("containers"))}
    return (
        "canal"
        if "kube-flannel" in names or "canal" in str(metadata(workload).get("name"))
        else "calico"
        if workload
        else ""
    )


def _namespace(workload: dict, installation: dict) -> str:
    return str(
        metadata(workload).get("namespace") or ("calico-system" if installation else "kube-system" if workload else "")
    )


def _sees_host_file(workload: dict, container: dict) -> bool:
    volumes = {
        name_of(item): as_mapping(item.get("hostPath")).get("path")
        for item in map(as_mapping, as_list(pod_spec(workload).get("volumes")))
    }
    for mount in map(as_mapping, as_list(container.get("volumeMounts"))):
        if str(mount.get("mountPath", "")).rstrip("/") in {"/etc/calico", "/etc/calico/felix.cfg"}:
            return volumes.get(name_of(mount)) is not None
    return False


def _object_notes(documents: list[dict], installation: dict, workload: dict) -> dict[str, str]:
    notes = {}
    for item in documents:
        kind, version = str(item.get("kind", "")), str(item.get("apiVersion", ""))
        if kind in {"ipPool", "policy", "profile", "hostEndpoint", "bgpPeer", "workloadEndpoint"} and version == "v1":
            notes["calico.old_api"] = f"{kind} of apiVersion v1 is an object of calicoctl 1 and 2: not judged"
        network = as_mapping(item.get("data")).get("cni_network_config")
        if kind == "ConfigMap" and isinstance(network, str) and re.search(r'"type"\s*:\s*"host-local"', network):
            notes["calico.host_local"] = (
                "pod addresses come from each node's podCIDR (host-local): pools have no effect"
            )
    if installation and not workload:
        notes["calico.operator"] = (
            "installed by the Tigera operator: calico-node is in calico-system, pools and data plane belong to the "
            "Installation, other Felix settings to FelixConfiguration default"
        )
    if as_mapping(installation.get("cni")).get("type") not in (None, "Calico"):
        notes["calico.policy_only"] = (
            f"pod addresses come from {installation['cni']['type']}: Calico enforces policy only and has no pools"
        )
    return notes


def _read_template(text: str) -> CalicoInstall:
    """What a chart's template tells: which variables it sets; their values come from the chart's values."""
    note = {"calico.template": "a template: the values of its variables are known once it is rendered"}
    if not re.search(r"\bFELIX_|\bcalico-node\b", text):
        return CalicoInstall(notes=note)
    environment = {name: _template_value(value) for name, value in template_variables(text).items()}
    canal = re.search(r"^\s*-?\s*name:\s*kube-flannel\s*$", text, re.MULTILINE)
    namespace = re.search(r"^\s*namespace:\s*([\w-]+)\s*$", text, re.MULTILINE)
    return CalicoInstall(
        method=MANIFEST,
        variant="canal" if canal else "calico",
        distribution=next((name for name, mark in _DISTRIBUTIONS if mark.search(text)), ""),
        version=parse_version(next(iter(re.findall(r"calico/node:(\S+)", text)), "")),
        namespace=namespace[1] if namespace else "",
        environment=environment,
        notes=note,
    )


def _template_value(value: str | None) -> EnvValue:
    if value is None:
        return EnvValue(None, "template, under a condition")
    return EnvValue(None if is_expression(value) or not value else value, f"template, {value}" if value else "template")
