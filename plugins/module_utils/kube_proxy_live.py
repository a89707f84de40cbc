# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube-proxy as it works on this node: its own word, the kernel's rules, and what a former mode has left of them."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import subprocess
import time

from . import kube_proxy_ipvs, service_watch
from .host import COMMAND_TIMEOUT_S, SEARCH_PATH, http_get, read_text, run_command
from .kube_proxy_rules import is_left_over, is_own, nft_tables, removal, serves, tables_of
from .packet_filters import FAMILIES, has_nf_tables

POLL_S = 0.3
RETRIES = 3
LOCK_WAIT_S = 5
MODES = ("iptables", "ipvs", "nftables")
LEGACY, NFT = "legacy", "nft"
MULTI_BINARY = re.compile(r"xtables-(legacy|nft)-multi")
# Where images of kube-proxy have their iptables command.
IPTABLES_PATHS = ("/usr/sbin/iptables", "/sbin/iptables", "/usr/bin/iptables")
LINKS = 8


def proxy_mode(address):
    """The live mode in kube-proxy's own word, empty where none answers.

    :param address: of its metrics, C(IP:port); an unspecified IP is asked on loopback.
    """
    host, _colon, port = address.rpartition(":")
    host = ipaddress.ip_address(host.strip("[]"))
    loopback = ("::1", "127.0.0.1")[host.version == 4]
    status, body = http_get(int(port), "/proxyMode", loopback if host.is_unspecified else str(host))
    return body if status == 200 and body in MODES else ""


def save_commands():
    """Return C([(backend, family, save command)]) of what there is to read, without registering a table."""
    found = []
    for family, (names, legacy, other) in FAMILIES.items():
        if (read_text(names) or "").split():
            found.append((LEGACY, family, legacy[0]))
        if has_nf_tables():
            found.append((NFT, family, next((name for name in other if has_program(name)), other[0])))
    return found


def has_program(name):
    """Whether a program is in the search path."""
    return any(os.access(os.path.join(folder, name), os.X_OK) for folder in SEARCH_PATH.split(":"))


def read_saves():
    """Return C(({(backend, family): text of iptables-save}, [what could not be read]))."""
    saves, unread = {}, []
    for backend, family, command in save_commands():
        rc, out, err = run_command((command,))
        if rc == 0:
            saves[backend, family] = out
        else:
            unread.append(f"{command}: {err.strip() or rc}")
    return saves, unread


def read_nft():
    """Return C(([text of nft -j list ruleset], [what could not be read]))."""
    if not has_nf_tables():
        return [], []
    rc, out, err = run_command(("nft", "-j", "list", "ruleset"))
    return ([out], []) if rc == 0 else ([], [f"nft: {err.strip() or rc}"])


def is_in_kernel(mode, address):
    """Whether the kernel has this mode's rules for a Service; true where no program of the node can tell."""
    saves, unread = read_saves() if mode == "iptables" else ({}, [])
    nft, missing = read_nft() if mode == "nftables" else ([], [])
    servers = kube_proxy_ipvs.read_virtual_servers() if mode == "ipvs" else []
    return serves(mode, address, saves.values(), nft, servers) or bool(missing) or (bool(unread) and not saves)


def wait_for_mode(mode, metrics_address, service, timeout_s):
    """Wait until kube-proxy says that this is its mode, the kernel has its rules, and the Service answers.

    :param service: C((address, port)).
    :returns: C((the mode that it says, whether the kernel has the rules, whether the Service answers)).
    """
    deadline = time.monotonic() + timeout_s
    while True:
        found = proxy_mode(metrics_address)
        in_kernel = found == mode and is_in_kernel(mode, service[0])
        answers = service_watch.answers(*service)
        if (in_kernel and answers) or time.monotonic() > deadline:
            return found, in_kernel, answers
        time.sleep(POLL_S)


def live_backend(saves):
    """The backend of iptables that kube-proxy writes to: the one that has its rules, or the one of its command.

    :returns: empty where both have rules and its command cannot be seen.
    """
    there = {backend for (backend, _family), text in saves.items() if own_chains(text)}
    return there.pop() if len(there) == 1 else backend_of_command()


def own_chains(save):
    """kube-proxy's chains in a text of iptables-save."""
    return [name for _table, chains, _rules in tables_of(save) for name in chains if is_own(name)]


