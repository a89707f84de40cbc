# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node is mended as predicted, put back where a step fails, finished after a kill, and given back to the byte."""

from __future__ import annotations

import errno
import itertools
import re

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils import journal, node_fix, node_fix_rules, node_fix_steps
from ansible_collections.portcullis.fleet.plugins.module_utils.journal import Journal
from ansible_collections.portcullis.fleet.plugins.module_utils.node_fix import FixError, give_back, mend
from ansible_collections.portcullis.fleet.plugins.module_utils.node_fix_texts import UNMANAGED

from .fixable_node import PARAMETER, FixableNode

MANAGERS = {"finding": "packet_filter.other_manager", "fix": "managers"}
SYSCTLS = {"finding": "kernel.rp_filter", "fix": "sysctls", "sysctls": {PARAMETER: "1"}}
UNMANAGE = {"finding": "node.network_manager", "fix": "unmanaged"}
IPIP = {"finding": "kernel.ipip", "fix": "modules", "modules": [["ipip"]]}
ALL = [MANAGERS, SYSCTLS, UNMANAGE, IPIP]
NOTHING = {"changed": False, "fixes": [], "refused": [], "left": [], "restarted": [], "recovered": "", "backup": ""}


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node with firewalld, ufw and NetworkManager at work, and loose reverse path filtering."""
    found = FixableNode(tmp_path, monkeypatch)
    prepare(found)
    return found


def prepare(node: FixableNode) -> None:
    for name in ("firewalld.service", "ufw.service", "NetworkManager.service"):
        node.add_unit(name)
    (node.root / "etc/ufw/ufw.conf").write_text("# /etc/ufw/ufw.conf\nENABLED=yes\nLOGLEVEL=low\n")


def test_a_node_is_mended_and_a_second_run_changes_nothing(node):
    """What is active is off now and at boot; files hold what is wanted, and the running system has it."""
    result = mend(ALL, False, node.journal)

    units = node.load()["units"]
    assert result["changed"]
    assert [item["finding"] for item in result["fixes"]] == [wish["finding"] for wish in ALL]
    assert result["refused"] == []
    assert (units["firewalld.service"]["ActiveState"], units["firewalld.service"]["UnitFileState"]) == (
        "inactive",
        "disabled",
    )
    assert (units["ufw.service"]["ActiveState"], units["ufw.service"]["UnitFileState"]) == ("inactive", "enabled")
    found = node.fingerprint()
    assert "ENABLED=no\nLOGLEVEL=low" in found["etc/ufw/ufw.conf"]
    assert f"[keyfile]\nunmanaged-devices={';'.join(UNMANAGED)}\n" in found["etc/NetworkManager/conf.d/calico.conf"]
    assert found["etc/modules-load.d/portcullis.conf"].splitlines()[1:] == ["ipip"]
    assert f"{PARAMETER} = 1\n" in found["etc/sysctl.d/99-zz-portcullis.conf"]
    assert found[f"proc/{PARAMETER}"] == "1\n"
    assert "ipip" in node.load()["modules"]
    assert node.calls.index("systemctl stop ufw.service") < node.calls.index("systemctl reload NetworkManager.service")

    again = mend([MANAGERS, SYSCTLS, IPIP], False, node.journal)

    assert not again["changed"]
    assert node.fingerprint() == found
    assert len(node.journal.history()) == 1


def test_check_mode_predicts_and_writes_nothing(node):
    before = node.fingerprint()
    predicted = mend(ALL, True, node.journal)

    assert node.fingerprint() == before
    assert not (node.root / "journal").exists()
    done = mend(ALL, False, node.journal)
    assert (predicted["diff"], predicted["fixes"]) == (done["diff"], done["fixes"])
    live = predicted["diff"][-1]
    assert "firewalld.service: active, enabled" in live["before"]
    assert "firewalld.service: inactive, disabled" in live["after"]


def test_everything_is_given_back_to_the_byte_as_check_mode_says(node):
    before = node.fingerprint()
    mend([MANAGERS], False, node.journal)
    mend([SYSCTLS, UNMANAGE, IPIP], False, node.journal)
    mended = node.fingerprint()
    predicted = give_back(True, node.journal)
    assert node.fingerprint() == mended

    result = give_back(False, node.journal)

    assert result["changed"] and result["left"] == []
    assert predicted["diff"] == result["diff"] != []
    assert node.fingerprint() == before
    assert not (node.root / "etc/modules-load.d").exists()
    assert give_back(False, node.journal) == {**NOTHING, "diff": []}


def test_modules_that_need_the_same_ones_leave_none_of_them(node):
    """The one that is unloaded first finds what both need in use, which is nobody else's use."""
    before = node.fingerprint()
    wish = {**IPIP, "modules": [["ipip"], ["tunnel_user"], ["ip_tunnel"]]}
    result = mend([IPIP, wish], False, node.journal)
    assert result["fixes"][1]["changes"][:3] == ["ipip is loaded", "tunnel_user is loaded", "ip_tunnel is loaded"]

    assert give_back(False, node.journal)["left"] == []
    assert node.fingerprint() == before


