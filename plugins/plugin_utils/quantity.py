# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes' quantities, such as C(250m) of a CPU or C(256Mi) of memory.

Source: kubernetes/kubernetes, staging/src/k8s.io/apimachinery/pkg/api/resource/quantity.go.
"""

from __future__ import annotations

import re
from fractions import Fraction

_SUFFIXES = {
    **{
        sign: Fraction(1000) ** power
        for power, sign in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)
    },
    **{f"{sign}i": Fraction(1024) ** power for power, sign in enumerate("KMGTPE", 1)},
}


def parse_quantity(value: object) -> Fraction | None:
    """The number that a quantity stands for; None for what is none."""
    match = re.fullmatch(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d{1,3})|(\w{0,2}))", str(value).strip())
    if not match or isinstance(value, bool) or (match[3] or "") not in _SUFFIXES:
        return None
    return Fraction(match[1] + (match[2] or "")) * _SUFFIXES[match[3] or ""]
