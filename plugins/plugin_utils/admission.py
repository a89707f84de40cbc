# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who refused an object, by which rule and for which fields, from the message alone; never an error.

Messages come from the API server, from events, from kubectl and from logs, with line breaks as such or as backslash n.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ansible_collections.portcullis.fleet.plugins.plugin_utils.admission_fields import (
    IMAGE,
    find_fields,
    find_pod_security_fields,
)

REFUSAL, WARNING, OTHER, UNKNOWN = "refusal", "warning", "not_admission", "unknown"


@dataclass(frozen=True)
class Refusal:
    """What a message says.

    who: psa, psp, scc, kyverno, gatekeeper, kubewarden, opa, validatingadmissionpolicy, quota, limitrange, another
    plugin's name, webhook:NAME, webhook:other, webhook:unreachable, or for what is no admission rbac and apiserver.
    rule: level, policy, constraint, quota or webhook; "" when the message names none. fields: of the pod.
    kind: refusal, warning (the object was admitted), not_admission (refused, but not there) or unknown.
    """

    who: str = UNKNOWN
    rule: str = ""
    fields: tuple[str, ...] = ()
    kind: str = UNKNOWN


def parse_refusal(message: str) -> Refusal:
    """Say what a message is; a text that is none of those known gives C(unknown)."""
    text = _unescape(message)
    for reader in _READERS:
        found = reader(text)
        if found:
            return found
    return Refusal()


def _unescape(message: str) -> str:
    return re.sub(r'\\+"', '"', message.replace("\r", "").replace("\\n", "\n").replace("\\t", "\t"))


def _unreachable(text: str) -> Refusal | None:
    match = re.search(r"failed calling (?:admission )?webhook \"?([\w./-]+[\w-])", text, re.IGNORECASE)
    if not match:
        return None
    kind = WARNING if re.search(r"failing open", text, re.IGNORECASE) else REFUSAL
    return Refusal("webhook:unreachable", match[1], (), kind)


def _validating_policy(text: str) -> Refusal | None:
    match = re.search(
        r"(ValidatingAdmissionPolicy|MutatingAdmissionPolicy) '([^']+)'(?: with binding '([^']+)')?", text
    )
    if not match:
        return None
    reason = text[match.end() :]
    if text.lstrip().lower().startswith("warning") and "denied request" not in reason:
        return Refusal(match[1].lower(), _joined(match, " / "), find_fields(reason), WARNING)
    fields = () if "resulted in error" in reason else find_fields(reason)
    return Refusal(match[1].lower(), _joined(match, " / "), fields, REFUSAL)


def _joined(match: re.Match[str], by: str) -> str:
    return by.join(part for part in match.groups()[1:] if part)


_WEBHOOKS = (
    ("kyverno", re.compile(r"kyverno")),
    ("gatekeeper", re.compile(r"gatekeeper\.sh$")),
    ("kubewarden", re.compile(r"kubewarden\.admission$|kubewarden")),
    ("opa", re.compile(r"openpolicyagent\.org$|^opa\b")),
    ("webhook:gke-warden", re.compile(r"common-webhooks\.networking\.gke\.io$|warden\.gke\.io$")),
    ("webhook:sigstore", re.compile(r"sigstore\.dev$|cosigned")),
)


def _webhook(text: str) -> Refusal | None:
    """A webhook that answered no; the engine is known by the webhook's name."""
    match = re.search(r"admission webhook \"([^\"]+)\" denied the request(?:: ?| without explanation)?", text)
    if not match:
        return None
    name, reason = match[1], text[match.end() :]
    who = next((engine for engine, pattern in _WEBHOOKS if pattern.search(name)), "webhook:other")
    rules = _ENGINE_RULES.get(who, lambda _reason: [])(reason)
    if who == "kubewarden":
        rules = [name.removesuffix(".kubewarden.admission")]
    fields = (
        ()
        if who == "webhook:sigstore" and not re.search(r"spec\.|image", reason)
        else _engine_fields(who, rules, reason)
    )
    return Refusal(who, "; ".join(rules) or name, fields, REFUSAL)


def _engine_fields(who: str, rules: list[str], reason: str) -> tuple[str, ...]:
    """From the reason, with Kyverno's rule by rule; names of policies and rules help where the reason says nothing."""
    blocks = [text for _rule, text in _kyverno_blocks(reason)] if who == "kyverno" else []
    found = [field for text in blocks or [_prose(reason)] for field in _rule_fields(text)]
    return tuple(dict.fromkeys(found)) or find_fields(" ".join(rules))


