#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: containerd_write
short_description: The second trip of containerd_config to a node
version_added: 0.1.0
description:
  - Validates, writes and proves what M(portcullis.fleet.containerd_config) has planned. It is a module of its own so
    that a run without a change does not carry it to every node.
  - Not for use in a task.
author:
  - The Portcullis developers (@portcullis)
options:
  plan:
    description: JSON of what to write, with the node's whole configuration inside.
    type: str
    required: true
  validate:
    description: As in M(portcullis.fleet.containerd_config).
    type: str
    choices: [daemon, parse, none]
    required: true
extends_documentation_fragment:
  - portcullis.fleet.attributes
attributes:
  check_mode:
    support: full
    details: Validates; nothing is written.
  diff_mode:
    support: none
    details: M(portcullis.fleet.containerd_config) makes the diff.
  idempotent:
    support: full
"""

EXAMPLES = r"""
# There is none: use portcullis.fleet.containerd_config.
"""

RETURN = r"""
validated:
  description: What M(portcullis.fleet.containerd_config) returns under this name.
  returned: success
  type: str
restarted:
  description: What M(portcullis.fleet.containerd_config) returns under this name.
  returned: success, outside check mode
  type: bool
"""

import json

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.containerd_apply import ApplyError, apply
from ..module_utils.containerd_validate import validate_plan
from ..module_utils.journal import Journal, JournalError
from ..module_utils.places import complain_places

ARGUMENT_SPEC = {
    # One string, because Ansible hides every string inside a secret dict, paths and unit names included.
    "plan": {"type": "str", "required": True, "no_log": True},
    "validate": {"type": "str", "choices": ["daemon", "parse", "none"], "required": True},
}


def change(plan, mode, check_mode):
    """Find out whether it can be written, validate it, and write it unless in check mode."""
    Journal().check()
    directory = None if plan["note"]["undo"] else plan["note"]["config_path"]
    if reason := complain_places([item["path"] for item in plan["writes"]], directory):
        raise ApplyError(f"{reason}; nothing was changed", changed=False)
    validated = validate_plan(plan, mode)
    return {**validated, "changed": True} if check_mode else {**validated, **apply(plan)}


def main():
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        plan = json.loads(module.params["plan"])
        module.exit_json(**change(plan, module.params["validate"], module.check_mode))
    except ApplyError as error:
        module.fail_json(msg=str(error), **error.result)
    except (JournalError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
