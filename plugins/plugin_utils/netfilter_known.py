# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to be known beside a node's packet filters to judge them: settings and what runs."""

from __future__ import annotations

import dataclasses

from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_effective import Effective, dataplane
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import Version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_rules import LEGACY, NATIVE, NFT


@dataclasses.dataclass(frozen=True)
class Felix:
    """Felix as it is configured on the node. None or empty is what is not known."""

    version: tuple[int, int] | None = None
    mark_mask: int | None = None
    # "legacy", "nft" (FelixConfiguration iptablesBackend) or "native" (nftablesMode): where Felix writes now.
    backend: str = ""
    chain_insert_mode: str = ""
    wireguard: bool = False
    ipvs: bool = False
    bpf: bool = False


@dataclasses.dataclass(frozen=True)
class Known:
    """What the rules cannot tell. Empty or None is what is not known."""

    # Owners at work (netfilter_owners.running_software).
    running: frozenset[str] | None = None
    # kube-proxy's own answer: "iptables", "ipvs", "nftables".
    proxy_mode: str = ""
    # Where kube-proxy writes iptables rules: the backend that its iptables command points to.
    proxy_backend: str = ""
    felix: Felix = Felix()
    # Networks of pods, as text.
    pod_networks: tuple[str, ...] = ()


def felix_of(version: Version | None, config: Effective, *, nftables: bool | None = None, ipvs: bool = False) -> Felix:
    """Felix as its effective configuration says.

    :param nftables: whether it uses nftables, where that was seen on the node and nftablesMode is Auto.
    :param ipvs: whether kube-proxy's live mode is ipvs, which makes Felix mark endpoints.
    """
    plane = dataplane(config, nftables=nftables)
    mask, mode = plane.mark_mask.value, plane.chain_insert_mode.value
    backend = {"legacy": LEGACY, "nft": NFT}.get(str(config.value("iptablesBackend")).lower(), "")
    if plane.kind == "nftables":
        backend = NATIVE
    elif plane.kind == "auto":
        backend = ""
    return Felix(
        version=version,
        mark_mask=mask if isinstance(mask, int) else None,
        backend=backend,
        chain_insert_mode=str(mode).capitalize() if mode else "",
        wireguard=config.value("wireguardEnabled") is True or config.value("wireguardEnabledV6") is True,
        ipvs=ipvs,
        bpf=config.value("bpfEnabled") is True,
    )