def test_what_somebody_changed_since_is_left_and_named(node):
    mend([SYSCTLS, IPIP], False, node.journal)
    path = node.root / "etc/sysctl.d/99-zz-portcullis.conf"
    path.write_text("vm.swappiness = 1\n")
    (node.root / "proc" / PARAMETER).write_text("0\n")
    state = node.load()
    state["modules"]["ipip"] = 3
    node.save(state)

    result = give_back(False, node.journal)

    reasons = {item["what"]: item["reason"] for item in result["left"]}
    assert reasons[PARAMETER] == f"{PARAMETER} is 0: somebody else changed it since"
    assert "ipip" in reasons["ipip"]
    assert "somebody else changed it" in reasons[str(path)]
    assert path.read_text() == "vm.swappiness = 1\n"
    assert (node.root / "proc" / PARAMETER).read_text() == "0\n"


@pytest.mark.parametrize(
    "broken",
    [
        "systemctl stop firewalld.service",
        "systemctl disable firewalld.service",
        "systemctl reload NetworkManager.service",
        "modprobe ipip",
    ],
)
def test_where_a_step_fails_everything_is_put_back(node, broken):
    before = node.fingerprint()
    node.broken.add(broken)

    with pytest.raises(FixError) as caught:
        mend(ALL, False, node.journal)

    assert f"{broken}: refused" in str(caught.value)
    assert caught.value.result["rolled_back"] and not caught.value.result["changed"]
    assert node.fingerprint() == before
    assert [entry.state for entry in node.journal.history()] == ["rolled_back"]


def test_what_cannot_be_put_back_keeps_nothing_else_from_it(node, monkeypatch):
    """A disk that is full holds neither the new file nor the old one."""
    path = node.root / "etc/ufw/ufw.conf"
    path.chmod(0o600)

    def full(*_arguments):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    node.broken.add("systemctl reload NetworkManager.service")
    with monkeypatch.context() as patch:
        patch.setattr(node_fix, "restore", full)
        patch.setattr(journal, "restore", full)
        with pytest.raises(FixError, match=r"reload.*refused; and not all of it could be put back.*No space") as caught:
            mend([MANAGERS, UNMANAGE], False, node.journal)

    assert caught.value.result["changed"] and "rolled_back" not in caught.value.result
    assert node.load()["units"]["firewalld.service"]["ActiveState"] == "active"
    assert [entry.state for entry in node.journal.history()] == ["applied"]
    give_back(False, node.journal)
    assert "ENABLED=yes" in path.read_text()


def test_a_unit_that_a_killed_run_left_stopping_is_waited_for(node):
    node.add_unit("nftables.service", ActiveState="deactivating")

    node_fix_steps.take({"kind": "unit", "name": "nftables.service", "enabled": "", "links": {}})

    assert "systemctl stop nftables.service" in node.calls


def test_a_unit_that_somebody_masked_stays_so(node):
    mend([MANAGERS], False, node.journal)
    state = node.load()
    state["units"]["firewalld.service"]["LoadState"] = "masked"
    node.save(state)

    (left,) = give_back(False, node.journal)["left"]

    assert left == {"what": "firewalld.service", "reason": "firewalld.service is masked: somebody masked it since"}


# What changes the node or the journal; a write itself is one step (test_files.py).
EFFECTS = (
    (node_fix, ("replace", "restore", "take", "untake", "remove_directories")),
    (Journal, ("begin", "applied", "commit", "roll_back")),
)


def killed_at_each_effect(tmp_path, node, prepared, change):
    """Yield for each effect, before and after it, after a change that ended there as by a kill; last one where it did
    not end."""
    for step in itertools.count():
        node.use(tmp_path / f"step{step}")
        prepared()
        effects, was_killed = itertools.count(), False
        with node.monkeypatch.context() as patch:
            for owner, names in EFFECTS:
                for name in names:
                    patch.setattr(owner, name, dying(getattr(owner, name), effects, step))
            try:
                change()
            except KeyboardInterrupt:
                was_killed = True
        yield step
        if not was_killed:
            return


def dying(function, effects, step):
    def run(*args, **kwargs):
        if next(effects) == step:
            raise KeyboardInterrupt
        result = function(*args, **kwargs)
        if next(effects) == step:
            raise KeyboardInterrupt
        return result

    return run


def test_a_run_killed_at_any_step_is_completed_by_the_next(tmp_path, node):
    """The findings of the next run may be gone already: what was begun is finished all the same."""
    mend(ALL, False, node.journal)
    wanted, outcomes = node.fingerprint(), set()

    for step in killed_at_each_effect(tmp_path, node, lambda: prepare(node), lambda: mend(ALL, False, node.journal)):
        begun = bool(node.journal.unfinished("node_fix"))
        result = mend([], False, node.journal)
        assert bool(result["recovered"]) == begun
        mend([MANAGERS, SYSCTLS, IPIP], False, node.journal) if begun else mend(ALL, False, node.journal)

        assert node.fingerprint() == wanted, step
        outcomes.add(begun)
    assert outcomes == {True, False}


