# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import tomllib

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_edit import value_at
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_effective import parse_version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_plan import (
    Options,
    Write,
    plan_present,
    plan_restore,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_settings import parse_settings
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.plugins.plugin_utils.containerd_samples import documents

MAIN = "/etc/containerd/config.toml"
DROP = "/etc/containerd/drop.toml"
V1, OLD, IMAGES, RUNTIME = (
    "cri",
    "io.containerd.grpc.v1.cri",
    "io.containerd.cri.v1.images",
    "io.containerd.cri.v1.runtime",
)
GC = "io.containerd.gc.v1.scheduler"
DAEMONS = ("1.6.20", "1.7.34", "2.0.11", "2.2.1", "2.3.4", "2.4.2")


def setting(path, value=None):
    """Return one item of the option; without a value it is to be absent."""
    *table, key = path
    return {"table": table, "key": key, **({"state": "absent"} if value is None else {"value": value})}


def plan(content, version, *settings, drop=None):
    files = {MAIN: content.encode(), **({} if drop is None else {DROP: drop.encode()})}
    return plan_present(files, parse_version(version), Options("/c", settings=parse_settings(list(settings))))


def head(version, plugin=OLD):
    """Return a file in which the registry directory is set already."""
    return f'version = {version}\n[plugins."{plugin}".registry]\nconfig_path = "/c"\n'


@pytest.mark.parametrize(
    ("version", "before", "path", "value", "added"),
    [
        pytest.param("1.7.34", head(2), ("plugins", OLD, "enable_selinux"), True, "enable_selinux = true", id="1.x"),
        pytest.param("2.2.1", head(2), ("plugins", OLD, "cni", "max_conf_num"), 2, "max_conf_num = 2", id="2.x-v2"),
        pytest.param("2.2.1", head(3, IMAGES), ("plugins", RUNTIME, "enable_selinux"), True, "= true", id="2.x-v3"),
        pytest.param("2.2.1", head(2, IMAGES), ("plugins", RUNTIME, "cdi_spec_dirs"), ["/a"], '["/a"]', id="2.x-aks"),
        pytest.param("2.2.1", head(2), ("plugins", GC, "pause_threshold"), "1", '"1"', id="another-plugin"),
        pytest.param("2.2.1", head(2), ("oom_score",), -999, "oom_score = -999", id="root"),
        pytest.param("1.6.20", "", ("plugins", OLD, "enable_selinux"), True, "enable_selinux = true", id="no-file"),
        pytest.param(
            "2.0.11", head(2), ("plugins", IMAGES, "snapshotter"), "x", 'snapshotter = "x"', id="not-migrated"
        ),
    ],
)
def test_a_setting(version, before, path, value, added):
    """It lands in the file, a second plan is empty, and the daemon is restarted for it."""
    found = plan(before, version, setting(path, value))
    after = found.writes[-1].after.decode()

    assert found.findings == []
    assert added in after
    assert value_at(tomllib.loads(after), path) == value
    assert found.more_changes and found.after.config_path == "/c"
    assert plan(after, version, setting(path, value)).writes == []
    assert not plan(after, version, setting(path, value)).more_changes


def test_absent():
    """A key, or a table with all that is below, is taken out; what is not there is left."""
    text = head(2) + f'[plugins."{OLD}".containerd.runtimes.kata]\nruntime_type = "k"\n[debug]\nlevel = "info"\n'
    path = ("plugins", OLD, "containerd", "runtimes", "kata")
    found = plan(text, "1.7.34", setting(path), setting(("debug", "level")))

    assert found.writes[-1].after.decode() == head(2) + "[debug]\n"
    assert plan(head(2), "1.7.34", setting(path)).writes == []


@pytest.mark.parametrize(
    ("version", "before", "path", "right"),
    [
        pytest.param(
            "2.2.1", head(3, IMAGES), (OLD, "enable_selinux"), (RUNTIME, "enable_selinux"), id="shim-spin-386"
        ),
        pytest.param("2.3.4", head(4, IMAGES), (OLD, "sandbox_image"), (IMAGES, "pinned_images", "sandbox"), id="v4"),
        pytest.param("2.2.1", head(2), (OLD, "containerd", "snapshotter"), (IMAGES, "snapshotter"), id="not-migrated"),
        pytest.param("1.7.34", head(2), (RUNTIME, "cni", "conf_dir"), (OLD, "cni", "conf_dir"), id="new-key-on-1.x"),
        pytest.param("1.7.34", head(2), (V1, "enable_selinux"), (OLD, "enable_selinux"), id="short-name-in-v2"),
        pytest.param("1.7.34", head(1, V1), (OLD, "enable_selinux"), (V1, "enable_selinux"), id="full-name-in-v1"),
        pytest.param(
            "1.7.34", head(1, V1), (GC, "mutation_threshold"), ("scheduler", "mutation_threshold"), id="gc-v1"
        ),
        pytest.param("2.2.1", head(1, IMAGES), (V1, "enable_selinux"), (RUNTIME, "enable_selinux"), id="v1-on-2.2"),
        pytest.param(
            "2.2.1",
            head(2) + f'[plugins."{OLD}".cni]\nconf_dir = "/n"\n',
            (RUNTIME, "cni", "max_conf_num"),
            (OLD, "cni", "max_conf_num"),
            id="the-old-table-replaces-the-new-one",
        ),
        pytest.param(
            "2.2.1",
            head(2, IMAGES) + f'[plugins."{RUNTIME}".cni]\nmax_conf_num = 1\n',
            (OLD, "cni", "conf_dir"),
            (RUNTIME, "cni", "conf_dir"),
            id="the-new-table-is-in-use",
        ),
    ],
)
def test_a_table_that_is_not_read(version, before, path, right):
    """A finding names the table that this daemon reads for this file, and that one is taken."""
    (found,) = plan(before, version, setting(("plugins", *path), "x")).findings
    taken = plan(before, version, setting(("plugins", *right), "x"))

    assert found["id"] == "containerd.setting_ignored"
    assert found["remedy"] == f"give table {['plugins', *right[:-1]]} and key {right[-1]}"
    assert taken.findings == [] and taken.more_changes


def test_server_tables_of_version_4():
    """[metrics] of a version 4 file is inert, so the plugin is named."""
    (found,) = plan(head(4, IMAGES), "2.3.7", setting(("metrics", "address"), "127.0.0.1:1")).findings

    assert 'plugins."io.containerd.server.v1.metrics".address' in found["expected"]


def test_a_short_name_from_version_2_on():
    """No daemon reads it, and which plugin is meant cannot be told."""
    (found,) = plan(head(3, IMAGES), "2.2.1", setting(("plugins", "opt", "path"), "/x")).findings

    assert found["id"] == "containerd.setting_ignored" and "plugins.opt is no full name" in found["observed"]


@pytest.mark.parametrize(
    ("version", "path", "value", "drop", "observed"),
    [
        pytest.param(
            "2.2.1",
            ("plugins", OLD, "enable_selinux"),
            True,
            f'version = 2\n[plugins."{OLD}"]\nenable_selinux = false\n',
            f"is also set at {DROP} line 3",
            id="value-wins-on-2.x",
        ),
        pytest.param(
            "1.7.34",
            ("plugins", GC, "pause_threshold"),
            "1",
            f'version = 2\n[plugins."{GC}"]\nother = 1\n',
            f"{DROP} line 2 is loaded later and replaces the whole table",
            id="table-wins-on-1.x",
        ),
        pytest.param(
            "2.2.1", ("required_plugins",), ["a"], 'required_plugins = ["b"]\n', f"{DROP} line 1", id="lists-are-joined"
        ),
        pytest.param(
            "2.2.1",
            ("plugins", OLD, "enable_selinux"),
            True,
            f'version = 3\n[plugins."{RUNTIME}"]\n',
            f"{DROP} is of another version",
            id="versions-are-mixed",
        ),
        pytest.param("2.2.1", ("oom_score",), None, "oom_score = 7\n", f"{DROP} line 1", id="absent"),
    ],
)
def test_a_drop_in_that_wins(version, path, value, drop, observed):
    """The setting would not take effect, so nothing is written and the place is named."""
    found = plan(f'imports = ["drop.toml"]\n{head(2)}', version, setting(path, value), drop=drop)

    assert [item["id"] for item in found.findings] == ["containerd.setting_overridden"]
    assert observed in found.findings[0]["observed"]
    assert found.writes == [] and not found.more_changes


def test_a_drop_in_that_says_the_same():
    """What is effective already is not written again."""
    found = plan(f'imports = ["drop.toml"]\n{head(2)}', "2.2.1", setting(("oom_score",), 7), drop="oom_score = 7\n")

    assert (found.writes, found.findings) == ([], [])


def test_settings_are_judged_like_a_file():
    """A setting that switches CRI off is refused with the reason, and one that cannot be reached says so."""
    off = plan(head(2), "1.7.34", setting(("disabled_plugins",), [OLD]))
    number = plan(head(2) + f'[plugins."{GC}"]\na = 1\n', "1.7.34", setting(("plugins", GC, "a", "b"), 1))

    assert [item["id"] for item in off.findings] == ["containerd.cri_disabled"]
    assert [item["id"] for item in number.findings] == ["containerd.setting_unsafe"]
    assert f'plugins."{GC}".a is not a table here' in number.findings[0]["observed"]


WRONG = {
    "no list": ("x", "settings must be a list"),
    "no dict": (["x"], "item 1: expected table, key, value and state, got a text"),
    "unknown": ([{"key": "a", "valu": 1}], "got ['valu']"),
    "table": ([{"table": "plugins", "key": "a", "value": 1}], "table must be a list of names"),
    "key": ([{"value": 1}], "key must be a name, got None"),
    "state": ([{"key": "a", "state": "gone"}], "state must be present or absent"),
    "no value": ([{"key": "a"}], "value must be a string"),
    "float": ([{"key": "a", "value": 1.5}], "got 1.5"),
    "table as value": ([{"key": "a", "value": {"b": 1}}], "value must be a string"),
    "mixed list": ([{"key": "a", "value": ["b", 1]}], "value must be a list of strings"),
    "big": ([{"key": "a", "value": 2**63}], "a whole number of 64 bits"),
    "absent with value": ([{"key": "a", "value": 1, "state": "absent"}], "state absent takes no value"),
    "version": ([setting(("version",), 2)], "version decides what the rest"),
    "config_path": ([setting(("plugins", IMAGES, "registry", "config_path"), "/x")], "the option registry_config_path"),
    "mirrors": (
        [setting(("plugins", OLD, "registry", "mirrors", "m", "endpoint"), ["x"])],
        "convert_mirrors: use that",
    ),
    "tls": (
        [setting(("plugins", OLD, "registry", "configs", "m", "tls", "ca_file"), "x")],
        "the option convert_mirrors",
    ),
    "above": ([setting(("plugins", OLD))], "belongs to the option registry_config_path"),
    "nri": ([setting(("plugins", "io.containerd.nri.v1.nri", "disable"), False)], "the option nri: use that"),
    "twice": ([setting(("a", "b"), 1), setting(("a",))], "item 2: a and a.b are the same, or one is inside"),
}


@pytest.mark.parametrize(("items", "words"), WRONG.values(), ids=WRONG)
def test_wrong_settings(items, words):
    """What can never work is refused in one line that says where."""
    with pytest.raises(ValueError, match="settings") as caught:
        parse_settings(items)
    assert words in str(caught.value)


def test_values_of_a_playbook():
    """Ansible gives numbers and texts of types of its own; true stays no number."""
    kinds = [type(parse_settings([{"key": "a", "value": tagged}])[0].value) for tagged in (_Int(7), _Text("7"), True)]

    assert kinds == [int, str, bool]


class _Int(int):
    """As Ansible's tagged numbers."""


class _Text(str):
    """As Ansible's tagged texts."""


_PATHS = st.tuples(
    st.sampled_from((OLD, IMAGES, RUNTIME, V1, GC)),
    st.lists(st.sampled_from(("containerd", "cni", "a b", "tls", "endpoint")), min_size=1, max_size=3),
)
_VALUES = st.one_of(
    st.none(), st.text(max_size=5), st.booleans(), st.integers(-9, 9), st.lists(st.sampled_from("ab"), max_size=2)
)
_TOPS = st.sampled_from(("", "version = 2\n", "version = 3\n"))


@given(st.builds(str.__add__, _TOPS, documents()), st.sampled_from(DAEMONS), _PATHS, _VALUES)
def test_any_setting_of_any_file(content, version, path, value):
    """A plan has findings and writes nothing, or is repeated without a change and given back byte for byte."""
    name, keys = path
    item = setting(("plugins", name, *keys), value)
    found = plan(content, version, item)

    if found.findings:
        assert found.writes == []
        return
    after = found.writes[-1].after if found.writes else content.encode()
    assert plan(after.decode(), version, item).writes == []
    undone = plan_restore({MAIN: after}, parse_version(version), {MAIN: Write(MAIN, after, content.encode())})
    assert undone.after == found.before and undone.nri_after == found.nri_before
    assert undone.more_changes or not found.more_changes
