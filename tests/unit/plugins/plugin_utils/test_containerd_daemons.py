# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The model of each daemon line against the daemons themselves: what C(config dump) makes of the same files.

Debian's containerd takes part, and the lines that the lab has built; one that it has not is skipped.
$PORTCULLIS_CONTAINERDS is a directory of more daemons, as VERSION/containerd.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.containerd_node import version_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_edit import pruned
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_effective import (
    BUILT_IN_PATHS,
    effective_registry,
    parse_version,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_plan import Options, plan_present

from tests.lab import containerd

OLD, NEW = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images"


def daemons():
    """Return the daemons as parameters of a test, one for each version, and a skipped one for each line without any."""
    more = Path(os.environ.get("PORTCULLIS_CONTAINERDS") or Path.home() / ".cache/portcullis/containerd")
    paths = [*filter(None, [shutil.which("containerd")]), *containerd.built().values(), *more.glob("*/containerd")]
    found = {parse_version(version_of(str(path))).version: str(path) for path in paths}
    lines = {".".join(map(str, version[:2])) for version in found}
    params = [pytest.param(path, id=".".join(map(str, version))) for version, path in sorted(found.items())]
    return params + [
        pytest.param("", id=line, marks=pytest.mark.skip(f"containerd {line} is not built"))
        for line in containerd.LINES
        if line not in lines
    ]


every_daemon = pytest.mark.parametrize("binary", daemons())
VERSIONS = ("", "version = 2\n", "version = 3\n", "version = 4\n")
TABLES = {
    "none": "",
    "cri": '[plugins.cri.registry]\nconfig_path = "/v1"\n',
    "old": f'[plugins."{OLD}".registry]\nconfig_path = "/old"\n',
    "new": f'[plugins."{NEW}".registry]\nconfig_path = "/new"\n',
    "both": f'[plugins."{NEW}".registry]\nconfig_path = "/new"\n[plugins."{OLD}".registry]\nconfig_path = "/old"\n',
    "old-empty": f'[plugins."{OLD}".registry]\nconfig_path = ""\n',
    "new-empty": f'[plugins."{NEW}".registry]\nconfig_path = ""\n',
    "old-mirrors": f'[plugins."{OLD}".registry.mirrors.a]\nendpoint = ["https://m"]\n',
    "new-mirrors": f'[plugins."{NEW}".registry.mirrors.b]\nendpoint = ["https://n"]\n',
    "old-other": f'[plugins."{OLD}"]\nsandbox_image = "p"\n',
}


def dump(binary, directory):
    argv = [binary, "--config", str(directory / "config.toml"), "config", "dump"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL)


def dumped_registry(text, daemon):
    plugins = tomllib.loads(text).get("plugins", {})
    names = (NEW,) if daemon.version >= (2,) else (OLD, "cri")
    return next((plugins[name].get("registry", {}) for name in names if name in plugins), {})


def pairs(drop_version, offset):
    """Return the tables of main file and drop-in to try: every 31st pair, all with $PORTCULLIS_ALL_PAIRS."""
    if drop_version is None:
        return [(name, "none") for name in TABLES]
    every = list(itertools.product(TABLES, TABLES))
    return every if os.environ.get("PORTCULLIS_ALL_PAIRS") else every[offset % 31 :: 31]


@pytest.mark.parametrize("drop_version", [None, *VERSIONS], ids=lambda text: "alone" if text is None else text[-2:-1])
@pytest.mark.parametrize("version", VERSIONS, ids=lambda text: text[-2:-1] or "1")
@every_daemon
def test_model_and_daemon_agree(binary, version, drop_version, tmp_path):
    """For pairs of tables in main file and drop-in: the same path, the same mirrors; what is refused is a finding."""
    daemon = parse_version(version_of(binary))
    main_path, drop_path = tmp_path / "config.toml", tmp_path / "drop.toml"
    for main, drop in pairs(drop_version, sum(daemon.version) + VERSIONS.index(version)):
        texts = {main_path: version + TABLES[main]}
        if drop_version is not None:
            texts = {
                main_path: f'imports = ["{drop_path}"]\n' + texts[main_path],
                drop_path: drop_version + TABLES[drop],
            }
        for path, text in texts.items():
            path.write_text(text)
        done = dump(binary, tmp_path)
        plan = plan_present({str(path): text.encode() for path, text in texts.items()}, daemon, Options())
        if done.returncode:
            assert plan.findings, f"{main} + {drop}: the daemon refuses: {done.stderr}"
            continue
        found = effective_registry([(str(path), tomllib.loads(text)) for path, text in texts.items()], daemon)
        registry = dumped_registry(done.stdout, daemon)

        # From 2.2.2 the plugin fills its directories in when it starts, which the dump does not show.
        fills_in_later = daemon.version >= (2, 2, 2) and found.config_path == BUILT_IN_PATHS
        config_path = "" if fills_in_later and not found.is_set else found.config_path
        assert (config_path, set(found.mirrors)) == (
            registry.get("config_path", ""),
            set(registry.get("mirrors", {})),
        ), f"{main} + {drop}"


WHOLE = {
    "mirrors-and-credentials": f'version = 2\n[plugins."{OLD}"]\nenable_selinux = true\n'
    f'[plugins."{OLD}".registry.configs."a.b".auth]\nusername = "u"\n'
    f'[plugins."{OLD}".registry.mirrors."a.b"] # why\nendpoint = ["https://m"]\n\n[debug]\nlevel = "warn"\n',
    "inline": f"version = 2\nplugins = {{'{OLD}' = {{registry = {{mirrors = {{a = {{endpoint = ['https://m']}}}}}}}}}}\n",
    "dotted": f'version = 2\nplugins."{OLD}".registry.mirrors.a.endpoint = ["https://m"]\n'
    f'plugins."{OLD}".cni.bin_dir = "/b"\n',
    "one-name-of-cri": f'[plugins."{OLD}".cni]\nbin_dir = "/b"\n',
    "old-name-of-cri": '[plugins.cri.cni]\nbin_dir = "/b"\n[plugins.cri.registry.mirrors."*"]\nendpoint = ["https://m"]\n',
    "version-3": f'version = 3\n[plugins."{NEW}"]\nmax_concurrent_downloads = 7\n',
    "proxy-plugin": 'version = 2\n[proxy_plugins.nydus]\n  type = "snapshot"\n  address = "/run/n.sock"\n',
}


@pytest.mark.parametrize("name", WHOLE)
@every_daemon
def test_the_daemon_sees_no_other_change(binary, name, tmp_path):
    """The path is what was wanted, mirrors are gone, and everything else of the dump is as before."""
    daemon, main = parse_version(version_of(binary)), tmp_path / "config.toml"
    main.write_text(WHOLE[name])
    before = dump(binary, tmp_path)
    plan = plan_present({str(main): WHOLE[name].encode()}, daemon, Options("/wanted"))
    if plan.findings:
        assert {item["id"] for item in plan.findings} <= {
            "containerd.config_version",
            "containerd.mirrors_not_convertible",
        }
        return
    main.write_bytes(plan.writes[-1].after)
    after = dump(binary, tmp_path)
    registry = dumped_registry(after.stdout, daemon)

    assert (before.returncode, after.returncode) == (0, 0)
    assert (registry["config_path"], registry.get("mirrors", {})) == ("/wanted", {})
    assert without_registry(after.stdout) == without_registry(before.stdout)


def without_registry(text):
    """Return a dump without what the change is about; a table that is there without any key says nothing."""
    values = tomllib.loads(text)
    for name in (OLD, NEW, "cri"):
        registry = values["plugins"].get(name, {}).get("registry", {})
        for key in ("config_path", "mirrors"):
            registry.pop(key, None)
    return pruned(values)
