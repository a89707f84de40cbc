# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import tomllib

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_effective import parse_version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_migrate import HostsDirectory
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_plan import (
    DEFAULT_DIRECTORY,
    Options,
    Write,
    check_directory,
    plan_present,
    plan_restore,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_settings import Setting
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.plugins.plugin_utils.containerd_samples import documents
from tests.unit.plugins.plugin_utils.test_containerd_edit import comments

MAIN = "/etc/containerd/config.toml"
OLD, NEW = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images"


def present(content, version="1.7.24", wanted=None, **imports):
    files = {MAIN: content, **{f"/etc/containerd/{name}.toml": data for name, data in imports.items()}}
    return plan_present(files, parse_version(version), Options(wanted))


@pytest.mark.parametrize(
    ("version", "content", "after"),
    [
        pytest.param(
            "1.6.20",
            None,
            f'version = 2\n\n[plugins."{OLD}".registry]\n  config_path = "{DEFAULT_DIRECTORY}"\n',
            id="1.x-no-file",
        ),
        pytest.param(
            "2.1.9",
            b"",
            f'version = 3\n\n[plugins."{NEW}".registry]\n  config_path = "{DEFAULT_DIRECTORY}"\n',
            id="2.x-empty-file",
        ),
        pytest.param(
            "2.3.4",
            b"# mine\r\n",
            f'# mine\r\n\r\nversion = 3\r\n\r\n[plugins."{NEW}".registry]\r\n  config_path = "{DEFAULT_DIRECTORY}"\r\n',
            id="only-comments-in-crlf",
        ),
        pytest.param(
            "1.6.20",
            b'\xef\xbb\xbfversion = 2\n[plugins."io.containerd.grpc.v1.cri".registry]\n',
            '\ufeffversion = 2\n[plugins."io.containerd.grpc.v1.cri".registry]\n'
            f'  config_path = "{DEFAULT_DIRECTORY}"\n',
            id="1.x-keeps-the-byte-order-mark",
        ),
    ],
)
def test_whole_files(version, content, after):
    """A file without statements gets a version that every daemon of the line reads; marks and line ends stay."""
    plan = present(content, version)

    assert plan.findings == []
    assert [(write.path, write.before, write.after) for write in plan.writes] == [(MAIN, content, after.encode())]
    assert plan.after.config_path == DEFAULT_DIRECTORY


SET = f'version = 2\n[plugins."{OLD}".registry]\nconfig_path = "/elsewhere"\n'.encode()


@pytest.mark.parametrize(
    ("wanted", "writes", "effective"),
    [
        pytest.param(None, 0, "/elsewhere", id="kept-when-nothing-is-asked-for"),
        pytest.param("/elsewhere", 0, "/elsewhere", id="already-so"),
        pytest.param("/wanted", 1, "/wanted", id="changed-when-asked-for"),
    ],
)
def test_a_path_that_is_set(wanted, writes, effective):
    """A path that a file sets is only changed by an explicit option."""
    plan = present(SET, wanted=wanted)

    assert (len(plan.writes), plan.after.config_path) == (writes, effective)


def test_built_in_directories_are_not_a_set_path():
    """What containerd 2.2 fills in by itself is a list, so one directory is written."""
    assert present(b"version = 3\n", "2.2.7").after.config_path == DEFAULT_DIRECTORY


def test_a_kept_list_is_warned_of():
    """A colon list that a file sets stays, with the reason why it may not work."""
    plan = present(SET.replace(b"/elsewhere", b"/a:/b"))

    assert plan.writes == []
    assert "'/a:/b'; pulls through the transfer service" in plan.warnings[0]


MIRRORS = f'version = 2\n[plugins."{OLD}".registry.mirrors."docker.io"]\nendpoint = ["https://m"]\n'.encode()
TLS = f'version = 2\n[plugins."{OLD}".registry.configs.m.tls]\nca_file = "/ca"\n'.encode()


@pytest.mark.parametrize(
    ("version", "content", "finding", "observed"),
    [
        pytest.param(
            "1.7.24", b"\xff\xfev\0", "containerd.config_encoding", f"{MAIN} line 1: expected UTF-8", id="utf-16-mark"
        ),
        pytest.param("1.7.24", b"v\0e\0r\0", "containerd.config_encoding", "line 1: expected UTF-8", id="utf-16"),
        pytest.param("1.7.24", b"a = 1\n# \xe9\n", "containerd.config_encoding", "line 2: byte 0xe9", id="latin-1"),
        pytest.param("2.1.9", b"\xef\xbb\xbfversion = 3\n", "containerd.byte_order_mark", "line 1", id="bom-2.x"),
        pytest.param("1.7.24", b"a = 1\nb = 2\rc = 3\n", "containerd.config_invalid", "line 2: a carriage", id="cr"),
        pytest.param(
            "1.7.24", b"a = {b = 1,}\n", "containerd.config_invalid", "line 1: a comma after the last", id="comma"
        ),
        pytest.param(
            "1.7.24", b"a = {\r\n}\r\n", "containerd.config_invalid", "line 1: a line break inside", id="inline-lines"
        ),
        pytest.param(
            "1.7.24",
            b"a.b = 1\n[c]\n[a]\n",
            "containerd.config_invalid",
            "line 3: a is there a second time, the first one is in line 1",
            id="dotted-and-table",
        ),
        pytest.param(
            "1.7.24",
            b"\na = 1\na = 2\n",
            "containerd.config_invalid",
            "line 3: a is there a second time",
            id="twice",
        ),
        pytest.param("1.7.24", b"a = <%= @a %>\n", "containerd.config_template", "line 1: <% begins", id="erb"),
        pytest.param(
            "1.7.24",
            b"[a\nb = '{{ x }}'\n",
            "containerd.config_invalid",
            "line 1: Expected ']'",
            id="jinja-below",
        ),
        pytest.param(
            "1.7.24",
            b"apiVersion: v1\ndata: |\n  x = {{ x }}\n",
            "containerd.config_invalid",
            "line 1: Expected '='",
            id="yaml-with-jinja-below",
        ),
        pytest.param(
            "2.3.7",
            f'[plugins."{OLD}".registry]\n[[plugins."{NEW}"]]\n'.encode(),
            "containerd.config_invalid",
            f'line 2: plugins."{NEW}" is [{{}}]',
            id="plugin-that-is-an-array",
        ),
        pytest.param(
            "1.6.20",
            f'version = 2\n[plugins."{OLD}"]\nregistry = 1\n'.encode(),
            "containerd.config_invalid",
            f'line 3: plugins."{OLD}".registry is 1',
            id="registry-that-is-a-number",
        ),
        pytest.param("1.7.24", b"[[plugins]]\na = 1\n", "containerd.config_invalid", "line 1: plugins is", id="array"),
        pytest.param(
            "1.7.24", b"\na = " + b"[" * 4000 + b"]" * 4000, "containerd.config_invalid", "line 2: arrays or", id="deep"
        ),
        pytest.param(
            "2.1.9",
            f'version = 2\n[plugins."{OLD}".registry]\nconfig_path = ["/a"]\n'.encode(),
            "containerd.config_invalid",
            "line 3: registry.config_path is ['/a']",
            id="path-that-is-a-list",
        ),
        pytest.param(
            "2.4.2",
            f'[plugins."{OLD}".cni]\n[plugins.cri.registry]\nconfig_path = "/a"\n'.encode(),
            "containerd.config_ambiguous",
            "line 2: plugins.cri, and",
            id="both-names-of-cri",
        ),
        pytest.param(
            "1.7.24",
            b"[a]\n[a]\n",
            "containerd.config_invalid",
            "line 2: a is there a second time, the first one is in line 1",
            id="duplicate",
        ),
        pytest.param("1.7.24", b"a = 1\nb = {{ x }}\n", "containerd.config_template", "line 2: {{ begins", id="jinja"),
        pytest.param("1.7.24", b"\nversion = 3\n", "containerd.config_version", "line 2: version = 3", id="version-3"),
        pytest.param("1.7.24", b'version = "2"\n', "containerd.config_invalid", "line 1: version is '2'", id="text"),
        pytest.param(
            "1.7.24",
            f'version = 2\n[plugins."{OLD}".registry]\nmirrors = 7\n'.encode(),
            "containerd.config_invalid",
            "line 3: registry.mirrors is 7",
            id="mirrors-that-are-no-table",
        ),
        pytest.param(
            "1.7.24",
            f'version = 2\n[plugins."{OLD}".registry.mirrors.a]\nendpoint = "https://m"\n'.encode(),
            "containerd.mirrors_not_convertible",
            "expected a table with endpoint = [URLs]",
            id="endpoint-that-is-no-list",
        ),
        pytest.param(
            "1.7.24",
            b"version = 2\n[plugins.cri]\n",
            "containerd.config_invalid",
            "line 2: plugins.cri, a name of version 1",
            id="short-plugin-name",
        ),
        pytest.param(
            "1.7.24", b'disabled_plugins = ["cri"]\n', "containerd.cri_disabled", "line 1: 'cri' in", id="package-stub"
        ),
    ],
)
def test_refusals(version, content, finding, observed):
    """What cannot be edited safely is refused with file, line and reason, and nothing is written."""
    plan = present(content, version, "/wanted")

    assert [item["id"] for item in plan.findings] == [finding]
    assert observed in plan.findings[0]["observed"]
    assert plan.writes == []


@pytest.mark.parametrize(
    ("version", "content", "after", "host"),
    [
        pytest.param(
            "1.7.24",
            MIRRORS,
            b'version = 2\n\n[plugins."io.containerd.grpc.v1.cri".registry]\n  config_path = "/c"\n',
            b'[host."https://m"]\n',
            id="1.x",
        ),
        pytest.param(
            "2.1.9",
            MIRRORS,
            b'version = 2\n\n[plugins."io.containerd.grpc.v1.cri".registry]\n  config_path = "/c"\n',
            b'[host."https://m"]\n',
            id="2.x",
        ),
        pytest.param(
            "1.7.24",
            MIRRORS + f'[plugins."{OLD}".registry]\nconfig_path = "/c"\n'.encode(),
            f'version = 2\n[plugins."{OLD}".registry]\nconfig_path = "/c"\n'.encode(),
            b'[host."https://m"]\n',
            id="beside-the-wanted-path",
        ),
        pytest.param(
            "1.7.24",
            TLS + f'[plugins."{OLD}".registry.configs.m.auth]\nusername = "u"\n'.encode(),
            f'version = 2\n[plugins."{OLD}".registry.configs.m.auth]\nusername = "u"\n\n'
            f'[plugins."{OLD}".registry]\nconfig_path = "/c"\n'.encode(),
            b'[host."https://m"]\n  capabilities = ["pull", "resolve"]\n  ca = "/ca"\n',
            id="tls-goes-auth-stays",
        ),
    ],
)
def test_mirrors_are_converted(version, content, after, host):
    """The old tables go, hosts.toml files come first, and a second plan has nothing to do."""
    plan = present(content, version, "/c")

    assert plan.findings == []
    assert [write.path for write in plan.writes[-1:]] == [MAIN]
    assert plan.writes[-1].after.replace(b"\n\n", b"\n") == after.replace(b"\n\n", b"\n")
    assert [(item["file"], item["registry"]) for item in plan.converted] == [
        (write.path, write.path.split("/")[-2]) for write in plan.writes[:-1]
    ]
    assert host in plan.writes[0].after
    assert (plan.after.config_path, plan.after.mirrors, plan.after.tls) == ("/c", {}, {})
    assert present(plan.writes[-1].after, version, "/c").writes == []


@pytest.mark.parametrize(("url", "mode"), [("https://me:hunter2@m.example", 0o600), ("https://m.example", None)])
def test_a_converted_mirror_with_a_password(url, mode):
    """It may have been in a file that only root reads, and must not get into one that all do."""
    text = f'version = 2\n[plugins."{OLD}".registry.mirrors.a]\nendpoint = ["{url}"]\n'

    assert [write.mode for write in present(text.encode(), "1.7.24", "/c").writes] == [mode, None]


def test_mirrors_without_conversion():
    """With convert_mirrors off the tables are in the way, and named."""
    plan = plan_present({MAIN: MIRRORS}, parse_version("1.7.24"), Options(convert_mirrors=False))

    assert [item["id"] for item in plan.findings] == ["containerd.mirrors_present"]
    assert "registry.mirrors for docker.io in" in plan.findings[0]["observed"]


def test_mirrors_in_an_imported_file():
    """2.x merges, so the tables are taken out of whichever file has them."""
    plan = present(b'version = 2\nimports = ["drop.toml"]\n', "2.1.9", "/c", drop=MIRRORS)

    assert [write.path for write in plan.writes] == ["/c/docker.io/hosts.toml", MAIN, "/etc/containerd/drop.toml"]
    assert plan.writes[2].after == b"version = 2\n"


SAME = b'[host."https://m"]\ncapabilities = ["pull", "resolve"]\n'


@pytest.mark.parametrize(
    ("existing", "finding", "written"),
    [
        pytest.param({"docker.io": HostsDirectory(("hosts.toml",), SAME)}, "", 1, id="says-the-same"),
        pytest.param(
            {"docker.io": HostsDirectory(("hosts.toml",), SAME + b"skip_verify = true\n")},
            "docker.io/hosts.toml line 3: ",
            0,
            id="conflict",
        ),
        pytest.param(
            {"docker.io": HostsDirectory(("hosts.toml",), SAME + b'[host."https://n"]\n')}, "says more", 0, id="more"
        ),
        pytest.param({"docker.io": HostsDirectory(("hosts.toml",), b"# mine\n")}, "", 2, id="says-nothing"),
        pytest.param(
            {"docker.io": HostsDirectory(("ca.crt",))}, "holds ca.crt, which containerd ignores", 0, id="certificates"
        ),
        pytest.param({"docker.io": HostsDirectory()}, "", 2, id="empty-directory"),
    ],
)
def test_existing_hosts_files(existing, finding, written):
    """A file that is there is left, gets what is missing, or is in the way; it is never overwritten."""
    plan = plan_present({MAIN: MIRRORS}, parse_version("1.7.24"), Options("/c"), {"/c": existing})

    assert len(plan.writes) == written
    assert [item["id"] for item in plan.findings] == (["containerd.hosts_conflict"] if finding else [])
    assert not finding or finding in plan.findings[0]["observed"]


def test_wildcard_mirrors_of_an_old_daemon():
    """1.6.16 and older do not read _default, so a conversion would lose the mirrors."""
    content = MIRRORS.replace(b'"docker.io"', b'"*"')

    assert [item["id"] for item in present(content, "1.6.16", "/c").findings] == ["containerd.mirrors_not_convertible"]
    assert present(content, "1.6.17", "/c").findings == []


def test_hosts_files_that_come_into_effect():
    """What lay there unused is named, since pulls from those registries change too."""
    existing = {"/c": {"quay.io": HostsDirectory(("hosts.toml",), SAME)}}

    plan = plan_present({MAIN: MIRRORS}, parse_version("1.7.24"), Options("/c"), existing)

    assert "come into effect for quay.io" in plan.warnings[0]


def test_pull_engine_and_revived_tls_are_said():
    """Side effects of the conversion on 2.x are warnings."""
    warnings = present(MIRRORS + TLS.removeprefix(b"version = 2\n"), "2.1.9", "/c").warnings

    assert any("transfer service" in text for text in warnings)
    assert any("tls of m, which containerd 2.x ignored, takes effect again" in text for text in warnings)


@pytest.mark.parametrize(
    ("version", "dropin"),
    [
        pytest.param("1.7.24", f'version = 2\n[plugins."{OLD}".cni]\nbin_dir = "/b"\n'.encode(), id="1.x-whole-table"),
        pytest.param("2.1.9", f'[plugins."{OLD}".registry]\nconfig_path = "/drop"\n'.encode(), id="2.x-value"),
    ],
)
def test_a_drop_in_that_wins(version, dropin):
    """The change goes where it takes effect; a drop-in that another program writes is named instead."""
    drop = "/etc/containerd/drop.toml"
    files = {MAIN: b'version = 2\nimports = ["drop.toml"]\n', drop: dropin}
    daemon = parse_version(version)

    plan = plan_present(files, daemon, Options("/wanted"))
    locked = plan_present(files, daemon, Options("/wanted", locked={drop: "it is written by x"}))

    assert [write.path for write in plan.writes] == [drop]
    assert plan.after.config_path == "/wanted"
    assert [item["id"] for item in locked.findings] == ["containerd.config_path_overridden"]
    assert f"{drop} wins over it, and it is written by x" in locked.findings[0]["observed"]


def test_a_missing_import_is_refused():
    """A literal import that does not exist stops the daemon at its next start."""
    plan = present(b'version = 2\nimports = ["drop.toml"]\n', drop=None)

    assert [item["id"] for item in plan.findings] == ["containerd.import_missing"]


def test_a_newer_drop_in_is_refused_by_2_3():
    """containerd#12891: 2.3.0 to 2.3.4 do not start with a drop-in of a higher version than the main file."""
    plan = present(b"version = 2\n", "2.3.4", drop=b"version = 3\n")

    assert [item["id"] for item in plan.findings] == ["containerd.import_version"]
    assert present(b"version = 2\n", "2.3.7", drop=b"version = 3\n").findings == []


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        pytest.param("/etc/containerd/certs.d", "", id="one-directory"),
        pytest.param("/a:/b", "must be one directory", id="colon-list"),
        pytest.param("certs.d", "must be an absolute path", id="relative"),
        pytest.param("/a\nb", "must be an absolute path", id="line-break"),
    ],
)
def test_check_directory(path, reason):
    """A list is refused with the reason, as is what is no absolute path."""
    assert reason in check_directory(path)


