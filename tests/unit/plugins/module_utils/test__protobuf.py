# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils._protobuf import (
    BOOL,
    INT64,
    STRING,
    STRING_MAP,
    UINT64,
    Field,
    ProtobufError,
    decode_message,
    decode_varint,
    encode_message,
    encode_varint,
)
from hypothesis import given
from hypothesis import strategies as st

INNER = {1: Field("name", STRING), 15: Field("count", INT64)}
OUTER = {
    1: Field("text", STRING),
    2: Field("flag", BOOL),
    3: Field("signed", INT64),
    4: Field("unsigned", UINT64),
    5: Field("pairs", STRING_MAP),
    6: Field("inner", INNER),
    7: Field("inners", INNER, repeated=True),
    2047: Field("texts", STRING, repeated=True),
}
DEFAULTS = {
    "text": "",
    "flag": False,
    "signed": 0,
    "unsigned": 0,
    "pairs": {},
    "inner": None,
    "inners": [],
    "texts": [],
}

INT64S = st.integers(-(2**63), 2**63 - 1)
UINT64S = st.integers(0, 2**64 - 1)
INNERS = st.fixed_dictionaries({"name": st.text(), "count": INT64S})
OUTERS = st.fixed_dictionaries(
    {
        "text": st.text(),
        "flag": st.booleans(),
        "signed": INT64S,
        "unsigned": UINT64S,
        "pairs": st.dictionaries(st.text(), st.text(), max_size=5),
        "inner": st.none() | INNERS,
        "inners": st.lists(INNERS, max_size=5),
        "texts": st.lists(st.text(), max_size=5),
    }
)


@given(UINT64S, st.binary(max_size=3))
def test_varint_decodes_to_itself(value, tail):
    """Encoding then decoding a 64-bit number is the identity and stops at its end."""
    octets = encode_varint(value)

    assert decode_varint(octets + tail, 0) == (value, len(octets))


@pytest.mark.parametrize(
    ("octets", "value"),
    [
        pytest.param("00", 0, id="zero"),
        pytest.param("7f", 127, id="one-octet"),
        pytest.param("9601", 150, id="the-example-of-the-specification"),
        pytest.param("ffffffffffffffffff01", 2**64 - 1, id="all-bits"),
        pytest.param("8100", 1, id="not-minimal"),
    ],
)
def test_varint_of_the_specification(octets, value):
    """Known encodings decode."""
    assert decode_varint(bytes.fromhex(octets), 0)[0] == value


@given(OUTERS)
def test_message_decodes_to_itself(values):
    """Encoding then decoding is the identity for each kind of field."""
    assert decode_message(encode_message(values, OUTER), OUTER) == values


@given(OUTERS)
def test_unknown_fields_are_skipped(values):
    """A reader of an older type sees its own fields only: a newer runtime adds some."""
    known = {1: OUTER[1], 6: OUTER[6]}

    assert decode_message(encode_message(values, OUTER), known) == {"text": values["text"], "inner": values["inner"]}


@given(OUTERS, st.data())
def test_truncated_messages_decode_or_are_refused(values, data):
    """A message that ends early is a ProtobufError or, at the border of two fields, a shorter message."""
    octets = encode_message(values, OUTER)
    cut = octets[: data.draw(st.integers(0, len(octets)))]
    try:
        assert set(decode_message(cut, OUTER)) == set(DEFAULTS)
    except ProtobufError as error:
        assert "ends" in str(error)


@given(st.binary(max_size=200))
def test_random_octets_decode_or_are_refused(octets):
    """No input raises anything but ProtobufError."""
    try:
        assert set(decode_message(octets, OUTER)) == set(DEFAULTS)
    except ProtobufError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("octets", "expected"),
    [
        pytest.param("", {}, id="empty-gives-defaults"),
        pytest.param("0a0161 0a0162", {"text": "b"}, id="last-of-a-text-counts"),
        pytest.param("32030a0161 32027805", {"inner": {"name": "a", "count": 5}}, id="parts-of-a-message-merge"),
        pytest.param("0805", {}, id="other-wire-type-is-unknown"),
        pytest.param("0a02fffe", {"text": "\ufffd\ufffd"}, id="text-that-is-not-utf-8"),
        pytest.param("2a00", {"pairs": {"": ""}}, id="map-entry-of-defaults"),
        pytest.param("4d01020304 490102030405060708 0a0161", {"text": "a"}, id="fixed-sizes-are-skipped"),
        pytest.param("18ffffffffffffffffff01", {"signed": -1}, id="negative"),
        pytest.param("1002", {"flag": True}, id="any-number-is-true"),
    ],
)
def test_decodes(octets, expected):
    """What other writers send is read as the specification says."""
    assert decode_message(bytes.fromhex(octets), OUTER) == {**DEFAULTS, **expected}


@pytest.mark.parametrize(
    ("octets", "words"),
    [
        pytest.param("0a", "ends inside a number", id="no-length"),
        pytest.param("0a05 6162", "needs 5 octets, the message ends after 2", id="short-text"),
        pytest.param("09 0102", "needs 8 octets", id="short-fixed"),
        pytest.param("0b", "found 3", id="group"),
        pytest.param("10ffffffffffffffffffff01", "at most 10 octets", id="number-of-11-octets"),
    ],
)
def test_refuses(octets, words):
    """Damage is a ProtobufError with its reason."""
    with pytest.raises(ProtobufError, match=words):
        decode_message(bytes.fromhex(octets), OUTER)
