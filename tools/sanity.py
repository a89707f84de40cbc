"""Run `ansible-test sanity` on a copy of this checkout, also where the bootstrap script of pip cannot be downloaded.

ansible-test wants the collection at .../ansible_collections/portcullis/fleet, fetches get-pip.py from the network for
each of its environments, and keeps none of pip's environment variables. So it gets a home directory of its own, kept
between runs: with a get-pip.py that uses the pip which Python brings with it (ensurepip), and with pip's configuration.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.bootstrap import cache_home

ROOT = Path(__file__).resolve().parent.parent
# What ansible-core 2.19 asks for (ansible_test/_util/target/setup/requirements.py).
SHIM = ".ansible/test/cache/get_pip_24_2.py"
SHIM_TEXT = """\
import subprocess
import sys

# A process of its own: ensurepip switches pip's configuration off in the one that it runs in.
subprocess.check_call([sys.executable, "-m", "ensurepip"], stdout=subprocess.DEVNULL)
get_pip_options = ("--no-setuptools", "--no-wheel")
arguments = [word for word in sys.argv[1:] if word not in get_pip_options]
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", "--quiet", *arguments]))
"""


def copy_checkout(target: Path) -> None:
    """Copy what git tracks, and what it would, to where ansible-test expects a collection."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout.decode()
    for name in filter(None, names.split("\0")):
        # What is not shipped (galaxy.yml, build_ignore) is not ansible-test's business: ruff reads it.
        if name.startswith(("tests/", "tools/")) or not (ROOT / name).is_file():
            continue
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, path)


def pip_configuration() -> str:
    """What pip uses here, from files and environment alike, as a pip.conf."""
    pip = Path(sys.executable).parent / "pip"
    listed = subprocess.run([pip, "config", "list"], check=True, capture_output=True).stdout.decode()
    pairs = re.findall(r"^(?:global|install|:env:)\.\.?([\w-]+)='(.*)'$", listed, re.MULTILINE)
    return "[global]\n" + "".join(f"{key} = {value}\n" for key, value in dict(pairs).items())


def make_home() -> Path:
    """The home directory in which ansible-test keeps its environments."""
    home = cache_home() / "sanity"
    for name, text in ((SHIM, SHIM_TEXT), (".config/pip/pip.conf", pip_configuration())):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")
    return home


def main(argv: list[str]) -> int:
    """Run sanity; further arguments go to ansible-test."""
    with tempfile.TemporaryDirectory(prefix="portcullis-sanity-") as folder:
        collection = Path(folder, "ansible_collections/portcullis/fleet")
        copy_checkout(collection)
        subprocess.run(["git", "init", "--quiet"], cwd=collection, check=True)
        subprocess.run(["git", "add", "--all"], cwd=collection, check=True)
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        program = Path(sys.executable).parent / "ansible-test"
        environment = {**os.environ, "HOME": str(make_home()), "PATH": f"{program.parent}:{os.environ['PATH']}"}
        command = [program, "sanity", "--color", "no", "--python", version, *argv]
        return subprocess.run(
            command, cwd=collection, env=environment, stdin=subprocess.DEVNULL, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
