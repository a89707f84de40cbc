# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube-proxy's options, as a KubeProxyConfiguration and as flags: mode, strictARP, and what it does not accept.

Source: kubernetes/kubernetes, staging/src/k8s.io/kube-proxy/config/v1alpha1/types.go and cmd/kube-proxy/app/options.go.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field

from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_list, as_mapping

DEFAULT_MODE = "iptables"
MODES = {"iptables", "ipvs", "nftables", "kernelspace"}
# Fields of any release; those of the second line are gone and do nothing in new ones.
_FIELDS = frozenset(
    """apiVersion kind metadata bindAddress bindAddressHardFail clientConnection clusterCIDR configSyncPeriod conntrack
    detectLocal detectLocalMode enableProfiling featureGates healthzBindAddress hostnameOverride iptables ipvs linux
    logging metricsBindAddress mode nftables nodePortAddresses oomScoreAdj portRange showHiddenMetricsForVersion
    winkernel windows windowsRunAsService nodeIPOverride syncPeriod minSyncPeriod
    """.split()
)
_OLD_FIELDS = frozenset("resourceContainer udpTimeoutMilliseconds udpIdleTimeout cleanupIPVS".split())
_TRUE = {"true", "1", "t"}
_MASQUERADE_ALL = "masqueradeAll hides pod addresses behind node addresses: Secure Workload needs to see the pod's own"
_ASSIGNMENT = re.compile(r"--?([A-Za-z][\w-]*)(?:=(.*))?", re.DOTALL)


@dataclass(frozen=True)
class Options:
    """What options say. mode: as kube-proxy takes it, "" when another place decides. is_set: the option is there.

    masquerade_bit: the bit of the packet mark that it uses.
    """

    mode: str = DEFAULT_MODE
    mode_is_set: bool = False
    strict_arp: bool = False
    strict_arp_is_set: bool = False
    config_file: str = ""
    masquerade_bit: int = 14
    notes: dict[str, str] = field(default_factory=dict)


def read_configuration(document: dict) -> Options:
    """Read a KubeProxyConfiguration."""
    notes = {}
    mode, strict = document.get("mode"), as_mapping(document.get("ipvs")).get("strictARP")
    missing = [key for key in ("apiVersion", "kind") if not document.get(key)]
    if missing:
        notes["kube_proxy.incomplete"] = f"the document has no {' and no '.join(missing)}: kube-proxy does not load it"
    unknown = sorted(map(str, set(document) - _FIELDS - _OLD_FIELDS))
    if unknown:
        notes["kube_proxy.unknown_keys"] = f"{', '.join(unknown)}: kube-proxy knows no such key and ignores it"
    if mode and (not isinstance(mode, str) or mode not in MODES):
        notes["kube_proxy.bad_mode"] = _bad_mode(mode)
    if strict is not None and not isinstance(strict, bool):
        notes["kube_proxy.bad_strict_arp"] = f"ipvs.strictARP {strict!r} is no boolean: kube-proxy does not start"
    rules = as_mapping(document.get("nftables" if mode == "nftables" else "iptables"))
    if rules.get("masqueradeAll") is True:
        notes["kube_proxy.masquerade_all"] = _MASQUERADE_ALL
    bit = rules.get("masqueradeBit")
    return Options(
        mode=str(mode) if mode else DEFAULT_MODE,
        mode_is_set=bool(mode),
        strict_arp=strict is True,
        strict_arp_is_set=isinstance(strict, bool),
        masquerade_bit=bit if isinstance(bit, int) else Options.masquerade_bit,
        notes=notes,
    )


def _bad_mode(mode: object) -> str:
    gone = "; userspace is gone since Kubernetes 1.26" if mode == "userspace" else ""
    return f"mode {mode!r} is none of iptables, ipvs, nftables{gone}: kube-proxy does not start"


def command_flags(words: Iterable[str]) -> dict[str, str] | None:
    """Return kube-proxy's flags of a command line, None when it starts no kube-proxy.

    Flags before the program's name belong to a wrapper; a shell's text is taken apart.
    """
    found = _started(words)
    return parse_flags(found[1]) if found else None


def program_of(words: Iterable[str]) -> list[str]:
    """Return what starts kube-proxy in a command line, without wrapper and flags; nothing when it starts none."""
    found = _started(words)
    return found[0] if found else []


def _started(words: Iterable[str]) -> tuple[list[str], list[str]] | None:
    """The words that name kube-proxy's program, and those behind it."""
    flat: list[str] = []
    for word in map(str, words):
        flat += _split(word) if re.search(r"\s", word) else [word]
    names = [word.rpartition("/")[2] for word in flat]
    for at, name in enumerate(names):
        if name == "kube-proxy":
            return [flat[at]], flat[at + 1 :]
        if name == "proxy" and "hyperkube" in names[:at]:
            return [flat[names.index("hyperkube")], flat[at]], flat[at + 1 :]
    return None


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def parse_flags(words: Iterable[str]) -> dict[str, str]:
    """Return flags by name, the last one winning; a flag without a value is true, the dashes may be missing."""
    found, pending = {}, ""
    for word in words:
        match = _ASSIGNMENT.fullmatch(word if word.startswith("-") else f"--{word}" if "=" in word else word)
        if match:
            found[match[1]] = "true" if match[2] is None else match[2]
            pending = match[1] if match[2] is None else ""
        elif pending:
            found[pending], pending = word, ""
    return found


def read_flags(flags: dict[str, str]) -> Options:
    """Read flags. With C(--config) the mode comes from that file, and the mode's flag is ignored."""
    mode, strict = flags.get("proxy-mode", ""), flags.get("ipvs-strict-arp")
    config, notes = flags.get("config", ""), {}
    if config:
        if mode or strict:
            names = [f"--{name}" for name in ("proxy-mode", "ipvs-strict-arp") if name in flags]
            notes["kube_proxy.flag_ignored"] = f"{', '.join(names)} has no effect beside --config={config}"
        return Options(mode="", config_file=config, notes=notes)
    if mode and mode not in MODES:
        notes["kube_proxy.bad_mode"] = _bad_mode(mode)
    if flags.get("masquerade-all", "").lower() in _TRUE:
        notes["kube_proxy.masquerade_all"] = _MASQUERADE_ALL
    bit = flags.get("iptables-masquerade-bit", "")
    return Options(
        mode=mode or DEFAULT_MODE,
        mode_is_set=bool(mode),
        strict_arp=str(strict).lower() in _TRUE,
        strict_arp_is_set=strict is not None,
        masquerade_bit=int(bit) if bit.isdecimal() else Options.masquerade_bit,
        notes=notes,
    )


def argument_words(value: object) -> list[str]:
    """The words of an option that may be a list, one text or a mapping of lists, as installers allow."""
    if isinstance(value, dict):
        return [f"{key}={each}" for key, inner in value.items() for each in (as_list(inner) or [_plain(inner)])]
    return [_plain(item) for item in as_list(value)] if isinstance(value, list) else [_plain(value)] if value else []


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
