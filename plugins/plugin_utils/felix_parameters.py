# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Felix's parameters: spelling in each place, kind, default by Calico version, and what Felix does with a bad value.

Source: projectcalico/calico, felix/config/config_params.go and param_types.go (projectcalico/felix, config/, up to
3.19), and the descriptions in its CustomResourceDefinitions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

Value = bool | int | float | str | None
Version = tuple[int, int]

SECONDS, MILLISECONDS, MARK, BOOLEAN, INTEGER, TEXT, PORTS = (
    "seconds",
    "millis",
    "mark",
    "bool",
    "int",
    "text",
    "ports",
)
DIE, NON_ZERO, LOCAL = "die", "nonzero", "local"

# Go's ParseFloat and ParseInt with base 0: no blanks around the number.
_FLOAT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_INTEGER = re.compile(
    r"(?P<sign>[+-]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bin>[01]+)|0[oO]?(?P<oct>[0-7]+)|(?P<dec>0|[1-9]\d*))"
)
_TRUE, _FALSE = {"true", "1", "yes", "y", "t"}, {"false", "0", "no", "n", "f"}
_PORT = re.compile(r"(?:(?:tcp|udp)(?::[^:\[\]]+|:\[[^\]]*\])?:)?(\d+)", re.IGNORECASE)
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}

# Spelling in the object; kind; default by the first version that has it ("-": gone from there); Felix's own spelling
# where it is not the same word; flags. Durations are in seconds, those of kind millis in milliseconds.
_TABLE = """
chainInsertMode; oneof Insert Append; Insert; ; die nonzero
defaultEndpointToHostAction; oneof Drop Return Accept; Drop; ; die nonzero
iptablesFilterAllowAction; oneof Accept Return; Accept; ; die nonzero
iptablesMangleAllowAction; oneof Accept Return; Accept; ; die nonzero
iptablesFilterDenyAction; oneof Drop Reject; 3.26=Drop; ; die nonzero
iptablesMarkMask; mark; 0xffff0000; ; die nonzero
iptablesBackend; oneof Legacy NFT Auto; 3.8=Legacy 3.17=Auto
iptablesRefreshInterval; seconds; 3.0=90 3.27=180
iptablesPostWriteCheckInterval; seconds; 3.0=1 3.29=5; IptablesPostWriteCheckIntervalSecs
iptablesLockTimeout; seconds; 3.0=0 3.32=-; IptablesLockTimeoutSecs
iptablesLockProbeInterval; millis; 50; IptablesLockProbeIntervalMillis
iptablesLockFilePath; text; 3.0=/run/xtables.lock 3.32=-
iptablesNATOutgoingInterfaceFilter; text;
ipsetsRefreshInterval; seconds; 3.0=10 3.25=90
routeRefreshInterval; seconds; 90
interfaceRefreshInterval; seconds; 3.17=90
xdpRefreshInterval; seconds; 90
maxIpsetSize; int; 1048576; ; nonzero
nftablesMode; oneof Enabled Disabled Auto; 3.29=Disabled 3.32=Auto
nftablesFilterAllowAction; oneof Accept Return; 3.29=Accept; ; die nonzero
nftablesMangleAllowAction; oneof Accept Return; 3.29=Accept; ; die nonzero
nftablesFilterDenyAction; oneof Drop Reject; 3.29=Drop; ; die nonzero
nftablesMarkMask; mark; 3.29=0xffff0000; ; die nonzero
nftablesRefreshInterval; seconds; 3.29=180
bpfEnabled; bool; 3.13=false
bpfExternalServiceMode; oneof Tunnel DSR; 3.13=Tunnel; ; nonzero
bpfLogLevel; oneof Off Info Debug; 3.13=Off; ; nonzero
bpfKubeProxyIptablesCleanupEnabled; bool; 3.13=true
bpfConnectTimeLoadBalancingEnabled; bool; 3.13=true
bpfConnectTimeLoadBalancing; oneof TCP Enabled Disabled; 3.27=TCP; ; nonzero
bpfDataIfacePattern; text; ?
wireguardEnabled; bool; 3.14=false
wireguardEnabledV6; bool; 3.24=false
wireguardHostEncryptionEnabled; bool; 3.21=false
wireguardListeningPort; int; 3.14=51820
wireguardListeningPortV6; int; 3.24=51821
wireguardRoutingRulePriority; int; 3.14=99
wireguardInterfaceName; text; 3.14=wireguard.cali; ; nonzero
wireguardMTU; int; ?
vxlanEnabled; bool; 3.0=false 3.23=
vxlanPort; int; 4789
vxlanVNI; int; 4096
vxlanMTU; int; ?
ipipEnabled; bool; 3.0=false 3.23=; IpInIpEnabled
ipipMTU; int; ?; IpInIpMtu
ipv6Support; bool; true
interfacePrefix; text; cali; ; die nonzero
interfaceExclude; text; kube-ipvs0
metadataAddr; text; 127.0.0.1; ; die
metadataPort; int 0 65535; 8775; ; die
logFilePath; text; /var/log/calico/felix.log; ; die
logPrefix; text; calico-packet
logSeverityFile; oneof Trace Debug Info Warning Error Fatal; Info
logSeverityScreen; oneof Trace Debug Info Warning Error Fatal; Info
logSeveritySys; oneof Trace Debug Info Warning Error Fatal; Info
reportingInterval; seconds; 30; ReportingIntervalSecs
reportingTTL; seconds; 90; ReportingTTLSecs
netlinkTimeout; seconds; 10; NetlinkTimeoutSecs
endpointReportingEnabled; bool; false
endpointReportingDelay; seconds; 1; EndpointReportingDelaySecs
usageReportingEnabled; bool; true
usageReportingInitialDelay; seconds; 300; UsageReportingInitialDelaySecs
usageReportingInterval; seconds; 86400; UsageReportingIntervalSecs
disableConntrackInvalidCheck; bool; false
healthEnabled; bool; false
healthPort; int 0 65535; 9099
healthHost; text; localhost
prometheusMetricsEnabled; bool; false
prometheusMetricsHost; text; 3.8=
prometheusMetricsPort; int 0 65535; 9091
prometheusGoMetricsEnabled; bool; true
prometheusProcessMetricsEnabled; bool; true
failsafeInboundHostPorts; ports; ?; ; die
failsafeOutboundHostPorts; ports; ?; ; die
kubeNodePortRanges; text; 30000:32767
natPortRange; text;
natOutgoingAddress; text;
policySyncPathPrefix; text;
featureDetectOverride; text; 3.13=
featureGates; text; 3.26=
floatingIPs; oneof Enabled Disabled; 3.23=Disabled
serviceLoopPrevention; oneof Drop Reject Disabled; 3.15=Drop
workloadSourceSpoofing; oneof Disabled Any; 3.23=Disabled
awsSrcDstCheck; oneof DoNothing Enable Disable; 3.18=DoNothing; ; nonzero
routeSource; oneof WorkloadIPs CalicoIPAM; 3.15=CalicoIPAM
sidecarAccelerationEnabled; bool; false
xdpEnabled; bool; true
genericXDPEnabled; bool; false
ignoreLooseRPF; bool; false
externalNodesList; text; ; ExternalNodesCIDRList; die
openstackRegion; text; ; ; die
clusterType; text;
clusterGUID; text; baddecaf
calicoVersion; text;
datastoreType; oneof kubernetes etcdv3; etcdv3; ; die nonzero local
felixHostname; text; ?; ; nonzero local
etcdAddr; text; 127.0.0.1:2379; ; local
etcdScheme; oneof http https; http; ; local
etcdEndpoints; text; ; ; local
etcdKeyFile; text; ; ; local
etcdCertFile; text; ; ; local
etcdCaFile; text; ; ; local
typhaAddr; text; ; ; local
typhaK8sServiceName; text; ; ; local
typhaK8sNamespace; text; kube-system; ; nonzero local
typhaKeyFile; text; ; ; local
typhaCertFile; text; ; ; local
typhaCAFile; text; ; ; local
typhaCN; text; ; ; local
typhaURISAN; text; ; ; local
"""
# An option that a version does not know yet is a bad value there. By the CRDs of 3.27.5 and 3.31.0.
_OPTION_SINCE = {
    ("iptablesBackend", "Auto"): (3, 17),
    ("nftablesMode", "Auto"): (3, 31),
    ("logSeverityFile", "Trace"): (3, 29),
    ("logSeverityScreen", "Trace"): (3, 29),
    ("logSeveritySys", "Trace"): (3, 29),
}


