"""Which containerd a node runs: Debian's 1.6, none, or a line built from its Go module and laid over Debian.

A line is installed as upstream's release is by hand: programs in /usr/local/bin, with the unit of that release.
"""

import os
import shutil
from pathlib import Path

from tests.lab import cache, golang
from tests.lab.paths import SOURCE, cache_home
from tests.lab.run import build, run

LINES = ("1.7", "2.0", "2.2", "2.3", "2.4")
CHOICES = ("debian", "none", *LINES)
_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr")
# These snapshotters need C libraries or do not exist on a node.
_BUILD = ("go", "build", "-trimpath", "-tags", "no_aufs no_btrfs no_devmapper no_zfs")
_BUILD_TIMEOUT_S = 3600
_UNIT = "usr/local/lib/systemd/system/containerd.service"
WANTED_BY = "etc/systemd/system/multi-user.target.wants/containerd.service"
DEBIAN_FILES = (
    *(f"usr/bin/{name}" for name in (*_PROGRAMS, "containerd-shim", "containerd-shim-runc-v1")),
    "usr/lib/systemd/system/containerd.service",
)
"""The programs and the unit of Debian's package."""


def default_config(choice: str) -> str:
    """The text of the config.toml that a node gets: as Debian's package has it, in the version of its time."""
    version = "v3" if choice.startswith("2.") else "v2"
    return (SOURCE / f"config-{version}.toml").read_text()


def hide(directory: Path, names: tuple[str, ...]) -> None:
    """Make an overlay's layer say that files of the layers below do not exist (a character device 0,0)."""
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, 0o20000, 0)


def _module(line: str) -> tuple[Path, str]:
    """Where the go.mod of a line is, and the module that it requires."""
    name = "github.com/containerd/containerd"
    return golang.MODULES / f"containerd-{line}", name if line.startswith("1.") else f"{name}/v{line[0]}"


def version(line: str) -> str:
    """The release that stands for a line, as `v2.2.9`."""
    return golang.required_version(*_module(line))


def built() -> dict[str, Path]:
    """The daemon of each line that is in the cache, its newest build; nothing is built."""
    found = cache_home().glob("containerd-?.*/usr/local/bin/containerd")
    return {path.parents[3].name.split("-")[1]: path for path in sorted(found, key=lambda path: path.stat().st_mtime)}


def layer(line: str) -> Path:
    """The layer to lay over Debian: a line's programs and unit, and Debian's containerd hidden."""
    directory, module = _module(line)
    flags = ["-ldflags", f"-s -w -X {module}/version.Version={version(line)}"]
    packages = [f"{module}/cmd/{name}" for name in _PROGRAMS]

    def make(target: Path) -> None:
        hide(target, DEBIAN_FILES)
        programs, unit, wanted = target / "usr/local/bin", target / _UNIT, target / WANTED_BY
        for parent in (programs, unit.parent, wanted.parent):
            parent.mkdir(parents=True)
        command = [*_BUILD, "-o", f"{programs}/", *flags, *packages]
        build(command, timeout_s=_BUILD_TIMEOUT_S, cwd=directory, env={"CGO_ENABLED": "0"})
        source = run(["go", "list", "-m", "-f", "{{.Dir}}", module], timeout_s=60, cwd=directory).stdout.strip()
        shutil.copyfile(Path(source) / "containerd.service", unit)
        wanted.symlink_to(f"/{_UNIT}")

    key = cache.digest([*golang.identity(directory), *_BUILD, *flags, *packages, *DEBIAN_FILES, _UNIT])
    return cache.ensure(f"containerd-{line}", key, make)
