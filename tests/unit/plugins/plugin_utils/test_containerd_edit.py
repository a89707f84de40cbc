# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import tomllib

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.containerd_toml import scan
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_edit import (
    EditError,
    Splice,
    apply_splices,
    is_same,
    pruned,
    quote,
    remove_path,
    set_value,
    value_at,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.plugins.plugin_utils.containerd_samples import documents

CRI = "io.containerd.grpc.v1.cri"
TABLE = ("plugins", CRI, "registry")


def comments(text):
    return sorted(text[start:end] for start, end in scan(text).comments)


def edit(text, value="/c", table=TABLE):
    return apply_splices(text, set_value(text, table, "config_path", value))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            f'[plugins."{CRI}".registry]\n  config_path = ""\n',
            f'[plugins."{CRI}".registry]\n  config_path = "/c"\n',
            id="empty-value",
        ),
        pytest.param(
            f"[plugins.'{CRI}'.registry]\n  config_path = '/old' # why\n",
            f"[plugins.'{CRI}'.registry]\n  config_path = '/c' # why\n",
            id="literal-quotes-and-comment",
        ),
        pytest.param(
            f'[plugins]\n  [plugins."{CRI}"]\n    [plugins."{CRI}".registry]\n'
            f'      [plugins."{CRI}".registry.mirrors]\n',
            f'[plugins]\n  [plugins."{CRI}"]\n    [plugins."{CRI}".registry]\n      config_path = "/c"\n'
            f'      [plugins."{CRI}".registry.mirrors]\n',
            id="header-without-keys-uses-the-indentation-of-the-file",
        ),
        pytest.param(
            f'[plugins."{CRI}".registry]\n\tmax = 1\n\n# about other\n[other]\na = 1\n',
            f'[plugins."{CRI}".registry]\n\tmax = 1\n\tconfig_path = "/c"\n\n# about other\n[other]\na = 1\n',
            id="after-the-last-key-of-the-table",
        ),
        pytest.param(
            f'[plugins."{CRI}".registry]',
            f'[plugins."{CRI}".registry]\n  config_path = "/c"',
            id="header-at-the-end-without-newline",
        ),
        pytest.param(
            f'version = 2\r\n[plugins."{CRI}"]\r\n  a = 1',
            f'version = 2\r\n[plugins."{CRI}"]\r\n  a = 1\r\n\r\n[plugins."{CRI}".registry]\r\n  config_path = "/c"',
            id="new-table-in-crlf-without-final-newline",
        ),
        pytest.param(
            f"version = 2\n\n[plugins.'{CRI}'.cni]\n    bin_dir = '/b'\n\n",
            f"version = 2\n\n[plugins.'{CRI}'.cni]\n    bin_dir = '/b'\n\n"
            f"[plugins.'{CRI}'.registry]\n    config_path = '/c'\n\n",
            id="new-table-takes-quotes-and-indentation",
        ),
        pytest.param(
            f'[plugins]\n  [plugins."{CRI}"]\n    a = 1\n    # b = 2\n\n  # about opt\n  [plugins.opt]\n    c = 3\n',
            f'[plugins]\n  [plugins."{CRI}"]\n    a = 1\n    # b = 2\n    [plugins."{CRI}".registry]\n'
            '      config_path = "/c"\n\n  # about opt\n  [plugins.opt]\n    c = 3\n',
            id="new-table-below-its-plugin-and-the-comments-of-that",
        ),
        pytest.param(
            f'[a]\n\n[plugins."{CRI}".cni]\n# about opt\n[plugins.opt]\n',
            f'[a]\n\n[plugins."{CRI}".cni]\n\n[plugins."{CRI}".registry]\n  config_path = "/c"\n# about opt\n'
            "[plugins.opt]\n",
            id="new-table-above-the-comment-of-the-next",
        ),
        pytest.param(
            f'[plugins."{CRI}"]\n  registry = {{ mirrors = {{}} }} # end\n',
            f'[plugins."{CRI}"]\n  registry = {{ config_path = "/c", mirrors = {{}} }} # end\n',
            id="inline-table",
        ),
        pytest.param(
            f'[plugins."{CRI}"]\n  registry = {{}}\n',
            f'[plugins."{CRI}"]\n  registry = {{ config_path = "/c" }}\n',
            id="empty-inline-table",
        ),
        pytest.param(
            f'[plugins]\n"{CRI}" = {{a = 1}}\n',
            f'[plugins]\n"{CRI}" = {{ registry.config_path = "/c", a = 1}}\n',
            id="inline-plugin-table",
        ),
        pytest.param(
            f'[plugins."{CRI}"]\nregistry.headers.a = ["b"]\nx = 1\n',
            f'[plugins."{CRI}"]\nregistry.headers.a = ["b"]\nregistry.config_path = "/c"\nx = 1\n',
            id="dotted-keys",
        ),
        pytest.param(
            f"plugins.'{CRI}'.sandbox_image = 'p'\n[debug]\nlevel = 'info'\n",
            f"plugins.'{CRI}'.sandbox_image = 'p'\nplugins.'{CRI}'.registry.config_path = \"/c\"\n"
            "[debug]\nlevel = 'info'\n",
            id="dotted-keys-at-the-root",
        ),
        pytest.param(
            f'[plugins."{CRI}".registry.mirrors."docker.io"]\nendpoint = ["https://m"]\n# mine\n'
            f'[plugins."{CRI}".registry]\n',
            f'[plugins."{CRI}".registry.mirrors."docker.io"]\nendpoint = ["https://m"]\n# mine\n'
            f'[plugins."{CRI}".registry]\nconfig_path = "/c"\n',
            id="table-declared-after-its-sub-table",
        ),
        pytest.param(
            "# nothing but this\n",
            f'# nothing but this\n\n[plugins."{CRI}".registry]\n  config_path = "/c"\n',
            id="only-comments",
        ),
        pytest.param("", f'[plugins."{CRI}".registry]\n  config_path = "/c"\n', id="empty"),
    ],
)
def test_set_directory(before, after):
    """The value lands in the table, in the style of the text; a second edit has nothing to do."""
    assert edit(before) == after
    assert set_value(after, TABLE, "config_path", "/c") == []


