# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a function in a throwaway copy of this machine, and leave nothing behind.

The copy has the machine's directories under an overlay whose upper side is memory: what is written, made or removed in
it goes with it. Sockets of the machine cannot be reached through an overlay, so that no service of the machine is
talked to. Devices (but null, zero, full and the random ones), /run, network, IPC and processes are its own; /sys
with the machine's cgroups and /proc/sys are read-only.

A copy is the child of the process that made it. It is PID 1 of its PID namespace, and dies with its parent
(PR_SET_PDEATHSIG): the kernel then ends its processes and, with the last one, its mounts.
See pid_namespaces(7), mount_namespaces(7) and the kernel's Documentation/filesystems/overlayfs.rst.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import re
import select
import signal
import socket
import struct
import time
from typing import NamedTuple

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x8000000, 0x20000000, 0x40000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 1, 32, 4096, 8192, 16384, 1 << 18
PR_SET_PDEATHSIG = 1
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1

# Kinds that hold programs and files; a network file system whose server is gone would block the copy.
DISK_TYPES = (
    "ext2",
    "ext3",
    "ext4",
    "xfs",
    "btrfs",
    "bcachefs",
    "f2fs",
    "zfs",
    "erofs",
    "squashfs",
    "overlay",
    "tmpfs",
)
# What a copy gets anew, and where pods and containers have mounts by the hundred.
OWN_DIRECTORIES = (
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/tmp",  # noqa: S108 (a path to hide, nothing is written to it)
    "/var/lib/kubelet",
    "/var/lib/docker",
    "/var/lib/containers",
)
DEVICES = ("null", "zero", "full", "random", "urandom")
SCRATCH = "/tmp"  # noqa: S108 (a mount of the copy lies over it)
MEMORY = "mode=755,size=128m"
READ_OCTETS = 65536

_libc = ctypes.CDLL(None, use_errno=True)


class SandboxError(Exception):
    """There is no answer out of the copy; the message says why."""


class Copy(NamedTuple):
    """One running copy. C(answers) ends with it; it must not start when C(alive) has ended."""

    pid: int
    answers: int
    alive: int


def run_in_copies(functions, timeout_s):
    """Run functions at the same time, each in a copy of its own.

    :param functions: callables without arguments that return something JSON can hold.
    :param timeout_s: seconds for all of them; a copy that takes longer is killed.
    :returns: for each function what it returned, or a SandboxError.
    """
    return _run(functions, timeout_s, _enter_copy)


def run_in_network(function, timeout_s):
    """Run a function, as run_in_copies does, in a network namespace with nothing in it and with an empty /run.

    It sees the machine's own files, so it must not write to them.
    """
    return _run([function], timeout_s, _enter_network)[0]


def _run(functions, timeout_s, enter):
    """Run functions at the same time, each in a child of its own that calls C(enter) first."""
    deadline = time.monotonic() + timeout_s
    copies = []
    try:
        for function in functions:
            try:
                copies.append(_start(function, enter))
            except OSError as error:
                return [SandboxError(str(error))] * len(functions)
        return [_answer(copy, deadline, timeout_s) for copy in copies]
    finally:
        for copy in copies:
            _end(copy)


def mount(source, target, kind=None, flags=0, data=None):
    """mount(2). :raises OSError: naming both places."""
    arguments = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    if _libc.mount(*arguments, ctypes.c_ulong(flags), None if data is None else os.fsencode(data)):
        code = ctypes.get_errno()
        raise OSError(code, f"mount {kind or source} at {target}: {os.strerror(code)}")


def cover(path):
    """Put an empty directory in memory over a directory, which is made if it is not there."""
    os.makedirs(path, exist_ok=True)
    mount("tmpfs", path, "tmpfs", 0, MEMORY)


def disk_mounts(mountinfo):
    """Return the mount points that a copy shows, parents first; see proc(5) for the format."""
    found = {"/"}
    for line in mountinfo.splitlines():
        fields, _separator, source = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), fields.split()[4])
        # Characters with a meaning in overlay's options.
        if (
            source.split()[0] in DISK_TYPES
            and not re.search(r"[,:\\]", point)
            and not _is_below(point, OWN_DIRECTORIES)
        ):
            found.add(point)
    return sorted(found, key=lambda point: (point.count("/"), point) if point != "/" else (0, point))


def _is_below(path, directories):
    return any(path == directory or path.startswith(directory + "/") for directory in directories)


