"""A node on disk for the tests of node_fix: units, modules and kernel parameters, which a child process can change."""

from __future__ import annotations

import json
from pathlib import Path

from ansible_collections.portcullis.fleet.plugins.module_utils import node_fix, node_fix_plan, node_fix_steps
from ansible_collections.portcullis.fleet.plugins.module_utils.journal import Journal
from ansible_collections.portcullis.fleet.plugins.module_utils.kernel_evidence import Evidence, parse_dependencies

ACTIVE = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "UnitFileState": "enabled"}
MODULES_DEP = """\
kernel/net/ipv4/ipip.ko.xz: kernel/net/ipv4/tunnel4.ko.xz kernel/net/ipv4/ip_tunnel.ko.xz
kernel/net/ipv4/tunnel4.ko.xz:
kernel/net/ipv4/ip_tunnel.ko.xz:
kernel/net/netfilter/xt_set.ko.xz:
kernel/net/ipv4/tunnel_user.ko.xz: kernel/net/ipv4/tunnel4.ko.xz kernel/net/ipv4/ip_tunnel.ko.xz
"""
PARAMETER = "net.ipv4.conf.all.rp_filter"


class FixableNode:
    """What node_fix sees and changes, in a directory."""

    def __init__(self, root: Path, monkeypatch) -> None:
        self.monkeypatch = monkeypatch
        self.broken: set[str] = set()
        self.calls: list[str] = []
        self.evidence: dict = {}
        self.use(root)

    def use(self, root: Path) -> None:
        """Be the node in another directory."""
        self.root = root
        for name in ("etc/systemd/system", "etc/NetworkManager/conf.d", "etc/ufw", "etc/sysctl.d", "modules", "proc"):
            (root / name).mkdir(parents=True, exist_ok=True)
        (root / "modules" / "modules.dep").write_text(MODULES_DEP)
        if not (root / "state.json").exists():
            self.save({"units": {}, "modules": {"tunnel4": 0}})
            (root / "proc" / PARAMETER).write_text("2\n")
        paths = {
            "UNMANAGED_FILE": "etc/NetworkManager/conf.d/calico.conf",
            "NETWORK_MANAGER_MAIN": "etc/NetworkManager/NetworkManager.conf",
            "MODULES_FILE": "etc/modules-load.d/portcullis.conf",
            "SYSCTL_FILE": "etc/sysctl.d/99-zz-portcullis.conf",
            "UFW_CONFIG": "etc/ufw/ufw.conf",
            "UNIT_LINKS": "etc/systemd/system",
            "MACHINE_CONFIG_OPERATOR": "etc/machine-config-daemon",
        }
        for name, path in paths.items():
            self.monkeypatch.setattr(node_fix_plan, name, str(root / path))
        self.monkeypatch.setattr(
            node_fix_plan, "NETWORK_MANAGER_DIRECTORIES", (str(root / "etc/NetworkManager/conf.d"),)
        )
        self.monkeypatch.setattr(node_fix_plan, "read_evidence", lambda in_container: self.read_evidence())
        self.monkeypatch.setattr(node_fix_steps, "call", self.call)
        for module in (node_fix_plan, node_fix_steps):
            self.monkeypatch.setattr(module, "read_units", lambda names: (self.load()["units"], ""))
            self.monkeypatch.setattr(module, "loaded_modules", lambda: self.load()["modules"])
            self.monkeypatch.setattr(module, "sysctl_path", lambda name: str(root / "proc" / name))
        self.monkeypatch.setattr(node_fix, "expected_jumps", dict)
        self.monkeypatch.setattr(node_fix, "bring_back", lambda before: ([], ""))
        self.monkeypatch.setattr(node_fix, "read_pod_rules", set)

    @property
    def journal(self) -> Journal:
        return Journal(self.root / "journal")

    def load(self) -> dict:
        return json.loads((self.root / "state.json").read_text())

    def save(self, state: dict) -> None:
        (self.root / "state.json").write_text(json.dumps(state))

    def add_unit(self, name: str, **properties: str) -> None:
        """A unit that is active, and by default enabled by a link."""
        state = self.load()
        state["units"][name] = {**ACTIVE, **properties}
        self.save(state)
        if state["units"][name]["UnitFileState"] == "enabled":
            self.link(name)

    def link(self, name: str) -> None:
        wants = self.root / "etc/systemd/system/multi-user.target.wants"
        wants.mkdir(exist_ok=True)
        (wants / name).symlink_to(f"/lib/systemd/system/{name}")

    def read_evidence(self) -> Evidence:
        names = frozenset(line.partition(".ko")[0].rpartition("/")[2] for line in MODULES_DEP.splitlines())
        return Evidence(
            **{
                "config": None,
                "config_source": "",
                "loaded": frozenset(self.load()["modules"]),
                "present": frozenset(),
                "loadable": names,
                "builtin": frozenset(),
                "directory": str(self.root / "modules"),
                "barred": {},
                "disabled": False,
                "in_container": False,
                **self.evidence,
            }
        )

    def call(self, *argv: str) -> None:
        """What systemctl, modprobe and rmmod do."""
        words = [word for word in argv if not word.startswith("-")]
        self.calls.append(" ".join(words))
        if " ".join(words) in self.broken:
            raise node_fix_steps.StepError(f"{' '.join(words)}: refused")
        state, name = self.load(), words[-1]
        if words[0] in ("modprobe", "rmmod"):
            by = 1 if words[0] == "modprobe" else -1
            for other in parse_dependencies(MODULES_DEP)[name]:
                state["modules"][other] = state["modules"].get(other, 0) + by
            if by == 1:
                state["modules"][name] = state["modules"].get(name, 0)
            else:
                del state["modules"][name]
        elif words[1] in ("start", "stop"):
            state["units"][name]["ActiveState"] = "active" if words[1] == "start" else "inactive"
        elif words[1] in ("enable", "disable"):
            state["units"][name]["UnitFileState"] = words[1] + "d"
            path = self.root / "etc/systemd/system/multi-user.target.wants" / name
            if words[1] == "disable":
                path.unlink()
            elif not path.is_symlink():
                self.link(name)
        self.save(state)

    def fingerprint(self) -> dict:
        """Everything but the journal: files with their bytes, links with their targets."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            if {"journal", "state.json"} & set(path.relative_to(self.root).parts[:1]) or path.is_dir():
                continue
            name = str(path.relative_to(self.root))
            found[name] = str(path.readlink()) if path.is_symlink() else path.read_text()
        found["state.json"] = self.load()
        return found
