# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel that the tests run on is read, tried and left as it was."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils import kernel_features, kernel_live
from ansible_collections.portcullis.fleet.plugins.module_utils.kernel_evidence import Evidence, judge_modules
from ansible_collections.portcullis.fleet.plugins.module_utils.kernel_features import (
    bounding_capabilities,
    cgroups,
    parse_lockdown,
    probe_kernel,
)
from ansible_collections.portcullis.fleet.plugins.module_utils.kernel_live import try_rules
from ansible_collections.portcullis.fleet.plugins.module_utils.kernel_table import (
    FEATURES,
    IPV4_RULES,
    MODULES,
    NFT_RULES,
    RULES,
)
from ansible_collections.portcullis.fleet.plugins.module_utils.sandbox import SandboxError, run_in_network

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
CPU_BUDGET_S = 0.5
TIMEOUT_S = 10
TRACES = (
    "/proc/modules",
    "/proc/net/ip_tables_names",
    "/proc/net/ip6_tables_names",
    "/proc/net/dev_mcast",
    "/proc/self/mountinfo",
    "/proc/sys/net/ipv4/conf/all/rp_filter",
)
V1 = "25 18 0:22 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
V2 = "30 18 0:23 / /sys/fs/cgroup{} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
OTHER = "22 1 8:1 / / rw,relatime - ext4 /dev/vda1 rw\n"


def traces() -> dict:
    """What a reader could change without meaning to."""
    texts = {path: Path(path).read_text() for path in TRACES if Path(path).exists()}
    return {**texts, "links": sorted(os.listdir("/sys/class/net")), "run": sorted(os.listdir("/run"))}


@needs_root
def test_a_real_kernel_is_tried_and_left_as_it_was():
    before = traces()
    used = sum(resource.getrusage(who).ru_utime + resource.getrusage(who).ru_stime for who in CPU_OF)

    found = probe_kernel(in_container=False)

    used = sum(resource.getrusage(who).ru_utime + resource.getrusage(who).ru_stime for who in CPU_OF) - used
    assert traces() == before
    assert used < CPU_BUDGET_S
    assert set(FEATURES) < set(found["features"])
    assert {item["state"] for item in found["features"].values()} <= {
        "works",
        "builtin",
        "loaded",
        "loadable",
        "absent",
        "unknown",
    }
    assert json.loads(json.dumps(found)) == found


CPU_OF = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


@needs_root
@pytest.mark.skipif(os.path.exists("/proc/modules"), reason="a kernel without modules can be tried for all it has")
def test_a_kernel_without_modules_tells_by_trying():
    found = probe_kernel(in_container=False)

    states = {name: item["state"] for name, item in found["features"].items()}
    assert found["unseen"] == ""
    assert {states[name] for name in ("ipset.hash_ip", "vxlan", "tc.clsact", "tc.bpf", "bpf")} == {"works"}


@needs_root
def test_what_is_killed_in_the_middle_leaves_nothing(tmp_path):
    """The parent dies while its child is at work in its namespaces."""
    code = (
        "import sys, time, os\n"
        "from ansible_collections.portcullis.fleet.plugins.module_utils.kernel_netlink import try_link\n"
        "from ansible_collections.portcullis.fleet.plugins.module_utils.sandbox import run_in_network\n"
        "def slow():\n"
        f"    open({str(tmp_path / 'pid')!r}, 'w').write(os.readlink('/proc/self/ns/net'))\n"
        "    time.sleep(60)\n"
        "run_in_network(slow, 60)\n"
    )
    before = traces()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", code], env=environment)
    try:
        deadline = time.monotonic() + 20
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert time.monotonic() < deadline, "the child did not start"
            time.sleep(0.02)
        namespace = (tmp_path / "pid").read_text()
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()

    deadline = time.monotonic() + 20
    while namespace in network_namespaces():
        assert time.monotonic() < deadline, "the namespace is still there"
        time.sleep(0.02)
    assert traces() == before


