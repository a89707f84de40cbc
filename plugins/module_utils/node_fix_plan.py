# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What mends the findings of a node: files to write and steps on the running system, decided from what is there.

A wish is C({finding, fix, ...}), made on the controller from a finding (plugin_utils/node_fixes.py). A step is
C({kind, name, ...}) in JSON with what it needs to be undone; node_fix_steps.py takes it. Nothing is changed here.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from .files import read_snapshot
from .host import read_text
from .kernel_evidence import parse_dependencies
from .kernel_features import read_evidence
from .node_fix_texts import (
    UNMANAGED,
    add_modules,
    add_unmanaged,
    is_ufw_on,
    set_sysctls,
    sets_unmanaged,
    switch_ufw_off,
)
from .node_settings import NETWORK_MANAGER_DIRECTORIES, NETWORK_MANAGER_MAIN, NETWORK_MANAGER_UNIT
from .probe import PACKET_FILTER_UNITS, UFW_CONFIG, is_active, read_units

# Source: Calico's documentation, "Configure NetworkManager".
UNMANAGED_FILE = "/etc/NetworkManager/conf.d/calico.conf"
MODULES_FILE = "/etc/modules-load.d/portcullis.conf"
# sysctl.d(5): the last file by name wins, and 99-sysctl.conf often is a link to /etc/sysctl.conf.
SYSCTL_FILE = "/etc/sysctl.d/99-zz-portcullis.conf"
UNIT_LINKS = "/etc/systemd/system"
UFW_UNIT = "ufw.service"
# Its files belong to MachineConfigs: an edit on the node makes it Degraded.
MACHINE_CONFIG_OPERATOR = "/etc/machine-config-daemon"
# Values of UnitFileState that C(systemctl disable) undoes. Source: systemctl(1), is-enabled.
ENABLED = ("enabled", "enabled-runtime")


class Plan(NamedTuple):
    """What to do.

    contents: C({path: bytes}) to write. steps: in their order. fixes: C([{finding, changes}]), changes in words.
    refused: C([{finding, reason}]) of what cannot be mended here.
    """

    contents: dict
    steps: list
    fixes: list
    refused: list

    @property
    def is_empty(self):
        """Whether there is nothing to do."""
        return not self.contents and not self.steps


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """A finding that cannot be mended on this node; the text says why and what helps."""


def make_plan(wishes):
    """Return the Plan for wishes, reading the node."""
    plan = Plan({}, [], [], [])
    for wish in wishes:
        try:
            if os.path.isdir(MACHINE_CONFIG_OPERATOR):
                raise Refused(
                    "the Machine Config Operator of OpenShift owns the files of this node and takes edits for damage: "
                    "give its pool a MachineConfig"
                )
            contents, steps, changes = PLANNERS[wish["fix"]](wish, plan.contents)
        except Refused as refusal:
            plan.refused.append({"finding": wish["finding"], "reason": str(refusal)})
            continue
        plan.contents.update(contents)
        plan.steps.extend(step for step in steps if step not in plan.steps)
        plan.fixes.append({"finding": wish["finding"], "changes": changes})
    return plan._replace(steps=share_modules(plan.steps))


def share_modules(steps):
    """Return the steps with each module in the first one that loads it alone.

    Steps are taken back from the last to the first: a later one would find in use what the first one unloads.
    """
    kept, seen = [], set()
    for step in steps:
        if step["kind"] != "module":
            kept.append(step)
        elif step["name"] not in seen:
            kept.append({**step, "brings": [name for name in step["brings"] if name not in seen]})
            seen.update((step["name"], *step["brings"]))
    return kept


def plan_unmanaged(_wish, contents):
    """Plan that NetworkManager leaves Calico's interfaces alone."""
    steps = [{"kind": "reload", "name": NETWORK_MANAGER_UNIT}]
    text, after = edited(
        UNMANAGED_FILE, contents, lambda text: add_unmanaged(text, UNMANAGED, extends=unmanaged_elsewhere())
    )
    if after == text:
        return {}, steps, [f"{NETWORK_MANAGER_UNIT} reads {UNMANAGED_FILE} again"]
    changes = [f"{UNMANAGED_FILE}: unmanaged-devices has {';'.join(UNMANAGED)}", f"{NETWORK_MANAGER_UNIT} reads it"]
    return {UNMANAGED_FILE: content_of(after)}, steps, changes


def unmanaged_elsewhere():
    """Return whether another file of NetworkManager sets unmanaged devices, which a plain C(=) would take back."""
    paths = [NETWORK_MANAGER_MAIN]
    for place in NETWORK_MANAGER_DIRECTORIES:
        names = sorted(os.listdir(place)) if os.path.isdir(place) else []
        paths += [f"{place}/{name}" for name in names if name.endswith(".conf")]
    return any(sets_unmanaged(read_text(path) or "") for path in paths if path != UNMANAGED_FILE)


