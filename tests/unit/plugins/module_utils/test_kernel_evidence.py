# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kernel says of itself decides what it has, and what cannot be loaded is not there."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.kernel_evidence import (
    Evidence,
    State,
    judge_features,
    judge_module,
    judge_modules,
    loads_none,
    parse_barred,
    parse_config,
    parse_dependencies,
    parse_loaded,
    parse_module_list,
    with_live,
)

# linux-image-6.1.0-31-cloud-amd64 of Debian 12, kernel 4.18 of RHEL 8 and 6.6 of a distribution that compresses.
DEBIAN = """kernel/net/netfilter/xt_set.ko: kernel/net/netfilter/ipset/ip_set.ko kernel/net/netfilter/x_tables.ko
kernel/net/netfilter/ipvs/ip_vs.ko: kernel/net/netfilter/nf_conntrack.ko
kernel/drivers/net/wireguard/wireguard.ko: kernel/lib/crypto/libchacha20poly1305.ko
"""
COMPRESSED = """kernel/net/netfilter/xt_set.ko.xz: kernel/net/netfilter/ipset/ip_set.ko.xz
extra/wire-guard.ko.zst:
"""
CONFIG = """#
# Automatically generated file; DO NOT EDIT.
CONFIG_NETFILTER_XT_SET=m
CONFIG_VXLAN=y
# CONFIG_NET_IPIP is not set
CONFIG_IP_SET_MAX=256
CONFIG_LOCALVERSION=""
CONFIG_IP_VS=m
"""
LOADED = """vxlan 143360 0 - Live 0x0000000000000000
ip6_udp_tunnel 16384 1 vxlan, Live 0x0000000000000000
xt_set 20480 0 - Loading 0x0000000000000000
ip_vs 1234 - - Live 0xffffffffc0a1b000
"""
NOTHING_READ = Evidence(
    config=None,
    config_source="",
    loaded=frozenset(),
    present=frozenset(),
    loadable=None,
    builtin=None,
    directory="/lib/modules/6.1.0",
    barred={},
    disabled=False,
    in_container=False,
)
LISTS = {"loadable": frozenset({"xt_set"}), "builtin": frozenset({"vxlan"})}
SET_IS_MODULE = {"config": {"NETFILTER_XT_SET": "m"}, "config_source": "/boot/config-6.1.0"}


def test_a_configuration_says_built_in_module_or_not():
    symbols = parse_config(CONFIG)

    assert {name: symbols[name] for name in ("NETFILTER_XT_SET", "VXLAN", "NET_IPIP", "IP_VS")} == {
        "NETFILTER_XT_SET": "m",
        "VXLAN": "y",
        "NET_IPIP": "n",
        "IP_VS": "m",
    }
    assert parse_config("") == {}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (DEBIAN, {"xt_set", "ip_vs", "wireguard"}),
        (COMPRESSED, {"xt_set", "wire_guard"}),
        ("kernel/net/ipv4/netfilter/ip_tables.ko\nkernel/net/sched/sch_ingress.ko\n", {"ip_tables", "sch_ingress"}),
        ("", set()),
        ("/lib/modules/4.18.0/kernel/net/ipv4/ipip.ko.xz:\n", {"ipip"}),
    ],
    ids=["modules.dep", "compressed", "modules.builtin", "empty", "absolute"],
)
def test_lists_name_modules_as_the_kernel_does(text, names):
    found = parse_module_list(text)

    assert set(found) == names
    assert all(path in text for path in found.values())


def test_a_module_is_loaded_when_it_is_live():
    assert parse_loaded(LOADED) == {"vxlan", "ip6_udp_tunnel", "ip_vs"}


def test_what_bars_a_module_is_named():
    barred = parse_barred(
        {
            "/usr/lib/modprobe.d/sctp-blacklist.conf": "# comment\nblacklist xt-sctp\n",
            "/etc/modprobe.d/cis.conf": "install ipip /bin/true\ninstall vxlan \\\n /bin/false\noptions ip_vs a=1\n"
            "install wireguard /sbin/modprobe --ignore-install wireguard\nblacklist\nblacklist ip_vs\n",
        },
        "BOOT_IMAGE=/vmlinuz quiet modprobe.blacklist=dummy,nft-ct module_blacklist=xt_set",
    )

    assert barred == {
        "xt_sctp": "/usr/lib/modprobe.d/sctp-blacklist.conf has blacklist xt-sctp",
        "dummy": "/proc/cmdline has modprobe.blacklist=dummy,nft-ct",
        "nft_ct": "/proc/cmdline has modprobe.blacklist=dummy,nft-ct",
        "xt_set": "/proc/cmdline has module_blacklist=xt_set",
        "ipip": "/etc/modprobe.d/cis.conf has install ipip /bin/true",
        "vxlan": "/etc/modprobe.d/cis.conf has install vxlan /bin/false",
    }


