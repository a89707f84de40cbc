# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings that the run itself is about to mend, since the user's variables set what they ask for: no blocker then.

The proof at the end of a run knows nothing of this: what is still there is a blocker again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, WARNING, finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_desired import PROFILES
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_requirements import ENFORCEMENT
from ansible_collections.portcullis.fleet.plugins.plugin_utils.network_requirements import PROXY_MODES

_ALLOW = ("FilterAllowAction", "MangleAllowAction")
_INSERT_MODE = ("chainInsertMode", *(f"{plane}{action}" for plane in ("iptables", "nftables") for action in _ALLOW))
# Finding: by the role that mends it, the fields of which it has to set one.
_MENDED_BY = {
    "felix.chain_insert_mode": {"calico": _INSERT_MODE},
    "packet_filter.displaced": {"calico": _INSERT_MODE},
    "felix.refresh_interval": {"calico": ("iptablesRefreshInterval", "nftablesRefreshInterval")},
    "packet_filter.marks_collide": {"calico": ("iptablesMarkMask", "nftablesMarkMask")},
    "calico.nftables_mode": {"calico": ("nftablesMode",), "kube_proxy": ("mode",)},
    "packet_filter.masquerade_all": {"kube_proxy": ("masqueradeAll",)},
}


def sets_of(settings: Mapping[str, object]) -> dict[str, list[str]]:
    """By role that has something to do, the fields that the user's variables have it set.

    :param settings: C(portcullis_*) variables.
    """
    found = {}
    config = settings.get("portcullis_kube_proxy_config") or {}
    if config or settings.get("portcullis_kube_proxy_state") == "absent":
        found["kube_proxy"] = sorted(_fields(config))
    asked = {name: settings.get(f"portcullis_felix_{name}") for name in ("settings", "profile", "mark_mask")}
    if any(asked.values()) or settings.get("portcullis_felix_state") == "absent":
        names = set(asked["settings"] or {})
        for plane in ("iptables", "nftables"):
            variant = settings.get("portcullis_felix_variant") or "append"
            names |= {name.format(plane) for name in PROFILES[variant]} if asked["profile"] else set()
            names |= {f"{plane}MarkMask"} if asked["mark_mask"] or asked["profile"] else set()
        found["calico"] = sorted(names)
    return found


def _fields(config: Mapping[str, object]) -> Iterator[str]:
    """The names of all fields; a switch that is left on mends nothing."""
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _fields(value)
        elif (name, value) != ("masqueradeAll", True):
            yield name


def mended_by_the_run(found: list[dict], sets: Mapping[str, list[str]]) -> list[dict]:
    """The findings, those that a role is about to mend as warnings that say so.

    :param sets: by role, the fields that the user's variables have it set.
    """
    return [_told(item, _MENDED_BY.get(item["id"], {}), sets) for item in found]


def refused_changes(refused: Mapping[str, str]) -> list[dict]:
    """Findings for changes that could not be made.

    :param refused: why, by C(kube_proxy) and C(felix); empty where it could.
    """
    rows = (
        ("kube_proxy.refused", "kube_proxy", PROXY_MODES, "portcullis_kube_proxy_config"),
        ("felix.refused", "felix", ENFORCEMENT, "portcullis_felix_settings, portcullis_felix_profile"),
    )
    return [
        finding(
            name,
            severity=BLOCKER,
            requirement=requirement,
            observed=refused[role],
            expected=f"what {variables} asks for can be had",
            remedy=f"correct {variables}, or do what the message says",
        )
        for name, role, requirement, variables in rows
        if refused.get(role)
    ]


def _told(item: dict, mended_by: Mapping[str, tuple], sets: Mapping[str, list[str]]) -> dict:
    role = next((role for role, fields in mended_by.items() if set(fields) & set(sets.get(role, ()))), "")
    return {**item, "severity": WARNING, "remedy": f"nothing: site.yml sets it (role {role})"} if role else item