def test_a_reversal_killed_at_any_step_is_completed_by_the_next(tmp_path, node):
    wanted = node.fingerprint()

    def mended():
        prepare(node)
        mend([MANAGERS, UNMANAGE], False, node.journal)
        mend([SYSCTLS, IPIP], False, node.journal)

    for step in killed_at_each_effect(tmp_path, node, mended, lambda: give_back(False, node.journal)):
        give_back(False, node.journal)

        assert node.fingerprint() == wanted, step
        assert {entry.state for entry in node.journal.history()} == {"rolled_back"}


def test_a_killed_run_is_taken_back_by_a_reversal(node, monkeypatch):
    """Unfinished or not, what was changed goes."""
    before = node.fingerprint()

    def die(_step):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(node_fix, "take", die)
        with pytest.raises(KeyboardInterrupt):
            mend([SYSCTLS, UNMANAGE], False, node.journal)
    assert node.fingerprint() != before

    give_back(False, node.journal)

    assert node.fingerprint() == before


def test_rules_that_do_not_come_back_are_a_failure_that_keeps_the_change(node, monkeypatch):
    monkeypatch.setattr(node_fix, "bring_back", lambda before: (["kube-proxy"], "the rules of kube-proxy are not back"))

    with pytest.raises(FixError, match="the change was made, but the rules of kube-proxy are not back") as caught:
        mend([MANAGERS], False, node.journal)

    assert (caught.value.result["changed"], caught.value.result["restarted"]) == (True, ["kube-proxy"])
    assert [entry.state for entry in node.journal.history()] == ["committed"]


@pytest.mark.parametrize("change", [lambda node: mend([MANAGERS], False, node.journal), None], ids=["mend", "back"])
def test_rules_of_pods_that_went_with_a_manager_are_a_failure(node, monkeypatch, change):
    """CNI plugins write them when a pod starts, and never again."""
    if change is None:
        mend([MANAGERS], False, node.journal)
    rules = iter([{"nat CNI-HOSTPORT-DNAT CNI-DN-1"}, set()])
    for module in (node_fix, node_fix_rules):
        monkeypatch.setattr(module, "read_pod_rules", lambda: next(rules))

    with pytest.raises(FixError, match="the change was made, but the rules that CNI plugins had written for pods"):
        change(node) if change else give_back(False, node.journal)


@pytest.mark.parametrize(
    ("evidence", "modules", "words"),
    [
        pytest.param({"loadable": None}, ["ipip"], "this node loads no modules. A container has", id="container"),
        pytest.param({}, ["wireguard"], "wireguard is not in .*install the package", id="no such file"),
        pytest.param({"barred": {"ipip": "/etc/x has install ipip /bin/true"}}, ["ipip"], "/etc/x has", id="barred"),
    ],
)
def test_modules_that_cannot_be_loaded_are_refused_with_the_reason(node, evidence, modules, words):
    node.evidence = evidence
    before = node.fingerprint()

    result = mend([{**IPIP, "modules": [modules]}, SYSCTLS], False, node.journal)

    (refused,) = result["refused"]
    assert refused["finding"] == "kernel.ipip"
    assert re.search(words, refused["reason"])
    assert [item["finding"] for item in result["fixes"]] == ["kernel.rp_filter"]
    assert node.fingerprint().keys() - before.keys() == {"etc/sysctl.d/99-zz-portcullis.conf"}


def test_where_nothing_can_be_loaded_any_more_modules_are_loaded_at_the_next_boot(node):
    node.evidence = {"disabled": True}

    result = mend([IPIP], False, node.journal)

    assert "at the next boot" in result["fixes"][0]["changes"][0]
    assert "ipip\n" in node.fingerprint()["etc/modules-load.d/portcullis.conf"]
    assert "modprobe ipip" not in node.calls


def test_what_is_built_in_needs_no_file(node):
    node.evidence = {"builtin": frozenset({"ipip"}), "loadable": None}

    assert not mend([IPIP], False, node.journal)["changed"]


def test_the_machine_config_operator_is_not_worked_against(node):
    (node.root / "etc/machine-config-daemon").mkdir()
    before = node.fingerprint()

    result = mend(ALL, False, node.journal)

    assert {item["finding"] for item in result["refused"]} == {wish["finding"] for wish in ALL}
    assert "MachineConfig" in result["refused"][0]["reason"]
    assert node.fingerprint() == before


def test_a_ufw_that_is_switched_off_is_left_alone(node):
    """Debian's unit is active whether or not ufw does anything."""
    (node.root / "etc/ufw/ufw.conf").write_text("ENABLED=no\n")

    mend([MANAGERS], False, node.journal)

    assert "systemctl stop ufw.service" not in node.calls


def test_a_manager_that_no_target_pulls_in_is_only_stopped_and_started(node):
    node.add_unit("nftables.service", UnitFileState="static")
    before = node.fingerprint()
    mend([MANAGERS], False, node.journal)

    assert "systemctl disable nftables.service" not in node.calls
    give_back(False, node.journal)
    assert node.fingerprint() == before
