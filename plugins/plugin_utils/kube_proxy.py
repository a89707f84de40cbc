# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube-proxy's configuration as it is: mode and strictARP, where they are kept, who owns that place, what to edit.

Reading only. What runs on a node may differ until kube-proxy is restarted: its C(:10249/proxyMode) tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_installers import read_installer
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_options import (
    Options,
    command_flags,
    parse_flags,
    read_configuration,
    read_flags,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_owners import LEVERS, owner_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import (
    as_list,
    as_mapping,
    mappings,
    metadata,
    parse_documents,
    pod_spec,
    render_text,
)

# Which key of which ConfigMap kube-proxy reads, as its DaemonSet names it.
_CONFIG_KEYS = {
    ("kube-system", "kube-proxy"): "config.conf",
    ("kube-system", "kube-proxy-config"): "config",
    ("openshift-kube-proxy", "proxy-config"): "kube-proxy-config.yaml",
}
_HASH = "kubeadm.kubernetes.io/component-config.hash"


@dataclass(frozen=True)
class KubeProxy:
    """What a text or objects say of kube-proxy.

    found: there is anything about it. runs: False where it is left out on purpose. mode: "" when not decided here.
    place: where mode and strictARP are kept. owner: who writes that place. lever: what to edit instead or how to make
    an edit live. notes: why an edit there would not count, and other catches, by id. document: the configuration.
    """

    found: bool = False
    runs: bool = True
    mode: str = ""
    mode_is_set: bool = False
    strict_arp: bool = False
    strict_arp_is_set: bool = False
    masquerade_bit: int = 14
    place: str = ""
    owner: str = ""
    lever: str = ""
    notes: dict[str, str] = field(default_factory=dict)
    document: dict = field(default_factory=dict)


@dataclass(frozen=True)
class _Place:
    """A place that says something, the stronger first. rank: lower wins."""

    rank: int
    place: str
    options: Options
    document: dict = field(default_factory=dict)
    runs: bool = True


def read_kube_proxy(text: str, path: str = "") -> KubeProxy:
    """Read manifests, a configuration, an installer's file or an argument file; nothing in them is an error.

    :param path: of a node's file, where it tells whose it is.
    """
    if _is_argument_file(text):
        words = [word for line in text.splitlines() if not line.lstrip().startswith("#") for word in line.split()]
        place = _Place(0, path or "argument file", read_flags(parse_flags(words)))
        return _result([place], owner_of(text, path, is_argument_file=True))
    documents = parse_documents(text)
    result = read_objects(documents.items, source_text=text, path=path)
    if documents.error and documents.is_template:
        note = {"kube_proxy.template": "a template: its options are known once it is rendered"}
    else:
        note = {"kube_proxy.unreadable": documents.error} if documents.error else {}
    return replace(result, notes={**result.notes, **note})


def read_objects(items: Iterable[object], *, source_text: str = "", path: str = "") -> KubeProxy:
    """Read objects as the API server returns them: ConfigMaps, DaemonSets, Pods, and installers' own kinds."""
    documents = list(items)
    maps = [item for item in documents if isinstance(item, dict) and _holds_configuration(item)]
    places = [*_workloads(documents, maps), *_installers(documents, path)]
    named = next((place.options.config_file for place in places if place.options.config_file), "")
    for item in maps:
        places += _config_map(item, named)
    places += [
        _Place(2, f"document {item['kind']}", read_configuration(item), item)
        for item in documents
        if isinstance(item, dict) and item.get("kind") == "KubeProxyConfiguration"
    ]
    return _result(places, owner_of(source_text or render_text(documents), path))


def _is_argument_file(text: str) -> bool:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return bool(lines) and all(line.startswith("--") and not line.startswith("---") for line in lines)


def _holds_configuration(item: dict) -> bool:
    """Whether an object, or a patch of one, is a ConfigMap of kube-proxy."""
    data = as_mapping(item.get("data"))
    named = "kube-proxy" in str(metadata(item).get("name")) or "openshift-kube-proxy" in str(
        metadata(item).get("namespace")
    )
    inside = any(isinstance(value, str) and "KubeProxyConfiguration" in value for value in data.values())
    is_patch = (
        not item.get("kind") and not metadata(item) and bool({"config.conf", "kube-proxy-config.yaml"} & set(data))
    )
    return inside or is_patch or (named and bool(data) and item.get("kind") in (None, "ConfigMap"))


def _config_map(item: dict, config_file: str) -> Iterator[_Place]:
    """What a ConfigMap decides: the key that kube-proxy reads, if there is one."""
    name = str(metadata(item).get("name") or "kube-proxy")
    namespace = str(metadata(item).get("namespace") or "kube-system")
    data = {key: value for key, value in as_mapping(item.get("data")).items() if isinstance(value, str)}
    holders = {key: value for key, value in data.items() if "KubeProxyConfiguration" in value}
    wanted = config_file.rpartition("/")[2] or _CONFIG_KEYS.get((namespace, name)) or next(iter(holders), "")
    place, notes = f"ConfigMap {namespace}/{name}", {}
    if _HASH in as_mapping(metadata(item).get("annotations")):
        notes["kube_proxy.hash"] = "after an edit by hand kubeadm upgrade takes the configuration for the user's own"
    if not item.get("kind"):
        notes["kube_proxy.patch"] = "a merge patch replaces the whole text of the key: what it leaves out is lost"
    stray = [key for key in holders if key != wanted]
    if stray:
        notes["kube_proxy.wrong_key"] = (
            f"key {', '.join(stray)} is not read: kube-proxy is started with the file of key {wanted}"
        )
    if wanted not in data and not stray:
        notes["kube_proxy.no_configuration"] = f"it holds only {', '.join(data)}: an edit of it changes no option"
        yield _Place(9, place, Options(mode="", notes=notes))
        return
    key = wanted if wanted in data else stray[0]
    parsed = parse_documents(data[key])
    document = next((inner for inner in parsed.items if isinstance(inner, dict)), {})
    if parsed.error:
        notes["kube_proxy.unreadable"] = f"key {key}: {parsed.error}: kube-proxy does not load it"
    options = read_configuration(document) if document else Options(mode="")
    mode = options.mode if key == wanted else ""
    yield _Place(1, f"{place} key {key}", replace(options, mode=mode, notes={**options.notes, **notes}), document)


def _workloads(documents: list, maps: list[dict]) -> Iterator[_Place]:
    """The containers that start kube-proxy on Linux nodes."""
    for document in documents:
        for workload in mappings(document):
            spec = pod_spec(workload)
            if not spec or "windows" in str(as_mapping(spec.get("nodeSelector")).get("kubernetes.io/os")):
                continue
            for container in map(as_mapping, as_list(spec.get("containers"))):
                flags = command_flags([*as_list(container.get("command")), *as_list(container.get("args"))])
                if flags is not None:
                    kind, name = workload.get("kind") or "container", metadata(workload).get("name") or "kube-proxy"
                    yield _Place(0, f"{kind} {name}, flags", _with_file(read_flags(flags), maps))
                    break


def _with_file(options: Options, maps: list[dict]) -> Options:
    if options.config_file and not maps:
        note = f"the file {options.config_file} decides, which was not read"
        return replace(options, notes={**options.notes, "kube_proxy.file_unread": note})
    return options


def _installers(documents: list, path: str) -> Iterator[_Place]:
    for document in documents:
        for found in read_installer(document, path):
            yield _Place(3, found.place, found.options, found.document, found.runs)


def _result(places: list[_Place], owner: str) -> KubeProxy:
    """Join the places: the first that decides the mode gives the answer, all give their notes."""
    ordered = sorted(places, key=lambda place: (place.rank, not place.options.mode_is_set))
    notes: dict[str, str] = {}
    for place in ordered:
        notes |= place.options.notes
    if not ordered:
        return KubeProxy(notes=notes)
    deciding = next((place for place in ordered if place.options.mode or not place.runs), ordered[0])
    options = deciding.options
    strict = next((item for item in ordered if item.rank == deciding.rank and item.options.strict_arp_is_set), deciding)
    if owner == "k3s":
        notes.pop("kube_proxy.modules_mount", None)
    if options.mode == "ipvs" and owner == "openshift":
        notes["kube_proxy.openshift_ipvs"] = "IPVS is not supported on OpenShift: set proxy-mode to iptables"
    return KubeProxy(
        found=True,
        runs=deciding.runs,
        mode=options.mode if deciding.runs else "",
        mode_is_set=options.mode_is_set,
        strict_arp=strict.options.strict_arp,
        strict_arp_is_set=strict.options.strict_arp_is_set,
        masquerade_bit=options.masquerade_bit,
        place=deciding.place,
        owner=owner,
        lever=LEVERS.get(owner, ""),
        notes=notes,
        document=deciding.document,
    )
