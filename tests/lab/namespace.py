"""One set of namespaces for each lab. Whatever the lab runs, runs inside: when its PID 1 ends, all of it ends.

Network: a bridge with the first address of the nodes' network; the nodes and the API server meet there. The host's
network is not touched.
"""

import ctypes
import os
import secrets
import select
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from tests.lab import cgroups
from tests.lab.errors import LabError
from tests.lab.run import environment, run, tail
from tests.lab.state import Process, Store

BRIDGE = "lab0"
GATEWAY = "10.77.0.1"
NETWORK_PREFIX = 24
_NEW = {"NEWNS": 0x20000, "NEWCGROUP": 0x2000000, "NEWUTS": 0x4000000, "NEWIPC": 0x8000000}
_NEW |= {"NEWPID": 0x20000000, "NEWNET": 0x40000000}
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_NSENTER = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")
_TIMEOUT_S = 20
# Joins the cgroups named before "--" and becomes the rest: from inside, they could not be reached on cgroup v2.
_JOIN = 'while [ "$1" != -- ]; do echo "$$" >"$1/cgroup.procs" || exit 125; shift; done; shift; exec "$@"'
# Reports its number, then becomes the command. A socket arrives as standard input: sd_listen_fds(3) wants it as 3.
_DETACHED = (
    'echo "$$"; [ -z "$LISTEN_FDS" ] || { LISTEN_PID=$$; export LISTEN_PID; exec 3<&0; }; '
    'log=$1; shift; exec "$@" >>"$log" 2>&1 </dev/null'
)


def start_time(stat: str) -> int:
    """Field 22 of /proc/PID/stat (proc(5)): counted after the command name, which may hold spaces and brackets."""
    return int(stat.rpartition(")")[2].split()[19])


def _libc_call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _mount(source: str, target: str, fstype: str, flags: int = 0, options: str = "") -> None:
    words = [word.encode() for word in (source, target, fstype)]
    _libc_call("mount", *words, ctypes.c_ulong(flags), options.encode())