def network_namespaces() -> set[str]:
    """Those that a process is in."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(os.readlink(path))
        except OSError:
            continue
    return found


def test_without_the_right_to_namespaces_the_lists_decide(monkeypatch):
    monkeypatch.setattr(kernel_live, "run_in_network", lambda _function, _timeout_s: SandboxError("not permitted"))

    found = probe_kernel(in_container=True)

    assert found["unseen"] == "not permitted"
    assert "works" not in {found["features"][name]["state"] for name in FEATURES}


@pytest.mark.parametrize(
    "loaded", [(), ("x_tables", "ip_tables")], ids=["nothing loaded", "a part of what a rule needs is loaded"]
)
def test_where_all_of_it_would_load_modules_no_program_runs(monkeypatch, loaded):
    """A restore program without a rule loads nfnetlink all the same."""
    evidence = Evidence(
        config=None,
        config_source="",
        loaded=frozenset(loaded),
        present=frozenset(),
        loadable=frozenset(MODULES),
        builtin=frozenset(),
        directory="/lib/modules/6.1.0",
        barred={},
        disabled=False,
        in_container=False,
    )
    run = []
    monkeypatch.setattr(kernel_live, "run_in_network", lambda function, _timeout_s: function())
    monkeypatch.setattr(kernel_live, "which", lambda name, path: f"/sbin/{name}")
    monkeypatch.setattr(kernel_live.subprocess, "run", lambda argv, **_options: run.append(argv))

    assert kernel_live.try_features(judge_modules(evidence), evidence) == ({}, "")
    assert run == []


@needs_root
def test_a_rule_that_is_refused_is_tried_alone_and_spoils_no_other():
    good = next(rule for rule in IPV4_RULES if rule.feature == "iptables_match.comment")
    bad = good._replace(feature="bad", text="-A INPUT -m no_such_match")

    states = run_in_network(
        lambda: [state for _rule, state in try_rules("iptables-nft-restore", [bad, good])], TIMEOUT_S
    )

    assert [state for state, _evidence in states] == ["unknown", "works"]
    assert "no_such_match" in states[0][1]


@needs_root
def test_each_rule_of_nftables_is_proof_of_its_own():
    bad = NFT_RULES[0]._replace(feature="bad", text="no such words")

    states = run_in_network(
        lambda: [state for _rule, state in try_rules("nft", [bad, *NFT_RULES], is_nft=True)], TIMEOUT_S
    )

    assert [state for state, _evidence in states] == ["unknown", *["works"] * len(NFT_RULES)]


def test_a_program_that_is_not_there_is_a_reason():
    ((rule, state),) = try_rules("no-such-restore", [RULES[0]])

    assert rule is RULES[0]
    assert state.state == "unknown"
    assert "No such file" in state.evidence


def test_the_tables_name_each_other():
    provided = {name for names in FEATURES.values() for name in names}
    asked = {name for rule in (*IPV4_RULES, *NFT_RULES) for name in rule.also}
    asked |= {name.format(table="filter") for backend in kernel_live.BACKENDS for name in backend.modules}
    asked |= {name for _try, also in kernel_live.TRIES.values() for name in also}

    assert provided | asked <= set(MODULES)
    assert {rule.feature for backend in kernel_live.BACKENDS for rule in backend.rules} <= set(FEATURES)
    assert set(kernel_live.TRIES) <= set(FEATURES)


@pytest.mark.parametrize(
    ("mountinfo", "version", "mounts"),
    [
        (OTHER + V2.format(""), "2", {"cgroup2": "/sys/fs/cgroup"}),
        (OTHER + V1, "1", {"cgroup": "/sys/fs/cgroup/memory"}),
        (
            V1 + V2.format("/unified"),
            "hybrid",
            {"cgroup": "/sys/fs/cgroup/memory", "cgroup2": "/sys/fs/cgroup/unified"},
        ),
        (OTHER, "none", {}),
    ],
)
def test_the_version_of_cgroups_is_that_of_their_mounts(mountinfo, version, mounts):
    assert cgroups(mountinfo) == {"version": version, "mounts": mounts}


@pytest.mark.parametrize(
    ("text", "mode"), [("none [integrity] confidentiality\n", "integrity"), ("[none] integrity\n", "none"), ("", "")]
)
def test_the_mode_of_lockdown_is_the_one_in_brackets(text, mode):
    assert parse_lockdown(text) == mode


@pytest.mark.parametrize(
    ("status", "number"),
    [("CapEff:\t00\nCapBnd:\t000001ffffdfffff\nSeccomp: 0\n", 0x1FFFFDFFFFF), ("Name:\tcat\n", None)],
)
def test_the_bounding_set_is_read(status, number):
    assert bounding_capabilities(status) == number


def test_the_lists_of_modprobe_are_read_by_name_with_the_administrators_last(tmp_path, monkeypatch):
    vendor, local = tmp_path / "lib", tmp_path / "etc"
    for directory, text in ((vendor, "blacklist ipip\n"), (local, "")):
        directory.mkdir()
        (directory / "one.conf").write_text(text)
        (directory / "one.conf.dpkg-old").write_text("blacklist vxlan\n")
    monkeypatch.setattr(kernel_features, "MODPROBE_DIRECTORIES", (str(vendor), str(tmp_path / "absent")))
    monkeypatch.setattr(kernel_features, "MODPROBE_LOCAL", str(local))

    assert kernel_features._modprobe_texts() == {str(local / "one.conf"): ""}


def test_a_list_that_outlived_its_files_names_nothing_that_can_be_loaded(tmp_path, monkeypatch):
    """The package of the running kernel was removed, or replaced by a newer one."""
    directory = tmp_path / os.uname().release
    (directory / "kernel").mkdir(parents=True)
    (directory / "kernel" / "vxlan.ko.zst").touch()
    (directory / "modules.dep").write_text("kernel/vxlan.ko.zst:\nkernel/ipip.ko.zst: kernel/ip_tunnel.ko.zst\n")
    monkeypatch.setattr(kernel_features, "MODULE_DIRECTORIES", (str(tmp_path / "absent"), str(tmp_path)))

    evidence = kernel_features.read_evidence(in_container=False)

    assert evidence.loadable == {"vxlan"}
    assert evidence.builtin is None
    assert evidence.directory == str(directory)
