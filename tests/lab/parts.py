"""The cached things that nodes are made of: what a topology asks for is found or built here."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.lab import containerd, golang, images, qemu, rootfs, vm_image
from tests.lab.topology import Topology


@dataclass(frozen=True)
class Parts:
    """Where they are."""

    binaries: Path
    debian: Path
    layer: Path
    """Lies over `debian`."""
    lines: Mapping[str, Path] = field(default_factory=dict)
    """The layer of each containerd line that nodes ask for; lies over all."""
    qemu: Path = Path()
    """QEMU's root directory, when there are vm nodes."""
    disks: Mapping[tuple[str, ...], Path] = field(default_factory=dict)
    """What vm nodes boot from, by the images that their containerd holds."""


def build(topology: Topology) -> Parts:
    """Build, or find in the cache, what the nodes of a topology are made of."""
    with ThreadPoolExecutor() as pool:
        binaries, debian = pool.submit(golang.binaries), pool.submit(rootfs.base)
        common = (binaries.result(), debian.result(), rootfs.layer(debian.result()))
    asked = {node.containerd for node in topology.nodes}
    made = Parts(*common, {line: containerd.layer(line) for line in containerd.LINES if line in asked})
    for optional in sorted({node.images for node in topology.nodes if node.containerd != "none"}):
        images.template(made.debian, made.binaries, optional)
    machines = {node.images for node in topology.nodes if node.kind == "vm"}
    if not machines:
        return made
    disks = {optional: vm_image.disk(made.debian, made.binaries, optional) for optional in sorted(machines)}
    return replace(made, qemu=qemu.package(), disks=disks)
