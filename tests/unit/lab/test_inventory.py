"""The inventory that Ansible reads."""

from pathlib import Path

import yaml

from tests.lab import inventory
from tests.lab.topology import DEFAULT

DIRECTORY = Path("/state/of a lab")


def rendered() -> dict:
    """The default lab's, ports counted from 1000."""
    nodes = {node.name: (node, 1000 + index) for index, node in enumerate(DEFAULT.nodes)}
    return yaml.safe_load(inventory.render(DIRECTORY, nodes))["all"]


def test_groups():
    """Nodes are grouped by role, plain hosts apart."""
    hosts = {name: list(group["hosts"]) for name, group in rendered()["children"].items()}

    assert hosts == {"control_plane": ["cp1"], "workers": ["w1", "w2"], "plain_hosts": ["h1"]}


def test_empty_groups_are_there():
    """A play on `plain_hosts` works in a lab without any."""
    found = yaml.safe_load(inventory.render(DIRECTORY, {}))["all"]["children"]

    assert found == {group: {"hosts": {}} for group in ("control_plane", "workers", "plain_hosts")}


def test_each_host_has_its_port_and_key_name():
    """All are 127.0.0.1, so that a host key must be found by name."""
    host = rendered()["children"]["workers"]["hosts"]["w2"]

    assert host == {"ansible_port": 1002, "ansible_ssh_extra_args": "-o HostKeyAlias=w2"}


def test_paths_survive_blanks():
    """ansible_ssh_common_args is split like a shell's line."""
    variables = rendered()["vars"]

    assert "'UserKnownHostsFile=/state/of a lab/known_hosts'" in variables["ansible_ssh_common_args"]
    assert variables["portcullis_kubeconfig"] == "/state/of a lab/kubeconfig"
