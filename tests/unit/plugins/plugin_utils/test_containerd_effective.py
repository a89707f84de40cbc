# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import tomllib

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_effective import (
    BUILT_IN_PATHS,
    effective_registry,
    parse_version,
    registry_tables,
)

V1, OLD, NEW = "cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images"


def table(plugin, path="/main"):
    return f'[plugins."{plugin}".registry]\nconfig_path = "{path}"\n'


def effective(version, *texts):
    files = [(f"/f{number}", tomllib.loads(text)) for number, text in enumerate(texts)]
    return effective_registry(files, parse_version(version))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("1.6.20~ds1", (1, 6, 20), id="debian"),
        pytest.param("containerd github.com/containerd/containerd v1.7.24 abc", (1, 7, 24), id="--version"),
        pytest.param("v2.4.0-beta.0", (2, 4, 0), id="pre-release"),
    ],
)
def test_parse_version(text, expected):
    """The version is found in what CRI and the command print."""
    assert parse_version(text).version == expected


def test_parse_version_of_nothing():
    """No version is not guessed."""
    assert parse_version("") is None


# (daemon, file version): tables whose config_path the daemon uses. Source: facts measured on 1.6 to 2.3.
READS = {
    ("1.6.20", ""): {V1},
    ("1.6.20", "version = 2\n"): {OLD},
    ("1.7.34", ""): {V1},
    ("1.7.34", "version = 2\n"): {OLD},
    ("2.0.11", ""): {NEW},
    ("2.0.11", "version = 2\n"): {OLD, NEW},
    ("2.0.11", "version = 3\n"): {NEW},
    ("2.1.9", "version = 3\n"): {NEW},
    ("2.2.7", ""): {NEW},
    ("2.2.7", "version = 2\n"): {OLD, NEW},
    ("2.2.7", "version = 3\n"): {NEW},
    ("2.3.4", ""): {V1, OLD, NEW},
    ("2.3.4", "version = 2\n"): {OLD, NEW},
    ("2.3.4", "version = 3\n"): {OLD, NEW},
    ("2.3.4", "version = 4\n"): {NEW},
}


@pytest.mark.parametrize("plugin", [V1, OLD, NEW])
@pytest.mark.parametrize(("case", "expected"), [pytest.param(*item, id=f"{item[0]}") for item in READS.items()])
def test_which_table_is_read(case, expected, plugin):
    """Each daemon line reads other tables of the same file; the tables offered for an edit are among them."""
    daemon, version = case
    text = version + table(plugin)

    assert effective(daemon, text).is_set == (plugin in expected)
    assert {path[1] for path in registry_tables(tomllib.loads(version), parse_version(daemon))} <= expected


def test_old_table_replaces_the_new_one():
    """In a version 2 file on 2.x, grpc.v1.cri.registry takes the place of the whole images.registry."""
    text = "version = 2\n" + table(NEW, "/new") + f'[plugins."{OLD}".registry.headers]\nA = ["b"]\n'

    found = effective("2.1.9", text)

    assert (found.config_path, found.other) == ("", {"headers": {"A": ["b"]}})
    assert registry_tables(tomllib.loads(text), parse_version("2.1.9"))[0][1] == OLD


@pytest.mark.parametrize(
    ("daemon", "main", "dropin", "expected"),
    [
        pytest.param(
            "1.6.20",
            "version = 2\n" + table(OLD),
            f'version = 2\n[plugins."{OLD}".cni]\nbin_dir = "/b"\n',
            ("", ""),
            id="1.x-replaces-the-whole-table-of-a-plugin",
        ),
        pytest.param(
            "2.0.11",
            "version = 2\n" + table(OLD),
            f'version = 2\n[plugins."{OLD}".cni]\nbin_dir = "/b"\n',
            ("/main", "/f0"),
            id="2.x-merges",
        ),
        pytest.param(
            "2.0.11",
            "version = 2\n" + table(OLD),
            "version = 2\n" + table(OLD, ""),
            ("", "/f1"),
            id="2.x-empty-string-overrides",
        ),
        pytest.param(
            "2.0.11", "version = 2\n" + table(OLD), "version = 3\n", ("", ""), id="2.0-newer-drop-in-loses-main"
        ),
        pytest.param(
            "2.0.11",
            "version = 3\n" + table(NEW),
            f'version = 2\n[plugins."{OLD}".registry.headers]\nA = ["b"]\n',
            ("", ""),
            id="2.0-older-drop-in-with-registry-wipes",
        ),
        pytest.param(
            "2.0.11", "version = 2\n" + table(OLD), table(OLD, "/drop"), ("/drop", "/f1"), id="2.0-drop-in-no-version"
        ),
        pytest.param(
            "2.3.4",
            "version = 3\n" + table(NEW),
            "version = 2\n" + table(OLD, "/drop"),
            ("/drop", "/f1"),
            id="2.3-each",
        ),
        pytest.param("1.7.34", table(V1), "version = 2\n", ("", ""), id="1.x-drop-in-decides-the-version"),
        pytest.param("1.7.34", "version = 2\n" + table(OLD), "oom_score = 0\n", ("/main", "/f0"), id="1.x-unrelated"),
    ],
)
def test_imports(daemon, main, dropin, expected):
    """Imported files merge by the rules of the line; the file that decides is named."""
    found = effective(daemon, main, dropin)

    # 2.3 fills in its own directories where nothing is set; that is another rule.
    assert (found.config_path if found.is_set or found.config_path_file else "", found.config_path_file) == expected


@pytest.mark.parametrize(
    ("daemon", "text", "expected"),
    [
        pytest.param("2.1.9", "version = 3\n", "", id="2.1-none"),
        pytest.param("2.2.1", "version = 3\n", BUILT_IN_PATHS, id="2.2.1-default"),
        pytest.param("2.2.1", "version = 3\n" + table(NEW, ""), "", id="2.2.1-explicit-empty"),
        pytest.param("2.2.1", "version = 2\n" + table(OLD, ""), BUILT_IN_PATHS, id="2.2.1-migrated-empty"),
        pytest.param("2.2.7", "version = 3\n" + table(NEW, ""), BUILT_IN_PATHS, id="2.2.2-empty"),
        pytest.param(
            "2.2.7",
            f'version = 3\n[plugins."{NEW}".registry.mirrors.a]\nendpoint = []\n',
            "",
            id="2.2.2-not-beside-mirrors",
        ),
    ],
)
def test_built_in_directories(daemon, text, expected):
    """What a daemon uses by itself is effective, but no file sets it."""
    found = effective(daemon, text)

    assert (found.config_path, found.is_set) == (expected, False)


def test_legacy_tables_are_named_with_their_file():
    """Mirrors and TLS are found in whichever file brings them."""
    found = effective(
        "2.0.11",
        f'version = 3\n[plugins."{NEW}".registry.configs.a.tls]\nca_file = "/a"\n'
        f'[plugins."{NEW}".registry.configs.b.auth]\nusername = "u"\n',
        f'version = 3\n[plugins."{NEW}".registry.mirrors."docker.io"]\nendpoint = ["https://m"]\n',
    )

    assert (found.mirrors, found.tls) == ({"docker.io": "/f1"}, {"a": "/f0"})
