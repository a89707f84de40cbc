# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which fields of a pod a refusal is about, from field paths and from the words that admission controllers use."""

from __future__ import annotations

import re

HOST_PORT, HOST_PATH, IMAGE = "ports[].hostPort", "volumes[].hostPath", "containers[].image"
# Each field with the words that name it; the order of the answer is that of the message.
_FIELDS = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("annotations.seccomp", r"annotations\[(?:container\.|pod\.)?seccomp\b[^\]]*|annotations\[seccomp"),
        ("hostNetwork", r"\bhost[- ]?network(?:ing)?\b"),
        ("hostPID", r"\bhost[- ]?pid\b"),
        ("hostIPC", r"\bhost[- ]?ipc\b"),
        (HOST_PATH, r"\bhost[- ]?paths?\b(?! prefix)"),
        (HOST_PORT, r"\bhost[- ]?ports?\b"),
        ("allowPrivilegeEscalation", r"\ballow[- ]?privilege[- ]?escalation\b|\bprivilege escalation\b"),
        ("privileged", r"\bprivileged\b|\bprivilege containers?\b"),
        ("capabilities.drop", r"capabilities\.drop|\bdrop(?:ped|ping)?\b[^.;\n]{0,30}\bcapabilit"),
        ("capabilities.add", r"capabilities\.add|capabilit(?:y|ies)\b(?!\.drop)"),
        ("runAsNonRoot", r"\brun[- ]?as[- ]?non[- ]?root\b|\bas (?:a )?non-?root\b"),
        ("runAsUser", r"\brun[- ]?as[- ]?user\b"),
        ("runAsGroup", r"\brun[- ]?as[- ]?group\b"),
        ("fsGroup", r"\bfsgroup\b"),
        ("supplementalGroups", r"\bsupplementalgroups\b"),
        ("seccompProfile", r"\bseccomp[- ]?profile|\bseccomp\b"),
        ("seLinuxOptions.level", r"\bselinuxoptions\.level\b"),
        ("seLinuxOptions", r"\bselinux(?:options)?\b(?!\.level)"),
        ("appArmorProfile", r"\bapp[- ]?armor\b"),
        ("readOnlyRootFilesystem", r"\bread[- ]?only[- ]?root[- ]?file[- ]?system\b"),
        ("sysctls", r"\bsysctls?\b"),
        ("procMount", r"\bproc[- ]?mount\b"),
        ("windowsOptions.hostProcess", r"\bhost[- ]?process\b"),
        ("serviceAccountName", r"\bservice ?account ?name\b"),
        ("automountServiceAccountToken", r"\bautomountserviceaccounttoken\b"),
        ("nodeSelector", r"\bnode ?selector\b"),
        ("tolerations", r"\btolerations?\b"),
        ("priorityClassName", r"\bpriority ?class(?:es|name)?\b"),
        ("runtimeClassName", r"\bruntime ?class(?:name)?\b"),
        ("metadata.labels", r"\b(?:required )?labels?\b"),
        ("metadata.namespace", r"/metadata/namespace\b"),
        ("resources.limits", r"\b(?:resource )?limits\b"),
        ("resources.requests", r"\bresources?[ ./]requests\b|\brequests\.(?:cpu|memory)\b"),
    )
)
# What an engine shows of the object beside its reason: not what it is about.
_ECHO = re.compile(
    r"securityContext:?\s*\{.*?(?=\n\[|\n\n|$)|Requesting user:.*?(?=\n\[|$)|Requested by user.*|"
    r"(?:Allowed (?:path prefixes|ports)|only allows the capabilities|Valid values)\b.*?(?=\n\[|\n\n|\bspec\.|$)",
    re.IGNORECASE | re.DOTALL,
)
# Words of the second are also used for the first.
_ONE_OF = (("annotations.seccomp", "seccompProfile"), ("capabilities.drop", "capabilities.add"))
_IMAGES = re.compile(r"\bimages?\b|\bregistr(?:y|ies)\b|\brepos\b", re.IGNORECASE)


def find_fields(text: str) -> tuple[str, ...]:
    """Return the fields that a text names, in its order; images only where it names nothing else."""
    bare = " ".join(_ECHO.sub(" ", text).split())
    found = [(match.start(), name) for name, pattern in _FIELDS if (match := pattern.search(bare))]
    names = [name for _start, name in sorted(found)]
    for stronger, weaker in _ONE_OF:
        if stronger in names and weaker in names and f"{weaker}:" not in bare:
            names.remove(weaker)
    return tuple(names) or ((IMAGE,) if _IMAGES.search(bare) else ())


# Pod Security's own words. Source: k8s.io/pod-security-admission, policy/check_*.go.
_CHECKS = (
    ("allowPrivilegeEscalation", re.compile(r"allowPrivilegeEscalation != false")),
    ("appArmorProfile", re.compile(r"forbidden AppArmor profiles?")),
    ("capabilities.drop", re.compile(r"unrestricted capabilities(?! \([^)]*capabilities\.add\b)|capabilities\.drop")),
    ("capabilities.add", re.compile(r"non-default capabilities|capabilities\.add")),
    ("hostNetwork", re.compile(r"hostNetwork=true")),
    ("hostPID", re.compile(r"hostPID=true")),
    ("hostIPC", re.compile(r"hostIPC=true")),
    (HOST_PATH, re.compile(r"hostPath volumes|restricted volume type[^)]*\"hostPath\"")),
    (HOST_PORT, re.compile(r"\bhostPort\b")),
    ("privileged", re.compile(r"(?:^|[:,;] *)privileged(?= *[(,;]| *$)")),
    ("procMount", re.compile(r"\bprocMount\b")),
    ("volumes[]", re.compile(r"restricted volume types(?!.*\"hostPath\")")),
    ("runAsNonRoot", re.compile(r"runAsNonRoot != true")),
    ("runAsUser", re.compile(r"runAsUser=0")),
    ("seccompProfile", re.compile(r"seccompProfile(?! *\.)")),
    ("seLinuxOptions", re.compile(r"\bseLinuxOptions\b")),
    ("sysctls", re.compile(r"forbidden sysctls")),
    ("windowsOptions.hostProcess", re.compile(r"\bhostProcess\b")),
    ("probes and lifecycle host", re.compile(r"probe or lifecycle host")),
)


def find_pod_security_fields(text: str) -> tuple[str, ...]:
    """Return the fields of the checks that Pod Security lists after the level, in its order."""
    flat = " ".join(text.split())
    found = [(match.start(), name) for name, pattern in _CHECKS if (match := pattern.search(flat))]
    types = [
        f"volumes[].{name}"
        for group in re.findall(r"restricted volume types? ((?:\"\w+\"(?:, )?)+)", flat)
        for name in re.findall(r"\w+", group)
    ]
    names = [name for _start, name in sorted(found)]
    if "volumes[]" in names and types:
        at = names.index("volumes[]")
        names[at : at + 1] = types
    return tuple(dict.fromkeys(names))
