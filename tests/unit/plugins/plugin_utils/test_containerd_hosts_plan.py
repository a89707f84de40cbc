# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The option hosts together with what is on the node: what is written, merged, left, taken back or refused."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_effective import parse_version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_hosts_option import parse_hosts
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_hosts_plan import COMMENT
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_migrate import HostsDirectory
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_plan import Options, plan_present

MAIN = "/etc/containerd/config.toml"
OLD = "io.containerd.grpc.v1.cri"
SET = f'version = 2\n[plugins."{OLD}".registry]\nconfig_path = "/c"\n'.encode()
MIRRORS = f'version = 2\n[plugins."{OLD}".registry.mirrors."docker.io"]\nendpoint = ["https://m"]\n'.encode()
FILE = "/c/docker.io/hosts.toml"
M = {"registry": "docker.io", "endpoints": [{"url": "https://m"}]}
ABSENT = {"registry": "docker.io", "state": "absent"}
TEXT_M = f'# {COMMENT}\n\n[host."https://m"]\n  capabilities = ["pull", "resolve"]\n'.encode()
OTHERS = b'# mine\n[host."https://m"]\ncapabilities = ["pull", "resolve"]\n'


def plan_of(*entries, there=None, main=SET, version="1.7.24", present=(), **options):
    return plan_present(
        {MAIN: main},
        parse_version(version),
        Options(hosts=parse_hosts(list(entries)), **options),
        {"/c": there or {}},
        present=frozenset(present),
    )


def at(content, **changes):
    """Return a hosts.toml of docker.io."""
    return {"docker.io": HostsDirectory(("hosts.toml",), content, **changes)}


def actions(plan):
    return {item["registry"]: item["action"] for item in plan.hosts}


def test_a_new_file_needs_no_restart():
    """It goes below the directory that is in use; what the daemon has loaded stays as it is."""
    plan = plan_of(M)

    (write,) = plan.writes
    assert (write.path, write.before, write.after, write.mode) == (FILE, None, TEXT_M, None)
    assert plan.hosts == [{"registry": "docker.io", "file": FILE, "action": "written"}]
    assert plan.before == plan.after and not plan.more_changes
    assert (plan.findings, plan.warnings) == ([], [])


def test_the_directory_that_is_set_in_the_same_run_counts():
    """The hosts.toml files come first, so that the daemon finds them when it starts."""
    plan = plan_of(M, main=b"version = 2\n", registry_config_path="/d")

    assert [write.path for write in plan.writes] == ["/d/docker.io/hosts.toml", MAIN]


def test_a_list_of_directories_is_no_place():
    """Which of them counts depends on how the daemon pulls."""
    plan = plan_of(M, main=SET.replace(b'"/c"', b'"/c:/d"'))

    assert [item["id"] for item in plan.findings] == ["containerd.hosts_directory"]


def test_a_file_with_headers_is_for_root_only():
    """A header may be a credential. A file of somebody else keeps its mode, which is said."""
    header = {"registry": "docker.io", "endpoints": [{"url": "https://m", "header": {"A": "b"}}]}

    assert plan_of(header).writes[0].mode == 0o600
    merged = plan_of(header, there=at(OTHERS))
    assert merged.writes[0].mode is None
    assert "keeps its mode" in merged.warnings[0]


@pytest.mark.parametrize(
    ("there", "action", "written"),
    [
        pytest.param(at(TEXT_M, origin="ours"), "left", None, id="ours-says-so"),
        pytest.param(at(OTHERS), "left", None, id="theirs-says-so"),
        pytest.param(at(b'[host."https://n"]\n', origin="ours"), "written", TEXT_M, id="ours-said-otherwise"),
        pytest.param(
            at(b"whatever it was made of", origin="ours", former=OTHERS), "merged", OTHERS, id="ours-made-of-theirs"
        ),
        pytest.param(at(b"# only words\n"), "merged", None, id="theirs-says-nothing"),
        pytest.param({"docker.io": HostsDirectory()}, "written", TEXT_M, id="empty-directory"),
    ],
)
def test_what_is_there(there, action, written):
    """A file of this module is written anew, one of somebody else gets what is missing."""
    plan = plan_of(M, there=there)

    assert plan.findings == []
    assert actions(plan) == {"docker.io": action}
    if written is not None:
        assert [write.after for write in plan.writes] == [written]
    elif action == "merged":
        assert plan.writes[0].after.startswith(there["docker.io"].content)
    else:
        assert plan.writes == []


