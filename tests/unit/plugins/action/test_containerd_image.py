# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller's half refuses before the node is asked, or before an archive is copied to it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible_collections.portcullis.fleet.plugins.action.containerd_image import ActionModule

from tests.lab import oci

GOOD = oci.archive(["docker.io/team/a:1"], oci.layer({}, {"bin": "usr/bin"}), {})
MISSING = {
    "changed": True,
    "source": "archive",
    "name": "docker.io/team/a:1",
    "node_architecture": "linux/amd64",
    "image_id": "",
}


class Action(ActionModule):
    """The action on a node whose answers are given."""

    def __init__(self, arguments, *answers, check_mode=False, transfer=None):
        task = SimpleNamespace(args=arguments, check_mode=check_mode, async_val=0, diff=False, environment=None)
        shell = SimpleNamespace(tmpdir="/node/tmp", join_path=lambda *parts: "/".join(parts))
        connection = SimpleNamespace(_shell=shell, has_pipelining=False)
        super().__init__(task, connection, None, None, None, None)
        self.answers, self.asked, self.copied, self.transfer = list(answers), [], [], transfer

    def _execute_module(self, module_args=None, **_others):
        self.asked.append(module_args)
        return self.answers.pop(0)

    def _transfer_file(self, local_path, remote_path):
        self.copied.append(remote_path)
        if self.transfer:
            raise self.transfer

    def _find_needle(self, dirname, needle):
        if needle == "nowhere":
            raise AnsibleError("not found")
        return needle


@pytest.fixture
def archive(tmp_path):
    (tmp_path / "a.tar").write_bytes(GOOD)
    return str(tmp_path / "a.tar")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"name": "team/Upper:1"}, "a repository is in lower case"),
        ({"name": None}, "image ''"),
        ({"name": "a", "archive": ["x"]}, "archive must be the path of a file"),
        ({"name": "a", "archive": "/dev/zero"}, "archive /dev/zero is no regular file"),
        ({"name": "a:"}, "the tag after : is empty"),
        ({"name": "a@sha256:00"}, "expected 64 hexadecimal digits"),
        ({"name": "sha256:" + "0" * 64}, "an image ID cannot be pulled"),
        ({"name": "me:hunter2@r.example/a:1"}, "begins with sha256:"),
        ({}, "image ''"),
        ({"name": "a", "archive": "nowhere"}, "archive 'nowhere' is not on the machine that runs Ansible"),
    ],
    ids=[
        "upper case",
        "null",
        "archive list",
        "device",
        "empty tag",
        "digest",
        "id",
        "credentials",
        "nothing",
        "no archive",
    ],
)
def test_refused_before_the_node_is_asked(arguments, reason):
    action = Action(arguments)
    result = action.run(task_vars={})

    assert result["failed"] and reason in result["msg"]
    assert action.asked == []
    assert "hunter2" not in json.dumps(result)


def test_an_image_that_is_there_is_one_trip(archive):
    """The archive is not even read."""
    action = Action({"name": "team/a:1", "archive": archive}, {"changed": False, "source": "node"})

    assert not action.run(task_vars={})["changed"]
    assert [asked["_only_look"] for asked in action.asked] == [True]


def test_an_archive_is_copied_where_the_image_is_missing(archive):
    action = Action({"name": "team/a:1", "archive": archive}, MISSING, {"changed": True, "source": "archive"})

    assert action.run(task_vars={})["changed"]
    assert action.copied == ["/node/tmp/portcullis-image-archive"]
    assert action.asked[1] == {"name": "team/a:1", "archive": archive, "_copied_archive": action.copied[0]}


def test_check_mode_reads_the_archive_and_copies_nothing(archive):
    action = Action({"name": "team/a:1", "archive": archive}, MISSING, check_mode=True)

    assert action.run(task_vars={}) == {**MISSING}
    assert action.copied == []


@pytest.mark.parametrize("check_mode", [True, False])
def test_an_archive_for_another_node_is_not_copied(archive, check_mode):
    other = {**MISSING, "node_architecture": "linux/arm/v7"}
    action = Action({"name": "team/a:1", "archive": archive}, other, check_mode=check_mode)
    result = action.run(task_vars={})

    assert result["failed"] and not result.get("changed")
    assert "is for linux/amd64, expected linux/arm/v7" in result["msg"]
    assert action.copied == []


def test_a_copy_that_fails_says_where_and_what_to_do(archive):
    action = Action({"name": "team/a:1", "archive": archive}, MISSING, transfer=AnsibleError("Failure"))
    result = action.run(task_vars={})

    assert result["failed"]
    assert "could not be copied to /node/tmp on the node: Failure; make room there" in result["msg"]


def test_a_lost_connection_stays_one(archive):
    """Ansible calls the node unreachable then."""
    action = Action({"name": "team/a:1", "archive": archive}, MISSING, transfer=AnsibleConnectionFailure("gone"))
    with pytest.raises(AnsibleConnectionFailure):
        action.run(task_vars={})
