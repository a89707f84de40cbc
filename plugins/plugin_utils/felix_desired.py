# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of Felix as the spec of a FelixConfiguration, or why it cannot be had, with the right value.

A CRD of before 3.27 accepts any text, and Felix takes its built-in value for what it cannot read, or starts again for
ever: what is refused here would do nothing or harm.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import operator
import re
from collections.abc import Iterator, Mapping

from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_marks import (
    INT32_BITS,
    MaskPlan,
    bit_names,
    bits_in_use,
    is_enough,
    plan_mask,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_object import object_values, refusals
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import (
    BY_CONFIG,
    LOCAL,
    MARK,
    MILLISECONDS,
    PARAMETERS,
    SECONDS,
    BadValueError,
    Parameter,
    Version,
    parse_duration,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_requirements import RULE_SETTINGS
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_known import Felix
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_marks import SECURE_WORKLOAD_BITS

# Secure Workload's two combinations, "Requirements for Policy Enforcement". {0} is iptables or nftables.
PROFILES = {
    "append": {"chainInsertMode": "Append", "{0}RefreshInterval": "0s"},
    "return": {
        "chainInsertMode": "Insert",
        "{0}FilterAllowAction": "Return",
        "{0}MangleAllowAction": "Return",
        "{0}RefreshInterval": "0s",
    },
}
_ALLOW_ACTIONS = tuple(
    f"{used}{table}AllowAction" for used in ("iptables", "nftables") for table in ("Filter", "Mangle")
)
# kube-apiserver holds an int32 field to its range from here.
_INT32_SINCE = (1, 36)
_DURATION_UNIT = re.compile(r"([0-9]+(ms|s|m|h))+")


@dataclasses.dataclass(frozen=True)
class Ground:
    """What of the cluster decides whether a setting can be had.

    schema: of the CRD's C(spec), with no C(properties) where it has none. felix: as it runs, with its mask.
    plane: iptables, nftables, auto or bpf. others: bits of the packet mark that are not Felix's, by owner.
    """

    version: Version | None
    kubernetes: Version | None
    schema: dict
    felix: Felix
    plane: str = "iptables"
    others: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def fits_int32(self) -> bool:
        """Whether the API server takes no mask with bit 31."""
        return self.kubernetes is not None and self.kubernetes >= _INT32_SINCE

    @property
    def families(self) -> tuple[str, ...]:
        """With which word the settings begin that count here."""
        known = "nftablesRefreshInterval" in self.schema["properties"] or PARAMETERS["nftablesMode"].exists(
            self.version
        )
        return {"nftables": ("nftables",), "auto": ("iptables", "nftables") if known else ("iptables",)}.get(
            self.plane, ("iptables",)
        )

    @property
    def taken(self) -> int:
        """All bits of others."""
        return functools.reduce(operator.or_, self.others.values(), 0)

    def plan(self, reserved: int = 0) -> MaskPlan:
        """A mask that keeps clear of all others and of C(reserved), and of bit 31, so that an upgrade keeps it."""
        return plan_mask(dataclasses.replace(self.felix, mark_mask=None), reserved | self.taken)


@dataclasses.dataclass(frozen=True)
class Desired:
    """The fields of C(spec) with their values, None for one that is taken away; and what is refused, by field."""

    spec: dict
    refused: dict[str, str]


def desired_spec(
    ground: Ground,
    *,
    settings: Mapping[str, object] | None = None,
    profile: str = "",
    variant: str = "append",
    mark_mask: int | str | None = None,
) -> Desired:
    """What is to be in the FelixConfiguration.

    :param settings: fields by their own names.
    :param profile: secure_workload, or "" for none.
    :param variant: append or return.
    :param mark_mask: a mask, C(plan) for one that keeps clear of others, None to leave it, with a profile to plan it.
    """
    given = dict(settings or {})
    spec, refused = dict(given), {}
    reserved = SECURE_WORKLOAD_BITS if profile else 0
    if profile:
        wanted = {key.format(used): value for used in ground.families for key, value in PROFILES[variant].items()}
        refused |= _contradictions(given, wanted, ground)
        spec |= wanted
    mask = "plan" if profile and mark_mask is None else mark_mask
    named = [name for name in given if name.endswith("MarkMask")]
    if mask is not None and (mark_mask is not None or not named):
        names = [f"{used}MarkMask" for used in ground.families]
        if named:
            refused[named[0]] = "is given twice, in settings and as mark_mask: give one of them"
        values, why = _mask_values(ground, mask, reserved)
        refused |= dict.fromkeys(names, why) if why else {}
        spec |= dict.fromkeys(names, values) if values is not None else {}
    for name, value in spec.items():
        why = next(_complaints(name, value, ground, reserved), "") if name not in refused else ""
        if why:
            refused[name] = why
    return Desired(spec, refused)


def _mask_values(ground: Ground, mask: int | str, reserved: int) -> tuple[int | None, str]:
    """The mask to be set, None where the present one may stay, and why there is none."""
    if mask != "plan":
        return mask, ""
    felix = ground.felix
    in_use = bits_in_use(felix.mark_mask or 0, felix)
    if felix.mark_mask and not felix.bpf and not in_use & (reserved | ground.taken):
        return None, ""
    plan = ground.plan(reserved)
    return plan.mask, plan.obstacle


def _contradictions(given: dict, wanted: dict, ground: Ground) -> dict[str, str]:
    """Settings that the requirement's text does not allow beside its own."""
    found = {}
    text = "Secure Workload's requirement (profile secure_workload)"
    if ground.plane == "bpf" and given.get("bpfEnabled") is not False:
        found["bpfEnabled"] = f"{text} is about rules: eBPF has bits 20 and 21 for itself; set bpfEnabled: false first"
    for name, value in given.items():
        if name in wanted:
            if value != wanted[name]:
                found[name] = f"{value!r} contradicts {text}: it is {wanted[name]!r}; leave it out"
        elif name in ("chainInsertMode", *_ALLOW_ACTIONS, *RULE_SETTINGS) and not name.endswith("MarkMask"):
            default, known = PARAMETERS[name].default(ground.version)
            if value is not None and known and default != _parsed(name, value, ground.version):
                found[name] = f"{value!r} contradicts {text}: all other options have their default, {default!r}"
    return found


def _parsed(name: str, value: object, version: Version | None) -> object:
    parameter = PARAMETERS[name]
    try:
        if parameter.kind in (SECONDS, MILLISECONDS):
            return parse_duration(str(value))
        return parameter.parse(str(value), version)
    except BadValueError:
        return value


def _complaints(name: str, value: object, ground: Ground, reserved: int) -> Iterator[str]:
    """Why a field or its value does nothing or harm, the first reason first."""
    yield from _name_complaints(name, ground)
    parameter = PARAMETERS.get(name)
    if value is None:
        if parameter is None or parameter.default(ground.version)[0] in (None, ""):
            yield "cannot be taken away node by node, since its built-in value is not known here: set it to a value"
        return
    if value == "":
        yield "is empty, and Felix ignores an empty value: leave it out, or give null to take it away"
    if parameter:
        if parameter.kind in (SECONDS, MILLISECONDS):
            yield from _duration_complaints(value)
        elif parameter.kind == MARK:
            yield from _mask_complaints(value, ground, reserved)
        elif parameter.options:
            yield from _word_complaints(parameter, value, ground.version)
    yield from refusals({name: value}, {**ground.schema, "partial": True}, kubernetes=ground.kubernetes).values()
    yield from object_values({"spec": {name: value}})[1].values()
    if parameter and type(value) in (str, int) and parameter.kind not in (SECONDS, MILLISECONDS):
        try:
            parameter.parse(str(value), ground.version)
        except BadValueError as error:
            yield f"{value!r} {error}"


def _name_complaints(name: str, ground: Ground) -> Iterator[str]:
    properties, parameter, version = ground.schema["properties"], PARAMETERS.get(name), ground.version
    if name == "nodeSelector":
        yield "is no setting of Felix's: which nodes an object is for is decided here"
    where = "this cluster's CRD" if properties else f"Calico {_shown(version)}"
    if parameter and LOCAL in parameter.flags:
        yield "is read from calico-node's environment and felix.cfg only"
    elif parameter and not parameter.exists(version):
        since = next((found for found, raw in parameter.defaults if raw != "-"), None)
        when = f"it came with {_shown(since)}" if since and version and version < since else "it is gone since then"
        yield f"is no field of Calico {_shown(version)}, which runs here: {when}"
    elif (properties and name not in properties) or (not properties and parameter is None):
        yield f"is no field of {where}{_spelling(name, properties)}: the API server drops it without a word"


def _shown(version: Version | None) -> str:
    return ".".join(map(str, version)) if version else "of unknown version"


def _spelling(name: str, properties: Mapping) -> str:
    """The field that was meant, as a part of a sentence."""
    known = {each.lower(): each for each in (properties or PARAMETERS)}
    plain = re.sub(r"^felix_?|[_-]", "", name.lower())
    by_config = BY_CONFIG.get(plain)
    found = known.get(plain) or (by_config.name if by_config and by_config.name.lower() in known else "")
    near = difflib.get_close_matches(plain, known, n=1, cutoff=0.75)
    found = found or (known[near[0]] if near else "")
    return f"; it is spelt {found}" if found else ""


def _duration_complaints(value: object) -> Iterator[str]:
    """Only what every CRD and Felix read the same: whole numbers with a unit."""
    if isinstance(value, str) and _DURATION_UNIT.fullmatch(value):
        return
    right = "a number with a unit, such as 90s"
    try:
        number = parse_duration(f"{value}s" if re.fullmatch(r"\d+(\.\d+)?", str(value)) else str(value))
        if number >= 0 and float(round(number * 1000)) == round(number * 1000, 6):
            right = f'"{int(number)}s"' if float(number).is_integer() else f'"{round(number * 1000)}ms"'
    except BadValueError:
        pass
    yield f"{value!r} is no duration that the API server and Felix take: write {right}"


def _mask_complaints(value: object, ground: Ground, reserved: int) -> Iterator[str]:
    felix = ground.felix
    if isinstance(value, bool) or not isinstance(value, int):
        number = _number(value)
        right = f": write {number}" if number is not None else ", such as 2144272384 (0x7fcf0000)"
        yield f"{value!r} must be a whole number{right}"
        return
    proposal = _proposal(ground.plan(reserved))
    if value < 0:
        yield f"{value} is negative, and a running Felix ignores it: write {value & 0xFFFFFFFF}{proposal}"
    if value >= 1 << 32:
        yield f"{value:#x} has more than 32 bits{proposal}"
    if value > INT32_BITS and ground.fits_int32:
        yield f"{value} ({value:#x}) has bit 31, which the API server of Kubernetes 1.36 and later refuses{proposal}"
    if not is_enough(value, felix):
        needed = (
            f"{len(bit_names(felix))} bits ({', '.join(bit_names(felix))}){' and more for IPVS' if felix.ipvs else ''}"
        )
        yield f"{value:#x} is too little: Felix needs {needed} and would start again for ever{proposal}"
    for owner, bits in ground.others.items():
        if value & bits:
            yield f"{value:#x} has bits {value & bits:#x} of {owner}{proposal}"
    if bits_in_use(value, felix) & reserved:
        yield f"{value:#x} lets Felix use bits {bits_in_use(value, felix) & reserved:#x} of Secure Workload's{proposal}"


def _number(value: object) -> int | None:
    try:
        return int(str(value), 0)
    except ValueError:
        return None


def _proposal(plan: MaskPlan) -> str:
    return f"; {plan.decimal} ({plan.mask:#x}) can be had" if plan.mask is not None else f"; {plan.obstacle}"


def _word_complaints(parameter: Parameter, value: object, version: Version | None) -> Iterator[str]:
    known = parameter.options_of(version)
    if parameter.name == "iptablesBackend" and value == "Auto" and version is not None and version < (3, 25):
        yield "'Auto' in an object crashes calico-node up to 3.24: leave it out, it is the built-in value from 3.17 on"
    if value in known:
        return
    same = {option.lower(): option for option in known}
    near = difflib.get_close_matches(str(value).lower(), same, n=1, cutoff=0.6)
    meant = f": write {same[near[0]]}" if near else ""
    yield f"{value!r} is none of {', '.join(known)}{meant}"
