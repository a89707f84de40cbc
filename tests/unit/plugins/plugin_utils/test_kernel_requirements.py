# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel lacks is a finding where it is needed, and nowhere else."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.kernel_table import FEATURES
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_observations import Node, Wanted
from ansible_collections.portcullis.fleet.plugins.plugin_utils.requirements import evaluate_node

from .kernel_problems import KERNEL_PROBLEMS, calico, lacking
from .probes import ALSO_FEATURES, BUSYBOX, probe_with


def found_on(features: dict, keys: dict | None = None, **node: object) -> list[dict]:
    """The findings of the kernel on a node.

    :param node: fields of Node, and engine and live_mode, kube-proxy's.
    """
    engine, mode = node.pop("engine", "native"), node.pop("live_mode", "iptables")
    changes = {f"kernel_features__{name}": value for name, value in (keys or {}).items()}
    probe = probe_with(kube_proxy__mode=mode, **changes)
    probe["kernel_features"]["features"].update(features)
    wanted = Wanted(engine=engine, registry_config_path="/etc/containerd/certs.d", images=(BUSYBOX,))
    judged = Node(**{"name": "w1", "in_cluster": True, "probe": probe, "wanted": wanted, **node})
    return [item for item in evaluate_node(judged) if item["id"].startswith(("kernel.", "node."))]


@pytest.mark.parametrize(
    ("finding_id", "node", "features", "keys", "words"), KERNEL_PROBLEMS.values(), ids=KERNEL_PROBLEMS
)
def test_each_problem_is_one_finding_that_says_what_tells_of_it(finding_id, node, features, keys, words):
    (found,) = found_on(features, keys, **node)

    assert found["id"] == finding_id
    assert words in found["observed"]
    assert "{" not in found["expected"] + found["remedy"]


@pytest.mark.parametrize(
    ("node", "features"),
    [
        ({"engine": "native"}, [name for name in FEATURES if name not in ALSO_FEATURES]),
        ({"engine": "native", "in_cluster": False}, list(FEATURES)),
        ({"engine": "secure_workload", "in_cluster": False}, list(FEATURES)),
        ({"engine": "runtime_enforcer", "in_cluster": False}, [*FEATURES, *ALSO_FEATURES]),
        ({"calico": calico()}, ["iptables_target.CT"]),
        ({"engine": "secure_workload"}, ["bpf", "btf", "xdp", "tc.bpf", "ipvs", "vxlan", "iptables_match.rpfilter"]),
        ({"calico": calico(), "engine": "secure_workload"}, ["bpf", "btf", "xdp", "tc.clsact", "nft.fib", "dummy"]),
        ({"calico": calico("v3.27.0", "ipip")}, ["vxlan", "wireguard", "ipvs", "iptables_match.ipvs"]),
        ({"calico": calico("v3.27.0", "ipip", ipipEnabled=False)}, ["ipip"]),
        ({"calico": calico(ipv6Support=False)}, ["iptables_match.rpfilter_ipv6", "iptables_target.REJECT_ipv6"]),
        ({"calico": calico()}, ["iptables_legacy.raw", "iptables_legacy.filter"]),
        ({"calico": calico()}, ["nft.tables", "nft.compat", "nft.nat_chain"]),
        ({"calico": calico(iptablesBackend="Legacy")}, ["nft.tables", "nft.compat"]),
        ({"calico": calico("v3.31.0", nftablesMode="Enabled")}, ["iptables_match.set", "ipset", "iptables_legacy.raw"]),
        ({"proxy_mode": "ipvs", "live_mode": "ipvs"}, ["ipvs", "ipvs.rr", "dummy"]),
        ({"proxy_mode": "ipvs", "live_mode": "", "in_cluster": False}, ["ipvs", "ipvs.rr"]),
    ],
    ids=[
        "an engine of BPF programs needs no packet filter",
        "a plain host",
        "a plain host of Secure Workload",
        "a plain host of Runtime Enforcer",
        "no VXLAN",
        "Secure Workload without Calico",
        "Calico's iptables dataplane needs no BPF",
        "pools without VXLAN",
        "IPIP switched off in Felix",
        "no IPv6",
        "nftables stands in for legacy",
        "legacy stands in for nftables",
        "legacy is what is set",
        "the nftables dataplane needs no iptables",
        "IPVS is at work, whatever the lists say",
        "a plain host has no kube-proxy",
    ],
)
@pytest.mark.parametrize("state", ["absent", "unknown"])
def test_what_is_not_used_here_is_not_demanded(node, features, state):
    assert found_on(lacking(*features, state=state), **node) == []


@pytest.mark.parametrize("state", ["works", "builtin", "loaded", "loadable"])
def test_what_can_be_used_is_there(state):
    """A module that is not loaded is loaded by who uses it."""
    features = lacking(*FEATURES, *ALSO_FEATURES, state=state)
    node = {"calico": calico("v3.27.0", "ipip", "vxlan", wireguardEnabled=True), "proxy_mode": "ipvs", "live_mode": ""}

    assert {item["id"] for item in found_on(features, **node)} == set()


@pytest.mark.parametrize(
    ("version", "rp_filter", "spec"),
    [("v3.11.3", 1, {}), ("v3.11.3", None, {}), ("v3.12.0", 2, {}), ("v3.11.3", 2, {"ignoreLooseRPF": True})],
    ids=["strict", "not read", "a Felix that filters by rules", "told not to mind"],
)
def test_loose_reverse_path_filtering_matters_to_old_felix_alone(version, rp_filter, spec):
    assert found_on({}, {"rp_filter": rp_filter}, calico=calico(version, **spec)) == []


@pytest.mark.parametrize(
    ("engine", "lockdown"),
    [("native", "integrity"), ("native", ""), ("secure_workload", "confidentiality")],
)
def test_lockdown_matters_where_programs_read_the_kernel(engine, lockdown):
    assert found_on({}, {"lockdown": lockdown}, engine=engine) == []


def test_a_probe_of_before_the_kernel_was_read_is_judged_without_it():
    probe = probe_with()
    del probe["kernel_features"]
    wanted = Wanted(engine="secure_workload", registry_config_path="", images=(BUSYBOX,))

    assert evaluate_node(Node(name="w1", in_cluster=True, probe=probe, wanted=wanted)) == []
