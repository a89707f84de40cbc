# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The protobuf wire format, as far as CRI uses it: https://protobuf.dev/programming-guides/encoding/

A message type is a dict, field number -> Field; a message is a dict, field name -> value. A field that is not on the
wire has its proto3 default: "", False, 0, {}, [] and None for a message. Unknown fields are skipped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

STRING = "string"
BOOL = "bool"
INT64 = "int64"  # also int32: negative values have the same ten octets
UINT64 = "uint64"
STRING_MAP = "map<string, string>"
_DEFAULTS = {STRING: "", BOOL: False, INT64: 0, UINT64: 0}

_VARINT, _LENGTH = 0, 2
_FIXED_OCTETS = {1: 8, 5: 4}
_MAX_VARINT_OCTETS = 10
_UINT64_MASK = 0xFFFFFFFFFFFFFFFF


class ProtobufError(ValueError):
    """The octets are not a protobuf message."""


class Field(NamedTuple):
    """kind: one of the constants above, or the dict of a message type."""

    name: str
    kind: Any
    repeated: bool = False


_MAP_ENTRY = {1: Field("key", STRING), 2: Field("value", STRING)}


def encode_message(values, message):
    """Return the octets of a message; fields that are absent or have the default value are left out."""
    output = b""
    for number, field in message.items():
        value = values.get(field.name)
        if not value and not (isinstance(field.kind, dict) and value is not None):
            continue
        if field.kind == STRING_MAP:
            items = [encode_message({"key": key, "value": item}, _MAP_ENTRY) for key, item in value.items()]
        else:
            items = [_encode_value(field.kind, item) for item in (value if field.repeated else [value])]
        wire_type = _wire_type(field.kind)
        for item in items:
            output += encode_varint(number << 3 | wire_type)
            output += encode_varint(len(item)) + item if wire_type == _LENGTH else item
    return output


def decode_message(octets, message):
    """Return the values of a message.

    :raises ProtobufError: truncated or not protobuf.
    """
    found = {}
    for number, wire_type, value in _wire_fields(octets):
        field = message.get(number)
        if field and wire_type == _wire_type(field.kind):
            found.setdefault(number, []).append(value)
    return {field.name: _decode_field(field, found.get(number, [])) for number, field in message.items()}


def encode_varint(value):
    """Return an unsigned integer of at most 64 bits as a varint."""
    output = bytearray()
    while value >= 0x80:
        output.append(value & 0x7F | 0x80)
        value >>= 7
    output.append(value)
    return bytes(output)


def decode_varint(octets, position):
    """Return (value, next position).

    :raises ProtobufError: truncated or longer than ten octets.
    """
    value = 0
    for index in range(_MAX_VARINT_OCTETS):
        if position + index >= len(octets):
            raise ProtobufError("the message ends inside a number")
        octet = octets[position + index]
        value |= (octet & 0x7F) << 7 * index
        if octet < 0x80:
            return value & _UINT64_MASK, position + index + 1
    raise ProtobufError(f"expected a number of at most {_MAX_VARINT_OCTETS} octets, found a longer one")


def _encode_value(kind, value):
    if isinstance(kind, dict):
        return encode_message(value, kind)
    if kind == STRING:
        return value.encode("utf-8")
    return encode_varint(int(value) & _UINT64_MASK)


def _decode_field(field, values):
    if field.kind == STRING_MAP:
        entries = [decode_message(value, _MAP_ENTRY) for value in values]
        return {entry["key"]: entry["value"] for entry in entries}
    if field.repeated:
        return [_decode_value(field.kind, value) for value in values]
    if not values:
        return None if isinstance(field.kind, dict) else _DEFAULTS[field.kind]
    # A message in parts is their merge, which is what decoding them as one gives; of other kinds the last one counts.
    return _decode_value(field.kind, b"".join(values) if isinstance(field.kind, dict) else values[-1])


def _decode_value(kind, value):
    if isinstance(kind, dict):
        return decode_message(value, kind)
    if kind == STRING:
        return value.decode("utf-8", "replace")
    if kind == BOOL:
        return bool(value)
    return value - (1 << 64) if kind == INT64 and value >> 63 else value


def _wire_type(kind):
    return _LENGTH if isinstance(kind, dict) or kind in (STRING, STRING_MAP) else _VARINT


def _wire_fields(octets):
    """Yield (number, wire type, value) of each field: an int for a varint, else octets."""
    position = 0
    while position < len(octets):
        tag, position = decode_varint(octets, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, position = decode_varint(octets, position)
            yield number, wire_type, value
            continue
        if wire_type == _LENGTH:
            length, position = decode_varint(octets, position)
        elif wire_type in _FIXED_OCTETS:
            length = _FIXED_OCTETS[wire_type]
        else:
            raise ProtobufError(f"expected wire type 0, 1, 2 or 5, found {wire_type} at octet {position}")
        if length > len(octets) - position:
            raise ProtobufError(
                f"field {number} needs {length} octets, the message ends after {len(octets) - position}"
            )
        yield number, wire_type, octets[position : position + length]
        position += length
