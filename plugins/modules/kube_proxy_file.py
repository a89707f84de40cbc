#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kube_proxy_file
short_description: What kube_proxy_config does on a node that keeps kube-proxy's flags in files
version_added: 0.1.0
description:
  - Reads C(config.yaml) of k3s or RKE2 with its drop-ins, or MicroK8s' argument file, writes them with the node's
    journal, restarts the service, and puts the files back when the new mode does not come.
  - Not for use in a task.
author:
  - The Portcullis developers (@portcullis)
options:
  step:
    description:
      - V(read) returns the files, V(write) changes them, V(undo) gives back what was there before.
      - V(recover) proves or puts back what a run that was killed has left.
    type: str
    choices: [read, write, undo, recover]
    required: true
  path:
    description: The file that the service reads.
    type: path
    required: true
  plan:
    description: JSON of what to write, with whole files inside. Required by O(step=write).
    type: str
  timeout_s:
    description: Seconds for the service to be active again.
    type: int
    default: 120
extends_documentation_fragment:
  - portcullis.fleet.attributes
attributes:
  check_mode:
    support: full
    details: Nothing is written.
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
files:
  description: Path, content in base64 and sha256 of each file, in the order in which they are read.
  returned: O(step=read)
  type: list
  elements: dict
unit:
  description: The service that reads them, empty when none is active.
  returned: O(step=read)
  type: str
command_line:
  description: Flags of kube-proxy on the command line of that service.
  returned: O(step=read)
  type: list
  elements: str
other_file:
  description: The file that the service is told to read instead, empty when it is this one.
  returned: O(step=read)
  type: str
unfinished:
  description: Whether a run was killed here, so that V(recover) has something to do.
  returned: O(step=read)
  type: bool
removed:
  description: What the former mode had left, and is gone.
  returned: O(step=write) and O(step=undo)
  type: list
  elements: str
left:
  description: What it has left and stays, each with the reason.
  returned: O(step=write) and O(step=undo)
  type: list
  elements: str
"""

import json

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import kube_proxy_file
from ..module_utils.journal import JournalError

ARGUMENT_SPEC = {
    "step": {"type": "str", "choices": ["read", "write", "undo", "recover"], "required": True},
    "path": {"type": "path", "required": True},
    # One string, because Ansible hides every string inside a secret dict.
    "plan": {"type": "str", "no_log": True},
    "timeout_s": {"type": "int", "default": 120},
}


def main():
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC, required_if=[("step", "write", ["plan"])], supports_check_mode=True
    )
    step, path = module.params["step"], module.params["path"]
    if path not in kube_proxy_file.UNITS:
        module.fail_json(msg=f"path: got {path}: expected one of {', '.join(kube_proxy_file.UNITS)}")
    try:
        if step == "read":
            module.exit_json(changed=False, **kube_proxy_file.read(path))
        if step == "undo":
            module.exit_json(**kube_proxy_file.undo(module.params["timeout_s"], module.check_mode))
        if step == "recover":
            left = kube_proxy_file.read(path)["unfinished"]
            module.exit_json(changed=left if module.check_mode else kube_proxy_file.recover())
        unit = kube_proxy_file.active_unit(path)
        if not unit:
            module.fail_json(msg=f"none of {', '.join(kube_proxy_file.UNITS[path])} is active: start it first")
        plan = json.loads(module.params["plan"])
        if module.check_mode:
            module.exit_json(changed=True, removed=[], left=[])
        module.exit_json(changed=True, **kube_proxy_file.write(plan["writes"], unit, plan["proof"]))
    except (kube_proxy_file.FileError, JournalError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
