#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_reachability
short_description: Try ports between nodes by a real exchange
version_added: 0.1.0
description:
  - Three steps, each on all nodes before the next one. With O(step=watch) a node says who holds the ports and begins
    to watch for probes, with O(step=try) it connects and sends to other nodes, with O(step=collect) it says what has
    arrived.
  - M(portcullis.fleet.reachability_plan) makes the arguments of each node.
  - No port is bound and nothing is installed. A probe is seen by a raw socket, behind the rules of the packet filter,
    also where the kernel itself holds the port, as for VXLAN and WireGuard.
  - A process watches on the node from O(step=watch) to O(step=collect), or until O(deadline_s) where that does not
    come. It keeps nothing but memory.
  - Needs root for O(step=watch), and for protocol 4 in O(step=try).
author:
  - The Portcullis developers (@portcullis)
options:
  step:
    description: Which part of the exchange.
    type: str
    choices: [watch, try, collect]
    required: true
  nonce:
    description: 16 hexadecimal digits, the same on all nodes of a run, by which its probes are told from others.
    type: str
    required: true
  number:
    description: The number of this node in the run, from 1.
    type: int
    required: true
  deadline_s:
    description: Seconds after which the watching process ends by itself.
    type: int
    default: 300
  ports:
    description: What this node listens on or receives, for O(step=watch).
    type: list
    elements: dict
    default: []
    suboptions:
      protocol:
        description: V(ipip) is protocol 4.
        type: str
        choices: [tcp, udp, ipip]
        required: true
      port:
        description: The port, V(0) for V(ipip).
        type: int
        required: true
  attempts:
    description: What to send where, for O(step=try).
    type: list
    elements: dict
    default: []
    suboptions:
      protocol:
        description: V(ipip) is protocol 4.
        type: str
        choices: [tcp, udp, ipip]
        required: true
      port:
        description: The port, V(0) for V(ipip).
        type: int
        required: true
      address:
        description: The other node's address.
        type: str
        required: true
      target:
        description: The other node's number, V(0) where it is not a node of the run.
        type: int
        required: true
extends_documentation_fragment:
  - portcullis.fleet.attributes
  - portcullis.fleet.attributes.read_only
"""

EXAMPLES = r"""
- name: Watch for what the other nodes send
  portcullis.fleet.node_reachability:
    step: watch
    nonce: 00112233445566ff
    number: 1
    ports:
      - protocol: udp
        port: 4789
  become: true
  delegate_to: w1

- name: Send to it
  portcullis.fleet.node_reachability:
    step: try
    nonce: 00112233445566ff
    number: 2
    attempts:
      - protocol: udp
        port: 4789
        address: 10.0.0.11
        target: 1
  become: true
  delegate_to: w2

- name: What has arrived?
  portcullis.fleet.node_reachability:
    step: collect
    nonce: 00112233445566ff
    number: 1
  become: true
  delegate_to: w1
"""

RETURN = r"""
listeners:
  description: Who holds O(ports), one for each socket. C(pid) is 0 where no process does, which is the kernel for
    UDP.
  returned: O(step=watch)
  type: list
  elements: dict
  sample: [{"protocol": "tcp", "port": 179, "address": "0.0.0.0", "pid": 812, "name": "bird"}]
tunnels:
  description: The node's interfaces that hold a UDP port in the kernel, by kind.
  returned: O(step=watch)
  type: dict
  sample: {"vxlan": ["vxlan.calico"], "wireguard": []}
outcomes:
  description: For each of O(attempts) what came of it, V(connected), V(refused), V(no answer), V(sent), or why this
    node did not send.
  returned: O(step=try)
  type: list
  elements: dict
  sample: [{"outcome": "sent", "source_port": 0}]
seen:
  description: The probes that arrived. Null where the watching process was gone.
  returned: O(step=collect)
  type: list
  elements: dict
  sample: [{"protocol": "udp", "port": 4789, "source": 2, "target": 1, "address": "10.0.0.12"}]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.portcullis.fleet.plugins.module_utils.port_owners import find_listeners, find_tunnels
from ansible_collections.portcullis.fleet.plugins.module_utils.port_packets import NONCE_OCTETS
from ansible_collections.portcullis.fleet.plugins.module_utils.port_send import send_all
from ansible_collections.portcullis.fleet.plugins.module_utils.port_watch import collect_seen, start_watcher

PORT = {
    "protocol": {"type": "str", "choices": ["tcp", "udp", "ipip"], "required": True},
    "port": {"type": "int", "required": True},
}
ATTEMPT = {**PORT, "address": {"type": "str", "required": True}, "target": {"type": "int", "required": True}}
ARGUMENT_SPEC = {
    "step": {"type": "str", "choices": ["watch", "try", "collect"], "required": True},
    "nonce": {"type": "str", "required": True},
    "number": {"type": "int", "required": True},
    "deadline_s": {"type": "int", "default": 300},
    "ports": {"type": "list", "elements": "dict", "options": PORT, "default": []},
    "attempts": {"type": "list", "elements": "dict", "options": ATTEMPT, "default": []},
}


def watch(nonce, ports, deadline_s):
    """Say who holds the ports and leave a watcher behind, if there is anything to watch for."""
    pairs = list(dict.fromkeys((item["protocol"], item["port"]) for item in ports))
    found = {"listeners": find_listeners(pairs), "tunnels": find_tunnels()}
    if pairs:
        watched = {}
        for protocol, port in pairs:
            watched.setdefault(protocol, []).append(port)
        start_watcher(nonce, watched, deadline_s)
    return found


def main():
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    arguments = module.params
    try:
        nonce = bytes.fromhex(arguments["nonce"])
    except ValueError:
        nonce = b""
    if len(nonce) != NONCE_OCTETS:
        module.fail_json(msg=f"nonce: got {arguments['nonce']!r}: give {2 * NONCE_OCTETS} hexadecimal digits")
    for item in (*arguments["ports"], *arguments["attempts"]):
        if not 0 <= item["port"] <= 65535 or not 0 <= item.get("target", 0) <= 65535:
            module.fail_json(msg=f"expected ports and targets from 0 to 65535, got {item!r}")
    if not 0 < arguments["number"] <= 65535:
        module.fail_json(msg=f"number: expected 1 to 65535, got {arguments['number']}")
    try:
        if arguments["step"] == "watch":
            found = watch(nonce, arguments["ports"], arguments["deadline_s"])
        elif arguments["step"] == "try":
            found = {"outcomes": send_all(nonce, arguments["number"], arguments["attempts"])}
        else:
            found = {"seen": collect_seen(nonce)}
    except OSError as error:
        module.fail_json(msg=f"step {arguments['step']}: {error}: connect as root, or set ansible_become: true")
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
