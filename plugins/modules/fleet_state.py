#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The work is done by plugins/action/fleet_state.py on the controller; this file is the documentation.

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_state
short_description: Sum up what a run has come to
version_added: 0.1.0
description:
  - Reads the results that the tasks of C(playbooks/site.yml) registered, and returns them as the input of
    M(portcullis.fleet.fleet_report), together with whether the run has to stop.
  - Of use only within the playbooks of this collection.
author:
  - The Portcullis developers (@portcullis)
options:
  engine:
    description: The enforcement engine of the run.
    type: str
    default: native
  phase:
    description:
      - Where the run is. In V(fix) and V(change) the hosts of the play's batch are a wave.
      - V(done) when nothing is left to do. In any other phase, a run that does not have to stop is reported as running,
        so that one that is killed later does not leave a report of its success.
    type: str
    choices: [preflight, fix, change, cluster, verify, done]
    required: true
  stopped_reason:
    description:
      - Why the run stops in O(phase), where the registered results do not tell, as in a rescue section.
      - Empty when it does not stop. Not together with O(phase=done).
    type: str
    default: ""
extends_documentation_fragment:
  - portcullis.fleet.attributes
  - portcullis.fleet.attributes.read_only
"""

EXAMPLES = r"""
- name: Sum up the run
  portcullis.fleet.fleet_state:
    phase: change
  run_once: true
  register: state

- name: Sum up the run, which stops at the cluster's objects
  portcullis.fleet.fleet_state:
    phase: cluster
    stopped_reason: "{{ ansible_failed_result.msg }}"
  run_once: true
  register: state
"""

RETURN = r"""
run:
  description: What the run has come to, as the option O(portcullis.fleet.fleet_report#module:run) takes it.
  returned: success
  type: dict
  sample: {"check_mode": false, "phase": "change", "nodes": {"w1": {"state": "changed", "wave": 1}}}
stopped:
  description: The phase in which the run has to stop, and why. Null while all is well.
  returned: success
  type: dict
  sample: {"phase": "change", "reason": "w1: CRI did not come up"}
waves:
  description: The number of each node's wave, from 1, as far as the run has come.
  returned: success
  type: dict
  sample: {"cp1": 1, "w1": 2}
"""
