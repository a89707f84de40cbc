# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_effective import parse_version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_gate import (
    check_accepted,
    judge_change,
    judge_restart,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_owners import Owner

from tests.unit.plugins.plugin_utils.containerd_facts import facts

DAEMON = parse_version("1.6.20")
NOBODY = Owner("administrator")


def ids(found):
    return [item["id"] for item in found]


def test_a_sound_node_may_change():
    """A running unit that spares the shims, with CRI serving, has no finding."""
    assert judge_change(facts(), DAEMON, NOBODY, True) == []


@pytest.mark.parametrize(
    ("changes", "finding", "observed"),
    [
        pytest.param({"KillMode": "control-group"}, "containerd.kill_mode", "KillMode=control-group", id="default"),
        pytest.param({"KillMode": "mixed"}, "containerd.kill_mode", "KillMode=mixed", id="mixed"),
        pytest.param(
            {"ActiveState": "inactive", "MainPID": "0"}, "containerd.unit_not_active", "is inactive", id="stopped"
        ),
    ],
)
def test_units_that_may_not_restart(changes, finding, observed):
    """A restart that would kill pods, or of something that does not run, is refused before anything is touched."""
    found = judge_change(facts(unit=changes), DAEMON, NOBODY, True)

    assert ids(found) == [finding]
    assert observed in found[0]["observed"]
    assert judge_change(facts(unit=changes), DAEMON, NOBODY, False) == []


def test_a_daemon_of_no_unit():
    """Where the daemon was started by hand, nothing could restart it."""
    found = judge_change({**facts(), "unit": {}}, DAEMON, NOBODY, True)

    assert "containerd.service is not the unit of the containerd that runs" in found[0]["observed"]


@pytest.mark.parametrize(
    ("dependents", "refused"),
    [
        pytest.param(["kubelet.service"], [], id="kubelet-takes-its-pods-over"),
        pytest.param(["docker.service", "kubelet.service"], ["containerd.restarts_others"], id="docker"),
    ],
)
def test_units_that_restart_too(dependents, refused):
    """Active units that systemd restarts together with containerd are named, kubelet excepted."""
    assert ids(judge_change({**facts(), "dependents": dependents}, DAEMON, NOBODY, True)) == refused


def test_what_a_restart_may_take_with_it():
    """The user names pods and units; what is not named is still refused."""
    node = {**facts(unit={"KillMode": "mixed"}), "dependents": ["a.service", "b.service"]}

    assert ids(judge_restart(node, ["pods"])) == ["containerd.restarts_others"]
    (found,) = judge_restart(node, ["pods", "a.service"])
    assert found["observed"].startswith("b.service would")
    assert judge_restart(node, ["pods", "a.service", "b.service"]) == []


@pytest.mark.parametrize(
    ("names", "reason"),
    [(["pods", "docker.service"], ""), ([], ""), (["docker"], "got 'docker'"), (["Pods"], "got 'Pods'")],
)
def test_names_that_can_be_meant(names, reason):
    """A unit has its full name, as systemctl prints it."""
    assert check_accepted(names) == reason or (reason and reason in check_accepted(names))


def test_a_dead_cri_may_be_repaired_where_the_daemon_tries_the_files():
    """The sandbox proves the repair; without it a change would be a guess."""
    dead = facts(cri={"serving": False, "error": "UNIMPLEMENTED: unknown service"})

    assert judge_change(dead, DAEMON, NOBODY, True, will_be_tried=True) == []
    assert ids(judge_change(dead, DAEMON, NOBODY, True)) == ["containerd.cri_not_serving"]


def test_dead_cri_and_owner_and_relative_globs():
    """Every reason is reported at once."""
    node = facts(cri={"serving": False, "error": "UNIMPLEMENTED: unknown service"})

    node["relative_globs"] = ["/f: conf.d/*"]
    k3s = Owner("k3s", "path", "use registries.yaml")

    found = judge_change(node, DAEMON, k3s, True)

    assert ids(found) == ["containerd.config_owned", "containerd.cri_not_serving", "containerd.import_relative"]
    assert found[0]["remedy"] == "use registries.yaml"
    assert ids(judge_change(node, parse_version("1.7.24"), k3s, True)) == ids(found)[:2]
