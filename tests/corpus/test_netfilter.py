# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every recorded packet-filter state is judged as its answer says."""

from __future__ import annotations

import functools
import gzip
import json

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.packet_filters import packed
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_marks import INT32_BITS, allocate
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_judge import Judged, judge_packet_filters
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_known import Felix, Known
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_marks import (
    SECURE_WORKLOAD_BITS,
    collisions,
    mark_users,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_order import (
    EVERYTHING,
    BaseChain,
    HookOrder,
    base_chains,
    early_accepts,
    felix_allow_actions,
    hook_orders,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_owners import FELIX, running_software
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_rules import NATIVE
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_stale import find_stale
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_state import PacketFilters, read_packet_filters
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_observations import (
    Node,
    Wanted,
    packet_filter_findings,
)

from tests.corpus.files import CORPUS
from tests.unit.plugins.plugin_utils.probes import probe_with

STATES = sorted(path.parent.name for path in (CORPUS / "netfilter").glob("*/meta.json"))
FELIX_VERSION = (3, 31)
# The recorder's stand-in wears the agent's names, as a real one would.
OWNER_IN_ANSWER = {"secure-workload": "ta-stand-in"}


def text(state: str, name: str) -> str:
    """One recorded text, unpacked; empty when there is none."""
    path = CORPUS / "netfilter" / state / name
    packed = path.with_name(f"{name}.gz")
    if packed.exists():
        return gzip.decompress(packed.read_bytes()).decode()
    return path.read_text(encoding="utf-8") if path.exists() else ""


@functools.cache
def meta(state: str) -> dict:
    """The recorder's own account."""
    return json.loads(text(state, "meta.json"))


def running(state: str) -> frozenset[str]:
    """What procs.txt says was at work."""
    lines = [line.split(maxsplit=1) for line in text(state, "procs.txt").splitlines() if " " in line]
    commands = [rest for first, rest in lines if first.isdigit()]
    units = [first for first, rest in lines if rest == "active"]
    return running_software(commands, units)


def processes(state: str) -> list[str]:
    """The lines of procs.txt that name a process."""
    return [line for line in text(state, "procs.txt").splitlines() if line.split(maxsplit=1)[0].isdigit()]


def known(state: str) -> Known:
    """What a probe would know besides the rules: kube-proxy's answer, where iptables points, Felix's settings."""
    found = meta(state)
    felix = Felix()
    if found["felix"]:
        effective = found["felix"]["effective"]
        backend = found["felix"]["env"]["FELIX_IPTABLESBACKEND"].lower()
        felix = Felix(
            version=FELIX_VERSION,
            mark_mask=int(effective["iptablesMarkMask"], 16),
            backend=NATIVE if effective["nftablesMode"] == "Enabled" else backend,
            chain_insert_mode=effective["chainInsertMode"],
        )
    mode = text(state, "proxy_mode.txt").strip()
    return Known(
        running=running(state),
        proxy_mode=mode if mode in ("iptables", "ipvs", "nftables") else "",
        proxy_backend="legacy" if "legacy" in text(state, "iptables_alternative.txt") else "nft",
        felix=felix,
    )


@functools.cache
def filters(state: str, with_saves: bool = True) -> PacketFilters:
    """The state as the judge sees it."""
    names = ("iptables-save.nft.txt", "ip6tables-save.txt") if with_saves else ()
    saves = [text(state, name) for name in (*names, "iptables-save.legacy.txt")]
    if not with_saves:
        saves += [found for found in [text(state, "ip6tables-save.txt")] if "nf_tables" not in found]
    return read_packet_filters(
        saves=saves,
        nft_json=text(state, "nft.json"),
        ip_rules=[text(state, "ip-rule.txt")],
        running=running(state),
    )


def told(owner: str) -> str:
    """An owner as the answers call it."""
    return OWNER_IN_ANSWER.get(owner, owner)


def configured(state: str) -> dict[str, int]:
    """Felix's mask, which no rule tells."""
    mask = known(state).felix.mark_mask
    return {} if mask is None else {FELIX: mask}


def base_chain_answer(order: HookOrder) -> dict:
    """A base chain in the words of the answers."""
    found = {
        "policy": order.chain.policy,
        "cali_jump": order.felix,
        "rules_in_order": [f"{entry.position} {told(entry.owner)}: {entry.name}" for entry in order.entries],
    }
    if order.felix != "absent":
        found["foreign_before_cali"] = [entry.name for entry in order.before]
        found["foreign_after_cali"] = [entry.name for entry in order.after]
        found["before_cali_that_can_accept"] = sorted(order.before_that_can_accept())
        found["before_cali_that_can_drop_or_reject"] = sorted(order.before_that_can_refuse())
    return found


@pytest.mark.parametrize("state", STATES)
class TestState:
    """One recorded state."""

    def test_reads_everything(self, state: str):
        """No line of a recorded state is left over."""
        assert filters(state).unparsed() == []

    def test_chains_by_owner(self, state: str):
        """Each chain has its maker."""
        found = {told(owner): places for owner, places in filters(state).chains_by_owner.items()}

        expected = {owner: sorted(places) for owner, places in meta(state)["answer"]["chains_by_owner"].items()}
        assert found == expected

    def test_shared_chains(self, state: str):
        """A chain of two owners is told. Some answers leave it out where kube-proxy's copy is recorded all the same."""
        found = filters(state).shared_chains()

        assert found.keys() >= meta(state)["answer"]["shared_chains"].keys()
        if not found.keys() <= meta(state)["answer"]["shared_chains"].keys():
            assert "KUBE-FIREWALL" in text(state, "ip6tables-save.txt")

    @pytest.mark.parametrize("with_saves", [True, False], ids=["saves and JSON", "JSON alone"])
    def test_filter_base_chains(self, state: str, with_saves: bool):
        """Position and order in the filter table's base chains."""
        orders = hook_orders(filters(state, with_saves), tables=["filter"])
        found = {order.place: base_chain_answer(order) for order in orders if order.table.family == "ip"}

        expected = meta(state)["answer"]["filter_base_chains"]
        if not with_saves:
            # nft lists a base chain only once it was used; the save tool prints all three.
            expected = {place: chain for place, chain in expected.items() if place in found or chain["rules_in_order"]}
        assert found == expected

    @pytest.mark.parametrize("with_saves", [True, False], ids=["saves and JSON", "JSON alone"])
    def test_allow_action(self, state: str, with_saves: bool):
        """Felix's allow action is read from its rules; what its own nft tables say is not in the answers."""
        found = felix_allow_actions(filters(state, with_saves))

        in_iptables = {place: action for place, action in found.items() if not place.startswith("nft table")}
        assert in_iptables == meta(state)["answer"]["felix_allow_action_in_rules"]

    def test_marks(self, state: str):
        """Bits in rules and configured bits, by owner."""
        users = mark_users(filters(state), configured=configured(state))
        found = [
            {
                "owner": told(user.owner),
                "bits_set_or_cleared_in_rules": f"{user.set_bits:#x}",
                "bits_matched_in_rules": f"{user.matched_bits:#x}",
                **({"configured_mask": f"{user.configured:#x}"} if user.owner == FELIX else {}),
            }
            for user in users
        ]

        expected = [dict(mark) for mark in meta(state)["answer"]["marks"]]
        for mark in expected:
            mark.pop("named_by_felix_log", None)
        assert found == sorted(expected, key=lambda mark: OWNER_IN_ANSWER.get(mark["owner"], mark["owner"]))
        assert all(user.evidence() for user in users)

    def test_names_of_felix_bits(self, state: str):
        """The bits that Felix said it took are those that its mask and version lead to."""
        marks = [mark for mark in meta(state)["answer"]["marks"] if "named_by_felix_log" in mark]
        for mark in marks:
            log = dict(part.split(":") for part in mark["named_by_felix_log"].split(", "))
            found = allocate(int(mark["configured_mask"], 16), known(state).felix)

            assert {name.removeprefix("Mark").lower(): int(bits, 16) for name, bits in log.items()} == {
                **found,
                "noncaliendpoint": 0,
            }

    def test_collisions(self, state: str):
        """Who claims another's bits, with the rules as evidence."""
        found = [
            {
                "between": sorted(told(owner) for owner in item.owners),
                "overlap": f"{item.overlap:#x}",
                "seen_in_rules_on_both_sides": f"{item.in_rules:#x}",
            }
            for item in collisions(mark_users(filters(state), configured=configured(state)))
        ]

        assert found == meta(state)["answer"]["mark_collisions"]

    def test_routing_rules(self, state: str):
        """Routing rules that look at marks."""
        found = [
            {"rule": route.text, "mask": f"{route.mask:#x}", "mask_written": route.has_mask}
            for route in filters(state).routes
        ]

        assert found == meta(state)["answer"]["ip_rules_with_fwmark"]

    def test_early_blanket_accept(self, state: str):
        """A rule that accepts everything ahead of others, and nothing else."""
        found = early_accepts(filters(state))

        assert [
            {
                "where": f"{item.table.place}/{item.chain}",
                "pos": item.position,
                "rule": item.rule.text,
                "never_reached_after_it": list(item.never_reached),
            }
            for item in found
            if item.kind == EVERYTHING
        ] == meta(state)["answer"]["early_blanket_accept"]
        assert all(item.kind == EVERYTHING for item in found)

    def test_native_tables(self, state: str):
        """Tables that iptables cannot show, and their base chains."""
        native = filters(state).native_tables()
        chains = {
            str(BaseChain(table, chain, claim.owner))
            for table, claim in native
            for chain in table.chains.values()
            if chain.hook
        }

        answer = meta(state)["answer"]
        assert [f"{table.family} {table.name} ({claim.owner})" for table, claim in native] == answer[
            "native_nft_tables"
        ]
        assert chains == set(answer["native_nft_base_chains"])

    def test_stale(self, state: str):
        """What is left over, and nothing else."""
        found = find_stale(filters(state), known(state))

        expected = meta(state)["answer"]["stale"]
        assert len(found) == len(expected)
        for item, said in zip(found, expected, strict=True):
            assert item.is_certain
            if item.backend == NATIVE:
                assert item.chains[0] in said
            else:
                assert f"iptables-{item.backend}" in said
                assert ("cali-" if item.owner == FELIX else item.owner) in said

    def test_order_of_base_chains(self, state: str):
        """Base chains of all tables run in the order in which the kernel was seen to run them."""
        traces = meta(state)["answer"].get("base_chains_in_the_order_the_kernel_ran_them", {})
        for path, trace in traces.items():
            hooks = ["prerouting", "input"] if "INPUT" in path else ["prerouting", "forward", "postrouting"]
            expected = [name for name in trace if not name.startswith("->")]
            found = [
                f"{item.table.family} {item.table.name} {item.chain.name}"
                for hook in hooks
                for item in base_chains(filters(state), hook)
            ]

            assert [name for name in found if name in expected] == expected


# Software that keeps to itself beside Kubernetes.
QUIET = {"kubelet", "kube-proxy", "calico-felix", "cni-portmap", "dockerd", "fail2ban", "libvirt"}


@pytest.mark.parametrize("state", STATES)
class TestFindings:
    """The findings of one recorded state follow from its answer."""

    @staticmethod
    def ids(state: str) -> list[str]:
        """Ids of what is found."""
        return [item["id"] for item in judge_packet_filters(Judged(filters(state), known(state), {}))]

    def test_nothing_is_found_where_nothing_is_wrong(self, state: str):
        """No false alarm where the answer names no fault and everybody keeps to itself."""
        answer = meta(state)["answer"]
        faults = answer["mark_collisions"] or answer["stale"] or answer["early_blanket_accept"]
        mixed = "packet_filter.backends_differ" in self.ids(state)
        if not faults and QUIET.issuperset(answer["chains_by_owner"]) and not mixed:
            assert self.ids(state) == []

    def test_faults_of_the_answer_are_found(self, state: str):
        """Each fault that the answer names is a finding, as often as it is named."""
        answer = meta(state)["answer"]
        found = self.ids(state)

        assert found.count("packet_filter.marks_collide") == len(answer["mark_collisions"])
        assert found.count("packet_filter.stale") == len(answer["stale"])
        assert found.count("packet_filter.policy_bypassed") == len(answer["early_blanket_accept"])

    def test_backends_differ(self, state: str):
        """Felix and kube-proxy in two places is found, and only that."""
        places = known(state)
        if not meta(state)["felix"] or not places.proxy_mode:
            pytest.skip("one of the two does not run")
        proxy = NATIVE if places.proxy_mode == "nftables" else places.proxy_backend

        assert ("packet_filter.backends_differ" in self.ids(state)) == (places.felix.backend != proxy)

    def test_mask_for_felix(self, state: str):
        """Where Felix runs there is a mask that keeps clear of everybody else and of Secure Workload."""
        judged = Judged(filters(state), known(state), {"secure-workload": SECURE_WORKLOAD_BITS})
        plan = judged.mask_plan
        others = [mark for mark in meta(state)["answer"]["marks"] if mark["owner"] != FELIX]

        assert plan.mask
        assert plan.mask <= INT32_BITS
        for bits in [SECURE_WORKLOAD_BITS, *(int(mark["bits_set_or_cleared_in_rules"], 16) for mark in others)]:
            assert not plan.mask & bits


@pytest.mark.parametrize("state", STATES)
def test_a_probe_of_the_state_is_judged_as_the_state(state):
    """The way from node_probe's texts to findings loses nothing; a clean node has none."""
    saves = [text(state, name) for name in ("iptables-save.nft.txt", "ip6tables-save.txt", "iptables-save.legacy.txt")]
    rules = {
        "saves": [packed(item) for item in saves],
        "nft_json": [packed(text(state, "nft.json"))],
        "ip_rules": [packed(text(state, "ip-rule.txt"))],
        "programs": [line.split(maxsplit=1)[1].split()[0] for line in processes(state)],
        "units": [line.split()[0] for line in text(state, "procs.txt").splitlines() if line.endswith(" active")],
        "unseen": "",
    }
    mode = known(state).proxy_mode
    probe = probe_with(packet_filter_rules=rules, kube_proxy={"mode": mode, "error": ""})
    wanted = Wanted(engine="secure_workload", registry_config_path="", images=())
    found = packet_filter_findings(Node(name="n2", in_cluster=True, probe=probe, wanted=wanted))

    told_by_rules = Known(running=running(state), proxy_mode=mode, felix=Felix(ipvs=mode == "ipvs"))
    judged = Judged(filters(state), told_by_rules, {"secure-workload": SECURE_WORKLOAD_BITS})
    assert [item["id"] for item in found] == [item["id"] for item in judge_packet_filters(judged)]
    if state in {"01-clean-node", "02-kp-iptables", "03-kp-nftables", "17a-cni-portmap-hostport-kp-iptables"}:
        assert found == []
