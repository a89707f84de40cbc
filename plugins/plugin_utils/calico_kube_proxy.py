# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of Felix's configuration and kube-proxy's mode does not go together."""

from __future__ import annotations

from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_effective import Effective
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import Version

# Felix's nftables data plane. Source: projectcalico/calico#8025.
NFTABLES_SINCE = (3, 29)


def proxy_conflicts(version: Version | None, config: Effective, mode: str, *, runs: bool = True) -> dict[str, str]:
    """Return conflicts by id.

    :param mode: of kube-proxy: iptables, ipvs or nftables; "" when not known.
    :param runs: whether there is a kube-proxy at all.
    """
    found = {}
    felix_mode = config.value("nftablesMode")
    if config.value("bpfEnabled") is True:
        if runs and config.value("bpfKubeProxyIptablesCleanupEnabled") is not False:
            found["calico.bpf_kube_proxy"] = (
                "eBPF takes kube-proxy's place and Felix removes its rules: switch kube-proxy off"
            )
        return found
    if mode == "nftables" and version is not None and version < NFTABLES_SINCE:
        found["calico.nftables_version"] = (
            f"kube-proxy's nftables mode needs Calico 3.29 or later, found {version[0]}.{version[1]}"
        )
    elif mode == "nftables" and felix_mode == "Disabled":
        found["calico.nftables_mode"] = "kube-proxy uses nftables, Felix iptables: set nftablesMode to Enabled"
    elif mode in {"iptables", "ipvs"} and felix_mode == "Enabled":
        found["calico.nftables_mode"] = (
            f"Felix uses nftables, kube-proxy {mode}: Felix needs kube-proxy's nftables mode"
        )
    return found
