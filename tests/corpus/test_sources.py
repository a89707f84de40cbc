# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every configuration of the corpus as if an owner generated it: the source says what is wanted, or a finding."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_effective import parse_version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_plan import Options
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_sources import (
    APPENDIX,
    DROP_IN,
    TEMPLATE,
    Source,
    plan_source,
)

from tests.corpus.files import CORPUS, index

WANTED = Options("/srv/portcullis/certs.d", nri="disabled")
MAIN, DIRECTORY = "/etc/owner/config.toml", "/etc/owner/config.d"
DROP_IN_PATH = f"{DIRECTORY}/portcullis.toml"
DAEMONS = ("1.7.34", "2.0.11", "2.2.7", "2.4.2")
ROWS = [row for row in index("containerd") if row["tomllib"].startswith("parse:ok")]


def sides(kind, content):
    """Return the source and the files before anything was asked for, and what the owner makes of a written source."""
    if kind == DROP_IN:
        main = f'imports = ["{DIRECTORY}/*.toml"]\n'.encode() + content
        return Source("k0s", kind, DROP_IN_PATH), main, lambda text: {MAIN: main, DROP_IN_PATH: text}
    if kind == APPENDIX:
        base = b'{{ template "base" . }}'
        return Source("k3s", kind, f"{MAIN}.tmpl"), content, lambda text: {MAIN: text.replace(base, content)}
    return Source("microk8s", kind, f"{MAIN}.in", content), content, lambda text: {MAIN: text}


@pytest.mark.parametrize("version", DAEMONS)
@pytest.mark.parametrize("kind", [DROP_IN, APPENDIX, TEMPLATE])
@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row['file']}-{row['repo']}") for row in ROWS])
def test_said_or_refused(row, kind, version):
    """Only the source is written; what the owner makes of it is what was asked for; a second plan is empty."""
    daemon = parse_version(version)
    source, main, made = sides(kind, (CORPUS / "containerd" / row["file"]).read_bytes())
    plan = plan_source(source, {MAIN: main}, daemon, WANTED)

    if plan.findings:
        assert (plan.writes, plan.rendered) == ([], [])
        assert all(item["observed"] and item["expected"] and item["remedy"] for item in plan.findings)
        return
    written = next(write for write in plan.writes if write.path == source.path)
    files = made(written.after)
    again = plan_source(Source(source.owner, kind, source.path, written.after), files, daemon, WANTED)

    assert all(write.path == source.path or write.path.endswith("/hosts.toml") for write in plan.writes)
    assert (again.writes, again.findings) == ([], [])
    assert again.before.config_path == plan.after.config_path == WANTED.registry_config_path
    assert again.nri_before == plan.nri_after
    if plan.rendered:
        assert plan.rendered[0].after == files[MAIN]