def restore(content, current=SET):
    """Plan the undo of the main file."""
    return plan_restore({MAIN: current}, parse_version("1.7.24"), {MAIN: Write(MAIN, current, content)})


def test_restore_gives_the_bytes_back():
    """The undo record is written as it is, with what the daemon then uses."""
    plan = restore(b"version = 2\n")

    assert [(write.before, write.after) for write in plan.writes] == [(SET, b"version = 2\n")]
    assert (plan.before.config_path, plan.after.config_path) == ("/elsewhere", "")
    assert restore(SET).writes == []


def test_restore_of_a_file_that_was_not_there():
    """An absent file is what it was before."""
    assert restore(None).writes[0].after is None


@given(
    st.one_of(documents().map(str.encode), st.binary(max_size=80)),
    st.sampled_from(("1.6.20", "1.7.34", "2.0.5", "2.2.1", "2.3.4")),
    st.sampled_from(("", "version = 2\n", "version = 3\n", "version = 4\n")),
)
def test_plan_of_anything(body, version, head):
    """Any bytes bring a plan: refused with a finding, or effective, reversible and empty when repeated."""
    content = head.encode() + body
    plan = present(content, version, "/wanted")

    if plan.findings:
        assert plan.writes == []
        return
    assert plan.after.config_path == "/wanted"
    after = plan.writes[-1].after if plan.writes else content
    assert present(after, version, "/wanted").writes == []
    undone = plan_restore({MAIN: after}, parse_version(version), {MAIN: Write(MAIN, after, content)})
    assert undone.after == plan.before


