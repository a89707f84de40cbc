# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_hosts import (
    Host,
    HostsFile,
    directory_name,
    is_namespace,
    render,
    same_hosts,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_mirrors import convert
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.plugins.plugin_utils.containerd_pulls import new_targets, old_targets


def texts(registry):
    found = convert(registry)
    assert found.problems == []
    return {name: render(file, "c") for name, file in found.files.items()}


@pytest.mark.parametrize(
    ("registry", "expected"),
    [
        pytest.param(
            {"mirrors": {"docker.io": {"endpoint": ["https://m.example", "https://registry-1.docker.io"]}}},
            {
                "docker.io": '# c\n\n[host."https://m.example"]\n  capabilities = ["pull", "resolve"]\n\n'
                '[host."https://registry-1.docker.io"]\n  capabilities = ["pull", "resolve"]\n'
            },
            id="order-of-endpoints",
        ),
        pytest.param(
            {"mirrors": {"r.example": {"endpoint": ["https://m.example/proxy/v2", "https://n.example/v1"]}}},
            {
                "r.example": '# c\n\n[host."https://m.example/proxy/v2"]\n  capabilities = ["pull", "resolve"]\n\n'
                '[host."https://n.example/v1"]\n  capabilities = ["pull", "resolve"]\n  override_path = true\n'
            },
            id="path-without-v2-is-kept",
        ),
        pytest.param(
            {"mirrors": {"*": {"endpoint": ["m.example:5000"]}}},
            {"_default": '# c\n\n[host."https://m.example:5000"]\n  capabilities = ["pull", "resolve"]\n'},
            id="wildcard-and-scheme",
        ),
        pytest.param(
            {"mirrors": {"r.example:5000": {"endpoint": ["http://r.example:5000"]}}},
            {
                "r.example:5000": '# c\nserver = "http://r.example:5000"\n\n[host."http://r.example:5000"]\n'
                '  capabilities = ["pull", "resolve"]\n'
            },
            id="registry-over-http-has-no-https-fallback",
        ),
        pytest.param(
            {"mirrors": {"a.example": {"endpoint": ["https://m", "https://m", "https://m/v2"]}}},
            {"a.example": '# c\n\n[host."https://m"]\n  capabilities = ["pull", "resolve"]\n'},
            id="the-same-place-once",
        ),
        pytest.param(
            {
                "mirrors": {"docker.io": {"endpoint": ["https://m.example:8443"]}},
                "configs": {
                    "m.example:8443": {
                        "tls": {"ca_file": "/ca.crt", "cert_file": "/c.crt", "key_file": "/c.key"},
                        "auth": {"username": "u", "password": "p"},
                    }
                },
            },
            {
                "docker.io": '# c\n\n[host."https://m.example:8443"]\n  capabilities = ["pull", "resolve"]\n'
                '  ca = "/ca.crt"\n  client = [["/c.crt", "/c.key"]]\n',
                "m.example:8443": '# c\nserver = "https://m.example:8443"\nca = "/ca.crt"\n'
                'client = [["/c.crt", "/c.key"]]\n\n[host."https://m.example:8443"]\n'
                '  capabilities = ["pull", "resolve"]\n  ca = "/ca.crt"\n  client = [["/c.crt", "/c.key"]]\n',
            },
            id="tls-by-endpoint-and-for-the-registry-itself",
        ),
        pytest.param(
            {
                "mirrors": {"*": {"endpoint": ["https://m"]}},
                "configs": {"r.example": {"tls": {"insecure_skip_verify": True}}},
            },
            {
                "_default": '# c\n\n[host."https://m"]\n  capabilities = ["pull", "resolve"]\n',
                "r.example": '# c\nserver = "https://r.example"\nskip_verify = true\n\n[host."https://m"]\n'
                '  capabilities = ["pull", "resolve"]\n',
            },
            id="tls-alone-keeps-the-wildcard-mirrors",
        ),
        pytest.param(
            {"configs": {"registry-1.docker.io": {"tls": {"ca_file": "ca.crt"}}}},
            {
                "docker.io": '# c\nserver = "https://registry-1.docker.io"\nca = "/ca.crt"\n\n'
                '[host."https://registry-1.docker.io"]\n  capabilities = ["pull", "resolve"]\n  ca = "/ca.crt"\n',
                "registry-1.docker.io": '# c\nserver = "https://registry-1.docker.io"\nca = "/ca.crt"\n\n'
                '[host."https://registry-1.docker.io"]\n  capabilities = ["pull", "resolve"]\n  ca = "/ca.crt"\n',
            },
            id="tls-of-docker-hub-and-relative-path",
        ),
        pytest.param(
            {"mirrors": {"*": {"endpoint": ["https://m"]}, "r.example": {"endpoint": []}}},
            {
                "_default": '# c\n\n[host."https://m"]\n  capabilities = ["pull", "resolve"]\n',
                "r.example": '# c\nserver = "https://r.example"\n\n[host."https://r.example"]\n'
                '  capabilities = ["pull", "resolve"]\n',
            },
            id="no-endpoint-shields-from-the-wildcard",
        ),
        pytest.param(
            {
                "mirrors": {"r:5000": {"endpoint": ["http://r:5000"]}},
                "configs": {"r:5000": {"tls": {"insecure_skip_verify": True}}},
            },
            {
                "r:5000": '# c\nserver = "http://r:5000"\n\n[host."http://r:5000"]\n'
                '  capabilities = ["pull", "resolve"]\n'
            },
            id="plain-http-stays-plain",
        ),
        pytest.param({"configs": {"r": {"auth": {"auth": "x"}}, "s": {"tls": {}}}}, {}, id="nothing-to-convert"),
    ],
)
def test_convert(registry, expected):
    """The old tables become these files."""
    assert texts(registry) == expected


