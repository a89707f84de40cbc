# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kernel has, by what it says of itself: its configuration, its modules and the lists of them.

Formats: modules.dep(5), modules.builtin (one file name a line), modprobe.d(5), /proc/modules of proc(5).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .kernel_table import FEATURES, MODULES

WORKS, BUILTIN, LOADED, LOADABLE, ABSENT, UNKNOWN = "works", "builtin", "loaded", "loadable", "absent", "unknown"
# The best first: of several modules that provide a feature the best counts.
STATES = (WORKS, BUILTIN, LOADED, LOADABLE, UNKNOWN, ABSENT)
IN_KERNEL = (BUILTIN, LOADED)

SYMBOL = re.compile(r"^(?:CONFIG_(\w+)=(.)|# CONFIG_(\w+) is not set)", re.MULTILINE)
MODULE_FILE = re.compile(r"^((?:\S*/)?([^/\s:]+)\.ko[^\s:]*)(?::|$)", re.MULTILINE)
FILE_NAME = re.compile(r"([^/\s]+)\.ko\S*")
# Commands of an install line that load nothing.
# What is loaded by its name, by kube-proxy and iptables. A blacklist stops what the kernel asks for by an alias.
BY_NAME = frozenset({"ip6_tables", "ip_tables", "ip_vs", "ip_vs_rr"})
NOTHING = re.compile(r"(?:/(?:usr/)?s?bin/)?(?:true|false|nologin|:)\b")


class State(NamedTuple):
    """Whether something is there, one of C(STATES), and what says so."""

    state: str
    evidence: str


class Evidence(NamedTuple):
    """What was read of a kernel.

    config: symbols with y, m, a value's first letter, or n; None when there is none. config_source: its place.
    loaded: names, None on a kernel that loads no modules. present: names under /sys/module.
    loadable, builtin: names on the lists in C(directory), None when it is not there; loadable has those with a file.
    barred: by name, why modprobe does not load it. disabled: kernel.modules_disabled is 1.
    in_container: the lists of the machine may be out of sight.
    """

    config: dict | None
    config_source: str
    loaded: frozenset | None
    present: frozenset
    loadable: frozenset | None
    builtin: frozenset | None
    directory: str
    barred: dict
    disabled: bool
    in_container: bool

    @property
    def loads_nothing(self):
        """Whether nothing can be loaded, so that trying a feature shows all there is and changes nothing."""
        return self.loaded is None or self.disabled


def module_name(text):
    """The name that the kernel gives a module: C(-) and C(_) are the same."""
    return text.replace("-", "_")


def parse_config(text):
    """C({symbol: y, m, n or the first letter of its value}) of a kernel configuration."""
    return {name or unset: value or "n" for name, value, unset in SYMBOL.findall(text)}


def parse_module_list(text):
    """C({name: file}) of modules.dep or modules.builtin, compressed or not; files below the directory of the list."""
    return {module_name(name): path for path, name in MODULE_FILE.findall(text)}


def parse_dependencies(text):
    """C({module: all modules that it needs, those that need others first}) of modules.dep."""
    found = {}
    for line in text.splitlines():
        path, _colon, needed = line.partition(":")
        for name in FILE_NAME.findall(path):
            found[module_name(name)] = [module_name(other) for other in FILE_NAME.findall(needed)]
    return found


def parse_loaded(text):
    """The names in /proc/modules; those that are just loading or going are left out."""
    rows = (line.split() for line in text.splitlines())
    return frozenset(row[0] for row in rows if len(row) > 4 and row[4] == "Live")


def parse_barred(texts, command_line=""):
    """What is not loaded on demand: C({name: why}).

    :param texts: of modprobe.d files, by path, those that win last.
    :param command_line: the kernel's own.
    """
    barred = {}
    for word in command_line.split():
        option, _separator, names = word.partition("=")
        if option in ("modprobe.blacklist", "module_blacklist"):
            barred.update({module_name(name): f"/proc/cmdline has {word}" for name in names.split(",")})
    for path, text in texts.items():
        for line in text.replace("\\\n", " ").splitlines():
            words = line.split(None, 2)
            if len(words) == 2 and words[0] == "blacklist" and module_name(words[1]) not in BY_NAME:
                barred[module_name(words[1])] = f"{path} has blacklist {words[1]}"
            elif len(words) == 3 and words[0] == "install" and NOTHING.match(words[2]):
                barred[module_name(words[1])] = f"{path} has install {words[1]} {words[2].strip()}"
    return barred


