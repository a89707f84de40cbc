# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page for people: complete, well-formed, safe to open."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.finding import finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report import build
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_html import render_html
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_outcome import STATES

from tests.unit.plugins.plugin_utils.report_sample import blocked_run, sample_run

VOID = {"meta", "br"}
HOSTILE = "<img src=x onerror=alert(1)>\"'&</pre></style>"


class Outline(HTMLParser):
    """Elements in order, texts by tag, and whether every element is closed where it should be."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.texts, self.faults = [], [], {}, []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open.pop() != tag:
            self.faults.append(tag)

    def handle_data(self, data):
        for tag in self.open:
            self.texts[tag] = self.texts.get(tag, "") + data


def hostile_run():
    run = sample_run(8)
    for node in run["nodes"].values():
        node |= {"reason": HOSTILE, "groups": [HOSTILE], "facts": {HOSTILE: HOSTILE}}
    run["nodes"][HOSTILE] = {"state": "failed", "reason": HOSTILE}
    item = dict.fromkeys(("requirement", "observed", "expected", "remedy"), HOSTILE)
    run["findings"] = [finding(HOSTILE, severity="blocker", node="worker-01", **item)]
    run["changes"] = [{"node": "worker-01", "what": HOSTILE, "diff": {"before": "", "after": HOSTILE}}]
    return run | {"engine": HOSTILE, "playbook": HOSTILE, "versions": {HOSTILE: HOSTILE}}


def every_state_run():
    """Return a run with one node in each state that a report knows."""
    return sample_run() | {"nodes": {name: {"state": name} for name in STATES}, "findings": [], "changes": []}


RUNS = [
    pytest.param(sample_run(), id="stopped in a wave"),
    pytest.param(blocked_run(), id="stopped by blockers"),
    pytest.param(hostile_run(), id="hostile"),
    pytest.param(sample_run() | {"check_mode": True, "phase": "done", "stopped": None}, id="check mode"),
    pytest.param(sample_run() | {"stopped": None}, id="running"),
    pytest.param(every_state_run(), id="every state"),
    pytest.param(sample_run() | {"nodes": {}, "findings": [], "changes": [], "stopped": None}, id="empty"),
]


@pytest.mark.parametrize("run", RUNS)
def test_page_is_well_formed(run):
    """Every element is closed in order, headings skip no level, ids are unique, links lead somewhere."""
    page = render_html(build(run))
    outline = Outline(page)
    levels = [int(tag[1]) for tag, _attributes in outline.tags if re.fullmatch("h[1-6]", tag)]
    ids = [attributes["id"] for _tag, attributes in outline.tags if "id" in attributes]
    targets = {attributes["href"] for tag, attributes in outline.tags if tag == "a"}

    assert page.startswith("<!DOCTYPE html>")
    assert (outline.open, outline.faults) == ([], [])
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert len(ids) == len(set(ids))
    assert targets <= {f"#{name}" for name in ids}


@pytest.mark.parametrize("run", RUNS)
def test_page_loads_and_runs_nothing(run):
    """No script, no address, no event handler, and a policy that forbids them."""
    page = render_html(build(run))
    outline = Outline(page)
    tags = {tag for tag, _attributes in outline.tags}
    attributes = {name for _tag, found in outline.tags for name in found}

    assert tags.isdisjoint({"script", "img", "link", "iframe", "object", "form", "base", "svg"})
    assert not {name for name in attributes if name.startswith("on") or name == "src"}
    assert "default-src 'none'" in page
    assert "url(" not in outline.texts["style"]
    assert "://" not in outline.texts["style"]


def test_hostile_text_is_shown_as_it_is():
    """What a node sent is readable, and is text."""
    outline = Outline(render_html(build(hostile_run())))

    assert HOSTILE in outline.texts["td"]
    assert HOSTILE in outline.texts["pre"]
    assert HOSTILE in outline.texts["h3"]
    assert HOSTILE in outline.texts["dd"]


def test_columns_have_headers():
    """Every cell of a row has its header, and each row of the table of nodes begins with the node's name."""
    outline = Outline(render_html(build(sample_run())))
    headers = [attributes for tag, attributes in outline.tags if tag == "th"]

    assert {attributes.get("scope") for attributes in headers} == {"col", "row"}
    assert sum(1 for attributes in headers if attributes["scope"] == "row") == 40
    assert "kube-proxy mode" in outline.texts["thead"]


def test_states_are_told_in_words_and_signs():
    """Colour is never the only sign: each state has a word, and diff lines keep their + and -."""
    outline = Outline(render_html(build(sample_run())))

    assert "rolled back" in outline.texts["tbody"]
    assert '-      config_path = ""' in outline.texts["pre"]
    assert '+      config_path = "/etc/containerd/certs.d"' in outline.texts["pre"]


def test_every_state_has_its_colour_in_each_palette():
    """A state without a colour would be drawn in that of the text around it."""
    style = Outline(render_html(build(every_state_run()))).texts["style"]

    for palette in re.findall(r":root \{(.*?)\}", style, re.S):
        assert set(STATES) <= set(re.findall(r"--([\w-]+):", palette))


def test_a_run_that_goes_on_is_not_said_to_have_ended():
    """The page of a run in progress gives the time at which it was written."""
    terms = Outline(render_html(build(sample_run() | {"stopped": None}))).texts["dt"]

    assert "Written" in terms
    assert "Ended" not in terms


def test_long_lists_are_folded():
    """Many nodes become a count with the full list behind it; few are listed."""
    page = render_html(build(sample_run()))

    assert "<b>16 nodes</b>: control-1, control-2, control-3" in page
    assert '<span class="name">worker-02</span>, <span class="name">worker-03</span>' in page


def test_what_is_left_out_is_counted():
    """Limits of the page are told with the number that is left out."""
    run = sample_run(100)
    after = "".join(f"{number}\n" for number in range(500))
    run["changes"] = [
        {"node": "worker-01", "what": "a long file", "diff": {"before": "", "after": after}},
        *({"node": "worker-01", "what": f"file {number}", "diff": "+a"} for number in range(100)),
    ]
    run["findings"] = [
        finding("a.b", severity="warning", requirement="r", node=name, observed=name * 2, expected="e", remedy="r")
        for name in run["nodes"]
    ]

    page = render_html(build(run))

    assert "1 more distinct change in" in page
    assert "101 more lines in" in page
    assert "50 more values in" in page


def luminance(colour):
    """Relative luminance of #rrggbb or #rgb: https://www.w3.org/TR/WCAG21/#dfn-relative-luminance."""
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = [int(digits[start : start + 2], 16) / 255 for start in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_contrast():
    """Text has a contrast of at least 4.5 (WCAG 2.1, 1.4.3) in light, dark and print."""
    style = Outline(render_html(build(sample_run()))).texts["style"]
    palettes = [dict(re.findall(r"--([\w-]+): (#\w+)", block)) for block in re.findall(r":root \{(.*?)\}", style, re.S)]
    pairs = [("add-text", "add"), ("del-text", "del"), ("soft", "page")]
    pairs += [
        (name, "card")
        for name in palettes[0]
        if name not in {"page", "card", "line", "add", "del", "add-text", "del-text"}
    ]

    assert len(palettes) == 3
    for palette in palettes:
        for front, back in pairs:
            light, dark = sorted((luminance(palette[front]), luminance(palette[back])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (front, back)