OPTIONS = (
    Options(),
    Options("/wanted"),
    Options("/wanted", convert_mirrors=False),
    Options("/wanted", nri="enabled"),
    Options(nri="disabled"),
    Options("/wanted", settings=[Setting(("oom_score",), 1), Setting(("plugins", OLD, "cni", "bin_dir"), "/b")]),
)
HEADS = st.sampled_from(("", "version = 2\n", "version = 3\n", "version = 4\n"))
DAEMONS = st.sampled_from(("1.6.20", "1.7.34", "2.0.14", "2.1.9", "2.2.1", "2.2.9", "2.3.2", "2.3.7", "2.4.2"))


@given(st.builds(str.__add__, HEADS, documents()), documents(), HEADS, DAEMONS, st.sampled_from(OPTIONS))
def test_plan_of_two_files(main, drop, head, version, options):
    """Refused, or: all files parse, a second plan is empty, no comment is lost, and the way back gives the bytes."""
    try:
        tomllib.loads(head + drop)
    except tomllib.TOMLDecodeError:
        head = ""
    files = {MAIN: f'imports = ["/d"]\n{main}'.encode(), "/d": f"{head}{drop}".encode()}
    daemon = parse_version(version)
    plan = plan_present(files, daemon, options)

    if plan.findings:
        assert plan.writes == []
        return
    after = {**files, **{write.path: write.after for write in plan.writes if write.path in files}}
    again = plan_present(after, daemon, options)
    undone = plan_restore(after, daemon, {path: Write(path, after[path], files[path]) for path in files})
    assert (again.writes, again.findings) == ([], [])
    assert plan.after.config_path == (options.registry_config_path or plan.after.config_path)
    assert {write.path: write.after for write in undone.writes} == {
        path: files[path] for path in files if files[path] != after[path]
    }
    for path, content in files.items():
        assert comments(after[path].decode()) == comments(content.decode())


