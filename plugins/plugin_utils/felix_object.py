# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A FelixConfiguration object: what Felix receives of it, what its CRD refuses, and how a value is spelt in each place.

Source: projectcalico/calico, libcalico-go/lib/backend/syncersv1/updateprocessors/configurationprocessor.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import (
    BOOLEAN,
    BY_CONFIG,
    INTEGER,
    LOCAL,
    MARK,
    MILLISECONDS,
    PARAMETERS,
    PORTS,
    SECONDS,
    BadValueError,
    Parameter,
    Value,
    Version,
    parse_duration,
)

API_VERSIONS = ("crd.projectcalico.org/v1", "projectcalico.org/v3")
ANNOTATION = "config.projectcalico.org/"
# From here the CRD has a schema, and from there patterns; corpus of CRDs 3.25.2, 3.27.5, 3.31.0 and 3.32.1.
_SCHEMA_SINCE, _PATTERN_SINCE = (3, 15), (3, 27)
# As the CRD has it: the doubled backslash makes it refuse fractions.
DURATION_PATTERN = r"^([0-9]+(\\.[0-9]+)?(ms|s|m|h))*$"
# Strings or numbers, and a duration without a pattern.
_NO_RULE = {"natPortRange", "kubeNodePortRanges", "externalNodesList", "nftablesRefreshInterval"}
# Parameters that an object cannot set.
_NO_FIELD = {"calicoVersion", "clusterGUID", "clusterType", "ignoreLooseRPF"}
# Case counts where the CRD lists the values instead of a pattern.
_ENUM_SINCE = {
    "awsSrcDstCheck": (3, 18),
    "bpfConnectTimeLoadBalancing": (3, 27),
    "floatingIPs": (3, 23),
    "iptablesBackend": (3, 32),
    "nftablesMode": (3, 29),
}
_BY_LOWER = {item.name.lower(): item for item in PARAMETERS.values()}


def object_values(item: dict) -> tuple[dict[str, str], dict[str, str]]:
    """Return what Felix receives of an object, by its own spelling, and what it cannot decode, with the reason.

    An annotation config.projectcalico.org/NAME replaces the field, unchecked, an empty one too.
    """
    values, refused = {}, {}
    for name, value in ((str(name), value) for name, value in (item.get("spec") or {}).items()):
        if value is None or value == "" or name == "nodeSelector":
            continue
        parameter = PARAMETERS.get(name)
        try:
            values[parameter.config if parameter else name] = _raw(parameter, value)
        except BadValueError as error:
            refused[name] = f"{value!r} {error}"
    for key, value in ((item.get("metadata") or {}).get("annotations") or {}).items():
        if str(key).startswith(ANNOTATION):
            name = key.removeprefix(ANNOTATION)
            values = {old: raw for old, raw in values.items() if old.lower() != name.lower()}
            values[name] = str(value)
    return values, refused


def _raw(parameter: Parameter | None, value: object) -> str:
    if isinstance(value, list):
        return _list_raw(value)
    if isinstance(value, dict):
        return ",".join(f"{key}={inner}" for key, inner in value.items())
    if parameter:
        _check_type(parameter, value)
        if parameter.kind in {SECONDS, MILLISECONDS}:
            return f"{parse_duration(str(value)) * (1000 if parameter.kind == MILLISECONDS else 1):.12g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_type(parameter: Parameter, value: object) -> None:
    wanted = {BOOLEAN: bool, INTEGER: int, MARK: int}.get(parameter.kind, str)
    # A boolean is an int in Python, but none in JSON.
    is_wanted = isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))
    if parameter.name == "natPortRange" or is_wanted:
        return
    names = {bool: "boolean", int: "integer", str: "string"}
    hint = ' with a unit, such as "90s" or "0s"' if parameter.kind in {SECONDS, MILLISECONDS} else ""
    raise BadValueError(
        f"must be of type {names[wanted]}{hint}, not {names.get(type(value), type(value).__name__)}: the API server "
        "refuses it"
    )


def _list_raw(items: list) -> str:
    """The text of a list; failsafe ports as protocol:port, an empty list of theirs as none."""
    if not items:
        return "none"
    if not all(isinstance(item, dict) for item in items):
        return ",".join(map(str, items))
    if all(item.keys() >= {"min", "max"} for item in items):
        return ",".join(f"{item['min']}-{item['max']}" for item in items)
    return ",".join(map(_port_raw, items))


def _port_raw(item: dict) -> str:
    net = str(item.get("net") or "")
    parts = [str(item.get("protocol") or "tcp").lower(), f"[{net}]" if ":" in net else net, str(item.get("port"))]
    return ":".join(filter(None, parts))


