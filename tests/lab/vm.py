"""vm nodes: QEMU machines with a kernel of their own, a tap on the lab's bridge, a cached disk that is not changed."""

import io
import os
import tarfile
from pathlib import Path

from tests.lab import cgroups, qemu
from tests.lab.machine import Machine
from tests.lab.namespace import BRIDGE
from tests.lab.vm_image import OWN_SIZE

ABSENT = "etc/lab/absent"
"""The files of the disk that this node is to be without, one a line; the last entry of its archive."""
# As kubeadm's instructions have it: kubernetes.io, "Container Runtimes", and containerd's documentation.
_CLUSTER_FILES = {
    "etc/modules-load.d/k8s.conf": "overlay\nbr_netfilter\n",
    "etc/sysctl.d/k8s.conf": "net.bridge.bridge-nf-call-iptables = 1\nnet.bridge.bridge-nf-call-ip6tables = 1\n"
    "net.ipv4.ip_forward = 1\n",
}


def pack(layers: list[Path], archive: Path) -> None:
    """Put trees into an archive, the later over the earlier; an overlay's marks of absence become the list ABSENT."""
    absent = ""
    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        for layer in layers:
            for path in sorted(layer.rglob("*")):
                name = str(path.relative_to(layer))
                if path.is_char_device():
                    absent += f"{name}\n"
                else:
                    tar.add(path, name, recursive=False)
        # At the end: the initrd takes it for the sign that all the rest is there.
        entry = tarfile.TarInfo(ABSENT)
        entry.size = len(absent)
        tar.addfile(entry, io.BytesIO(absent.encode()))
    # A saved machine knows a disk of this size.
    os.truncate(archive, max(OWN_SIZE, archive.stat().st_size))


class VmNode(Machine):
    """A QEMU machine."""

    shares_kernel = False

    @property
    def _tap(self) -> str:
        return f"vm-{self._node.name}"

    @property
    def _mac(self) -> str:
        return f"52:54:00:77:00:{10 + self._address.index:02x}"

    def prepare(self) -> None:
        """The archive of its own files."""
        self._upper.mkdir(parents=True, mode=0o755)
        self._write_own_files()
        with (self._upper / "etc/lab/node.env").open("a") as file:
            file.write(f"MAC={self._mac}\n")
        if self._node.cluster:
            for name, text in _CLUSTER_FILES.items():
                self._write(name, text)
        line = self._parts.lines.get(self._node.containerd)
        pack([*([line] if line else []), self._upper], self._directory / "own.tar")

    def boot(self) -> None:
        """Make its tap inside the lab's network namespace and start the machine."""
        cgroups.make(self._namespace.cgroup(self._process))
        add = f"tuntap add dev {self._tap} mode tap\nlink set {self._tap} master {BRIDGE} up\n"
        self._namespace.run(["ip", "-batch", "-"], stdin=add)
        self._route_pods()
        own = self._directory / "own.tar"
        disks = self._parts.disks[self._node.images]
        hardware = qemu.Hardware(
            accelerator=qemu.accelerator(),
            disks=disks,
            own=own,
            tap=self._tap,
            mac=self._mac,
            # Another containerd's unit would come after systemd has read Debian's.
            restores=qemu.state(disks).exists()
            and self._node.containerd == "debian"
            and own.stat().st_size == OWN_SIZE,
        )
        command, env = qemu.command(self._parts.qemu, hardware), qemu.environment(self._parts.qemu, self._directory)
        self._namespace.start(self._process, command, cgroup=self._process, env=env)

    def _detach(self) -> None:
        """Remove its tap."""
        self._namespace.run(["sh", "-c", '[ ! -e "/sys/class/net/$1" ] || ip link delete "$1"', "sh", self._tap])
