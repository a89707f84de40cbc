# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calico's IP pools: where they come from, how many nodes they serve, and what they overlap.

Calico itself never compares a pool with the service range.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_effective import EnvValue
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_object import API_VERSIONS
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_list, as_mapping, name_of

# Bits of a block where the pool does not name them.
_BLOCK_SIZE = {4: 26, 6: 122}


@dataclass(frozen=True)
class Pool:
    """An IP pool. source: object, installation (the operator reverts edits of the object) or environment.

    blocks: how many nodes can have addresses of their own from it, since each needs a block.
    for_pods: whether pods or tunnels of nodes get its addresses; those of load balancers may lie in the nodes' network.
    """

    name: str
    cidr: str
    source: str
    block_size: int
    blocks: int
    for_pods: bool = True


def read_pools(
    documents: Iterable[dict], environment: Mapping[str, EnvValue], installation: dict
) -> tuple[list[Pool], dict[str, str]]:
    """Return the pools of the objects, and notes by id on those that cannot be read or have a catch."""
    pools, notes = [], {}
    wanted = [(item, "installation") for item in as_list(as_mapping(installation.get("calicoNetwork")).get("ipPools"))]
    for item in documents:
        if item.get("kind") == "IPPool" and item.get("apiVersion") in API_VERSIONS:
            wanted.append(({**as_mapping(item.get("spec")), "name": name_of(item)}, "object"))
    for family in ("4", "6"):
        variable = environment.get(f"CALICO_IPV{family}POOL_CIDR")
        if variable and variable.value:
            name = f"default-ipv{family}-ippool"
            wanted.append(({"cidr": variable.value, "name": name}, "environment"))
            notes["calico.pool_environment"] = "CALICO_IPV4POOL_CIDR makes a pool only while there is none"
    for item, source in wanted:
        try:
            pools.append(_pool(as_mapping(item), source))
        except ValueError as error:
            notes["calico.pool_unreadable"] = f"pool {name_of(as_mapping(item))}: {error}"
    for pool in pools:
        if pool.blocks == 1:
            notes["calico.pool_one_block"] = (
                f"pool {pool.cidr} is one block of /{pool.block_size}: one node gets addresses"
            )
    return pools, notes


def _pool(item: dict, source: str) -> Pool:
    """A pool.

    :raises ValueError: no range can be read.
    """
    network = ipaddress.ip_network(str(item.get("cidr", "")), strict=False)
    block = item.get("blockSize")
    size = block if isinstance(block, int) and block >= network.prefixlen else _BLOCK_SIZE[network.version]
    uses = as_list(item.get("allowedUses"))
    for_pods = not uses or bool({"Workload", "Tunnel"} & set(map(str, uses)))
    blocks = 1 << max(0, size - network.prefixlen)
    return Pool(str(item.get("name") or ""), str(network), source, size, blocks, for_pods)


def encapsulations(documents: Iterable[dict]) -> frozenset[str]:
    """How the enabled pools among the objects wrap packets: ipip, vxlan, both or neither."""
    specs = [as_mapping(item.get("spec")) for item in documents if item.get("kind") == "IPPool"]
    return frozenset(
        kind
        for kind in ("ipip", "vxlan")
        for spec in specs
        if spec.get("disabled") is not True and spec.get(f"{kind}Mode") in {"Always", "CrossSubnet"}
    )


def overlaps(pools: Iterable[Pool], ranges: Mapping[str, Iterable[str]]) -> list[tuple[Pool, str, str]]:
    """Which pools share addresses with other ranges: (pool, name of the range, the range).

    :param ranges: by what they are, such as service range or node addresses.
    :raises ValueError: a range cannot be read.
    """
    found = []
    for pool in pools:
        own = ipaddress.ip_network(pool.cidr)
        for name, texts in ranges.items():
            for text in texts:
                other = ipaddress.ip_network(text, strict=False)
                if own.version == other.version and own.overlaps(other):
                    found.append((pool, name, text))
    return found
