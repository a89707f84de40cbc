# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units of containerd as they are in the world, installed on a node: what systemd makes of them, and what is judged.

Where a unit starts a containerd, the node's own is started by it, at the unit's path. The cases are a few of our own,
and those of the corpus where it is there.
"""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_gate import judge_restart
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_units import restart_cautions

from tests.corpus.files import CORPUS, index
from tests.lab.topology import Node

NODE = "units"
UNITS = "/etc/systemd/system"
MODULE_UTILS = Path(__file__).parents[2] / "plugins" / "module_utils"
UPSTREAM = """[Service]
ExecStartPre=-/sbin/modprobe overlay
ExecStart=/usr/local/bin/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
"""


@dataclass(frozen=True)
class Case:
    """A unit with drop-ins, and what must be said of it: ids of findings, and a word of each caution."""

    name: str
    text: str
    findings: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    drop_ins: dict[str, str] = field(default_factory=dict)

    @property
    def program(self) -> str:
        match = re.search(r"^ExecStart=(\S+)", self.text, re.MULTILINE)
        return match.group(1) if match else ""

    @property
    def config(self) -> str:
        match = re.search(r"--config[= ](\S+)", self.text)
        return match.group(1) if match else "/etc/containerd/config.toml"


def kills(text: str) -> str:
    return text.replace("KillMode=process\n", "")


OWN = [
    Case("upstream", UPSTREAM),
    Case("mixed", UPSTREAM.replace("KillMode=process", "KillMode=mixed"), ("containerd.kill_mode",)),
    Case("default-kill-mode", kills(UPSTREAM), ("containerd.kill_mode",)),
    Case("kill-mode-of-a-drop-in", UPSTREAM, ("containerd.kill_mode",), (), {"a.conf": "[Service]\nKillMode=mixed\n"}),
    Case("mended-by-a-drop-in", kills(UPSTREAM), (), (), {"a.conf": "[Service]\nKillMode=process\n"}),
    Case(
        "template", UPSTREAM, (), (), {"http-proxy.conf": '[Service]\nEnvironment={% if a %}"A={{ a }}"{% endif %}\n'}
    ),
    Case("no-restart", UPSTREAM.replace("Restart=always\n", ""), (), ("Restart=no",)),
    Case("before", UPSTREAM.replace("=-/sbin/modprobe overlay", "=/bin/true 1"), (), ("ExecStartPre=/bin/true 1",)),
    Case("page", "<!DOCTYPE html>\n<html>\n<head>\n", ("containerd.unit_unreadable",)),
    Case("second", UPSTREAM.replace("bin/containerd", "sbin/containerd --config /etc/second/config.toml")),
]


def corpus() -> list[Case]:
    """Return the corpus's units with what its answers say; a unit that is no containerd is another test's."""
    if not (CORPUS / "units").is_dir():
        return []
    rows = index("units")
    answers = {row["file"].partition(".")[0]: row["answer"] for row in rows}
    cases = []
    for row in rows:
        text = (CORPUS / "units" / row["file"]).read_text(encoding="utf-8")
        name = Path(row["file"]).name.partition(".")[0]
        if row["file"].startswith("dropins/"):
            cases.append(Case(name, UPSTREAM, (), (), {Path(row["file"]).name.removesuffix(".j2"): text}))
        elif not re.search(r"not containerd", row["answer"], re.IGNORECASE):
            same = re.match(r"as (u\d+)", row["answer"])
            cases.append(answered(name, text, answers.get(same.group(1), "") if same else row["answer"]))
    return cases


def answered(name: str, text: str, answer: str) -> Case:
    """Return a case with what an answer of the corpus says in words."""
    if "not a unit" in answer or "[Service]" not in text:
        return Case(name, text, ("containerd.unit_unreadable",))
    cautions = ["Restart=no"] * (not re.search(r"^Restart=", text, re.MULTILINE))
    cautions += re.findall(r"^(ExecStartPre=[^-].*)$", text, re.MULTILINE)
    return Case(name, text, ("containerd.kill_mode",) if "KILLS" in answer else (), tuple(cautions))


class Machine:
    """The node, with the module's code on it."""

    def __init__(self, lab):
        self.lab = lab

    def sh(self, script: str, check: bool = True) -> str:
        return self.lab.ssh(NODE, ["sh", "-ec", script], check=check).stdout

    def write(self, path: str, text: str) -> None:
        self.lab.ssh(NODE, ["sh", "-ec", f"mkdir -p {Path(path).parent}; cat > {path}"], stdin=text)

    def ask(self, expression: str):
        """Return what the node half says."""
        program = f"""
            import json, sys
            sys.path.insert(0, "/root")
            from module_utils import containerd_node as node
            print(json.dumps({expression}))
        """
        return json.loads(self.lab.ssh(NODE, ["python3", "-"], stdin=textwrap.dedent(program)).stdout)

    def install(self, unit: str, case: Case) -> None:
        self.write(f"{UNITS}/{unit}", case.text)
        for name, text in case.drop_ins.items():
            self.write(f"{UNITS}/{unit}.d/{name}", text)
        self.sh("systemctl daemon-reload")

    def start(self, unit: str, case: Case) -> bool:
        """Start the node's containerd by the unit, at the unit's path; False where that cannot be done here."""
        if Path(case.program).name != "containerd":
            return False
        address = "/run/containerd/containerd.sock"
        if case.config != "/etc/containerd/config.toml":
            address = "/run/second/containerd.sock"
            own = 'version = 2\nroot = "/var/lib/second"\nstate = "/run/second"\n'
            self.write(case.config, f'{own}[grpc]\naddress = "{address}"\n')
            self.write("/var/lib/kubelet/config.yaml", f"containerRuntimeEndpoint: unix://{address}\n")
        for path in re.findall(r"^EnvironmentFile=(/\S+)", case.text, re.MULTILINE):
            self.write(path, "")
        started = self.sh(
            f"test -e {case.program} || install -D /usr/bin/containerd {case.program}; "
            f"{'' if 'second' in address else 'systemctl stop containerd;'} systemctl start {unit} && echo yes || true"
        )
        # In a container no module can be loaded, so what must succeed before the start may fail.
        assert started or case.cautions, self.sh(f"journalctl -u {unit} -n 20 -o cat")
        if started:
            self.sh(f"timeout 20 sh -c 'until ctr -a {address} version >/dev/null 2>&1; do sleep 0.1; done'")
        return bool(started)

    def remove(self, unit: str) -> None:
        self.sh(
            f"systemctl stop {unit} 2>/dev/null || true; systemctl reset-failed {unit} 2>/dev/null || true; "
            f"rm -rf {UNITS}/{unit} {UNITS}/{unit}.d /var/lib/kubelet/config.yaml /etc/second /etc/k8s-containerd; "
            "systemctl daemon-reload"
        )


