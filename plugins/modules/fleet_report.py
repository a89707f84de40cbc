#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_report
short_description: Write what a run found, changed and left out to one JSON file and one HTML page
version_added: 0.1.0
description:
  - Writes C(portcullis-report.json) for programs and C(portcullis-report.html) for people, on the controller.
  - The page needs no network and no script. It shows each problem and each distinct change once, with the nodes that
    share it. Texts that differ only in the node's own name count as the same.
  - Both files tell where a fleet is weak, so only their owner can read them (mode C(0600)).
  - The folder of the playbook and the user who ran it are not in the report. Values of keys named C(content),
    C(password) or C(token) are hidden; apart from that, diffs must come with their secrets masked.
author:
  - The Portcullis developers (@portcullis)
options:
  path:
    description:
      - Directory to write to. It is created with mode C(0700) when it does not exist.
      - A relative path begins at the directory that C(ansible-playbook) was started in.
      - Older reports in it are replaced, each file in one step.
    type: path
    default: ./reports
  run:
    description:
      - What was collected about the run. All keys are needed.
      - C(started) and C(ended) are ISO 8601 times; a time without a zone is UTC.
      - C(check_mode) is a boolean; C(engine) and C(playbook) are text; C(versions) is a dictionary of text.
      - C(phase) is what the run has just ended, V(preflight), V(change), V(cluster) or V(verify), or V(done).
      - C(nodes) has a dictionary for each inventory name. Its C(state) is one of V(changed), V(unchanged), V(failed),
        V(rolled_back), V(not_reached), V(unreachable) and V(would_change); of a run that only reads, V(looked_at),
        V(proven) and V(not_proven). C(groups), C(wave), C(reason) and C(facts)
        can be left out. Each fact becomes a column of the page with the fact's name above it.
      - C(findings) is a list of findings as RV(portcullis.fleet.node_requirements#module:findings) has them, each with
        C(waived) where it was accepted.
      - C(changes) is a list of dictionaries with C(node) (empty for the cluster), C(what) (the file or object) and
        C(diff) as Ansible's tasks return it.
      - C(stopped) is null, or a dictionary with C(phase), one of V(preflight), V(change), V(cluster) and V(verify), and
        C(reason).
    type: dict
    required: true
extends_documentation_fragment:
  - portcullis.fleet.attributes
attributes:
  check_mode:
    support: full
    details: The report is written in check mode too, and says that nothing was changed.
  diff_mode:
    support: none
    details: The report is new with every run.
  idempotent:
    support: full
    details: The files are written each time, but they are output, so that the task never reports a change.
"""

EXAMPLES = r"""
- name: Write the report
  portcullis.fleet.fleet_report:
    path: /var/lib/reports/fleet
    run:
      started: "{{ run_started }}"
      ended: "{{ now(utc=true).isoformat() }}"
      check_mode: "{{ ansible_check_mode }}"
      engine: native
      playbook: site.yml
      phase: preflight
      versions:
        ansible-core: "{{ ansible_version.full }}"
      nodes:
        worker-1:
          state: unchanged
          wave: 1
          facts:
            kernel: 6.1.0-28-amd64
        worker-2:
          state: unreachable
          reason: no route to host
      findings: "{{ requirements.findings }}"
      changes: []
      stopped:
        phase: preflight
        reason: worker-2 did not answer
  delegate_to: localhost
  run_once: true
  become: false
  register: report

- name: Say where it is
  ansible.builtin.debug:
    msg: "{{ report.summary }} Details: {{ report.html_path }}"
"""

RETURN = r"""
summary:
  description: The outcome in a sentence or two.
  returned: success
  type: str
  sample: "Stopped before any change by 2 blockers, on 9 nodes."
json_path:
  description:
    - Absolute path of the report for programs. Its keys are sorted; its layout is that of C(report_version) 1.
    - C(outcome) has C(status) (V(running), V(completed), V(completed_with_trouble) or V(stopped)), C(phase), C(wave),
      C(reason), C(sentence) and C(detail). A report that stays V(running) is of a run that was cut short.
    - C(run) has C(started), C(ended), C(duration_s), C(check_mode), C(engine), C(playbook) and C(versions).
    - C(counts) has C(total) and the number of nodes in each state.
    - C(findings) and C(waived) are lists of problems with C(id), C(severity), C(requirement), C(expected), C(remedy),
      C(node_count), C(waived), C(waived_by) and C(observed), a list of dictionaries with C(observed) and C(nodes).
      No nodes means the cluster or fleet as a whole.
    - C(unfinished) is a list of dictionaries with C(state), C(reason) and C(nodes).
    - C(changes) is a list of dictionaries with C(what), C(diff), C(added), C(removed) and C(nodes).
    - C(nodes) has, for each node, C(state), C(wave), C(groups), C(facts), C(reason) and C(findings), the number of its
      findings by severity.
  returned: success
  type: str
  sample: /var/lib/reports/fleet/portcullis-report.json
html_path:
  description: Absolute path of the report for people.
  returned: success
  type: str
  sample: /var/lib/reports/fleet/portcullis-report.html
"""
