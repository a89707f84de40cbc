"""What all kinds of nodes have in common: an address, cached parts, the files that make a machine a node of this lab.

A kind of node is a class that fills in Machine's `prepare`, `boot` and `_detach` (README.md, "Another kind of node").
"""

import json
import secrets
import shutil
import tomllib
from abc import ABC, abstractmethod
from dataclasses import dataclass

from tests.lab import cgroups, containerd, pki
from tests.lab.controlplane import SERVER
from tests.lab.namespace import GATEWAY, NETWORK_PREFIX, Namespace
from tests.lab.parts import Parts
from tests.lab.paths import SOURCE
from tests.lab.state import Store
from tests.lab.topology import Node

_KUBERNETES_PKI = "etc/kubernetes/pki"


@dataclass(frozen=True)
class Address:
    """What a node's index gives it."""

    index: int

    @property
    def node(self) -> str:
        """Its address on the lab's bridge."""
        return f"10.77.0.{10 + self.index}"

    @property
    def pods(self) -> str:
        """The network of its pods."""
        return f"10.244.{self.index}.0/24"


def uses_systemd_cgroups(config_toml: str) -> bool:
    """Whether a containerd configuration says `SystemdCgroup = true` for runc: the kubelet has to do the same."""
    try:
        plugins = tomllib.loads(config_toml).get("plugins", {})
        runtimes = [plugin.get("containerd", {}).get("runtimes", {}) for plugin in plugins.values()]
        return any(runtime.get("runc", {}).get("options", {}).get("SystemdCgroup") is True for runtime in runtimes)
    except (tomllib.TOMLDecodeError, AttributeError):  # a broken file is a test's own wish
        return False


class Machine(ABC):
    """A node of the lab. Its own files are made in `upper`, which lies over what the nodes share."""

    shares_kernel: bool
    """Whether its kernel is the host's, whose settings it may not write."""

    def __init__(self, node: Node, index: int, namespace: Namespace, store: Store, parts: Parts) -> None:
        """Nothing is made yet."""
        self._node, self._namespace, self._store, self._parts = node, namespace, store, parts
        self._address = Address(index)
        self._process = f"node-{node.name}"
        self._directory = store.directory / "nodes" / node.name
        self._upper = self._directory / "upper"
        self._kubelet = self._upper / "var/lib/kubelet"

    @abstractmethod
    def prepare(self) -> None:
        """Make its files on disk."""

    @abstractmethod
    def boot(self) -> None:
        """Start it; return without waiting."""

    @abstractmethod
    def _detach(self) -> None:
        """Take away what lies outside its directory; works on a node that is half made, too."""

    def remove(self) -> None:
        """End its processes by its cgroup, take its files away; works on a node that is half made, too."""
        cgroup = self._namespace.cgroup(self._process)
        cgroups.kill(cgroup)
        cgroups.remove(cgroup)
        self._detach()
        self._namespace.run(["ip", "route", "flush", self._address.pods])
        if self._directory.exists():
            shutil.rmtree(self._directory)

    @property
    def _config_toml(self) -> str:
        return self._node.config_toml or containerd.default_config(self._node.containerd)

    def _write(self, name: str, text: str | bytes, mode: int = 0o644) -> None:
        """A file of the node."""
        pki.write(self._upper / name, text, mode)

    def _write_own_files(self) -> None:
        """All that tells this node from the others, and the marks of what it is to be without."""
        self._write_host_files()
        if self._node.containerd == "none":
            gone = ("usr/sbin/runc", "etc/containerd/config.toml", "opt/cni", containerd.WANTED_BY)
            containerd.hide(self._upper, (*containerd.DEBIAN_FILES, *gone))
        else:
            self._write("etc/containerd/config.toml", self._config_toml)
        if self._node.cluster:
            self._write_cluster_files()

    def _write_host_files(self) -> None:
        name = self._node.name
        self._write("etc/hostname", f"{name}\n")
        self._write("etc/hosts", f"127.0.0.1 localhost\n{self._address.node} {name}\n::1 localhost ip6-localhost\n")
        # No name server: a resolver that asked one would wait for it.
        self._write("etc/resolv.conf", "# the lab has no name server\n")
        self._write("etc/machine-id", secrets.token_hex(16) + "\n")
        self._write("etc/lab/node.env", f"ADDRESS={self._address.node}/{NETWORK_PREFIX}\nGATEWAY={GATEWAY}\n")
        host_key = pki.ssh_key(name)
        self._write("etc/ssh/ssh_host_ed25519_key", host_key.key, 0o600)
        self._write("etc/ssh/ssh_host_ed25519_key.pub", host_key.certificate)
        self._write("root/.ssh/authorized_keys", (self._store.directory / "ssh_key.pub").read_bytes(), 0o600)
        for directory in ("root", "root/.ssh"):
            (self._upper / directory).chmod(0o700)
        pki.write(self._directory / "host_key.pub", host_key.certificate)

    def _write_cluster_files(self) -> None:
        name, files = self._node.name, self._store.directory / "pki"
        authority = pki.Authority(pki.read_pair(files, "ca"))
        client = authority.issue(f"system:node:{name}", groups=["system:nodes"])
        serving = authority.issue(f"system:node:{name}", hosts=[name, self._address.node])
        kubeconfig = pki.kubeconfig(SERVER, authority.pair.certificate, client, f"system:node:{name}")
        self._write("etc/kubernetes/kubelet.conf", kubeconfig, 0o600)
        self._write(f"{_KUBERNETES_PKI}/ca.crt", authority.pair.certificate)
        pki.write_pair(self._kubelet / "pki", "kubelet", serving)
        pki.write(self._kubelet / "config.yaml", self._kubelet_configuration(), 0o644)
        flags = f'KUBELET_KUBEADM_ARGS="--node-ip={self._address.node}"\n'
        pki.write(self._kubelet / "kubeadm-flags.env", flags, 0o644)
        self._write("etc/cni/net.d/10-lab.conflist", self._cni())
        wants = self._upper / "etc/systemd/system/multi-user.target.wants"
        wants.mkdir(parents=True, exist_ok=True)
        (wants / "kubelet.service").symlink_to("/usr/lib/systemd/system/kubelet.service")
        (self._upper / "etc/kubernetes/manifests").mkdir()

    def _kubelet_configuration(self) -> str:
        text = (SOURCE / "kubelet-config.yaml").read_text()
        if not uses_systemd_cgroups(self._config_toml):
            text = text.replace("cgroupDriver: systemd", "cgroupDriver: cgroupfs")
        return (
            text
            if self.shares_kernel
            else text.replace("KubeletInUserNamespace: true", "KubeletInUserNamespace: false")
        )

    def _cni(self) -> str:
        """Pods on a bridge of the node; no masquerading, since all pod networks are routed."""
        ranges = {"type": "host-local", "ranges": [[{"subnet": self._address.pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
        bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": ranges}
        return json.dumps({"cniVersion": "0.4.0", "name": "lab", "plugins": [bridge]}, indent=2) + "\n"

    def _route_pods(self) -> None:
        self._namespace.run(["ip", "route", "replace", self._address.pods, "via", self._address.node])
