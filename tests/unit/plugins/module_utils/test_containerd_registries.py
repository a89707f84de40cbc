# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the node says about registry directories, with a real journal."""

from __future__ import annotations

import base64

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.containerd_apply import apply
from ansible_collections.portcullis.fleet.plugins.module_utils.containerd_changes import undo_changes, undo_records
from ansible_collections.portcullis.fleet.plugins.module_utils.containerd_registries import read_registries, trace
from ansible_collections.portcullis.fleet.plugins.module_utils.files import read_snapshot
from ansible_collections.portcullis.fleet.plugins.module_utils.journal import Journal

REGISTRY = '[plugins."io.containerd.grpc.v1.cri".registry]\n'
MAIN = "/etc/containerd/config.toml"


def encode(content):
    return base64.b64encode(content).decode()


def facts_of(text):
    return [{"content": encode(text.encode())}]


UNTOUCHED = {"origin": "", "former": None, "made": []}


@pytest.fixture
def certs(tmp_path):
    """A registry directory with one file of somebody else, and certificates."""
    directory = tmp_path / "certs.d"
    (directory / "docker.io").mkdir(parents=True)
    (directory / "docker.io" / "hosts.toml").write_text("# h\n")
    (directory / "r_5000_").mkdir()
    (directory / "r_5000_" / "ca.crt").write_text("")
    return directory


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal")


def test_everything_is_read_where_it_may_come_into_effect(certs, journal):
    """No file sets a registry directory, so all of the one that will be set counts."""
    found = read_registries([], str(certs), [], MAIN, journal)

    assert found["hosts"] == {
        str(certs): {
            "docker.io": {"names": ["hosts.toml"], "content": encode(b"# h\n"), **UNTOUCHED},
            "r_5000_": {"names": ["ca.crt"], "content": None, **UNTOUCHED},
        }
    }
    assert found["present"] == []


def test_only_what_is_asked_for_is_read_in_a_directory_that_is_in_use(certs, journal):
    """A run without hosts reads nothing, one with hosts its registries and the default."""
    settled = facts_of(REGISTRY + f'config_path = "{certs}"')
    (certs / "_default").mkdir()

    assert read_registries(settled, "/none", [], MAIN, journal) == {"hosts": {}, "present": []}
    asked = [{"registry": "r:5000", "files": ["ca.crt", "key.pem", "/none"]}]
    found = read_registries(settled, "/none", asked, MAIN, journal)
    assert sorted(found["hosts"][str(certs)]) == ["_default", "r_5000_"]
    assert found["present"] == [str(certs / "r_5000_" / "ca.crt")]


def put(journal, path, content, **note):
    """Have this module write a file, or remove it."""
    after = None if content is None else encode(content)
    write = {"path": str(path), "expected_sha256": read_snapshot(path).sha256, "content": after}
    note = {"restart": False, "restart_needed": False, "config_file": MAIN, "remove_directories": [], **note}
    return apply({"writes": [write], "note": {"undo": False, "repairs": "", **note}}, journal)


def traced(journal, path):
    found = trace(str(path), undo_changes(MAIN, journal))
    return found["origin"], found["former"]


def test_what_this_module_wrote_is_known(certs, journal):
    """The bytes before its first change come with it, through several changes."""
    new, merged = certs / "quay.io" / "hosts.toml", certs / "docker.io" / "hosts.toml"

    assert traced(journal, new) == ("", None)
    put(journal, new, b"one")
    put(journal, new, b"two")
    put(journal, merged, b"# h\nmore")
    assert traced(journal, new) == ("ours", None)
    assert traced(journal, merged) == ("ours", encode(b"# h\n"))
    assert trace(str(new), undo_changes(MAIN, journal))["made"] == [str(new.parent)]


def test_what_somebody_changed_since_is_known(certs, journal):
    """It is not this module's any more; what was put back by hand is as before."""
    path = certs / "docker.io" / "hosts.toml"
    put(journal, path, b"ours")

    path.write_bytes(b"theirs")
    assert traced(journal, path)[0] == "changed"
    path.write_bytes(b"# h\n")
    assert traced(journal, path)[0] == "former"


@pytest.mark.parametrize("undo", [pytest.param(False, id="taken-back"), pytest.param(True, id="undone")])
def test_what_was_given_back_is_known(certs, journal, undo):
    """Afterwards nothing of this module is left in the file, whatever becomes of it, and the undo has nothing to do."""
    path = certs / "docker.io" / "hosts.toml"
    put(journal, path, b"ours")
    put(journal, path, b"# h\n", undo=undo)

    assert traced(journal, path)[0] == "former"
    path.write_bytes(b"theirs")
    assert traced(journal, path)[0] == ""
    (record,) = undo_records(MAIN, journal)["files"]
    assert record["matches"] and record["content"] == record["current"] == encode(b"theirs")
    put(journal, path, b"ours again")
    assert traced(journal, path) == ("ours", encode(b"theirs"))


def test_changes_for_another_main_file_do_not_count(certs, journal):
    """They are undone with that file only."""
    path = certs / "docker.io" / "hosts.toml"
    put(journal, path, b"ours", config_file="/other.toml")

    assert traced(journal, path) == ("", None)


def test_a_link_is_followed(certs, journal):
    """The journal knows real paths."""
    path = certs / "docker.io" / "hosts.toml"
    link = certs.parent / "link"
    link.symlink_to(certs)
    put(journal, path, b"ours")

    assert traced(journal, link / "docker.io" / "hosts.toml")[0] == "ours"
