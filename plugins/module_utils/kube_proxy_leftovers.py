# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove what kube-proxy has left of another mode, or of this one in the other backend of iptables.

Each function returns C(([what was removed], [what stays, and why])), in check mode too.
"""

from __future__ import annotations

import subprocess

from . import kube_proxy_ipvs
from .host import SEARCH_PATH, run_command
from .kube_proxy_live import live_backend, read_saves
from .kube_proxy_rules import nft_tables, own_chains, removal
from .packet_filters import has_nf_tables

RETRIES = 3
LOCK_WAIT_S = 5
# For the chains of ten thousand Services.
RESTORE_TIMEOUT_S = 120


def clean(mode, check_mode):
    """Remove everything of kube-proxy's that its live mode does not make."""
    parts = [_clean_iptables(mode, check_mode)]
    if mode != "nftables":
        parts.append(clean_nft(check_mode))
    if mode != "ipvs":
        parts.append(_clean_ipvs(check_mode))
    return [item for part in parts for item in part[0]], [item for part in parts for item in part[1]]


def _clean_iptables(mode, check_mode):
    saves, left = read_saves()
    live = live_backend(saves) if mode != "nftables" else ""
    removed = []
    for place, (command, save) in saves.items():
        if mode != "nftables" and not live and own_chains(save):
            left.append(
                f"iptables-{' '.join(place)}: both backends have kube-proxy's chains, and none is known to live"
            )
            continue
        gone, stays = _remove(command, save, mode if place[0] == live else "", check_mode)
        removed += [f"iptables-{' '.join(place)} {item}" for item in gone]
        left += [f"iptables-{' '.join(place)} {item}" for item in stays]
    return removed, left


def named(place):
    """A backend and a family in words."""
    return f"iptables-{place[0]} {place[1]}"


def _remove(command, save, live, check_mode):
    """Remove what is left over in one backend and family; again when somebody else wrote meanwhile."""
    reason = ""
    for _attempt in range(RETRIES):
        text, removed, left = removal(save, live)
        if not text or check_mode:
            return removed, left
        reason = _restore(command.replace("-save", "-restore"), text)
        if not reason:
            return removed, left
        save = run_command((command,))[1]
    return [], [reason]


def _restore(command, text):
    """Give a text to iptables-restore; the reason where it is refused, else empty."""
    try:
        done = subprocess.run(
            (command, "--noflush", "-w", str(LOCK_WAIT_S)),
            input=text.encode(),
            env={"PATH": SEARCH_PATH, "LC_ALL": "C"},
            capture_output=True,
            timeout=RESTORE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command}: {error}"
    return "" if done.returncode == 0 else f"{command}: {done.stderr.decode('utf-8', 'replace').strip()}"


def clean_nft(check_mode):
    """Delete kube-proxy's tables of nftables, in one transaction."""
    if not has_nf_tables():
        return [], []
    rc, out, error = run_command(("nft", "list", "tables"))
    if rc:
        return [], [f"tables of nftables: {error.strip() or rc}"]
    found = nft_tables(out)
    if found and not check_mode:
        rc, _out, error = run_command(("nft", "; ".join(f"delete {item}" for item in found)))
    return ([], [f"nft {item}: {error.strip()}" for item in found]) if rc else ([f"nft {item}" for item in found], [])


def _clean_ipvs(check_mode):
    try:
        return kube_proxy_ipvs.clean(check_mode)
    except OSError as error:
        return [], [f"virtual servers and sets: {error.strerror or error}"]