def test_second_registry_table_is_never_written():
    """A literal-quoted header is the same table as a basic-quoted one, so it is edited in place."""
    text = f"[plugins.'{CRI}'.registry]\n"

    assert edit(text).count("registry]") == 1


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f'[plugins]\n"{CRI}" = 1\n', id="a-number"),
        pytest.param(f'[[plugins."{CRI}".registry]]\na = 1\n', id="array-of-tables"),
    ],
)
def test_what_is_no_table_is_refused(text):
    """Where the path leads through something else, the edit says so instead of writing an invalid file."""
    with pytest.raises(EditError):
        edit(text)


@given(st.text(max_size=30), st.sampled_from("\"'"))
def test_quote_round_trips(value, mark):
    """Any text, quoted, is read back as itself."""
    assert tomllib.loads(f"a = {quote(value, mark)}") == {"a": value}


def test_splices_must_fit():
    """A splice made for another text is refused."""
    with pytest.raises(EditError, match="offset 1"):
        apply_splices("abc", [Splice(1, "x", "y")])


@given(documents())
def test_edit_keeps_every_other_byte(text):
    """Taking the inserted text out of the new one gives the old one back, and only the one value differs."""
    try:
        splices = set_value(text, TABLE, "config_path", "/c")
    except EditError:
        return
    edited = apply_splices(text, splices)
    back, shift = [], 0
    for splice in splices:
        back.append(Splice(splice.start + shift, splice.inserted, splice.removed))
        shift += len(splice.inserted) - len(splice.removed)

    assert apply_splices(edited, back) == text
    assert tomllib.loads(edited)["plugins"][CRI]["registry"]["config_path"] == "/c"
    assert set_value(edited, TABLE, "config_path", "/c") == []


