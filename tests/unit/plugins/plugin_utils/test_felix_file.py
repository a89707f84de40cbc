# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""felix.cfg: sections of any name, the last of two, and what Felix refuses."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_file import FelixFileError, parse_felix_file
from hypothesis import given
from hypothesis import strategies as st


def test_what_a_file_sets():
    """Comments, quotes, both delimiters, a continued line, and a name in two sections."""
    text = (
        "\ufeff# ours\n[global]\nChainInsertMode = Append ; for the agent\nLogPrefix: 'a b'\n\n[elsewhere]\n"
        "ClusterType = \\\n  k8s\nChainInsertMode=Insert\nLogFilePath =\n"
    )

    assert parse_felix_file(text) == {
        "ChainInsertMode": "Insert",
        "LogPrefix": "a b",
        "ClusterType": "k8s",
        "LogFilePath": "",
    }


@pytest.mark.parametrize("text", ["[global\n", "[global]\nChainInsertMode\n", "= Append\n"])
def test_refused_file(text):
    """The line is named."""
    with pytest.raises(FelixFileError, match=r"line \d"):
        parse_felix_file(text)


@given(
    st.dictionaries(
        st.from_regex(r"[A-Z][A-Za-z]{0,9}", fullmatch=True), st.from_regex(r"[\w.:/]{0,9}", fullmatch=True)
    )
)
def test_simple_lines_are_read_back(values):
    """A written file means what was written."""
    assert parse_felix_file("".join(f"{name} = {value}\n" for name, value in values.items())) == values
