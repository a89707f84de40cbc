# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import string

import pytest
import yaml
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_edit import EditError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_edit import (
    configuration_of,
    edit_configuration,
    previous_fields,
    put_back,
)
from hypothesis import given, settings
from hypothesis import strategies as st

HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
NFTABLES = {"mode": "nftables"}
STRICT = {"ipvs": {"strictARP": True}}


def row(before, desired, after, name):
    return pytest.param(before, desired, after, id=name)


@pytest.mark.parametrize(
    ("before", "desired", "after"),
    [
        row('mode: ""\n', NFTABLES, 'mode: "nftables"\n', "quotes-stay"),
        row("mode: ''\n", NFTABLES, "mode: 'nftables'\n", "single-quotes"),
        row('mode: "ipvs" # <-- lc\n', NFTABLES, 'mode: "nftables" # <-- lc\n', "comment"),
        row("mode:\n", NFTABLES, "mode: nftables\n", "empty"),
        row("mode: \nportRange: \n", NFTABLES, "mode: nftables \nportRange: \n", "trailing-space"),
        row("mode:\t# c\n", NFTABLES, "mode: nftables\t# c\n", "tab-before-a-comment"),
        row("mode:\tipvs\t\nportRange:\t''\n", NFTABLES, "mode:\tnftables\t\nportRange:\t''\n", "tabs"),
        row("mode: null\n", NFTABLES, "mode: nftables\n", "null"),
        row("portRange: ''", NFTABLES, "portRange: ''\nmode: nftables", "no-final-newline"),
        row("mode: ipvs", NFTABLES, "mode: nftables", "last-value"),
        row("portRange: ''\r\n", NFTABLES, "portRange: ''\r\nmode: nftables\r\n", "crlf"),
        row("mode: iptables\nmode: ipvs\n", NFTABLES, "mode: iptables\nmode: nftables\n", "the-last-of-two-counts"),
        row("ipvs:\n  strictARP: False\n", STRICT, "ipvs:\n  strictARP: True\n", "python-style"),
        row("ipvs:\n  strictARP: no\n", STRICT, "ipvs:\n  strictARP: yes\n", "yes-and-no"),
        row("ipvs:\n    scheduler: rr\n", STRICT, "ipvs:\n    scheduler: rr\n    strictARP: true\n", "four-spaces"),
        row(
            "iptables:\n    syncPeriod: 1s\n",
            STRICT,
            "iptables:\n    syncPeriod: 1s\nipvs:\n    strictARP: true\n",
            "step",
        ),
        row("ipvs: # c\nmode: ''\n", STRICT, "ipvs: # c\n  strictARP: true\nmode: ''\n", "empty-mapping"),
        row("ipvs: {}\n", STRICT, "ipvs: {strictARP: true}\n", "braces"),
        row("ipvs: { scheduler: rr }\n", STRICT, "ipvs: { scheduler: rr, strictARP: true }\n", "in-braces"),
        row("ipvs: ~\n", STRICT, "ipvs: {strictARP: true}\n", "tilde"),
        row(
            "conntrack:\n  min: 0\n# of the next\n  maxPerCore: 0\n# end\nmode: ''\n",
            {"conntrack": {"tcpBeLiberal": True}},
            "conntrack:\n  min: 0\n# of the next\n  maxPerCore: 0\n  tcpBeLiberal: true\n# end\nmode: ''\n",
            "comments-at-the-margin",
        ),
        row(
            "nodePortAddresses:\n- '10.0.0.0/8' # a\n- primary\nmode: x\n",
            {"nodePortAddresses": ["10.0.0.0/8", "fd00::/8"]},
            "nodePortAddresses:\n- '10.0.0.0/8' # a\n- fd00::/8\nmode: x\n",
            "list",
        ),
        row(
            "nodePortAddresses: null\n",
            {"nodePortAddresses": ["primary"]},
            'nodePortAddresses: ["primary"]\n',
            "no-list",
        ),
        row('featureGates: ""\n', {"featureGates": {"A": True}}, "featureGates: {A: true}\n", "text-for-a-mapping"),
        row("mode: ipvs # c\nipvs:\n  scheduler: rr\n", {"mode": None}, "ipvs:\n  scheduler: rr\n", "removed"),
        row(
            "ipvs: {scheduler: rr, strictARP: true}\n",
            {"ipvs": {"scheduler": None}},
            "ipvs: {strictARP: true}\n",
            "from-braces",
        ),
        row("mode: |-\n  ipvs\nportRange: ''\n", NFTABLES, "mode: nftables\nportRange: ''\n", "text-of-lines"),
        row("bindAddress: é😀 # 😀\nmode: ''\n", NFTABLES, "bindAddress: é😀 # 😀\nmode: 'nftables'\n", "characters"),
        row("oomScoreAdj: -999\n", {"oomScoreAdj": -998}, "oomScoreAdj: -998\n", "number"),
        row("mode: 1\n", {"mode": True}, "mode: true\n", "true-is-not-one"),
        row("mode: ipvs\n...\n# end\n", NFTABLES, "mode: nftables\n...\n# end\n", "document-end"),
        row(
            "portRange: ''\n---\nmode: x\n", NFTABLES, "portRange: ''\nmode: nftables\n---\nmode: x\n", "next-document"
        ),
        row("? mode\n: ipvs\n", NFTABLES, "? mode\n: nftables\n", "explicit-key"),
        row("# c\n\nmode: nftables\n", NFTABLES, "# c\n\nmode: nftables\n", "nothing-to-do"),
        row("portRange: ''\n", {"ipvs": {"strictARP": None}, "mode": None}, "portRange: ''\n", "nothing-to-remove"),
    ],
)
def test_edit(before, desired, after):
    """The fields have their values, every other byte is as before; a second time nothing changes."""
    assert edit_configuration(HEAD + before, desired) == HEAD + after
    assert edit_configuration(HEAD + after, desired) == HEAD + after


