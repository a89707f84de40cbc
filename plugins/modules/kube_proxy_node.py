#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kube_proxy_node
short_description: What kube_proxy_config does on a node
version_added: 0.1.0
description:
  - Reads kube-proxy's live mode, watches a Service while it changes, waits until the kernel has the new mode's rules,
    and removes what the former mode has left.
  - Removed are chains of C(iptables) in either backend, the tables C(kube-proxy) of nftables, the link C(kube-ipvs0)
    with its virtual servers, and kube-proxy's sets. Rules of kubelet, of other software and of people stay, and so does
    a chain that a rule of theirs leads into.
  - Not for use in a task.
author:
  - The Portcullis developers (@portcullis)
options:
  step:
    description:
      - V(read) says the live mode, and whether the Service answers.
      - V(watch) leaves a process behind that connects to the Service twenty times a second, for at most O(duration_s).
      - V(clear) deletes the tables C(kube-proxy) of nftables while no kube-proxy runs. Kubernetes 1.34 with nft 1.0.6
        and Linux 6.18 leaves its maps empty when it finds elements of a former process at its start.
      - V(settle) waits until O(mode) is live, its rules are in the kernel and the Service answers, then removes what is
        left over.
      - V(collect) ends the process and says what it saw.
    type: str
    choices: [read, watch, clear, settle, collect]
    required: true
  address:
    description: The IP address of the Service.
    type: str
    required: true
  port:
    description: The TCP port of the Service.
    type: int
    required: true
  metrics_address:
    description: Where kube-proxy tells its mode, as C(IP:port). An unspecified IP is asked on loopback.
    type: str
    default: 127.0.0.1:10249
  mode:
    description: The mode that shall be live. Required by O(step=settle).
    type: str
    choices: [iptables, ipvs, nftables]
  timeout_s:
    description: Seconds for which O(step=settle) waits.
    type: int
    default: 60
  duration_s:
    description: Seconds after which the process ends by itself.
    type: int
    default: 600
extends_documentation_fragment:
  - portcullis.fleet.attributes
attributes:
  check_mode:
    support: full
    details: Says what would be removed.
  diff_mode:
    support: none
    details: M(portcullis.fleet.kube_proxy_config) makes the diff.
  idempotent:
    support: full
"""

EXAMPLES = r"""
# There is none: use portcullis.fleet.kube_proxy_config.
"""

RETURN = r"""
proxy_mode:
  description: The mode in kube-proxy's own word, empty where none answers.
  returned: O(step=read), O(step=settle)
  type: str
  sample: nftables
answers:
  description: Whether the Service answers from this node.
  returned: O(step=read), O(step=settle)
  type: bool
in_kernel:
  description: Whether the kernel has the rules of O(mode) for the Service.
  returned: O(step=settle)
  type: bool
removed:
  description: What was left over and is gone.
  returned: O(step=clear), O(step=settle)
  type: list
  elements: str
  sample: [iptables-nft ip nat KUBE-SERVICES]
left:
  description: What is left over and stays, each with the reason.
  returned: O(step=clear), O(step=settle)
  type: list
  elements: str
service:
  description:
    - What the connections came to, C(attempts), C(failures), C(longest_gap_s), and C(first_failure_s) and
      C(last_failure_s) since the start, in seconds.
    - Null where no process was there to be asked.
  returned: O(step=collect)
  type: dict
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import kube_proxy_leftovers, kube_proxy_live, service_watch

ARGUMENT_SPEC = {
    "step": {"type": "str", "choices": ["read", "watch", "clear", "settle", "collect"], "required": True},
    "address": {"type": "str", "required": True},
    "port": {"type": "int", "required": True},
    "metrics_address": {"type": "str", "default": "127.0.0.1:10249"},
    "mode": {"type": "str", "choices": list(kube_proxy_live.MODES)},
    "timeout_s": {"type": "int", "default": 60},
    "duration_s": {"type": "int", "default": 600},
}


def settle(arguments, check_mode):
    """Wait for the mode, then clean up behind the former one; nothing is removed where the mode does not come."""
    service = arguments["address"], arguments["port"]
    metrics = arguments["metrics_address"]
    mode, in_kernel, answers = kube_proxy_live.wait_for_mode(
        arguments["mode"], metrics, service, arguments["timeout_s"]
    )
    removed, left = [], []
    if in_kernel:
        removed, left = kube_proxy_leftovers.clean(mode, check_mode)
        # What was removed must have been left over.
        answers = answers and (service_watch.answers(*service) or service_watch.answers(*service))
    return {"proxy_mode": mode, "in_kernel": in_kernel, "answers": answers, "removed": removed, "left": left}


def main():
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC, required_if=[("step", "settle", ["mode"])], supports_check_mode=True
    )
    arguments = module.params
    service = arguments["address"], arguments["port"]
    found = {}
    if os.geteuid() != 0 and arguments["step"] in ("clear", "settle"):
        module.fail_json(msg=f"step {arguments['step']}: not root: connect as root, or set ansible_become: true")
    try:
        if arguments["step"] == "read":
            mode = kube_proxy_live.proxy_mode(arguments["metrics_address"])
            found = {"proxy_mode": mode, "answers": service_watch.answers(*service)}
        elif arguments["step"] == "watch":
            service_watch.start(*service, arguments["duration_s"])
        elif arguments["step"] == "clear":
            found = dict(zip(("removed", "left"), kube_proxy_leftovers.clean_nft(module.check_mode)))
        elif arguments["step"] == "settle":
            found = settle(arguments, module.check_mode)
        else:
            found = {"service": service_watch.collect(*service)}
    except ValueError as error:
        module.fail_json(msg=f"metrics_address: {arguments['metrics_address']!r}: give IP:port ({error})")
    except OSError as error:
        module.fail_json(msg=f"step {arguments['step']}: {error}: connect as root, or set ansible_become: true")
    module.exit_json(changed=bool(found.get("removed")), **found)


if __name__ == "__main__":
    main()
