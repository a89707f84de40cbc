# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules that kube-proxy and Felix need, before and after a packet-filter manager is switched.

firewalld, nftables.service and iptables.service flush the rules of others when they start or stop. kube-proxy notices
within its sync period; Felix within its refresh interval, or never where that is 0. Whoever does not notice at once is
started again: its container is stopped, and kubelet starts it.
"""

from __future__ import annotations

import json
import re
import time

from .containerd_node import daemon_socket
from .cri import CriClient, CriError
from .packet_filters import read_packet_filters, unpacked

# Container: what its chains begin with, the native tables that are its own.
OWNERS = {"kube-proxy": (("KUBE-",), ("kube-proxy",)), "calico-node": (("cali-",), ("calico",))}
# Of kubelet, which has no container and puts its chains in once a minute.
KUBELET_CHAINS = ("KUBE-FIREWALL", "KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT")
# Anything of an owner.
ANY = "any"
# kube-proxy looks for its rules every 30 s (syncPeriod), so it needs no restart.
SETTLE_S = 40
RETURN_S = 60
GRACE_S = 10
POLL_S = 1
JUMP = re.compile(r"^-A (\S+) .*?-[jg] (\S+)")
# The rules of CNI's plugins portmap (hostPort) and bridge (ipMasq) for single pods: chains of iptables, or tables of
# their own. Their other chains stay when no pod has any. Source: containernetworking/plugins.
POD_CHAIN = re.compile(r"CNI-(?!HOSTPORT-|ADMIN$|FORWARD$)")
POD_TABLES = ("cni_hostport", "cni_plugins_masquerade")


def owned_jumps(saves, nft_json):
    """Return C({container: [what leads into its chains]}): "table chain target" of iptables, "nft table" of nftables.

    :param saves: texts of iptables-save. :param nft_json: texts of C(nft -j list ruleset).
    """
    found = {name: set() for name in OWNERS}
    for text in saves:
        table = ""
        for line in text.splitlines():
            table = line[1:] if line.startswith("*") else table
            jump = JUMP.match(line)
            for name, (prefixes, _tables) in OWNERS.items() if jump else ():
                chain, target = jump.groups()
                if target.startswith(prefixes) and not chain.startswith(prefixes) and target not in KUBELET_CHAINS:
                    found[name].add(f"{table} {chain} {target}")
    for text in nft_json:
        for item in json.loads(text).get("nftables", []):
            chain = item.get("chain", {})
            for name, (_prefixes, tables) in OWNERS.items():
                if chain.get("table") in tables and "hook" in chain:
                    found[name].add(f"nft {chain['family']} {chain['table']} {chain['name']}")
    return {name: sorted(items) for name, items in found.items()}


def pod_rules(saves, nft_json):
    """Return the set of rules that CNI plugins wrote when a pod was started, as C(owned_jumps) names them."""
    found = set()
    for text in saves:
        for line in text.splitlines():
            jump = JUMP.match(line)
            if jump and POD_CHAIN.match(jump.group(2)):
                found.add(" ".join(jump.groups()))
    for text in nft_json:
        rules = (item.get("rule", {}) for item in json.loads(text).get("nftables", []))
        found.update(
            f"nft {rule['family']} {rule['table']} {rule['handle']}"
            for rule in rules
            if rule.get("table") in POD_TABLES and "comment" in rule
        )
    return found


def read_pod_rules():
    """Return C(pod_rules) of this node."""
    read = read_packet_filters([])
    return pod_rules(map(unpacked, read["saves"]), map(unpacked, read["nft_json"]))


def lost_pod_rules(before):
    """Return that the rules of pods are gone, which nobody puts back; empty when some are left, or none were there."""
    if not before or before & read_pod_rules():
        return ""
    return (
        f"the rules that CNI plugins had written for pods (hostPort, masquerading; {len(before)} of them) were flushed "
        "with it, and are written only when a pod starts: delete those pods of this node, so that new ones are started"
    )


def read_jumps():
    """Return C(owned_jumps) of this node."""
    read = read_packet_filters([])
    return owned_jumps(map(unpacked, read["saves"]), map(unpacked, read["nft_json"]))


def expected_jumps():
    """Return what must be there after a switch: what is there now, or C(ANY) of who runs here and has nothing now."""
    now = read_jumps()
    for name in {item["name"] for item in running_owners()[0]}:
        now[name] = now[name] or [ANY]
    return {name: items for name, items in now.items() if items}


def missing_owners(before):
    """Return the names of those whose rules are not all there."""
    now = read_jumps()
    lacks = {name: set(items) - {*now[name], *([ANY] if now[name] else [])} for name, items in before.items()}
    return sorted(name for name, items in lacks.items() if items)


def wait_for(before, seconds):
    """Return who is still missing after so many seconds at most."""
    deadline = time.monotonic() + seconds
    while missing := missing_owners(before):
        if time.monotonic() > deadline:
            return missing
        time.sleep(POLL_S)
    return []


def bring_back(before):
    """Wait until the rules that were there before are there again; start anew who does not put them back.

    :returns: C((names of those that were started again, why rules are still missing, empty when none are)).
    """
    missing = wait_for(before, SETTLE_S) if before else []
    if not missing:
        return [], ""
    restarted, reason = restart(missing)
    missing = wait_for(before, RETURN_S)
    if not missing:
        return restarted, ""
    again = (
        f"{', '.join(restarted)} was started again" if restarted else reason or "no container of that name runs here"
    )
    return restarted, (
        f"the rules of {', '.join(missing)} are not back after {SETTLE_S + RETURN_S} s ({again}): look at its pod, or "
        "restart the unit that it is a part of (k3s, rke2-server, rke2-agent)"
    )


def running_owners():
    """Return C((the running containers of those that have rules, why CRI could not be asked, else empty))."""
    try:
        with CriClient(daemon_socket()) as client:
            found = client.containers()
    except CriError as error:
        return [], str(error)
    return [item for item in found if item["name"] in OWNERS and item["state"] == "CONTAINER_RUNNING"], ""


def restart(names):
    """Stop the containers of these names; kubelet starts them again.

    :returns: C((names of those that were stopped, why not all could be, else empty)).
    """
    stopped = []
    containers, reason = running_owners()
    try:
        with CriClient(daemon_socket()) as client:
            for container in containers:
                if container["name"] in names:
                    client.stop_container(container["id"], GRACE_S)
                    stopped.append(container["name"])
    except CriError as error:
        reason = str(error)
    return stopped, reason
