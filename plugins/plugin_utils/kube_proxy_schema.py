# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of a KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1), their values, and since when they exist.

kube-proxy decodes leniently: a misspelt field has no effect and makes no error. Sources: k8s.io/kube-proxy
config/v1alpha1/types.go of 0.18 to 0.35, kubernetes/kubernetes pkg/proxy/apis/config/validation/validation.go (1.34).
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterator

Version = tuple[int, int]

_DURATION = re.compile(r"[-+]?(?:0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|ms|s|m|h))+)")
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_NUMBERS = {"number": (-(2**31), 2**31 - 1), "count": (0, 2**31 - 1), "bit": (0, 31), "score": (-1000, 1000)}
_CHOICES = {
    "mode": ("", "iptables", "ipvs", "nftables"),
    "local": ("", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"),
    "format": ("", "text", "json"),
}
_RULES = "masqueradeBit=bit masqueradeAll=boolean syncPeriod=duration minSyncPeriod=duration"
# Each field with the kind of its value; a dot leads into a mapping.
_TABLE = f"""
bindAddress=bind_ip bindAddressHardFail=boolean clusterCIDR=cidrs configSyncPeriod=duration detectLocalMode=local
enableProfiling=boolean featureGates=gates healthzBindAddress=address hostnameOverride=text
metricsBindAddress=address mode=mode nodePortAddresses=node_ports oomScoreAdj=score portRange=text
showHiddenMetricsForVersion=minor windowsRunAsService=boolean
clientConnection: acceptContentTypes=text burst=count contentType=text kubeconfig=text qps=decimal
conntrack: maxPerCore=count min=count tcpBeLiberal=boolean tcpCloseWaitTimeout=duration tcpEstablishedTimeout=duration
conntrack: udpStreamTimeout=duration udpTimeout=duration
detectLocal: bridgeInterface=text interfaceNamePrefix=text
iptables: localhostNodePorts=boolean {_RULES}
ipvs: excludeCIDRs=cidr_list minSyncPeriod=duration scheduler=text strictARP=boolean syncPeriod=duration
ipvs: tcpFinTimeout=duration tcpTimeout=duration udpTimeout=duration
logging: flushFrequency=any format=format options=any verbosity=count vmodule=any
nftables: {_RULES}
winkernel: enableDSR=boolean forwardHealthCheckVip=boolean networkName=text rootHnsEndpointName=text sourceVip=text
"""
_SINCE: dict[str, Version] = {
    "detectLocal": (1, 24),
    "iptables.localhostNodePorts": (1, 26),
    "logging": (1, 28),
    "nftables": (1, 29),
    "conntrack.tcpBeLiberal": (1, 29),
    "conntrack.udpTimeout": (1, 29),
    "conntrack.udpStreamTimeout": (1, 29),
    "windowsRunAsService": (1, 31),
}
_GONE: dict[str, Version] = {"udpIdleTimeout": (1, 26)}
# kubernetes/kubernetes pkg/features: NFTablesProxyMode is alpha in 1.29, beta in 1.31.
_NFTABLES_GATE = "NFTablesProxyMode"
_NFTABLES_ALPHA, _NFTABLES_BETA, _IPVS_DEPRECATED = (1, 29), (1, 31), (1, 35)


def _read_table() -> dict:
    fields: dict = {}
    for line in _TABLE.strip().splitlines():
        name, colon, words = line.rpartition(": ")
        table = fields.setdefault(name, {}) if colon else fields
        table |= dict(word.split("=") for word in words.split())
    return fields


FIELDS = _read_table()


def refusals(desired: dict, version: Version | None = None) -> dict[str, str]:
    """Return why kube-proxy would not do what a configuration says, by field path; none when it would.

    :param desired: fields as in the configuration; None for one that is to be taken away.
    :param version: (major, minor) of the oldest kube-proxy that reads it, None when it is not known.
    """
    return dict(_refusals(desired, FIELDS, "", desired, version))


def deprecations(desired: dict, version: Version | None = None) -> dict[str, str]:
    """Return what kube-proxy does today, and will not for long, by field path."""
    if desired.get("mode") == "ipvs" and version and version >= _IPVS_DEPRECATED:
        return {"mode": "ipvs is deprecated since Kubernetes 1.35: nftables takes its place"}
    return {}


def _refusals(there: dict, fields: dict, above: str, desired: dict, version) -> Iterator[tuple[str, str]]:
    for name, value in there.items():
        path, kind = f"{above}{name}", fields.get(name) if isinstance(name, str) else None
        if kind is None:
            yield path, _unknown(str(name), above)
        elif version and path in _SINCE and version < _SINCE[path]:
            yield path, f"it is there since Kubernetes {_dotted(_SINCE[path])}, this is {_dotted(version)}"
        elif value is None:
            continue
        elif isinstance(kind, dict):
            if isinstance(value, dict):
                yield from _refusals(value, kind, f"{path}.", desired, version)
            else:
                yield path, f"{value!r} is no mapping; it holds {', '.join(kind)}"
        elif reason := _of_kind(kind, value) or _of_mode(path, value, desired, version):
            yield path, reason


def _unknown(name: str, above: str) -> str:
    """Why a field has no effect, with the one that was probably meant."""
    if name in {"apiVersion", "kind"}:
        return "it is the kind of the document, which is not changed"
    if name in _GONE and not above:
        return f"it is gone since Kubernetes {_dotted(_GONE[name])}"
    paths = [*(key for key, kind in FIELDS.items() if not isinstance(kind, dict)), *_nested()]
    same = [path for path in paths if path.rpartition(".")[2].lower() == name.lower()]
    exact = [path for path in same if path == f"{above}{path.rpartition('.')[2]}"] or same
    if not exact:
        spelt = difflib.get_close_matches(f"{above}{name}", [*paths, *_tables()], 1, 0.75)
        exact = spelt or difflib.get_close_matches(name, [path.rpartition(".")[2] for path in paths], 1, 0.75)
    hint = f": {' or '.join(exact)} is meant?" if exact else ""
    return f"kube-proxy knows no such field and ignores it{hint}"


def _nested() -> Iterator[str]:
    return (f"{table}.{name}" for table in _tables() for name in FIELDS[table])


def _tables() -> list[str]:
    return [name for name, kind in FIELDS.items() if isinstance(kind, dict)]


def _of_mode(path: str, value: object, desired: dict, version: Version | None) -> str:
    """Why this kube-proxy does not have the mode."""
    if path != "mode" or value != "nftables" or version is None or version >= _NFTABLES_BETA:
        return ""
    if version < _NFTABLES_ALPHA:
        return f"nftables is there since Kubernetes 1.31 (alpha since 1.29), this is {_dotted(version)}"
    gates = desired.get("featureGates")
    if isinstance(gates, dict) and gates.get(_NFTABLES_GATE) is True:
        return ""
    return f"nftables is alpha in Kubernetes {_dotted(version)}: upgrade to 1.31, or set featureGates.{_NFTABLES_GATE}"


def _of_kind(kind: str, value: object) -> str:
    """Why a value is none of its kind, "" when it is."""
    if kind in _NUMBERS:
        low, high = _NUMBERS[kind]
        fits = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return "" if fits else f"{value!r} is no number from {low} to {high}"
    if kind in _CHOICES:
        return _choice(_CHOICES[kind], value)
    return _CHECKS[kind](value)


def _choice(choices: tuple[str, ...], value: object) -> str:
    if value in choices:
        return ""
    near = next((item for item in choices if item and item.lower() == str(value).strip().lower()), "")
    gone = "; userspace is gone since Kubernetes 1.26" if value == "userspace" else ""
    if value == "kernelspace":
        gone = "; kernelspace is that of Windows"
    expected = f"write {near}" if near else f"it is {', '.join(filter(None, choices))}, or empty for the default"
    return f"{value!r} is none of its values, whose case counts: {expected}{gone}"


def _boolean(value: object) -> str:
    return "" if isinstance(value, bool) else f"{value!r} is no boolean: write true or false, without quotes"


def _text(value: object) -> str:
    return "" if isinstance(value, str) else f"{value!r} is no text: put it in quotes"


def _decimal(value: object) -> str:
    fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    return "" if fits else f"{value!r} is no number"


def _any(_value: object) -> str:
    return ""


def seconds(value: str) -> float | None:
    """Return a duration of Go in seconds, None when it is none."""
    if not _DURATION.fullmatch(value):
        return None
    parts = re.findall(r"([\d.]+)(ns|us|µs|ms|s|m|h)", value)
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts) * (-1 if value.startswith("-") else 1)


