"""What a lab consists of: a YAML file or the default, checked completely before anything starts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from tests.lab import containerd
from tests.lab.errors import LabError
from tests.lab.images import OPTIONAL

CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"
KINDS = ("container", "vm")
PROXY_MODES = ("iptables", "nftables", "ipvs")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
# A host name that also fits the kernel's 15 characters of an interface name with a prefix.
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class Node:
    """One machine of the lab."""

    name: str
    kind: str = "container"
    """`container`, or `vm`: a machine with a kernel of its own, which needs seconds more and 1 GiB."""
    cluster: bool = True
    """False: a plain host, which runs no kubelet."""
    containerd: str = "debian"
    """`debian` (1.6), `none`, or a line that is built when it is asked for: containerd.LINES."""
    config_toml: str | None = None
    """The text of /etc/containerd/config.toml, used as it stands; None: the default of that containerd."""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    """`key[=value]:Effect`, as kubectl takes them."""
    images: tuple[str, ...] = OPTIONAL
    """What containerd holds besides the sandbox image and kube-proxy's."""

    def __post_init__(self) -> None:
        """Refuse what could not work."""
        if not isinstance(self.name, str) or not _NODE_NAME.fullmatch(self.name):
            raise LabError(f"node {self.name!r}: expected 1 to 12 of a-z, 0-9 and -, not starting or ending with -")
        where = f"node {self.name}"
        _one_of(f"{where}: kind", self.kind, KINDS)
        _one_of(f"{where}: containerd", self.containerd, containerd.CHOICES)
        if not isinstance(self.cluster, bool):
            raise LabError(f"{where}: cluster: found {self.cluster!r}, expected true or false")
        if not isinstance(self.config_toml, str | None):
            raise LabError(f"{where}: config_toml: found {self.config_toml!r}, expected a text")
        if not isinstance(self.labels, Mapping):
            raise LabError(f"{where}: labels: found {self.labels!r}, expected a mapping")
        for image in self.images:
            _one_of(f"{where}: images", image, OPTIONAL)
        for taint in self.taints:
            parse_taint(taint)
        for key, value in self.labels.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise LabError(f"{where}: label {key!r}: {value!r}: expected two strings; quote the value")
        if self.cluster and self.containerd == "none":
            raise LabError(f"{where}: a cluster node needs a containerd; expected `cluster: false` beside `none`")
        if not self.cluster and (self.labels or self.taints):
            raise LabError(f"{where}: labels and taints need `cluster: true`; a plain host has no Node object")

    @property
    def control_plane(self) -> bool:
        """Whether the node has the role's label (the lab's API server runs beside the nodes, not on one)."""
        return CONTROL_PLANE_LABEL in self.labels


@dataclass(frozen=True, kw_only=True)
class Topology:
    """All nodes, and what concerns the cluster as a whole."""

    nodes: tuple[Node, ...]
    proxy_mode: str = "iptables"

    def __post_init__(self) -> None:
        """Refuse doubled names and unknown modes."""
        _one_of("proxy_mode", self.proxy_mode, PROXY_MODES)
        names = [node.name for node in self.nodes]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise LabError(f"node names must differ; more than once: {', '.join(doubled)}")
        containers = [node.name for node in self.nodes if node.cluster and node.kind == "container"]
        if self.proxy_mode == "ipvs" and containers:
            raise LabError(
                f"proxy_mode ipvs: {', '.join(containers)} has the host's kernel, which may lack IPVS; "
                "expected `kind: vm` for every cluster node"
            )


def _one_of(what: str, found: object, expected: tuple[str, ...]) -> None:
    if found not in expected:
        raise LabError(f"{what}: found {found!r}, expected one of: {', '.join(expected)}")


def parse_taint(text: str) -> dict[str, str]:
    """`key[=value]:Effect` as an entry of a Node's spec.taints."""
    match = re.fullmatch(r"([^=:]+)(?:=([^:]*))?:([A-Za-z]+)", text)
    if match is None or match.group(3) not in _EFFECTS:
        raise LabError(f"taint {text!r}: expected key[=value]:Effect with an effect of {', '.join(_EFFECTS)}")
    key, value, effect = match.groups()
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def _read(kind: type, where: str, value: object, convert: Mapping[str, Any]) -> Any:
    """Make a dataclass from a mapping, with the keys checked against its fields."""
    if not isinstance(value, Mapping):
        raise LabError(f"{where}: found {type(value).__name__}, expected a mapping")
    known = [entry.name for entry in fields(kind)]
    unknown = sorted(str(key) for key in value if key not in known)
    if unknown:
        raise LabError(f"{where}: unknown key {', '.join(unknown)}; expected: {', '.join(known)}")
    return kind(**{key: convert.get(key, lambda item: item)(item) for key, item in value.items()})


def _strings(where: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise LabError(f"{where}: found {value!r}, expected a list of strings")
    return tuple(value)


def parse_node(value: object, where: str = "node") -> Node:
    """A node from its YAML mapping (or from what the lab's state keeps of it)."""
    if not isinstance(value, Mapping) or "name" not in value:
        raise LabError(f"{where}: found {value!r}, expected a mapping with `name`")
    where = f"{where} {value['name']}"
    convert = {key: lambda item, key=key: _strings(f"{where}: {key}", item) for key in ("taints", "images")}
    # Unquoted, YAML takes 2.2 for a number.
    convert["containerd"] = lambda item: str(item) if isinstance(item, float) else item
    return _read(Node, where, value, convert)


def parse(text: str) -> Topology:
    """A topology from YAML text; LabError names the key that is wrong."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise LabError(f"topology: not YAML: {error}") from error
    nodes = value.get("nodes") if isinstance(value, Mapping) else None
    if not isinstance(nodes, list) or not nodes:
        raise LabError("topology: expected a mapping with `nodes`, a list of at least one node")
    convert = {"nodes": lambda items: tuple(parse_node(item, f"nodes[{index}]") for index, item in enumerate(items))}
    return _read(Topology, "topology", value, convert)


DEFAULT = Topology(
    nodes=(
        Node(name="cp1", labels={CONTROL_PLANE_LABEL: ""}, taints=(f"{CONTROL_PLANE_LABEL}:NoSchedule",)),
        Node(name="w1"),
        Node(name="w2"),
        Node(name="h1", cluster=False),
    )
)


def load(path: Path) -> Topology:
    """The topology of a file."""
    try:
        return parse(path.read_text())
    except OSError as error:
        raise LabError(f"topology {path}: {error.strerror}") from error
