#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: felix_node
short_description: What felix_config reads on a node
version_added: 0.1.0
description:
  - Reads C(/etc/calico/felix.cfg), Felix's answer to its readiness check, how long it has run, and the packet filters.
  - Nothing is changed. Not for use in a task.
author:
  - The Portcullis developers (@portcullis)
options:
  health:
    description: Where Felix answers health checks, as C(host:port). Empty where it does not.
    type: str
    default: localhost:9099
extends_documentation_fragment:
  - portcullis.fleet.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: Nothing is changed.
  idempotent:
    support: full
"""

EXAMPLES = r"""
# There is none: use portcullis.fleet.felix_config.
"""

RETURN = r"""
file:
  description: The text of C(felix.cfg), null where there is none.
  returned: always
  type: str
file_path:
  description: Where it was looked for.
  returned: always
  type: str
readiness:
  description: The HTTP status of the readiness check, 0 without an answer, and why there was none.
  returned: always
  type: dict
  sample:
    status: 200
    error: ""
ages_s:
  description: For how many seconds each process of Felix has run.
  returned: always
  type: list
  elements: float
packet_filters:
  description: The packet filters, as C(packet_filter_rules) of M(portcullis.fleet.node_probe).
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.felix_read import read_felix


def main():
    module = AnsibleModule(
        argument_spec={"health": {"type": "str", "default": "localhost:9099"}}, supports_check_mode=True
    )
    module.exit_json(changed=False, **read_felix(module.params["health"]))


if __name__ == "__main__":
    main()
