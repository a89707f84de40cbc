# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of packet filters, and above all what is not asked, since asking would change the node."""

from __future__ import annotations

import base64
import zlib
from types import SimpleNamespace

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils import packet_filters
from ansible_collections.portcullis.fleet.plugins.module_utils.packet_filters import (
    read_packet_filters,
    running_programs,
)


@pytest.fixture
def node(monkeypatch):
    """A node without tables whose commands print their own names; commands may be taken away, tables be added."""

    state = SimpleNamespace(asked=[], missing=set(), files={})

    def run_command(argv):
        state.asked.append(" ".join(argv))
        return (127, "", "not there") if argv[0] in state.missing else (0, " ".join(argv), "")

    monkeypatch.setattr(packet_filters, "run_command", run_command)
    monkeypatch.setattr(packet_filters, "read_text", state.files.get)
    monkeypatch.setattr(packet_filters, "read_zipped", state.files.get)
    monkeypatch.setattr(packet_filters.os.path, "isdir", lambda path: path in state.files)
    return state


def texts(items):
    return [zlib.decompress(base64.b64decode(item)).decode() for item in items]


def test_a_kernel_without_tables_is_only_asked_for_its_routing_rules(node):
    """Any other question would load a module or register a table."""
    node.files["/proc/config.gz"] = "CONFIG_NF_TABLES=m\n"

    found = read_packet_filters([])

    assert node.asked == ["ip rule", "ip -6 rule"]
    assert (found["saves"], found["nft_json"], found["unseen"]) == ([], [], "")


def test_legacy_tables_are_saved_where_the_kernel_names_them_and_never_by_name(node):
    """iptables-legacy-save -t registers the table."""
    node.files["/proc/net/ip_tables_names"] = "filter\nnat\n"

    assert texts(read_packet_filters([])["saves"]) == ["iptables-legacy-save"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param("/sys/module/nf_tables", "", id="loaded"),
        pytest.param("/lib/modules/6/modules.builtin", "kernel/net/netfilter/nf_tables.ko\n", id="built in"),
        pytest.param("/proc/config.gz", "CONFIG_NF_TABLES=y\n", id="built in, in a container"),
        pytest.param("/boot/config-6", "CONFIG_NF_TABLES=y\n", id="built in, without lists of modules"),
    ],
)
def test_nft_is_asked_where_the_kernel_has_it(node, monkeypatch, path, text):
    monkeypatch.setattr(packet_filters.platform, "release", lambda: "6")
    node.files[path] = text

    found = read_packet_filters(["ufw.service"])

    assert texts(found["saves"]) == ["iptables-nft-save", "ip6tables-nft-save"]
    assert texts(found["nft_json"]) == ["nft -j list ruleset"]
    assert found["units"] == ["ufw.service"]


@pytest.mark.parametrize(
    ("missing", "saves", "unseen"),
    [
        pytest.param({"iptables-nft-save", "ip6tables-nft-save"}, ["iptables-save", "ip6tables-save"], "", id="rhel"),
        pytest.param({"nft"}, ["iptables-nft-save", "ip6tables-nft-save"], "", id="no nft"),
        pytest.param(
            {"iptables-nft-save", "iptables-save", "ip6tables-nft-save", "ip6tables-save"}, [], "", id="nft only"
        ),
        pytest.param(
            {"iptables-nft-save", "iptables-save", "ip6tables-nft-save", "ip6tables-save", "nft"},
            [],
            "nft -j list ruleset: not there",
            id="minimal image",
        ),
    ],
)
def test_tools_that_are_not_there(node, missing, saves, unseen):
    """One of the two views is enough; without any the node says so."""
    node.files["/sys/module/nf_tables"] = ""
    node.missing = missing

    found = read_packet_filters([])

    assert texts(found["saves"]) == saves
    assert found["unseen"].endswith(unseen) and bool(found["unseen"]) == bool(unseen)


def test_legacy_tables_without_their_command_are_named(node):
    """nft does not show them."""
    node.files.update({"/proc/net/ip6_tables_names": "filter", "/sys/module/nf_tables": ""})
    node.missing = {"ip6tables-legacy-save"}

    assert read_packet_filters([])["unseen"] == "ip6tables-legacy-save: not there"


def test_programs_are_named_without_their_arguments(monkeypatch):
    """An argument may be a secret; a title that a daemon gave itself is cut to the name."""
    lines = {
        "1": "/usr/bin/python3\0/usr/bin/fail2ban-server\0-xf\0",
        "2": "/usr/bin/tool\0hunter22\0",
        "3": "sshd: root@pts/0",
        "4": "/bin/sh\0-c\0echo secret\0",
        "5": "",
    }
    monkeypatch.setattr(packet_filters.os, "listdir", lambda path: [*lines, "self"])
    monkeypatch.setattr(packet_filters, "read_text", lambda path: lines[path.split("/")[2]])

    assert running_programs() == ["fail2ban-server", "python3", "sh", "sshd", "tool"]
