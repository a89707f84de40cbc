"""What a run is about to set is no reason to stop it."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.in_hand import (
    mended_by_the_run,
    refused_changes,
    sets_of,
)


def found(name: str) -> dict:
    return {"id": name, "severity": "blocker", "remedy": "do something"}


@pytest.mark.parametrize(
    ("name", "sets", "role"),
    [
        ("felix.chain_insert_mode", {"calico": ["chainInsertMode"]}, "calico"),
        ("felix.chain_insert_mode", {"calico": ["iptablesFilterAllowAction"]}, "calico"),
        ("packet_filter.displaced", {"calico": ["chainInsertMode"]}, "calico"),
        ("felix.refresh_interval", {"calico": ["nftablesRefreshInterval"]}, "calico"),
        ("packet_filter.marks_collide", {"calico": ["iptablesMarkMask"]}, "calico"),
        ("packet_filter.masquerade_all", {"kube_proxy": ["masqueradeAll"]}, "kube_proxy"),
        ("calico.nftables_mode", {"kube_proxy": ["mode"], "calico": ["chainInsertMode"]}, "kube_proxy"),
    ],
)
def test_a_finding_that_the_run_mends_is_a_warning_that_says_who(name: str, sets: dict, role: str):
    (item,) = mended_by_the_run([found(name)], sets)

    assert item == {"id": name, "severity": "warning", "remedy": f"nothing: site.yml sets it (role {role})"}


@pytest.mark.parametrize(
    ("name", "sets"),
    [
        ("felix.chain_insert_mode", {}),
        ("felix.chain_insert_mode", {"calico": ["iptablesMarkMask"]}),
        ("felix.chain_insert_mode", {"kube_proxy": ["chainInsertMode"]}),
        ("packet_filter.marks_collide", {"calico": ["chainInsertMode"]}),
        ("kubelet.not_healthy", {"calico": ["chainInsertMode"], "kube_proxy": ["mode"]}),
    ],
)
def test_any_other_finding_stays_what_it_is(name: str, sets: dict):
    assert mended_by_the_run([found(name)], sets) == [found(name)]


@pytest.mark.parametrize(
    ("variables", "sets"),
    [
        ({}, {}),
        ({"portcullis_kube_proxy_config": {}, "portcullis_felix_settings": {}}, {}),
        (
            {"portcullis_kube_proxy_config": {"mode": "nftables", "iptables": {"masqueradeAll": False}}},
            {"kube_proxy": ["masqueradeAll", "mode"]},
        ),
        ({"portcullis_kube_proxy_config": {"iptables": {"masqueradeAll": True}}}, {"kube_proxy": []}),
        ({"portcullis_kube_proxy_state": "absent"}, {"kube_proxy": []}),
        ({"portcullis_felix_settings": {"chainInsertMode": "Append"}}, {"calico": ["chainInsertMode"]}),
        ({"portcullis_felix_mark_mask": "plan"}, {"calico": ["iptablesMarkMask", "nftablesMarkMask"]}),
        ({"portcullis_felix_state": "absent"}, {"calico": []}),
    ],
)
def test_a_role_is_at_work_where_a_variable_asks_for_something(variables: dict, sets: dict):
    assert sets_of(variables) == sets


def test_a_profile_sets_its_fields_of_both_data_planes():
    fields = sets_of({"portcullis_felix_profile": "secure_workload", "portcullis_felix_variant": "return"})["calico"]
    assert {"chainInsertMode", "iptablesFilterAllowAction", "nftablesMangleAllowAction", "nftablesMarkMask"} <= {
        *fields
    }


def test_a_change_that_is_refused_is_a_blocker_of_the_cluster():
    (item,) = refused_changes({"kube_proxy": "mode: no such mode", "felix": ""})
    assert (item["id"], item["severity"], item["node"]) == ("kube_proxy.refused", "blocker", "")
    assert item["observed"] == "mode: no such mode"