MIRRORS = (*TABLE, "mirrors")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            f'[plugins."{CRI}".registry]\n  config_path = ""\n  [plugins."{CRI}".registry.mirrors]\n'
            f'    [plugins.\'{CRI}\'.registry.mirrors."docker.io"]\n      endpoint = [\n        "https://m",\n      ]\n'
            f'  [plugins."{CRI}".registry.headers]\n',
            f'[plugins."{CRI}".registry]\n  config_path = ""\n  [plugins."{CRI}".registry.headers]\n',
            id="tables",
        ),
        pytest.param(
            f'a = 1\n[plugins."{CRI}".registry.mirrors.x]\n# mine\nendpoint = []\n\n[b]\n',
            "a = 1\n# mine\n\n[b]\n",
            id="comments-and-blank-lines-stay",
        ),
        pytest.param(
            f'[plugins."{CRI}".registry]\nmirrors."docker.io".endpoint = []\nmirrors.x = {{}}\nb = 1\n',
            f'[plugins."{CRI}".registry]\nb = 1\n',
            id="dotted-keys",
        ),
        pytest.param(
            f'[plugins."{CRI}"]\nregistry = {{ mirrors = {{ a = {{}} }}, configs = {{}} }} # end\n',
            f'[plugins."{CRI}"]\nregistry = {{ configs = {{}} }} # end\n',
            id="first-of-an-inline-table",
        ),
        pytest.param(
            f'[plugins."{CRI}"]\nregistry = {{ configs = {{}}, mirrors = {{ a = {{}} }} }}\n',
            f'[plugins."{CRI}"]\nregistry = {{ configs = {{}} }}\n',
            id="last-of-an-inline-table",
        ),
        pytest.param(
            f'[plugins."{CRI}"]\r\nx = 1\r\n[plugins."{CRI}".registry.mirrors]',
            f'[plugins."{CRI}"]\r\nx = 1',
            id="last-line-without-newline-in-crlf",
        ),
        pytest.param("a = 1\n", "a = 1\n", id="nothing-there"),
        pytest.param(
            f'a = 1\n\n[plugins."{CRI}".registry.mirrors.x]\nendpoint = []\n\n\n[b]\n',
            "a = 1\n\n[b]\n",
            id="one-side-of-blank-lines",
        ),
        pytest.param(
            f'a = 1\n[plugins."{CRI}".registry.mirrors]\n\n[plugins."{CRI}".registry.mirrors.x]\n\n[b]\n',
            "a = 1\n\n[b]\n",
            id="blank-lines-between-go-too",
        ),
        pytest.param(f'[plugins."{CRI}".registry.mirrors]\n\n[b]\n', "[b]\n", id="first-of-the-file"),
        pytest.param(f'\ufeff[plugins."{CRI}".registry.mirrors]\n', "\ufeff", id="all-of-the-file"),
        pytest.param(f'a = 1\n\n[plugins."{CRI}".registry.mirrors]\n', "a = 1\n", id="last-of-the-file"),
        pytest.param(f'a = 1 \n\n[plugins."{CRI}".registry.mirrors]', "a = 1 ", id="last-of-an-open-file"),
        pytest.param(
            f'[plugins."{CRI}".registry.mirrors.x] # hub\r\n  endpoint = [ # two\r\n    "https://a#b", # first\r\n'
            "    # none\r\n  ] # end\r\n",
            "# hub\r\n  # two\r\n    # first\r\n    # none\r\n  # end\r\n",
            id="comments-beside-what-goes",
        ),
        pytest.param(f'a = 1\n[plugins."{CRI}".registry.mirrors] # end', "a = 1\n# end", id="comment-of-an-open-file"),
        pytest.param(
            f'[plugins."{CRI}"]\n  registry = {{ mirrors.a.endpoint = [ # one\n "x" ], b = 1 }}\n',
            f'[plugins."{CRI}"]\n  # one\n  registry = {{ b = 1 }}\n',
            id="comment-in-an-inline-table",
        ),
    ],
)
def test_remove_table(before, after):
    """Header and key lines go, in any spelling; comments and the way the file ends stay, no gap is left."""
    assert apply_splices(before, remove_path(before, MIRRORS)) == after


