# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is in a file stays, what is missing is added, and adding twice is as once."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.node_fix_rules import owned_jumps, pod_rules
from ansible_collections.portcullis.fleet.plugins.module_utils.node_fix_texts import (
    HEADER,
    add_modules,
    add_unmanaged,
    is_ufw_on,
    set_sysctls,
    sets_unmanaged,
    switch_ufw_off,
)

WANTED = ("interface-name:cali*", "interface-name:tunl*")
BOTH = ";".join(WANTED)
KEY = "net.ipv4.conf.all.rp_filter"


@pytest.mark.parametrize(
    ("text", "extends", "expected"),
    [
        pytest.param("", False, f"{HEADER}[keyfile]\nunmanaged-devices={BOTH}\n", id="no file"),
        pytest.param("", True, f"{HEADER}[keyfile]\nunmanaged-devices+={BOTH}\n", id="another file sets it too"),
        pytest.param("[main]\ndns=none", False, f"[main]\ndns=none\n[keyfile]\nunmanaged-devices={BOTH}\n", id="other"),
        pytest.param(
            "[keyfile]\npath=/x\n[main]\n",
            False,
            f"[keyfile]\nunmanaged-devices={BOTH}\npath=/x\n[main]\n",
            id="section without the key",
        ),
        pytest.param(
            "[keyfile]\nunmanaged-devices = mac:00:22:68:1c:59:b1; interface-name:tunl*\n",
            False,
            "[keyfile]\nunmanaged-devices = mac:00:22:68:1c:59:b1;interface-name:tunl*;interface-name:cali*\n",
            id="some are there",
        ),
        pytest.param(f"[keyfile]\nunmanaged-devices={BOTH}", False, f"[keyfile]\nunmanaged-devices={BOTH}", id="so"),
        pytest.param(
            f"[keyfile]\nunmanaged-devices={BOTH}\n[main]\n[keyfile]\nunmanaged-devices=mac:00:22:68:1c:59:b1\n",
            False,
            f"[keyfile]\nunmanaged-devices={BOTH}\n[main]\n[keyfile]\nunmanaged-devices=mac:00:22:68:1c:59:b1;{BOTH}\n",
            id="twice, of which the last counts",
        ),
    ],
)
def test_unmanaged_devices_are_added(text, extends, expected):
    found = add_unmanaged(text, WANTED, extends=extends)

    assert found == expected
    assert add_unmanaged(found, WANTED, extends=extends) == found
    assert sets_unmanaged(found)


def test_a_key_in_another_section_says_nothing_of_devices():
    assert not sets_unmanaged("[main]\nunmanaged-devices=a\n# [keyfile]\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", f"{HEADER}ip_vs\nip_vs_rr\n"),
        ("# mine\nip-vs", "# mine\nip-vs\nip_vs_rr\n"),
        ("ip_vs_rr\nip_vs\n", "ip_vs_rr\nip_vs\n"),
    ],
)
def test_modules_are_added_by_whatever_name_they_have_there(text, expected):
    assert add_modules(text, ["ip_vs", "ip_vs_rr"]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", f"{HEADER}{KEY} = 1\n", id="no file"),
        pytest.param(f"vm.x = 3\n{KEY}=2\n{KEY} = 2", f"vm.x = 3\n{KEY} = 1\n", id="twice, with another value"),
        pytest.param(f"-{KEY.replace('.', '/')} = 1\n", f"-{KEY.replace('.', '/')} = 1\n", id="other spelling, so"),
        pytest.param(f"#{KEY} = 2", f"#{KEY} = 2\n{KEY} = 1\n", id="commented out"),
    ],
)
def test_kernel_parameters_get_one_value(text, expected):
    found = set_sysctls(text, {KEY: "1"})

    assert found == expected
    assert set_sysctls(found, {KEY: "1"}) == found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# ENABLED=yes\nENABLED=yes\nLOGLEVEL=low\n", "# ENABLED=yes\nENABLED=no\nLOGLEVEL=low\n"),
        ("ENABLED=\"yes\" # mine\nENABLED='YES'", "ENABLED=no # mine\nENABLED=no"),
        ("ENABLED=no\nENABLED=yesterday\n", "ENABLED=no\nENABLED=yesterday\n"),
    ],
)
def test_ufw_is_switched_off_as_ufw_does_it(text, expected):
    assert switch_ufw_off(text) == expected
    assert not is_ufw_on(expected)


def test_what_leads_into_the_chains_of_kube_proxy_and_felix_is_seen_in_each_backend():
    """kubelet's own chains are none of kube-proxy's."""
    save = """\
*nat
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-SERVICES -j KUBE-NODEPORTS
COMMIT
*filter
-A INPUT -j KUBE-FIREWALL
-A FORWARD -j DOCKER-USER
-A FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD
COMMIT
"""
    nft = """{"nftables": [{"metainfo": {}}, {"table": {"family": "ip", "name": "kube-proxy"}},
      {"chain": {"family": "ip", "table": "kube-proxy", "name": "nat-output", "hook": "output"}},
      {"chain": {"family": "ip", "table": "kube-proxy", "name": "services"}}]}"""

    assert owned_jumps([save], [nft]) == {
        "kube-proxy": ["nat PREROUTING KUBE-SERVICES", "nft ip kube-proxy nat-output"],
        "calico-node": ["filter FORWARD cali-FORWARD"],
    }


def test_rules_that_plugins_wrote_for_single_pods_are_told_from_those_that_are_always_there():
    save = """\
*nat
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ
-A POSTROUTING -s 10.1.0.5/32 -m comment --comment "name: \\"lab\\" id: \\"1\\"" -j CNI-5ba1f1e7c0ffee0123456789
-A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 80 -j CNI-DN-0123456789abcdef01234
-A CNI-DN-0123456789abcdef01234 -p tcp --dport 80 -j DNAT --to-destination 10.1.0.5:80
*filter
-A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD
-A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN
COMMIT
"""
    nft = """{"nftables": [
      {"rule": {"family": "inet", "table": "cni_hostport", "chain": "prerouting", "handle": 7}},
      {"rule": {"family": "inet", "table": "cni_hostport", "chain": "hostports", "handle": 9, "comment": "abc"}},
      {"rule": {"family": "ip", "table": "nat", "chain": "POSTROUTING", "handle": 4, "comment": "abc"}}]}"""

    assert pod_rules([save], [nft]) == {
        "POSTROUTING CNI-5ba1f1e7c0ffee0123456789",
        "CNI-HOSTPORT-DNAT CNI-DN-0123456789abcdef01234",
        "nft inet cni_hostport 9",
    }
