#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_probe
short_description: Read everything the requirement checks need of a node, in one trip
version_added: 0.1.0
description:
  - Reads the system, containerd and its effective configuration, packet-filter managers, the live mode of kube-proxy,
    kubelet, the clock and free disk space, and changes nothing.
  - Needs nothing on the node but Python. Works without root as far as possible and says in RV(probe.unseen) what it
    could not see.
  - The result holds no secrets and can be saved and judged elsewhere with M(portcullis.fleet.node_requirements).
author:
  - The Portcullis developers (@portcullis)
options:
  images:
    description: Image references whose presence on the node is asked from the container runtime over CRI.
    type: list
    elements: str
    default: [docker.io/library/busybox:1.33]
  disk_paths:
    description:
      - Absolute paths of directories that a run will write to. Free space and inodes are reported for each.
      - The directory of containerd's configuration file is added.
    type: list
    elements: path
    default: [/etc, /var/lib/portcullis, /var/lib/containerd]
  probe_deep:
    description:
      - Whether kernel modules that are not loaded are loaded, to try what they provide, and unloaded again, also when
        the module is killed. Without it the lists of modules decide.
      - While they are loaded some of them show links on the node (C(tunl0), C(dummy0)). What somebody else uses by then
        stays loaded. In containers and in check mode nothing is loaded.
    type: bool
    default: false
extends_documentation_fragment:
  - portcullis.fleet.attributes
  - portcullis.fleet.attributes.read_only
"""

EXAMPLES = r"""
- name: Read the node
  portcullis.fleet.node_probe:
  become: true
  register: probe

- name: Keep the probe, to judge it elsewhere
  ansible.builtin.copy:
    content: "{{ probe.probe | to_nice_json }}"
    dest: "probes/{{ inventory_hostname }}.json"
    mode: "0600"
  delegate_to: localhost
