"""The Ansible inventory of a lab, usable from outside its namespaces as it stands."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.lab.topology import Node


def _group(node: Node) -> str:
    if not node.cluster:
        return "plain_hosts"
    return "control_plane" if node.control_plane else "workers"


def render(directory: Path, nodes: Mapping[str, tuple[Node, int]]) -> str:
    """The inventory as YAML: `nodes` maps a name to the node and the port of its sshd on 127.0.0.1.

    All groups are there, also when they are empty. `directory` is the lab's state directory.
    """
    children: dict[str, Any] = {group: {"hosts": {}} for group in ("control_plane", "workers", "plain_hosts")}
    for name, (node, port) in nodes.items():
        # Every node is 127.0.0.1: its host key is found by its name.
        children[_group(node)]["hosts"][name] = {
            "ansible_port": port,
            "ansible_ssh_extra_args": f"-o HostKeyAlias={name}",
        }
    common = [f"UserKnownHostsFile={directory / 'known_hosts'}", "StrictHostKeyChecking=yes", "IdentitiesOnly=yes"]
    variables = {
        "ansible_host": "127.0.0.1",
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(directory / "ssh_key"),
        "ansible_ssh_common_args": shlex.join(word for option in common for word in ("-o", option)),
        # Sockets of kept connections; a Unix socket's path has room for 108 characters.
        "ansible_control_path_dir": str(directory / "cp"),
        "ansible_python_interpreter": "/usr/bin/python3",
        "portcullis_kubeconfig": str(directory / "kubeconfig"),
    }
    return yaml.safe_dump({"all": {"vars": variables, "children": children}}, sort_keys=False)
