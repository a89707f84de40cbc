# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hypothesis strategies for containerd configurations: valid TOML in many spellings, with CRI tables among others."""

from __future__ import annotations

import tomllib

from hypothesis import strategies as st

PLUGINS = ("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "cri", "io.containerd.nri.v1.nri")
_KEYS = ("registry", "config_path", "mirrors", "configs", "docker.io", "tls", "cni", "endpoint", "a b")
_VALUES = (
    *('"/etc/x"', "'lit'", "true", "7", "[\"https://m\", 'n']", '"""m\nl"""', "{}", '{ a = 1, "b.c" = "d" }', '""'),
    # Marks of other kinds inside strings, dates, numbers, nested arrays with comments, tables in arrays, escapes.
    *('"""\n[plugins.cri.registry]\n# no\n"""', "'''\n] }\n#'''", '"\\u005b # \\" ]"', "'{{ x }} <% %>'"),
    *("1979-05-27T07:32:00Z", "1979-05-27 07:32:00", "07:32:00", "0x1f_ff", "inf", "6.6e-3"),
    *("[ # why\n  [1, [2]], # ] no\n  # none\n]", "[{ mirrors = [ # in\n 1 ] }, {}]", "[\n]"),
    *('{ mirrors = { a.endpoint = ["m"] }, configs = {} }', '{ mirrors.a.endpoint = [ # x\n"m" ], config_path = "" }'),
)
_COMMENTS = ("# comment", "  # [plugins.cri.registry]", "", "\t", "#config_path = '/no'", "# \"\"\" ''' {")
_ENDS = ("", "", "", " # why", "\t#", "  # a = [")


def _spell(part: str, quotes: str) -> str:
    if quotes == "u":
        return '"' + "".join(f"\\u{ord(char):04x}" if char in ".o" else char for char in part) + '"'
    if part.replace("_", "").isalnum() and quotes == "":
        return part
    return f"'{part}'" if quotes == "'" else f'"{part}"'


@st.composite
def _dotted(draw, parts):
    return draw(st.sampled_from((".", " . "))).join(
        _spell(part, draw(st.sampled_from(("", '"', "'", "u")))) for part in parts
    )


@st.composite
def _line(draw):
    indent = draw(st.sampled_from(("", "  ", "\t")))
    kind = draw(st.sampled_from(("header", "pair", "pair", "comment")))
    if kind == "comment":
        return draw(st.sampled_from(_COMMENTS))
    below = tuple(draw(st.lists(st.sampled_from(_KEYS), max_size=3)))
    if kind == "header":
        path = draw(st.sampled_from((("plugins", draw(st.sampled_from(PLUGINS)), *below), ("debug",), ("plugins",))))
        marks = draw(st.sampled_from((("[", "]"), ("[ ", " ]"), ("[", "]"), ("[[", "]]"))))
        return f"{indent}{marks[0]}{draw(_dotted(path))}{marks[1]}{draw(st.sampled_from(_ENDS))}"
    path = below or (draw(st.sampled_from(_KEYS)),)
    if draw(st.integers(0, 5)) == 0:
        path = ("plugins", draw(st.sampled_from(PLUGINS)), *path)
    equals = draw(st.sampled_from((" = ", "=", "\t=  ")))
    return f"{indent}{draw(_dotted(path))}{equals}{draw(st.sampled_from(_VALUES))}{draw(st.sampled_from(_ENDS))}"


@st.composite
def documents(draw):
    """Return a valid document: lines that would make it invalid are left out."""
    newline = draw(st.sampled_from(("\n", "\r\n")))
    lines: list[str] = []
    for drawn in draw(st.lists(_line(), max_size=12)):
        line = drawn.replace("\n", newline)
        try:
            tomllib.loads(newline.join([*lines, line]))
        except tomllib.TOMLDecodeError:
            continue
        lines.append(line)
    return newline.join(lines) + draw(st.sampled_from(("", newline)))
