# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packet filters of a node as texts, read without changing it: no table is registered, no module is loaded.

Saving a table by name registers it, and asking netlink for nf_tables loads that module. So the legacy save commands run
only where the kernel names a table (proc(5): /proc/net/ip_tables_names), and nft's only where nf_tables is there.
"""

from __future__ import annotations

import base64
import os
import platform
import re
import zlib

from .host import read_text, read_zipped, run_command

# Family: what names its legacy tables, the save commands of both backends. The plain name is nft's where no
# alternative is installed (RHEL); a legacy one would print nothing without a table.
FAMILIES = {
    "ip": ("/proc/net/ip_tables_names", ("iptables-legacy-save",), ("iptables-nft-save", "iptables-save")),
    "ip6": ("/proc/net/ip6_tables_names", ("ip6tables-legacy-save",), ("ip6tables-nft-save", "ip6tables-save")),
}
RULE_COMMANDS = {"ip": ("ip", "rule"), "ip6": ("ip", "-6", "rule")}
# What a program in another language is called stands in its second word.
INTERPRETERS = ("python", "perl", "bash", "sh", "ruby")


def read_packet_filters(active_units):
    """Return the texts, and what runs that may have made them.

    :param active_units: names of active units that may have.
    :returns: C(saves), C(nft_json), C(ip_rules): lists of texts, each zlib-compressed in base64, since a node with many
        services has megabytes of rules. C(programs): sorted names of what runs. C(units): the given names. C(unseen):
        why a part could not be read, empty when all was.
    """
    has_nft = has_nf_tables()
    saves, nft, routes, unseen = [], [], [], []
    for names, legacy, other in FAMILIES.values():
        if (read_text(names) or "").split():
            collect(saves, unseen, [(name,) for name in legacy])
        if has_nft:
            collect(saves, unseen, [(name,) for name in other])
    if has_nft:
        collect(nft, unseen, [("nft", "-j", "list", "ruleset")])
        # Either tells what the other does, apart from marks; so one is enough to go on.
        if saves or nft:
            unseen = [reason for reason in unseen if "legacy" in reason]
    for command in RULE_COMMANDS.values():
        collect(routes, unseen, [command])
    return {
        "saves": saves,
        "nft_json": nft,
        "ip_rules": routes,
        "programs": running_programs(),
        "units": sorted(active_units),
        "unseen": "; ".join(unseen),
    }


def has_nf_tables():
    """Return whether the kernel has nf_tables now, as a loaded module or built in."""
    release = platform.release()
    built_in = read_text(f"/lib/modules/{release}/modules.builtin") or ""
    if os.path.isdir("/sys/module/nf_tables") or "/nf_tables.ko" in built_in:
        return True
    # A container sees no /lib/modules, and a kernel without modules has none.
    config = read_zipped("/proc/config.gz") or read_text(f"/boot/config-{release}") or ""
    return "CONFIG_NF_TABLES=y\n" in config


def collect(texts, unseen, commands):
    """Add what the first of the commands that there is prints, or why none did."""
    reason = ""
    for command in commands:
        rc, out, err = run_command(command)
        if rc == 0:
            texts.append(packed(out))
            return
        reason = f"{' '.join(command)}: {err.strip() or rc}"
    unseen.append(reason)


def packed(text):
    """Return a text zlib-compressed in base64."""
    return base64.b64encode(zlib.compress(text.encode("utf-8"))).decode("ascii")


def unpacked(text):
    """Return what C(packed) was given."""
    return zlib.decompress(base64.b64decode(text)).decode("utf-8")


def running_programs():
    """Return the sorted names of the programs that run; arguments, which may hold secrets, are left out."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        words = (read_text(f"/proc/{pid}/cmdline") or "").split("\0")
        # A daemon may have written a title there: "sshd: root@pts/0", "sshd -D [listener]".
        name = os.path.basename(re.split("[ :]", words[0])[0])
        found.add(name)
        if name.startswith(INTERPRETERS) and len(words) > 1 and not words[1].startswith("-"):
            found.add(os.path.basename(words[1]))
    return sorted(found - {""})
