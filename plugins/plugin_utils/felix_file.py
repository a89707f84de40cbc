# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""felix.cfg as Felix reads it: the INI dialect of github.com/go-ini/ini, with section names of no meaning.

Source: projectcalico/calico, felix/config/file_loader.go.
"""

from __future__ import annotations

import re

PATH = "/etc/calico/felix.cfg"


class FelixFileError(ValueError):
    """Felix does not load the file and retries for ever; the text names line and reason."""


def parse_felix_file(text: str) -> dict[str, str]:
    """Return what the file sets, by the names as they stand there; of a name set twice the last wins.

    :raises FelixFileError: Felix refuses the file.
    """
    found: dict[str, str] = {}
    lines = iter(enumerate(text.removeprefix("\ufeff").splitlines(), 1))
    for number, raw in lines:
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if line[0] == "[":
            if "]" not in line:
                raise FelixFileError(f"line {number}: the section header {line!r} has no closing bracket")
            continue
        match = re.fullmatch(r"(\"[^\"]+\"|`[^`]+`|[^=:]+?)\s*[=:]\s*(.*)", line)
        if not match:
            raise FelixFileError(f"line {number}: {line!r} is neither a section nor name = value")
        value = match[2]
        while value.endswith("\\"):
            value = value[:-1].rstrip() + next(lines, (0, ""))[1].strip()
        found[match[1].strip('"`')] = _value(value)
    return found


def _value(text: str) -> str:
    for quote in ("`", '"""'):
        if text.startswith(quote) and text.endswith(quote) and len(text) >= 2 * len(quote):
            return text[len(quote) : -len(quote)]
    bare = re.split(r"[#;]", text, maxsplit=1)[0].strip()
    quoted = len(bare) > 1 and bare[0] in "\"'" and bare[0] == bare[-1] and bare.count(bare[0]) == 2
    return bare[1:-1] if quoted else bare