@pytest.fixture(scope="module")
def machine(lab):
    """A plain host with containerd, and nothing else that uses it."""
    lab.node_add(Node(name=NODE, cluster=False))
    try:
        found = Machine(lab)
        found.sh("mkdir -p /root/module_utils; touch /root/module_utils/__init__.py")
        sources = {path.name: path.read_text(encoding="utf-8") for path in MODULE_UTILS.glob("*.py")}
        unpack = "import json, sys, pathlib\nfor name, text in json.load(sys.stdin).items():\n"
        unpack += "    pathlib.Path('/root/module_utils', name).write_text(text)\n"
        lab.ssh(NODE, ["python3", "-c", unpack], stdin=json.dumps(sources))
        yield found
    finally:
        lab.node_remove(NODE)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in [*OWN, *corpus()]])
def test_a_unit(machine, case):
    """Its findings and cautions are those of what systemd has in effect, and the daemon of it is found."""
    unit = f"{case.name}.service"
    machine.install(unit, case)
    try:
        if machine.start(unit, case):
            facts = machine.ask('node.observe("", "")')
            assert (facts["unit_name"], facts["daemon_config"]) == (unit, case.config)
            assert facts["unit"]["ActiveState"] == "active" and facts["cri"]["serving"], facts["cri"]
        else:
            # Not to be had here (k3s, RKE2): the unit is judged as if it ran.
            shown = machine.ask(f'node.read_units(("{unit}",))')[unit]
            facts = {"unit_name": unit, "unit": {**shown, "ActiveState": "active", "MainPID": "42"}, "dependents": []}
        findings = judge_restart(facts)
        cautions = list(restart_cautions(unit, facts["unit"]))
    finally:
        machine.remove(unit)

    assert tuple(item["id"] for item in findings) == case.findings
    if "containerd.unit_unreadable" not in case.findings:
        assert len(cautions) == len(case.cautions), cautions
        assert all(word in caution for word, caution in zip(case.cautions, cautions, strict=True)), cautions