def _rule_fields(text: str) -> tuple[str, ...]:
    """The field at the path where a rule failed, else those that its message names."""
    paths = re.findall(r"(?:failed at path|matched in resource:)\s+(/\S+)", text)
    return find_fields(" ".join(paths)) or find_fields(text)


def _prose(reason: str) -> str:
    """The reason without the names of what refuses, which often hold a field's name."""
    return re.sub(r"\[(?:denied by )?[\w.-]+\]", "[]", reason)


def _kyverno_blocks(reason: str) -> list[tuple[str, str]]:
    """Policy/rule and message of each rule: a policy at the margin, its rules indented, their messages deeper."""
    found: list[tuple[str, str]] = []
    policy = ""
    body = re.split(r"following policies|for resource (?:error|violation):", reason)[-1]
    for line in body.splitlines():
        match = re.match(r"(\s*)([\w.-]+):(?:\s+|$)(.*)", line)
        if match and not match[1]:
            policy = match[2]
        elif match and policy and len(match[1]) <= 2:
            found.append((f"{policy}/{match[2]}", match[3]))
        elif found:
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
    return found


def _kyverno_rules(reason: str) -> list[str]:
    """Policy/rule of each block; CEL policies have one line, with the policy alone."""
    blocks = [name for name, _text in _kyverno_blocks(reason)]
    named = re.findall(r"[Pp]olicy ([\w.-]+)(?: rule ([\w.-]+))? (?:failed|denied)", reason)
    return blocks or ["/".join(filter(None, item)) for item in named]


def _bracketed_rules(reason: str) -> list[str]:
    """Constraints in brackets, with or without C(denied by); Azure adds a hash to the name."""
    names = re.findall(r"\[denied by ([\w.-]+)\]|(?:^|\n\s*|:\s+)\[([\w.-]+)\]", reason)
    return list(dict.fromkeys(re.sub(r"-[0-9a-f]{16,}$", "", first or second) for first, second in names))


_ENGINE_RULES: dict[str, Callable[[str], list[str]]] = {
    "kyverno": _kyverno_rules,
    "gatekeeper": _bracketed_rules,
    "webhook:gke-warden": _bracketed_rules,
}


def _pod_security(text: str) -> Refusal | None:
    match = re.search(r"violates PodSecurity \"([^\"]+)\":?", text)
    return Refusal("psa", match[1], find_pod_security_fields(text[match.end() :]), REFUSAL) if match else None


def _pod_security_warning(text: str) -> Refusal | None:
    match = re.search(r"(?:would violate|violate the new) PodSecurity (?:enforce level )?\"([^\"]+)\"", text)
    return Refusal("psa", match[1], (), WARNING) if match else None


def _constraints(text: str) -> Refusal | None:
    """OpenShift: the usable constraints are named before their complaints, the others as not usable."""
    match = re.search(r"unable to validate against any security context constraint:?", text)
    if not match:
        return None
    reason = " ".join(text[match.end() :].split())
    usable = dict.fromkeys(re.findall(r"provider ([\w.-]+):", reason))
    complaints = re.sub(r"provider \"[^\"]*\": Forbidden: not usable[^,\]]*|provider [\w.-]+:", "", reason)
    return Refusal("scc", ", ".join(usable), _path_fields(complaints), REFUSAL)


def _pod_security_policy(text: str) -> Refusal | None:
    match = re.search(
        r"unable to validate against any pod security policy:?|PodSecurityPolicy: unable to \w+ pod:?", text
    )
    return Refusal("psp", "", _path_fields(text[match.end() :]), REFUSAL) if match else None


def _path_fields(reason: str) -> tuple[str, ...]:
    """The fields of a list of complaints, each with its path, joined by commas or only by spaces."""
    return tuple(field for field in find_fields(reason) if field != IMAGE)


def _quota(text: str) -> Refusal | None:
    exceeded = re.search(r"exceeded quota: ([^,\s]+), requested: (.*?)(?:, used:|$)", text, re.DOTALL)
    if exceeded:
        kinds = dict.fromkeys(re.findall(r"(requests|limits)\.[\w./-]+=", exceeded[2]))
        bare = [] if kinds else re.findall(r"(?:^|,)(?:cpu|memory|ephemeral-storage)=", exceeded[2])
        fields = tuple(f"resources.{kind}" for kind in kinds) or (("resources.requests",) if bare else ())
        return Refusal("quota", exceeded[1], fields, REFUSAL)
    failed = re.search(r"[Ff]ailed quota: ([^:\s]+): must specify", text)
    if failed:
        return Refusal("quota", failed[1], ("resources",), REFUSAL)
    scopes = re.search(r"insufficient quota to match these scopes: \[?\{?([^}\]]*\]?)", text)
    if scopes:
        fields = ("priorityClassName",) if "PriorityClass" in scopes[1] else ()
        return Refusal("quota", scopes[1].strip(), fields, REFUSAL)
    return None


