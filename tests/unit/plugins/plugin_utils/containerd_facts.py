# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the node half of containerd_config returns for a sound node."""

from __future__ import annotations

import base64
import hashlib

MAIN = "/etc/containerd/config.toml"


def file_facts(path: str, content: bytes | None) -> dict:
    """Return one read file."""
    return {
        "path": path,
        "real_path": path,
        "sha256": "" if content is None else hashlib.sha256(content).hexdigest(),
        "content": None if content is None else base64.b64encode(content).decode(),
    }


def facts(content: bytes | None = b"version = 2\n", *, unit=(), cri=(), imports=(), **changes) -> dict:
    """Return the facts, with changes of the unit's properties, of the CRI answer, and of top-level keys."""
    return {
        "binary": "/usr/bin/containerd",
        "version": "1.6.20~ds1",
        "unit_name": "containerd.service",
        "unit": {"LoadState": "loaded", "ActiveState": "active", "MainPID": "42", "KillMode": "process", **dict(unit)},
        "dependents": [],
        "config_file": MAIN,
        "daemon_config": MAIN,
        "socket": "/run/containerd/containerd.sock",
        "images": ["docker.io/library/busybox:1.33"],
        "cri": {
            "serving": True,
            "error": "",
            "code": "",
            "version": "1.6.20~ds1",
            "conditions": ["ContainerdHasNoDeprecationWarnings", "NetworkReady", "RuntimeReady"],
            "loaded_config_path": "",
            **dict(cri),
        },
        "os": {"id": "debian", "version_id": "12", "variant_id": "", "pretty_name": "Debian GNU/Linux 12 (bookworm)"},
        "marks": [],
        "sources": [],
        "hosts": {},
        "present": [],
        "files": [file_facts(MAIN, content), *(file_facts(path, data) for path, data in dict(imports).items())],
        "relative_globs": [],
        "unfinished": [],
        "restart_due": False,
        **changes,
    }


def registry_facts(content: bytes | None, *, names=("hosts.toml",), origin="", former=None, made=()) -> dict:
    """Return what was read of one directory below a registry directory."""
    texts = [None if item is None else base64.b64encode(item).decode() for item in (content, former)]
    return {"names": list(names), "content": texts[0], "origin": origin, "former": texts[1], "made": list(made)}
