# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes' quantities as numbers."""

from __future__ import annotations

from fractions import Fraction

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.quantity import parse_quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("250m", Fraction(1, 4)),
        ("0.25", Fraction(1, 4)),
        (".5", Fraction(1, 2)),
        ("1.", 1),
        (2, 2),
        ("256Mi", 256 * 1024**2),
        ("1k", 1000),
        ("1E", 10**18),
        ("1e3", 1000),
        ("12E-1", Fraction(6, 5)),
        ("5n", Fraction(5, 10**9)),
        ("-1Gi", -(1024**3)),
    ],
)
def test_quantities_are_numbers(text: object, number: Fraction | int):
    assert parse_quantity(text) == number


@pytest.mark.parametrize("text", [None, True, "", "x", "1e", "1 Mi", "1Kii", "Mi", "1mi", [], {}, "1e9999"])
def test_what_is_no_quantity_is_none(text: object):
    assert parse_quantity(text) is None