def _limit_range(text: str) -> Refusal | None:
    usage = re.findall(
        r"(?:minimum|maximum) ([\w./-]+) usage per (?:\w+) is [^,]+?, but (?:no )?(request|limit)(?:s)? is", text
    )
    ratio = re.findall(r"([\w./-]+) max limit to request ratio per \w+ is", text)
    usage += re.findall(
        r"(?:minimum|maximum) ([\w./-]+) usage per \w+ is [^,]+?\.\s+No (request|limit) is specified", text
    )
    if not usage and not ratio:
        return None
    fields = [f"resources.{kind}s.{resource}" for resource, kind in usage]
    fields += [f"resources.limits.{resource}" for resource in ratio]
    return Refusal("limitrange", "", tuple(dict.fromkeys(fields)), REFUSAL)


# Plugins of the API server that have one text each: who, rule, fields, words.
_PLUGINS = (
    ("noderestriction", "NodeRestriction", ("node.metadata.labels",), r"is not allowed to modify labels"),
    ("noderestriction", "NodeRestriction", ("node.spec.taints",), r"is not allowed to modify taints"),
    (
        "noderestriction",
        "NodeRestriction",
        (),
        r"node \"?[\w.-]+\"? (?:is not allowed to|can only|cannot) (?!.*resource)",
    ),
    (
        "serviceaccount",
        "ServiceAccount admission",
        ("serviceAccountName",),
        r"service account \S+ was not found|error looking up service account",
    ),
    ("priority", "Priority", ("priorityClassName",), r"no PriorityClass with name \S+ was found"),
    ("priority", "Priority", ("priorityClassName",), r"pods with \S+ priorityClass is not permitted"),
    (
        "ownerreferencespermissionenforcement",
        "OwnerReferencesPermissionEnforcement",
        (),
        r"cannot set blockOwnerDeletion|cannot set an ownerRef",
    ),
    ("runtimeclass", "RuntimeClass", ("runtimeClassName",), r"pod rejected: RuntimeClass"),
    ("podnodeselector", "PodNodeSelector", ("nodeSelector",), r"node label selector conflicts with its namespace"),
    (
        "podtolerationrestriction",
        "PodTolerationRestriction",
        ("tolerations",),
        r"tolerations .*conflict with its namespace",
    ),
    ("namespacelifecycle", "NamespaceLifecycle", ("metadata.namespace",), r"because it is being terminated"),
    ("imagepolicywebhook", "ImagePolicyWebhook", (IMAGE,), r"image policy webhook"),
)


def _plugin(text: str) -> Refusal | None:
    for who, rule, fields, words in _PLUGINS:
        if re.search(words, text):
            return Refusal(who, rule, fields, REFUSAL)
    return None


def _no_admission(text: str) -> Refusal | None:
    """RBAC, and the API server's own validation: they look alike and are mended elsewhere."""
    if re.search(r"\b[Uu]ser \"?[^\s\"]+\"? cannot \w+ (?:resource|\w+)", text):
        return Refusal("rbac", "", (), OTHER)
    if re.search(r"disallowed by (?:cluster )?policy|specified privileged container, but is disallowed", text):
        return Refusal("apiserver", "--allow-privileged", ("privileged",), OTHER)
    if re.search(r"\bis invalid: |strict decoding error|unknown field|error validating data", text):
        return Refusal("apiserver", "", (), OTHER)
    return None


def _kyverno_log(text: str) -> Refusal | None:
    """Kyverno's own words, in a log or an event, without a webhook's name."""
    if not re.search(
        r"(?:negation|existence|global|conditional) anchor|validation error: .*rule \S+ failed", text, re.I | re.S
    ):
        return None
    names = re.findall(r"policy ([\w.-]+)[/.]([\w-]+)", text)
    names += re.findall(r'"policy\.name": "([^"]+)".*?"rule\.name": "([^"]+)"', text)
    rules = "; ".join(map("/".join, names))
    kind = WARNING if text.lstrip().startswith("Warning") else REFUSAL
    return Refusal("kyverno", rules, _engine_fields("kyverno", [], text), kind)


_READERS = (
    _unreachable,
    _validating_policy,
    _webhook,
    _pod_security,
    _constraints,
    _pod_security_policy,
    _quota,
    _limit_range,
    _plugin,
    _no_admission,
    _pod_security_warning,
    _kyverno_log,
)
