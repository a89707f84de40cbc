# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_marks import (
    DEFAULT_MASK,
    INT32_BITS,
    allocate,
    bits_in_use,
    is_enough,
    plan_mask,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_known import Felix
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_marks import SECURE_WORKLOAD_BITS
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("felix", "collides"),
    [
        pytest.param(Felix((3, 13)), 0, id="3.13"),
        pytest.param(Felix((3, 25)), 0, id="3.25"),
        pytest.param(Felix((3, 25), wireguard=True), 0x100000, id="3.25-wireguard"),
        pytest.param(Felix((3, 25), ipvs=True), 0x300000, id="3.25-ipvs"),
        pytest.param(Felix((3, 15), wireguard=True), 0x100000, id="3.15-wireguard"),
        pytest.param(Felix((3, 30)), 0x100000, id="3.30"),
        pytest.param(Felix((3, 32), wireguard=True), 0x300000, id="3.32-wireguard"),
        pytest.param(Felix((3, 32), ipvs=True), 0x300000, id="3.32-ipvs"),
        pytest.param(Felix((3, 32), bpf=True), 0x300000, id="ebpf"),
        pytest.param(Felix(), 0x100000, id="unknown is the newest"),
    ],
)
def test_default_mask_against_bits_20_and_21(felix, collides):
    """Which of Secure Workload's bits Felix writes with its default mask."""
    assert bits_in_use(DEFAULT_MASK, felix) & SECURE_WORKLOAD_BITS == collides


@pytest.mark.parametrize(
    ("felix", "names"),
    [
        pytest.param(Felix((3, 15), wireguard=True), "accept pass wireguard scratch0 scratch1", id="3.15"),
        pytest.param(Felix((3, 29), wireguard=True), "accept pass scratch0 scratch1 wireguard", id="3.29"),
        pytest.param(Felix((3, 30), wireguard=True), "accept pass drop scratch0 scratch1 wireguard", id="3.30"),
        pytest.param(Felix((3, 13), wireguard=True), "accept pass scratch0 scratch1", id="3.13 has no wireguard"),
    ],
)
def test_order_of_bits(felix, names):
    """Single bits are given out from the lowest one of the mask, the rest is for endpoints."""
    found = allocate(DEFAULT_MASK, felix)
    singles = {name: 1 << 16 + index for index, name in enumerate(names.split())}

    assert found == {**singles, "endpoint": DEFAULT_MASK - sum(singles.values())}


@pytest.mark.parametrize(
    ("felix", "avoid", "fits_int32", "mask"),
    [
        pytest.param(Felix((3, 32)), 0x300000, True, 0x7FCF0000, id="secure-workload"),
        pytest.param(Felix((3, 32)), 0x300000, False, 0xFFCF0000, id="secure-workload before Kubernetes 1.36"),
        pytest.param(Felix((3, 32)), 0x380000, True, 0x7FC70000, id="bit 19 too"),
        pytest.param(Felix((3, 32)), 0xFF0000, True, 0x7F000000, id="tailscale"),
        pytest.param(Felix((3, 25), mark_mask=0x7FCF0000), 0x300000, True, 0x7FCF0000, id="a good one stays"),
        pytest.param(Felix((3, 25), mark_mask=0xF0000), 0x300000, True, 0xF0000, id="a small good one stays"),
        pytest.param(Felix((3, 30), mark_mask=0xF0000), 0x300000, True, 0x7FCF0000, id="a small one is replaced"),
        pytest.param(Felix((3, 32)), 0xFFFF1FFF, True, None, id="cilium leaves only customary bits"),
        pytest.param(Felix((3, 32)), 0x7FFF0000, True, 0x1F00, id="low bits where nothing else is free"),
        pytest.param(Felix((3, 32), ipvs=True), 0x7FFF0000, True, 0x1FFE, id="ipvs needs more"),
        pytest.param(Felix((3, 32), bpf=True), 0x300000, True, None, id="ebpf cannot move"),
        pytest.param(Felix((3, 32), bpf=True, mark_mask=DEFAULT_MASK), 0, False, DEFAULT_MASK, id="ebpf alone"),
    ],
)
def test_planned_mask(felix, avoid, fits_int32, mask):
    """The masks of the facts, and what is done where the usual bits are taken."""
    plan = plan_mask(felix, avoid, fits_int32=fits_int32)

    assert plan.mask == mask
    assert bool(plan.obstacle) == (mask is None)
    assert plan.decimal == ("" if mask is None else str(mask))


@given(
    st.builds(
        Felix,
        version=st.none() | st.tuples(st.just(3), st.integers(13, 33)),
        mark_mask=st.none() | st.integers(0, 0xFFFFFFFF),
        wireguard=st.booleans(),
        ipvs=st.booleans(),
        bpf=st.booleans(),
    ),
    st.integers(0, 0xFFFFFFFF),
    st.booleans(),
)
def test_a_plan_keeps_clear_and_is_enough(felix, avoid, fits_int32):
    """A mask that is given avoids what it should, is accepted, and Felix starts with it; and it is the next plan's."""
    plan = plan_mask(felix, avoid, fits_int32=fits_int32)
    if plan.mask is None:
        assert plan.obstacle
        return

    assert not plan.mask & avoid
    assert not fits_int32 or plan.mask <= INT32_BITS
    assert is_enough(plan.mask, felix)
    again = Felix(felix.version, plan.mask, wireguard=felix.wireguard, ipvs=felix.ipvs, bpf=felix.bpf)
    assert plan_mask(again, avoid, fits_int32=fits_int32).mask == plan.mask
