"""What vm nodes boot from, built once: a disk with Debian, its kernel, an initrd, and a machine that has booted.

The initrd holds only what finds the disk: a whole one would take seconds longer under emulation. The machine is saved
at the moment when all is done that does not depend on the node: lab-node-setup waits for the node's own files then.
"""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.lab import cache, containerd, images, qemu, rootfs
from tests.lab.errors import LabError
from tests.lab.paths import SOURCE
from tests.lab.run import build, run, tail, wait

TREE = SOURCE / "rootfs-vm"
OWN_SIZE = 1 << 20
"""Bytes of the disk with a node's own files in the machine that is saved; lab-node-setup reads them at one go."""
# A kernel, what an own kernel asks for, and two more for a test to start.
_PACKAGES = (*rootfs.PACKAGES, "linux-image-cloud-amd64", "apparmor", "chrony", "network-manager", "ufw")
_DISABLED = (
    *rootfs.DISABLED,
    *("NetworkManager.service", "NetworkManager-dispatcher.service", "NetworkManager-wait-online.service"),
    "ufw.service",
)
# A machine of its own has settings and modules of its own.
_UNMASKED = ("systemd-sysctl.service", "systemd-modules-load.service")
_MASKED = (*(unit for unit in rootfs.MASKED if unit not in _UNMASKED), "serial-getty@ttyS0.service")
_INIT = SOURCE / "initrd-init"
_DRIVERS = ("virtio_pci", "virtio_blk", "virtio_net")
_BUSYBOX = Path("/bin/busybox")
_APPLETS = ("sh", "mount", "umount", "insmod", "sleep", "tar", "rm", "switch_root")
_DISK_SIZE = "8G"
_PROGRAMS = ("kubelet", "kubectl")
# Profiles of programs that are not there; compiling them takes a third of the time until sshd answers.
_HIDDEN = ("etc/apparmor.d/lsb_release", "etc/apparmor.d/nvidia_modprobe")
_MAKE_DISK = """
set -eu
mkdir "$1/merged"
mount -t overlay overlay -o "ro,lowerdir=$2" "$1/merged"
mount --bind "$3" "$1/merged/var/lib/containerd"
truncate --size="$4" "$1/disk.img"
mkfs.ext4 -q -m 0 -E lazy_itable_init=0,lazy_journal_init=0 -d "$1/merged" "$1/disk.img"
umount "$1/merged/var/lib/containerd" "$1/merged"
rmdir "$1/merged"
"""
_WAITS = "lab: waits for its own files"  # as rootfs-vm/usr/local/sbin/lab-node-setup says it
_BOOT_TIMEOUT_S = 180
_SAVE_TIMEOUT_S = 60
# For what systemd does beside.
_SETTLE_S = 2
# In a network namespace of its own; the tap gives the machine's card the abilities that it will have in a lab.
_BOOT = 'ip tuntap add dev "$1" mode tap && console=$2 && shift 2 && exec "$@" >"$console"'
_TAP = "vm-save"
_MAKE_INITRD = 'cd "$1" && find . | "$2" cpio -o -H newc >"$3" 2>/dev/null'


def parse_modules(dep: str, builtin: str, wanted: tuple[str, ...]) -> list[str]:
    """The files of kernel modules and of all they need, in the order in which to load them, as modules.dep has them.

    `dep` and `builtin` are the texts of modules.dep and modules.builtin (depmod(8)): what is built in needs no file.
    """

    def name(path: str) -> str:
        return path.rpartition("/")[2].partition(".")[0].replace("-", "_")

    needs = {path: after.split() for path, _, after in (line.partition(":") for line in dep.splitlines())}
    paths = {name(path): path for path in needs}
    inside = {name(path) for path in builtin.split()}
    found: list[str] = []
    for module in wanted:
        if module in inside:
            continue
        if module not in paths:
            raise LabError(f"the vm nodes' kernel has no module {module}")
        # modules.dep lists what is needed in the reverse of the order of loading.
        found += [path for path in (*reversed(needs[paths[module]]), paths[module]) if path not in found]
    return found


