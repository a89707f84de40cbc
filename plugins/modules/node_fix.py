#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_fix
short_description: Mend those findings of a node that can be mended, and take it back
version_added: 0.1.0
description:
  - Takes the findings of M(portcullis.fleet.node_requirements) and mends those of this node that it knows. Others, and
    waived ones, are left alone.
  - Packet-filter managers (firewalld, ufw, nftables.service and others) are stopped and disabled. Some flush the rules
    of others when they stop. The module waits until those of kube-proxy and Felix are there again, and stops the
    container of whoever does not put them back, so that kubelet starts it again.
  - NetworkManager leaves Calico's interfaces alone, by C(/etc/NetworkManager/conf.d/calico.conf).
  - Kernel modules are loaded, now and at boot, by C(/etc/modules-load.d/portcullis.conf). A module that C(modprobe.d)
    bars is left alone.
  - Kernel parameters are set, now and at boot, by C(/etc/sysctl.d/99-zz-portcullis.conf).
  - What a change replaces is in the node's journal before anything is changed. Where a step fails, everything is put
    back. A run that was killed is completed by the next one.
options:
  findings:
    description:
      - Findings of M(portcullis.fleet.node_requirements). Those of other nodes are ignored.
      - Required with O(state=present).
    type: list
    elements: dict
  state:
    description:
      - V(present) mends.
      - V(absent) takes back every change that this module has made on the node. Files get their previous bytes, units
        their state, kernel parameters their values. Modules that it loaded and nobody uses are unloaded. What somebody
        else changed since is left, and named in RV(left).
    type: str
    choices: [present, absent]
    default: present
  _wishes:
    description: What the half of the module that runs on the controller made of the findings. Not for use in a task.
    type: list
    elements: dict
    default: []
extends_documentation_fragment:
  - portcullis.fleet.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
    details: For as long as the findings are those of the node as it is.
seealso:
  - module: portcullis.fleet.node_requirements
author:
  - The Portcullis developers (@portcullis)
"""

EXAMPLES = r"""
- name: Judge what was read
  portcullis.fleet.node_requirements:
    probes: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'probe'))) }}"
  register: judged
  run_once: true

- name: Mend what can be mended
  portcullis.fleet.node_fix:
    findings: "{{ judged.findings }}"
  become: true

- name: Take all of it back
  portcullis.fleet.node_fix:
    state: absent
  become: true
"""

RETURN = r"""
fixes:
  description: What was mended, or would be in check mode.
  returned: always
  type: list
  elements: dict
  contains:
    finding:
      description: The finding's id.
      type: str
      sample: packet_filter.other_manager
    changes:
      description: What was done for it, in words.
      type: list
      elements: str
      sample: [firewalld.service is stopped and disabled]
refused:
  description: What cannot be mended on this node.
  returned: always
  type: list
  elements: dict
  contains:
    finding:
      description: The finding's id.
      type: str
      sample: kernel.ipip
    reason:
      description: Why, and what helps.
      type: str
      sample: "/lib/modules/6.1.0-31-amd64/modules.dep is not there or empty: this node loads no modules."
left:
  description: What could not be put back, since somebody else changed or uses it.
  returned: always
  type: list
  elements: dict
  contains:
    what:
      description: A path, a unit, a kernel parameter or a module.
      type: str
      sample: ipip
    reason:
      description: Why.
      type: str
      sample: "in use, so still loaded: ipip"
restarted:
  description: Containers that were stopped, so that kubelet starts them again and they write their rules again.
  returned: always
  type: list
  elements: str
  sample: [kube-proxy]
recovered:
  description: What was done about a run that was killed. Empty when there was none.
  returned: always
  type: str
  sample: the change of the killed run 0000000003-node_fix-begun.json was completed
rolled_back:
  description: Whether a step failed and everything was put back.
  returned: failure
  type: bool
  sample: true
backup:
  description: The journal entry of the change. Empty where there is none.
  returned: always
  type: str
  sample: /var/lib/portcullis/journal/0000000003-node_fix-committed.json
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.journal import JournalError
from ..module_utils.node_fix import FixError, give_back, mend, new_result

ARGUMENT_SPEC = {
    "findings": {"type": "list", "elements": "dict"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    # Given by the action plugin only: what it made of the findings.
    "_wishes": {"type": "list", "elements": "dict", "default": []},
}


def main():
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC, required_if=[("state", "present", ["findings"])], supports_check_mode=True
    )
    try:
        if module.params["state"] == "absent":
            result = give_back(module.check_mode)
        else:
            result = mend(module.params["_wishes"], module.check_mode)
    except FixError as error:
        module.fail_json(msg=str(error), **error.result)
    except (JournalError, OSError) as error:
        module.fail_json(msg=str(error), **new_result())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
