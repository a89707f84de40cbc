# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_schema import (
    FIELDS,
    deprecations,
    refusals,
    seconds,
)


def test_fields_of_kubernetes_1_34():
    """As many as the Go types have, those of the mappings counted."""
    assert sum(len(kind) if isinstance(kind, dict) else 1 for kind in FIELDS.values()) == 57
    assert FIELDS["ipvs"]["strictARP"] == "boolean"


@pytest.mark.parametrize(
    "desired",
    [
        {"mode": "nftables"},
        {"mode": ""},
        {"mode": None, "ipvs": None, "iptables": {"masqueradeBit": None}},
        {"ipvs": {"strictARP": True, "excludeCIDRs": ["10.0.0.0/8"], "syncPeriod": "1m30s", "scheduler": "rr"}},
        {"iptables": {"masqueradeBit": 31, "minSyncPeriod": "0s", "localhostNodePorts": False}},
        {"featureGates": {"NFTablesProxyMode": True}, "logging": {"flushFrequency": 5, "verbosity": 2}},
        {"clusterCIDR": "10.0.0.0/8,fd00::/8", "nodePortAddresses": ["primary"]},
        {"metricsBindAddress": "[::1]:10249", "healthzBindAddress": "", "bindAddress": ""},
        {"clientConnection": {"qps": 5.5, "burst": 0}, "oomScoreAdj": -999, "showHiddenMetricsForVersion": "1.33"},
        {"conntrack": {"tcpEstablishedTimeout": "24h0m0s", "maxPerCore": 0}},
        {"detectLocalMode": "NodeCIDR"},
    ],
)
def test_what_kube_proxy_takes(desired):
    """Nothing is refused."""
    assert refusals(desired, (1, 34)) == {}


@pytest.mark.parametrize(
    ("desired", "path", "reason"),
    [
        pytest.param({"Mode": "ipvs"}, "Mode", "ignores it: mode is meant?", id="case-of-a-field"),
        pytest.param({"moed": "ipvs"}, "moed", "mode is meant?", id="misspelt"),
        pytest.param({"strictARP": True}, "strictARP", "ipvs.strictARP is meant?", id="wrong-level"),
        pytest.param({"ipvs": {"strictArp": True}}, "ipvs.strictArp", "ipvs.strictARP is meant?", id="case-below"),
        pytest.param({"masqueradeAll": True}, "masqueradeAll", "iptables.masqueradeAll or nftables", id="two-places"),
        pytest.param({"iptable": {"masqueradeBit": 1}}, "iptable", "iptables is meant?", id="mapping"),
        pytest.param({"proxyMode": "ipvs"}, "proxyMode", "ignores it", id="flag"),
        pytest.param({1: 2}, "1", "no such field", id="no-text"),
        pytest.param({"kind": "x"}, "kind", "not changed", id="kind"),
        pytest.param({"udpIdleTimeout": "1s"}, "udpIdleTimeout", "gone since Kubernetes 1.26", id="gone"),
        pytest.param({"mode": "NFTables"}, "mode", "write nftables", id="case-of-the-mode"),
        pytest.param({"mode": "nft"}, "mode", "it is iptables, ipvs, nftables, or empty", id="mode"),
        pytest.param({"mode": "userspace"}, "mode", "gone since Kubernetes 1.26", id="userspace"),
        pytest.param({"mode": "kernelspace"}, "mode", "that of Windows", id="windows"),
        pytest.param({"mode": True}, "mode", "none of its values", id="mode-boolean"),
        pytest.param({"ipvs": {"strictARP": "true"}}, "ipvs.strictARP", "without quotes", id="boolean-in-quotes"),
        pytest.param({"ipvs": True}, "ipvs", "no mapping", id="no-mapping"),
        pytest.param({"iptables": {"masqueradeBit": 32}}, "iptables.masqueradeBit", "from 0 to 31", id="bit"),
        pytest.param({"iptables": {"masqueradeBit": True}}, "iptables.masqueradeBit", "no number", id="boolean-bit"),
        pytest.param({"iptables": {"syncPeriod": 30}}, "iptables.syncPeriod", 'such as "30s"', id="no-unit"),
        pytest.param({"ipvs": {"tcpTimeout": ""}}, "ipvs.tcpTimeout", "no duration", id="empty-duration"),
        pytest.param({"ipvs": {"tcpTimeout": "-1s"}}, "ipvs.tcpTimeout", "negative", id="negative"),
        pytest.param({"configSyncPeriod": "1d"}, "configSyncPeriod", "no duration", id="day"),
        pytest.param({"nodePortAddresses": "primary"}, "nodePortAddresses", "no list", id="no-list"),
        pytest.param({"nodePortAddresses": ["primary", "10.0.0.0/8"]}, "nodePortAddresses", "alone", id="primary"),
        pytest.param({"nodePortAddresses": ["10.0.0.1"]}, "nodePortAddresses", "no length", id="address"),
        pytest.param({"clusterCIDR": "x"}, "clusterCIDR", "no CIDR", id="cidr"),
        pytest.param({"clusterCIDR": "10.0.0.0/8,11.0.0.0/8,fd00::/8"}, "clusterCIDR", "more than one", id="three"),
        pytest.param({"metricsBindAddress": "127.0.0.1"}, "metricsBindAddress", "no IP:port", id="no-port"),
        pytest.param({"metricsBindAddress": "h:1"}, "metricsBindAddress", "no IP:port", id="host"),
        pytest.param({"bindAddress": "h"}, "bindAddress", "no IP address", id="bind"),
        pytest.param({"featureGates": {"A": "true"}}, "featureGates", "A is neither", id="gate"),
        pytest.param({"oomScoreAdj": -1001}, "oomScoreAdj", "from -1000", id="score"),
        pytest.param({"detectLocalMode": "nodecidr"}, "detectLocalMode", "write NodeCIDR", id="local"),
        pytest.param({"showHiddenMetricsForVersion": 1.3}, "showHiddenMetricsForVersion", "in quotes", id="version"),
        pytest.param({"portRange": 1}, "portRange", "no text", id="text"),
    ],
)
def test_what_has_no_effect_or_stops_it(desired, path, reason):
    """It is refused with the right spelling or value."""
    found = refusals(desired, (1, 34))

    assert list(found) == [path]
    assert reason in found[path]


