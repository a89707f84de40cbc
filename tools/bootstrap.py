#!/usr/bin/env python3
"""Set up what developing and trying Portcullis needs: distribution packages, a virtual environment, links.

    bootstrap.py [--lint-only]

What is missing and cannot be installed is named in one line before anything is changed. The virtual environment
is cached under $XDG_CACHE_HOME/portcullis/venv by the digest of the lock file; `.venv` links to it. `.collections`
lets Ansible find this checkout as portcullis.fleet.

Written for any Python 3.8, since it has to say which Python is missing.
"""

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-dev.txt"
PYTHONS = ("python3.13", "python3.12", "python3.11", "python3")
GO_MINIMUM = (1, 24)
SUPPORTED = {"debian": ("12", "13"), "ubuntu": ("22.04", "24.04")}

# Package -> a file that proves it is there. The lab: tests/lab/README.md says what each is for.
VENV_PACKAGES = {"git": "/usr/bin/git"}
LAB_PACKAGES = {
    "gcc": "/usr/bin/gcc",
    "libc6-dev": "/usr/include/stdio.h",
    "busybox-static": "/bin/busybox",
    "debian-archive-keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
    "e2fsprogs": "/sbin/mkfs.ext4",
    "iproute2": "/sbin/ip",
    "mmdebstrap": "/usr/bin/mmdebstrap",
    "openssh-client": "/usr/bin/ssh",
    "systemd": "/lib/systemd/systemd-socket-proxyd",
    "systemd-container": "/usr/bin/systemd-nspawn",
}


def cache_home() -> Path:
    """Where this project keeps what survives the checkout."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "portcullis"


def run(*argv: str) -> None:
    """Run a command, its output to the terminal; exit in one line when it fails."""
    try:
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit("bootstrap: {}".format(error))  # noqa: UP032


def capture(*argv: str) -> str:
    """The standard output of a command, or nothing when it is not there or fails."""
    try:
        done = subprocess.run(
            argv, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.decode()


def find_python() -> str:
    """The first Python on PATH that is 3.11 to 3.13 (what ansible-core 2.19 runs on), or nothing."""
    probe = "import sys; print(sys.executable if (3, 11) <= sys.version_info[:2] <= (3, 13) else '')"
    for name in PYTHONS:
        found = capture(name, "-c", probe).strip()
        if found:
            return found
    return ""


def find_go() -> bool:
    """Whether `go` on PATH is new enough for Kubernetes 1.34."""
    match = re.search(r"go(\d+)\.(\d+)", capture("go", "version"))
    return bool(match) and tuple(int(part) for part in match.groups()) >= GO_MINIMUM


def distribution() -> tuple:
    """(ID, VERSION_ID) of /etc/os-release."""
    try:
        text = Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        return ("unknown", "")
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return tuple(fields.get(key, "").strip('"') for key in ("ID", "VERSION_ID"))


def missing_packages(wanted: dict) -> list:
    """The packages whose file is not there."""
    return sorted(name for name, proof in wanted.items() if not Path(proof).exists())


def venv_package(python: str) -> dict:
    """Debian splits ensurepip from its Python: the package that brings it, when this Python lacks it."""
    if capture(python, "-c", "import ensurepip, venv; print(1)"):
        return {}
    version = capture(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    return {"python{}-venv".format(version): "/nonexistent"}  # noqa: UP032


def complaints(lab: bool, python: str, packages: list) -> list:
    """What is missing and cannot be installed from here, a sentence each."""
    found = []
    if not python:
        found.append("Python 3.11 to 3.13 is needed and no python3 on PATH is one: apt-get install python3.11")
    if lab and not find_go():
        found.append("Go 1.24 or newer is needed on PATH to build Kubernetes for the lab: see go.dev/doc/install")
    if lab and os.geteuid() != 0:
        found.append("the lab makes namespaces and nodes and must run as root: run it with sudo")
    name, version = distribution()
    if packages and version not in SUPPORTED.get(name, ()):
        found.append(
            "{} {} is not Debian 12/13 or Ubuntu 22.04/24.04, so these are not installed for you: {}".format(
                name, version, " ".join(packages)
            )
        )
    elif packages and os.geteuid() != 0:
        found.append("these packages are missing and only root can install them: " + " ".join(packages))
    return found


def make_venv(python: str) -> Path:
    """The virtual environment for this lock file, made once; another run waits for the one that makes it."""
    key = hashlib.sha256(LOCK.read_bytes() + os.path.realpath(python).encode()).hexdigest()[:16]
    home = cache_home() / "venv"
    home.mkdir(parents=True, exist_ok=True)
    venv = home / key
    with (home / (key + ".lock")).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # A venv cannot be moved after it is made: a mark says that it is whole.
        if not (venv / "complete").exists():
            shutil.rmtree(str(venv), ignore_errors=True)
            print("bootstrap: making the virtual environment (about a minute)", flush=True)
            run(python, "-m", "venv", str(venv))
            run(str(venv / "bin/pip"), "install", "--quiet", "--require-hashes", "--requirement", str(LOCK))
            (venv / "complete").touch()
    return venv


def link(path: Path, target: str) -> None:
    """Make `path` a symbolic link to `target`, replacing a link that points elsewhere."""
    if path.is_symlink() and os.readlink(str(path)) == target:
        return
    if path.is_symlink():
        path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def main(argv: list) -> int:
    """Check, then install."""
    parser = argparse.ArgumentParser(description="Set up Portcullis's development environment.")
    parser.add_argument("--lint-only", action="store_true", help="no lab: no root, no Go, no node tools needed")
    lab = not parser.parse_args(argv).lint_only
    python = find_python()
    wanted = dict(VENV_PACKAGES, **(LAB_PACKAGES if lab else {}), **(venv_package(python) if python else {}))
    packages = missing_packages(wanted)
    missing = complaints(lab, python, packages)
    if missing:
        sys.exit("bootstrap: " + "; ".join(missing))
    if packages:
        print("bootstrap: installing " + " ".join(packages), flush=True)
        os.environ["DEBIAN_FRONTEND"] = "noninteractive"
        run("apt-get", "update", "-q")
        run("apt-get", "install", "-q", "-y", "--no-install-recommends", *packages)
    link(ROOT / ".venv", str(make_venv(python)))
    link(ROOT / ".collections/ansible_collections/portcullis/fleet", "../../..")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
