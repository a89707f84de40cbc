# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings and NRI as the daemons themselves read them: C(config dump) shows what was set, with an import too."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.containerd_node import version_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_edit import value_at
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_effective import parse_version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_files import ConfigFile
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_plan import Options, plan_present
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_settings import Setting
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_tables import read_path

from tests.unit.plugins.plugin_utils.test_containerd_daemons import VERSIONS, dump, every_daemon

OLD, IMAGES, RUNTIME = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"
GC, NRI = "io.containerd.gc.v1.scheduler", "io.containerd.nri.v1.nri"
# Where a dump of 1.x shows a setting, where one of 2.x does, and a value that is no default.
SETTINGS = (
    ((OLD, "enable_selinux"), (RUNTIME, "enable_selinux"), True),
    ((OLD, "containerd", "default_runtime_name"), (RUNTIME, "containerd", "default_runtime_name"), "kata"),
    ((OLD, "cni", "max_conf_num"), (RUNTIME, "cni", "max_conf_num"), 7),
    ((OLD, "max_concurrent_downloads"), (IMAGES, "max_concurrent_downloads"), 7),
    ((OLD, "sandbox_image"), (IMAGES, "pinned_images", "sandbox"), "pause:x"),
    ((OLD, "containerd", "snapshotter"), (IMAGES, "snapshotter"), "native"),
    ((OLD, "stream_server_port"), (OLD, "stream_server_port"), "81"),
    ((GC, "startup_delay"), (GC, "startup_delay"), "3s"),
)
DROPS = {
    "alone": None,
    "other": "[debug]\nlevel = 'info'\n",
    "old": f'[plugins."{OLD}"]\nenable_selinux = false\n',
    "old-v2": f'version = 2\n[plugins."{OLD}".containerd]\nsnapshotter = "z"\n[plugins."{OLD}".cni]\nconf_dir = "/z"\n',
    "new-v3": f'version = 3\n[plugins."{RUNTIME}"]\nenable_selinux = false\n',
    "gc": f'[plugins."{GC}"]\nstartup_delay = "9s"\n',
    "nri": f'[plugins."{NRI}"]\ndisable = true\n',
}
REFUSALS = {"containerd.config_version", "containerd.import_version", "containerd.config_path_overridden"}


def planned(files, daemon, **options):
    """Return the plan, and the files with its writes."""
    plan = plan_present(files, daemon, Options("/c", **options))
    return plan, {**files, **{write.path: write.after for write in plan.writes}}


@pytest.mark.parametrize("drop", DROPS)
@pytest.mark.parametrize("version", VERSIONS, ids=lambda text: text[-2:-1] or "1")
@every_daemon
def test_the_daemon_reads_what_was_set(binary, version, drop, tmp_path):
    """Every setting that the plan takes is in the dump, and NRI is what the plan says; the others are findings."""
    daemon = parse_version(version_of(binary))
    main, other = str(tmp_path / "config.toml"), str(tmp_path / "drop.toml")
    text = version + '[debug]\nlevel = "info"\n'
    files = {main: text.encode()}
    if DROPS[drop] is not None:
        files = {main: f'imports = ["{other}"]\n{text}'.encode(), other: DROPS[drop].encode()}
    plan, files = planned(files, daemon)
    if plan.findings:
        assert {item["id"] for item in plan.findings} <= REFUSALS
        return
    expected, taken = {}, []
    for old, new, value in SETTINGS:
        shown = ("plugins", *(old if daemon.version < (2,) else new))
        config = ConfigFile(main, files[main].decode(), tomllib.loads(files[main].decode()))
        number = plan.after.version if daemon.version < (2,) else config.values.get("version", 1)
        path = read_path(shown, config, number, daemon)
        attempt, after = planned(files, daemon, settings=[Setting(path, value)])
        if attempt.findings:
            assert drop not in {"alone", "other"}, attempt.findings
            continue
        files = after
        expected[shown] = value
        taken.append(path)
    attempt, after = planned(files, daemon, nri="enabled", nri_required_plugins=daemon.has_nri_validator)
    files = files if attempt.findings else after
    for path, content in files.items():
        Path(path).write_bytes(content)
    done = dump(binary, tmp_path)

    assert done.returncode == 0, done.stderr
    shown = tomllib.loads(done.stdout)
    assert {path: value_at(shown, path) for path in expected} == expected, (taken, files[main].decode())
    if daemon.has_nri:
        nri = shown["plugins"][NRI]
        validator = nri.get("default_validator", {}).get("enable", False)
        state = "disabled" if nri["disable"] else "enabled"
        assert attempt.nri_after == {"state": state, "default_validator": validator}
        assert state == "enabled" or drop == "nri" or attempt.findings
    else:
        assert [item["id"] for item in attempt.findings] == ["containerd.nri_unsupported"]
