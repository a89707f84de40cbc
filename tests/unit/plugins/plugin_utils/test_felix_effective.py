# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Felix's effective configuration: who wins, who is overridden, what is fatal, what has no effect."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_effective import (
    BUILT_IN,
    DEFAULT,
    ENVIRONMENT,
    FILE,
    NODE,
    SELECTOR,
    EnvValue,
    dataplane,
    effective,
)
from hypothesis import given
from hypothesis import strategies as st


def felix(name, spec, **metadata):
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def env(**values):
    return {f"FELIX_{name}": EnvValue(value, "DaemonSet calico-node") for name, value in values.items()}


# Each place with the seconds that it sets, the strongest first.
PLACES = {ENVIRONMENT: 1, FILE: 2, NODE: 3, SELECTOR: 4, DEFAULT: 5}


@given(st.sets(st.sampled_from(sorted(PLACES))))
def test_the_strongest_place_wins_and_names_the_others(places):
    """Whatever places set a value: the strongest decides, and all others are named, strongest first."""
    objects = {
        NODE: felix("node.n1", {"iptablesRefreshInterval": "3s"}),
        SELECTOR: felix("workers", {"iptablesRefreshInterval": "4s", "nodeSelector": "has(worker)"}),
        DEFAULT: felix("default", {"iptablesRefreshInterval": "5s"}),
    }
    found = effective(
        (3, 32),
        environment=env(IPTABLESREFRESHINTERVAL="1") if ENVIRONMENT in places else {},
        file_text="[x]\nIptablesRefreshInterval = 2\n" if FILE in places else "",
        objects=[item for place, item in objects.items() if place in places],
        node="n1",
        labels={"worker": ""},
    ).settings["iptablesRefreshInterval"]
    ranked = [place for place in PLACES if place in places]

    assert (found.source, found.value) == ((ranked[0], PLACES[ranked[0]]) if ranked else (BUILT_IN, 180))
    assert [item.source for item in found.shadowed] == ranked[1:]


def test_another_nodes_object_does_not_count():
    """node.NAME is for that node."""
    config = effective((3, 27), objects=[felix("node.n2", {"chainInsertMode": "Append"})], node="n1")

    assert config.value("chainInsertMode") == "Insert"


def test_a_selector_needs_its_version_and_the_labels():
    """Without either it is named and not applied; of several that match, the oldest counts."""
    objects = [
        felix("young", {"nodeSelector": "all()", "logPrefix": "young"}, creationTimestamp="2026-02-01T00:00:00Z"),
        felix("old", {"nodeSelector": "all()", "logPrefix": "old"}, creationTimestamp="2026-01-01T00:00:00Z"),
    ]
    found = [effective(version, objects=objects, labels=labels) for version, labels in (((3, 31), {}), ((3, 32), None))]

    assert [config.value("logPrefix") for config in found] == ["calico-packet"] * 2
    assert [len(config.without_effect) for config in found] == [2, 2]
    assert effective((3, 32), objects=objects, labels={}).value("logPrefix") == "old"


def test_a_duration_with_unit_in_the_environment():
    """Felix takes the built-in value, and the object is still overridden."""
    found = effective(
        (3, 25),
        environment=env(IPTABLESREFRESHINTERVAL="0s"),
        objects=[felix("default", {"iptablesRefreshInterval": "0s"})],
    ).settings["iptablesRefreshInterval"]

    assert (found.value, found.source) == (90, ENVIRONMENT)
    assert "built-in" in found.problem
    assert found.shadowed[0].source == DEFAULT


@pytest.mark.parametrize(
    ("given", "fatal"),
    [
        pytest.param({"environment": env(CHAININSERTMODE="Bogus")}, True, id="bogus"),
        pytest.param({"environment": env(CHAININSERTMODE="none")}, True, id="none-is-zero"),
        pytest.param({"environment": env(CHAININSERTMODE="")}, False, id="empty-is-ignored"),
        pytest.param({"environment": env(CHAININSERTMODE="APPEND")}, False, id="case-does-not-matter"),
        pytest.param({"environment": env(IPTABLESBACKEND="bogus")}, False, id="default-instead"),
        pytest.param(
            {
                "environment": env(CHAININSERTMODE="Append"),
                "objects": [felix("default", {"chainInsertMode": "Bogus"})],
            },
            True,
            id="overridden-and-fatal",
        ),
        pytest.param({"file_text": "[broken"}, True, id="file"),
        pytest.param(
            {"environment": env(BPFENABLED="true", IPTABLESMARKMASK="0xff00")}, True, id="mask-without-bpf-bits"
        ),
    ],
)
def test_fatal(given, fatal):
    """What stops Felix, wherever it stands."""
    assert bool(effective((3, 25), **given).fatal) is fatal


@pytest.mark.parametrize(
    ("name", "word"),
    [
        pytest.param("CHAIN_INSERT_MODE", "FELIX_CHAININSERTMODE", id="underscores"),
        pytest.param("NFTABLESMODE", "3.25", id="later-version"),
        pytest.param(
            "IPTABLESPOSTWRITECHECKINTERVAL", "FELIX_IPTABLESPOSTWRITECHECKINTERVALSECS", id="object-spelling"
        ),
    ],
)
def test_without_effect(name, word):
    """A variable that Felix does not read is named with the right spelling or the reason."""
    config = effective((3, 25), environment=env(**{name: "1"}))

    assert word in config.without_effect[0].why


def test_local_parameters_are_not_taken_from_objects():
    """The datastore's address can only be set on the node."""
    config = effective((3, 27), objects=[felix("default", {"etcdAddr": "a:1"})])

    assert config.value("etcdAddr") == "127.0.0.1:2379"
    assert config.without_effect[0].name == "EtcdAddr"


def test_a_value_that_is_not_known():
    """A variable from a Secret decides, though nobody knows how."""
    found = effective((3, 27), environment=env(IPTABLESMARKMASK=None)).settings["iptablesMarkMask"]

    assert (found.value, found.source, found.problem) == (None, ENVIRONMENT, "its value is not known")


@pytest.mark.parametrize(
    ("spec", "seen", "kind", "used", "idle"),
    [
        ({"nftablesMode": "Enabled", "chainInsertMode": "Append"}, None, "nftables", 180, {"chainInsertMode"}),
        ({"iptablesRefreshInterval": "5s"}, False, "iptables", 5, set()),
        ({"iptablesRefreshInterval": "5s"}, True, "nftables", 180, {"iptablesRefreshInterval"}),
        ({"iptablesRefreshInterval": "5s"}, None, "auto", 5, set()),
        ({"bpfEnabled": True}, False, "bpf", 180, set()),
    ],
)
def test_dataplane(spec, seen, kind, used, idle):
    """With nftables the iptables settings are idle; Auto is decided by what was seen on the node."""
    found = dataplane(effective((3, 32), objects=[felix("default", spec)]), nftables=seen)

    assert (found.kind, found.refresh_interval.value) == (kind, used)
    assert {item.name for item in found.idle} == idle


def test_dataplane_of_an_old_version():
    """Before 3.29 there is only iptables."""
    assert dataplane(effective((3, 13))).kind == "iptables"
