# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that mend a node, as texts: what is in them stays, what is missing is added.

Formats: NetworkManager.conf(5), modules-load.d(5), sysctl.d(5), modules.dep(5), ufw.conf of ufw(8).
"""

from __future__ import annotations

import re

# Source: Calico's documentation, "Configure NetworkManager".
UNMANAGED = (
    "interface-name:cali*",
    "interface-name:tunl*",
    "interface-name:vxlan.calico",
    "interface-name:vxlan-v6.calico",
    "interface-name:wireguard.cali",
    "interface-name:wg-v6.cali",
)
HEADER = "# Written by portcullis.fleet.node_fix; with state=absent it takes its changes back.\n"

_SECTION = re.compile(r"^\s*\[([^\]]+)\]\s*$")
# ufw sources the file as a shell script, and takes yes and YES for on. Source: ufw-init-functions.
_UFW_SWITCH = re.compile(r"""^(\s*ENABLED=)(["']?)(\w*)\2(?=\s|$)""", re.MULTILINE)
_UNMANAGED_KEY = re.compile(r"^(\s*unmanaged-devices\s*\+?=\s*)(.*?)(\s*)$")


def add_unmanaged(text, wanted, *, extends):
    """Return a NetworkManager configuration whose unmanaged devices include those that are wanted.

    :param extends: another file sets the key too, so that a new line adds to it instead of replacing it.
    """
    lines, section, head, last = text.splitlines(keepends=True), "", None, None
    for index, line in enumerate(lines):
        if found := _SECTION.match(line):
            section = found.group(1)
            head = index if section == "keyfile" else head
        elif section == "keyfile" and _UNMANAGED_KEY.match(line):
            last = index
    if last is not None:
        key = _UNMANAGED_KEY.match(lines[last])
        there = [item.strip() for item in re.split("[;,]", key.group(2)) if item.strip()]
        missing = [item for item in wanted if item not in there]
        if not missing:
            return text
        lines[last] = key.group(1) + ";".join([*there, *missing]) + key.group(3)
        return "".join(lines)
    new = f"unmanaged-devices{'+' if extends else ''}={';'.join(wanted)}\n"
    if head is not None:
        lines[head] = with_line_end(lines[head])
        return "".join([*lines[: head + 1], new, *lines[head + 1 :]])
    return with_line_end(text or HEADER) + "[keyfile]\n" + new


def sets_unmanaged(text):
    """Return whether a NetworkManager configuration sets unmanaged devices."""
    section = ""
    for line in text.splitlines():
        if found := _SECTION.match(line):
            section = found.group(1)
        elif section == "keyfile" and _UNMANAGED_KEY.match(line):
            return True
    return False


def add_modules(text, names):
    """Return a list of modules to load at boot that names these."""
    there = {line.strip().replace("-", "_") for line in text.splitlines()}
    new = [name for name in dict.fromkeys(names) if name not in there]
    return with_line_end(text or HEADER) + "".join(f"{name}\n" for name in new) if new else text


def set_sysctls(text, values):
    """Return a sysctl.d file that gives kernel parameters these values and no other."""
    lines, missing = [], dict(values)
    for line in text.splitlines(keepends=True):
        name, separator, value = line.partition("=")
        name = name.strip().lstrip("-").replace("/", ".")
        if not separator or line.lstrip().startswith(("#", ";")) or name not in values:
            lines.append(line)
        elif name in missing:
            wanted = missing.pop(name)
            lines.append(line if value.strip() == wanted else f"{name} = {wanted}\n")
    if missing:
        lines = [with_line_end("".join(lines) or HEADER), *(f"{name} = {missing[name]}\n" for name in sorted(missing))]
    return "".join(lines)


def is_ufw_on(text):
    """Return whether ufw.conf switches ufw on; of several assignments the last counts."""
    values = [value for _key, _quote, value in _UFW_SWITCH.findall(text)]
    return bool(values) and values[-1].lower() == "yes"


def switch_ufw_off(text):
    """Return ufw.conf as C(ufw disable) leaves it."""
    return _UFW_SWITCH.sub(lambda found: found[1] + ("no" if found[3].lower() == "yes" else found[3]), text)


def with_line_end(text):
    """Return a text that ends with a line's end."""
    return text if not text or text.endswith("\n") else text + "\n"