class BadValueError(ValueError):
    """A value that Felix does not parse; the text says why."""


@dataclass(frozen=True)
class Parameter:
    """One parameter. name: its spelling in a FelixConfiguration. config: in felix.cfg and after FELIX_."""

    name: str
    config: str
    kind: str
    options: tuple[str, ...] = ()
    bounds: tuple[int, int] | None = None
    defaults: tuple[tuple[Version, str], ...] = ()
    flags: frozenset[str] = field(default_factory=frozenset)

    @property
    def environment(self) -> str:
        """The environment variable's name as manifests write it; Felix ignores case."""
        return "FELIX_" + self.config.upper()

    def exists(self, version: Version | None) -> bool:
        """Whether this version of Calico has the parameter. An unknown version has all."""
        return version is None or (bool(found := self._defaults_until(version)) and found[-1] != "-")

    def default(self, version: Version | None) -> tuple[Value, bool]:
        """The built-in value and whether it is known: it is not for an unknown version where versions differ."""
        raws = (
            {raw for _since, raw in self.defaults if raw != "-"}
            if version is None
            else set(self._defaults_until(version)[-1:])
        )
        if len(raws) != 1 or "?" in raws:
            return None, False
        raw = raws.pop()
        return (self.parse(raw, None) if raw else self.zero if self.kind == TEXT else None), True

    def _defaults_until(self, version: Version) -> list[str]:
        return [raw for since, raw in self.defaults if since <= version]

    @property
    def zero(self) -> Value:
        """What the word C(none) stands for."""
        return {BOOLEAN: False, SECONDS: 0, MILLISECONDS: 0, INTEGER: 0, MARK: 0}.get(self.kind, "")

    def parse(self, raw: str, version: Version | None) -> Value:
        """Return the value of a raw text as Felix reads it; durations in seconds, whatever the kind.

        :raises BadValueError: Felix does not parse it.
        """
        if raw.lower() == "none":
            if NON_ZERO in self.flags:
                raise BadValueError("this parameter cannot be none")
            return self.zero
        if self.options:
            return self._parse_option(raw, version)
        return _PARSERS[self.kind](self, raw)

    def options_of(self, version: Version | None) -> list[str]:
        """The words that a version takes; all of them for an unknown one."""
        since = {option: _OPTION_SINCE.get((self.name, option), (0, 0)) for option in self.options}
        return [option for option in self.options if version is None or version >= since[option]]

    def _parse_option(self, raw: str, version: Version | None) -> str:
        known = self.options_of(version)
        for option in known:
            if option.lower() == raw.lower():
                return option
        raise BadValueError(f"is none of {', '.join(known)}")


