"""What decides whether a change of kube-proxy is begun, resumed, led back or refused."""

from __future__ import annotations

import json

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import Resource
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_cluster import Twin, find_place
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_finish import with_text
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_start import (
    directed,
    mode_of,
    started_at,
    written_at,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_twin import HISTORY, NOTE, parked
from ansible_collections.portcullis.fleet.plugins.plugin_utils.rollout import RolloutError


def daemon_set() -> dict:
    volume = {"name": "c", "configMap": {"name": "kube-proxy"}}
    return {
        "kind": "DaemonSet",
        "spec": {"updateStrategy": {}, "selector": {}, "template": {"spec": {"volumes": [volume]}}},
    }


HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
IPTABLES, NFTABLES = f"{HEAD}mode: iptables\n", f"{HEAD}mode: nftables\n"


def twin(state: str = "present", before: str = IPTABLES, after: str = NFTABLES) -> Twin:
    note = {
        "state": state, "before": before, "after": after, "wanted": {"mode": "nftables"}, "going_back": False,
        "mode_before": "iptables", "mode_after": "nftables", "key": "config.conf",
    }  # fmt: skip
    made = {"metadata": {"annotations": {NOTE: json.dumps(note)}}}
    return Twin("kube-proxy-portcullis-abc", "kube-system", "u", "abc", note, made)


@pytest.mark.parametrize(
    ("found", "state", "config", "going_back"),
    [
        (twin(), "present", {"mode": "nftables"}, False),
        (twin(), "present", {"mode": "iptables"}, True),
        (twin(), "absent", {}, True),
        (twin("absent", NFTABLES, IPTABLES), "absent", {}, False),
        (twin("absent", NFTABLES, IPTABLES), "present", {"mode": "nftables"}, True),
    ],
)
def test_a_change_under_way_is_led_on_or_back(found: Twin, state: str, config: dict, going_back: bool):
    led = directed(found, state, config)
    assert led.going_back is going_back
    assert led.mode == ("iptables" if going_back else "nftables")
    assert json.loads(led.object["metadata"]["annotations"][NOTE])["going_back"] is going_back


def test_another_change_is_refused_with_what_is_under_way():
    with pytest.raises(RolloutError, match=r"another change is under way, of mode to mode nftables .*state: absent"):
        directed(twin(), "present", {"mode": "ipvs"})


@pytest.mark.parametrize(
    ("text", "mode"), [(NFTABLES, "nftables"), (HEAD, "iptables"), (f"{HEAD}mode: ''\n", "iptables")]
)
def test_a_configuration_without_a_mode_runs_iptables(text: str, mode: str):
    assert mode_of(text) == mode


def test_a_kube_proxy_that_was_started_before_its_configuration_was_written():
    entries = [
        {"time": "2026-11-30T10:00:00Z", "fieldsV1": {"f:data": {}}},
        {"time": "2026-11-30T12:00:00Z", "fieldsV1": {"f:metadata": {}}},
    ]
    config_map = {"metadata": {"managedFields": entries}}
    running = {"state": {"running": {"startedAt": "2026-11-30T09:59:59Z"}}}
    pod = {"status": {"containerStatuses": [running]}}
    assert 0 < started_at(pod) < written_at(config_map)
    assert (started_at({}), written_at({"metadata": {}})) == (0.0, 0.0)


def test_what_was_there_before_is_kept_beside_the_new_text_and_goes_with_it():
    config_map = {"metadata": {"name": "kube-proxy"}, "data": {"config.conf": IPTABLES}}
    written = with_text(config_map, twin().note)
    assert written["data"]["config.conf"] == NFTABLES
    assert json.loads(written["metadata"]["annotations"][HISTORY])["before"] == IPTABLES

    back = with_text(written, twin("absent", NFTABLES, IPTABLES).note)
    assert back["data"] == config_map["data"]
    assert HISTORY not in back["metadata"]["annotations"]


def test_an_original_that_a_twin_stands_in_for_on_every_node_is_still_the_place():
    """It is wanted on no node then, which says nothing of where its configuration is kept."""
    original = {
        **daemon_set(),
        "metadata": {"name": "kube-proxy", "namespace": "kube-system", "labels": {}},
        "status": {"desiredNumberScheduled": 0},
    }
    original["spec"]["template"]["spec"]["containers"] = [
        {
            "name": "kube-proxy",
            "command": ["kube-proxy", "--config=/c/config.conf"],
            "volumeMounts": [{"name": "c", "mountPath": "/c"}],
        }
    ]
    config_map = {"metadata": {"name": "kube-proxy", "namespace": "kube-system"}, "data": {"config.conf": IPTABLES}}
    for item, kind in ((original, "elsewhere"), (parked(original), "configmap")):
        assert find_place(Api([item], [config_map]), Api([item], [config_map])).kind == kind


class Api:
    """What a cluster lists."""

    def __init__(self, daemon_sets: list, config_maps: list) -> None:
        self._found = {"daemonsets": daemon_sets, "configmaps": config_maps}

    def list(self, resource: Resource, **_options: object) -> list:
        return self._found.get(resource.plural, [])

    def network(self, _reader: object) -> dict:
        return {"kube_proxy": []}
