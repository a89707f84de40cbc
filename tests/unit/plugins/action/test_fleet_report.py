# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The task that writes the report, run by ansible-playbook as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.plugins.plugin_utils.report_sample import blocked_run

CHECKOUT = Path(__file__).parents[4]


def play(directory, options, *arguments):
    """Run the task; return the process and the task's result."""
    task = {"portcullis.fleet.fleet_report": options, "register": "report"}
    show = {"ansible.builtin.copy": {"content": "{{ report | to_json }}", "dest": str(directory / "result")}}
    tasks = [{"name": "Report", **task}, {"name": "Keep the result", "check_mode": False, **show}]
    playbook = directory / "play.yml"
    playbook.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    environment = {
        "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / ".collections"),
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_NOCOLOR": "true",
        "HOME": str(directory),
        "LC_ALL": "C.UTF-8",
        "PATH": os.environ["PATH"],
    }
    command = [Path(sys.executable).with_name("ansible-playbook"), "-i", "localhost,", "-c", "local"]
    command += ["-e", f"ansible_python_interpreter={sys.executable}", *arguments]
    process = subprocess.run(
        [*command, playbook],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    result = directory / "result"
    return process, json.loads(result.read_text()) if result.exists() else None


@pytest.mark.parametrize("arguments", [(), ("--check",)], ids=["run", "check mode"])
def test_writes_both_files(tmp_path, arguments):
    """Both files are there for their owner only, in check mode too, and the task reports no change."""
    process, result = play(tmp_path, {"run": blocked_run(5)}, *arguments)

    assert process.returncode == 0, process.stdout + process.stderr
    directory = tmp_path / "reports"
    assert result["json_path"] == str(directory / "portcullis-report.json")
    assert result["html_path"] == str(directory / "portcullis-report.html")
    assert result["summary"].startswith("Stopped before any change by 1 blocker, in the cluster")
    assert result["changed"] is False
    assert {item.name: item.stat().st_mode & 0o777 for item in (directory, *directory.iterdir())} == {
        "reports": 0o700,
        "portcullis-report.json": 0o600,
        "portcullis-report.html": 0o600,
    }
    assert json.loads((directory / "portcullis-report.json").read_text())["counts"]["total"] == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"run": {}}, "No report was written: run.started is missing: give text or a time", id="run"),
        pytest.param({}, "missing required arguments: run", id="no run"),
        pytest.param({"run": {}, "dest": "x"}, "Unsupported parameters", id="unknown option"),
        pytest.param(
            {"run": blocked_run(4), "path": "play.yml"},
            "play.yml: File exists; give a path to a directory that you may write to",
            id="path is a file",
        ),
    ],
)
def test_bad_input_writes_nothing(tmp_path, options, message):
    """The task fails with one line that says what to give, and leaves no file."""
    process, result = play(tmp_path, options)

    assert process.returncode == 2
    assert message in process.stdout + process.stderr
    assert result is None
    assert not (tmp_path / "reports").exists()
