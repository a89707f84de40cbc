"""The containerd lines that can be built."""

import tomllib

import pytest

from tests.lab import containerd, golang
from tests.lab.machine import uses_systemd_cgroups


@pytest.mark.parametrize("line", containerd.LINES)
def test_each_line_has_its_module(line: str):
    """Its go.mod requires a release of that line."""
    assert containerd.version(line).startswith(f"v{line}.")


@pytest.mark.parametrize(
    ("choice", "version"), [("debian", 2), ("1.7", 2), *((line, 3) for line in containerd.LINES[1:])]
)
def test_default_config(choice: str, version: int):
    """Every line gets a configuration that it reads without migrating it down, with systemd's cgroups."""
    text = containerd.default_config(choice)

    assert tomllib.loads(text)["version"] == version
    assert uses_systemd_cgroups(text)


GO_MOD = """\
module example
require example.com/a v1.2.3

require (
\texample.com/b/v2 v2.0.1 // indirect
\texample.com/b v1.9.0
\tk8s.io/kubernetes v1.34.4
)
replace example.com/c => example.com/d v0.1.0
"""


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        pytest.param("example.com/a", "v1.2.3", id="one line"),
        pytest.param("example.com/b", "v1.9.0", id="not its next major version"),
        pytest.param("example.com/b/v2", "v2.0.1", id="indirect"),
        pytest.param("k8s.io/kubernetes", "v1.34.4", id="block"),
        pytest.param("example.com/c", None, id="replaced only"),
        pytest.param("example.com", None, id="a beginning"),
    ],
)
def test_parse_required(module: str, expected: str | None):
    """The version is read from the go.mod, so that it stands in one place."""
    assert golang.parse_required(GO_MOD, module) == expected
