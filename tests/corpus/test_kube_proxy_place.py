# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every kube-proxy object of the corpus: where it is edited, or why not; an edit changes one line and no other."""

from __future__ import annotations

import difflib

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_edit import (
    configuration_of,
    edit_configuration,
    put_back,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_place import place_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import parse_documents

from tests.corpus.files import CORPUS, index

ROWS = index("kube-proxy")
CONFIG_CONF = "ConfigMap kube-system/kube-proxy config.conf"
EKS_CONFIG = "ConfigMap kube-system/kube-proxy-config config"
# Where it may be edited, or a part of the reason why it may not.
EXPECTED = {
    "001.yaml": CONFIG_CONF,
    "003.yaml": CONFIG_CONF,
    "005.yaml": "key kube-proxy-config.yaml is not read",
    "007.yaml": "talos writes",
    "009.yaml": "document",
    "011.yaml": EKS_CONFIG,
    "013.yaml": "no kube-proxy was found",  # an argument file of a node, no object
    "015.yaml": "file /etc/rancher/k3s/config.yaml",
    "017.yaml": "file ",
    "019.yaml": "file ",
    "021.yaml": "left out on purpose",
    "023.yaml": "openshift writes",
    "025.yaml": "kops writes",
    "027.yaml": "left out on purpose",
    "029.yaml": "document",
    "031.yaml": "document",
    "033.yaml": "kind writes",
    "035.yaml": CONFIG_CONF,
    "037.yaml": "a merge patch replaces the whole text",
    "039.yaml": "it is kept in container kube-proxy, flags",
    "041.yaml": "it is kept in Pod kube-proxy, flags",
    "043.yaml": CONFIG_CONF,
    "045.yaml": EKS_CONFIG,
}


def documents(name: str) -> list:
    return list(parse_documents((CORPUS / "kube-proxy" / name).read_text(encoding="utf-8")).items)


@pytest.mark.parametrize("row", [pytest.param(row, id=row["file"]) for row in ROWS])
def test_place(row: dict):
    expected, place = EXPECTED[row["file"]], place_of(documents(row["file"]))
    told = {
        "configmap": f"ConfigMap {place.namespace}/{place.name} {place.key}",
        "file": f"file {place.name}",
        "document": "document",
    }.get(place.kind, "")
    if told:
        assert told == expected
    else:
        assert expected in place.reason


@pytest.mark.parametrize("name", [row["file"] for row in ROWS if EXPECTED[row["file"]].startswith("ConfigMap")])
def test_an_edit_changes_the_line_of_the_mode_alone_and_can_be_taken_back(name: str):
    items = documents(name)
    place = place_of(items)
    text = next(item for item in items if item["kind"] == "ConfigMap")["data"][place.key]
    edited = edit_configuration(text, {"mode": "nftables"})
    changed = [line for line in difflib.ndiff(text.splitlines(), edited.splitlines()) if line[0] in "+-"]

    assert configuration_of(edited) == {**configuration_of(text), "mode": "nftables"}
    assert [line[:2] for line in changed] == ["- ", "+ "]
    assert all(line[2:].startswith("mode:") for line in changed)
    assert put_back(edited, text, {"mode": "nftables"}) == text
