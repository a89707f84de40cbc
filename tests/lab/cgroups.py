"""The lab's own cgroup in every hierarchy, cgroup v1 (also beside v2) and v2.

Below it: `init` for the lab's own programs and one for each node. The lab's cgroup namespace has it as its root, so
nothing that kubelets make lies outside. These directories outlive the processes: they are recorded before they are
made, and removed depth-first.
"""

import os
import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab.errors import LabError
from tests.lab.run import wait

_MOUNTPOINT = Path("/sys/fs/cgroup")
_V1_OPTIONS = re.compile(
    r"cpu|cpuacct|cpuset|memory|devices|freezer|blkio|pids|net_cls|net_prio|perf_event|hugetlb|rdma|misc"
)
_NEEDED = ("cpu", "cpuset", "memory", "pids")
_TIMEOUT_S = 20


@dataclass(frozen=True)
class Hierarchy:
    """A mounted cgroup hierarchy."""

    mountpoint: Path
    fstype: str
    options: str
    """For mounting it again."""


def parse_mountinfo(text: str) -> list[Hierarchy]:
    """The cgroup hierarchies below /sys/fs/cgroup in the text of /proc/self/mountinfo (proc(5))."""
    found = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        mountpoint = Path(before.split()[4])
        fstype, _, options = after.split()[:3]
        if fstype in ("cgroup", "cgroup2") and mountpoint.is_relative_to(_MOUNTPOINT):
            kept = [word for word in options.split(",") if word.startswith("name=") or _V1_OPTIONS.fullmatch(word)]
            found.append(Hierarchy(mountpoint, fstype, ",".join(kept) if fstype == "cgroup" else ""))
    return found


def hierarchies() -> list[Hierarchy]:
    """Those of this machine; LabError when there are none."""
    found = parse_mountinfo(Path("/proc/self/mountinfo").read_text())
    if not found:
        raise LabError(f"no cgroup hierarchy is mounted below {_MOUNTPOINT}: nodes cannot run")
    return found


def is_v2(found: Sequence[Hierarchy]) -> bool:
    """Whether the controllers are on the unified hierarchy (and not on v1 beside it)."""
    return [hierarchy.fstype for hierarchy in found] == ["cgroup2"]


def v2_controllers_to_enable() -> list[str]:
    """Those that the host's root cgroup has and does not hand down."""
    read = [(_MOUNTPOINT / name).read_text().split() for name in ("cgroup.controllers", "cgroup.subtree_control")]
    return [name for name in read[0] if name not in read[1]]


def control(directory: Path, verb: str, controllers: Iterable[str]) -> None:
    """Hand down (`+`) or take back (`-`) v2 controllers; one that others use stays.

    LabError when one that kubelets cannot do without is not handed down.
    """
    for controller in controllers:
        try:
            (directory / "cgroup.subtree_control").write_text(verb + controller)
        except OSError as error:
            if verb == "+" and controller in _NEEDED:
                raise LabError(
                    f"{directory}: controller {controller} cannot be handed down: {error.strerror}"
                ) from error


def make(directories: Iterable[str]) -> None:
    """Make cgroups; a v1 cpuset gets its parent's processors and memory, without which no process may join."""
    for directory in map(Path, directories):
        directory.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):
            own = directory / name
            if own.exists() and not own.read_text().strip() and (directory.parent / name).exists():
                inherited = (directory.parent / name).read_text().strip()
                if inherited:
                    own.write_text(inherited)


def members(directories: Iterable[str]) -> set[int]:
    """The processes in these cgroups and below, by their numbers here."""
    found: set[int] = set()
    for directory in map(Path, directories):
        # os.walk passes over what is removed while it walks.
        for path, _, _ in os.walk(directory):
            try:
                found |= {int(word) for word in Path(path, "cgroup.procs").read_text().split()}
            except OSError:  # removed, or a threaded cgroup, since it was listed
                continue
    return found - {0}


def kill(directories: Sequence[str]) -> None:
    """End every process in these cgroups and below; LabError when some stay."""

    def empty() -> bool:
        for pid in members(directories):
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                # The number may have passed to another process before the handle was open.
                if pid in members(directories):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            except ProcessLookupError:
                pass
            finally:
                os.close(handle)
        return not members(directories)

    wait(f"processes in {directories[0] if directories else 'no cgroup'} end", empty, timeout_s=_TIMEOUT_S)


def remove(directories: Sequence[str]) -> None:
    """Remove these cgroups and all below; a process that is just ending is waited for."""

    def gone() -> bool:
        for directory in directories:
            for path, _, _ in os.walk(directory, topdown=False):
                try:
                    Path(path).rmdir()
                except FileNotFoundError:
                    continue
                except OSError:
                    return False
        return True

    wait(f"cgroups {', '.join(directories[:1])}... are removed", gone, timeout_s=_TIMEOUT_S)