def backend_of_command():
    """Which of the two programs the iptables command of the running kube-proxy is; empty where that cannot be seen."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if (read_text(f"/proc/{pid}/comm") or "").strip() == "kube-proxy":
            return next(filter(None, (backend_of_link(f"/proc/{pid}/root", path) for path in IPTABLES_PATHS)), "")
    return ""


def backend_of_link(root, path):
    """Follow a link inside a root, whose absolute links are meant from there."""
    for _step in range(LINKS):
        match = MULTI_BINARY.search(path)
        if match:
            return match.group(1)
        try:
            target = os.readlink(root + path)
        except OSError:
            return ""
        path = os.path.normpath(os.path.join(os.path.dirname(path), target))
    return ""


def clean(mode, check_mode):
    """Remove what other modes, or this one in the other backend of iptables, have left of kube-proxy.

    :param mode: the live one.
    :returns: C(([what was removed], [what stays, and why])).
    """
    removed, left = _clean_iptables(mode, check_mode)
    if mode != "nftables":
        _merge((removed, left), clean_nft(check_mode))
    if mode != "ipvs":
        _merge((removed, left), _clean_ipvs(check_mode))
    return removed, left


def _merge(found, more):
    found[0].extend(more[0])
    found[1].extend(more[1])


def _clean_iptables(mode, check_mode):
    saves, left = read_saves()
    live = live_backend(saves) if mode != "nftables" else ""
    removed = []
    for (backend, family), _save in saves.items():
        if mode == "nftables" or (live and backend != live):
            is_wanted = is_own
        elif live:
            is_wanted = is_left_over(mode)
        else:
            left.append(
                f"iptables-{backend} {family}: both backends have kube-proxy's chains, and none is known to be live"
            )
            continue
        _merge((removed, left), _remove_chains(backend, family, is_wanted, check_mode))
    return removed, left


def _remove_chains(backend, family, is_wanted, check_mode):
    """Remove chains in one transaction for each table; once more when somebody else wrote meanwhile."""
    reason = ""
    for _attempt in range(RETRIES):
        command = next(item for item in save_commands() if item[:2] == (backend, family))[2]
        rc, save, error = run_command((command,))
        if rc:
            return [], [f"{command}: {error.strip() or rc}"]
        text, removed, left = removal(save, is_wanted)
        named = [f"iptables-{backend} {family} {item}" for item in removed]
        kept = [f"iptables-{backend} {family} {item}" for item in left]
        if not text or check_mode:
            return named, kept
        reason = _restore(command.replace("-save", "-restore"), text)
        if not reason:
            return named, kept
    return [], [f"iptables-{backend} {family}: {reason}"]


def _restore(command, text):
    """Give a text to iptables-restore; the reason where it is refused, else empty."""
    argv = (command, "--noflush", "-w", str(LOCK_WAIT_S))
    try:
        done = subprocess.run(
            argv,
            input=text.encode(),
            env={"PATH": SEARCH_PATH, "LC_ALL": "C"},
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command}: {error}"
    return "" if done.returncode == 0 else f"{command}: {done.stderr.decode('utf-8', 'replace').strip()}"


def clean_nft(check_mode):
    """Delete kube-proxy's tables of nftables; as C(clean)."""
    texts, unread = read_nft()
    removed, left = [], list(unread)
    for family, name in nft_tables(texts):
        rc, _out, error = (0, "", "") if check_mode else run_command(("nft", "delete", "table", family, name))
        if rc == 0:
            removed.append(f"nft table {family} {name}")
        else:
            left.append(f"nft table {family} {name}: {error.strip() or rc}")
    return removed, left


def _clean_ipvs(check_mode):
    """After the rules, since they use the sets."""
    removed, left = [], []
    own, _others = kube_proxy_ipvs.split_servers(
        kube_proxy_ipvs.read_virtual_servers(), kube_proxy_ipvs.link_addresses()
    )
    if not kube_proxy_ipvs.has_link():
        own = []  # without the link nothing tells kube-proxy's from others
    steps = [
        (f"virtual server {item['protocol']} {item['address']}:{item['port']}", kube_proxy_ipvs.delete_server, item)
        for item in own
    ]
    # A kernel without sets has none.
    with contextlib.suppress(OSError):
        steps += [(f"set {name}", kube_proxy_ipvs.delete_set, name) for name in kube_proxy_ipvs.set_names()]
    if kube_proxy_ipvs.has_link():
        steps.append((f"link {kube_proxy_ipvs.LINK}", kube_proxy_ipvs.delete_link, None))
    for what, delete, item in steps:
        try:
            if not check_mode:
                delete(item)
        except OSError as error:
            left.append(f"{what}: {error.strerror or error}")
        else:
            removed.append(what)
    return removed, left