@pytest.mark.parametrize(
    ("registry", "problem"),
    [
        pytest.param({"mirrors": {"a": {"endpoint": "https://m"}}}, "expected a table with endpoint", id="no-list"),
        pytest.param({"mirrors": {"a": {"endpoint": [], "rewrite": {}}}}, "has rewrite, for which", id="k3s-rewrite"),
        pytest.param({"mirrors": {"a": {"endpoint": ["http://[::1"]}}}, "'http://[::1' is no URL", id="no-url"),
        pytest.param({"mirrors": {"a": {"endpoint": ["https://m:x"]}}}, "'https://m:x' is no URL", id="no-port"),
        pytest.param({"mirrors": {"a": {"endpoint": ["m.example/a b"]}}}, "a b' is no URL", id="blank-in-it"),
        pytest.param({"configs": {"a": {"tls": {"cert_file": "/c"}}}}, "only one of cert_file", id="no-key"),
    ],
)
def test_what_cannot_be_converted(registry, problem):
    """What has no equivalent is a problem, never dropped silently."""
    assert problem in convert(registry).problems[0]


@pytest.mark.parametrize("name", ["a/b", "..", "https://a", "{{ registry }}:5000"])
def test_a_name_that_no_image_has(name):
    """Such a table never had an effect: it is named and dropped."""
    found = convert({"mirrors": {name: {"endpoint": ["https://m"]}}})

    assert (found.files, found.problems) == ({}, [])
    assert f"had no effect, since {name!r} is no registry host" in found.notes[0]


def test_a_key_that_containerd_ignores():
    """What upstream never read is named and dropped."""
    found = convert({"mirrors": {"a": {"endpoint": ["https://m"], "priority": 1}}})

    assert "has priority, which containerd ignored" in found.notes[0]
    assert list(found.files) == ["a"]


def test_notes():
    """What is kept as it was but looks unintended, and what had no effect, is said."""
    found = convert(
        {"mirrors": {"a": {"endpoint": ["https://m/"]}}, "configs": {"https://m": {"tls": {"ca_file": "/c"}}}}
    )

    assert "'https://m/' go to its path without /v2" in found.notes[0]
    assert "'https://m' is not the host of any endpoint" in found.notes[1]


@pytest.mark.parametrize(
    ("namespace", "existing", "expected"),
    [
        pytest.param("r.example:5000", set(), "r.example:5000", id="new"),
        pytest.param("r.example:5000", {"r.example_5000_"}, "r.example_5000_", id="underscored-wins"),
        pytest.param("docker.io", {"docker.io"}, "docker.io", id="plain"),
    ],
)
def test_directory_name(namespace, existing, expected):
    """The directory that containerd looks at first is the one that is written."""
    assert directory_name(namespace, existing) == expected


WANTED = HostsFile("a", (Host("https://m", ("pull", "resolve"), ca=("/c",)), Host("https://n", ("pull", "resolve"))))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        pytest.param(render(WANTED, "x"), True, id="rendered"),
        pytest.param(
            '[host."https://m"]\ncapabilities=["pull","resolve"]\nca=["/c"]\nskip_verify=false\n'
            '[host.\'https://n\']\ncapabilities=["pull","resolve"]\n',
            True,
            id="other-spelling",
        ),
        pytest.param(
            '[host."https://n"]\ncapabilities=["pull","resolve"]\n[host."https://m"]\ncapabilities=["pull","resolve"]\n'
            'ca="/c"\n',
            False,
            id="other-order",
        ),
        pytest.param('server = "https://z"\n' + render(WANTED, "x"), False, id="other-server"),
        pytest.param("[host\n", False, id="unreadable"),
        pytest.param("", False, id="empty"),
    ],
)
def test_same_hosts(text, same):
    """An existing file is left when it means the same."""
    assert same_hosts(text.encode(), WANTED) is same


@pytest.mark.parametrize(
    ("name", "expected"),
    [("docker.io", True), ("r:5000", True), ("[::1]:5000", True), ("a b", False), ("https://a", False), ("", False)],
)
def test_is_namespace(name, expected):
    """Only what an image name can begin with becomes a directory."""
    assert is_namespace(name) is expected


HOSTS = ("docker.io", "registry-1.docker.io", "r.example", "r.example:5000", "m.example")
ENDPOINTS = st.builds(
    lambda scheme, host, path: scheme + host + path,
    st.sampled_from(("https://", "http://", "")),
    st.sampled_from(HOSTS),
    st.sampled_from(("", "", "/v2", "/v2/", "/proxy", "/proxy/v2")),
)
MIRRORS = st.dictionaries(
    st.sampled_from((*HOSTS, "*")), st.fixed_dictionaries({"endpoint": st.lists(ENDPOINTS, max_size=4)}), max_size=3
)
TLS = st.fixed_dictionaries(
    {"tls": st.fixed_dictionaries({}, optional={"ca_file": st.just("/ca"), "insecure_skip_verify": st.booleans()})}
)
REGISTRIES = st.fixed_dictionaries(
    {"mirrors": MIRRORS, "configs": st.dictionaries(st.sampled_from(HOSTS), TLS, max_size=2)}
)


@given(REGISTRIES, st.sampled_from((*HOSTS, "unrelated.example")))
def test_pulls_go_to_the_same_places(registry, namespace):
    """For any tables and any registry, the same places are asked in the same order with the same TLS."""
    files, old = texts(registry), old_targets(registry, namespace)
    new = new_targets(files, namespace)

    if namespace not in files and namespace in [target[1] for target in old]:
        # The wildcard names the registry itself: its usual address is asked last, which changes no pull that worked.
        new = [target for target in new if target in old]
    assert new == old
