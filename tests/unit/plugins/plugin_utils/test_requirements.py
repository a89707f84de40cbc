"""Each requirement is met by a clean node, and is a finding where it is not met."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.packet_filters import packed
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_install import read_objects
from ansible_collections.portcullis.fleet.plugins.plugin_utils.network_requirements import Calico
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_observations import Node, Wanted, version_tuple
from ansible_collections.portcullis.fleet.plugins.plugin_utils.requirements import (
    CHECKS,
    evaluate_node,
    left_out,
    probe_fault,
)

from .kernel_problems import KERNEL_PROBLEMS
from .netfilter_samples import base_chain, ruleset
from .network_samples import calico_node, felix
from .probes import BUSYBOX, CLEAN_PROBE, probe_with
from .settings_problems import SETTINGS_PROBLEMS

WANTED = Wanted(engine="native", registry_config_path="/etc/containerd/certs.d", images=(BUSYBOX,))
FIREWALLD = [{"name": "firewalld", "evidence": "firewalld.service is active (running), enabled at boot"}]
FULL = [{"path": "/var/lib/containerd", "free_bytes": 5 * 2**20, "free_inodes": None, "read_only": False}]
NO_INODES = [{"path": "/etc", "free_bytes": 2**30, "free_inodes": 3, "read_only": False}]
READ_ONLY = [{"path": "/etc", "free_bytes": 0, "free_inodes": 10_000, "read_only": True}]
JOURNAL = "/var/lib/portcullis"
FILE_IN_PLACE = [{"path": JOURNAL, "free_bytes": 2**30, "free_inodes": None, "read_only": False, "obstacle": JOURNAL}]
READ_ONLY_CONFIG = [{"path": "/etc/containerd", "free_bytes": 2**30, "free_inodes": None, "read_only": True}]
SMALL_ETC = [{"path": "/etc/containerd", "free_bytes": 5 * 2**20, "free_inodes": None, "read_only": False}]
# What the probe makes of a node whose systemctl fails.
UNITS_UNSEEN = {
    "unseen": {"units": "systemctl show failed: Failed to connect to bus:\nHost is down"},
    "packet_filters": None,
    "containerd__unit": {},
    "containerd__unit_state": "",
    "time__service": "",
    "time__synchronised": False,
}
# What the probe makes of a node that it reads without root: no socket, no configuration, perhaps no binary.
ROOT_UNSEEN = {
    "system__euid": 1000,
    "unseen": {"root": "Permission denied: not root"},
    "containerd__config": {},
    "containerd__config_error": "open /etc/containerd/config.toml: permission denied",
    "containerd__cri__serving": False,
    "containerd__cri__error": "UNAVAILABLE: permission denied",
}
PROBLEMS = {
    "architecture": ({"system__architecture": "riscv64"}, "node.architecture", "riscv64"),
    "big-endian": ({"system__byteorder": "big"}, "node.architecture", "big-endian"),
    "kernel": ({"system__kernel": "4.18.0-553.el8.x86_64"}, "node.kernel", "4.18.0-553"),
    "kernel without a number": ({"system__kernel": "custom"}, "node.kernel", "custom"),
    "not root": (ROOT_UNSEEN, "node.not_root", "without root"),
    "not root, and no binary on the path": (
        {"system__euid": 1000, "containerd": {"present": False}},
        "node.not_root",
        "without root",
    ),
    "systemd does not answer": (
        UNITS_UNSEEN,
        "node.unseen",
        "units: systemctl show failed: Failed to connect to bus: Host is down",
    ),
    "no containerd": ({"containerd": {"present": False}}, "containerd.missing", "no containerd"),
    "another runtime": (
        {"containerd": {"present": False, "other_runtime": "crio"}},
        "containerd.missing",
        "kubelet uses crio",
    ),
    "containerd stopped": (
        {
            "containerd__cri__serving": False,
            "containerd__cri__error": "connection refused",
            "containerd__unit_state": "inactive",
        },
        "containerd.cri_not_serving",
        "containerd.service is inactive; CRI at /run/containerd/containerd.sock: connection refused",
    ),
    "CRI dead in a living daemon": (
        {"containerd__cri__serving": False, "containerd__cri__conditions": {"RuntimeReady": False}},
        "containerd.cri_not_serving",
        "containerd.service is active; CRI at /run/containerd/containerd.sock: conditions RuntimeReady=False",
    ),
    "containerd too old": ({"containerd__cri__version": "1.4.13~ds1"}, "containerd.version", "1.4.13"),
    "config refused": (
        {"containerd__config": {}, "containerd__config_error": "failed to load TOML: (3, 1)"},
        "containerd.config_invalid",
        "/etc/containerd/config.toml: failed to load TOML: (3, 1)",
    ),
    "config newer than the daemon": (
        {"containerd__config_changed_after_start": True},
        "containerd.config_not_loaded",
        "changed after containerd started",
    ),
    "containerd upgraded without a restart": (
        {"containerd__binary_replaced": True},
        "containerd.binary_replaced",
        "/usr/bin/containerd was replaced after containerd 1.6.20~ds1 started",
    ),
    "mirrors": ({"containerd__config__mirrors": ["docker.io"]}, "containerd.mirrors_present", "mirrors.docker.io"),
    "registry TLS": ({"containerd__config__tls": ["r.example"]}, "containerd.mirrors_present", "configs.r.example.tls"),
    "config_path unset": ({"containerd__config__config_path": ""}, "containerd.config_path", "not set"),
    "image": ({"containerd__cri__images": {BUSYBOX: False}}, "image.missing", BUSYBOX),
    "firewalld": ({"packet_filters": FIREWALLD}, "packet_filter.other_manager", "firewalld.service is active"),
    "no iptables and no nft": (
        {"packet_filter_rules__unseen": "nft -j list ruleset: not there"},
        "packet_filter.rules_unseen",
        "nft -j list ruleset: not there",
    ),
    "kubelet": (
        {"kubelet": {"active": False, "healthy": False, "error": "connection refused"}},
        "kubelet.not_healthy",
        "kubelet.service is not active; healthz: connection refused",
    ),
    "kube-proxy": ({"kube_proxy": {"mode": "", "error": "refused"}}, "kube_proxy.mode_unknown", "refused"),
    "clock a minute off": ({"time__epoch_s": 900.0}, "time.skew", "100 s off"),
    "clock seconds off": ({"time__epoch_s": 1007.5}, "time.drift", "6.5 s off"),
    "clock not kept": (
        {"time__synchronised": False, "time__service": ""},
        "time.not_synchronised",
        "unsynchronised",
    ),
    "disk full": ({"disks": FULL}, "disk.space", "/var/lib/containerd has 5 MiB free of 256 MiB needed"),
    "no inodes": ({"disks": NO_INODES}, "disk.space", "3 inodes"),
    "read-only": ({"disks": READ_ONLY}, "disk.not_writable", "/etc is on a read-only file system"),
    "file in place": ({"disks": FILE_IN_PLACE}, "disk.not_writable", "/var/lib/portcullis is there and is not a dir"),
}


def node_of(probe: dict, *, in_cluster: bool = True, wanted: Wanted = WANTED) -> Node:
    """A node that was read within a second."""
    clock = {"before": 999.5, "after": 1001.0}
    return Node(name="w1", in_cluster=in_cluster, probe=probe, wanted=wanted, controller_epoch_s=clock)


def test_a_clean_node_has_no_finding():
    assert evaluate_node(node_of(CLEAN_PROBE)) == []


@pytest.mark.parametrize(("changes", "finding_id", "words"), PROBLEMS.values(), ids=PROBLEMS)
def test_each_problem_is_one_finding_that_says_what_was_found(changes, finding_id, words):
    found = evaluate_node(node_of(probe_with(**changes)))

    assert [item["id"] for item in found] == [finding_id]
    assert words in found[0]["observed"]
    assert found[0]["node"] == "w1"
    assert "{" not in found[0]["expected"] + found[0]["remedy"]


def test_every_check_is_provoked_by_a_test():
    provoked = {row[1] for row in PROBLEMS.values()}
    provoked |= {row[0] for table in (KERNEL_PROBLEMS, SETTINGS_PROBLEMS) for row in table.values()}

    assert {check.id for check in CHECKS} == provoked


@pytest.mark.parametrize(
    "changes",
    [
        {"containerd": {"present": False}},
        {"containerd__unit_state": "inactive", "containerd__cri__serving": False},
        {"packet_filters": FIREWALLD},
        {"kubelet__healthy": False},
        {"kube_proxy__mode": ""},
    ],
    ids=["no containerd", "containerd off", "own firewall", "no kubelet", "no kube-proxy"],
)
def test_a_plain_host_needs_nothing_of_a_cluster(changes):
    assert evaluate_node(node_of(probe_with(**changes), in_cluster=False)) == []


def test_a_containers_clock_is_judged_by_its_skew_alone():
    changes = {"time__synchronised": False, "time__service": "", "system__container": "systemd-nspawn"}

    assert evaluate_node(node_of(probe_with(**changes))) == []


@pytest.mark.parametrize(
    ("changes", "finding_id", "words"),
    [
        (
            {"containerd__unit": {}, "containerd__unit_state": ""},
            "containerd.unit_not_active",
            "not the unit of the containerd that runs",
        ),
        (
            {"containerd__unit__ActiveState": "inactive", "containerd__unit__MainPID": "0"},
            "containerd.unit_not_active",
            "containerd.service is inactive",
        ),
        ({"containerd__unit__KillMode": "control-group"}, "containerd.kill_mode", "KillMode=control-group"),
        ({"containerd__dependents": ["docker.service"]}, "containerd.restarts_others", "docker.service"),
        ({"disks": READ_ONLY_CONFIG}, "disk.not_writable", "/etc/containerd is on a read-only file system"),
    ],
    ids=["by hand", "by another unit", "kill mode", "docker", "read-only configuration"],
)
def test_what_forbids_an_edit_is_found_before_it_where_there_is_something_to_edit(changes, finding_id, words):
    unset = evaluate_node(node_of(probe_with(containerd__config__config_path="", **changes)))

    assert {item["id"] for item in unset} == {"containerd.config_path", finding_id}
    assert [words in item["observed"] for item in unset if item["id"] == finding_id] == [True]
    assert {item["node"] for item in unset} == {"w1"}
    assert evaluate_node(node_of(probe_with(**changes))) == []


@pytest.mark.parametrize(
    "wanted", [{"restarts_containerd": False}, {"accept_restart_of": ("pods", "docker.service")}], ids=["never", "told"]
)
def test_what_forbids_a_restart_does_not_matter_where_none_is_made_or_it_was_accepted(wanted):
    changes = {"containerd__unit__KillMode": "control-group", "containerd__dependents": ["docker.service"]}
    node = node_of(probe_with(containerd__config__config_path="", **changes))
    told = dataclasses.replace(node, wanted=dataclasses.replace(node.wanted, **wanted))

    assert [item["id"] for item in evaluate_node(told)] == ["containerd.config_path"]


EARLY_ACCEPT = """# Generated by iptables-save v1.8.9 (nf_tables)
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:cali-FORWARD - [0:0]
-A FORWARD -j ACCEPT
-A FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD
-A cali-FORWARD -j MARK --set-xmark 0x100000/0x100000
COMMIT
"""


def with_rules(*saves: str) -> dict:
    programs = ["calico-felix", "kube-proxy", "kubelet"]
    return probe_with(
        packet_filter_rules__saves=[packed(text) for text in saves], packet_filter_rules__programs=programs
    )


def test_rules_are_judged_on_a_node_of_the_cluster():
    """A blanket ACCEPT ahead of Felix bypasses every policy; a plain host has a firewall of its own."""
    found = evaluate_node(node_of(with_rules(EARLY_ACCEPT)))

    assert [(item["id"], item["node"]) for item in found] == [("packet_filter.policy_bypassed", "w1")]
    assert "-A FORWARD -j ACCEPT" in found[0]["observed"]
    assert evaluate_node(node_of(with_rules(EARLY_ACCEPT), in_cluster=False)) == []


def test_mark_bits_of_secure_workload_count_for_its_engine():
    """Bits 20 and 21 are its own, before its first rule is there."""
    save = EARLY_ACCEPT.replace("-A FORWARD -j ACCEPT\n", "")
    node = node_of(with_rules(save))
    for_it = dataclasses.replace(node, wanted=dataclasses.replace(node.wanted, engine="secure_workload"))

    assert evaluate_node(node) == []
    (found,) = evaluate_node(for_it)
    assert (found["id"], found["severity"]) == ("packet_filter.marks_collide", "blocker")
    assert "0x100000" in found["observed"]


def with_calico(probe: dict, version: str, *, fits_int32: bool = True, engine: str = "secure_workload", **spec) -> Node:
    """A node on which the cluster runs this Calico with these settings."""
    install = read_objects([calico_node(version), felix(**spec)])
    calico = Calico(install.version, install.effective(), fits_int32)
    wanted = dataclasses.replace(WANTED, engine=engine)
    return dataclasses.replace(node_of(probe, wanted=wanted), calico=calico)


@pytest.mark.parametrize(
    ("version", "spec", "mode", "words"),
    [
        ("v3.31.0", {}, "iptables", "0x100000"),
        ("v3.31.0", {"wireguardEnabled": True}, "iptables", "0x300000"),
        ("v3.27.0", {"wireguardEnabled": True}, "iptables", "0x100000"),
        ("v3.27.0", {}, "ipvs", "0x300000"),
        ("v3.27.0", {"bpfEnabled": True}, "iptables", "0x300000"),
    ],
    ids=["3.30 and later", "WireGuard", "3.17 with WireGuard", "IPVS", "eBPF"],
)
def test_the_bits_of_felix_are_those_of_its_version_and_settings(version, spec, mode, words):
    (found,) = evaluate_node(with_calico(probe_with(kube_proxy__mode=mode), version, **spec))

    assert (found["id"], found["severity"]) == ("packet_filter.marks_collide", "blocker")
    assert words in found["observed"]


@pytest.mark.parametrize(
    ("version", "spec", "engine"),
    [
        ("v3.27.0", {}, "secure_workload"),
        ("v3.31.0", {"iptablesMarkMask": 0x7FCF0000}, "secure_workload"),
        ("v3.31.0", {}, "native"),
    ],
    ids=["bits 16 to 19", "a mask that keeps clear", "an engine without marks"],
)
def test_a_felix_that_keeps_clear_is_not_accused(version, spec, engine):
    assert evaluate_node(with_calico(probe_with(), version, engine=engine, **spec)) == []


@pytest.mark.parametrize(
    ("fits_int32", "words"),
    [(True, "iptablesMarkMask: 2144272384 (0x7fcf0000)"), (False, "iptablesMarkMask: 4291756032 (0xffcf0000)")],
)
def test_the_mask_that_is_proposed_can_be_written(fits_int32, words):
    (found,) = evaluate_node(with_calico(probe_with(), "v3.31.0", fits_int32=fits_int32))

    assert words in found["remedy"]


def test_where_felix_chooses_its_dataplane_its_own_rules_tell_which_mask_counts():
    """Calico 3.32 follows kube-proxy by itself."""
    rules = ruleset(
        {"table": {"family": "ip", "name": "calico"}},
        base_chain("calico", "filter-cali-FORWARD", "forward", family="ip"),
    )
    probe = probe_with(
        packet_filter_rules__nft_json=[packed(rules)],
        packet_filter_rules__programs=["calico-felix", "kubelet", "kube-proxy"],
        kube_proxy__mode="nftables",
    )
    (found,) = evaluate_node(with_calico(probe, "v3.32.0", nftablesMarkMask=0xFFFF0000))

    assert found["id"] == "packet_filter.marks_collide"
    assert "nftablesMarkMask: 2144272384" in found["remedy"]


def test_a_probe_of_before_the_rules_were_read_is_judged_without_them():
    probe = probe_with()
    del probe["packet_filter_rules"]

    assert evaluate_node(node_of(probe)) == []


def test_a_small_etc_has_room_for_the_configuration():
    changes = {"containerd__config__config_path": "", "disks": SMALL_ETC}

    assert [item["id"] for item in evaluate_node(node_of(probe_with(**changes)))] == ["containerd.config_path"]


def test_a_probe_of_before_the_unit_was_read_is_judged_without_it():
    probe = probe_with(containerd__config__config_path="")
    for key in ("unit", "unit_name", "dependents", "binary_replaced", "config_directory"):
        del probe["containerd"][key]

    assert [item["id"] for item in evaluate_node(node_of(probe))] == ["containerd.config_path"]


def test_a_plain_host_uses_a_containerd_that_serves_whatever_its_unit_says():
    changes = {"containerd__unit": {}, "containerd__unit_state": "", "containerd__config__config_path": ""}
    found = evaluate_node(node_of(probe_with(**changes), in_cluster=False))

    assert [item["id"] for item in found] == ["containerd.config_path", "containerd.unit_not_active"]


def test_a_saved_probe_is_judged_without_a_clock():
    node = Node(name="w1", in_cluster=True, probe=probe_with(time__epoch_s=5.0), wanted=WANTED)

    assert evaluate_node(node) == []


@pytest.mark.parametrize(
    ("effective", "wanted", "is_as_wanted"),
    [("/a", "", True), ("/a", "/a", True), ("/a", "/b", False), ("", "", False)],
    ids=["any is kept", "the same", "another", "none at all"],
)
def test_a_directory_that_is_set_is_kept_unless_another_is_asked_for(effective, wanted, is_as_wanted):
    probe = probe_with(containerd__config__config_path=effective)
    found = evaluate_node(node_of(probe, wanted=Wanted("native", wanted, (BUSYBOX,))))

    assert (found == []) is is_as_wanted


@pytest.mark.parametrize(
    ("engine", "architecture", "kernel", "is_enough"),
    [
        ("native", "x86_64", "5.3.0", True),
        ("native", "x86_64", "5.2.21", False),
        ("runtime_enforcer", "x86_64", "5.8.0", True),
        ("runtime_enforcer", "aarch64", "6.1.0", False),
        ("runtime_enforcer", "aarch64", "6.4.0", True),
        ("secure_workload", "s390x", "3.10.0-1160.el7.s390x", True),
    ],
)
def test_the_engine_and_the_architecture_choose_the_lowest_kernel(engine, architecture, kernel, is_enough):
    wanted = Wanted(engine=engine, registry_config_path="/etc/containerd/certs.d", images=(BUSYBOX,))
    probe = probe_with(system__architecture=architecture, system__kernel=kernel)

    assert (evaluate_node(node_of(probe, wanted=wanted)) == []) is is_enough


@pytest.mark.parametrize(
    "changes",
    [
        {"containerd__config__config_path": ""},
        {"containerd__cri__images": {}},
        {"containerd__config__mirrors": ["docker.io"]},
    ],
    ids=["config_path", "image", "mirrors"],
)
def test_what_the_run_mends_is_a_warning_before_it_and_a_blocker_after(changes):
    after = Wanted(WANTED.engine, WANTED.registry_config_path, WANTED.images, proven=True)

    before_run = evaluate_node(node_of(probe_with(**changes)))[0]
    after_run = evaluate_node(node_of(probe_with(**changes), wanted=after))[0]

    assert (before_run["severity"], after_run["severity"]) == ("warning", "blocker")
    assert before_run["remedy"] != after_run["remedy"]


@pytest.mark.parametrize(
    ("result", "finding_id"),
    [
        ({"unreachable": True, "msg": "connection\ntimed out"}, "node.unreachable"),
        ({"failed": True, "no_python": True, "msg": "no Python on w1"}, "node.no_python"),
        ({"failed": True, "no_become": True, "msg": "no sudo on w1"}, "node.no_become"),
        ({"failed": True, "msg": "boom"}, "node.probe_failed"),
    ],
)
def test_a_probe_that_did_not_come_back_is_a_blocker_and_leaves_its_node_out(result, finding_id):
    fault = probe_fault("w1", result)

    assert (fault["id"], fault["severity"]) == (finding_id, "blocker")
    assert "\n" not in fault["observed"]
    assert left_out([fault]) == {"w1"}


def test_a_probe_that_came_back_has_no_fault():
    assert probe_fault("w1", {"probe": CLEAN_PROBE}) is None


def test_a_probe_of_another_version_is_refused():
    with pytest.raises(ValueError, match="version 99"):
        evaluate_node(node_of({"probe_version": 99}))


def test_a_probe_that_is_none_is_refused_by_name():
    with pytest.raises(ValueError, match="the probe of w1 is not one of node_probe's: KeyError"):
        evaluate_node(Node("w1", True, {"probe_version": 1}, WANTED))


@pytest.mark.parametrize(
    ("text", "version"),
    [("6.1.0-31-cloud-amd64", (6, 1)), ("v1.7.24~ds1", (1, 7)), ("5", (5, 0)), ("custom", None), ("", None)],
)
def test_versions_are_read_from_their_leading_numbers(text, version):
    assert version_tuple(text) == version


@pytest.mark.parametrize(
    ("error", "active", "ready", "is_found"),
    [
        ("[Errno 111] Connection refused", True, True, False),
        ("[Errno 111] Connection refused", True, False, True),
        ("[Errno 111] Connection refused", False, True, True),
        ("timed out", True, True, True),
        ("[-]syncloop failed", True, True, True),
    ],
    ids=["a port that is off", "not Ready either", "no unit", "hangs", "says so"],
)
def test_a_kubelet_without_its_usual_port_is_judged_by_the_api_server(error, active, ready, is_found):
    probe = probe_with(kubelet={"active": active, "healthy": False, "error": error})
    node = dataclasses.replace(node_of(probe), is_ready=ready)

    assert ("kubelet.not_healthy" in {item["id"] for item in evaluate_node(node)}) is is_found
