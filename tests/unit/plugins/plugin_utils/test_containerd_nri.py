# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_effective import parse_version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_nri import check_nri
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_plan import Options, plan_present
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_settings import Setting
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.plugins.plugin_utils.containerd_samples import documents

MAIN = "/etc/containerd/config.toml"
DROP = "/etc/containerd/drop.toml"
NRI = "io.containerd.nri.v1.nri"
PLUGINS = {1: "cri", 2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.images"}


def head(version):
    """Return a file in which the registry directory is set already."""
    line = "" if version == 1 else f"version = {version}\n"
    return f'{line}[plugins."{PLUGINS[version]}".registry]\nconfig_path = "/c"\n'


def plan(content, version, nri="enabled", required=False, drop=None):
    files = {MAIN: content.encode(), **({} if drop is None else {DROP: drop.encode()})}
    options = Options("/c", nri=nri, nri_required_plugins=required)
    return plan_present(files, parse_version(version), options)


@pytest.mark.parametrize(
    ("version", "before", "nri", "added"),
    [
        pytest.param("1.7.34", head(2), "enabled", f'[plugins."{NRI}"]\ndisable = false\n', id="1.7-off-by-default"),
        pytest.param("1.7.34", head(1), "enabled", "[plugins.nri]\ndisable = false\n", id="9374-version-1-file"),
        pytest.param("2.2.1", head(3), "enabled", "", id="2.x-on-by-default"),
        pytest.param("2.2.1", head(3), "disabled", f'[plugins."{NRI}"]\ndisable = true\n', id="2.x-off"),
        pytest.param("1.7.34", head(2), "disabled", "", id="1.7-off-already"),
        pytest.param("1.6.20", head(2), "disabled", "", id="1.6-has-none"),
        pytest.param("2.2.1", head(3), "unchanged", "", id="unchanged"),
    ],
)
def test_the_switch(version, before, nri, added):
    """It is written where this daemon reads it, and only where its default is another."""
    found = plan(before, version, nri)
    after = found.writes[-1].after.decode() if found.writes else before

    assert found.findings == []
    assert after == before + (f"\n{added}" if added else "")
    assert plan(after, version, nri).writes == []
    if nri != "unchanged" and version != "1.6.20":
        assert found.nri_after["state"] == nri
        assert plan(after, version, "unchanged").nri_after["state"] == nri


@pytest.mark.parametrize(
    ("version", "text"),
    [
        pytest.param("1.7.34", head(2) + f'[plugins."{NRI}"]\n  disable = true # off\n  socket_path = "/s"\n', id="v2"),
        pytest.param("1.7.34", head(1) + '[plugins.nri]\n  disable = true # off\n  socket_path = "/s"\n', id="v1"),
        pytest.param("2.3.4", head(3) + f"[plugins.'{NRI}']\n  disable = true # off\n", id="v3"),
        pytest.param(
            "2.0.11", f"[plugins.'{NRI}']\ndisable = true # off\n{head(1).replace('cri', PLUGINS[3])}", id="v1-2.x"
        ),
    ],
)
def test_only_the_value_is_flipped(version, text):
    """Every other byte stays, and switching off again gives the text back."""
    after = plan(text, version).writes[-1].after.decode()

    assert after == text.replace("disable = true", "disable = false")
    assert plan(after, version, "disabled").writes[-1].after.decode() == text


def test_the_short_name_on_2_x():
    """2.x takes plugins.nri of a version 1 file for another plugin, so NRI is on whatever stands there."""
    text = "[plugins.nri]\ndisable = true\n" + head(1).replace('"cri"', f'"{PLUGINS[3]}"')

    assert plan(text, "2.2.1", "unchanged").nri_after["state"] == "enabled"
    assert plan(text.replace("true", "false"), "1.7.34", "unchanged").nri_after["state"] == "enabled"


@pytest.mark.parametrize(
    ("version", "before", "after"),
    [
        pytest.param(
            "2.2.1", f'disabled_plugins = ["a", "{NRI}"] # mine\n', 'disabled_plugins = ["a"] # mine\n', id="one"
        ),
        pytest.param("2.2.1", f"disabled_plugins = ['{NRI}']\n", "disabled_plugins = []\n", id="last"),
    ],
)
def test_disabled_plugins(version, before, after):
    """NRI goes out of an array of one line, the others stay."""
    found = plan(before + head(3), version)

    assert found.findings == []
    assert (found.nri_before["state"], found.nri_after["state"]) == ("disabled", "enabled")
    assert found.writes[-1].after.decode() == after + head(3)


@pytest.mark.parametrize(
    ("main", "drop", "observed"),
    [
        pytest.param(f'disabled_plugins = [\n  "{NRI}", # why\n]\n', None, f"{MAIN} line 1", id="several-lines"),
        pytest.param("", f'\ndisabled_plugins = ["{NRI}"]\n', f"{DROP} line 2", id="import"),
        pytest.param(f'disabled_plugins = ["{NRI}"]\n', 'disabled_plugins = ["b"]\n', f"{MAIN} line 1", id="joined"),
    ],
)
def test_disabled_plugins_that_are_no_simple_edit(main, drop, observed):
    """The finding names the place, and what to take out there."""
    found = plan(main + head(3), "2.2.1", drop=drop)

    assert [item["id"] for item in found.findings] == ["containerd.nri_disabled"]
    assert found.findings[0]["observed"].startswith(observed)
    assert found.findings[0]["remedy"] == f"remove {NRI!r} from disabled_plugins there"
    assert found.writes == [] and found.nri_after["state"] == "disabled"


def test_required_plugins():
    """The default validator is switched on, reported, and left by a run that does not ask for it."""
    found = plan(head(3), "2.2.1", required=True)
    after = found.writes[-1].after.decode()

    assert (
        after == head(3) + f'\n[plugins."{NRI}".default_validator]\n  enable = true\n' or "default_validator" in after
    )
    assert found.nri_after == {"state": "enabled", "default_validator": True}
    assert plan(after, "2.2.1", required=True).writes == []
    assert plan(after, "2.2.1").nri_after["default_validator"] is True


@pytest.mark.parametrize(
    ("version", "required", "finding"),
    [
        pytest.param("1.6.20", False, "containerd.nri_unsupported", id="1.6"),
        pytest.param("2.0.11", True, "containerd.nri_validator_unsupported", id="no-validator"),
    ],
)
def test_what_the_daemon_does_not_have(version, required, finding):
    """An old daemon is a finding that says which one is needed."""
    found = plan(head(2), version, required=required)

    assert [item["id"] for item in found.findings] == [finding]
    assert found.writes == []


def test_a_drop_in_that_wins():
    """The switch of an import wins over the main file."""
    found = plan(head(3), "2.2.1", drop=f'[plugins."{NRI}"]\ndisable = true\n')

    assert [item["id"] for item in found.findings] == ["containerd.setting_overridden"]
    assert f"{DROP} line 2" in found.findings[0]["observed"]


@pytest.mark.parametrize(
    ("nri", "required", "settings", "words"),
    [
        pytest.param("enabled", True, [], "", id="sound"),
        pytest.param("unchanged", True, [], "nri_required_plugins needs nri: enabled", id="validator-alone"),
        pytest.param("enabled", False, [Setting(("disabled_plugins",), [NRI])], "leave one of them out", id="both"),
        pytest.param("enabled", False, [Setting(("disabled_plugins",), None)], "", id="taken-out"),
    ],
)
def test_check_nri(nri, required, settings, words):
    """Options that contradict each other are refused before a node is asked."""
    assert words in check_nri(nri, required, settings)
    assert bool(words) == bool(check_nri(nri, required, settings))


@given(
    documents(),
    st.sampled_from(("", "version = 2\n", "version = 3\n")),
    st.sampled_from(("1.6.20", "1.7.34", "2.0.11", "2.2.1", "2.3.4")),
    st.booleans(),
)
def test_nri_of_any_file(body, top, version, required):
    """NRI is on afterwards and a second plan is empty, or a finding says why."""
    found = plan(top + body, version, required=required)

    if found.findings:
        assert found.writes == []
        return
    after = found.writes[-1].after.decode() if found.writes else top + body
    assert found.nri_after["state"] == "enabled" and (found.nri_after["default_validator"] or not required)
    assert plan(after, version, required=required).writes == []
