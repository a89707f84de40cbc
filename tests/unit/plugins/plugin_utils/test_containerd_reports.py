# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports of broken nodes, one test each, named after the report; numbers alone are containerd/containerd."""

from __future__ import annotations

import tomllib

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_effective import parse_version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_plan import (
    Options,
    check_directory,
    plan_present,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_settings import parse_settings

MAIN = "/etc/containerd/config.toml"
OLD, NEW = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images"
MIRROR = '"docker.io"]\nendpoint = ["https://m.example"]\n'


def plan(text, version, wanted="/c", **imports):
    files = {MAIN: text.encode(), **{f"/etc/containerd/{name}.toml": data.encode() for name, data in imports.items()}}
    return plan_present(files, parse_version(version), Options(wanted))


def after(found):
    assert found.findings == []
    return found.writes[-1].after.decode()


@pytest.mark.parametrize("version", ["1.6.20", "1.7.34", "2.2.1", "2.2.7"])
def test_5306_7844_12612_mirrors_beside_config_path(version):
    """CRI is dead while the daemon stays up: the mirrors are converted, whoever sets the path."""
    found = plan(
        f'version = 2\n[plugins."{OLD}".registry]\nconfig_path = "/c"\n[plugins."{OLD}".registry.mirrors.{MIRROR}',
        version,
    )

    assert "mirrors" not in after(found)
    assert [item["registry"] for item in found.converted] == ["docker.io"]


def test_dragonfly_3372_literal_quoted_mirrors():
    """Mirrors below a literal-quoted plugin name are mirrors."""
    found = plan(f"version = 2\n[plugins.'{OLD}'.registry.mirrors.{MIRROR}", "1.7.34")

    assert "mirrors" not in after(found)


def test_dragonfly_helm_charts_191_second_registry_table():
    """The existing table is edited in place, in whatever quotes it is written."""
    assert after(plan(f"version = 2\n[plugins.'{OLD}'.registry]\n", "1.7.34")).count("registry]") == 1


def test_6428_pasted_over_empty_default_tables():
    """The empty tables of `config default` do not stand in the way."""
    text = f'version = 2\n[plugins."{OLD}".registry]\nconfig_path = ""\n[plugins."{OLD}".registry.mirrors]\n'

    assert tomllib.loads(after(plan(text, "1.7.34")))["plugins"][OLD]["registry"]["config_path"] == "/c"


def test_deckhouse_13934_duplicate_tls_table():
    """A table that is there twice is named with its line; the daemon would not start."""
    table = f'[plugins."{OLD}".registry.configs.m.tls]\n'
    found = plan(f'version = 2\n{table}ca_file = "/a"\n{table}', "1.7.34")

    assert "line 4: " in found.findings[0]["observed"]
    assert "a second time, the first one is in line 2" in found.findings[0]["observed"]


def test_5837_7982_import_that_wipes_cri():
    """On 1.x a drop-in with any CRI key has the whole table, so the path goes there."""
    drop = f'version = 2\n[plugins."{OLD}".containerd]\nsnapshotter = "x"\n'
    found = plan('version = 2\nimports = ["drop.toml"]\n', "1.7.34", drop=drop)

    assert [write.path for write in found.writes] == ["/etc/containerd/drop.toml"]


def test_12891_drop_in_with_a_higher_version():
    """2.3.0 to 2.3.4 would not start again."""
    found = plan("version = 2\n", "2.3.2", drop="version = 3\n")

    assert found.findings[0]["id"] == "containerd.import_version"


def test_kata_containers_12902_conf_d_is_not_always_on():
    """A config.toml without imports does not read conf.d, so nothing is put there."""
    found = plan("version = 3\n", "2.2.7")

    assert [write.path for write in found.writes] == [MAIN]


@pytest.mark.parametrize(
    ("version", "table"), [("1.7.34", "[plugins.cri.registry]"), ("2.0.11", f'[plugins."{NEW}".registry]')]
)
def test_5236_missing_version(version, table):
    """A file without a version gets the table that this daemon reads in it, and the missing line is mentioned."""
    text = f'[plugins."{OLD}".containerd]\nsnapshotter = "x"\n'
    found = plan(text, version)

    assert table in after(found)
    assert "has no version, so" in found.warnings[0]


def test_ansible_role_containerd_24_setting_at_the_end_of_the_file():
    """The key never lands in the table that happens to be the last one."""
    text = f'version = 2\n[plugins."{OLD}".registry]\n[proxy_plugins]\n'

    assert tomllib.loads(after(plan(text, "1.7.34")))["proxy_plugins"] == {}


def test_containerd_shim_spin_386_old_key_on_2x():
    """A version 3 file gets the table of 2.x, the old one would be ignored."""
    assert f'"{NEW}".registry' in after(plan("version = 3\n", "2.1.9"))


def test_nvidia_container_toolkit_1222_touch_nothing_else():
    """Comments, order and every other line stay."""
    text = f"# mine\nversion = 2 # two\n\n[plugins.\"{OLD}\"]   # odd\n  sandbox_image = 'p'\n\n[debug]\n"
    lines = after(plan(text, "1.7.34")).splitlines()

    assert [line for line in text.splitlines() if line not in lines] == []


@pytest.mark.parametrize(
    ("text", "line"),
    [("version = 2\n[a]\nb = {c = 1,}\n", 3), ("version = 2\n[a\n", 2), ("version = 2\nb = 1\nb = 2\n", 3)],
)
def test_k0s_6547_invalid_toml(text, line):
    """An invalid file is refused with its line before anything restarts."""
    assert f"line {line}: " in plan(text, "1.7.34").findings[0]["observed"]


def test_7276_runtime_options_stay():
    """SystemdCgroup and all other runtime options are what they were."""
    text = f'version = 2\n[plugins."{OLD}".containerd.runtimes.runc.options]\nSystemdCgroup = true\n'
    values = tomllib.loads(after(plan(text, "1.7.34")))["plugins"][OLD]

    assert values["containerd"] == tomllib.loads(text)["plugins"][OLD]["containerd"]


def test_k3s_5854_rendered_file_or_template():
    """A template is named as one, not edited as if it were a configuration."""
    found = plan('version = 2\n{{ template "base" . }}\n', "1.7.34")

    assert found.findings[0]["id"] == "containerd.config_template"


def test_k3s_9693_the_same_endpoint_twice():
    """Endpoints that lead to the same place become one table: two would be an invalid file."""
    text = f'version = 2\n[plugins."{OLD}".registry.mirrors.a]\nendpoint = ["https://m", "https://m", "https://m/v2"]\n'

    assert plan(text, "1.7.34").writes[0].after.count(b"[host.") == 1


def test_5518_path_of_an_endpoint():
    """A path without /v2 was used as it stands, and still is."""
    text = f'version = 2\n[plugins."{OLD}".registry.mirrors.a]\nendpoint = ["https://m/proxy"]\n'

    assert b"override_path = true" in plan(text, "1.7.34").writes[0].after


def test_pr_7016_byte_order_mark():
    """1.x takes it and keeps it; 2.x refuses it, and so does the plan."""
    text = "\ufeffversion = 2\n"

    assert after(plan(text, "1.7.34")).startswith("\ufeff")
    assert plan(text, "2.1.9").findings[0]["id"] == "containerd.byte_order_mark"


def test_4381_11940_utf_16():
    """What PowerShell writes is refused with the reason."""
    files = {MAIN: "version = 2\n".encode("utf-16")}

    found = plan_present(files, parse_version("1.7.34"), Options())

    assert "UTF-16" in found.findings[0]["observed"]


@pytest.mark.parametrize("version", ["1.7.34", "2.1.9"])
def test_nri_plugins_pr_744_745_empty_file(version):
    """An empty file gets a version and the whole table, no key at the root."""
    values = tomllib.loads(after(plan("", version)))

    assert set(values) == {"version", "plugins"}


def test_6389_import_brought_for_one_setting():
    """The path goes into the file that has the CRI table on 1.x, and no import is added."""
    drop = f'version = 2\n[plugins."{OLD}".registry.configs.a.auth]\nusername = "u"\n'
    found = plan(f'version = 2\nimports = ["drop.toml"]\n[plugins."{OLD}"]\nx = 1\n', "1.6.20", drop=drop)

    assert [write.path for write in found.writes] == ["/etc/containerd/drop.toml"]


def test_capi_extensions_nutanix_1613_drop_in_of_another_version():
    """A version 3 drop-in of the GPU operator takes the migration of a version 2 file away on 2.1."""
    drop = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'nvidia'\n"
    text = f'version = 2\nimports = ["drop.toml"]\n[plugins."{OLD}".registry]\nconfig_path = "/c"\n'
    found = plan(text, "2.1.9", drop=drop)

    assert found.before.config_path == ""
    assert found.after.config_path == "/c"
    assert f'"{NEW}".registry]' in after(found)


@pytest.mark.parametrize("version", ["2.0.11", "2.2.7"])
def test_10120_registry_alone_is_migrated(version):
    """A registry table without one of the runtime is read all the same: nothing is to do."""
    found = plan(f'version = 2\n[plugins."{OLD}".registry]\nconfig_path = "/c"\n', version)

    assert (found.writes, found.findings) == ([], [])


def test_cks_course_environment_93_mirrors_beside_an_empty_path():
    """2.2.1 takes its own two directories for an empty path, so mirrors alone kill CRI: they are converted."""
    text = (
        f'version = 2\n[plugins."{OLD}".registry]\n  config_path = ""\n\n'
        f'  [plugins."{OLD}".registry.mirrors]\n    [plugins."{OLD}".registry.mirrors."docker.io"]\n'
        '      endpoint = ["https://m.example", "https://registry-1.docker.io"]\n'
    )

    assert after(plan(text, "2.2.1")) == f'version = 2\n[plugins."{OLD}".registry]\n  config_path = "/c"\n'


@pytest.mark.parametrize(
    ("text", "finding_id"),
    [('disabled_plugins = ["cri"]\n', "containerd.cri_disabled"), ("a = [“cri”]\n", "containerd.config_invalid")],
)
def test_4581_8139_kubernetes_111591_cri_switched_off(text, finding_id):
    """The package's stub is named, and so is a line with quotes of a text program."""
    found = plan(text, "1.6.20")

    assert found.findings[0]["id"] == finding_id
    assert "line 1: " in found.findings[0]["observed"]


def test_11624_tls_that_2x_lost():
    """The CA that 2.x only warned of is in hosts.toml, and the report says that it counts again."""
    text = f'version = 2\n[plugins."{OLD}".registry.configs."r.example".tls]\nca_file = "/ca.crt"\n'
    found = plan(text, "2.0.11")

    assert b'ca = "/ca.crt"' in found.writes[0].after
    assert "takes effect again" in " ".join(found.warnings)


def test_11041_credentials_stay_beside_the_path():
    """configs.*.auth keeps working with config_path and stays, mirrors go."""
    auth = f'[plugins."{OLD}".registry.configs."r.example".auth]\nusername = "u"\n'
    found = plan(f'version = 2\n{auth}[plugins."{OLD}".registry.mirrors.{MIRROR}', "2.1.9")

    assert auth in after(found)
    assert "mirrors" not in after(found)


@pytest.mark.parametrize(
    ("version", "plugin", "refused"), [("1.7.34", OLD, True), ("2.1.9", "io.containerd.cri.v1.runtime", False)]
)
def test_6964_coreos_overlay_1214_runtime_without_a_type(version, plugin, refused):
    """Up to 1.7 one key of runc takes away its runtime_type: refused, with what to add."""
    table = ["plugins", plugin, "containerd", "runtimes", "runc"]
    settings = [{"table": [*table, "options"], "key": "SystemdCgroup", "value": True}]
    kind = {"table": table, "key": "runtime_type", "value": "io.containerd.runc.v2"}
    files = {MAIN: b"version = 2\n" if version < "2" else b"version = 3\n"}
    found, whole = (
        plan_present(files, parse_version(version), Options("/c", settings=parse_settings(items)))
        for items in (settings, [*settings, kind])
    )

    assert [item["id"] for item in found.findings] == ["containerd.setting_incomplete"] * refused
    assert whole.findings == []


def test_11747_migrate_is_never_written_back():
    """A version 2 file stays one on 2.x: comments, unknown keys and what is no default are left as they are."""
    text = f'# mine\nversion = 2\n[plugins."{OLD}"]\n  unknown = 1 # kept\n'

    assert after(plan(text, "2.3.4")).startswith(text)


def test_6438_the_directory_is_one_of_cri():
    """The path goes into the CRI plugin's table, not to where only other clients would look."""
    assert tomllib.loads(after(plan("version = 3\n", "2.1.9")))["plugins"] == {NEW: {"registry": {"config_path": "/c"}}}


def test_kubespray_9741_mirror_on_plain_http():
    """The path that came beside the mirrors stays, and the local registry is still asked by plain HTTP."""
    text = (
        f'version = 2\n[plugins."{OLD}".registry]\n  config_path = "/c"\n'
        f'  [plugins."{OLD}".registry.mirrors."localhost"]\n    endpoint = ["http://127.0.0.1"]\n'
        f'  [plugins."{OLD}".registry.configs."http://127.0.0.1".tls]\n    insecure_skip_verify = true\n'
    )
    found = plan(text, "1.6.20")

    assert after(found) == f'version = 2\n[plugins."{OLD}".registry]\n  config_path = "/c"\n'
    assert b'[host."http://127.0.0.1"]' in found.writes[0].after
    assert b"skip_verify" not in found.writes[0].after
    assert "'http://127.0.0.1' is not the host of any endpoint" in found.warnings[0]


def test_rke2_5658_tls_of_a_registry_without_mirror():
    """TLS settings at the root of the file alone are not enough: a host has them too."""
    text = f'version = 2\n[plugins."{OLD}".registry.configs."r:31443".tls]\ninsecure_skip_verify = true\n'
    host = tomllib.loads(plan(text, "1.7.34").writes[0].after.decode())["host"]

    assert host == {"https://r:31443": {"capabilities": ["pull", "resolve"], "skip_verify": True}}


def test_12808_12415_12636_colon_list():
    """Two directories are refused with the reason."""
    assert "transfer service" in check_directory("/etc/containerd/certs.d:/etc/docker/certs.d")
