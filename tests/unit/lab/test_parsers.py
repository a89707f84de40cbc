"""Readers of what Linux programs and files say, with text from real ones."""

from pathlib import Path

import pytest

from tests.lab import cgroups, images, machine, namespace, rootfs

HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime shared:9 - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
22 27 0:21 / /proc rw,relatime - proc proc rw
"""
UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"


def test_parse_mountinfo_hybrid():
    """v1 controllers keep their options, so that they can be mounted again."""
    found = cgroups.parse_mountinfo(HYBRID)

    assert [(str(entry.mountpoint), entry.fstype, entry.options) for entry in found] == [
        ("/sys/fs/cgroup/cpu,cpuacct", "cgroup", "cpu,cpuacct"),
        ("/sys/fs/cgroup/systemd", "cgroup", "name=systemd"),
        ("/sys/fs/cgroup/unified", "cgroup2", ""),
    ]
    assert not cgroups.is_v2(found)


def test_parse_mountinfo_unified():
    """One hierarchy, and the controllers are on it."""
    found = cgroups.parse_mountinfo(UNIFIED)

    assert found == [cgroups.Hierarchy(Path("/sys/fs/cgroup"), "cgroup2", "")]
    assert cgroups.is_v2(found)


def test_start_time_counts_after_the_name():
    """A command name may hold blanks and brackets."""
    stat = "42 (a) b (c)) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 0 0"

    assert namespace.start_time(stat) == 987654


INDEX_TARGETS = """\
http://mirror.example/debian-security/ trixie-security main
http://mirror.example/debian/ trixie main
http://mirror.example/debian/ trixie-updates main
http://mirror.example/debian/ trixie contrib
https://cloud.example/apt cloud-sdk-trixie main
https://deb.nodesource.example/node_20.x nodistro main
"""


def test_parse_index_targets():
    """Debian's places serve the nodes' release, too; those of others are left out."""
    assert rootfs.parse_index_targets(INDEX_TARGETS, "bookworm", "trixie") == [
        "deb http://mirror.example/debian-security/ bookworm-security main",
        "deb http://mirror.example/debian/ bookworm main",
        "deb http://mirror.example/debian/ bookworm-updates main",
    ]


LDD = """\
/usr/sbin/nft:
\tlinux-vdso.so.1 (0x00007ffd5a5f2000)
\tlibnftables.so.1 => /lib/x86_64-linux-gnu/libnftables.so.1 (0x00007f3e1a000000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f3e19c00000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f3e1a2d0000)
/usr/sbin/ipset:
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0000000000)
"""


def test_parse_ldd():
    """Each library once, the loader among them, the vdso not."""
    assert images.parse_ldd(LDD) == [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib/x86_64-linux-gnu/libnftables.so.1",
        "/lib64/ld-linux-x86-64.so.2",
    ]


RUNC = 'plugins."{}".containerd.runtimes.runc.options'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"[{RUNC.format('io.containerd.grpc.v1.cri')}]\nSystemdCgroup = true", True, id="version 2"),
        pytest.param(f"[{RUNC.format('io.containerd.cri.v1.runtime')}]\nSystemdCgroup = true", True, id="version 3"),
        pytest.param(f"[{RUNC.format('cri')}]\nSystemdCgroup = false", False, id="off"),
        pytest.param("version = 2", False, id="not said"),
        pytest.param("plugins = 3", False, id="nonsense"),
        pytest.param("version = ", False, id="not TOML"),
    ],
)
def test_uses_systemd_cgroups(text: str, expected: bool):
    """The kubelet follows the configuration that containerd starts from."""
    assert machine.uses_systemd_cgroups(text) is expected
