# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube-proxy's flags in files of a node: config.yaml of k3s and RKE2 with its drop-ins, and MicroK8s' argument file.

k3s and RKE2 read config.yaml, then config.yaml.d/*.yaml by name: a key replaces what it had before, one that ends in
C(+) appends. Of a flag that is there twice kube-proxy takes the last. Sources: docs.k3s.io/installation/configuration
(Multiple Config Files, Value Merge Behavior); cmd/kube-proxy/app/options.go of Kubernetes 1.34.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .containerd_edit import EditError
from .kube_proxy_options import argument_words, parse_flags
from .yaml_edit import edit_yaml, is_same, load_documents

KEY = "kube-proxy-arg"
# Field: flag. Those of nftables and winkernel have none of their own; the kubeconfig is the installer's.
FLAGS = {
    "bindAddress": "bind-address",
    "bindAddressHardFail": "bind-address-hard-fail",
    "clientConnection.burst": "kube-api-burst",
    "clientConnection.contentType": "kube-api-content-type",
    "clientConnection.qps": "kube-api-qps",
    "clusterCIDR": "cluster-cidr",
    "configSyncPeriod": "config-sync-period",
    "detectLocalMode": "detect-local-mode",
    "detectLocal.bridgeInterface": "pod-bridge-interface",
    "detectLocal.interfaceNamePrefix": "pod-interface-name-prefix",
    "enableProfiling": "profiling",
    "featureGates": "feature-gates",
    "healthzBindAddress": "healthz-bind-address",
    "hostnameOverride": "hostname-override",
    "logging.flushFrequency": "log-flush-frequency",
    "logging.format": "logging-format",
    "logging.verbosity": "v",
    "metricsBindAddress": "metrics-bind-address",
    "mode": "proxy-mode",
    "nodePortAddresses": "nodeport-addresses",
    "oomScoreAdj": "oom-score-adj",
    "showHiddenMetricsForVersion": "show-hidden-metrics-for-version",
    "conntrack.maxPerCore": "conntrack-max-per-core",
    "conntrack.min": "conntrack-min",
    "conntrack.tcpBeLiberal": "conntrack-tcp-be-liberal",
    "conntrack.tcpCloseWaitTimeout": "conntrack-tcp-timeout-close-wait",
    "conntrack.tcpEstablishedTimeout": "conntrack-tcp-timeout-established",
    "conntrack.udpStreamTimeout": "conntrack-udp-timeout-stream",
    "conntrack.udpTimeout": "conntrack-udp-timeout",
    "iptables.localhostNodePorts": "iptables-localhost-nodeports",
    "iptables.masqueradeAll": "masquerade-all",
    "iptables.masqueradeBit": "iptables-masquerade-bit",
    "iptables.minSyncPeriod": "iptables-min-sync-period",
    "iptables.syncPeriod": "iptables-sync-period",
    "ipvs.excludeCIDRs": "ipvs-exclude-cidrs",
    "ipvs.minSyncPeriod": "ipvs-min-sync-period",
    "ipvs.scheduler": "ipvs-scheduler",
    "ipvs.strictARP": "ipvs-strict-arp",
    "ipvs.syncPeriod": "ipvs-sync-period",
    "ipvs.tcpFinTimeout": "ipvs-tcpfin-timeout",
    "ipvs.tcpTimeout": "ipvs-tcp-timeout",
    "ipvs.udpTimeout": "ipvs-udp-timeout",
}


def flags_of(config: Mapping, told: Mapping[str, str], above: str = "") -> dict[str, str | None]:
    """The flags for fields of a KubeProxyConfiguration, None for one that is taken away.

    :param told: the flags that are there; feature gates among them that config does not name stay.
    :raises EditError: a field has no flag.
    """
    found: dict[str, str | None] = {}
    for name, value in config.items():
        path = f"{above}{name}"
        if path == "featureGates" and isinstance(value, dict):
            old = dict(item.split("=", 1) for item in told.get(FLAGS[path], "").split(",") if "=" in item)
            gates = {key: each for key, each in {**old, **value}.items() if each is not None}
            found[FLAGS[path]] = _plain(gates) if gates else None
        elif isinstance(value, dict):
            found |= flags_of(value, told, f"{path}.")
        elif path not in FLAGS:
            raise EditError(f"{path} has no flag, and here kube-proxy is told by flags alone")
        else:
            found[FLAGS[path]] = None if value is None else _plain(value)
    return found


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return ",".join(f"{key}={_plain(each)}" for key, each in value.items())
    return str(value)


def edit_files(files: Mapping[str, str], flags: Mapping[str, str | None]) -> dict[str, str]:
    """Return the files of k3s or RKE2 that change, by path.

    :param files: config.yaml first, then the drop-ins in the order in which they are read.
    :raises EditError: a file is none that could be edited.
    """
    texts = dict(files)
    for flag, value in flags.items():
        holders = _holders(texts, flag)
        if value is None or holders:
            # Where it is there already; only the last one counts, and the others go with it when it is taken away.
            for path, key in holders if value is None else holders[-1:]:
                texts[path] = _with_flag(texts[path], key, flag, value)
        else:
            path, key = _last_place(texts)
            texts[path] = _with_flag(texts[path], key, flag, value)
    return {path: text for path, text in texts.items() if text != files[path]}


def flags_in_force(files: Mapping[str, str]) -> dict[str, str]:
    """The flags that files of k3s or RKE2 give kube-proxy, in the order of edit_files().

    :raises EditError: a file is no YAML.
    """
    places = _places(files)
    return parse_flags(_dashed(word) for path, key in places for word in argument_words(_values(files[path])[key]))


def _dashed(word: str) -> str:
    """k3s takes every word for a flag, with or without dashes and value. Source: GetArgs of its pkg/util/args.go."""
    return word if word.startswith("-") else f"--{word}"


def _values(text: str) -> dict[str, object]:
    documents = load_documents(text)
    found = documents[0] if documents and isinstance(documents[0], dict) else {}
    return {key: found[key] for key in (KEY, f"{KEY}+") if key in found}


def _places(texts: Mapping[str, str]) -> list[tuple[str, str]]:
    """C((path, key)) of what is in force: a key without + takes the place of all before it."""
    found: list[tuple[str, str]] = []
    for path, text in texts.items():
        keys = _values(text)
        found = [(path, KEY)] if KEY in keys else found
        found += [(path, f"{KEY}+")] if f"{KEY}+" in keys else []
    return found


def _holders(texts: Mapping[str, str], flag: str) -> list[tuple[str, str]]:
    return [
        (path, key)
        for path, key in _places(texts)
        if flag in parse_flags(map(_dashed, argument_words(_values(texts[path])[key])))
    ]


def _last_place(texts: Mapping[str, str]) -> tuple[str, str]:
    return next(reversed(_places(texts)), (next(iter(texts)), KEY))


def _with_flag(text: str, key: str, flag: str, value: str | None) -> str:
    words = argument_words(_values(text).get(key))
    if value is None:
        return edit_yaml(text, {key: [word for word in words if flag not in parse_flags([_dashed(word)])] or None})
    last = next((at for at in reversed(range(len(words))) if flag in parse_flags([_dashed(words[at])])), len(words))
    old = words[last] if last < len(words) else ""
    new = f"{'--' if old.startswith('--') else ''}{flag}={value}"
    changed = [*words[:last], new, *words[last + 1 :]]
    is_text = isinstance(_values(text).get(key), str) and len(changed) == 1
    edited = edit_yaml(text, {key: changed[0] if is_text else changed})
    # In its place the word keeps its quotes, and the comment behind it.
    in_place = text.replace(old, new) if old and text.count(old) == 1 else edited
    return in_place if is_same(load_documents(in_place), load_documents(edited)) else edited


def argument_file_flags(text: str) -> dict[str, str]:
    """The flags of a file with one on each line, as snaps keep them."""
    words = [word for line in text.splitlines() if not line.lstrip().startswith("#") for word in line.split()]
    return parse_flags(words)


def edit_argument_file(text: str, flags: Mapping[str, str | None]) -> str:
    """Return a file with one flag on each line, as snaps keep them, with other flags; every other line stays."""
    lines = text.splitlines(keepends=True)
    for flag, value in flags.items():
        at = [number for number, line in enumerate(lines) if re.match(rf"\s*--?{re.escape(flag)}(?=[=\s]|$)", line)]
        for number in reversed(at if value is None else at[:-1]):
            del lines[number]
        if value is None:
            continue
        end = "\n" if not lines or "\r\n" not in lines[0] else "\r\n"
        if at:
            lines[at[-1] - (len(at) - 1)] = f"--{flag}={value}{end}"
        else:
            if lines and not lines[-1].endswith("\n"):
                lines[-1] += end
            lines.append(f"--{flag}={value}{end}")
    return "".join(lines)
