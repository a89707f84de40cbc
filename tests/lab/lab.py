"""One lab: brought up, changed and taken down. This is also what tests use (README.md, "From Python")."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tests.lab import cluster, controlplane, forward, host, inventory, parts, pki, registry
from tests.lab.api import Api
from tests.lab.errors import LabError
from tests.lab.machine import Address, Machine
from tests.lab.namespace import Namespace
from tests.lab.node import ContainerNode
from tests.lab.parts import Parts
from tests.lab.registry import Registry
from tests.lab.run import run, tail, usual_umask, wait
from tests.lab.state import NodeState, Store
from tests.lab.topology import DEFAULT, Node, Topology, parse_node
from tests.lab.vm import VmNode

KINDS: dict[str, type[Machine]] = {"container": ContainerNode, "vm": VmNode}
_SSH_TIMEOUT_S = 120
_READY_TIMEOUT_S = 180
_TOO_MANY_NODES = 200
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")


class Lab:
    """A lab by its name, whether it runs or not."""

    def __init__(self, name: str) -> None:
        """Reads the lab's state and changes nothing."""
        if not _NAME.fullmatch(name):
            raise LabError(f"lab {name!r}: expected 1 to 32 of a-z, 0-9 and -, not starting or ending with -")
        self.name = name
        self._store = Store(name)
        self._namespace = Namespace(self._store)
        self.timings_s: dict[str, float] = {}
        """Seconds of each phase of `up`."""

    @classmethod
    def open(cls, name: str = "default") -> "Lab":
        """The lab with this name."""
        return cls(name)

    # --- where things are ---

    @property
    def directory(self) -> Path:
        """The lab's state."""
        return self._store.directory

    @property
    def kubeconfig(self) -> Path:
        """The administrator's, usable from outside."""
        return self.directory / "kubeconfig"

    @property
    def inventory_path(self) -> Path:
        """The Ansible inventory, kept up to date as nodes come and go."""
        return self.directory / "inventory.yml"

    @property
    def api(self) -> Api:
        """A client with the administrator's certificate."""
        return Api(self._store.state.api_port, self.directory / "pki")

    @property
    def nodes(self) -> dict[str, Node]:
        """The nodes by name."""
        return {name: parse_node(entry.spec) for name, entry in self._store.state.nodes.items()}

    @property
    def port(self) -> dict[str, int]:
        """The ports of the nodes' sshd on 127.0.0.1."""
        return {name: entry.port for name, entry in self._store.state.nodes.items()}

    @property
    def exists(self) -> bool:
        """Whether there is anything of it, whole or not."""
        return self._store.exists()

    def address(self, name: str) -> Address:
        """A node's address and its pods' network, inside the lab."""
        return Address(self._entry(name).index)

    # --- up and down ---

    def up(self, topology: Topology | None = None) -> bool:
        """Bring the lab up; True when something was done, False when it was up already.

        `topology` None: the default one, or whatever a lab that is up has. LabError when a lab that is up has another
        one, when an earlier `up` did not finish, or when a part has died: `down` comes first then.
        """
        if os.geteuid() != 0:
            raise LabError("the lab makes namespaces and nodes and must run as root: run it with sudo")
        if self._is_up(topology):
            return False
        wanted = topology or DEFAULT
        with usual_umask(), self._phase("build"):
            made = parts.build(wanted)
        with usual_umask(), self._store.locked(create=True):
            if self._is_up(topology):
                return False
            with self._phase("namespace"):
                host.raise_limit()
                self._namespace.create()
                self._write_ssh_key()
                with self._store.change() as state:
                    state.proxy_mode = wanted.proxy_mode
                    state.binaries = str(made.binaries)
            self._start(wanted, made)
            with self._store.change() as state:
                state.complete = True
        return True

    def _start(self, topology: Topology, made: Parts) -> None:
        """Start the control plane and all nodes at the same time."""
        started = time.monotonic()
        with ThreadPoolExecutor(max_workers=16) as pool:
            controlplane.make_pki(self.directory / "pki")
            machines = [self._make(node, made) for node in topology.nodes]
            plane = pool.submit(controlplane.start, self._namespace, self._store, made.binaries)
            booted = [pool.submit(self._boot, node, machine) for node, machine in machines]
            api = plane.result()
            self.timings_s["control plane"] = time.monotonic() - started
            cluster_nodes = [node for node in topology.nodes if node.cluster]
            for node in cluster_nodes:
                cluster.apply_node(api, node, self.address(node.name).pods)
            cluster.apply_kube_proxy(api, topology.proxy_mode)
            for boot in booted:
                boot.result()
            self.timings_s["ssh"] = time.monotonic() - started
            self._write_inventory()
            self._wait_ready([node.name for node in cluster_nodes])
            self.timings_s["ready"] = time.monotonic() - started

    def down(self, *, unless_whole: bool = False) -> bool:
        """Take away everything of this lab, whatever state it is in; True when something was taken away.

        With `unless_whole` a lab that is up and whole stays; one that another program is bringing up is waited for.
        """
        if not self._store.exists():
            host.restore_limit()  # a `down` that was killed after its last step but this one
            return False
        with self._store.locked():
            if unless_whole and not self.problems():
                return False
            self._namespace.destroy()
            shutil.rmtree(self.directory)
            self._store.read()  # nothing is left of it: this object may bring the lab up again
            host.restore_limit()
        return True

    def problems(self) -> list[str]:
        """What is not as it should be, a sentence each; empty when the lab is up and whole."""
        state = self._store.state
        if not state.cgroups:
            return [f"lab {self.name} does not exist"]
        if not self._namespace.alive():
            return [f"the namespace of lab {self.name} has ended"]
        found = [] if state.complete else [f"an earlier `up` of lab {self.name} did not finish"]
        return found + [f"{name} has ended" for name in state.processes if not self._namespace.running(name)]

    def _is_up(self, topology: Topology | None) -> bool:
        if not self._store.state.cgroups:
            return False
        self._check_whole()
        if topology is not None:
            self._check_same(topology)
        return True

    def _check_whole(self) -> None:
        found = self.problems()
        if found:
            raise LabError(f"{'; '.join(found)}: run `down` and then `up`; logs: {self._namespace.logs}")

    def _check_same(self, topology: Topology) -> None:
        wanted = {node.name: _spec(node) for node in topology.nodes}
        found = {name: entry.spec for name, entry in self._store.state.nodes.items()}
        different = sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))
        if different or topology.proxy_mode != self._store.state.proxy_mode:
            what = ", ".join(different) or "proxy_mode"
            raise LabError(f"lab {self.name} is up with another topology ({what}): run `down` first")

    # --- nodes ---

    def node_add(self, node: Node) -> None:
        """Add a node and wait until it is ready."""
        with usual_umask(), self._store.locked():
            self._check_whole()
            if node.name in self._store.state.nodes:
                raise LabError(f"lab {self.name} has a node {node.name} already")
            made = parts.build(Topology(nodes=(node,), proxy_mode=self._store.state.proxy_mode))
            _, machine = self._make(node, made)
            if node.cluster:
                cluster.apply_node(self.api, node, self.address(node.name).pods)
            self._boot(node, machine)
            self._write_inventory()
            if node.cluster:
                self._wait_ready([node.name])

    def node_remove(self, name: str) -> None:
        """Remove a node from the cluster, from the inventory and from the disk."""
        with self._store.locked():
            entry = self._entry(name)
            node = parse_node(entry.spec)
            if node.cluster:
                cluster.delete_node(self.api, name)
            self._stop_forward(name)
            self._machine(node, entry.index, Parts(Path(), Path(), Path())).remove()
            with self._store.change() as state:
                del state.nodes[name]
                for process in (f"node-{name}", f"forward-{name}"):
                    state.processes.pop(process, None)
            self._write_inventory()

    def _stop_forward(self, name: str) -> None:
        process = f"forward-{name}"
        if self._namespace.running(process):
            self._namespace.run(["kill", "-KILL", str(self._store.state.processes[process].pid)])

    def _entry(self, name: str) -> NodeState:
        nodes = self._store.state.nodes
        if name not in nodes:
            raise LabError(f"lab {self.name} has no node {name!r}; it has: {', '.join(nodes) or 'none'}")
        return nodes[name]

    def _machine(self, node: Node, index: int, made: Parts) -> Machine:
        return KINDS[node.kind](node, index, self._namespace, self._store, made)

    def _make(self, node: Node, made: Parts) -> tuple[Node, Machine]:
        """Give a node its number and record it."""
        with self._store.change() as state:
            used = {entry.index for entry in state.nodes.values()}
            index = min(set(range(1, _TOO_MANY_NODES)) - used)
            state.nodes[node.name] = NodeState(index, _spec(node))
        return node, self._machine(node, index, made)

    def _boot(self, node: Node, machine: Machine) -> None:
        """Make a node's files, start it and wait until its sshd answers."""
        machine.prepare()
        machine.boot()
        name = node.name
        port = forward.start(self._namespace, f"forward-{name}", f"{self.address(name).node}:22")
        with self._store.change() as state:
            state.nodes[name].port = port

        def answers() -> bool:
            self._namespace.check(f"node-{name}")
            return _ssh_answers(port)

        self._explained(f"node-{name}", lambda: wait(f"sshd of {name} answers", answers, timeout_s=_SSH_TIMEOUT_S))

    def _explained(self, process: str, work: Callable[[], None]) -> None:
        try:
            work()
        except LabError as error:
            raise LabError(f"{error}\nthe end of its log:\n{self._namespace.log_tail(process)}") from error

    def _wait_ready(self, names: list[str]) -> None:
        api = self.api
        try:
            wait("all nodes are ready", lambda: not cluster.not_ready(api, names), timeout_s=_READY_TIMEOUT_S)
        except LabError as error:
            reasons = cluster.not_ready(api, names)
            logs = [f"{name}: kubelet:\n{self._kubelet_log(name)}" for name in names if any(name in r for r in reasons)]
            text = "\n".join([str(error), *reasons, cluster.pod_events(api), *logs])
            raise LabError(text) from error

    def _kubelet_log(self, name: str) -> str:
        return tail(self.ssh(name, ["journalctl", "--unit=kubelet", "--output=cat"], check=False).stdout)

    # --- registry ---

    def registry(self) -> Registry:
        """The lab's registry, with busybox:1.33 in it; started when it is first asked for, ends with the lab."""
        with self._store.locked():
            self._check_whole()
            if not self._store.state.registry_port:
                registry.start(self._namespace, self._store)
            return Registry(self._store.state.registry_port, self.directory)

    # --- files ---

    def _write_ssh_key(self) -> None:
        key = pki.ssh_key(f"lab {self.name}")
        pki.write(self.directory / "ssh_key", key.key)
        pki.write(self.directory / "ssh_key.pub", key.certificate)

    def _write_inventory(self) -> None:
        nodes = {name: (node, self.port[name]) for name, node in self.nodes.items()}
        hosts = []
        for name in nodes:
            hosts.append(f"{name} {(self.directory / 'nodes' / name / 'host_key.pub').read_text().strip()}\n")
        pki.write(self.directory / "known_hosts", "".join(hosts))
        (self.directory / "cp").mkdir(exist_ok=True, mode=0o700)
        pki.write(self.inventory_path, inventory.render(self.directory, nodes))

    # --- use ---

    def ssh_command(self, name: str, *options: str) -> list[str]:
        """The ssh command line that leads to a node; a command for the node's shell may follow."""
        port = self._entry(name).port
        known = ["-o", f"UserKnownHostsFile={self.directory / 'known_hosts'}", "-o", f"HostKeyAlias={name}"]
        fixed = ["ssh", "-F", "/dev/null", "-i", str(self.directory / "ssh_key"), "-p", str(port), *known]
        fixed += ["-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=10", *options]
        return [*fixed, "root@127.0.0.1"]

    def ssh(
        self, name: str, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 60, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a node; LabError when it fails, unless `check` is false."""
        return self._run([*self.ssh_command(name), shlex.join(argv)], stdin=stdin, timeout_s=timeout_s, check=check)

    def kubectl_command(self, argv: Sequence[str]) -> list[str]:
        """The command line of kubectl as the administrator."""
        if not self._store.state.binaries:
            raise LabError(f"lab {self.name} does not exist: run `up`")
        return [f"{self._store.state.binaries}/kubectl", f"--kubeconfig={self.kubeconfig}", *argv]

    def kubectl(
        self, *argv: str, stdin: str = "", timeout_s: float = 60, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl; LabError when it fails, unless `check` is false."""
        return self._run(self.kubectl_command(argv), stdin=stdin, timeout_s=timeout_s, check=check)

    def run_command(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` inside the lab's namespaces."""
        return self._namespace.command(argv)

    def run(
        self, *argv: str, stdin: str = "", timeout_s: float = 60, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside the lab's namespaces (where node addresses are reachable)."""
        return self._run(self.run_command(argv), stdin=stdin, timeout_s=timeout_s, check=check)

    def _run(
        self, argv: Sequence[str], *, stdin: str, timeout_s: float, check: bool
    ) -> subprocess.CompletedProcess[str]:
        return run(argv, stdin=stdin, timeout_s=timeout_s, accept=(0,) if check else range(256))

    def resident_mib(self) -> float:
        """Memory of everything in the lab."""
        return self._namespace.resident_mib()

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.timings_s[name] = time.monotonic() - started


def _spec(node: Node) -> dict:
    """A node as JSON keeps it, for parse_node."""
    value = asdict(node)
    return {**value, "labels": dict(node.labels), "taints": list(node.taints), "images": list(node.images)}


def _ssh_answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
