"""kube-proxy's flags in files of a node: the line that counts changes, and every other byte stays."""

from __future__ import annotations

import base64

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
    assert flags_of(config) == {
        "proxy-mode": "ipvs",
        "ipvs-strict-arp": "true",
        "ipvs-exclude-cidrs": "10.0.0.0/8,a",
        "oom-score-adj": None,
    }
    assert flags_of({"featureGates": {"A": True, "B": False}}) == {"feature-gates": "A=true,B=false"}


def test_a_field_without_a_flag_is_refused():
    with pytest.raises(EditError, match=r"nftables\.masqueradeAll has no flag"):
        flags_of({"nftables": {"masqueradeAll": True}})


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
    return {"files": files, "unit": unit, "command_line": list(command_line)}


def test_a_flag_of_the_command_line_outranks_the_file():
    with pytest.raises(RolloutError, match=r"proxy-mode: set by --kube-proxy-arg on the command line of k3s.service"):
        planned(read("proxy-mode=ipvs"), {"mode": "iptables"})


def test_a_node_without_the_service_is_refused():
    with pytest.raises(RolloutError, match="no service that reads these files is active"):
        planned(read(unit=""), {"mode": "iptables"})


def test_check_mode_only_reads():
    asked = []

    def ask(options: dict) -> dict:
        asked.append(options["step"])
        return read(**{MAIN: "kube-proxy-arg: proxy-mode=iptables\n"})

    before = {"proxy_mode": "iptables", "answers": True}
    found = change_files(ask, MAIN, {"mode": "ipvs"}, before, {"timeout_s": 1}, check_mode=True)
    assert (found["changed"], found["mode"], asked) == (True, "ipvs", ["read"])
    assert found["diff"][0]["after"] == "kube-proxy-arg: proxy-mode=ipvs\n"
