"""The images that nodes start with, made here and imported into containerd without a registry.

Importing takes seconds on each node, so it is done once, into a template of /var/lib/containerd that nodes copy.
"""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.lab import cache, golang, oci
from tests.lab.paths import SOURCE
from tests.lab.run import build, run

BUSYBOX = "busybox:1.33"
OPTIONAL = (BUSYBOX,)
# What the containerd lines and kubeadm ask for when a config.toml does not say: any of them works without a registry.
_PAUSE_TAGS = ("3.6", "3.8", "3.9", "3.10", "3.10.1")
_BUSYBOX_BINARY = Path("/bin/busybox")
# ipset reads "tcp:443" with it, so without it every set of the mode ipvs stays empty.
_PROTOCOLS = SOURCE / "kube-proxy.protocols"
_PROXY_TOOLS = (
    "usr/sbin/xtables-nft-multi",
    "usr/sbin/xtables-legacy-multi",
    "usr/sbin/nft",
    "usr/sbin/ipset",
    "usr/sbin/conntrack",
)
_IPTABLES = [f"{family}tables{verb}" for family in ("ip", "ip6") for verb in ("", "-save", "-restore")]
_PATH = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
_IMPORT = """
set -eu
mount -t tmpfs tmpfs /run
containerd --config /dev/null --root "$1" --state /run/containerd --address /run/containerd.sock >/run/log 2>&1 &
shift
tries=0
until ctr --address /run/containerd.sock version >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || { cat /run/log; exit 1; }
    sleep 0.1
done
for archive; do
    ctr --address /run/containerd.sock -n k8s.io images import --snapshotter overlayfs "$archive"
done
kill "$!"
wait "$!" || true
"""


def kube_proxy_image() -> str:
    """The name under which kubeadm's DaemonSet finds it."""
    return f"registry.k8s.io/kube-proxy:{golang.kubernetes_version()}"


def busybox() -> bytes:
    """The archive of BUSYBOX, from Debian's static program."""
    applets = run([_BUSYBOX_BINARY, "--list"], timeout_s=10).stdout.split()
    links = {f"bin/{name}": "busybox" for name in applets if name != "busybox"}
    directories = {"etc/passwd": SOURCE / "busybox.passwd"}
    layer = oci.layer({"bin/busybox": _BUSYBOX_BINARY, **directories}, links)
    return oci.archive([f"docker.io/library/{BUSYBOX}"], layer, {"Cmd": ["sh"], "Env": [_PATH]})


def _pause(directory: Path) -> bytes:
    binary = directory / "pause"
    run(["gcc", "-static", "-Os", "-s", "-o", binary, SOURCE / "pause.c"], timeout_s=120)
    names = [f"registry.k8s.io/pause:{tag}" for tag in _PAUSE_TAGS]
    data = oci.archive(names, oci.layer({"pause": binary}, {}), {"Entrypoint": ["/pause"]})
    binary.unlink()
    return data


def parse_ldd(text: str) -> list[str]:
    """The libraries (and the loader) that `ldd` lists, as absolute paths."""
    return sorted(set(re.findall(r"(?:^|=>)\s+(/\S+) \(0x", text, re.MULTILINE)))


def _kube_proxy(root: Path, binaries: Path) -> bytes:
    """kube-proxy and the packet filter tools it runs, taken with their libraries from the nodes' root file system."""
    tools = [f"/{tool}" for tool in _PROXY_TOOLS]
    extensions = [f"/{path.relative_to(root)}" for path in root.glob("usr/lib/*/xtables/*.so")]
    # Extensions have libraries of their own: without libm no service with two endpoints would be programmed.
    libraries = parse_ldd(run(["chroot", root, "ldd", *tools, *extensions], timeout_s=30).stdout)
    files = {name.lstrip("/"): root / name.lstrip("/") for name in (*tools, *libraries, *extensions)}
    files = {re.sub(r"^(lib|lib64)/", r"usr/\1/", name): path.resolve() for name, path in files.items()}
    files["usr/local/bin/kube-proxy"] = binaries / "kube-proxy"
    files["usr/bin/busybox"] = _BUSYBOX_BINARY
    files["etc/protocols"] = _PROTOCOLS
    links = {"lib": "usr/lib", "lib64": "usr/lib64", "bin": "usr/bin", "sbin": "usr/sbin", "usr/bin/sh": "busybox"}
    links |= {f"usr/sbin/{name}": "xtables-nft-multi" for name in _IPTABLES}
    config = {"Entrypoint": ["/usr/local/bin/kube-proxy"], "Env": [_PATH + ":/usr/local/bin"]}
    return oci.archive([kube_proxy_image()], oci.layer(files, links), config)


def archives(root: Path, binaries: Path) -> Path:
    """The directory with the archives: pause.tar, kube-proxy.tar and one for each optional image."""

    def make(directory: Path) -> None:
        (directory / "pause.tar").write_bytes(_pause(directory))
        (directory / "kube-proxy.tar").write_bytes(_kube_proxy(root, binaries))
        (directory / f"{BUSYBOX}.tar").write_bytes(busybox())

    sources = [path.read_bytes() for path in (SOURCE / "images.py", SOURCE / "oci.py", SOURCE / "pause.c", _PROTOCOLS)]
    return cache.ensure("images", cache.digest([str(root), str(binaries), *sources]), make)


def template(root: Path, binaries: Path, optional: Sequence[str]) -> Path:
    """A /var/lib/containerd that holds the sandbox image, kube-proxy's, and the `optional` ones."""
    stored = archives(root, binaries)
    wanted = ["pause", "kube-proxy", *sorted(optional)]

    def make(directory: Path) -> None:
        inside = root / "mnt"
        bind = f'mount --bind "$1" "{inside}" && mount --bind "$2" "{root / "opt"}" && shift 2 && exec "$@"'
        chroot = ["chroot", root, "sh", "-c", _IMPORT, "sh", "/mnt", *(f"/opt/{name}.tar" for name in wanted)]
        build(["sh", "-c", bind, "sh", directory, stored, *chroot], timeout_s=300)

    return cache.ensure("containerd", cache.digest([str(stored), _IMPORT, *wanted]), make)


def copy_template(source: Path, target: Path) -> None:
    """Give a node its own copy.

    Layers and blobs are never written in place, so they are hard links where the file system allows it: no copying,
    and all nodes share one page cache. Everything else (containerd's databases) is a true copy.
    """

    def copy(from_: str, to: str) -> None:
        immutable = "/snapshots/" in from_ or "/blobs/" in from_
        try:
            if immutable:
                os.link(from_, to, follow_symlinks=False)
                return
        except OSError:
            pass
        shutil.copy2(from_, to, follow_symlinks=False)

    shutil.copytree(source, target, symlinks=True, copy_function=copy, dirs_exist_ok=True)
