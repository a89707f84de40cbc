"""Container nodes: systemd-nspawn machines on an overlay of the shared root file system.

Another kind of node is a class with the same three methods, entered in KINDS (README.md, "Another kind of node").
"""

import json
import secrets
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.lab import cgroups, containerd, images, pki
from tests.lab.controlplane import SERVER
from tests.lab.namespace import BRIDGE, GATEWAY, NETWORK_PREFIX, Namespace
from tests.lab.paths import SOURCE
from tests.lab.state import Store
from tests.lab.topology import Node

_KUBERNETES_PKI = "/etc/kubernetes/pki"
# nspawn asks to be started again, with this exit code, when the machine inside reboots.
# The loop stays out of the node's cgroup, which nspawn divides: on cgroup v2 it must not have processes of its own.
_BOOT = """
cgroup=$1
shift
while :; do
    (
        for directory in /sys/fs/cgroup "/sys/fs/cgroup"/*; do
            [ ! -d "$directory/$cgroup" ] || sh -c 'echo "$PPID" >"$1"' sh "$directory/$cgroup/cgroup.procs"
        done
        exec systemd-nspawn "$@"
    )
    code=$?
    [ "$code" = 133 ] || exit "$code"
done
"""


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


@dataclass(frozen=True)
class Parts:
    """The cached things that nodes are made of."""

    binaries: Path
    debian: Path
    layer: Path
    """Lies over `debian`."""
    lines: Mapping[str, Path] = field(default_factory=dict)
    """The layer of each containerd line that nodes ask for; lies over all."""


class Machine(Protocol):
    """What a kind of node does."""

    def prepare(self) -> None:
        """Make its files on disk."""

    def boot(self) -> None:
        """Start it; return without waiting."""

    def remove(self) -> None:
        """Stop it and remove its files; works on a node that is half made, too."""


def uses_systemd_cgroups(config_toml: str) -> bool:
    """Whether a containerd configuration says `SystemdCgroup = true` for runc: the kubelet has to do the same."""
    try:
        plugins = tomllib.loads(config_toml).get("plugins", {})
        runtimes = [plugin.get("containerd", {}).get("runtimes", {}) for plugin in plugins.values()]
        return any(runtime.get("runc", {}).get("options", {}).get("SystemdCgroup") is True for runtime in runtimes)
    except (tomllib.TOMLDecodeError, AttributeError):  # a broken file is a test's own wish
        return False


