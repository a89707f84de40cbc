"""What the user got wrong is refused in one line that names the host or variable and the remedy."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.action.fleet_inputs import (
    ROLES,
    complain_about_cluster,
    complain_about_groups,
    complain_about_host,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.variables import load_argument_specs

OPTIONS = load_argument_specs(ROLES)


def test_a_fleet_without_hosts_is_refused_with_the_groups_that_are_there():
    complaint = complain_about_groups({"all": ["a"], "ungrouped": [], "kube_node": ["a"], "workers": []})

    assert "no host in control_plane, workers, plain_hosts (groups of this inventory: kube_node, workers)" in complaint


def test_one_host_in_one_group_is_a_fleet():
    assert complain_about_groups({"plain_hosts": ["h1"]}) is None


@pytest.mark.parametrize(
    ("groups", "kubeconfigs", "words"),
    [
        ({"workers": ["w1", "w2"]}, {""}, "have 2 hosts but portcullis_kubeconfig is not set"),
        ({"workers": ["w1"]}, {"/a", "/b"}, "portcullis_kubeconfig differs between hosts (/a, /b)"),
        ({"workers": ["w1"]}, {"/a"}, None),
        ({"plain_hosts": ["h1"]}, set(), None),
        ({"workers": [], "plain_hosts": ["h1"]}, set(), None),
    ],
    ids=["none", "two", "one", "plain hosts need none", "an empty group needs none"],
)
def test_nodes_of_a_cluster_need_one_kubeconfig(groups, kubeconfigs, words):
    complaint = complain_about_cluster(groups, kubeconfigs)

    assert words in complaint if words else complaint is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"portcullis_engine": "natve"}, "value of portcullis_engine must be one of: native, runtime_enforcer"),
        ({"portcullis_kubeconfg": "/a"}, "portcullis_kubeconfg (did you mean portcullis_kubeconfig?)"),
        ({"portcullis_images": [{"nam": "busybox"}]}, "portcullis_images"),
        ({"portcullis_images": "busybox"}, "portcullis_images"),
        ({"portcullis_containerd_health_timeout": "soon"}, "portcullis_containerd_health_timeout"),
    ],
    ids=["unknown engine", "misspelt name", "misspelt key", "wrong type", "not a number"],
)
def test_a_wrong_variable_is_refused_by_name(settings, words):
    complaint = complain_about_host("w1", settings, OPTIONS)

    assert words in complaint
    assert "w1" in complaint
    assert "\n" not in complaint


def test_the_variables_of_the_readme_are_taken():
    settings = {
        "portcullis_engine": "secure_workload",
        "portcullis_kubeconfig": "~/.kube/config",
        "portcullis_accept": "[kubelet.not_healthy@w1]",
        "portcullis_waves": [1, "25%", "100%"],
        "portcullis_images": [{"name": "busybox:1.33", "archive": "busybox.tar"}],
        "portcullis_report_path": "reports",
        "portcullis_node_name": "ip-10-0-0-7",
    }

    assert complain_about_host("w1", settings, OPTIONS) is None
