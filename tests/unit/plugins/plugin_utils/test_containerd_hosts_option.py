# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_hosts import Host, HostsFile, render
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_hosts_option import parse_hosts, question

MIRROR = "https://mirror.example:5000"


def entry(**endpoint):
    return [{"registry": "docker.io", "endpoints": [{"url": MIRROR, **endpoint}]}]


def host_of(**endpoint):
    return parse_hosts(entry(**endpoint))[0].wanted.hosts[0]


def test_everything_that_can_be_said():
    """The option says what hosts.toml can say, in its words."""
    (parsed,) = parse_hosts(
        [
            {
                "registry": "docker.io",
                "server": "https://registry-1.docker.io",
                "endpoints": [
                    {
                        "url": MIRROR,
                        "capabilities": ["resolve", "pull", "push"],
                        "ca": "/ca.pem",
                        "client": ["c.pem", "c.key"],
                        "skip_verify": "yes",
                        "override_path": True,
                        "header": {"Authorization": "Basic abcd", "X-Many": ["1", "2"]},
                    },
                    {"url": "http://last.example", "ca": ["a", "b"], "client": [["c", "d"], ["e", "f"]]},
                ],
            }
        ]
    )

    assert parsed.wanted and render(parsed.wanted, "c") == (
        '# c\nserver = "https://registry-1.docker.io"\n\n[host."https://mirror.example:5000"]\n'
        '  capabilities = ["pull", "resolve", "push"]\n  override_path = true\n  ca = "/ca.pem"\n'
        '  client = [["c.pem", "c.key"]]\n  skip_verify = true\n'
        '  [host."https://mirror.example:5000".header]\n    Authorization = "Basic abcd"\n    X-Many = ["1", "2"]\n\n'
        '[host."http://last.example"]\n  capabilities = ["pull", "resolve"]\n  ca = ["a", "b"]\n'
        '  client = [["c", "d"], ["e", "f"]]\n'
    )


def test_the_defaults():
    """A host is for pulls, and checks certificates, unless told otherwise."""
    assert host_of() == Host(MIRROR, ("pull", "resolve"))
    assert host_of(capabilities="pull,resolve") == host_of()
    assert host_of(ca=None, header=None, client=[], skip_verify=False) == host_of()


def test_a_server_alone_is_a_host_too():
    """A file with a server only is not understood by 1.6."""
    (parsed,) = parse_hosts([{"registry": "r:5000", "server": "http://r:5000"}])

    assert parsed.wanted == HostsFile("r:5000", (Host("http://r:5000", ("pull", "resolve")),), Host("http://r:5000"))


def test_the_question_to_the_node_holds_no_secret():
    """It names registries and the files that must be there."""
    items = [*entry(ca="ca.pem", client=["/c", "/k"], header={"A": "hunter22"}), {"registry": "b", "state": "absent"}]

    assert question(parse_hosts(items)) == [
        {"registry": "docker.io", "files": ["ca.pem", "/c", "/k"]},
        {"registry": "b", "files": []},
    ]


@pytest.mark.parametrize(
    ("items", "words"),
    [
        pytest.param("docker.io", "hosts must be a list", id="no-list"),
        pytest.param(["docker.io"], "item 1: expected registry, server", id="no-table"),
        pytest.param([{"registry": "docker.io/library", "server": "https://a"}], "registry must be a host", id="path"),
        pytest.param([{"registry": "..", "server": "https://a"}], "registry must be a host", id="parent"),
        pytest.param([{"registry": "_backup", "server": "https://a"}], "registry must be a host", id="underscore"),
        pytest.param([{"registry": "https://a", "server": "https://a"}], "registry must be a host", id="address"),
        pytest.param([{"server": "https://a"}], "got nothing", id="no-registry"),
        pytest.param([{"registry": "a"}], "a needs endpoints, or a server", id="nothing-wanted"),
        pytest.param([{"registry": "a", "server": "a.example"}], "server must be an address", id="no-scheme"),
        pytest.param([{"registry": "a", "server": "https://a:99999"}], "scheme, host, port and path", id="port"),
        pytest.param([{"registry": "a", "server": "https://a?b"}], "scheme, host, port and path", id="query"),
        pytest.param([{"registry": "a", "servr": "https://a"}], "got servr", id="misspelt"),
        pytest.param([{"registry": "a", "state": "gone"}], "present or absent, got 'gone'", id="state"),
        pytest.param([{"registry": "a", "state": "absent", "server": "https://a"}], "takes no server", id="absent"),
        pytest.param([{"registry": "a", "state": "absent"}] * 2, "item 2: a is there twice", id="twice"),
        pytest.param([{"registry": "a", "endpoints": {"b": 1}}], "must be a list", id="endpoints"),
        pytest.param(
            entry(capabilities=["pul"]), "some of pull, resolve, push, referrers, got ['pul']", id="capability"
        ),
        pytest.param(entry(capabilities=[]), "got none", id="no-capability"),
        pytest.param(entry(ca=7), "ca must be a text", id="ca"),
        pytest.param(entry(ca="~/ca"), "a path on the node", id="home"),
        pytest.param(entry(client="/c"), "a pair of paths", id="client"),
        pytest.param(entry(client=[["a", "b"], ["c"]]), "a pair of paths", id="half-a-pair"),
        pytest.param(entry(skip_verify="perhaps"), "not a valid boolean", id="boolean"),
        pytest.param(entry(header={"a b": "x"}), "'a b', which is no name of a header", id="header-name"),
        pytest.param(entry(header={"A": "x", "a": "y"}), "header a is there twice", id="header-twice"),
        pytest.param(entry() * 2, "item 2: docker.io is there twice", id="registry-twice"),
        pytest.param(
            [{"registry": "a", "endpoints": [{"url": "https://m"}, {"url": "https://m/v2"}]}],
            "leads to a place that an endpoint before it leads to",
            id="same-place",
        ),
        pytest.param(
            [{"registry": "a", "endpoints": [{"url": "https://m"}, {"url": "https://m", "override_path": True}]}],
            "leads to a place that an endpoint before it leads to",
            id="same-address",
        ),
    ],
)
def test_what_can_never_work(items, words):
    """It is refused in one line that says which item."""
    with pytest.raises(ValueError, match="hosts") as caught:
        parse_hosts(items)

    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "items",
    [
        pytest.param(entry(header={"A": "hunter22\nB: c"}), id="line-break"),
        pytest.param(entry(header={"A": 22722272}), id="number"),
        pytest.param(entry(header={"A": ["hunter22", 7]}), id="list"),
        pytest.param(entry(header="A: hunter22"), id="text"),
        pytest.param(entry(headers={"A": "hunter22"}), id="misspelt"),
        pytest.param([{"registry": "a", "endpoints": ["hunter22"]}], id="no-table"),
        pytest.param([{"registry": "a", "server": "https://u:hunter22@a"}], id="user"),
        pytest.param([{"registry": "a", "server": "https://u:hun@hunter22@a"}], id="user-with-at"),
        pytest.param([{"registry": "https://u:hunter22@a", "server": "https://a"}], id="registry"),
    ],
)
def test_no_secret_in_a_refusal(items):
    """What is wrong is said without the value."""
    with pytest.raises(ValueError, match="hosts, item 1") as caught:
        parse_hosts(items)

    assert "hunter22" not in str(caught.value)
    assert "22722272" not in str(caught.value)
