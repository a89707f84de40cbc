"""The root file system that all nodes of a kind share, read-only: Debian, and over it the tree in rootfs/."""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.lab import cache
from tests.lab.paths import SOURCE
from tests.lab.run import build, run

TREE = SOURCE / "rootfs"
SUITE = "bookworm"
PACKAGES = (
    "systemd systemd-sysv dbus containerd runc iptables nftables ipset conntrack iproute2 procps kmod openssh-server "
    "python3 containernetworking-plugins socat util-linux mount ca-certificates firewalld"
).split()
# For a test to start: nothing on a node does.
DISABLED = ("firewalld.service",)
# Not needed on a node of a lab, and each costs start-up time on two cores.
MASKED = (
    "apt-daily.timer apt-daily-upgrade.timer console-getty.service dbus-org.freedesktop.login1.service "
    "dpkg-db-backup.timer e2scrub_all.timer "
    "e2scrub_reap.service fstrim.timer getty.target systemd-journal-flush.service systemd-logind.service "
    "systemd-networkd.service systemd-networkd.socket systemd-random-seed.service "
    "systemd-update-utmp.service systemd-update-utmp-runlevel.service "
    "systemd-sysctl.service systemd-modules-load.service systemd-binfmt.service systemd-pstore.service"
).split()
_LINKS = {
    "etc/systemd/system/basic.target.wants/lab-node.service": "/etc/systemd/system/lab-node.service",
    # containerd's own default for bin_dir, so that a config.toml without the key works too
    "opt/cni/bin": "/usr/lib/cni",
    "usr/bin/kubelet": "/opt/k8s/kubelet",
    "usr/bin/kubectl": "/opt/k8s/kubectl",
}
_BUILD_TIMEOUT_S = 1800


def parse_index_targets(text: str, suite: str, host_suite: str) -> list[str]:
    """One-line apt sources for `suite`, from the places where this machine finds Debian's `host_suite`.

    `text` is the output of `apt-get indextargets` with one "URI RELEASE COMPONENT" a line. A machine that is not
    Debian has no such place: the list is empty, and mmdebstrap's own default applies.
    """
    found = []
    for line in text.splitlines():
        uri, release, component = line.split()[:3]
        if component == "main" and release in (host_suite, f"{host_suite}-security", f"{host_suite}-updates"):
            entry = f"deb {uri} {release.replace(host_suite, suite)} main"
            if entry not in found:
                found.append(entry)
    return found


def _sources() -> list[str]:
    fields = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    if fields.get("ID") != "debian":
        return []
    wanted = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"]
    return parse_index_targets(run(wanted, timeout_s=60).stdout, SUITE, fields["VERSION_CODENAME"].strip('"'))


def _apt_options() -> list[str]:
    """What the machine's administrator told apt about reaching its mirror (proxies, dates)."""
    dump = run(["apt-config", "dump", "--format", "%F %v%n"], timeout_s=60).stdout
    wanted = re.compile(r"Acquire::(?:Check-\S+|https?::\S+|Retries)$")
    pairs = (line.partition(" ") for line in dump.splitlines())
    return [f'--aptopt={name} "{value}"' for name, _, value in pairs if value and wanted.match(name)]


def debootstrap(root: Path, variant: str, packages: Sequence[str], env: Mapping[str, str] | None = None) -> None:
    """Make `root` of Debian packages; `variant` is mmdebstrap's, `env` is for the packages' scripts."""
    fixed = ["mmdebstrap", "--quiet", f"--variant={variant}", f"--include={','.join(packages)}"]
    build([*fixed, *_apt_options(), SUITE, root, *_sources()], timeout_s=_BUILD_TIMEOUT_S, env=env)


def base(
    packages: Sequence[str] = PACKAGES, disabled: Sequence[str] = DISABLED, env: Mapping[str, str] | None = None
) -> Path:
    """Debian as installed, without what each machine must have of its own. Slow to make (20 s) and rarely changed."""

    def make(directory: Path) -> None:
        root = directory / "root"
        debootstrap(root, "minbase", packages, env)
        run(["chroot", root, "systemctl", "disable", *disabled], timeout_s=60)
        for key in root.glob("etc/ssh/ssh_host_*"):
            key.unlink()
        for name in ("var/lib/apt/lists", "var/cache/apt"):
            shutil.rmtree(root / name)
            (root / name).mkdir()

    return cache.ensure("debian", cache.digest([SUITE, *packages, "disabled", *disabled]), make) / "root"


def layer(debian: Path, trees: Sequence[Path] = (TREE,), masked: Sequence[str] = MASKED) -> Path:
    """What the lab lays over `debian`: `trees`, the later over the earlier, links, and a second copy of runc."""
    links = {**_LINKS, **{f"etc/systemd/system/{unit}": "/dev/null" for unit in masked}}

    def make(directory: Path) -> None:
        for tree in trees:
            _copy(tree, directory)
        for name, target in links.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).symlink_to(target)
        # runc's own name may be covered by a bind mount (lab-node-setup).
        shutil.copy(debian / "usr/sbin/runc", directory / "usr/local/lib/lab/runc")
        for path in directory.rglob("*"):
            if path.is_dir():
                path.chmod(0o755)

    parts = [f"{name}={target}" for name, target in sorted(links.items())]
    parts += [part for tree in trees for part in cache.tree_parts(tree)]
    return cache.ensure("layer", cache.digest([str(debian), *parts]), make)


def _copy(tree: Path, directory: Path) -> None:
    for source in tree.rglob("*"):
        target = directory / source.relative_to(tree)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)