def _call(name, *arguments):
    """Call into libc. :raises OSError: naming the call."""
    if getattr(_libc, name)(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def _start(function, enter):
    """Start a copy: only the child enters the PID namespace, and later children of this process do not."""
    answers, answer = os.pipe()
    start, alive = os.pipe()
    namespace = os.open("/proc/self/ns/pid", os.O_RDONLY)
    pid = None
    try:
        _call("setns", namespace, CLONE_NEWPID)  # no step on a way without return where this is forbidden
        _call("unshare", CLONE_NEWPID)
        try:
            pid = os.fork()
            if pid == 0:
                _be_copy(function, enter, answer, start)
        finally:
            _call("setns", namespace, CLONE_NEWPID)
    finally:
        for number in (answer, start, namespace) if pid else (answer, start, namespace, answers, alive):
            os.close(number)
    return Copy(pid, answers, alive)


def _answer(copy, deadline, timeout_s):
    """Return what a copy answered, or a SandboxError."""
    octets = b""
    while True:
        ready, _write, _error = select.select([copy.answers], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return SandboxError(f"no answer within {timeout_s} s")
        part = os.read(copy.answers, READ_OCTETS)
        if not part:
            break
        octets += part
    try:
        answer = json.loads(octets)
    except ValueError:
        return SandboxError("the process in the sandbox was killed")
    return SandboxError(answer["error"]) if answer["error"] else answer["result"]


def _end(copy):
    """Kill a copy; the wait lasts until every process in it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(copy.pid, signal.SIGKILL)
    os.waitpid(copy.pid, 0)
    os.close(copy.answers)
    os.close(copy.alive)


def _be_copy(function, enter, answer, start):
    """Be the copy's first process; never returns."""
    try:
        _call("prctl", PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
        close_all_but(answer, start)
        if select.select([start], [], [], 0)[0]:
            os._exit(1)  # the parent died before it could take this process with it
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        try:
            enter()
            reply = {"error": "", "result": function()}
        except Exception as error:  # whatever it is, the parent is to say it
            reply = {"error": f"{error}" or repr(error), "result": None}
        with os.fdopen(answer, "w", encoding="utf-8") as stream:
            json.dump(reply, stream)
    finally:
        os._exit(0)


def close_all_but(*kept):
    """Leave only these open, and the null device as input and outputs: a caller waits for the end of its pipes."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)


def _enter_copy():
    """Make the copy's namespaces, mount it and go into it."""
    _call("unshare", CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET)
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        mountinfo = stream.read()
    mount("tmpfs", SCRATCH, "tmpfs", 0, MEMORY)
    root = SCRATCH + "/root"
    os.mkdir(root)
    for number, point in enumerate(disk_mounts(mountinfo)):
        _overlay(point, root + point, f"{SCRATCH}/{number}")
    _mount_own(root)
    os.chdir(root)
    mount(".", "/", None, MS_MOVE)
    os.chroot(".")
    os.chdir("/")
    _open_network()


def _enter_network():
    """Make a network namespace, and hide what programs lock in /run, such as xtables.lock."""
    _call("unshare", CLONE_NEWNS | CLONE_NEWNET)
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", "/run", "tmpfs", 0, "mode=755,size=1m")


def _overlay(lower, target, memory):
    """Show a directory at a place; one that is not there or cannot be shown is empty in the copy."""
    if not os.path.isdir(lower):
        return
    for path in (memory + "/upper", memory + "/work", target):
        os.makedirs(path, exist_ok=True)
    options = f"lowerdir={lower},upperdir={memory}/upper,workdir={memory}/work"
    try:
        mount("overlay", target, "overlay", 0, options)
    except OSError:
        if lower == "/":
            raise


def _mount_own(root):
    """Mount what a copy does not share."""
    for name in ("proc", "sys", "dev", "run", "tmp"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    mount("proc", root + "/proc", "proc")
    mount("sysfs", root + "/sys", "sysfs", MS_RDONLY)
    cgroups = "/sys/fs/cgroup"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        points = [line.split()[4] for line in stream]
    for point in [point for point in points if _is_below(point, (cgroups,))]:
        mount(point, root + point, None, MS_BIND)
        mount(None, root + point, None, MS_REMOUNT | MS_BIND | MS_RDONLY)
    for name in ("dev", "run"):
        mount("tmpfs", f"{root}/{name}", "tmpfs", 0, MEMORY)
    for name in DEVICES:
        with open(f"{root}/dev/{name}", "wb"):
            mount("/dev/" + name, f"{root}/dev/{name}", None, MS_BIND)


def _open_network():
    """Set the loopback interface up, and let any address be listened on as if it were this machine's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = fcntl.ioctl(control, SIOCGIFFLAGS, struct.pack("16sH22x", b"lo", 0))
        flags = struct.unpack("16sH22x", request)[1]
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | IFF_UP))
    for family in ("ipv4", "ipv6"):
        with contextlib.suppress(OSError), open(f"/proc/sys/net/{family}/ip_nonlocal_bind", "w") as stream:
            stream.write("1")
    # The rest of it is the machine's.
    mount("/proc/sys", "/proc/sys", None, MS_BIND)
    mount(None, "/proc/sys", None, MS_REMOUNT | MS_BIND | MS_RDONLY)
