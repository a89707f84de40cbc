"""vm nodes: what QEMU is told, what the node's archive holds, which drivers the initrd loads."""

import dataclasses
import itertools
import json
import socket
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.lab import containerd, qemu, vm, vm_image
from tests.lab.errors import LabError

HARDWARE = qemu.Hardware(
    accelerator="tcg",
    disks=Path("/cache/vm-1"),
    own=Path("/lab/v1/own.tar"),
    tap="vm-v1",
    mac="52:54:00:77:00:0d",
)


def option(arguments: list[str], name: str) -> list[str]:
    """The values of an option, in their order."""
    return [value for word, value in itertools.pairwise(arguments) if word == name]


def test_qemu_arguments():
    """The cached disk is never written, the own one not either; the network is the tap that the lab made."""
    found = qemu.arguments(HARDWARE)

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
    found = qemu.arguments(HARDWARE)

    assert option(found, "-smp") == ["2"]
    assert option(found, "-m") == ["2048"]


@pytest.mark.parametrize(
    ("accelerator", "accel", "cpu"),
    [
        pytest.param("kvm", "kvm", "host", id="kvm"),
        pytest.param("tcg", "tcg,thread=multi,tb-size=256", "Nehalem", id="emulated"),
    ],
)
def test_qemu_arguments_by_accelerator(accelerator: str, accel: str, cpu: str):
    """The processor fits what runs it."""
    found = qemu.arguments(dataclasses.replace(HARDWARE, accelerator=accelerator))

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
    assert qemu.choose_accelerator(CPUINFO.format(flag), opens) == expected


def test_qemu_program_uses_nothing_of_the_host():
    """Loader, libraries and firmware are the unpacked package's."""
    found = qemu.command(Path("/q"), HARDWARE)
    own = found[: found.index("-machine")]

    assert all(part.startswith("/q/") for word in own if word.startswith("/") for part in word.split(":"))
    assert found[len(own) :] == qemu.arguments(HARDWARE)
    assert qemu.environment(Path("/q"), Path("/lab/v1")) == {
        "TMPDIR": "/lab/v1",
        "QEMU_MODULE_DIR": "/q/usr/lib/x86_64-linux-gnu/qemu",
    }


def test_a_saved_machine_goes_on():
    """It is restored through a shell: a path with a blank is quoted."""
    hardware = dataclasses.replace(HARDWARE, disks=Path("/my cache/vm-1"), restores=True)

    assert option(qemu.arguments(hardware), "-incoming") == ["exec:cat '/my cache/vm-1/state'"]
    assert "-incoming" not in qemu.arguments(HARDWARE)


def test_only_the_machine_that_is_saved_writes_to_the_disk():
    """And only it has a monitor."""
    hardware = dataclasses.replace(HARDWARE, writes=True, monitor=Path("/m"))

    assert option(qemu.arguments(hardware), "-drive")[0].endswith("/disk.img,snapshot=off")
    assert option(qemu.arguments(hardware), "-qmp") == ["unix:/m,server=on,wait=off"]
    assert "-qmp" not in qemu.arguments(HARDWARE)


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Callable[[list[dict]], qemu.Monitor]]:
    """A monitor whose other end says what it is told to, as QEMU 7.2 does."""
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor() as pool, ExitStack() as stack:
        listener.bind(str(tmp_path / "m"))
        listener.listen()

        def serve(answers: list[dict]) -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rw") as lines:
                lines.write('{"QMP": {"version": {}, "capabilities": ["oob"]}}\r\n')
                lines.flush()
                for answer in ({"return": {}}, *answers):
                    asked = "event" in answer or lines.readline()
                    lines.write(json.dumps(answer) + "\r\n" if asked else "")
                    lines.flush()
                lines.readline()

        def connect(answers: list[dict]) -> qemu.Monitor:
            pool.submit(serve, answers)
            return stack.enter_context(closing(qemu.Monitor(tmp_path / "m")))

        yield connect


def test_monitor_saves(monitor):
    """Events come between the answers; it is asked until it is done."""
    status = [{"return": {"status": word}} for word in ("active", "completed")]
    event = {"event": "STOP", "timestamp": {"seconds": 1, "microseconds": 2}}

    monitor([{"return": {}}, {"return": {}}, event, *status]).save(Path("/s"), timeout_s=5)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param([{"return": {}}] * 2 + [{"return": {"status": "failed"}}], "could not save .* to /s", id="failed"),
        pytest.param(
            [{"error": {"class": "x", "desc": "not now"}}], "refuses migrate-set-parameters: not now", id="no"
        ),
        pytest.param([{"return": {}}], "QEMU .* answer.* migrate", id="ended"),
    ],
)
def test_monitor_says_why_not(monitor, answers: list[dict], expected: str):
    """In words."""
    with pytest.raises(LabError, match=expected):
        monitor(answers).save(Path("/s"), timeout_s=5)


def test_the_size_of_a_saved_disk():
    """lab-node-setup reads it at one go: its size stands there, too."""
    script = (vm_image.TREE / "usr/local/sbin/lab-node-setup").read_text()

    assert f"bs={vm_image.OWN_SIZE >> 20}M" in script


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
    assert (tmp_path / "own.tar").stat().st_size == vm_image.OWN_SIZE


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