@pytest.mark.parametrize(
    ("there", "words"),
    [
        pytest.param(
            at(b'\nserver = "https://z"\n'),
            f'{FILE} line 2: server = "https://z", while hosts want none, which is the registry itself',
            id="server",
        ),
        pytest.param(at(b"x", origin="changed"), f"{FILE} line 1: ", id="changed-since"),
        pytest.param(
            at(b"x", origin="ours", former=b'server = "https://z"\n'),
            "(as it was before this module changed it) line 1",
            id="former",
        ),
        pytest.param(
            {"docker.io": HostsDirectory(("ca.crt", "x.key"))}, "/c/docker.io holds ca.crt, x.key", id="docker"
        ),
    ],
)
def test_contradictions(there, words):
    """They are findings that name the place, and nothing is written."""
    plan = plan_of(M, {"registry": "quay.io", "server": "https://q"}, there=there)

    assert [item["id"] for item in plan.findings] == ["containerd.hosts_conflict"]
    assert words in plan.findings[0]["observed"]
    assert plan.writes == plan.hosts == []


def test_hosts_of_somebody_else_are_named():
    """They stay, and pulls may still go there."""
    plan = plan_of(M, there=at(OTHERS + b'[host."https://o"]\n'))

    assert actions(plan) == {"docker.io": "left"}
    assert "names https://o for docker.io too, which stay" in plan.warnings[0]


DEFAULT = {"_default": HostsDirectory(("hosts.toml",), b'[host."https://m"]\n[host."https://d"]\n')}


@pytest.mark.parametrize(
    ("entries", "there", "version", "words"),
    [
        pytest.param([M], DEFAULT, "1.7.24", "https://d of /c/_default are not asked for it any more", id="there"),
        pytest.param([M], DEFAULT, "1.6.16", "", id="not-read-yet"),
        pytest.param([M], {**DEFAULT, **at(OTHERS)}, "1.7.24", "", id="not-new"),
        pytest.param(
            [M, {"registry": "_default", "server": "https://e"}], {}, "1.7.24", "https://e of /c/_default", id="wanted"
        ),
        pytest.param([M, {"registry": "_default", "state": "absent"}], {}, "1.7.24", "", id="goes"),
        pytest.param([M], {"_default": HostsDirectory(("hosts.toml",), b"[host")}, "1.7.24", "", id="unreadable"),
    ],
)
def test_a_directory_of_its_own_takes_a_registry_out_of_the_default(entries, there, version, words):
    """What is lost is named when the directory is made."""
    warnings = plan_of(*entries, there=there, version=version).warnings

    assert bool(warnings) == bool(words)
    assert not words or words in warnings[0]


@pytest.mark.parametrize(
    ("entry", "version", "refused"),
    [
        pytest.param({"registry": "_default", "server": "https://m"}, "1.6.16", True, id="default-1.6.16"),
        pytest.param({"registry": "_default", "server": "https://m"}, "1.6.17", False, id="default-1.6.17"),
        pytest.param(
            {"registry": "a", "endpoints": [{"url": "https://m", "capabilities": ["referrers"]}]},
            "2.1.9",
            True,
            id="referrers-2.1",
        ),
        pytest.param(
            {"registry": "a", "endpoints": [{"url": "https://m", "capabilities": ["referrers"]}]},
            "2.2.1",
            False,
            id="referrers-2.2",
        ),
    ],
)
def test_what_the_daemon_does_not_understand(entry, version, refused):
    """It would ignore the directory, or the whole file."""
    ids = [item["id"] for item in plan_of(entry, version=version).findings]

    assert ids == (["containerd.hosts_unsupported"] if refused else [])


def test_certificates_must_be_there():
    """containerd fails every pull through a host whose certificates it cannot read, so that is found before."""
    entry = {"registry": "r:5000", "endpoints": [{"url": "https://m", "ca": "ca.pem", "client": ["/c", "/k"]}]}
    there = {"r_5000_": HostsDirectory(("ca.pem",))}
    present = ("/c/r_5000_/ca.pem", "/c", "/k")

    assert plan_of(entry, there=there, present=present).findings == []
    (finding,) = plan_of(entry, there=there, present=present[:2]).findings
    assert finding["id"] == "containerd.hosts_file_missing"
    assert "of r:5000 name /k, which" in finding["observed"]