def _parse_bool(_parameter: Parameter, raw: str) -> bool:
    if raw.lower() in _TRUE | _FALSE:
        return raw.lower() in _TRUE
    raise BadValueError("is no boolean (true or false)")


def parse_integer(raw: str) -> int:
    """Return a number as Go reads it with base 0: decimal, 0x, 0b, 0o and a leading 0 for octal.

    :raises BadValueError: it is none.
    """
    match = _INTEGER.fullmatch(raw.replace("_", ""))
    if not match:
        raise BadValueError("is no whole number")
    for group, base in (("hex", 16), ("bin", 2), ("oct", 8), ("dec", 10)):
        if match[group]:
            return int(match["sign"] + match[group], base)
    return 0


def _parse_int(parameter: Parameter, raw: str) -> int:
    value = parse_integer(raw)
    if parameter.bounds and not parameter.bounds[0] <= value <= parameter.bounds[1]:
        raise BadValueError(f"is not within {parameter.bounds[0]} to {parameter.bounds[1]}")
    return value


def _parse_mark(_parameter: Parameter, raw: str) -> int:
    if raw[:1] in "+-" or not 0 <= (value := parse_integer(raw)) < 1 << 32:
        raise BadValueError("is no 32-bit mask, such as 0xffff0000")
    if value.bit_count() < 2:
        raise BadValueError("has fewer than 2 bits set")
    return value


def _parse_seconds(parameter: Parameter, raw: str) -> int | float:
    if not _FLOAT.fullmatch(raw):
        hint = " (no unit is allowed here)" if _DURATION_PART.match(raw) else ""
        raise BadValueError(f"is no plain number of {'milli' if parameter.kind == MILLISECONDS else ''}seconds{hint}")
    value = float(raw) / (1000 if parameter.kind == MILLISECONDS else 1)
    return int(value) if value.is_integer() else value


def _parse_ports(_parameter: Parameter, raw: str) -> str:
    for item in filter(None, (part.strip() for part in raw.split(","))):
        match = _PORT.fullmatch(item)
        if not match or int(match[1]) > 65535:
            raise BadValueError(f"{item!r} is no protocol:port, such as tcp:22")
    return raw


_PARSERS = {
    BOOLEAN: _parse_bool,
    INTEGER: _parse_int,
    MARK: _parse_mark,
    SECONDS: _parse_seconds,
    MILLISECONDS: _parse_seconds,
    PORTS: _parse_ports,
    TEXT: lambda _parameter, raw: raw,
}


def parse_duration(text: str) -> int | float:
    """Return the seconds of a Go duration, such as 90s, 1m30s or 0.

    :raises BadValueError: Go does not parse it.
    """
    sign, body = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if body == "0":
        return 0
    parts = list(_DURATION_PART.finditer(body))
    if not parts or "".join(part[0] for part in parts) != body:
        raise BadValueError("is no duration with a unit, such as 90s")
    value = sign * round(sum(float(part[1]) * _UNITS_S[part[2]] for part in parts), 9)
    return int(value) if float(value).is_integer() else value


def parse_version(text: str) -> Version | None:
    """Return (3, 27) for v3.27.0 and the like, the first such in the text; None without one."""
    match = re.search(r"(?:^|[^\d.])v?(\d+)\.(\d+)(?:[.\-+@_]|$)", text)
    return (int(match[1]), int(match[2])) if match else None


def _parameter(line: str) -> Parameter:
    name, kind, default, config, flags = (*(part.strip() for part in line.split(";")), "", "")[:5]
    word, *rest = kind.split()
    history = [
        (parse_version(since), raw) for since, found, raw in (item.partition("=") for item in default.split()) if found
    ]
    return Parameter(
        name,
        config or name[0].upper() + name[1:],
        word,
        options=tuple(rest) if word == "oneof" else (),
        bounds=(int(rest[0]), int(rest[1])) if word == INTEGER and rest else None,
        defaults=tuple(history) or (((0, 0), default),),
        flags=frozenset(flags.split()),
    )


PARAMETERS = {item.name: item for item in map(_parameter, _TABLE.strip().splitlines())}
BY_CONFIG = {item.config.lower(): item for item in PARAMETERS.values()}
