# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role that reports, run by ansible-playbook over results that stand in the inventory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[4]
JUDGED = {"findings": [], "blockers": [], "changeable": ["w1", "w2"]}
RESULTS = {
    "__preflight_requirements": JUDGED,
    "__preflight_probe": {"probe": {}},
    "__report_state": {"waves": {"w1": 1, "w2": 2}},
    "__containerd_config": {"changed": True},
}


def report(directory: Path, **variables: str) -> tuple[str, dict | None]:
    """Run the role with these variables for two workers that were changed: (output, the report)."""
    hosts = {"w1": RESULTS, "w2": RESULTS}
    inventory = directory / "inventory.json"
    inventory.write_text(json.dumps({"all": {"children": {"workers": {"hosts": hosts}}}}), encoding="utf-8")
    role = {"ansible.builtin.include_role": {"name": "portcullis.fleet.report"}, "vars": variables, "run_once": True}
    playbook = directory / "play.yml"
    tasks = [{"name": "Report", **role}]
    playbook.write_text(json.dumps([{"hosts": "workers", "gather_facts": False, "tasks": tasks}]), encoding="utf-8")
    process = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", inventory, playbook],
        cwd=directory,
        env={
            "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / ".collections"),
            "ANSIBLE_NOCOLOR": "true",
            "HOME": str(directory),
            "LC_ALL": "C.UTF-8",
            "PATH": os.environ["PATH"],
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    path = directory / "reports" / "portcullis-report.json"
    return process.stdout, json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


@pytest.mark.parametrize(
    ("variables", "status", "sentence"),
    [
        pytest.param(
            {"report_phase": "cluster"},
            "running",
            "In progress when this was written: 2 of 2 nodes changed, the cluster's objects had been seen to.",
            id="running",
        ),
        pytest.param(
            {"report_phase": "cluster", "report_stopped_reason": "Bad_Name: refused"},
            "stopped",
            "Stopped at the cluster's objects, after the nodes.",
            id="stopped",
        ),
        pytest.param(
            {"report_phase": "verify", "report_stopped_reason": ""},
            "running",
            "In progress when this was written: 2 of 2 nodes changed, the proof had ended.",
            id="no reason",
        ),
    ],
)
def test_the_role_reports_where_the_run_is(tmp_path: Path, variables: dict, status: str, sentence: str):
    output, found = report(tmp_path, **variables)

    assert found is not None, output
    assert (found["outcome"]["status"], found["outcome"]["sentence"]) == (status, sentence)
    assert found["outcome"]["reason"] == variables.get("report_stopped_reason", "")


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        pytest.param(
            {"report_phase": "done", "report_stopped_reason": "x"},
            "a run that is done was not stopped; give the phase that it stopped in",
            id="done and stopped",
        ),
        pytest.param(
            {"report_phase": "lunch"}, "value of report_phase must be one of: preflight, fix, change", id="phase"
        ),
    ],
)
def test_wrong_words_write_nothing(tmp_path: Path, variables: dict, words: str):
    output, found = report(tmp_path, **variables)

    assert words in " ".join(output.split())
    assert found is None
