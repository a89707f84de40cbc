# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which bits of a mark an expression of nft changes or looks at.

Format: libnftables-json(5). A mark is written with expressions over itself: C(meta mark | 0x4000) sets a bit,
C(meta mark & 0xffe4ffff) clears what is missing from the constant, C(ct mark & 0x80) replaces all of it.
"""

from __future__ import annotations

from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_rules import ALL_BITS, CONNECTION, PACKET


def _constant(value: object) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value & ALL_BITS if is_number else None


def _own_space(value: object) -> str:
    """C(packet) for C(meta mark), C(connection) for C(ct mark), empty for anything else."""
    if isinstance(value, dict):
        for word, space in (("meta", PACKET), ("ct", CONNECTION)):
            inner = value.get(word)
            if isinstance(inner, dict) and inner.get("key") == "mark":
                return space
    return ""


def _operation(value: object) -> tuple[str, list]:
    """The operator and its two operands, or empty: nft nests, and older versions give more than two."""
    if isinstance(value, dict) and len(value) == 1:
        ((operator, operands),) = value.items()
        if operator in ("&", "|", "^") and isinstance(operands, list) and len(operands) >= 2:
            rest = operands[1:]
            return operator, [operands[0], rest[0] if len(rest) == 1 else {operator: rest}]
    return "", []


def mark_space(value: object) -> str:
    """The mark that an expression reads: C(packet), C(connection), or empty when it reads none."""
    own = _own_space(value)
    if own:
        return own
    for operand in _operation(value)[1]:
        found = mark_space(operand)
        if found:
            return found
    return ""


def _possible(value: object) -> int:
    """Bits that can be one in an expression's result."""
    constant = _constant(value)
    if constant is not None:
        return constant
    operator, operands = _operation(value)
    if not operator:
        return ALL_BITS
    left, right = (_possible(operand) for operand in operands)
    return left & right if operator == "&" else left | right


def _certain(value: object) -> int:
    """Bits that are one in an expression's result whatever it reads."""
    constant = _constant(value)
    if constant is not None:
        return constant
    operator, operands = _operation(value)
    if not operator or operator == "^":
        return 0
    left, right = (_certain(operand) for operand in operands)
    return left & right if operator == "&" else left | right


def _kept(value: object, space: str) -> int:
    """Bits that come out as they are in the mark of this space."""
    if _own_space(value) == space:
        return ALL_BITS
    operator, operands = _operation(value)
    if not operator:
        return 0
    (left, right), (a, b) = operands, (_kept(operand, space) for operand in operands)
    if operator == "&":
        return (a & _certain(right)) | (b & _certain(left)) | (a & b)
    kept = (a & ALL_BITS & ~_possible(right)) | (b & ALL_BITS & ~_possible(left))
    return kept | (a & b) if operator == "|" else kept


def changed_mark_bits(value: object, space: str) -> int:
    """Bits of a mark that writing this expression to it may change."""
    return ALL_BITS & ~_kept(value, space)


def compared_mark_bits(value: object) -> int:
    """Bits of a mark that an expression looks at."""
    operator, operands = _operation(value)
    if operator == "&":
        for operand in operands:
            constant = _constant(operand)
            if constant is not None:
                return constant
    return ALL_BITS