@pytest.mark.parametrize(
    ("name", "read", "state", "words"),
    [
        ("vxlan", {"config": {"VXLAN": "y"}, "config_source": "/proc/config.gz"}, "builtin", "CONFIG_VXLAN=y"),
        ("xt_set", {**SET_IS_MODULE, "loaded": frozenset({"xt_set"})}, "loaded", "/proc/modules"),
        ("xt_set", {"loaded": frozenset({"xt_set"}), "in_container": True}, "loaded", "/proc/modules"),
        ("xt_set", {**SET_IS_MODULE, **LISTS}, "loadable", "/lib/modules/6.1.0/modules.dep"),
        ("xt_set", LISTS, "loadable", "modules.dep"),
        ("vxlan", LISTS, "builtin", "modules.builtin"),
        ("vxlan", {"present": frozenset({"vxlan"})}, "builtin", "/sys/module/vxlan"),
        ("vxlan", {"present": frozenset({"vxlan"}), "loaded": None}, "builtin", "/sys/module/vxlan"),
        ("wireguard", {**LISTS, "loadable": frozenset({"wireguard"}), "config": {}}, "loadable", "modules.dep"),
        ("ipip", {"config": {"NET_IPIP": "n"}, "config_source": "/proc/config.gz"}, "absent", "CONFIG_NET_IPIP is not"),
        ("ip_vs_rr", {"config": {"IP_VS": "n"}}, "absent", "CONFIG_IP_VS_RR is not set"),
        ("ipip", LISTS, "absent", "no file of ipip is in /lib/modules/6.1.0"),
        ("xt_set", {**SET_IS_MODULE, "loadable": frozenset()}, "absent", "but no file of xt_set"),
        ("xt_set", SET_IS_MODULE, "absent", "/lib/modules/6.1.0 is not there"),
        ("xt_set", {**SET_IS_MODULE, "in_container": True}, "unknown", "out of sight of this container"),
        ("xt_set", {**SET_IS_MODULE, **LISTS, "disabled": True}, "absent", "kernel.modules_disabled is 1"),
        ("xt_set", {**LISTS, "barred": {"xt_set": "x.conf has blacklist xt_set"}}, "absent", "but x.conf has"),
        (
            "xt_set",
            {**LISTS, "barred": {"xt_set": "x.conf"}, "loaded": frozenset({"xt_set"})},
            "loaded",
            "/proc/modules",
        ),
        ("xt_set", {}, "unknown", "nothing tells of xt_set"),
        ("xt_set", {"in_container": True}, "unknown", "nothing tells of xt_set"),
    ],
    ids=[
        "built in by the configuration",
        "loaded",
        "loaded, seen from a container",
        "loadable",
        "loadable without a configuration",
        "on the list of what is built in",
        "built in by sysfs",
        "built into a kernel without modules",
        "out of tree",
        "switched off",
        "not named, since its parent is off",
        "on no list",
        "in a package that is not installed",
        "files removed by an upgrade",
        "files out of sight",
        "loading switched off",
        "barred",
        "barred, and loaded nevertheless",
        "nothing to read",
        "nothing to read in a container",
    ],
)
def test_a_module_is_judged_by_what_tells_of_it(name, read, state, words):
    found = judge_module(name, NOTHING_READ._replace(**read))

    assert found.state == state
    assert words in found.evidence


def test_a_feature_has_the_best_of_what_provides_it():
    """MASQUERADE moved from ipt_MASQUERADE to xt_MASQUERADE."""
    modules = judge_modules(NOTHING_READ._replace(loadable=frozenset({"ipt_MASQUERADE"}), builtin=frozenset()))
    features = judge_features(modules)

    assert features["iptables_target.MASQUERADE"].state == "loadable"
    assert features["iptables_target.LOG"].state == "absent"


@pytest.mark.parametrize(
    ("read", "is_safe"),
    [
        ({"loaded": frozenset({"xt_set", "ip_set"})}, False),
        ({"loaded": frozenset({"xt_set", "ip_set", "ip_set_hash_ip"})}, True),
        ({**LISTS, "loaded": frozenset({"ip_set", "ip_set_hash_ip"})}, False),
        ({**LISTS, "loaded": frozenset({"ip_set", "ip_set_hash_ip"}), "disabled": True}, True),
        ({"loaded": None}, True),
        ({"loadable": frozenset(), "builtin": frozenset()}, True),
        ({**LISTS, "barred": {"xt_set": "x.conf has install xt_set /bin/false"}}, False),
    ],
    ids=[
        "one unknown",
        "all loaded",
        "one would be loaded",
        "loading switched off",
        "no modules",
        "nothing to load",
        "barred",
    ],
)
def test_what_would_load_a_module_is_not_tried(read, is_safe):
    evidence = NOTHING_READ._replace(**read)

    assert loads_none(("xt_set", "ip_set", "ip_set_hash_ip"), judge_modules(evidence), evidence) is is_safe


@pytest.mark.parametrize(
    ("known", "found", "state"),
    [
        ("absent", "works", "works"),
        ("unknown", "absent", "absent"),
        ("unknown", "unknown", "unknown"),
        ("builtin", "absent", "builtin"),
        ("absent", "absent", "absent"),
    ],
)
def test_a_refusal_does_not_contradict_what_the_kernel_says(known, found, state):
    """In a container that may not, links are refused whatever the kernel has."""
    features = with_live({"vxlan": State(known, "told")}, {"vxlan": State(found, "tried")})

    assert features["vxlan"].state == state
    assert "tried" in features["vxlan"].evidence


def test_what_a_module_needs_is_read_in_the_order_in_which_it_can_be_unloaded():
    text = "kernel/net/ipv4/ipip.ko: kernel/net/ipv4/tunnel4.ko kernel/net/ip-tunnel.ko.zst\nkernel/a.ko.xz:\n"

    assert parse_dependencies(text) == {"ipip": ["tunnel4", "ip_tunnel"], "a": []}
    assert parse_dependencies("") == {}
