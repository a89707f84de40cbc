"""What the user got wrong is refused in one line that names the host or variable and the remedy."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.action.fleet_inputs import (
    ROLES,
    complain,
    complain_about_cluster,
    complain_about_groups,
    complain_about_settings,
    read_settings,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.variables import load_argument_specs

OPTIONS = load_argument_specs(ROLES)


def test_a_fleet_without_hosts_is_refused_with_the_groups_that_are_there():
    complaint = complain_about_groups({"all": ["a"], "ungrouped": [], "kube_node": ["a"], "workers": []})

    assert "no host in control_plane, workers, plain_hosts (groups of this inventory: kube_node, workers)" in complaint


def test_one_host_in_one_group_is_a_fleet():
    assert complain_about_groups({"plain_hosts": ["h1"]}) is None


def test_a_host_is_a_node_of_the_cluster_or_a_plain_host():
    complaint = complain_about_groups({"workers": ["w1", "w2"], "plain_hosts": ["w2"]})

    assert complaint.startswith("w2 is in workers and in plain_hosts")


@pytest.mark.parametrize(
    ("groups", "kubeconfig", "words"),
    [
        ({"workers": ["w1", "w2"]}, None, "have 2 hosts but portcullis_kubeconfig is not set"),
        ({"workers": ["w1"]}, "", "have 1 host but portcullis_kubeconfig is not set"),
        ({"workers": ["w1"]}, "/a", None),
        ({"plain_hosts": ["h1"]}, None, None),
        ({"workers": [], "plain_hosts": ["h1"]}, None, None),
    ],
    ids=["none", "empty", "one", "plain hosts need none", "an empty group needs none"],
)
def test_nodes_of_a_cluster_need_a_kubeconfig(groups, kubeconfig, words):
    complaint = complain_about_cluster(groups, kubeconfig)

    assert words in complaint if words else complaint is None


WRONG = {
    "unknown engine": ({"portcullis_engine": "natve"}, "value of portcullis_engine must be one of: native"),
    "misspelt name": ({"portcullis_kubeconfg": "/a"}, "portcullis_kubeconfg (did you mean portcullis_kubeconfig?)"),
    "misspelt prefix": ({"portculis_accept": []}, "portculis_accept (did you mean portcullis_accept?)"),
    "capitals": ({"PORTCULLIS_ACCEPT": []}, "PORTCULLIS_ACCEPT (did you mean portcullis_accept?)"),
    "misspelt key": ({"portcullis_images": [{"nam": "busybox"}]}, "portcullis_images of w1"),
    "wrong type": ({"portcullis_images": "busybox"}, "portcullis_images of w1"),
    "null": ({"portcullis_accept": None}, "portcullis_accept of w1: it is null"),
    "not a number": ({"portcullis_containerd_health_timeout": "soon"}, "portcullis_containerd_health_timeout of w1"),
    "no time": ({"portcullis_containerd_health_timeout": 0}, "give seconds from 1"),
    "setting without value": ({"portcullis_containerd_settings": [{"key": "a"}]}, "settings, item 1: value must be"),
    "setting of an option": (
        {"portcullis_containerd_settings": [{"key": "version", "value": 2}]},
        "portcullis_containerd_settings of w1: settings, item 1: version decides",
    ),
    "no state of NRI": ({"portcullis_containerd_nri": "on"}, "portcullis_containerd_nri of w1"),
    "namespace": ({"portcullis_namespace": "Bad_Name"}, "portcullis_namespace of w1: got 'Bad_Name'"),
    "path as namespace": ({"portcullis_namespace": "../../../version"}, "portcullis_namespace of w1"),
    "empty namespace": ({"portcullis_namespace": ""}, "portcullis_namespace of w1"),
    "relative directory": ({"portcullis_registry_config_path": "certs.d"}, "must be an absolute path"),
    "list of directories": ({"portcullis_registry_config_path": "/a:/b"}, "must be one directory"),
    "no archive": ({"portcullis_images": [{"name": "a", "archive": "/nonexistent.tar"}]}, "/nonexistent.tar"),
    "empty image": ({"portcullis_images": [{"name": ""}]}, "got the image ''"),
    "bad digest": ({"portcullis_images": [{"name": "a@sha256:00"}]}, "expected 64 hexadecimal digits"),
    "image twice": ({"portcullis_images": [{"name": "a"}, {"name": "docker.io/a:latest"}]}, "a:latest twice"),
    "pin": ({"portcullis_images": [{"name": "a", "pinned": "perhaps"}]}, "portcullis_images of w1"),
    "no image": ({"portcullis_images": [{"name": "BAD NAME::"}]}, "got the image 'BAD NAME::'"),
    "no wave": ({"portcullis_waves": []}, "portcullis_waves of w1: got 'no wave'"),
    "wave of nobody": ({"portcullis_waves": [0, 1]}, "got '0'"),
    "negative wave": ({"portcullis_waves": [-1]}, "got '-1'"),
    "word as a wave": ({"portcullis_waves": ["abc"]}, "got 'abc'"),
    "too many percent": ({"portcullis_waves": ["101%"]}, "got '101%'"),
}


@pytest.mark.parametrize(("settings", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_variable_is_refused_by_name(settings, words):
    complaint = complain_about_settings({"w1": settings}, OPTIONS)

    assert words in complaint
    assert "w1" in complaint
    assert "\n" not in complaint


def test_the_variables_of_the_readme_are_taken(tmp_path):
    archive = tmp_path / "busybox.tar"
    archive.touch()
    settings = {
        "portcullis_engine": "secure_workload",
        "portcullis_kubeconfig": "~/.kube/config",
        "portcullis_accept": "[kubelet.not_healthy@w1]",
        "portcullis_waves": [1, "25%", "100%"],
        "portcullis_images": [{"name": "busybox:1.33", "archive": str(archive)}],
        "portcullis_report_path": "reports",
        "portcullis_node_name": "ip-10-0-0-7",
        "portcullis_registry_config_path": "/etc/containerd/certs.d",
        "portcullis_namespace": "portcullis-system",
        "portcullis_containerd_nri": "enabled",
        "portcullis_containerd_settings": [{"table": ["debug"], "key": "level", "value": "info"}],
    }

    assert complain({"workers": ["w1"]}, {"w1": settings}) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"portcullis_containerd_health_timeout": "90"},
        {"portcullis_images": "name=busybox:1.33"},
        {"portcullis_accept": "a,b"},
        {"portcullis_waves": "[1,25%]"},
    ],
)
def test_values_are_taken_in_the_spellings_that_ansible_takes(settings):
    assert complain_about_settings({"w1": settings}, OPTIONS) is None


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (({"portcullis_engine": "native"}, {}), "portcullis_engine differs between hosts (w1: native; w2: not set)"),
        (({"portcullis_kubeconfig": "/a"}, {"portcullis_kubeconfig": "/b"}), "portcullis_kubeconfig differs"),
        (({"portcullis_node_name": "a"}, {"portcullis_node_name": "b"}), None),
        (({"portcullis_accept": ["a"]}, {"portcullis_accept": ["a"]}), None),
    ],
    ids=["of one group", "two clusters", "a host's own", "the same"],
)
def test_a_variable_that_the_run_reads_once_must_be_the_same_for_all(values, words):
    complaint = complain_about_settings(dict(zip(("w1", "w2"), values, strict=True)), OPTIONS)

    assert words in complaint if words else complaint is None


def test_a_variable_that_cannot_be_rendered_is_named_with_its_host():
    class Broken(dict):
        def __getitem__(self, name):
            raise RuntimeError("'nosuch' is undefined")

    with pytest.raises(ValueError, match="portcullis_node_name of w1 cannot be rendered: 'nosuch' is undefined"):
        read_settings("w1", Broken({"portcullis_node_name": "", "other": ""}))
