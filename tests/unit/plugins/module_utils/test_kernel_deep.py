# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules that are loaded to be tried are unloaded, whatever becomes of the one that loaded them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils import kernel_deep, kernel_features
from ansible_collections.portcullis.fleet.plugins.module_utils.kernel_deep import loaded_for_a_while
from ansible_collections.portcullis.fleet.plugins.module_utils.kernel_evidence import Evidence, parse_dependencies

DEPENDENCIES = parse_dependencies(
    """kernel/net/netfilter/xt_set.ko.xz: kernel/net/netfilter/ipset/ip_set.ko.xz kernel/net/netfilter/x_tables.ko.xz
kernel/net/ipv4/ipip.ko: kernel/net/ipv4/ip_tunnel.ko
kernel/drivers/net/dummy.ko:
kernel/net/netfilter/x_tables.ko.xz:
"""
)
BAD, USED = "ipip", "dummy"
DEADLINE_S = 10


@pytest.fixture
def kernel(tmp_path, monkeypatch) -> Path:
    """A file that stands for /proc/modules, and programs that change it: ipip is not loaded, dummy not unloaded."""
    modules = tmp_path / "modules"
    modules.write_text("x_tables 1 0 - Live 0x0\n")

    def run(argv):
        names = {line.split()[0] for line in modules.read_text().splitlines()}
        if argv[0] == "modprobe":
            for name in (word for word in argv[1:] if not word.startswith("-") and word != BAD):
                names |= {name, *DEPENDENCIES[name]}
        else:
            names -= {name for name in argv[1:] if name != USED}
        modules.write_text("".join(f"{name} 1 0 - Live 0x0\n" for name in sorted(names)))
        return (1, "", f"modprobe: ERROR: could not insert '{BAD}':\nKey was rejected") if BAD in argv else (0, "", "")

    monkeypatch.setattr(kernel_deep, "run_command", run)
    monkeypatch.setattr(kernel_deep, "read_text", lambda _path: modules.read_text())
    monkeypatch.setattr(kernel_deep, "UNLOAD_TIMEOUT_S", 0.3)
    return modules


def loaded(modules: Path) -> set[str]:
    return {line.split()[0] for line in modules.read_text().splitlines()}


def test_what_was_loaded_goes_with_what_it_needed_and_what_was_there_stays(kernel):
    with loaded_for_a_while({"xt_set", "x_tables"}, DEPENDENCIES) as refused:
        assert loaded(kernel) == {"x_tables", "xt_set", "ip_set"}
        assert refused == {}

    assert loaded(kernel) == {"x_tables"}


def test_a_module_that_cannot_be_loaded_is_not_there(kernel):
    """A kernel that is locked down refuses what is not signed."""
    with loaded_for_a_while({BAD}, DEPENDENCIES) as refused:
        pass

    assert refused[BAD].state == "absent"
    assert refused[BAD].evidence == "modprobe ipip: modprobe: ERROR: could not insert 'ipip': Key was rejected"


def test_what_somebody_uses_stays_and_holds_nobody_up(kernel):
    started = time.monotonic()

    with loaded_for_a_while({USED}, DEPENDENCIES):
        pass

    assert USED in loaded(kernel)
    assert time.monotonic() - started < DEADLINE_S


def test_the_one_that_loaded_them_is_killed(kernel):
    """It ends in the middle, and does nothing of what it would do at its end."""
    pid = os.fork()
    if pid == 0:
        with loaded_for_a_while({"xt_set"}, DEPENDENCIES):
            os._exit(0 if "xt_set" in loaded(kernel) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    deadline = time.monotonic() + DEADLINE_S
    while loaded(kernel) != {"x_tables"}:
        assert time.monotonic() < deadline, loaded(kernel)
        time.sleep(0.01)


EVIDENCE = Evidence(
    config=None,
    config_source="",
    loaded=frozenset(),
    present=frozenset(),
    loadable=frozenset({"ipip"}),
    builtin=frozenset(),
    directory="/lib/modules/6.1.0",
    barred={},
    disabled=False,
    in_container=False,
)


@pytest.mark.parametrize(
    ("read", "euid", "program", "words"),
    [
        ({"in_container": True}, 0, "/sbin/modprobe", "container"),
        ({"loaded": None}, 0, "/sbin/modprobe", "loads no modules"),
        ({"disabled": True}, 0, "/sbin/modprobe", "loads no modules"),
        ({}, 1000, "/sbin/modprobe", "not root"),
        ({}, 0, None, "no modprobe"),
    ],
)
def test_where_nothing_can_be_loaded_the_lists_decide_and_the_reason_is_said(monkeypatch, read, euid, program, words):
    monkeypatch.setattr(kernel_features.os, "geteuid", lambda: euid)
    monkeypatch.setattr(kernel_features, "which", lambda _name, path: program)
    monkeypatch.setattr(kernel_features, "read_evidence", lambda _in_container: EVIDENCE._replace(**read))
    monkeypatch.setattr(kernel_features, "try_features", lambda _modules, _evidence: ({}, ""))

    found = kernel_features.probe_kernel(in_container=False, deep=True)

    assert words in found["unseen"]
    assert found["features"]["ipip"]["state"] == ("absent" if read.get("disabled") else "loadable")


def test_what_could_not_be_loaded_is_judged_by_that(monkeypatch, kernel):
    monkeypatch.setattr(kernel_features, "read_evidence", lambda _in_container: EVIDENCE)
    monkeypatch.setattr(kernel_features, "which", lambda _name, path: "/sbin/modprobe")
    monkeypatch.setattr(kernel_features.os, "geteuid", lambda: 0)
    monkeypatch.setattr(kernel_features, "try_features", lambda _modules, _evidence: ({}, ""))

    found = kernel_features.probe_kernel(in_container=False, deep=True)

    assert found["features"]["ipip"]["state"] == "absent"
    assert "Key was rejected" in found["features"]["ipip"]["evidence"]
