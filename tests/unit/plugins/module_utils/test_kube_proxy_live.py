# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of the two programs kube-proxy's iptables command is, is read from its own root."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.kube_proxy_live import backend_of_link, live_backend

NAT = "*nat\n:{} - [0:0]\nCOMMIT\n"


@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_links_are_followed_inside_the_root(tmp_path: Path, backend: str):
    for folder in ("usr/sbin", "etc/alternatives"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "usr/sbin/iptables").symlink_to("/etc/alternatives/iptables")
    (tmp_path / "etc/alternatives/iptables").symlink_to(f"/usr/sbin/iptables-{backend}")
    (tmp_path / f"usr/sbin/iptables-{backend}").symlink_to(f"xtables-{backend}-multi")
    assert backend_of_link(str(tmp_path), "/usr/sbin/iptables") == backend


def test_a_link_that_leads_nowhere_tells_nothing(tmp_path: Path):
    (tmp_path / "a").symlink_to("/b")
    (tmp_path / "b").symlink_to("/a")
    assert backend_of_link(str(tmp_path), "/a") == ""
    assert backend_of_link(str(tmp_path), "/gone") == ""


def test_the_backend_that_alone_has_rules_is_live():
    saves = {("nft", "ip"): NAT.format("KUBE-SERVICES"), ("legacy", "ip"): NAT.format("KUBE-FIREWALL")}
    assert live_backend(saves) == "nft"
