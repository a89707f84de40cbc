"""vm nodes: QEMU machines with a kernel of their own, a tap on the lab's bridge and a throw-away copy of a cached disk.

QEMU's options: https://www.qemu.org/docs/master/system/invocation.html. Its unpacked package is run by its own loader,
so that the host needs no QEMU.
"""

import io
import os
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tests.lab import cgroups
from tests.lab.machine import Machine
from tests.lab.namespace import BRIDGE

CPUS = 2
MEMORY_MIB = 2048
_CPU = {"kvm": "host", "tcg": "Nehalem"}
_ACCELERATION = {"kvm": "kvm", "tcg": "tcg,thread=multi,tb-size=512"}
# eth0; no workarounds for flaws of processors, which cost time and protect nobody here; no audit log.
_KERNEL_COMMAND_LINE = "console=ttyS0 net.ifnames=0 mitigations=off audit=0 quiet"
ABSENT = "etc/lab/absent"
"""The files of the disk that this node is to be without, one a line; the last entry of its archive."""
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")
# As kubeadm's instructions have it: kubernetes.io, "Container Runtimes", and containerd's documentation.
_CLUSTER_FILES = {
    "etc/modules-load.d/k8s.conf": "overlay\nbr_netfilter\n",
    "etc/sysctl.d/k8s.conf": "net.bridge.bridge-nf-call-iptables = 1\nnet.bridge.bridge-nf-call-ip6tables = 1\n"
    "net.ipv4.ip_forward = 1\n",
}


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """What a machine is given."""

    accelerator: str
    """`kvm` or `tcg`."""
    disks: Path
    """The directory with disk.img, vmlinuz and initrd; nothing in it is changed."""
    own: Path
    """An archive, which the initrd unpacks from the second disk."""
    tap: str
    index: int
    """Gives the MAC address."""


def choose_accelerator(cpuinfo: str, kvm_opens: bool) -> str:
    """`kvm` where the processor can (the text of /proc/cpuinfo) and the device opens, else `tcg`.

    /dev/kvm alone is not enough: it may belong to a virtualisation that runs only kernels made for it (PVM).
    """
    able = re.search(r"^flags\s*:.*\b(vmx|svm)\b", cpuinfo, re.MULTILINE) is not None
    return "kvm" if able and kvm_opens else "tcg"


def accelerator() -> str:
    """That of this machine."""
    try:
        os.close(os.open("/dev/kvm", os.O_RDWR))
        opens = True
    except OSError:
        opens = False
    return choose_accelerator(Path("/proc/cpuinfo").read_text(), opens)


def qemu_arguments(hardware: Hardware) -> list[str]:
    """QEMU's words for a machine. What it writes to its disk is lost when QEMU ends, not when it reboots."""
    # No flush reaches the host's disk: a machine of the lab need not survive the host.
    drive = "if=virtio,format=raw,cache=unsafe,file="
    mac = f"52:54:00:77:00:{10 + hardware.index:02x}"
    return [
        *("-machine", "q35", "-accel", _ACCELERATION[hardware.accelerator], "-cpu", _CPU[hardware.accelerator]),
        *("-smp", str(CPUS), "-m", str(MEMORY_MIB)),
        *("-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio"),
        *("-kernel", str(hardware.disks / "vmlinuz"), "-initrd", str(hardware.disks / "initrd")),
        *("-append", _KERNEL_COMMAND_LINE),
        *("-drive", f"{drive}{hardware.disks / 'disk.img'},snapshot=on"),
        *("-drive", f"{drive}{hardware.own},readonly=on"),
        *("-netdev", f"tap,id=net,ifname={hardware.tap},script=no,downscript=no"),
        *("-device", f"virtio-net-pci,netdev=net,mac={mac},romfile="),
    ]


def qemu_program(root: Path) -> list[str]:
    """The words before QEMU's own: the loader and the libraries of the unpacked package, and its firmware."""
    libraries = ":".join(str(root / name) for name in _LIBRARIES)
    loader = [str(root / "lib64/ld-linux-x86-64.so.2"), "--library-path", libraries]
    data = [word for name in ("qemu", "seabios") for word in ("-L", str(root / "usr/share" / name))]
    return [*loader, str(root / "usr/bin/qemu-system-x86_64"), *data]


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


class VmNode(Machine):
    """A QEMU machine."""

    shares_kernel = False

    @property
    def _tap(self) -> str:
        return f"vm-{self._node.name}"

    def prepare(self) -> None:
        """The archive of its own files."""
        self._upper.mkdir(parents=True, mode=0o755)
        self._write_own_files()
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
        hardware = Hardware(
            accelerator=accelerator(),
            disks=self._parts.disks[self._node.images],
            own=self._directory / "own.tar",
            tap=self._tap,
            index=self._address.index,
        )
        # TMPDIR: where the changes of its disk are kept.
        modules = self._parts.qemu / "usr/lib/x86_64-linux-gnu/qemu"
        env = {"TMPDIR": str(self._directory), "QEMU_MODULE_DIR": str(modules)}
        command = [*qemu_program(self._parts.qemu), *qemu_arguments(hardware)]
        self._namespace.start(self._process, command, cgroup=self._process, env=env)

    def _detach(self) -> None:
        """Remove its tap."""
        self._namespace.run(["sh", "-c", '[ ! -e "/sys/class/net/$1" ] || ip link delete "$1"', "sh", self._tap])
