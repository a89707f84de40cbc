# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Felix's mark bits: which of its mask it uses for what, and a mask that keeps clear of others.

Source: felix/dataplane/driver.go and felix/markbits of Calico 3.13 to 3.32. Bits are given out from the lowest set one
of the mask, in a fixed order; what is left over marks endpoints, which only IPVS needs. eBPF's bits are fixed.
"""

from __future__ import annotations

import dataclasses

from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_effective import BPF_MARKS
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_known import Felix

DEFAULT_MASK = 0xFFFF0000
# kube-apiserver 1.36 and newer hold an int32 field of a CRD to its range.
INT32_BITS = 0x7FFFFFFF
# kubelet's and kube-proxy's bits by default, and CNI portmap's: never taken, even where they do not show yet.
CUSTOMARY_BITS = 0xE000
# Endpoint bits for IPVS: one value for each of kubelet's 110 pods, and one for what is none of Calico's.
IPVS_ENDPOINT_BITS = 7
NEWEST = (3, 32)


@dataclasses.dataclass(frozen=True)
class MaskPlan:
    """A mask for Felix, or why there is none (C(obstacle)). C(names) are what its bits would be used for."""

    mask: int | None
    names: dict[str, int]
    obstacle: str = ""

    @property
    def decimal(self) -> str:
        """The mask as a FelixConfiguration wants it."""
        return "" if self.mask is None else str(self.mask)


def bit_names(felix: Felix) -> list[str]:
    """What Felix takes single bits for, in the order in which it takes them. An unknown version is the newest."""
    version = felix.version or NEWEST
    names = ["accept", "pass"]
    if version >= (3, 30):
        names.append("drop")
    if felix.wireguard and (3, 14) <= version <= (3, 16):
        return [*names, "wireguard", "scratch0", "scratch1"]
    names += ["scratch0", "scratch1"]
    if felix.wireguard and version >= (3, 17):
        names.append("wireguard")
    return names


def allocate(mask: int, felix: Felix) -> dict[str, int]:
    """The bits that Felix takes from a mask, by name; C(endpoint) is what is left over.

    A name that gets no bit is left out: Felix does not start then.
    """
    free = [1 << bit for bit in range(32) if mask >> bit & 1]
    if felix.bpf:
        free = [bit for bit in free if not bit & BPF_MARKS]
    names = bit_names(felix)
    found = dict(zip(names, free, strict=False))
    if felix.bpf:
        found["ebpf"] = BPF_MARKS
    rest = sum(free[len(names) :])
    return {**found, "endpoint": rest} if rest else found


def bits_in_use(mask: int, felix: Felix) -> int:
    """Bits that Felix writes with this mask: its endpoint bits only with IPVS."""
    return sum(bits for name, bits in allocate(mask, felix).items() if name != "endpoint" or felix.ipvs)


def is_enough(mask: int, felix: Felix) -> bool:
    """Whether Felix starts with this mask and, with IPVS, can tell its endpoints apart."""
    found = allocate(mask, felix)
    if felix.bpf and mask & BPF_MARKS != BPF_MARKS:
        return False
    wanted = IPVS_ENDPOINT_BITS if felix.ipvs else 0
    return all(name in found for name in bit_names(felix)) and found.get("endpoint", 0).bit_count() >= wanted


def plan_mask(felix: Felix, avoid: int, *, fits_int32: bool = True) -> MaskPlan:
    """A mask that has none of the bits in C(avoid) and enough for Felix.

    A mask in use that already keeps clear stays. Otherwise it is as much of Felix's default as is free; bits below 16
    are taken, from the highest, only where that is too little. C(fits_int32) is that the API server or the user wants
    no bit 31.
    """
    if felix.bpf:
        names = allocate(DEFAULT_MASK, felix)
        if avoid & BPF_MARKS:
            return MaskPlan(None, names, f"the eBPF dataplane's bits {BPF_MARKS:#x} are fixed, whatever the mask")
    allowed = (INT32_BITS if fits_int32 else 0xFFFFFFFF) & ~avoid
    current = felix.mark_mask
    if current and not current & avoid and is_enough(current, felix):
        return MaskPlan(current, allocate(current, felix))
    candidate = DEFAULT_MASK & allowed
    spare = [1 << bit for bit in range(15, -1, -1) if allowed & ~CUSTOMARY_BITS & 1 << bit]
    while not is_enough(candidate, felix) and spare:
        candidate |= spare.pop(0)
    if not is_enough(candidate, felix):
        needed = len(bit_names(felix)) + (IPVS_ENDPOINT_BITS if felix.ipvs else 0)
        free = candidate.bit_count()
        return MaskPlan(None, {}, f"Felix needs {needed} bits here and {free} are free of {allowed:#x}")
    return MaskPlan(candidate, allocate(candidate, felix))
