"""Playbooks on the lab's nodes, what they came to, and the nodes' state before and after."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from tests.lab import Lab

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
TIMEOUT_S = 300
NAMESPACE = "portcullis-system"
CONFIG = "/etc/containerd/config.toml"
# Everything that a run could change on a node: files of /etc, the journal, the running daemon.
FINGERPRINT = (
    "find /etc /var/lib/portcullis -xdev \\( -type f -o -type l \\) -print0 2>/dev/null | sort -z | "
    "xargs -0 sha256sum; systemctl show --property=MainPID,NRestarts containerd; ls -A /var/lib/portcullis 2>/dev/null"
)


@dataclasses.dataclass(frozen=True)
class Run:
    """One playbook run."""

    code: int
    output: str
    report: dict | None

    @property
    def changed(self) -> dict[str, int]:
        """Changed tasks by host, from the recap."""
        return {
            host: int(count) for host, count in re.findall(r"^(\S+) +: ok=.*changed=(\d+)", self.output, re.MULTILINE)
        }

    @property
    def states(self) -> dict[str, str]:
        """The nodes' states in the report."""
        return {name: node["state"] for name, node in self.report["nodes"].items()}

    @property
    def findings(self) -> set[tuple[str, str]]:
        """(id, node) of every finding, waived or not."""
        problems = self.report["findings"] + self.report["waived"]
        return {
            (problem["id"], node)
            for problem in problems
            for observed in problem["observed"]
            for node in observed["nodes"] or [""]
        }


def run_ansible(argv: list[str]) -> tuple[int, str]:
    """Run a program of Ansible from the checkout; (exit code, output)."""
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0", "COLUMNS": "200"}
    done = subprocess.run(
        [str(BIN / argv[0]), *argv[1:]],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.returncode, done.stdout.decode()


def run_playbook(inventory: Path, folder: Path, *arguments: str, playbook: str = "site.yml") -> Run:
    """Run a playbook of the collection; the report goes to C(folder)."""
    report = folder / "portcullis-report.json"
    report.unlink(missing_ok=True)
    argv = ["ansible-playbook", "-i", str(inventory), f"playbooks/{playbook}", "-e", f"portcullis_report_path={folder}"]
    code, output = run_ansible([*argv, *arguments])
    return Run(code, output, json.loads(report.read_text(encoding="utf-8")) if report.exists() else None)


def remove_namespace(lab: Lab, name: str) -> None:
    """Delete a namespace, with what Kubernetes itself has put there, without its controller's five seconds of grace."""
    found = lab.api.raw("DELETE", f"/api/v1/namespaces/{name}")[0]
    if found == http.client.NOT_FOUND:
        return
    # A namespace that is being deleted takes no new object, so what goes now stays away.
    for plural in ("pods", "configmaps", "serviceaccounts"):
        lab.api.request("DELETE", f"/api/v1/namespaces/{name}/{plural}", {"gracePeriodSeconds": 0})
    space = lab.api.request("GET", f"/api/v1/namespaces/{name}")
    lab.api.raw("PUT", f"/api/v1/namespaces/{name}/finalize", {**space, "spec": {"finalizers": []}})
    lab.kubectl("wait", "--for=delete", f"namespace/{name}", "--timeout=30s")


class Fleet:
    """The nodes of a lab."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        """C(folder) is for inventories and reports of one test."""
        self.lab = lab
        self.folder = folder
        self._configs: dict[str, str] = {}

    @property
    def names(self) -> list[str]:
        """The nodes, plain hosts included."""
        return list(self.lab.nodes)

    def site(self, *arguments: str, inventory: Path | None = None, playbook: str = "site.yml") -> Run:
        """Run a playbook on the fleet, or on a changed inventory of it."""
        return run_playbook(inventory or self.lab.inventory_path, self.folder, *arguments, playbook=playbook)

    def inventory(self, *, without: str = "", **host_variables: dict) -> Path:
        """A copy of the inventory without a host, or with more variables for hosts."""
        inventory = copy.deepcopy(yaml.safe_load(self.lab.inventory_path.read_text(encoding="utf-8")))
        for group in inventory["all"]["children"].values():
            group["hosts"].pop(without, None)
            for name, variables in host_variables.items():
                if name in group["hosts"]:
                    group["hosts"][name] = {**(group["hosts"][name] or {}), **variables}
        path = self.folder / "inventory.yml"
        path.write_text(yaml.safe_dump(inventory), encoding="utf-8")
        return path

    def shell(self, node: str, script: str, *, check: bool = True) -> str:
        """The output of a script on a node."""
        return self.lab.ssh(node, ["sh", "-c", script], check=check).stdout

    @contextlib.contextmanager
    def altering(self) -> Iterator[tuple[Callable[[str, str, str], None], set[str]]]:
        """A function that alters a node by a script and notes another that undoes it, and the nodes that it altered."""
        undone, nodes = [], set()

        def alter(node: str, script: str, undo: str) -> None:
            undone.append((node, undo))
            nodes.add(node)
            self.shell(node, "set -e; " + script)

        yield alter, nodes
        for node, undo in reversed(undone):
            self.shell(node, undo)

    def on_all(self, work: Callable[[str], str]) -> dict[str, str]:
        """What C(work) gives for each node, done at the same time."""
        with ThreadPoolExecutor(max_workers=8) as pool:
            return dict(zip(self.names, pool.map(work, self.names), strict=True))

    def fingerprints(self) -> dict[str, str]:
        """What a run could change, by node."""
        return self.on_all(lambda name: self.shell(name, FINGERPRINT, check=False))

    def remember(self) -> None:
        """Note what restore puts back."""
        self._configs = self.on_all(lambda name: self.shell(name, f"cat {CONFIG}"))

    def restore(self) -> None:
        """Put the nodes' containerd configuration back, and remove the journals and the namespace."""
        self.on_all(self._restore_node)
        remove_namespace(self.lab, NAMESPACE)

    def _restore_node(self, name: str) -> str:
        found = self.shell(name, f"rm -rf /var/lib/portcullis; cat {CONFIG}")
        if found != self._configs[name]:
            self.lab.ssh(name, ["tee", CONFIG], stdin=self._configs[name])
            self.shell(name, "systemctl restart containerd")
        return found