@pytest.mark.parametrize(
    ("text", "desired", "reason"),
    [
        pytest.param("mode: ipvs\n", NFTABLES, "no document of kind", id="no-kind"),
        pytest.param("kind: KubeProxyConfiguration\n", NFTABLES, "its apiVersion is None", id="no-api-version"),
        pytest.param(HEAD + "\tmode: ipvs\n", NFTABLES, "no YAML", id="tab-at-the-start"),
        pytest.param(HEAD + "mode: [\n", NFTABLES, "no YAML", id="broken"),
        pytest.param(HEAD + "ipvs: rr\n", STRICT, "ipvs is no mapping", id="no-mapping"),
        pytest.param(HEAD + "ipvs: &a {}\niptables: *a\n", STRICT, "something else", id="alias"),
        pytest.param(HEAD + "a: &a {b: *a}\n", NFTABLES, "within itself", id="endless"),
        pytest.param("- a\n", NFTABLES, "no document of kind", id="list"),
        pytest.param("", NFTABLES, "no document of kind", id="empty"),
        pytest.param(HEAD + "ipvs:\n  strictARP: true\n", {"ipvs": True}, "something else", id="mapping-to-boolean"),
    ],
)
def test_what_cannot_be_edited(text, desired, reason):
    """It is refused with the reason."""
    with pytest.raises(EditError, match=reason):
        edit_configuration(text, desired)


def test_json():
    """JSON stays JSON."""
    text = json.dumps({"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration"}, indent=4)
    edited = edit_configuration(text, {**NFTABLES, **STRICT})

    assert json.loads(edited)["ipvs"] == {"strictARP": True}
    assert edited.startswith(text.removesuffix("\n}") + ',\n    "mode": "nftables",\n    "ipvs"')


def test_only_its_document_changes():
    """A file of kubeadm holds several documents; those before and behind stay."""
    before, behind = "# kubeadm\nkind: ClusterConfiguration\nmode: a\n---\n", "\n---\nkind: Other\nmode: b"
    edited = edit_configuration(before + HEAD + 'mode: ""\n' + behind, NFTABLES)

    assert edited == before + HEAD + 'mode: "nftables"\n' + behind


def test_previous_fields_undo():
    """What was before is known by field; None where there was none."""
    text = HEAD + "mode: ipvs\nipvs:\n  scheduler: rr\n"
    desired = {"mode": "nftables", "ipvs": {"strictARP": True}, "iptables": {"masqueradeBit": 3}}

    assert previous_fields(text, desired) == {"mode": "ipvs", "ipvs": {"strictARP": None}, "iptables": None}
    assert edit_configuration(edit_configuration(text, desired), previous_fields(text, desired)) == text


