"""kube-proxy's objects, as kubeadm lays them out."""

import yaml

from tests.lab import cluster


def test_kube_proxy_objects():
    """The names by which other programs find kube-proxy's configuration."""
    found = {value["kind"]: value for value in cluster.kube_proxy_objects("nftables").values()}
    data = found["ConfigMap"]["data"]
    pod = found["DaemonSet"]["spec"]["template"]

    assert list(found) == ["ServiceAccount", "ClusterRoleBinding", "ConfigMap", "DaemonSet"]
    assert found["ConfigMap"]["metadata"]["name"] == "kube-proxy"
    assert yaml.safe_load(data["config.conf"])["mode"] == "nftables"
    assert yaml.safe_load(data["kubeconfig.conf"])["current-context"] == "default"
    assert pod["metadata"]["labels"] == {"k8s-app": "kube-proxy"}
    assert pod["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert {"name": "kube-proxy", "configMap": {"name": "kube-proxy"}} in pod["spec"]["volumes"]