@pytest.mark.parametrize(
    ("content", "table"),
    [
        pytest.param(f'[plugins."{OLD}".cni]\nbin_dir = "/b"\n', f'[plugins."{NEW}".registry]', id="new-name"),
        pytest.param('[plugins.cri.cni]\nbin_dir = "/b"\n', "[plugins.cri.registry]", id="old-name"),
        pytest.param(
            f'[plugins.cri.cni]\nbin_dir = "/b"\n[plugins."{OLD}".cni]\n', f'[plugins."{NEW}".registry]', id="both"
        ),
    ],
)
def test_a_file_without_version_keeps_one_name_of_cri(content, table):
    """2.x makes one plugin of both names and keeps a random one of two tables: the edit never makes a second."""
    assert table in present(content.encode(), "2.3.7", "/wanted").writes[-1].after.decode()


@pytest.mark.parametrize(
    ("path", "observed"),
    [
        pytest.param("C:\\\\certs.d", "config_path is no absolute path: 'C:", id="windows"),
        pytest.param("${SNAP_DATA}/certs.d", "config_path is no absolute path: '${", id="shell-variable"),
        pytest.param("/a:/b", "config_path is the list '/a:/b'", id="list"),
    ],
)
@pytest.mark.parametrize(("version", "legacy"), [("1.7.24", "mirrors.a"), ("2.1.9", "configs.a.tls")])
def test_where_hosts_files_cannot_be_written(version, legacy, path, observed):
    """The kept directory is no place to convert to, for the reason that is said; what is in the way is named."""
    text = f'version = 2\n[plugins."{OLD}".registry]\nconfig_path = "{path}"\n[plugins."{OLD}".registry.{legacy}]\n'
    text += 'ca_file = "/ca"\n' if "tls" in legacy else 'endpoint = ["https://m"]\n'
    plan = present(text.encode(), version)

    if plan.findings:
        assert observed in plan.findings[0]["observed"]
        assert f"for a in {MAIN}" in plan.findings[0]["observed"]
    else:
        assert plan.writes == []