PART_OF = "[Unit]\nPartOf=containerd.service\n[Service]\nExecStart=/bin/sleep 86400\n"
SNAPSHOTTER = CORPUS / "units" / "u07.service"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(PART_OF, id="own"),
        pytest.param(
            SNAPSHOTTER.read_text(encoding="utf-8") if SNAPSHOTTER.is_file() else "",
            id="u07",
            marks=pytest.mark.skipif(not SNAPSHOTTER.is_file(), reason="no corpus"),
        ),
    ],
)
def test_a_unit_with_containerd_in_its_name_that_restarts_with_it(machine, text):
    """It is not taken for containerd, and it is named, since systemd would restart it too (PartOf)."""
    unit = "containerd-fuse-overlayfs.service"
    # Its program is not here: another one stands in, everything else is the unit's own.
    stub = {"stub.conf": "[Service]\nType=simple\nExecStart=\nExecStart=/bin/sleep 86400\n"}
    machine.install(unit, Case(unit, text, drop_ins=stub))
    try:
        machine.sh(f"systemctl start containerd {unit}")
        facts = machine.ask('node.observe("", "")')
    finally:
        machine.remove(unit)

    assert (facts["unit_name"], facts["dependents"]) == ("containerd.service", [unit])
    assert [item["id"] for item in judge_restart(facts)] == ["containerd.restarts_others"]


def test_a_helper_that_prepares_is_not_containerd(machine):
    """A oneshot of another name changes nothing of what is found."""
    unit = "prepare-var-lib-containerd.service"
    machine.install(unit, Case(unit, "[Service]\nType=oneshot\nExecStart=/bin/true\nRemainAfterExit=true\n"))
    try:
        machine.sh(f"systemctl start containerd {unit}")
        facts = machine.ask('node.observe("", "")')
        alone = machine.ask(f'node.read_units(("{unit}",))')[unit]
    finally:
        machine.remove(unit)

    assert (facts["unit_name"], facts["dependents"]) == ("containerd.service", [])
    found = judge_restart({"unit_name": unit, "unit": alone, "dependents": []})
    assert [item["id"] for item in found] == ["containerd.unit_not_active"]


def test_a_file_that_is_no_unit_any_more_while_the_daemon_runs(machine):
    """The daemon goes on, a restart would end it: it is refused before anything is touched."""
    unit = "broken.service"
    machine.install(unit, Case(unit, UPSTREAM))
    try:
        machine.start(unit, Case(unit, UPSTREAM))
        machine.write(f"{UNITS}/{unit}", "<html>\n")
        stale = machine.ask('node.observe("", "")')
        machine.sh("systemctl daemon-reload")
        facts = machine.ask('node.observe("", "")')
    finally:
        machine.remove(unit)

    assert any("daemon-reload" in line for line in restart_cautions(unit, stale["unit"]))
    assert facts["unit_name"] == unit and facts["cri"]["serving"]
    assert [item["id"] for item in judge_restart(facts)] == ["containerd.unit_unreadable"]