@pytest.mark.parametrize(
    ("there", "action", "after"),
    [
        pytest.param(at(TEXT_M, origin="ours", made=("/c", "/c/docker.io", "/d")), "removed", None, id="made"),
        pytest.param(at(TEXT_M, origin="ours", former=OTHERS), "restored", OTHERS, id="merged"),
        pytest.param({}, "left", "", id="nothing"),
        pytest.param(at(OTHERS, origin="former"), "left", "", id="given-back-already"),
        pytest.param({"docker.io": HostsDirectory(("ca.crt",))}, "left", "", id="no-file"),
    ],
)
def test_absent_gives_back_what_was_there(there, action, after):
    """What this module wrote goes, with the directories that it made."""
    plan = plan_of(ABSENT, there=there)

    assert (actions(plan), plan.findings) == ({"docker.io": action}, [])
    assert [write.after for write in plan.writes] == ([] if after == "" else [after])
    assert plan.remove_directories == (["/c", "/c/docker.io"] if action == "removed" else [])


@pytest.mark.parametrize(
    ("origin", "finding"), [("", "containerd.hosts_conflict"), ("changed", "containerd.changed_since")]
)
def test_absent_leaves_what_somebody_else_wrote(origin, finding):
    """Taking it away would be more than was asked for."""
    plan = plan_of(ABSENT, there=at(OTHERS, origin=origin))

    assert ([item["id"] for item in plan.findings], plan.writes) == ([finding], [])


def test_mirrors_that_agree_are_converted_into_the_same_file():
    """The file holds what both say, and the old table goes."""
    entry = {"registry": "docker.io", "endpoints": [{"url": "https://m", "ca": "/ca"}, {"url": "https://n"}]}
    plan = plan_of(entry, main=MIRRORS, registry_config_path="/c", present=["/ca"])

    assert [write.path for write in plan.writes] == [FILE, MAIN]
    text = plan.writes[0].after.decode()
    assert text.startswith('# Converted from registry.mirrors."docker.io"')
    assert '[host."https://m"]\n  capabilities = ["pull", "resolve"]\n  ca = "/ca"\n' in text
    assert '[host."https://n"]' in text
    assert plan.converted[0]["file"] == FILE and actions(plan) == {"docker.io": "written"}


@pytest.mark.parametrize(
    ("entry", "there", "words"),
    [
        pytest.param(
            {"registry": "docker.io", "server": "https://z", "endpoints": [{"url": "https://n"}, {"url": "https://m"}]},
            {},
            f'{FILE} (as registry.mirrors."docker.io" of {MAIN} would become it) line 3: the hosts https://m',
            id="hosts",
        ),
        pytest.param(ABSENT, {}, "while hosts want docker.io absent", id="absent"),
        pytest.param(M, at(b'server = "https://z"\n'), "while the mirrors want none", id="file"),
    ],
)
def test_mirrors_that_contradict_are_no_silent_loss(entry, there, words):
    """Neither wins by itself."""
    plan = plan_of(entry, there=there, main=MIRRORS, registry_config_path="/c")

    assert {item["id"] for item in plan.findings} == {"containerd.hosts_conflict"}
    assert words in plan.findings[0]["observed"]
    assert plan.writes == []


def test_mirrors_of_another_registry_are_converted_as_ever():
    """The option says nothing about them."""
    plan = plan_of({"registry": "quay.io", "server": "https://q"}, main=MIRRORS, registry_config_path="/c")

    assert [write.path for write in plan.writes] == [FILE, "/c/quay.io/hosts.toml", MAIN]


def test_planning_what_was_planned_changes_nothing():
    """The plan's own result, as the journal then knows it, is left."""
    entry = {"registry": "docker.io", "server": "https://z", "endpoints": [{"url": "https://m", "header": {"A": "b"}}]}
    for former in (None, OTHERS):
        before = at(former) if former else {}
        (write,) = plan_of(entry, there=before).writes

        again = plan_of(entry, there=at(write.after, origin="ours", former=former))

        assert (again.writes, actions(again)) == ([], {"docker.io": "left"})
