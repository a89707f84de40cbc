"""kube-proxy's flags in files of a node: the line that counts changes, and every other byte stays."""

from __future__ import annotations

import base64
import json

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_edit import EditError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_files import (
    edit_argument_file,
    edit_files,
    flags_of,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_node_files import change_files, planned
from ansible_collections.portcullis.fleet.plugins.plugin_utils.rollout import RolloutError

MAIN, DROP_IN, LATER = "config.yaml", "config.yaml.d/10.yaml", "config.yaml.d/20.yaml"


def test_fields_become_flags():
    config = {"mode": "ipvs", "ipvs": {"strictARP": True, "excludeCIDRs": ["10.0.0.0/8", "a"]}, "oomScoreAdj": None}
    assert flags_of(config, {}) == {
        "proxy-mode": "ipvs",
        "ipvs-strict-arp": "true",
        "ipvs-exclude-cidrs": "10.0.0.0/8,a",
        "oom-score-adj": None,
    }
    assert flags_of({"featureGates": {"A": True, "B": False}}, {}) == {"feature-gates": "A=true,B=false"}
    assert flags_of({"logging": {"verbosity": 4}, "clientConnection": {"qps": 50}}, {}) == {
        "v": "4",
        "kube-api-qps": "50",
    }


def test_feature_gates_that_are_there_stay():
    told = {"feature-gates": "A=true,B=false"}
    assert flags_of({"featureGates": {"B": True}}, told) == {"feature-gates": "A=true,B=true"}
    assert flags_of({"featureGates": {"A": None}}, told) == {"feature-gates": "B=false"}
    assert flags_of({"featureGates": {"A": None, "B": None}}, told) == {"feature-gates": None}


def test_a_field_without_a_flag_is_refused():
    with pytest.raises(EditError, match=r"nftables\.masqueradeAll has no flag"):
        flags_of({"nftables": {"masqueradeAll": True}}, {})


@pytest.mark.parametrize(
    ("files", "flags", "changed"),
    [
        ({MAIN: ""}, {"proxy-mode": "ipvs"}, {MAIN: 'kube-proxy-arg:\n  - "proxy-mode=ipvs"\n'}),
        (
            {MAIN: "# mine\ntoken: x\nkube-proxy-arg: proxy-mode=ipvs # why\n"},
            {"proxy-mode": "iptables"},
            {MAIN: "# mine\ntoken: x\nkube-proxy-arg: proxy-mode=iptables # why\n"},
        ),
        (
            {MAIN: 'kube-proxy-arg:\n  - "--proxy-mode=ipvs" # old\n  - ipvs-strict-arp=true\n'},
            {"proxy-mode": "iptables"},
            {MAIN: 'kube-proxy-arg:\n  - "--proxy-mode=iptables" # old\n  - ipvs-strict-arp=true\n'},
        ),
        (
            {MAIN: "kube-proxy-arg:\n  - proxy-mode=ipvs\n", DROP_IN: "kube-proxy-arg+:\n  - v=2\n"},
            {"proxy-mode": "iptables"},
            {MAIN: "kube-proxy-arg:\n  - proxy-mode=iptables\n"},
        ),
        (
            {MAIN: "kube-proxy-arg: [proxy-mode=ipvs]\n", DROP_IN: "kube-proxy-arg:\n  - v=2\n"},
            {"proxy-mode": "iptables"},
            {DROP_IN: 'kube-proxy-arg:\n  - v=2\n  - "proxy-mode=iptables"\n'},
        ),
        (
            {MAIN: "a: b\n", DROP_IN: "kube-proxy-arg+:\n- proxy-mode=ipvs\n", LATER: "kube-proxy-arg+:\n- v=2\n"},
            {"proxy-mode": "iptables"},
            {DROP_IN: "kube-proxy-arg+:\n- proxy-mode=iptables\n"},
        ),
        (
            {MAIN: "kube-proxy-arg:\n- proxy-mode=ipvs\n- v=2\n"},
            {"proxy-mode": None},
            {MAIN: "kube-proxy-arg:\n- v=2\n"},
        ),
        ({MAIN: "kube-proxy-arg: proxy-mode=ipvs\n"}, {"proxy-mode": "ipvs"}, {}),
        (
            {MAIN: "kube-proxy-arg:\n- masquerade-all\n- v=2\n"},
            {"masquerade-all": None},
            {MAIN: "kube-proxy-arg:\n- v=2\n"},
        ),
        (
            {MAIN: "kube-proxy-arg:\n- masquerade-all # x\n- v=2\n"},
            {"masquerade-all": "false"},
            {MAIN: "kube-proxy-arg:\n- masquerade-all=false # x\n- v=2\n"},
        ),
    ],
)
def test_files_of_k3s_and_rke2(files: dict, flags: dict, changed: dict):
    found = edit_files(files, flags)
    assert found == changed
    assert edit_files({**files, **found}, flags) == {}


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        ("--a=b\n--proxy-mode=ipvs\n", {"proxy-mode": "iptables"}, "--a=b\n--proxy-mode=iptables\n"),
        ("--proxy-mode ipvs\n# mine\n", {"proxy-mode": "iptables"}, "--proxy-mode=iptables\n# mine\n"),
        ("--a=b", {"proxy-mode": "ipvs"}, "--a=b\n--proxy-mode=ipvs\n"),
        ("--v=1\n--x=y\n--v=2\n", {"v": "3"}, "--x=y\n--v=3\n"),
        ("--v=1\n--x=y\n", {"v": None}, "--x=y\n"),
        ("--vmodule=a\n", {"v": "1"}, "--vmodule=a\n--v=1\n"),
        ("", {"v": "1"}, "--v=1\n"),
    ],
)
def test_an_argument_file(text: str, flags: dict, expected: str):
    assert edit_argument_file(text, flags) == expected
    assert edit_argument_file(expected, flags) == expected


