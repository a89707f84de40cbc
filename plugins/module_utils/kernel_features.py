# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which features the kernel of a node has, and what says so, read without changing the node.

In this order: trying it where that loads nothing, the kernel's configuration, what is loaded, what can be loaded, and
what is built in.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
from shutil import which

from .host import SEARCH_PATH, read_text, read_zipped
from .kernel_deep import loaded_for_a_while
from .kernel_evidence import (
    ABSENT,
    BUILTIN,
    LOADABLE,
    UNKNOWN,
    WORKS,
    Evidence,
    State,
    judge_features,
    judge_modules,
    parse_barred,
    parse_config,
    parse_dependencies,
    parse_loaded,
    parse_module_list,
    with_live,
)
from .kernel_live import try_features
from .kernel_netlink import link_has_xdp
from .kernel_table import MODULES

MODULE_DIRECTORIES = ("/lib/modules", "/usr/lib/modules")
# The later win, as in modprobe.d(5).
MODPROBE_DIRECTORIES = ("/lib/modprobe.d", "/usr/lib/modprobe.d", "/usr/local/lib/modprobe.d", "/run/modprobe.d")
MODPROBE_LOCAL = "/etc/modprobe.d"
RP_FILTER = "/proc/sys/net/ipv4/conf/all/rp_filter"
# bpf(2) by architecture, and a command that only reads: BPF_PROG_GET_NEXT_ID. Source: linux/bpf.h, syscall tables.
BPF_CALL = {"x86_64": 321, "aarch64": 280, "arm64": 280, "ppc64le": 361, "s390x": 351}
BPF_PROG_GET_NEXT_ID = 11
CAP_SYS_ADMIN = 21
SCTP_SYSCTL = "/proc/sys/net/netfilter/nf_conntrack_sctp_timeout_established"
TCP_SYSCTL = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established"


def read_evidence(in_container):
    """What the kernel says of itself: an C(Evidence)."""
    release = platform.release()
    config, source = _read_config(release)
    places = [f"{place}/{release}" for place in MODULE_DIRECTORIES]
    directory = next((place for place in places if os.path.isdir(place)), "")
    listed, builtin = (_read_list(directory, name) for name in ("modules.dep", "modules.builtin"))
    loaded = read_text("/proc/modules")
    return Evidence(
        config=config,
        config_source=source,
        loaded=None if loaded is None else parse_loaded(loaded),
        present=frozenset(_names("/sys/module")),
        # A list may outlive its files, when the running kernel's package is gone.
        loadable=None
        if listed is None
        else frozenset(
            name for name in MODULES if name in listed and os.path.exists(os.path.join(directory, listed[name]))
        ),
        builtin=None if builtin is None else frozenset(builtin),
        directory=directory or places[0],
        barred=parse_barred(_modprobe_texts(), read_text("/proc/cmdline") or ""),
        disabled=(read_text("/proc/sys/kernel/modules_disabled") or "").strip() == "1",
        in_container=in_container,
    )


def _read_list(directory, name):
    """The files on a list by module, None when it is not there."""
    text = read_text(f"{directory}/{name}") if directory else None
    return None if text is None else parse_module_list(text)


def _read_config(release):
    """C((symbols, place)) of the running kernel's configuration; C((None, "")) when there is none."""
    places = (
        "/proc/config.gz",
        f"/boot/config-{release}",
        f"/lib/modules/{release}/config",
        f"/usr/lib/modules/{release}/config",
        f"/lib/modules/{release}/build/.config",
    )
    for place in places:
        text = read_zipped(place) if place.endswith(".gz") else read_text(place)
        if text:
            return parse_config(text), place
    return None, ""


def _names(directory):
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _modprobe_texts():
    """modprobe.d's files by path; of one name the later directory's counts, and they are read by name."""
    files = {
        name: f"{directory}/{name}"
        for directory in (*MODPROBE_DIRECTORIES, MODPROBE_LOCAL)
        for name in _names(directory)
        if name.endswith(".conf")
    }
    return {path: read_text(path) or "" for _name, path in sorted(files.items())}


def bpf_call():
    """The C(State) of bpf(2)."""
    number = BPF_CALL.get(platform.machine())
    if number is None:
        return State(UNKNOWN, f"the number of bpf(2) on {platform.machine()} is not known")
    command = (ctypes.c_uint32 * 32)()
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(
        ctypes.c_long(number), ctypes.c_int(BPF_PROG_GET_NEXT_ID), ctypes.byref(command), ctypes.c_uint(12)
    )
    code = 0 if result == 0 else ctypes.get_errno()
    if code in (0, errno.ENOENT):  # no program is loaded yet
        return State(WORKS, "bpf(2) answers")
    if code == errno.ENOSYS:
        return State(ABSENT, "bpf(2): " + os.strerror(code))
    return State(BUILTIN, "bpf(2) is there: " + os.strerror(code))


def xdp(bpf):
    """The C(State) of XDP, which a kernel with bpf(2) has if its links say whether a program is there."""
    if bpf.state == ABSENT:
        return bpf
    try:
        has = link_has_xdp()
    except OSError as error:
        return State(UNKNOWN, f"rtnetlink: {error.strerror}")
    return State(BUILTIN, "links have IFLA_XDP") if has else State(ABSENT, "links have no IFLA_XDP")