def plan_managers(_wish, contents):
    """Plan that the packet-filter managers at work are off, now and at boot."""
    units, reason = read_units(PACKET_FILTER_UNITS)
    if reason:
        raise Refused(f"{reason}: mend systemd on the node first")
    written, steps, changes = {}, [], []
    for name in PACKET_FILTER_UNITS:
        if not is_active(units, name):
            continue
        if name == UFW_UNIT:
            text, after = edited(UFW_CONFIG, contents, switch_ufw_off)
            if not is_ufw_on(text):
                continue  # its unit is active on every Debian that has the package, and does nothing
            written[UFW_CONFIG] = content_of(after)
            changes.append(f"{UFW_CONFIG}: ENABLED=no")
        state = units[name]["UnitFileState"]
        # ufw itself leaves its unit enabled when it is switched off.
        enabled = state if state in ENABLED and name != UFW_UNIT else ""
        steps.append({"kind": "unit", "name": name, "enabled": enabled, "links": unit_links(name) if enabled else {}})
        changes.append(f"{name} is stopped" + (" and disabled" if enabled else ""))
    return written, steps, changes


def unit_links(name):
    """Return C({path: target}) of the links below /etc/systemd/system that enable a unit, under whatever name."""
    found = {}
    for directory, folders, files in os.walk(UNIT_LINKS):
        for item in folders + files:
            path = f"{directory}/{item}"
            if os.path.islink(path) and name in (item, os.path.basename(os.readlink(path))):
                found[path] = os.readlink(path)
    return found


def plan_sysctls(wish, contents):
    """Plan values of kernel parameters, now and at boot."""
    values, steps, changes = wish["sysctls"], [], []
    for name, after in sorted(values.items()):
        before = read_text(sysctl_path(name))
        if before is None:
            raise Refused(f"{sysctl_path(name)} is not there: the kernel has no {name}")
        if before.strip() != after:
            steps.append({"kind": "sysctl", "name": name, "before": before.strip(), "after": after})
            changes.append(f"{name} = {after} (was {before.strip()})")
    text, after = edited(SYSCTL_FILE, contents, lambda text: set_sysctls(text, values))
    if after == text:
        return {}, steps, changes
    return (
        {SYSCTL_FILE: content_of(after)},
        steps,
        [*changes, f"{SYSCTL_FILE}: the same at boot"],
    )


def sysctl_path(name):
    """Return the file of a kernel parameter."""
    return "/proc/sys/" + name.replace(".", "/")


def plan_modules(wish, contents):
    """Plan that modules are loaded, now and at boot.

    :param wish: C(modules): a list for each feature, of the modules of which any one provides it.
    """
    evidence = read_evidence(in_container=False)
    dependencies = parse_dependencies(read_text(f"{evidence.directory}/modules.dep") or "")
    missing = [names for names in wish["modules"] if not any(is_there(name, evidence) for name in names)]
    chosen = list(dict.fromkeys(choose_module(names, evidence) for names in missing))
    steps, changes, loaded = [], [], loaded_modules()
    for name in chosen:
        if evidence.disabled:
            changes.append(f"{name} is loaded at the next boot, since kernel.modules_disabled is 1 now")
            continue
        brings = [other for other in dependencies[name] if other not in loaded]
        steps.append({"kind": "module", "name": name, "brings": brings})
        changes.append(f"{name} is loaded")
    text, after = edited(MODULES_FILE, contents, lambda text: add_modules(text, chosen))
    if after == text:
        return {}, steps, changes
    return {MODULES_FILE: content_of(after)}, steps, [*changes, f"{MODULES_FILE}: {', '.join(chosen)} at boot"]


def is_there(name, evidence):
    """Return whether a module is loaded or built in."""
    return name in (evidence.loaded or ()) or name in (evidence.builtin or ())


def choose_module(names, evidence):
    """Return the first of the modules that the node has a file of.

    :raises Refused: it has none, or modprobe.d(5) bars it, which somebody meant.
    """
    if not evidence.loadable:
        raise Refused(
            f"{evidence.directory}/modules.dep is not there: this node loads no modules. A container has those of its "
            "host: load them there; else install the package of the kernel's modules"
        )
    name = next((name for name in names if name in evidence.loadable), None)
    if name is None:
        raise Refused(
            f"{' or '.join(names)} is not in {evidence.directory}/modules.dep: install the package with the kernel's "
            "further modules (kernel-modules-extra, linux-modules-extra-KERNEL), or boot a kernel that has it"
        )
    if name in evidence.barred:
        raise Refused(f"{evidence.barred[name]}, which somebody meant: take it out there and run again")
    return name


def loaded_modules():
    """Return C({module: number of its users}) of /proc/modules; empty on a kernel without modules."""
    rows = (line.split() for line in (read_text("/proc/modules") or "").splitlines())
    return {row[0]: int(row[2]) if row[2].isdigit() else 1 for row in rows if len(row) > 2}


def as_text(content):
    """Return the bytes of a configuration file as text, of which all bytes can be got back."""
    return content.decode("utf-8", "surrogateescape")


def content_of(text):
    """Return the bytes that C(as_text) made a text of."""
    return text.encode("utf-8", "surrogateescape")


def edited(path, contents, edit):
    """Return the text of a file as an earlier wish leaves it, and as C(edit) makes it."""
    before = contents.get(path, read_snapshot(path).content)
    text = as_text(before or b"")
    return text, edit(text)


PLANNERS = {
    "managers": plan_managers,
    "modules": plan_modules,
    "sysctls": plan_sysctls,
    "unmanaged": plan_unmanaged,
}