def read(*command_line: str, unit: str = "k3s.service", **texts: str) -> dict:
    files = [
        {"path": path, "content": base64.b64encode(text.encode()).decode(), "sha256": f"digest of {path}"}
        for path, text in (texts or {MAIN: ""}).items()
    ]
    return {"files": files, "unit": unit, "command_line": list(command_line), "other_file": "", "unfinished": False}


def test_a_flag_of_the_command_line_outranks_the_file():
    with pytest.raises(RolloutError, match=r"proxy-mode: set by --kube-proxy-arg on the command line of k3s.service"):
        planned(MAIN, read("proxy-mode=ipvs"), {"mode": "iptables"})


@pytest.mark.parametrize(
    ("path", "found", "reason"),
    [
        (MAIN, read(unit=""), "no service that reads these files is active"),
        (MAIN, {**read(), "other_file": "/srv/k3s.yaml"}, "is told to read /srv/k3s.yaml, not config.yaml"),
        (MAIN, read("config=/srv/proxy.yaml"), "beside which flags have no effect"),
        (MAIN, read(**{MAIN: "a: [\n"}), "config.yaml: it is no YAML"),
        (MAIN, read(**{MAIN: "a: b\n\tc: d\n"}), "config.yaml: it is no YAML"),
        (MAIN, read(**{MAIN: "- a\n"}), "it holds a list, not a mapping"),
    ],
)
def test_what_cannot_be_changed_is_refused(path: str, found: dict, reason: str):
    with pytest.raises(RolloutError, match=reason):
        planned(path, found, {"mode": "iptables"})


def test_a_link_to_another_name_is_still_yaml():
    found = read(**{"/srv/settings": "kube-proxy-arg: proxy-mode=ipvs\n"})
    assert planned(MAIN, found, {"mode": "iptables"}).files == {
        "/srv/settings": "kube-proxy-arg: proxy-mode=iptables\n"
    }


class NodeFiles:
    """Answers as kube_proxy_file does, and keeps what it was asked."""

    def __init__(self, *reads: dict) -> None:
        self.reads, self.asked = list(reads), []

    def __call__(self, options: dict) -> dict:
        self.asked.append(options)
        return self.reads.pop(0) if options["step"] == "read" else {"removed": [], "left": []}

    @property
    def steps(self) -> list[str]:
        return [options["step"] for options in self.asked]


BEFORE = {"proxy_mode": "iptables", "answers": True}
PROOF = {"metrics_address": "127.0.0.1:10249", "timeout_s": 1}


def test_check_mode_only_reads():
    node = NodeFiles(read(**{MAIN: "kube-proxy-arg: proxy-mode=iptables\n"}))
    found = change_files(node, MAIN, {"mode": "ipvs"}, BEFORE, PROOF, check_mode=True)
    assert (found["changed"], found["mode"], node.steps) == (True, "ipvs", ["read"])
    assert found["diff"][0]["after"] == "kube-proxy-arg: proxy-mode=ipvs\n"


def test_what_a_killed_run_has_left_is_ended_first():
    """Its file has the mode already, which does not make it a change by hand that nobody has restarted for."""
    text = {MAIN: "kube-proxy-arg: proxy-mode=ipvs\n"}
    node = NodeFiles({**read(unit="", **text), "unfinished": True}, read(**text))
    found = change_files(node, MAIN, {"mode": "ipvs"}, BEFORE, PROOF, check_mode=False)
    assert (found["changed"], node.steps) == (True, ["read", "recover", "read"])

    node = NodeFiles({**read(**text), "unfinished": True})
    assert change_files(node, MAIN, {"mode": "ipvs"}, BEFORE, PROOF, check_mode=True)["changed"] is True
    assert node.steps == ["read"]


def test_a_change_by_hand_that_nobody_has_restarted_for_is_told():
    node = NodeFiles(read(**{MAIN: "kube-proxy-arg: proxy-mode=ipvs\n"}))
    with pytest.raises(RolloutError, match=r"config\.yaml has mode ipvs and kube-proxy runs iptables: restart k3s"):
        change_files(node, MAIN, {"mode": "ipvs"}, BEFORE, PROOF, check_mode=False)


def test_the_proof_asks_where_the_flags_say_that_the_mode_is_told():
    """Without a mode in config it is the one of the file that has to come."""
    node = NodeFiles(read(**{MAIN: "kube-proxy-arg: [proxy-mode=ipvs, 'metrics-bind-address=0.0.0.0:29102']\n"}))
    silent = {"proxy_mode": "", "answers": False}
    change_files(node, MAIN, {"ipvs": {"strictARP": True}}, silent, PROOF, check_mode=False)

    was = {"mode": "ipvs", "metrics_address": "0.0.0.0:29102"}
    assert json.loads(node.asked[-1]["plan"])["proof"] == {**was, "timeout_s": 3, "before": was, "must_answer": False}
