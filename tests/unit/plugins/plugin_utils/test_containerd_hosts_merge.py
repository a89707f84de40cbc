# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wanted hosts in a hosts.toml of somebody else."""

from __future__ import annotations

import tomllib

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_hosts import (
    Host,
    HostsError,
    HostsFile,
    read_hosts,
    render,
    same_hosts,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_hosts_merge import merge
from hypothesis import given
from hypothesis import strategies as st

PULL = ("pull", "resolve")
M, N = Host("https://m", PULL), Host("https://n", PULL)
BOTH = 'capabilities = ["pull", "resolve"]\n'
TABLE_M = f'[host."https://m"]\n{BOTH}'
DIRECTORY = "/c/docker.io"


def wanted(*hosts, server=None):
    return HostsFile("docker.io", hosts, server)


def merged(text, hosts):
    return merge(text.encode(), hosts, DIRECTORY)


@pytest.mark.parametrize(
    ("text", "hosts", "expected"),
    [
        pytest.param(TABLE_M, wanted(M), TABLE_M, id="the-same"),
        pytest.param("", wanted(M), f'[host."https://m"]\n  {BOTH}', id="empty-file"),
        pytest.param(
            f"# mine\n{TABLE_M}\n# end\n",
            wanted(M, N),
            f'# mine\n{TABLE_M}\n# end\n\n[host."https://n"]\n{BOTH}',
            id="host",
        ),
        pytest.param(
            f"{TABLE_M}# why\n",
            wanted(Host("https://m", PULL, ca=("/ca",), skip_verify=True)),
            f'{TABLE_M}ca = "/ca"\nskip_verify = true\n# why\n',
            id="keys",
        ),
        pytest.param(
            "[host.'https://m']\r\n  capabilities = ['pull', 'resolve'] # both\r\n",
            wanted(Host("https://m", PULL, client=(("/c", "/k"),))),
            "[host.'https://m']\r\n  capabilities = ['pull', 'resolve'] # both\r\n  client = [['/c', '/k']]\r\n",
            id="style-of-the-text",
        ),
        pytest.param(
            f'{TABLE_M}[host."https://m".header]\nX-A = "1"\n[host."https://o"]\n',
            wanted(Host("https://m", PULL, header=(("x-a", ("1",)), ("X-B", ("2", "3"))))),
            f'{TABLE_M}[host."https://m".header]\nX-A = "1"\nX-B = ["2", "3"]\n[host."https://o"]\n',
            id="header-beside-header",
        ),
        pytest.param(
            f'{TABLE_M}[host."https://o"]\n',
            wanted(Host("https://m", PULL, header=(("X-B", ("2",)),))),
            f'{TABLE_M}[host."https://m".header]\nX-B = "2"\n[host."https://o"]\n',
            id="header-below-its-host",
        ),
        pytest.param(
            f"# mine\n{TABLE_M}",
            wanted(M, server=Host("https://other.example")),
            f'server = "https://other.example"\n# mine\n{TABLE_M}',
            id="server",
        ),
        pytest.param(
            TABLE_M, wanted(M, server=Host("https://registry-1.docker.io")), TABLE_M, id="server-that-is-the-registry"
        ),
        pytest.param(
            f'server = "https://registry-1.docker.io"\n{TABLE_M}',
            wanted(M),
            f'server = "https://registry-1.docker.io"\n{TABLE_M}',
            id="registry-that-is-the-server",
        ),
        pytest.param(
            f'[host."https://m/v2"]\n{BOTH}',
            wanted(M),
            f'[host."https://m/v2"]\n{BOTH}',
            id="same-place-other-spelling",
        ),
        pytest.param(
            f'[host."https://m"]\n{BOTH}ca = ["ca.pem"]\ndial_timeout = "1s"\n',
            wanted(Host("https://m", PULL, ca=("/c/docker.io/ca.pem",))),
            f'[host."https://m"]\n{BOTH}ca = ["ca.pem"]\ndial_timeout = "1s"\n',
            id="relative-path-and-keys-of-their-own",
        ),
    ],
)
def test_what_goes_in(text, hosts, expected):
    """What is missing is added where it belongs, in the style of the text."""
    found = merged(text, hosts)

    assert found.differences == []
    assert found.text == expected


@pytest.mark.parametrize(
    ("text", "hosts", "line", "found", "want"),
    [
        pytest.param(
            f'# a\nserver = "https://z"\n{TABLE_M}',
            wanted(M),
            2,
            'server = "https://z"',
            "the registry itself",
            id="server",
        ),
        pytest.param(
            f'server = "https://z"\n{TABLE_M}',
            wanted(M, server=Host("https://y")),
            1,
            "https://z",
            "https://y",
            id="other-server",
        ),
        pytest.param(
            f"{TABLE_M}skip_verify = true\n", wanted(M), 3, "skip_verify = true", "skip_verify = false", id="verify"
        ),
        pytest.param(
            '[host."https://m"]\ncapabilities = ["pull"]\n', wanted(M), 2, '["pull"]', '["pull", "resolve"]', id="can"
        ),
        pytest.param('[host."https://m"]\ncapabilities = []\n', wanted(M), 2, "[]", '["pull", "resolve"]', id="all"),
        pytest.param(
            f'{TABLE_M}ca = "/a"\n', wanted(Host("https://m", PULL, ca=("/b",))), 3, 'ca = "/a"', 'ca = "/b"', id="ca"
        ),
        pytest.param(
            f'{TABLE_M}client = "/a"\n',
            wanted(Host("https://m", PULL, client=(("/a", "/k"),))),
            3,
            'client = "/a"',
            'client = [["/a", "/k"]]',
            id="client",
        ),
        pytest.param(
            f'[host."https://m/x"]\n{BOTH}override_path = false\n',
            wanted(Host("https://m/x", PULL, override_path=True)),
            3,
            "override_path = false",
            "override_path = true",
            id="path",
        ),
        pytest.param(
            f'[host."https://n"]\n{BOTH}{TABLE_M}',
            wanted(M, N),
            3,
            "https://n, https://m",
            "https://m, https://n",
            id="order",
        ),
        pytest.param(TABLE_M, wanted(N, M), 1, "the hosts https://m", "the order https://n, https://m", id="first"),
        pytest.param("[host\n", wanted(M), 1, "expected ']'", "takes for what it says", id="no-toml"),
        pytest.param('a = 1\n[host."https://m"]\nca = 1\n', wanted(M), 3, "ca is not a path", "takes for", id="type"),
        pytest.param(
            '[host."https://m"]\ncapabilities = ["fetch"]\n', wanted(M), 2, "capabilities is not", "takes", id="unknown"
        ),
        pytest.param('host."https://m".ca = "/a"\n', wanted(M), 1, "2.0 and later ignore", "takes for", id="dotted"),
        pytest.param('host = {"https://m" = {}}\n', wanted(M), 1, "2.0 and later ignore", "takes for", id="inline"),
        pytest.param("\ufeff" + TABLE_M, wanted(M), 1, "a byte order mark", "takes for", id="mark"),
    ],
)
def test_contradictions(text, hosts, line, found, want):
    """Line and both values are named, and nothing is merged."""
    result = merged(text, hosts)

    assert result.text is None
    (difference,) = result.differences
    assert (difference.line, found in difference.found, want in difference.wanted) == (line, True, True), difference


def test_a_contradiction_in_a_header_shows_neither_value():
    """Both may be credentials."""
    text = f'{TABLE_M}[host."https://m".header]\nX-A = "theirs-secret"\n'
    (difference,) = merged(text, wanted(Host("https://m", PULL, header=(("x-a", ("ours-secret",)),)))).differences

    assert difference.line == 4
    assert "secret" not in str(difference)


def test_hosts_of_somebody_else_stay_and_are_named():
    """What the option does not mention is not lost, and not silent."""
    text = f'{TABLE_M}[host."https://o"]\n'
    found = merged(text, wanted(M))

    assert (found.text, found.others) == (text, ["https://o"])


URLS = st.sampled_from(
    ("https://m", "http://n:5000", "https://o/proxy", "https://o/proxy/v2", "m.example", "https://m/v2")
)
HOSTS = st.builds(
    Host,
    URLS,
    st.sampled_from((PULL, ("pull",), ("pull", "resolve", "push"))),
    st.sampled_from(((), ("/ca",), ("a", "/b"))),
    st.sampled_from(((), (("/c", "/k"),))),
    st.booleans(),
    st.booleans(),
    st.sampled_from(((), (("X-A", ("v",)),), (("x-a", ("v", "w")), ("B", ("",))))),
)
FILES = st.builds(
    HostsFile,
    st.sampled_from(("docker.io", "r:5000", "_default")),
    st.lists(HOSTS, min_size=1, max_size=3, unique_by=(lambda host: host.target, lambda host: host.url)).map(tuple),
    st.sampled_from((None, Host("https://registry-1.docker.io"), Host("https://r:5000"))),
)
VALUES = st.sampled_from(
    (
        'capabilities = ["pull", "resolve"]',
        "capabilities = ['PULL']",
        'ca = "/ca"',
        'client = [["/c", "/k"]] # c',
        "skip_verify = false",
        "override_path = true",
        "header = {  }",
        'header = { X-A = "v" }',
        "dial_timeout = '1s'",
        "# nothing",
        'header.B = [""]',
        "",
    )
)


@st.composite
def texts(draw):
    """A hosts.toml as people write them; lines that would make it invalid are left out."""
    newline = draw(st.sampled_from(("\n", "\r\n")))
    lines = []
    headers = st.builds(
        lambda url, mark, below: f"[host.{mark}{url}{mark}{below}]",
        URLS,
        st.sampled_from(("'", '"')),
        st.sampled_from(("", "", "", ".header")),
    )
    for line in draw(st.lists(st.one_of(headers, VALUES, st.just("server = 'https://r:5000'")), max_size=10)):
        try:
            tomllib.loads(newline.join([*lines, line]))
        except tomllib.TOMLDecodeError:
            continue
        lines.append(line)
    return newline.join(lines) + draw(st.sampled_from(("", newline)))


def is_subsequence(small, large):
    rest = iter(large)
    return all(char in rest for char in small)


@given(texts(), FILES)
def test_no_byte_is_lost_and_the_result_holds(text, hosts):
    """For any file and any wish: every byte is still there in its order, and merging again changes nothing."""
    found = merged(text, hosts)
    if found.text is None:
        assert found.differences
        return

    assert is_subsequence(text, found.text)
    assert merged(found.text, hosts).text == found.text
    again = read_hosts(found.text.encode())
    for host in hosts.hosts:
        assert host.target in [again.target_of(url) for url in again.urls]


@given(FILES)
def test_what_is_rendered_is_what_was_wanted(hosts):
    """A new file says the same to the reader, and nothing is to be merged into it."""
    text = render(hosts, "c")

    assert same_hosts(text.encode(), hosts, DIRECTORY)
    assert merged(text, hosts) == (text, [], [])


@given(texts())
def test_the_reader_has_an_answer_for_any_file(text):
    """It takes the file, or says why not."""
    try:
        found = read_hosts(text.encode())
    except HostsError as error:
        assert str(error)
    else:
        assert set(found.urls) == set(found.values.get("host", {}))