@given(documents())
def test_remove_takes_nothing_else(text):
    """Whatever the spelling, only what is below the path is gone."""
    edited = apply_splices(text, remove_path(text, MIRRORS))
    registry = tomllib.loads(edited)
    for name in TABLE:
        registry = registry.get(name, {}) if isinstance(registry, dict) else {}

    assert not isinstance(registry, dict) or "mirrors" not in registry
    assert remove_path(edited, MIRRORS) == []
    assert comments(edited) == comments(text)


@pytest.mark.parametrize(
    ("before", "path", "value", "after"),
    [
        pytest.param("a = 1\n\n[b]\n", ("oom_score",), -999, "a = 1\noom_score = -999\n\n[b]\n", id="below-root-keys"),
        pytest.param(
            "# mine\n[b]\nc = 1\n", ("root",), "/r", 'root = "/r"\n# mine\n[b]\nc = 1\n', id="root-before-tables"
        ),
        pytest.param("\ufeff[b]", ("root",), "/r", '\ufeffroot = "/r"\n[b]', id="root-after-the-byte-order-mark"),
        pytest.param("", ("root",), "/r", 'root = "/r"\n', id="root-of-an-empty-text"),
        pytest.param("[a]\nb = false # why\n", ("a", "b"), True, "[a]\nb = true # why\n", id="boolean"),
        pytest.param("[a]\nb = 1\n", ("a", "b"), True, "[a]\nb = true\n", id="true-is-not-one"),
        pytest.param("[a]\nb = 0x10\n", ("a", "b"), 16, "[a]\nb = 0x10\n", id="same-number-in-another-spelling"),
        pytest.param('[a]\nb = """\nx"""\n', ("a", "b"), "x", '[a]\nb = """\nx"""\n', id="same-text"),
        pytest.param("[a]\nb = ['x']\n", ("a", "b"), ["y", "z"], "[a]\nb = ['y', 'z']\n", id="list-keeps-its-quotes"),
        pytest.param("[a]\nb = ['x']\n", ("a", "b"), [], "[a]\nb = []\n", id="empty-list"),
        pytest.param("[a]\n", ("a", "b c"), 1, '[a]\n  "b c" = 1\n', id="key-that-needs-quotes"),
        pytest.param("a = {}\n", ("a", "b", "c"), 1, "a = { b.c = 1 }\n", id="inline-table"),
    ],
)
def test_set_value(before, path, value, after):
    """Values of every kind land where they belong, and what says the same already stays as it is spelt."""
    assert apply_splices(before, set_value(before, path[:-1], path[-1], value)) == after
    assert set_value(after, path[:-1], path[-1], value) == []


def test_a_table_is_not_replaced_by_a_value():
    """A value would take everything below with it."""
    with pytest.raises(EditError, match=r"a\.b is a table here"):
        set_value("[a.b]\nc = 1\n", ("a",), "b", 1)


@pytest.mark.parametrize(
    ("before", "path", "after"),
    [
        pytest.param("[a]\nb = 1\nc = 2\n", ("a", "b"), "[a]\nc = 2\n", id="key"),
        pytest.param("b = [\n  'x',\n]\nc = 2\n", ("b",), "c = 2\n", id="array-of-several-lines"),
    ],
)
def test_remove_a_value(before, path, after):
    """A single key goes with its line."""
    assert apply_splices(before, remove_path(before, path)) == after


VALUES = st.one_of(
    st.text(max_size=9), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.lists(st.text(max_size=5), max_size=3)
)
PATHS = st.lists(st.sampled_from(("plugins", CRI, "registry", "tls", "a b", "endpoint")), min_size=1, max_size=5)


@given(documents(), PATHS.map(tuple), VALUES)
def test_any_value_can_be_set_and_taken_out(text, path, value):
    """The value is read back, a second edit has nothing to do, and taking it out leaves all other values."""
    try:
        old = value_at(tomllib.loads(text), path)
        edited = apply_splices(text, set_value(text, path[:-1], path[-1], value))
    except EditError:
        return
    assert is_same(value_at(tomllib.loads(edited), path), value)
    assert set_value(edited, path[:-1], path[-1], value) == []

    if old is None:
        removed = apply_splices(edited, remove_path(edited, path))
        assert pruned(tomllib.loads(removed)) == pruned(tomllib.loads(text))