def disk(nodes_debian: Path, binaries: Path, optional: tuple[str, ...]) -> Path:
    """The directory with disk.img, vmlinuz and initrd; containerd in it holds the `optional` images.

    `nodes_debian` is the container nodes' root: the images are made with it.
    """
    # Without INITRD=No the kernel's package would make an initrd, for half a minute.
    debian = rootfs.base(_PACKAGES, _DISABLED, {"INITRD": "No"})
    layer = rootfs.layer(debian, (rootfs.TREE, TREE), _MASKED)
    template = images.template(nodes_debian, binaries, optional)

    def make(directory: Path) -> None:
        top = directory / "top"
        for name in ("opt/k8s", "var/lib/containerd"):
            (top / name).mkdir(parents=True)
        for program in _PROGRAMS:
            shutil.copy2(binaries / program, top / "opt/k8s")
        containerd.hide(top, _HIDDEN)
        # Of the machine that is saved: without one systemd would take its start for the first of all.
        (top / "etc/machine-id").write_text("0" * 31 + "1\n")
        layers = f"{top}:{layer}:{debian}"
        build(["sh", "-c", _MAKE_DISK, "sh", directory, layers, template, _DISK_SIZE], timeout_s=600)
        shutil.rmtree(top)
        kernel = _the_only(debian, "boot/vmlinuz-*")
        shutil.copyfile(kernel, directory / "vmlinuz")
        _make_initrd(_the_only(debian, "usr/lib/modules/*"), directory)
        if accelerator == "tcg":  # with KVM booting takes no longer than this
            _save_booted(directory)

    accelerator = qemu.accelerator()
    machine = qemu.arguments(_saved_hardware(Path(), Path()))
    parts = [
        accelerator,
        *machine,
        str(qemu.package()),
        str(OWN_SIZE),
        str(layer),
        str(binaries),
        str(template),
        _DISK_SIZE,
        _MAKE_DISK,
        _MAKE_INITRD,
        _INIT.read_bytes(),
    ]
    return cache.ensure("vm", cache.digest([*parts, *_PROGRAMS, *_HIDDEN, *_DRIVERS, *_APPLETS]), make)


def _saved_hardware(directory: Path, monitor: Path) -> qemu.Hardware:
    return qemu.Hardware(
        accelerator="tcg",
        disks=directory,
        own=directory / "own",
        tap=_TAP,
        mac="52:54:00:77:00:01",
        writes=True,
        monitor=monitor,
    )


def _save_booted(directory: Path) -> None:
    """Boot the disk until lab-node-setup waits, and save the machine; the disk stays as it is at that moment."""
    root, console = qemu.package(), directory / "console"
    console.touch()
    # The path of a socket has room for 107 characters.
    with TemporaryDirectory() as short, ThreadPoolExecutor() as pool:
        hardware = _saved_hardware(directory, Path(short) / "monitor")
        with hardware.own.open("wb") as file:
            file.truncate(OWN_SIZE)
        start = ["unshare", "--net", "sh", "-c", _BOOT, "sh", _TAP, console, *qemu.command(root, hardware)]
        env = qemu.environment(root, directory)
        machine = pool.submit(build, start, timeout_s=_BOOT_TIMEOUT_S + _SAVE_TIMEOUT_S, env=env)

        def waits() -> bool:
            if machine.done():
                machine.result()
                raise LabError("the machine has switched itself off")
            return _WAITS in console.read_text(errors="replace")

        try:
            wait("the machine boots", waits, timeout_s=_BOOT_TIMEOUT_S)
            time.sleep(_SETTLE_S)
            with closing(qemu.Monitor(hardware.monitor)) as monitor:
                monitor.save(qemu.state(directory), timeout_s=_SAVE_TIMEOUT_S)
        except LabError as error:
            raise LabError(f"{error}\nthe end of its console:\n{tail(console.read_text(errors='replace'))}") from error
        finally:
            if not machine.done():
                with closing(qemu.Monitor(hardware.monitor)) as monitor:
                    monitor.execute("quit")
        hardware.own.unlink()
    console.unlink()


def _the_only(debian: Path, pattern: str) -> Path:
    found = list(debian.glob(pattern))
    if len(found) != 1:
        raise LabError(f"{debian}: found {len(found)} of {pattern}, expected one kernel")
    return found[0]


def _make_initrd(modules: Path, directory: Path) -> None:
    tree = directory / "initrd.tree"
    for name in ("bin", "dev", "proc", "root"):
        (tree / name).mkdir(parents=True)
    shutil.copyfile(_INIT, tree / "init")
    shutil.copyfile(_BUSYBOX, tree / "bin/busybox")
    for path in (tree / "init", tree / "bin/busybox"):
        path.chmod(0o755)
    for applet in _APPLETS:
        (tree / "bin" / applet).symlink_to("busybox")
    texts = [(modules / name).read_text() for name in ("modules.dep", "modules.builtin")]
    files = parse_modules(texts[0], texts[1], _DRIVERS)
    for name in files:
        shutil.copyfile(modules / name, tree / Path(name).name)
    (tree / "modules").write_text("".join(f"{Path(name).name}\n" for name in files))
    run(["sh", "-c", _MAKE_INITRD, "sh", tree, _BUSYBOX, directory / "initrd"], timeout_s=60)
    shutil.rmtree(tree)
