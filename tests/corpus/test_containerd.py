# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every configuration of the corpus with every daemon line: one setting changes, or a finding names line and reason."""

from __future__ import annotations

import re
import tomllib

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_effective import (
    effective_registry,
    parse_version,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_plan import Options, plan_present
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_settings import Setting

from tests.corpus.files import CORPUS, index
from tests.unit.plugins.plugin_utils.containerd_pulls import new_targets, old_targets

WANTED = "/srv/portcullis/certs.d"
DAEMONS = ("1.6.20", "1.7.34", "2.0.11", "2.1.9", "2.2.1", "2.2.7", "2.3.4", "2.4.2")
ROWS = index("containerd")
# What `config dump` of these daemons said about the file alone; the column holds what it printed.
DUMPED = {"dump_1.7": "1.7.34", "dump_2.0": "2.0.11", "dump_2.3": "2.3.4"}


def read(row):
    return (CORPUS / "containerd" / row["file"]).read_bytes()


def plan_for(row, version, wanted=WANTED):
    path = f"/etc/containerd/{row['file']}"
    return path, plan_present({path: read(row)}, parse_version(version), Options(wanted))


@pytest.mark.parametrize("version", DAEMONS)
@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row['file']}-{row['repo']}") for row in ROWS])
def test_edit_or_finding(row, version):
    """The result parses and is effective, all other bytes stay, and a second plan is empty; or a finding says why."""
    before = read(row)
    path, plan = plan_for(row, version)

    if plan.findings:
        assert plan.writes == []
        assert all(item["observed"] and item["expected"] and item["remedy"] for item in plan.findings)
        if not row["tomllib"].startswith("parse:ok"):
            assert re.search(r" line \d+: .", plan.findings[0]["observed"])
        return
    write = plan.writes[-1]
    hosts = {item.path: item.after.decode() for item in plan.writes[:-1]}
    again = plan_present({path: write.after}, parse_version(version), Options(WANTED))

    assert (write.path, write.before) == (path, before)
    assert plan.after.config_path == WANTED
    assert (plan.after.mirrors, plan.before.tls if not plan.converted else plan.after.tls) == ({}, plan.after.tls)
    assert tomllib.loads(write.after.decode().removeprefix("\ufeff"))
    assert (again.writes, again.findings) == ([], [])
    if plan.converted:
        check_conversion(plan, before, write.after, hosts)
    else:
        inserted, removed = changed_lines(before, write.after)
        assert hosts == {}
        assert WANTED.encode() in b"".join(inserted)
        assert len(removed) <= 1, "only a value, or the end of the last line, may change"
        assert plan.after.other == plan.before.other


def check_conversion(plan, before, after, hosts):
    """Every line that is left stood there before, no comment is lost, and pulls go where they went."""
    kept = [line for line in after.splitlines() if WANTED.encode() not in line]
    lines = iter(before.splitlines())
    assert all(line in lines for line in kept if line in before.splitlines())
    assert [line for line in kept if line.lstrip().startswith(b"#")] == [
        line for line in before.splitlines() if line.lstrip().startswith(b"#")
    ]
    files = {path.split("/")[-2]: text for path, text in hosts.items()}
    assert sorted(hosts) == sorted({item["file"] for item in plan.converted})
    registry = plan.before.other
    for namespace in {*registry.get("mirrors", {}), *registry.get("configs", {}), "docker.io", "other.example"} - {"*"}:
        old = old_targets(registry, namespace)
        new = [target for target in new_targets(files, namespace) if namespace in files or target in old]
        assert new == old, namespace


def changed_lines(before: bytes, after: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the lines that came and those that went, between the common beginning and the common end."""
    new, old = after.splitlines(keepends=True), before.splitlines(keepends=True)
    shorter = min(len(new), len(old))
    head = next((at for at in range(shorter) if new[at] != old[at]), shorter)
    tail = next((at for at in range(shorter - head) if new[-1 - at] != old[-1 - at]), shorter - head)
    return new[head : len(new) - tail], old[head : len(old) - tail]


@pytest.mark.parametrize("column", DUMPED)
@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row["file"]) for row in ROWS if row["tomllib"].startswith("parse:ok")]
)
def test_effective_registry_is_what_the_daemon_dumps(row, column):
    """The model of the daemon agrees with the real daemon's own dump of the file."""
    dumped = re.search(r"rc0 cfg=(\S*) mir=(\d+)", row[column])
    if not dumped:
        pytest.skip(f"that daemon refuses the file: {row[column]}")
    if dumped.group(1) == "CRI-DISABLED":
        pytest.skip("CRI is switched off in the file")
    daemon = parse_version(DUMPED[column])

    registry = effective_registry([(row["file"], tomllib.loads(read(row).decode()))], daemon)

    # The dump shows the configuration before a plugin fills in its own default.
    config_path = registry.config_path if registry.is_set else ""
    assert (config_path, len(registry.mirrors)) == (dumped.group(1), int(dumped.group(2)))


def test_the_corpus_is_mostly_editable():
    """Of the files that parse, a newer daemon refuses only those with CRI switched off."""
    reasons = {}
    for row in ROWS:
        if row["tomllib"].startswith("parse:ok"):
            for item in plan_for(row, "2.3.4")[1].findings:
                reasons.setdefault(item["id"], []).append(row["file"])

    assert set(reasons) <= {"containerd.cri_disabled"}, reasons


@pytest.mark.parametrize("version", DAEMONS)
@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row["file"]) for row in ROWS if row["tomllib"].startswith("parse:ok")]
)
def test_nri_and_a_setting(row, version):
    """On top of the registry directory, NRI and a setting change few lines, or a finding names what is in the way."""
    path, first = plan_for(row, version)
    if first.findings:
        return
    content = first.writes[-1].after if first.writes else read(row)
    daemon = parse_version(version)
    options = Options(WANTED, nri="enabled", settings=[Setting(("oom_score",), -998)])
    plan = plan_present({path: content}, daemon, options)

    if plan.findings:
        assert {item["id"] for item in plan.findings} <= {"containerd.nri_unsupported", "containerd.nri_disabled"}
        return
    after = plan.writes[-1].after
    assert plan.nri_after["state"] == "enabled"
    assert tomllib.loads(after.decode().removeprefix("\ufeff"))["oom_score"] == -998
    assert plan_present({path: after}, daemon, options).writes == []
    kept = set(after.splitlines())
    lost = [line for line in content.splitlines() if line not in kept]
    assert all(re.search(rb"\bdisable\b|oom_score|disabled_plugins", line) for line in lost), lost
