# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
import yaml
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_edit import EditError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.yaml_edit import load_yaml, set_yaml
from hypothesis import given
from hypothesis import strategies as st

ENDPOINT = ("mirrors", "docker.io", "endpoint")
URL = "https://m.example:5000"


@pytest.mark.parametrize(
    ("text", "path", "value", "expected"),
    [
        pytest.param("", ENDPOINT, [URL], f"mirrors:\n  docker.io:\n    endpoint:\n      - {URL}\n", id="empty"),
        pytest.param("# mine\n", ("a",), "b", "# mine\na: b\n", id="only-a-comment"),
        pytest.param(
            "mirrors:  # mine\nconfigs: {}\n",
            ENDPOINT,
            [URL],
            f"mirrors:  # mine\n  docker.io:\n    endpoint:\n      - {URL}\nconfigs: {{}}\n",
            id="a-key-without-a-value",
        ),
        pytest.param(
            'mirrors:\n    "*":\n        endpoint: ["http://a"] # last\n\n# of configs\nconfigs:\n  a: {}\n',
            ENDPOINT,
            [URL],
            'mirrors:\n    "*":\n        endpoint: ["http://a"] # last\n'
            f"    docker.io:\n        endpoint:\n            - {URL}\n\n# of configs\nconfigs:\n  a: {{}}\n",
            id="beside-another",
        ),
        pytest.param(
            'mirrors:\n  docker.io:\n    endpoint: [ "http://a" ] # x\n    rewrite: {"^a": "b"}\n',
            ENDPOINT,
            [URL],
            f'mirrors:\n  docker.io:\n    endpoint: ["{URL}"] # x\n    rewrite: {{"^a": "b"}}\n',
            id="brackets",
        ),
        pytest.param(
            "mirrors:\n  docker.io:\n    endpoint:\n    - http://a # one\n    - http://b # two\n  # next\n  c:\n",
            ENDPOINT,
            [URL, "http://c"],
            f"mirrors:\n  docker.io:\n    endpoint:\n    - {URL}\n    - http://c\n  # next\n  c:\n",
            id="list",
        ),
        pytest.param("a:\r\n  b: c\r\n", ("a", "d"), True, "a:\r\n  b: c\r\n  d: true\r\n", id="crlf"),
        pytest.param("a:\n  b: c", ("a", "d"), "*", 'a:\n  b: c\n  d: "*"', id="no-final-newline"),
        pytest.param("a: |\n  text\nb: 1\n", ("c",), "d", "a: |\n  text\nb: 1\nc: d\n", id="block-text"),
        pytest.param("a: |\n  text\n", ("b",), "d", "a: |\n  text\nb: d\n", id="block-text-at-the-end"),
        pytest.param("---\n", ("a",), "b", "---\na: b\n", id="only-a-document-start"),
        pytest.param("---\na:\n  b: c\n", ("a", "d"), "*", '---\na:\n  b: c\n  d: "*"\n', id="document-start"),
        pytest.param("a: 'b' # c\n", ("a",), "d", "a: 'd' # c\n", id="scalar"),
        pytest.param(
            "mirrors: {a: {} }\n",
            ENDPOINT,
            [URL],
            f'mirrors: {{a: {{}}, docker.io: {{endpoint: ["{URL}"]}} }}\n',
            id="braces",
        ),
        pytest.param(
            "mirrors: {} # c\n",
            ENDPOINT,
            [URL],
            f'mirrors: {{docker.io: {{endpoint: ["{URL}"]}}}} # c\n',
            id="no-braces",
        ),
        pytest.param("mirrors: ~\n", ("mirrors", "a"), True, "mirrors: {a: true}\n", id="null"),
    ],
)
def test_set_yaml(text, path, value, expected):
    """What is asked for is there, and every other byte as before; a second time nothing changes."""
    assert set_yaml(text, path, value) == expected
    assert set_yaml(expected, path, value) == expected


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        pytest.param("- a\n", ENDPOINT, "holds a list", id="list"),
        pytest.param("a: b: c\n", ENDPOINT, "no YAML", id="no-yaml"),
        pytest.param("a: 1\n---\nb: 2\n", ENDPOINT, "no YAML", id="two-documents"),
        pytest.param("mirrors: text\n", ENDPOINT, "mirrors is no mapping", id="no-mapping"),
        pytest.param("x: &x\n  a: 1\nmirrors: *x\n", ("mirrors", "b"), "something else", id="alias"),
    ],
)
def test_what_cannot_be_edited(text, path, reason):
    """It is refused with the reason, never rewritten."""
    with pytest.raises(EditError, match=reason):
        set_yaml(text, path, [URL])


NAMES = st.sampled_from(["docker.io", "a.example:5000", "*", "b", "tls", "true", "1"])
TREES = st.recursive(
    st.one_of(st.sampled_from(["http://a", "x: y", "# no", "", "*"]), st.booleans(), st.lists(st.just("http://a"))),
    lambda children: st.dictionaries(NAMES, children, min_size=1, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(NAMES, TREES, max_size=3),
    st.booleans(),
    st.lists(NAMES, min_size=1, max_size=3),
    st.one_of(st.booleans(), st.sampled_from(["/etc/ca.crt", "a b", "*"]), st.just(["http://b", "http://c"])),
)
def test_any_text_is_set_or_refused(tree, in_braces, path, value):
    """The value is there and nothing else differs, or the text cannot be edited."""
    text = yaml.safe_dump(tree, default_flow_style=in_braces)
    try:
        edited = set_yaml(text, tuple(path), value)
    except EditError:
        return
    found = load_yaml(edited)
    for name in path:
        found = found[name]

    assert found == value