def test_a_drive_letter_is_no_list():
    """A directory of Windows gets no warning of lists."""
    text = f"version = 2\n[plugins.'{OLD}'.registry]\nconfig_path = 'C:\\certs.d'\n"

    assert present(text.encode(), "1.7.24").warnings == []


@pytest.mark.parametrize(
    ("text", "warns"),
    [
        pytest.param('a = "{{ image }}"\n', True, id="in-a-value"),
        pytest.param("# {{ ansible_managed }}\na = 1\n", False, id="in-a-comment"),
        pytest.param("a = 1 # <% %>\n", False, id="in-a-comment-beside"),
    ],
)
def test_a_template_that_is_toml(text, warns):
    """It can be edited as it stands, and is named."""
    found = [item for item in present(text.encode(), "1.7.24").warnings if "template expression" in item]

    assert len(found) == warns


@pytest.mark.parametrize("legacy", ["registry.configs.'*'.tls", "registry.mirrors.'a/b'", "registry.mirrors.a"])
def test_tables_that_had_no_effect_go(legacy):
    """What leads to no hosts.toml goes as well, and the plan is whole; a table without a key has a file too."""
    text = f"version = 2\n[plugins.'{OLD}'.{legacy}]\n"
    plan = present(text.encode(), "1.7.24", "/wanted")

    assert plan.findings == []
    assert plan.before.mirrors in ({}, {legacy.rpartition(".")[2].strip("'"): MAIN})
    assert legacy not in plan.writes[-1].after.decode()


