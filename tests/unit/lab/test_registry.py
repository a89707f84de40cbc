"""The registry's access log, and names that are refused."""

from pathlib import Path

import pytest

from tests.lab.errors import LabError
from tests.lab.registry import Registry, Request, parse_access_log

# docker-registry 2.8.2 with containerd 1.6.20 and 2.2.9
LOG = """\
time="2026-11-30T21:23:33Z" level=warning msg="something" go.version=go1.19.8
10.77.0.1 - - [30/Nov/2026:21:23:33 +0000] "PUT /v2/library/busybox/manifests/1.33 HTTP/1.1" 201 0 "" ""
10.77.0.11 - - [30/Nov/2026:21:23:49 +0000] "HEAD /v2/a/b/manifests/1?ns=docker.io HTTP/1.1" 200 417 "" "containerd/1.6.20~ds1"
10.77.0.12 - user [30/Nov/2026:21:23:52 +0000] "GET /v2/a/b/manifests/2?ns=docker.io HTTP/2.0" 404 96 "team-7" "containerd/v2.2.9"
"""  # noqa: E501


def test_parse_access_log():
    """Requests with who asked for what, and what came of it; the program's own messages are left out."""
    assert parse_access_log(LOG) == [
        Request("10.77.0.1", "PUT", "/v2/library/busybox/manifests/1.33", 201, "", ""),
        Request("10.77.0.11", "HEAD", "/v2/a/b/manifests/1?ns=docker.io", 200, "", "containerd/1.6.20~ds1"),
        Request("10.77.0.12", "GET", "/v2/a/b/manifests/2?ns=docker.io", 404, "team-7", "containerd/v2.2.9"),
    ]


@pytest.mark.parametrize("name", ["app", "host:5000/app", ":1"])
def test_push_refuses(name: str):
    """A name without a repository or a tag is named before anything is sent."""
    with pytest.raises(LabError, match="expected a repository and a tag"):
        Registry(0, Path("/nonexistent")).push(name)