def _duration(value: object) -> str:
    if not isinstance(value, str) or seconds(value) is None:
        example = f'"{value}s"' if isinstance(value, int) and not isinstance(value, bool) else '"30s"'
        return f"{value!r} is no duration: write a number with its unit, such as {example}"
    return f"{value!r} is negative" if seconds(value) < 0 else ""


def _ip(value: object) -> str:
    try:
        ipaddress.ip_address(str(value))
    except ValueError:
        return f"{value!r} is no IP address"
    return ""


def _address(value: object) -> str:
    if value == "":
        return ""
    host, colon, port = str(value).rpartition(":")
    fits = isinstance(value, str) and not _ip(host.removeprefix("[").removesuffix("]"))
    if colon and fits and port.isdecimal() and 0 < int(port) < 65536:
        return ""
    return f"{value!r} is no IP:port, such as 127.0.0.1:10249"


def _cidr(value: object) -> str:
    try:
        ipaddress.ip_network(str(value), strict=False)
    except ValueError:
        return f"{value!r} is no CIDR, such as 10.0.0.0/8"
    return "" if "/" in str(value) else f"{value!r} has no length, such as /24"


def _cidrs(value: object) -> str:
    if not isinstance(value, str):
        return f"{value!r} is no text: it is one CIDR, or two with a comma between"
    if len(value.split(",")) > 2:
        return f"{value!r} holds more than one CIDR of each IP version"
    return next(filter(None, map(_cidr, value.split(","))), "") if value else ""


def _cidr_list(value: object) -> str:
    if not isinstance(value, list):
        return f"{value!r} is no list of CIDRs"
    return next(filter(None, map(_cidr, value)), "")


def _node_ports(value: object) -> str:
    if isinstance(value, list) and "primary" in value:
        return "" if value == ["primary"] else "primary stands alone, without CIDRs"
    return _cidr_list(value)


def _gates(value: object) -> str:
    if not isinstance(value, dict):
        return f"{value!r} is no mapping of gates to true or false"
    wrong = [str(name) for name, on in value.items() if on is not None and not isinstance(on, bool)]
    return f"{', '.join(wrong)} is neither true nor false" if wrong else ""


def _minor(value: object) -> str:
    fits = isinstance(value, str) and re.fullmatch(r"(\d+\.\d+)?", value)
    return "" if fits else f"{value!r} is no version such as '1.33', in quotes"


_CHECKS: dict[str, Callable[[object], str]] = {
    "address": _address,
    "any": _any,
    "bind_ip": lambda value: _ip(value) if value else _text(value),
    "boolean": _boolean,
    "cidr_list": _cidr_list,
    "cidrs": _cidrs,
    "decimal": _decimal,
    "duration": _duration,
    "gates": _gates,
    "minor": _minor,
    "node_ports": _node_ports,
    "text": _text,
}


def _dotted(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
