"""Probes for the tests of what judges them: a node with nothing to complain about, and changes to it."""

from __future__ import annotations

import copy

from ansible_collections.portcullis.fleet.plugins.module_utils.kernel_table import FEATURES

ALSO_FEATURES = ("bpf", "btf", "conntrack_sctp", "xdp")
BUSYBOX = "docker.io/library/busybox:1.33"
CLEAN_PROBE = {
    "probe_version": 1,
    "system": {
        "architecture": "x86_64",
        "byteorder": "little",
        "hostname": "w1",
        "machine_id": "0a1b",
        "kernel": "6.1.0-31-cloud-amd64",
        "os": {"id": "debian", "version_id": "12", "variant_id": "", "pretty_name": "Debian GNU/Linux 12 (bookworm)"},
        "container": "",
        "python": "3.11.2",
        "euid": 0,
    },
    "containerd": {
        "present": True,
        "binary": "/usr/bin/containerd",
        "binary_replaced": False,
        "unit_name": "containerd.service",
        "unit": {"LoadState": "loaded", "ActiveState": "active", "MainPID": "412", "KillMode": "process"},
        "dependents": [],
        "active": True,
        "unit_state": "active",
        "config_file": "/etc/containerd/config.toml",
        "config_directory": "/etc/containerd",
        "config": {
            "version": 2,
            "address": "/run/containerd/containerd.sock",
            "config_path": "/etc/containerd/certs.d",
            "mirrors": [],
            "tls": [],
            "cni": {},
            "nri": {},
            "systemd_cgroup": {"runc": True},
            "default_runtime": "runc",
        },
        "config_error": "",
        "config_changed_after_start": False,
        "cri": {
            "socket": "/run/containerd/containerd.sock",
            "serving": True,
            "error": "",
            "version": "1.6.20~ds1",
            "conditions": {"RuntimeReady": True, "NetworkReady": True},
            "images": {BUSYBOX: True},
        },
    },
    "packet_filters": [],
    "packet_filter_rules": {
        "saves": [],
        "nft_json": [],
        "ip_rules": [],
        "programs": ["kubelet", "kube-proxy"],
        "units": [],
        "unseen": "",
    },
    "kube_proxy": {"mode": "iptables", "error": ""},
    "kubelet": {"active": True, "healthy": True, "error": ""},
    "time": {"epoch_s": 1000.0, "synchronised": True, "maxerror_us": 1000, "service": "chrony.service", "error": ""},
    "disks": [
        {"path": "/etc", "free_bytes": 2**30, "free_inodes": 100_000, "read_only": False, "obstacle": ""},
        {"path": "/etc/containerd", "free_bytes": 2**30, "free_inodes": 100_000, "read_only": False, "obstacle": ""},
    ],
    "kernel_features": {
        "features": {name: {"state": "works", "evidence": "tried"} for name in (*FEATURES, *ALSO_FEATURES)},
        "cgroup": {"version": "2", "mounts": {"cgroup2": "/sys/fs/cgroup"}},
        "lsm": ["lockdown", "capability", "bpf"],
        "lockdown": "none",
        "rp_filter": 0,
        "ipv6": True,
        "cap_sys_admin": True,
        "modules_disabled": False,
        "unseen": "",
    },
    "settings": {
        "network_manager": None,
        "kubelet": {"flags": {}, "config": {"cgroupDriver": "systemd"}, "complete": True},
        "cni": {
            "directory": "/etc/cni/net.d",
            "programs": ["/opt/cni/bin"],
            "files": [{"name": "10-calico.conflist", "network": "n", "types": ["calico"], "missing": [], "error": ""}],
        },
        "nri": {"socket": "/var/run/nri/nri.sock", "listening": True},
        "crio": None,
    },
    "unseen": {},
    "duration_ms": 100,
}


def probe_with(**changes: object) -> dict:
    """The clean probe with values replaced: a key is the way to the value, its parts joined by two underscores."""
    probe = copy.deepcopy(CLEAN_PROBE)
    for way, value in changes.items():
        *parents, last = way.split("__")
        section = probe
        for name in parents:
            section = section[name]
        section[last] = value
    return probe
