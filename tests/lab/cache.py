"""Things that are built once: each under a name that is the digest of what it is made from."""

import fcntl
import hashlib
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.paths import cache_home


def digest(parts: Iterable[str | bytes]) -> str:
    """A short name for a list of parts; their boundaries count."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "big") + data)
    return total.hexdigest()[:16]


def tree_parts(root: Path) -> Iterator[str | bytes]:
    """The names, modes and contents of the files below `root`, in an order of their own."""
    for path in sorted(root.rglob("*")):
        if path.is_file():
            yield f"{path.relative_to(root)} {path.stat().st_mode & 0o111:o}"
            yield path.read_bytes()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def ensure(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The cached directory `kind-key`, made by `make(empty directory)` when it is not there.

    Another process that makes the same one is waited for. An interrupted build leaves only a directory that the
    next build of the same name removes first.
    """
    target = cache_home() / f"{kind}-{key}"
    if target.exists():
        return target
    with _locked(cache_home() / f".{kind}-{key}.lock"):
        if target.exists():
            return target
        unfinished = cache_home() / f".{kind}-{key}.unfinished"
        if unfinished.exists():
            shutil.rmtree(unfinished)
        unfinished.mkdir(mode=0o755)
        print(f"lab: building {kind}, once", file=sys.stderr, flush=True)
        make(unfinished)
        unfinished.rename(target)
    return target