def btf():
    """The C(State) of the kernel's type information, by which programs find its fields."""
    path = "/sys/kernel/btf/vmlinux"
    if os.path.exists(path):
        return State(BUILTIN, path)
    return State(ABSENT, f"{path} is not there") if os.path.isdir("/sys/kernel") else State(UNKNOWN, "no /sys")


def conntrack_sctp(modules, evidence):
    """The C(State) of connection tracking of SCTP: a part of nf_conntrack since 4.11, a module before."""
    if os.path.exists(SCTP_SYSCTL):
        return State(BUILTIN, SCTP_SYSCTL)
    module = modules["nf_conntrack_proto_sctp"]
    if evidence.config is not None or module.state != ABSENT:
        return module
    if os.path.exists(TCP_SYSCTL):
        return State(ABSENT, f"{SCTP_SYSCTL} is not there, {os.path.basename(TCP_SYSCTL)} is")
    return State(UNKNOWN, "no kernel configuration, and nf_conntrack is not loaded")


def cgroups(mountinfo):
    """C({version, mounts}) of a mountinfo text, see proc(5): version 2, 1, hybrid, or none."""
    found = {}
    for line in mountinfo.splitlines():
        fields, _separator, kind = line.partition(" - ")
        if kind.startswith(("cgroup ", "cgroup2 ")):
            found.setdefault(kind.split()[0], fields.split()[4])
    kinds = sorted(found)
    version = {"cgroup": "1", "cgroup2": "2", "cgroup cgroup2": "hybrid"}.get(" ".join(kinds), "none")
    return {"version": version, "mounts": {kind: found[kind] for kind in kinds}}


def parse_lockdown(text):
    """The mode in brackets, such as C(none [integrity] confidentiality); empty when there is none."""
    match = re.search(r"\[(\w+)\]", text)
    return match.group(1) if match else ""


def bounding_capabilities(status):
    """The bounding set in a process's status, see proc(5), or None."""
    match = re.search(r"^CapBnd:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return int(match.group(1), 16) if match else None


def deep_obstacle(evidence):
    """Why no module can be loaded for the time, or nothing."""
    if evidence.in_container:
        return "probe_deep: this is a container, and modules are its machine's"
    if evidence.loads_nothing:
        return "probe_deep: this kernel loads no modules"
    if os.geteuid() != 0:
        return "probe_deep: not root"
    return "" if which("modprobe", path=SEARCH_PATH) else "probe_deep: no modprobe"


def try_deep(modules, evidence):
    """Try what the kernel has, and what it can load for the time: C((features, live, reason)), see with_live."""
    names = {name for name, found in modules.items() if found.state == LOADABLE}
    dependencies = parse_dependencies(read_text(f"{evidence.directory}/modules.dep") or "")
    with loaded_for_a_while(names, dependencies) as refused:
        now = read_evidence(evidence.in_container)
        live, unseen = try_features({**judge_modules(now), **refused}, now)
    return judge_features({**modules, **refused}), live, unseen


def probe_kernel(in_container, runtime_pid=0, deep=False):
    """Read the kernel.

    :param in_container: whether the node is a container itself.
    :param runtime_pid: of the container runtime, whose capabilities are the most that a pod can have; 0 for PID 1's.
    :param deep: whether modules may be loaded for the time of the probe, to try what they provide. In a container
        nothing is loaded, since they are the machine's.
    :returns: C(features), by name C({state, evidence}); C(cgroup); C(lsm), names or None; C(lockdown), a mode or "";
        C(rp_filter), the value for all interfaces or None; C(ipv6); C(cap_sys_admin), whether a container can have it,
        or None; C(modules_disabled); C(unseen), why nothing could be tried or loaded.
    """
    evidence = read_evidence(in_container)
    modules = judge_modules(evidence)
    obstacle = deep_obstacle(evidence) if deep else ""
    if deep and not obstacle:
        features, live, unseen = try_deep(modules, evidence)
    else:
        features = judge_features(modules)
        live, unseen = try_features(modules, evidence)
    features = with_live(features, live)
    features["conntrack_sctp"] = conntrack_sctp(modules, evidence)
    features["bpf"] = bpf_call()
    features["xdp"] = xdp(features["bpf"])
    features["btf"] = btf()
    lsm = read_text("/sys/kernel/security/lsm")
    rp_filter = (read_text(RP_FILTER) or "").strip()
    capabilities = bounding_capabilities(read_text(f"/proc/{runtime_pid or 1}/status") or "")
    return {
        "features": {name: dict(found._asdict()) for name, found in sorted(features.items())},
        "cgroup": cgroups(read_text("/proc/self/mountinfo") or ""),
        "lsm": None if lsm is None else lsm.strip().split(","),
        "lockdown": parse_lockdown(read_text("/sys/kernel/security/lockdown") or ""),
        "rp_filter": int(rp_filter) if rp_filter.isdigit() else None,
        "ipv6": os.path.isdir("/proc/sys/net/ipv6"),
        "cap_sys_admin": None if capabilities is None else bool(capabilities >> CAP_SYS_ADMIN & 1),
        "modules_disabled": evidence.disabled,
        "unseen": "; ".join(filter(None, (unseen, obstacle))),
    }