@pytest.mark.parametrize(
    ("desired", "version", "reason"),
    [
        ({"mode": "nftables"}, (1, 28), "since Kubernetes 1.31"),
        ({"mode": "nftables"}, (1, 30), "alpha in Kubernetes 1.30"),
        ({"nftables": {"masqueradeAll": False}}, (1, 28), "since Kubernetes 1.29"),
        ({"conntrack": {"tcpBeLiberal": True}}, (1, 28), "since Kubernetes 1.29"),
        ({"detectLocal": {"bridgeInterface": "br0"}}, (1, 23), "since Kubernetes 1.24"),
    ],
)
def test_before_its_version(desired, version, reason):
    """What an older kube-proxy does not have is refused there, and taken from the version on."""
    assert reason in next(iter(refusals(desired, version).values()))
    assert refusals(desired, (1, 31)) == {}
    assert refusals(desired) == {}


def test_alpha_mode_with_its_gate():
    """The gate makes the alpha mode available, from 1.29."""
    desired = {"mode": "nftables", "featureGates": {"NFTablesProxyMode": True}}

    assert refusals(desired, (1, 29)) == {}
    assert refusals(desired, (1, 28)) != {}


def test_ipvs_is_deprecated():
    """Told from 1.35 on, not refused."""
    assert refusals({"mode": "ipvs"}, (1, 35)) == {}
    assert "1.35" in deprecations({"mode": "ipvs"}, (1, 35))["mode"]
    assert deprecations({"mode": "ipvs"}, (1, 34)) == deprecations({"mode": "iptables"}, (1, 35)) == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [("1h0m0s", 3600), ("1.5s", 1.5), ("250ms", 0.25), ("0", 0), ("-1m", -60), ("1 s", None), ("", None)],
)
def test_seconds(text, value):
    """Durations as Go reads them."""
    assert seconds(text) == value
