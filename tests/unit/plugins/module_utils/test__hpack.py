# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils._hpack import (
    MAX_LIST_SIZE,
    Decoder,
    HpackError,
    encode_headers,
)
from hypothesis import given
from hypothesis import strategies as st

REQUEST = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")]
REQUESTS = [
    REQUEST,
    [*REQUEST, ("cache-control", "no-cache")],
    [
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ],
]
RESPONSES = [
    [
        (":status", "302"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("location", "https://www.example.com"),
    ],
    [
        (":status", "307"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("location", "https://www.example.com"),
    ],
    [
        (":status", "200"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
        ("location", "https://www.example.com"),
        ("content-encoding", "gzip"),
        ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
    ],
]
TABLE_OF_256_OCTETS = "3fe101"  # how section C.5 begins: SETTINGS_HEADER_TABLE_SIZE is 256


def decoded(decoder, hexadecimal):
    return [(name.decode(), value.decode()) for name, value in decoder.decode(bytes.fromhex(hexadecimal))]


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        pytest.param(
            [
                "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                "8286 84be 5808 6e6f 2d63 6163 6865",
                "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
            ],
            REQUESTS,
            id="C.3-requests",
        ),
        pytest.param(
            [
                "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
                "8286 84be 5886 a8eb 1064 9cbf",
                "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
            ],
            REQUESTS,
            id="C.4-requests-huffman",
        ),
        pytest.param(
            [
                TABLE_OF_256_OCTETS + "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133"
                "2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                "4803 3330 37c1 c0bf",
                "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970"
                "7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61"
                "6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
            ],
            RESPONSES,
            id="C.5-responses-with-eviction",
        ),
        pytest.param(
            [
                TABLE_OF_256_OCTETS + "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6"
                "2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                "4883 640e ffc1 c0bf",
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2"
                "e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
            ],
            RESPONSES,
            id="C.6-responses-huffman-with-eviction",
        ),
        pytest.param(
            ["040c 2f73 616d 706c 652f 7061 7468", "1008 7061 7373 776f 7264 0673 6563 7265 74", "82"],
            [[(":path", "/sample/path")], [("password", "secret")], [(":method", "GET")]],
            id="C.2-not-indexed-never-indexed-indexed",
        ),
    ],
)
def test_decodes_the_examples_of_rfc_7541(blocks, expected):
    """Consecutive blocks of one connection share the dynamic table."""
    decoder = Decoder()

    assert [decoded(decoder, block) for block in blocks] == expected


def test_static_table_ends_where_the_rfc_says():
    """Appendix A has 61 entries; the first dynamic one is 62."""
    decoder = Decoder()

    assert decoded(decoder, "bd") == [("www-authenticate", "")]
    with pytest.raises(HpackError, match="no header at index 62"):
        decoder.decode(b"\xbe")


def test_huffman_code_of_the_longest_symbols():
    """Appendix B: octet 10 has 30 bits (3ffffffc), octet 0 has 13 (1ff8)."""
    assert decoded(Decoder(), "0001 6184 fffffff3") == [("a", "\n")]
    assert decoded(Decoder(), "0001 6182 ffc7") == [("a", "\0")]


@pytest.mark.parametrize(
    ("block", "words"),
    [
        pytest.param("80", "no header at index 0", id="index-0"),
        pytest.param("40", "ends before a string", id="no-name"),
        pytest.param("4003 6162", "the header block ends after 2", id="short-name"),
        pytest.param("ff", "ends inside an integer", id="short-integer"),
        pytest.param("ffffffffffff7f", "a larger one", id="huge-integer"),
        pytest.param("ff808080808080808080808000", "a larger one", id="integer-of-zeros"),
        pytest.param("3fe2ff03", "a table of at most 4096", id="table-too-large"),
        pytest.param("0001 6181 ff", "fewer than 8 one-bits", id="huffman-padding-of-8-bits"),
        pytest.param("0001 6182 1fff", "fewer than 8 one-bits", id="huffman-padding-octet-too-many"),
        pytest.param("0001 6181 00", "fewer than 8 one-bits", id="huffman-padding-of-zeros"),
        pytest.param("0001 6185 fffffffffc", "end-of-string", id="huffman-eos"),
    ],
)
def test_refuses_damaged_blocks(block, words):
    """Every damage is an HpackError with its reason."""
    with pytest.raises(HpackError, match=words):
        Decoder().decode(bytes.fromhex(block))


def test_refuses_a_block_that_expands_beyond_the_limit():
    """References of one octet to a long entry must not fill the memory."""
    long_value = b"x" * 4000
    block = b"\x40\x01a\x7f" + bytes((0x80 | (len(long_value) - 127) & 0x7F, (len(long_value) - 127) >> 7)) + long_value

    with pytest.raises(HpackError, match="at most 262144"):
        Decoder().decode(block + b"\xbe" * (MAX_LIST_SIZE // 4000 + 1))


@given(st.lists(st.tuples(st.binary(max_size=300), st.binary(max_size=300)), max_size=20))
def test_encoded_headers_decode_to_themselves(headers):
    """Encoding then decoding is the identity."""
    assert Decoder().decode(encode_headers(headers)) == headers


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_random_blocks_decode_or_are_refused(blocks):
    """No block raises anything but HpackError."""
    decoder = Decoder()
    for block in blocks:
        try:
            decoder.decode(block)
        except HpackError as error:
            assert str(error)
