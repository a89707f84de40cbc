# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube-proxy in installers' own files and objects: k3s, RKE2, OpenShift, Talos, kops, kind, k0s, kubespray, RKE1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_options import (
    Options,
    argument_words,
    parse_flags,
    read_configuration,
    read_flags,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import (
    as_list,
    as_mapping,
    mappings,
    parse_documents,
)


@dataclass(frozen=True)
class Found:
    """What an installer's file says. runs: False where it leaves kube-proxy out."""

    place: str
    options: Options
    runs: bool = True
    document: dict = field(default_factory=dict)


def read_installer(document: object, path: str = "") -> Iterator[Found]:
    """Everything that one document says about kube-proxy in an installer's own words."""
    if isinstance(document, list):
        document = _patched(document)
    if isinstance(document, dict):
        for reader in (_rancher, _openshift, _talos, _kops, _kind, _k0s, _kubespray, _rke1, _replaced):
            yield from reader(document, path)


def _patched(patches: list) -> dict:
    """A list of JSON patches as the mapping that they make."""
    result: dict = {}
    for patch in map(as_mapping, patches):
        keys = [key for key in str(patch.get("path", "")).split("/") if key]
        if patch.get("op") not in {"add", "replace"} or not keys:
            continue
        here = result
        for key in keys[:-1]:
            here = here.setdefault(key, {}) if isinstance(here.get(key, {}), dict) else {}
        here[keys[-1]] = patch.get("value")
    return result


def _rancher(document: dict, path: str) -> Iterator[Found]:
    """k3s and RKE2: config.yaml, whose arguments are a list or one text, with or without dashes."""
    name = path or "config.yaml of k3s or RKE2"
    if str(document.get("disable-kube-proxy")).lower() == "true":
        yield Found(f"{name}, disable-kube-proxy", Options(mode=""), runs=False)
    for key in ("kube-proxy-arg", "kube-proxy-arg+"):
        if key not in document:
            continue
        options = read_flags(parse_flags(argument_words(document[key])))
        mounts = " ".join(argument_words(document.get("kube-proxy-extra-mount")))
        if options.mode == "ipvs" and "/lib/modules" not in mounts and "k3s" not in path:
            note = (
                "RKE2's kube-proxy needs kube-proxy-extra-mount: /lib/modules:/lib/modules:ro, or loaded IPVS modules"
            )
            options = replace(options, notes={**options.notes, "kube_proxy.modules_mount": note})
        yield Found(f"{name}, {key}", options)


def _openshift(document: dict, _path: str) -> Iterator[Found]:
    """Network.operator.openshift.io: SDN and foreign networks have a kube-proxy, OVN-Kubernetes has none."""
    if document.get("kind") != "Network" or not str(document.get("apiVersion", "")).startswith("operator.openshift.io"):
        return
    spec = as_mapping(document.get("spec"))
    network = str(as_mapping(spec.get("defaultNetwork")).get("type", ""))
    config, deploy = as_mapping(spec.get("kubeProxyConfig")), spec.get("deployKubeProxy")
    options = read_flags(parse_flags(argument_words(as_mapping(config.get("proxyArguments")))))
    runs = network != "OVNKubernetes" or deploy is True
    notes = dict(options.notes)
    if network == "OVNKubernetes" and (deploy or config):
        notes["kube_proxy.refused"] = (
            "OVN-Kubernetes with deployKubeProxy or kubeProxyConfig is refused by the operator"
        )
    yield Found(f"Network.operator.openshift.io cluster, {network}", replace(options, notes=notes), runs)


def _talos(document: dict, _path: str) -> Iterator[Found]:
    """Talos: cluster.proxy of the machine configuration, or a document of its own."""
    proxy, place = as_mapping(as_mapping(document.get("cluster")).get("proxy")), "machine configuration, cluster.proxy"
    if document.get("kind") == "KubeProxyConfig":
        proxy, place = document, "document KubeProxyConfig"
    if not proxy:
        return
    flags = parse_flags(argument_words(as_mapping(proxy.get("extraArgs"))))
    if proxy.get("mode"):
        flags["proxy-mode"] = str(proxy["mode"])
    options = read_flags(flags)
    if as_mapping(proxy.get("config")):
        # Talos then starts it with a file, to which it adds mode and kind.
        options = read_configuration({"apiVersion": "-", "kind": "-", **proxy["config"], **_only(proxy, "mode")})
    yield Found(place, options, runs=proxy.get("disabled") is not True and proxy.get("enabled") is not False)


