"""A node whose probe could not start is explained in one line."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.action.node_probe import explain_failure


def test_a_missing_python_is_said_in_one_line_with_the_remedy():
    result = {"failed": True, "rc": 127, "msg": "The module interpreter '/usr/bin/python3' was not found."}
    explained = explain_failure("w1", result)

    assert explained["no_python"]
    assert "no Python on w1" in explained["msg"]
    assert "ansible_python_interpreter" in explained["msg"]


@pytest.mark.parametrize(
    ("output", "program"),
    [
        ("/bin/sh: 1: sudo: not found\r\n", "sudo"),
        ("sh: sudo: not found", "sudo"),
        ("bash: line 1: sudo: command not found", "sudo"),
        ("bash: /opt/bin/doas: No such file or directory", "doas"),
        ("/bin/sh: 1: /usr/bin/sudo: not found", "sudo"),
        ("zsh:1: command not found: sudo", "sudo"),
    ],
    ids=["dash", "busybox", "bash", "bash, by path", "dash, by path", "zsh"],
)
@pytest.mark.parametrize("stream", ["module_stdout", "module_stderr"])
def test_a_missing_sudo_is_not_a_missing_python(output, program, stream):
    result = {"failed": True, "rc": 127, "msg": "Module result deserialization failed.", stream: output}
    explained = explain_failure("w1", result)

    assert explained["no_become"]
    assert "no_python" not in explained
    assert explained["msg"].startswith(f"no {program} on w1: ansible_become needs it")
    assert "\n" not in explained["msg"]


def test_any_other_failure_is_kept_as_it_is():
    result = {"failed": True, "rc": 1, "msg": "disk_paths must be absolute"}

    assert explain_failure("w1", result) is result