def test_put_back_keeps_what_others_changed():
    """Another field that was changed since stays; the own field is written as it was, with its comment."""
    original = HEAD + "oomScoreAdj: 1\nmode: 'ipvs'   # mine\nportRange: ''\n"
    edited = edit_configuration(original, {"mode": None, **STRICT})
    changed = edited.replace("portRange: ''", "portRange: 1-2")

    assert put_back(edited, original, {"mode": None, **STRICT}) == original
    assert put_back(changed, original, {"mode": None, **STRICT}) == original.replace("portRange: ''", "portRange: 1-2")


def test_put_back_refuses_a_change_of_its_own_field():
    """Somebody has set the same field since: neither value is the right one."""
    original = HEAD + "mode: ipvs\n"
    with pytest.raises(EditError, match="mode was changed by somebody else"):
        put_back(HEAD + "mode: iptables\n", original, NFTABLES)


NAMES = st.sampled_from(["mode", "ipvs", "strictARP", "scheduler", "x-y", "iptables"])
SCALARS = st.one_of(
    st.sampled_from(["nftables", "0s", "30s", "", "yes", "10.0.0.0/8", "a: b", "# c", "null", "'", '"', "é"]),
    st.booleans(),
    st.integers(-5, 40),
    st.text(string.printable, max_size=8),
)
VALUES = st.one_of(SCALARS, st.lists(st.sampled_from(["10.0.0.0/8", "primary", "a b"]), max_size=3))
TREES = st.dictionaries(NAMES, st.one_of(VALUES, st.none(), st.dictionaries(NAMES, VALUES, max_size=3)), max_size=4)
DESIRED = st.dictionaries(
    NAMES, st.one_of(VALUES, st.none(), st.dictionaries(NAMES, VALUES, min_size=1, max_size=2)), min_size=1, max_size=3
)


@st.composite
def texts(draw):
    """A configuration in one of the ways in which it may be written."""
    tree = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", **draw(TREES)}
    if draw(st.booleans()):
        return json.dumps(tree, indent=draw(st.sampled_from([None, 2])))
    style = draw(st.sampled_from([None, "'", '"']))
    flow = draw(st.sampled_from([None, False, True]))
    text = yaml.safe_dump(tree, default_flow_style=flow, default_style=style, indent=draw(st.sampled_from([2, 4])))
    if not flow:
        comment = draw(st.sampled_from(["", "  # c", " ", "\t"]))
        lines = text.split("\n")
        text = "\n".join(line + comment if line.endswith(("ipvs", "true", "0s", ":")) else line for line in lines)
    if draw(st.booleans()):
        text = text.rstrip("\n")
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    return draw(st.sampled_from(["", "---\n", "# c\n", "a: 1\n---\n", "\ufeff"])) + text


@settings(max_examples=300)
@given(texts(), DESIRED)
def test_any_text_is_edited_and_put_back(text, desired):
    """The wanted values are there and only they differ, or it is refused; put back it is the same bytes."""
    try:
        edited = edit_configuration(text, desired)
    except EditError:
        return
    found = configuration_of(edited)
    for name, value in desired.items():
        if isinstance(value, dict):
            assert all(found[name][key] == inner for key, inner in value.items())
        elif value is None:
            assert name not in found
        else:
            assert found[name] == value
    before = configuration_of(text)
    assert all(found[name] == before[name] for name in before if name not in desired)
    assert put_back(edited, text, desired) == text


@given(
    st.sampled_from(["iptables", "ipvs", "nftables"]),
    st.sampled_from(["iptables", "ipvs", "nftables"]),
    st.sampled_from(["", "'", '"']),
    st.booleans(),
    st.sampled_from(["", " # c", "\t", "\r"]),
)
def test_the_opposite_edit_gives_the_bytes_back(mode, other, quote, strict, ending):
    """A field that is set anew, or was not there, and then is as before: so is the text."""
    text = f"{HEAD}mode: {quote}{mode}{quote}{ending}\nipvs:{ending}\n  strictARP: {strict}{ending}\n"
    desired = {"mode": other, "ipvs": {"strictARP": not strict, "scheduler": "lc"}, "nftables": {"masqueradeBit": 3}}
    edited = edit_configuration(text, desired)

    assert edit_configuration(edited, previous_fields(text, desired)) == text