class Namespace:
    """The namespaces of one lab, made or found through its state."""

    def __init__(self, store: Store) -> None:
        """`store` says where PID 1 is, if there is one."""
        self._store = store
        self.logs = store.directory / "log"

    # --- life ---

    def create(self) -> None:
        """Make the namespaces and the cgroups, with the network set up in them."""
        found = cgroups.hierarchies()
        # A name of its own: labs of one name may exist in several state folders, and `down` ends all in its cgroups.
        lab = f"portcullis-{self._store.directory.name}-{secrets.token_hex(4)}"
        roots = [str(hierarchy.mountpoint / lab) for hierarchy in found]
        switched_on = cgroups.v2_controllers_to_enable() if cgroups.is_v2(found) else []
        with self._store.change() as state:
            state.cgroups = roots
            state.controllers = switched_on
        cgroups.control(found[0].mountpoint, "+", switched_on)
        cgroups.make(roots)
        cgroups.make(self.cgroup("init"))
        self.logs.mkdir(exist_ok=True)
        self._fork_init(found, roots)
        if cgroups.is_v2(found):
            cgroups.control(Path(roots[0]), "+", (Path(roots[0]) / "cgroup.controllers").read_text().split())

    def _fork_init(self, found: Sequence[cgroups.Hierarchy], roots: Sequence[str]) -> None:
        """Start PID 1; it goes on only once its number is recorded, so that none is ever lost."""
        told, tell = os.pipe()
        heard, say = os.pipe()
        go, let_go = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(let_go)  # so that `go` ends with this program
            _in_child(lambda: self._make_init(roots, tell, lambda: _become_init(found, go, say)))
        for descriptor in (tell, go, say):
            os.close(descriptor)
        try:
            number = int(os.read(told, 16) or 0)
            os.waitpid(child, 0)
            if not number:
                raise LabError(f"the lab's namespace could not be made:\n{self.log_tail('init')}")
            init = Process(number, start_time(Path(f"/proc/{number}/stat").read_text()))
            with self._store.change() as state:
                state.init = init
            os.write(let_go, b"1")
            if not select.select([heard], [], [], _TIMEOUT_S)[0] or os.read(heard, 1) != b"1":
                raise LabError(f"the lab's network could not be made:\n{self.log_tail('init')}")
        finally:
            for descriptor in (told, heard, let_go):
                os.close(descriptor)

    def _make_init(self, roots: Sequence[str], tell: int, become_init: Callable[[], None]) -> None:
        """Runs in a child that is about to end: enter new namespaces and fork PID 1 into them."""
        log = os.open(self.logs / "init.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open("/dev/null", os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.setsid()
        for root in roots:
            (Path(root) / "cgroup.procs").write_text(str(os.getpid()))
        _libc_call("unshare", sum(_NEW.values()))
        for root in roots:
            (Path(root) / "init/cgroup.procs").write_text(str(os.getpid()))
        init = os.fork()
        if init == 0:
            _in_child(become_init)
        os.write(tell, str(init).encode())

    def alive(self) -> bool:
        """Whether the recorded PID 1 runs."""
        init = self._store.state.init
        if init is None:
            return False
        try:
            return start_time(Path(f"/proc/{init.pid}/stat").read_text()) == init.start
        except (FileNotFoundError, ProcessLookupError):
            return False

    def destroy(self) -> None:
        """End everything in the namespaces; then remove the cgroups."""
        state = self._store.state
        if state.init is not None:
            try:
                handle = os.pidfd_open(state.init.pid)
            except ProcessLookupError:
                handle = -1
            if handle >= 0:
                try:
                    if self.alive():
                        signal.pidfd_send_signal(handle, signal.SIGKILL)
                        # Readable: PID 1 is gone, and it goes only after all the others.
                        if not select.select([handle], [], [], _TIMEOUT_S)[0]:
                            raise LabError(f"PID 1 of the lab ({state.init.pid}) does not end in {_TIMEOUT_S} s")
                finally:
                    os.close(handle)
        cgroups.kill(state.cgroups)
        cgroups.remove(state.cgroups)
        if state.controllers:
            cgroups.control(Path(state.cgroups[0]).parent, "-", state.controllers)

    # --- use ---

    def cgroup(self, name: str) -> list[str]:
        """The cgroup `name` of this lab in every hierarchy."""
        return [f"{root}/{name}" for root in self._store.state.cgroups]

    def command(self, argv: Sequence[str | Path], *, cgroup: str = "init") -> list[str]:
        """The command line that runs `argv` inside."""
        init = self._store.state.init
        if init is None or not self.alive():
            raise LabError(f"lab {self._store.directory.name} does not run")
        enter = ["nsenter", "--target", str(init.pid), *_NSENTER, "--"]
        return ["sh", "-c", _JOIN, "sh", *self.cgroup(cgroup), "--", *enter, *map(str, argv)]

    def run(self, argv: Sequence[str | Path], *, timeout_s: float = 30, stdin: str = "") -> str:
        """Run a command inside and return its output."""
        return run(self.command(argv), timeout_s=timeout_s, stdin=stdin).stdout

    def start(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        cgroup: str = "init",
        env: Mapping[str, str] | None = None,
        socket: int | None = None,
    ) -> None:
        """Start a long-running process inside, recorded under `name`, its output in log/NAME.log.

        `socket` is a listening socket that it inherits (socket activation).
        """
        log = self.logs / f"{name}.log"
        log.touch(mode=0o600)
        detach = ["setsid", "--fork", "sh", "-c", _DETACHED, "sh", log]
        extra = {**(env or {}), **({"LISTEN_FDS": "1"} if socket is not None else {})}
        done = subprocess.run(
            self.command([*detach, *argv], cgroup=cgroup),
            stdin=subprocess.DEVNULL if socket is None else socket,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            env=environment(extra),
        )
        if done.returncode != 0 or not done.stdout.strip():
            raise LabError(f"{name} could not be started: {done.stderr.strip() or done.returncode}")
        pid = int(done.stdout)
        with self._store.change() as state:
            state.processes[name] = Process(pid, self._start_time(pid))

    def _start_time(self, pid: int) -> int:
        """Of a process inside, by its number there; 0 when there is none."""
        init = self._store.state.init
        try:
            return start_time(Path(f"/proc/{init.pid if init else 0}/root/proc/{pid}/stat").read_text())
        except (FileNotFoundError, ProcessLookupError):
            return 0

    def running(self, name: str) -> bool:
        """Whether the process recorded under `name` runs."""
        process = self._store.state.processes.get(name)
        return process is not None and process.start != 0 and self._start_time(process.pid) == process.start

    def log_tail(self, name: str) -> str:
        """The last lines of log/NAME.log, for an error message."""
        try:
            return tail((self.logs / f"{name}.log").read_text(errors="replace"))
        except FileNotFoundError:
            return "    (no log)"

    def check(self, name: str) -> None:
        """LabError with the end of its log when a process that was started has ended."""
        if not self.running(name):
            raise LabError(f"{name} has ended:\n{self.log_tail(name)}")

    def resident_mib(self) -> float:
        """Memory of all processes of the lab, shared pages counted once (PSS) where the kernel tells."""
        total = 0
        for pid in cgroups.members(self._store.state.cgroups):
            try:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:
                continue
            total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
        return total / 1024


def _in_child(work: Callable[[], None]) -> NoReturn:
    """Run `work` in a forked child, which never returns to the caller's code."""
    code = 1
    try:
        work()
        code = 0
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def _become_init(found: Sequence[cgroups.Hierarchy], go: int, say: int) -> None:
    """PID 1: wait for leave, set up mounts and network, say so, and sleep until killed."""
    if os.read(go, 1) != b"1":
        return  # the program that should have recorded this process is gone
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    _mount("proc", "/proc", "proc")
    _mount("sysfs", "/sys", "sysfs")
    _mount("tmpfs", "/run", "tmpfs", 0, "mode=755")
    _mount_cgroups(found)
    _set_up_network()
    os.write(say, b"1")
    os.close(say)
    # The kernel reaps the children of a process that ignores SIGCHLD; an exec keeps that.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.closerange(3, 1024)  # whatever the caller's caller left open
    os.execv("/bin/sleep", ["sleep", "infinity"])  # noqa: S606


def _mount_cgroups(found: Sequence[cgroups.Hierarchy]) -> None:
    base = Path("/sys/fs/cgroup")
    if not cgroups.is_v2(found):
        _mount("tmpfs", str(base), "tmpfs", 0, "mode=755")
    for hierarchy in found:
        hierarchy.mountpoint.mkdir(exist_ok=True)
        _mount(hierarchy.fstype, str(hierarchy.mountpoint), hierarchy.fstype, 0, hierarchy.options)
        if "," in hierarchy.options:
            for controller in hierarchy.options.split(","):
                (base / controller).symlink_to(hierarchy.mountpoint.name)


def _set_up_network() -> None:
    commands = f"""
        link set lo up
        link add {BRIDGE} type bridge forward_delay 0
        address add {GATEWAY}/{NETWORK_PREFIX} dev {BRIDGE}
        link set {BRIDGE} up
    """
    run(["ip", "-batch", "-"], stdin=commands, timeout_s=10)
    ipv4 = Path("/proc/sys/net/ipv4")
    (ipv4 / "ip_forward").write_text("1")
    # All pod routes lead back out of the bridge: a router would tell the nodes of a shorter way.
    (ipv4 / f"conf/{BRIDGE}/send_redirects").write_text("0")
    (ipv4 / "conf/all/send_redirects").write_text("0")