def _kops(document: dict, _path: str) -> Iterator[Found]:
    """kops: spec.kubeProxy of its Cluster."""
    proxy = as_mapping(as_mapping(document.get("spec")).get("kubeProxy"))
    if not proxy:
        return
    flags = {"proxy-mode": str(proxy["proxyMode"])} if proxy.get("proxyMode") else {}
    if "ipvsStrictARP" in proxy:
        flags["ipvs-strict-arp"] = str(proxy["ipvsStrictARP"]).lower()
    yield Found("kops Cluster, spec.kubeProxy", read_flags(flags), runs=proxy.get("enabled") is not False)


def _kind(document: dict, _path: str) -> Iterator[Found]:
    """kind: a patch of the kubeadm configuration is stronger than networking.kubeProxyMode."""
    if not str(document.get("apiVersion", "")).startswith("kind.x-k8s.io"):
        return
    for patch in as_list(document.get("kubeadmConfigPatches")):
        for inner in parse_documents(patch).items if isinstance(patch, str) else ():
            if isinstance(inner, dict) and inner.get("kind") == "KubeProxyConfiguration":
                yield Found("kind Cluster, kubeadmConfigPatches", read_configuration(inner), document=inner)
    mode = str(as_mapping(document.get("networking")).get("kubeProxyMode") or "")
    yield Found(
        "kind Cluster, networking.kubeProxyMode",
        read_flags({"proxy-mode": mode} if mode and mode != "none" else {}),
        runs=mode != "none",
    )


def _k0s(document: dict, _path: str) -> Iterator[Found]:
    """k0s: spec.network.kubeProxy of its ClusterConfig."""
    proxy = as_mapping(as_mapping(as_mapping(document.get("spec")).get("network")).get("kubeProxy"))
    if proxy:
        options = read_configuration({"apiVersion": "k0s", "kind": "k0s", **_only(proxy, "mode", "ipvs")})
        yield Found("k0s ClusterConfig, spec.network.kubeProxy", options, runs=proxy.get("disabled") is not True)


def _only(item: dict, *keys: str) -> dict:
    return {key: item[key] for key in keys if key in item}


def _kubespray(document: dict, _path: str) -> Iterator[Found]:
    """kubespray: variables of the inventory; its own default is ipvs."""
    if "kube_proxy_mode" in document or "kube_proxy_strict_arp" in document:
        strict = (
            {"ipvs": {"strictARP": document["kube_proxy_strict_arp"]}} if "kube_proxy_strict_arp" in document else {}
        )
        mode = document.get("kube_proxy_mode", "ipvs")
        options = read_configuration({"apiVersion": "-", "kind": "-", "mode": mode, **strict})
        yield Found("kubespray inventory, kube_proxy_mode", options, runs=document.get("kube_proxy_remove") is not True)


def _rke1(document: dict, _path: str) -> Iterator[Found]:
    """RKE1: services.kubeproxy of cluster.yml."""
    proxy = as_mapping(as_mapping(document.get("services")).get("kubeproxy"))
    if proxy:
        flags = parse_flags(argument_words(as_mapping(proxy.get("extra_args"))))
        yield Found("cluster.yml, services.kubeproxy.extra_args", read_flags(flags))


def _replaced(document: dict, _path: str) -> Iterator[Found]:
    """Networks that take kube-proxy's place, or switch it off themselves."""
    for item in mappings(document):
        network = as_mapping(as_mapping(item.get("spec")).get("calicoNetwork"))
        if network.get("kubeProxyManagement") == "Enabled" and network.get("linuxDataplane") == "BPF":
            yield Found("Installation, kubeProxyManagement", Options(mode=""), runs=False)
        if str(item.get("kubeProxyReplacement")).lower() in {"true", "strict"}:
            yield Found("Cilium, kubeProxyReplacement", Options(mode=""), runs=False)
    skipped = as_list(document.get("skipPhases")) + as_list(as_mapping(document.get("proxy")).get("skipPhases"))
    if "addon/kube-proxy" in skipped:
        yield Found("kubeadm, skipPhases addon/kube-proxy", Options(mode=""), runs=False)