def judge_module(name, evidence):
    """The C(State) of a module, by the configuration, then by what is loaded, then by what can be."""
    symbol, value = _configured(name, evidence.config)
    said = f"CONFIG_{symbol}={value} in {evidence.config_source}" if symbol else ""
    there = _judge_present(name, value, said, evidence)
    if there:
        return there
    if evidence.loadable and name in evidence.loadable:
        return _judge_loadable(name, evidence)
    if value == "m":
        return _judge_missing_file(name, said, evidence)
    if evidence.config is not None:
        return State(ABSENT, f"CONFIG_{symbol or MODULES[name][0]} is not set in {evidence.config_source}")
    if evidence.loadable is not None:
        return State(ABSENT, f"no file of {name} is in {evidence.directory}, and it is not in modules.builtin")
    return State(UNKNOWN, f"no kernel configuration, and no {evidence.directory}: nothing tells of {name}")


def _judge_present(name, value, said, evidence):
    """The C(State) of a module that is in the kernel now, or None."""
    if value == "y":
        return State(BUILTIN, said)
    if evidence.loaded and name in evidence.loaded:
        return State(LOADED, f"{name} is in /proc/modules")
    if evidence.builtin and name in evidence.builtin:
        return State(BUILTIN, f"{name} is in {evidence.directory}/modules.builtin")
    if name in evidence.present and (evidence.loaded is None or value != "m"):
        return State(BUILTIN, f"/sys/module/{name}, and not in /proc/modules")
    return None


def _configured(name, config):
    """The symbol that decides on a module, and its value; C(("", "")) when none is named."""
    for symbol in MODULES[name]:
        if config and symbol in config:
            return symbol, config[symbol]
    return "", ""


def _judge_loadable(name, evidence):
    """A module whose file is there, which is not always one that can be loaded."""
    where = f"{name} is in {evidence.directory}/modules.dep"
    if evidence.disabled:
        return State(ABSENT, f"{where}, not loaded, and kernel.modules_disabled is 1")
    if name in evidence.barred:
        return State(ABSENT, f"{where}, but {evidence.barred[name]}")
    return State(LOADABLE, where)


def _judge_missing_file(name, said, evidence):
    """A module by the configuration that is neither loaded nor among the files."""
    if evidence.disabled:
        return State(ABSENT, f"{said}, not loaded, and kernel.modules_disabled is 1")
    if evidence.loadable is not None:
        return State(ABSENT, f"{said}, but no file of {name} is in {evidence.directory}")
    if evidence.in_container:
        return State(UNKNOWN, f"{said}, not loaded, and {evidence.directory} is out of sight of this container")
    return State(ABSENT, f"{said}, not loaded, and {evidence.directory} is not there")


def judge_modules(evidence):
    """C({module: State}) of all that the features and the rules name."""
    return {name: judge_module(name, evidence) for name in MODULES}


def judge_features(modules):
    """C({feature: State}) of those that a module provides."""
    return {
        feature: min((modules[name] for name in names), key=lambda item: STATES.index(item.state))
        for feature, names in FEATURES.items()
    }


def loads_none(names, modules, evidence):
    """Whether the kernel would load nothing when these modules are asked for.

    For one that is barred by an install line modprobe still loads what it needs.
    """
    if evidence.loads_nothing:
        return True
    files = evidence.loadable or ()
    return all(
        modules[name].state in IN_KERNEL or (modules[name].state == ABSENT and name not in files) for name in names
    )


def with_live(features, live):
    """The features after they were tried.

    :param live: C({feature: State}), where C(works) is proof. Anything else is one only where nothing else is known: a
        container may be refused what its kernel has.
    """
    result = dict(features)
    for feature, found in live.items():
        known = features[feature]
        if found.state == WORKS or (known.state == UNKNOWN and found.state == ABSENT):
            result[feature] = found
        else:
            result[feature] = State(known.state, f"{known.evidence}; tried: {found.evidence}")
    return result
