# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_owners import (
    ADMINISTRATOR,
    find_locked,
    find_owner,
)

ETC = "/etc/containerd/config.toml"


@pytest.mark.parametrize(
    ("node", "name", "lever"),
    [
        pytest.param(
            ("/var/lib/rancher/k3s/agent/etc/containerd/config.toml", "", "debian", []),
            "k3s",
            "/etc/rancher/k3s/registries.yaml and restart k3s",
            id="k3s",
        ),
        pytest.param(
            ("/var/lib/rancher/rke2/agent/etc/containerd/config.toml", "", "sles", []),
            "rke2",
            "/etc/rancher/rke2/registries.yaml",
            id="rke2",
        ),
        pytest.param(
            ("/var/snap/microk8s/7000/args/containerd.toml", "", "ubuntu", []),
            "microk8s",
            "/var/snap/microk8s/current/args/certs.d",
            id="microk8s",
        ),
        pytest.param(
            ("/etc/k0s/containerd.toml", "# k0s_managed=true\n", "debian", []), "k0s", "/etc/k0s/containerd.d", id="k0s"
        ),
        pytest.param(("/etc/k0s/containerd.toml", "version = 2\n", "debian", []), ADMINISTRATOR, "", id="k0s-released"),
        pytest.param((ETC, "", "talos", []), "talos", "machine.registries", id="talos"),
        pytest.param((ETC, "", "cos", []), "cos", "gcloud", id="gke"),
        pytest.param(("/nix/store/abc-containerd.toml", "", "nixos", []), "nix", "rebuild", id="nixos"),
        pytest.param((ETC, "", "amzn", ["/usr/bin/nodeadm"]), "nodeadm", "NodeConfig", id="al2023"),
        pytest.param((ETC, "version = 2\n", "debian", []), ADMINISTRATOR, "", id="own"),
        pytest.param((ETC, "a = 1\n# generated\n", "debian", []), ADMINISTRATOR, "", id="comment-of-a-key"),
    ],
)
def test_find_owner(node, name, lever):
    """A program that writes the file anew is named with the lever to use instead."""
    owner = find_owner(*node)

    assert owner.name == name
    assert lever in owner.remedy
    assert bool(owner.remedy) == (name != ADMINISTRATOR)


@pytest.mark.parametrize(
    ("text", "marks", "name", "evidence"),
    [
        pytest.param("# Ansible managed\nversion = 2\n", [], "ansible managed", "line 1 names it", id="ansible"),
        pytest.param(
            "version = 2\n",
            ["/etc/modules-load.d/kubespray-br_netfilter.conf"],
            "kubespray",
            "kubespray-br_netfilter.conf exists",
            id="kubespray",
        ),
        pytest.param("#\n# DO NOT EDIT\n", [], "unknown generator", "line 2: # DO NOT EDIT", id="generated"),
        pytest.param("version = 2\n", ["/opt/azure/containers"], "aks", "/opt/azure/containers exists", id="aks"),
    ],
)
def test_owners_whose_file_may_be_edited(text, marks, name, evidence):
    """An edit that holds until the owner is run again is made, with a caution."""
    owner = find_owner(ETC, text, "ubuntu", marks)

    assert (owner.name, owner.remedy) == (name, "")
    assert evidence in owner.evidence and owner.caution


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        pytest.param("/etc/containerd/conf.d/99-nvidia.toml", "NVIDIA", id="nvidia"),
        pytest.param("/run/k0s/containerd-cri.toml", "k0s", id="k0s"),
        pytest.param("/etc/containerd/conf.d/10-mine.toml", "", id="own"),
    ],
)
def test_find_locked(path, reason):
    """Imported files that a program writes at each start are not edited."""
    assert reason in find_locked([path]).get(path, "")