def test_tls_that_is_dropped_takes_no_effect_again():
    """The notes do not say both."""
    text = (
        f'version = 2\n[plugins."{OLD}".registry.mirrors."r:5000"]\nendpoint = ["http://r:5000"]\n'
        f'[plugins."{OLD}".registry.configs."r:5000".tls]\ninsecure_skip_verify = true\n'
    )
    warnings = " ".join(present(text.encode(), "2.1.9", "/wanted").warnings)

    assert "had no effect" in warnings
    assert "takes effect again" not in warnings


def test_a_trailing_slash_of_the_directory():
    """The files of a directory with a slash at its end have no second one."""
    text = f'version = 2\n[plugins."{OLD}".registry.mirrors.a]\nendpoint = ["https://m"]\n'

    assert present(text.encode(), "1.7.24", "/wanted/").writes[0].path == "/wanted/a/hosts.toml"


def test_an_empty_import_gets_no_version():
    """It would decide for the main file too: the short name of its plugin would be refused."""
    text = f'plugins."{OLD}".registry.x = 1\n[plugins.cri]\n'
    plan = present(f'imports = ["/d"]\n{text}'.encode(), "1.6.20", "/wanted", d=b"")

    assert [write.path for write in plan.writes] in ([], [MAIN])


def test_only_comments_without_a_final_newline():
    """What is added ends as the file did."""
    assert present(b"# mine", "1.7.24", "/wanted").writes[0].after.endswith(b'config_path = "/wanted"')
