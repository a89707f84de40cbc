"""vm nodes: what QEMU is told, what the node's archive holds, which drivers the initrd loads."""

import itertools
import os
import tarfile
from pathlib import Path

import pytest

from tests.lab import containerd, vm, vm_image
from tests.lab.errors import LabError

HARDWARE = vm.Hardware(accelerator="tcg", disks=Path("/cache/vm-1"), own=Path("/lab/v1/own.tar"), tap="vm-v1", index=3)


def option(arguments: list[str], name: str) -> list[str]:
    """The values of an option, in their order."""
    return [value for word, value in itertools.pairwise(arguments) if word == name]


def test_qemu_arguments():
    """The cached disk is never written, the own one not either; the network is the tap that the lab made."""
    found = vm.qemu_arguments(HARDWARE)

    assert option(found, "-drive") == [
        "if=virtio,format=raw,cache=unsafe,file=/cache/vm-1/disk.img,snapshot=on",
        "if=virtio,format=raw,cache=unsafe,file=/lab/v1/own.tar,readonly=on",
    ]
    assert option(found, "-netdev") == ["tap,id=net,ifname=vm-v1,script=no,downscript=no"]
    assert option(found, "-device") == ["virtio-net-pci,netdev=net,mac=52:54:00:77:00:0d,romfile="]
    assert option(found, "-kernel") == ["/cache/vm-1/vmlinuz"]
    assert "-no-reboot" not in found


def test_qemu_arguments_are_of_bounded_size():
    """What a machine may use of the host."""
    found = vm.qemu_arguments(HARDWARE)

    assert option(found, "-smp") == ["2"]
    assert option(found, "-m") == ["2048"]


@pytest.mark.parametrize(
    ("accelerator", "accel", "cpu"),
    [
        pytest.param("kvm", "kvm", "host", id="kvm"),
        pytest.param("tcg", "tcg,thread=multi,tb-size=512", "Nehalem", id="emulated"),
    ],
)
def test_qemu_arguments_by_accelerator(accelerator: str, accel: str, cpu: str):
    """The processor fits what runs it."""
    hardware = vm.Hardware(accelerator=accelerator, disks=Path("/d"), own=Path("/o"), tap="t", index=1)
    found = vm.qemu_arguments(hardware)

    assert option(found, "-accel") == [accel]
    assert option(found, "-cpu") == [cpu]


CPUINFO = "processor\t: 0\nmodel name\t: AMD EPYC vmx\nflags\t\t: fpu vme {} hypervisor\nbugs\t\t: svm\n"


@pytest.mark.parametrize(
    ("flag", "opens", "expected"),
    [
        pytest.param("vmx", True, "kvm", id="Intel"),
        pytest.param("svm", True, "kvm", id="AMD"),
        pytest.param("svm", False, "tcg", id="no device"),
        pytest.param("vmx_like", True, "tcg", id="PVM, or a device that is left over"),
    ],
)
def test_choose_accelerator(flag: str, opens: bool, expected: str):
    """KVM needs the processor's own virtualisation, whatever /dev/kvm says."""
    assert vm.choose_accelerator(CPUINFO.format(flag), opens) == expected


def test_qemu_program_uses_nothing_of_the_host():
    """Loader, libraries and firmware are the unpacked package's."""
    found = vm.qemu_program(Path("/q"))

    assert all(part.startswith("/q/") for word in found if word.startswith("/") for part in word.split(":"))


def test_pack(tmp_path: Path):
    """Later layers come later, marks of absence become a list, and the list is the last entry."""
    line, upper = tmp_path / "line", tmp_path / "upper"
    (line / "usr/local/bin").mkdir(parents=True)
    (line / "usr/local/bin/containerd").write_text("2.2")
    (line / "usr/local/bin/containerd").chmod(0o755)
    (upper / "etc").mkdir(parents=True)
    (upper / "etc/hostname").write_text("v1\n")
    (upper / "etc/link").symlink_to("hostname")
    containerd.hide(line, ("usr/bin/ctr", "usr/bin/runc"))
    vm.pack([line, upper], tmp_path / "own.tar")

    with tarfile.open(tmp_path / "own.tar") as tar:
        names = tar.getnames()
        absent = tar.extractfile(vm.ABSENT).read().decode()
        mode = tar.getmember("usr/local/bin/containerd").mode
        link = tar.getmember("etc/link").linkname
    assert (absent, mode, link) == ("usr/bin/ctr\nusr/bin/runc\n", 0o755, "hostname")
    assert "usr/bin/ctr" not in names
    assert names.index("usr/local/bin/containerd") < names.index("etc/hostname")
    assert names[-1] == vm.ABSENT
    assert sorted(os.listdir(tmp_path)) == ["line", "own.tar", "upper"]


# From linux-image-6.1.0-57-cloud-amd64, in part.
MODULES_DEP = """\
kernel/drivers/virtio/virtio.ko: kernel/drivers/virtio/virtio_ring.ko
kernel/drivers/virtio/virtio_pci.ko: kernel/drivers/virtio/virtio_pci_legacy_dev.ko kernel/drivers/virtio/virtio.ko \
kernel/drivers/virtio/virtio_ring.ko
kernel/drivers/virtio/virtio_pci_legacy_dev.ko:
kernel/drivers/virtio/virtio_ring.ko:
kernel/drivers/block/virtio_blk.ko: kernel/drivers/virtio/virtio.ko kernel/drivers/virtio/virtio_ring.ko
kernel/net/other-name.ko.xz:
"""
MODULES_BUILTIN = "kernel/fs/ext4/ext4.ko\nkernel/drivers/block/loop-back.ko\n"


def test_parse_modules():
    """Each file once, none before what it needs, none for what is built in."""
    found = vm_image.parse_modules(MODULES_DEP, MODULES_BUILTIN, ("virtio_pci", "ext4", "virtio_blk", "other_name"))

    assert [path.rpartition("/")[2] for path in found] == [
        "virtio_ring.ko",
        "virtio.ko",
        "virtio_pci_legacy_dev.ko",
        "virtio_pci.ko",
        "virtio_blk.ko",
        "other-name.ko.xz",
    ]
    assert vm_image.parse_modules(MODULES_DEP, MODULES_BUILTIN, ("loop_back",)) == []


def test_parse_modules_names_what_is_missing():
    """A kernel without a driver is refused when the image is made, not when it hangs."""
    with pytest.raises(LabError, match="no module virtio_net"):
        vm_image.parse_modules(MODULES_DEP, MODULES_BUILTIN, ("virtio_net",))