"""

RETURN = r"""
probe:
  description: What was read. The keys below are those of C(probe_version) 1.
  returned: success
  type: dict
  contains:
    probe_version:
      description: The version of this format.
      type: int
      sample: 1
    system:
      description: Architecture, byte order, host name, machine id, kernel release, distribution, container manager
        (empty on a machine), Python version and effective user id.
      type: dict
      sample: {"architecture": "x86_64", "kernel": "6.1.0-31-cloud-amd64", "container": ""}
    containerd:
      description: The daemon that kubelet uses, else that of C(containerd.service). Whether it is there and active, its
        unit with the properties and active dependents that a restart depends on, its binary and whether that was
        replaced since the start, its configuration file and the real path of its directory, the keys of the effective
        configuration that the checks use, whether the file is newer than the running daemon, and what CRI answers.
        Where kubelet uses another runtime, C(other_runtime) names its program.
      type: dict
      sample: {"present": true, "config": {"version": 2, "config_path": "", "mirrors": []}, "cri": {"serving": true}}
    packet_filters:
      description: The packet-filter managers that are at work, each with the evidence. Null where systemd did not
        answer.
      type: list
      elements: dict
      sample: [{"name": "firewalld", "evidence": "firewalld.service is active (running), enabled at boot"}]
    packet_filter_rules:
      description: The rules of iptables (both backends, both families) and nftables, and the routing rules, as texts
        that are compressed with zlib and encoded in base64; the names of the programs that run and of active firewall
        units; and in C(unseen) what could not be read. Nothing is loaded or registered in the kernel to read them.
      type: dict
      sample: {"saves": ["eJwDAAAAAAE="], "nft_json": [], "ip_rules": [], "programs": ["kubelet"], "unseen": ""}
    routes:
      description: The routes of the main table that lead to networks, with the protocol number of who made each.
        Default routes, blackholes, pods of this node and routes that Calico made are left out. C(error) says what is
        not there.
      type: dict
      sample: {"routes": [{"destination": "10.0.0.0/24", "interface": "eth0", "protocol": 2}], "error": ""}
    kube_proxy:
      description: The live mode from kube-proxy's own endpoint, or why it did not answer.
      type: dict
      sample: {"mode": "iptables", "error": ""}
    kubelet:
      description: Whether its unit is active and whether it says that it is healthy.
      type: dict
      sample: {"active": true, "healthy": true, "error": ""}
    time:
      description: The node's clock in seconds since the epoch, whether the kernel has it disciplined, the estimated
        maximum error in microseconds, and the time service.
      type: dict
      sample: {"epoch_s": 1764547200.0, "synchronised": true, "maxerror_us": 1500, "service": "chrony.service"}
    disks:
      description: Free bytes and inodes (null where the file system has no fixed number) for each path, whether it is
        mounted read-only, and in C(obstacle) what is in its place and not a directory, else an empty string.
      type: list
      elements: dict
      sample: [{"path": "/etc", "free_bytes": 1048576000, "free_inodes": 65000, "read_only": false, "obstacle": ""}]
    kernel_features:
      description: What the kernel has. C(features) says of each by name whether it is there (C(state) is C(works),
        C(builtin), C(loaded), C(loadable), C(absent) or C(unknown)) and what says so (C(evidence)). Tried are only
        features that make the kernel load no module, in a network namespace that goes with the probe; C(unseen) says
        why none could be. Beside them the version and mounts of cgroups, the security modules (null where they cannot
        be read), the mode of lockdown, the reverse path filter of all interfaces, whether there is IPv6, whether a
        container can have CAP_SYS_ADMIN, and whether loading modules is switched off.
      type: dict
      sample: {"features": {"vxlan": {"state": "loaded", "evidence": "vxlan is in /proc/modules"}}, "rp_filter": 0}
    settings:
      description: What decides whether a network plugin and an agent can work. C(network_manager), null where it is not
        active, has what its files say of devices, those that it manages and those that udev keeps from it; C(kubelet),
        null where no kubelet of its own runs, the flags and keys that checks need; C(cni) the network
        configurations in the runtime's order, with the plugins that they call; C(nri) whether something listens on its
        socket; C(crio) the version of CRI-O, null without one.
      type: dict
      sample: {"network_manager": null, "nri": {"socket": "/var/run/nri/nri.sock", "listening": false}}
    unseen:
      description: What could not be read, and why. C(units) where systemd did not answer, C(root) without root.
      type: dict
      sample: {"units": "systemctl show failed: no answer within 10 s"}
    duration_ms:
      description: How long reading took on the node, in milliseconds.
      type: int
      sample: 130
controller_epoch_s:
  description: The controller's clock in seconds since the epoch, before and after the node's was read.
  returned: success
  type: dict
  sample: {"before": 1764547199.8, "after": 1764547200.4}
no_become:
  description: The task failed since the node does not have the program, such as sudo, that C(ansible_become) needs.
  returned: when the task failed for that reason
  type: bool
  sample: true
no_python:
  description: The task failed since the node has no Python interpreter.
  returned: when the task failed for that reason
  type: bool
  sample: true
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.portcullis.fleet.plugins.module_utils.probe import collect

ARGUMENT_SPEC = {
    "images": {"type": "list", "elements": "str", "default": ["docker.io/library/busybox:1.33"]},
    "disk_paths": {
        "type": "list",
        "elements": "path",
        "default": ["/etc", "/var/lib/portcullis", "/var/lib/containerd"],
    },
    "probe_deep": {"type": "bool", "default": False},
}


def main():
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    relative = [path for path in module.params["disk_paths"] if not path.startswith("/")]
    if relative:
        module.fail_json(msg=f"disk_paths must be absolute, got {relative[0]!r}: write them from / on")
    probe_deep = module.params["probe_deep"] and not module.check_mode
    module.exit_json(changed=False, probe=collect(module.params["images"], module.params["disk_paths"], probe_deep))


if __name__ == "__main__":
    main()