def refusals(spec: dict, schema: dict, *, kubernetes: Version | None = None) -> dict[str, str]:
    """Return the fields that the API server refuses or drops, with the reason.

    :param schema: openAPIV3Schema of C(spec) from the cluster's own CRD, else C(known_schema) of the version.
    :param kubernetes: version of the API server: from 1.36 C(format: int32) is enforced.
    """
    found = {}
    for name, value in spec.items() if schema["properties"] else ():
        rule = schema["properties"].get(name)
        if rule is None:
            why = _unknown(name, partial=schema.get("partial", False))
        else:
            why = next(_complaints(rule, value, kubernetes), "") if value is not None else ""
        if why:
            found[name] = why
    return found


def known_schema(version: Version) -> dict:
    """The rules of a version's CRD for the parameters known here, for where the cluster's own CRD was not read."""
    rules = {
        name: _rule(item, version)
        for name, item in PARAMETERS.items()
        if version >= _SCHEMA_SINCE and item.exists(version) and LOCAL not in item.flags and name not in _NO_FIELD
    }
    return {"properties": rules, "partial": True}


def _rule(parameter: Parameter, version: Version) -> dict:
    kind = {BOOLEAN: "boolean", INTEGER: "integer", MARK: "integer"}.get(parameter.kind, "string")
    rule = {"type": kind}
    if parameter.kind == PORTS or parameter.name in _NO_RULE:
        rule = {}
    elif parameter.kind == MARK:
        rule["format"] = "int32"
    elif version >= _ENUM_SINCE.get(parameter.name, (99, 0)):
        rule["enum"] = parameter.options_of(version)
    elif version >= _PATTERN_SINCE and parameter.kind in {SECONDS, MILLISECONDS}:
        rule["pattern"] = DURATION_PATTERN
    elif version >= _PATTERN_SINCE and parameter.options:
        rule["pattern"] = f"^(?i)({'|'.join(parameter.options_of(version))})?$"
    return rule


def _unknown(name: str, *, partial: bool) -> str:
    near = BY_CONFIG.get(name.lower()) or _BY_LOWER.get(name.lower())
    if partial and near is None:
        return ""
    hint = f"; it is spelt {near.name}" if near and near.name != name else ""
    return f"is no field of this CRD: kubectl refuses it or the API server drops it{hint}"


def _complaints(rule: dict, value: object, kubernetes: Version | None) -> Iterator[str]:
    if rule.get("x-kubernetes-int-or-string"):
        return
    wanted = rule.get("type", "")
    if wanted and wanted != _json_type(value) and (wanted, _json_type(value)) != ("number", "integer"):
        yield f"{value!r} must be of type {wanted}, not {_json_type(value)}"
        return
    if rule.get("enum") and value not in rule["enum"]:
        yield f"{value!r} is none of {', '.join(map(str, rule['enum']))}"
    if isinstance(value, str):
        if rule.get("pattern") and not _go_pattern(rule["pattern"]).search(value):
            yield f"{value!r} does not match {rule['pattern']}"
        if len(value) > rule.get("maxLength", len(value)):
            yield f"is longer than {rule['maxLength']} characters"
    if isinstance(value, int):
        int32 = -(1 << 31) <= value < 1 << 31 or (kubernetes is not None and kubernetes < (1, 36))
        if rule.get("format") == "int32" and not int32:
            yield f"{value} does not fit int32, which Kubernetes 1.36 and later enforce"
        if not rule.get("minimum", value) <= value <= rule.get("maximum", value):
            yield f"{value} is not within {rule.get('minimum', '')} to {rule.get('maximum', '')}"
    for item in value if isinstance(value, list) else []:
        yield from _complaints(rule.get("items") or {}, item, kubernetes)


def _go_pattern(pattern: str) -> re.Pattern[str]:
    """Go allows C(^(?i)...), Python only flags at the very beginning; C($) is the end of the text in Go."""
    ignore = re.IGNORECASE if "(?i)" in pattern else 0
    return re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", pattern.replace("(?i)", "")), ignore)


def _json_type(value: object) -> str:
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "object"


def spellings(name: str, value: Value) -> dict[str, str | int | bool]:
    """How a setting is written in each place: C(object), C(environment) with C(file), and their names.

    :param name: in any place's spelling. :param value: durations in seconds.
    :raises KeyError: Felix has no parameter of that name.
    """
    parameter = (
        PARAMETERS.get(name)
        or BY_CONFIG.get(name.lower())
        or {item.name.lower(): item for item in PARAMETERS.values()}[name.lower()]
    )
    if parameter.kind in {SECONDS, MILLISECONDS}:
        in_object, plain = _duration(value), f"{value * (1000 if parameter.kind == MILLISECONDS else 1):.12g}"
    elif parameter.kind == MARK:
        in_object, plain = value, f"{value:#x}"
    else:
        in_object, plain = value, str(value).lower() if isinstance(value, bool) else str(value)
    return {
        "object_field": parameter.name,
        "object": in_object,
        "variable": parameter.environment,
        "file_key": parameter.config,
        "plain": plain,
    }


def _duration(seconds: float) -> str:
    """Whole units only: the CRD's pattern refuses fractions."""
    return f"{int(seconds)}s" if float(seconds).is_integer() else f"{round(seconds * 1000)}ms"
