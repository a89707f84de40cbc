# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What registries.yaml of k3s and RKE2 can say of the option hosts, and what it cannot."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_hosts_option import parse_hosts
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_rancher import (
    find_yaml_secrets,
    named_registries,
    plan_registries,
    without_yaml_secrets,
)

PATH = "/etc/rancher/k3s/registries.yaml"
THERE = """# ours
mirrors:
  "*":
    endpoint: ["https://all.example"]   # for all
configs:
  m.example:5000:
    auth:
      username: robot
      password: hunter22
"""


def planned(text, *registries):
    present = frozenset(("/etc/ca.crt", "/c.crt", "/c.key", "/a", "/b"))
    return plan_registries(PATH, None if text is None else text.encode(), parse_hosts(list(registries)), present)


def hub(**endpoint):
    return {"registry": "docker.io", "endpoints": [{"url": "https://m.example:5000", **endpoint}]}


def test_a_registry_is_added():
    """Everything else stays byte for byte; TLS goes to the endpoint's host, beside its credentials."""
    found = planned(THERE, hub(ca="/etc/ca.crt", client=["/c.crt", "/c.key"]))
    text = found.write.after.decode()

    assert (found.problems, found.write.path, found.write.before) == ([], PATH, THERE.encode())
    assert found.results == [{"registry": "docker.io", "file": PATH, "action": "merged"}]
    assert yaml.safe_load(text)["mirrors"]["docker.io"] == {"endpoint": ["https://m.example:5000"]}
    assert yaml.safe_load(text)["configs"]["m.example:5000"] == {
        "auth": {"username": "robot", "password": "hunter22"},
        "tls": {"ca_file": "/etc/ca.crt", "cert_file": "/c.crt", "key_file": "/c.key"},
    }
    added = [line for line in text.splitlines() if line not in THERE.splitlines()]
    assert [line for line in text.splitlines() if line not in added] == THERE.splitlines()
    assert planned(text, hub(ca="/etc/ca.crt", client=["/c.crt", "/c.key"])).write is None


def test_a_new_file_is_for_root_only():
    """It may hold credentials one day."""
    write = planned(None, {"registry": "_default", "endpoints": [{"url": "http://10.0.0.1:5000"}]}).write

    assert (write.before, write.mode) == (None, 0o600)
    assert yaml.safe_load(write.after) == {"mirrors": {"*": {"endpoint": ["http://10.0.0.1:5000"]}}}


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        pytest.param({"url": "https://m.example"}, "https://m.example", id="host"),
        pytest.param({"url": "https://m.example/v2"}, "https://m.example", id="v2"),
        pytest.param({"url": "https://m.example/proxy"}, "https://m.example/proxy/v2", id="path-gets-v2"),
        pytest.param({"url": "https://m.example/proxy", "override_path": True}, "https://m.example/proxy", id="as-is"),
    ],
)
def test_what_an_endpoint_leads_to(endpoint, expected):
    """k3s takes a path as it is; what hosts.toml would ask for is asked for there too."""
    write = planned("", {"registry": "docker.io", "endpoints": [endpoint]}).write

    assert yaml.safe_load(write.after)["mirrors"]["docker.io"]["endpoint"] == [expected]


@pytest.mark.parametrize(
    ("text", "registry", "problem"),
    [
        pytest.param("", hub(capabilities=["pull"]), "capabilities are always pull, resolve", id="capabilities"),
        pytest.param("", hub(header={"Authorization": "Basic c2VjcmV0"}), "it has no headers", id="header"),
        pytest.param("", hub(ca=["/a", "/b"]), "one CA", id="two-cas"),
        pytest.param("", hub(ca="/none"), "/none of docker.io is no file on the node", id="missing"),
        pytest.param("", hub(ca="ca.crt"), "ca.crt is no absolute path", id="relative"),
        pytest.param("", {**hub(), "server": "https://other.example"}, "always tried last", id="server"),
        pytest.param(
            "",
            hub(override_path=True),
            "becomes /v2",
            id="no-path",
        ),
        pytest.param(
            "configs: {m.example:5000: {tls: {ca_file: /other}}}\n", hub(ca="/a"), "something else already", id="tls"
        ),
        pytest.param("mirrors:\n  docker.io:\n    rewrite:\n      a: b\n", hub(), "has a rewrite", id="rewrite"),
        pytest.param(THERE, {"registry": "_default", "state": "absent"}, "take it out by hand", id="absent"),
        pytest.param("x: &x\n  a: 1\nmirrors:\n  docker.io: *x\n", hub(), "something else", id="alias"),
        pytest.param("mirrors: [a]\n", hub(), "mirrors is no mapping", id="no-mapping"),
        pytest.param("a: b: c\n", hub(), "it is no YAML", id="no-yaml"),
    ],
)
def test_what_it_cannot_say(text, registry, problem):
    """It is told, and nothing is written; no header's value is shown."""
    found = planned(text, registry)

    assert (found.write, found.results) == (None, [])
    assert problem in "; ".join(found.problems)
    assert "c2VjcmV0" not in str(found.problems)


def test_absent_where_nothing_is():
    """There is nothing to take out."""
    found = planned(THERE, {"registry": "quay.io", "state": "absent"})

    assert (found.write, found.problems) == (None, [])


def test_the_registry_itself_as_server():
    """That is what k3s does anyway."""
    assert planned("", {**hub(), "server": "https://registry-1.docker.io"}).problems == []


def test_credentials_are_hidden():
    """By value wherever they turn up, and by place in a diff, in comments too."""
    text = THERE + "# password: old1\nauths: {a: {auth: abcd1234}}\n"

    assert find_yaml_secrets(text.encode()) == {"robot", "hunter22", "abcd1234"}
    hidden = without_yaml_secrets(text)
    assert not any(word in hidden for word in ("robot", "hunter22", "old1", "abcd1234"))
    assert "https://all.example" in hidden
    assert find_yaml_secrets(b"a: b: c") == set() == find_yaml_secrets(None)


def test_named_registries():
    """All that the file says something of."""
    assert named_registries(THERE.encode()) == ["*", "m.example:5000"]
    assert named_registries(None) == []
