# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.host import parse_units
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_gate import judge_restart
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_units import judge_load, restart_cautions

# systemd 252: systemctl show of a unit with two commands before the start, one of them with a -.
SHOWN = """Restart=always
ExecStartPre={ path=/sbin/modprobe ; argv[]=/sbin/modprobe overlay ; ignore_errors=yes ; start_time=[n/a] ; pid=0 }
ExecStartPre={ path=/bin/mkdir ; argv[]=/bin/mkdir -p /run/x ; ignore_errors=no ; start_time=[n/a] ; pid=0 }
Id=a.service
NeedDaemonReload=no
"""


@pytest.mark.parametrize(
    ("unit", "unusable"),
    [
        pytest.param({"LoadState": "loaded", "ActiveState": "active"}, False, id="loaded"),
        pytest.param({"LoadState": "bad-setting", "FragmentPath": "/etc/a.service"}, True, id="no-ExecStart"),
        pytest.param({"LoadState": "error", "ActiveState": "active"}, True, id="error"),
        pytest.param({"LoadState": "masked"}, True, id="masked"),
        pytest.param({"LoadState": "not-found", "ActiveState": "active"}, True, id="removed-while-it-runs"),
        pytest.param({"LoadState": "not-found", "ActiveState": "inactive"}, False, id="never-there"),
        pytest.param({}, False, id="no-unit"),
    ],
)
def test_a_unit_that_systemd_could_not_start_again(unit, unusable):
    """A daemon keeps running when its file is no unit any more, and a restart would end it."""
    assert bool(judge_load("a.service", unit)) == unusable


def test_it_is_a_finding_of_its_own():
    """It says where the file is and what tells the mistake."""
    unit = {"LoadState": "bad-setting", "ActiveState": "active", "MainPID": "7", "FragmentPath": "/etc/a.service"}

    found = judge_restart({"unit_name": "a.service", "unit": unit, "dependents": []})

    assert [item["id"] for item in found] == ["containerd.unit_unreadable"]
    assert "/etc/a.service as a unit: LoadState=bad-setting" in found[0]["observed"]
    assert "systemd-analyze verify /etc/a.service" in found[0]["remedy"]


def test_restart_cautions():
    """No Restart, a command that must succeed, and files that systemd has not read."""
    unit = parse_units(SHOWN)["a.service"]

    assert list(restart_cautions("a.service", unit)) == [
        "a.service does not start where its ExecStartPre=/bin/mkdir -p /run/x fails, since it has no - before it"
    ]
    assert [line.split(":")[0] for line in restart_cautions("a", {"Restart": "no", "NeedDaemonReload": "yes"})] == [
        "a has Restart=no",
        "the files of a were changed since systemd read them",
    ]
    assert list(restart_cautions("a", {})) == []
