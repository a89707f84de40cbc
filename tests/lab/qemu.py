"""QEMU: what it is told about a machine, and how a running one is asked to save its state.

Options: https://www.qemu.org/docs/master/system/invocation.html. Debian's package is unpacked into the cache and run by
its own loader, so that the host needs no QEMU. The monitor's protocol:
https://www.qemu.org/docs/master/interop/qmp-spec.html.
"""

import json
import os
import re
import shlex
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab import cache, rootfs
from tests.lab.errors import LabError
from tests.lab.run import wait

CPUS = 2
MEMORY_MIB = 2048
_PACKAGE = "qemu-system-x86"
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")
_CPU = {"kvm": "host", "tcg": "Nehalem"}
_ACCELERATION = {"kvm": "kvm", "tcg": "tcg,thread=multi,tb-size=256"}
# eth0; no workarounds for flaws of processors, which cost time and protect nobody here; no audit log.
_KERNEL_COMMAND_LINE = "console=ttyS0 net.ifnames=0 mitigations=off audit=0 quiet"
_ANSWER_TIMEOUT_S = 20


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """What a machine is given."""

    accelerator: str
    """`kvm` or `tcg`."""
    disks: Path
    """The directory with disk.img, vmlinuz and initrd, and perhaps a saved state."""
    own: Path
    """The second disk, read-only: an archive of the node's own files, if it has any."""
    tap: str
    mac: str
    writes: bool = False
    """Whether changes go to disk.img; else they are kept until QEMU ends, also through a reboot."""
    restores: bool = False
    """Whether it goes on from the saved state instead of booting."""
    monitor: Path | None = None
    """The socket of its monitor."""


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


def package() -> Path:
    """The root directory of an unpacked QEMU, with all its libraries."""

    def make(directory: Path) -> None:
        rootfs.debootstrap(directory / "root", "extract", [_PACKAGE])

    return cache.ensure("qemu", cache.digest([rootfs.SUITE, _PACKAGE]), make) / "root"


def state(disks: Path) -> Path:
    """Where the saved state is, if there is one."""
    return disks / "state"


def arguments(hardware: Hardware) -> list[str]:
    """QEMU's words for a machine."""
    # No flush reaches the host's disk: a machine of the lab need not survive the host.
    drive = "if=virtio,format=raw,cache=unsafe,file="
    words = [
        *("-machine", "q35", "-accel", _ACCELERATION[hardware.accelerator], "-cpu", _CPU[hardware.accelerator]),
        *("-smp", str(CPUS), "-m", str(MEMORY_MIB)),
        *("-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio"),
        *("-kernel", str(hardware.disks / "vmlinuz"), "-initrd", str(hardware.disks / "initrd")),
        *("-append", _KERNEL_COMMAND_LINE),
        *("-drive", f"{drive}{hardware.disks / 'disk.img'},snapshot={'off' if hardware.writes else 'on'}"),
        *("-drive", f"{drive}{hardware.own},readonly=on"),
        *("-netdev", f"tap,id=net,ifname={hardware.tap},script=no,downscript=no"),
        *("-device", f"virtio-net-pci,netdev=net,mac={hardware.mac},romfile="),
    ]
    if hardware.restores:
        words += ["-incoming", f"exec:cat {shlex.quote(str(state(hardware.disks)))}"]
    if hardware.monitor:
        words += ["-qmp", f"unix:{hardware.monitor},server=on,wait=off"]
    return words


def command(root: Path, hardware: Hardware) -> list[str]:
    """The command line of a machine; `root` is the package's."""
    libraries = ":".join(str(root / name) for name in _LIBRARIES)
    loader = [str(root / "lib64/ld-linux-x86-64.so.2"), "--library-path", libraries]
    data = [word for name in ("qemu", "seabios") for word in ("-L", str(root / "usr/share" / name))]
    return [*loader, str(root / "usr/bin/qemu-system-x86_64"), *data, *arguments(hardware)]


def environment(root: Path, scratch: Path) -> dict[str, str]:
    """What QEMU's environment must have; the changes of a disk that is not written to are kept in `scratch`."""
    return {"TMPDIR": str(scratch), "QEMU_MODULE_DIR": str(root / _LIBRARIES[0] / "qemu")}


class Monitor:
    """A connection to the monitor of a running machine."""

    def __init__(self, path: Path) -> None:
        """Connects; OSError when nothing listens."""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_ANSWER_TIMEOUT_S)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("r")
        self._lines.readline()
        self.execute("qmp_capabilities")

    def close(self) -> None:
        """End the connection, not the machine."""
        self._lines.close()
        self._socket.close()

    def execute(self, name: str, **values: object) -> dict[str, Any]:
        """A command's answer; LabError when the monitor refuses."""
        try:
            self._socket.sendall(json.dumps({"execute": name, "arguments": values}).encode() + b"\n")
            for line in self._lines:
                answer = json.loads(line)
                if "error" in answer:
                    raise LabError(f"QEMU refuses {name}: {answer['error']['desc']}")
                if "return" in answer:
                    return answer["return"]
        except OSError as error:
            raise LabError(f"QEMU does not answer {name}: {error}") from error
        raise LabError(f"QEMU ended before it answered {name}")

    def save(self, path: Path, *, timeout_s: float) -> None:
        """Write the machine's state to a file; it stops at the moment that is saved."""
        self.execute("migrate-set-parameters", **{"max-bandwidth": 1 << 33})
        self.execute("migrate", uri=f"exec:cat >{shlex.quote(str(path))}")

        def saved() -> bool:
            status = self.execute("query-migrate").get("status")
            if status == "failed":
                raise LabError(f"QEMU could not save a machine's state to {path}")
            return status == "completed"

        wait("the machine's state is saved", saved, timeout_s=timeout_s)