class ContainerNode:
    """A systemd-nspawn machine."""

    def __init__(self, node: Node, index: int, namespace: Namespace, store: Store, parts: Parts) -> None:
        """Nothing is made yet."""
        self._node, self._namespace, self._store, self._parts = node, namespace, store, parts
        self._address = Address(index)
        self._directory = store.directory / "nodes" / node.name

    @property
    def _config_toml(self) -> str:
        return self._node.config_toml or containerd.default_config(self._node.containerd)

    def _write(self, name: str, text: str | bytes, mode: int = 0o644) -> None:
        """A file of the node, in the upper layer of its overlay."""
        pki.write(self._directory / "upper" / name, text, mode)

    def prepare(self) -> None:
        """Its overlay's upper layer, and plain directories for what must not lie on an overlay."""
        for name in ("upper", "work", "root", "containerd", "kubelet"):
            (self._directory / name).mkdir(parents=True, mode=0o755)
        self._write_host_files()
        if self._node.containerd == "none":
            gone = ("usr/sbin/runc", "etc/containerd/config.toml", "opt/cni", containerd.WANTED_BY)
            containerd.hide(self._directory / "upper", (*containerd.DEBIAN_FILES, *gone))
        else:
            self._write("etc/containerd/config.toml", self._config_toml)
            source = images.template(self._parts.debian, self._parts.binaries, self._node.images)
            images.copy_template(source, self._directory / "containerd")
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
            (self._directory / "upper" / directory).chmod(0o700)
        pki.write(self._directory / "host_key.pub", host_key.certificate)

    def _write_cluster_files(self) -> None:
        name, files = self._node.name, self._store.directory / "pki"
        authority = pki.Authority(pki.read_pair(files, "ca"))
        client = authority.issue(f"system:node:{name}", groups=["system:nodes"])
        serving = authority.issue(f"system:node:{name}", hosts=[name, self._address.node])
        kubeconfig = pki.kubeconfig(SERVER, authority.pair.certificate, client, f"system:node:{name}")
        self._write("etc/kubernetes/kubelet.conf", kubeconfig, 0o600)
        self._write(f"{_KUBERNETES_PKI[1:]}/ca.crt", authority.pair.certificate)
        kubelet = self._directory / "kubelet"
        pki.write_pair(kubelet / "pki", "kubelet", serving)
        driver = "systemd" if uses_systemd_cgroups(self._config_toml) else "cgroupfs"
        text = (SOURCE / "kubelet-config.yaml").read_text().replace("cgroupDriver: systemd", f"cgroupDriver: {driver}")
        pki.write(kubelet / "config.yaml", text, 0o644)
        pki.write(kubelet / "kubeadm-flags.env", f'KUBELET_KUBEADM_ARGS="--node-ip={self._address.node}"\n', 0o644)
        self._write("etc/cni/net.d/10-lab.conflist", self._cni())
        wants = self._directory / "upper/etc/systemd/system/multi-user.target.wants"
        wants.mkdir(parents=True, exist_ok=True)
        (wants / "kubelet.service").symlink_to("/usr/lib/systemd/system/kubelet.service")
        (self._directory / "upper/etc/kubernetes/manifests").mkdir()

    def _cni(self) -> str:
        """Pods on a bridge of the node; no masquerading, since all pod networks are routed."""
        ranges = {"type": "host-local", "ranges": [[{"subnet": self._address.pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
        bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": ranges}
        return json.dumps({"cniVersion": "0.4.0", "name": "lab", "plugins": [bridge]}, indent=2) + "\n"

    def boot(self) -> None:
        """Mount the overlay inside the lab's mount namespace and start the machine."""
        name, directory = self._node.name, self._directory
        process = f"node-{name}"
        cgroups.make(self._namespace.cgroup(process))
        line = self._parts.lines.get(self._node.containerd)
        lower = [*([line] if line else []), self._parts.layer, self._parts.debian]
        layers = f"lowerdir={':'.join(map(str, lower))},upperdir={directory / 'upper'},workdir={directory / 'work'}"
        mount = ["mount", "-t", "overlay", "overlay", "-o", f"{layers},volatile", directory / "root"]
        route = ["ip", "route", "replace", self._address.pods, "via", self._address.node]
        self._namespace.run(mount)
        self._namespace.run(route)
        arguments = [
            *("--quiet", "--settings=no", "--keep-unit", "--register=no", "--boot", "--link-journal=no"),
            *("--resolv-conf=off", "--timezone=off", "--capability=all", "--system-call-filter=@known"),
            *(f"--directory={directory / 'root'}", f"--machine={name}", f"--network-bridge={BRIDGE}"),
            f"--bind-ro={self._parts.binaries}:/opt/k8s",
            f"--bind={directory / 'containerd'}:/var/lib/containerd",
            f"--bind={directory / 'kubelet'}:/var/lib/kubelet",
        ]
        self._namespace.start(process, ["sh", "-c", _BOOT, "sh", process, *arguments])

    def remove(self) -> None:
        """End its processes by its cgroup, take its overlay and its files away."""
        cgroup = self._namespace.cgroup(f"node-{self._node.name}")
        cgroups.kill(cgroup)
        cgroups.remove(cgroup)
        root = self._directory / "root"
        self._namespace.run(["sh", "-c", 'mountpoint -q "$1" && umount "$1" || true', "sh", root])
        self._namespace.run(["ip", "route", "flush", self._address.pods])
        if self._directory.exists():
            shutil.rmtree(self._directory)


KINDS = {"container": ContainerNode}
