#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The work is done by plugins/action/fleet_inputs.py on the controller; this file is the documentation.

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_inputs
short_description: Refuse wrong variables and inventories before anything connects to anything
version_added: 0.1.0
description:
  - Checks every host of the groups C(control_plane), C(workers) and C(plain_hosts), whatever the run is limited to.
  - Refuses C(portcullis_*) variables that no role knows, naming the nearest that one does, values that the roles'
    argument_specs do not take, and values with which no run could succeed.
  - Refuses variables that differ between hosts although a run reads them once, a fleet without hosts, a host that is a
    node of the cluster and a plain host, and nodes of a cluster without C(portcullis_kubeconfig).
author:
  - The Portcullis developers (@portcullis)
extends_documentation_fragment:
  - portcullis.fleet.attributes
  - portcullis.fleet.attributes.read_only
"""

EXAMPLES = r"""
- name: Refuse wrong inputs
  portcullis.fleet.fleet_inputs:
  run_once: true
"""

RETURN = r"""
hosts:
  description: Every host of the fleet, whatever the run is limited to.
  returned: success
  type: list
  elements: str
  sample: [cp1, w1, w2]
waves:
  description: The sizes of the waves, as the C(serial) of a play takes them.
  returned: success
  type: list
  elements: raw
  sample: [1, "25%", "100%"]
sets:
  description: By role that changes something in the cluster, the fields that the variables have it set.
  returned: success
  type: dict
  sample: {kube_proxy: [mode]}
started:
  description: When the run began, in ISO 8601 and UTC.
  returned: success
  type: str
  sample: "2026-11-30T12:00:00+00:00"
"""
