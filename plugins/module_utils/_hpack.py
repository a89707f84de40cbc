# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HPACK, the header compression of HTTP/2: https://www.rfc-editor.org/rfc/rfc7541

The decoder is complete; the encoder writes plain literals, which every decoder must accept.
"""

from __future__ import annotations

TABLE_SIZE = 4096  # octets, the protocol's default, never raised by this client
MAX_LIST_SIZE = 256 * 1024  # octets of decoded names and values: a small block can refer to a long entry many times
_ENTRY_OVERHEAD = 32  # section 4.1
_MAX_INTEGER = 2**32

_VALUES = {
    ":method": ("GET", "POST"),
    ":path": ("/", "/index.html"),
    ":scheme": ("http", "https"),
    ":status": ("200", "204", "206", "304", "400", "404", "500"),
    "accept-encoding": ("gzip, deflate",),
}
# Appendix A, in order
_NAMES = """
:authority :method :path :scheme :status accept-charset accept-encoding
accept-language accept-ranges accept access-control-allow-origin age allow authorization cache-control
content-disposition content-encoding content-language content-length content-location content-range content-type
cookie date etag expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since
last-modified link location max-forwards proxy-authenticate proxy-authorization range referer refresh retry-after
server set-cookie strict-transport-security transfer-encoding user-agent vary via www-authenticate
""".split()
_STATIC_TABLE = [(name.encode(), value.encode()) for name in _NAMES for value in _VALUES.get(name, ("",))]

# Appendix B, as the length in bits of the code of each octet and of EOS, the last; the code is canonical.
_CODE_LENGTHS = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c"
    "060a0a0c0d06080b0a0a080b080606060505050606060606060607080f060c0a"
    "0d06070707070707070707070707070707070707070707070807080d130d0e06"
    "0f05060506050606060507070606060506070605050607070707070f0b0e0d1c"
    "1416141416161617161717171717181718181617181717171715161716171718"
    "1615141616171715171616181516171715151615171617171416161617161617"
    "1a1a1413161716191a1a1a1b1b1a181913151a1b1b1a1b1815151a1a1c1b1b1b"
    "14181415161515171616191918181a171a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a"
    "1e"
)
_EOS = 256


class HpackError(ValueError):
    """The header block is damaged or exceeds a limit."""


def encode_headers(headers):
    """Return a header block: each (name, value) in octets as a literal that no table keeps (section 6.2.2)."""
    return b"".join(b"\x00" + _encode_string(name) + _encode_string(value) for name, value in headers)


class Decoder:
    """The decoding side of one connection. After an error the connection is of no more use: the table may differ."""

    def __init__(self):
        self._table = []  # newest first
        self._table_size = 0
        self._table_limit = TABLE_SIZE

    def decode(self, block):
        """Return the (name, value) pairs, in octets, of one complete header block.

        :raises HpackError: the block is damaged, or its headers exceed MAX_LIST_SIZE.
        """
        headers, size, position = [], 0, 0
        while position < len(block):
            first = block[position]
            if first & 0xE0 == 0x20:
                limit, position = _decode_integer(block, position, 5)
                self._resize(limit)
                continue
            header, position = self._decode_header(block, position, first)
            size += _size(header)
            if size > MAX_LIST_SIZE:
                raise HpackError(f"expected at most {MAX_LIST_SIZE} octets of headers, found more")
            headers.append(header)
        return headers

    def _decode_header(self, block, position, first):
        if first & 0x80:
            index, position = _decode_integer(block, position, 7)
            return self._entry(index), position
        keep = first & 0x40
        index, position = _decode_integer(block, position, 6 if keep else 4)
        if index:
            name = self._entry(index)[0]
        else:
            name, position = _decode_string(block, position)
        value, position = _decode_string(block, position)
        if keep:
            self._add((name, value))
        return (name, value), position

    def _entry(self, index):
        if 1 <= index <= len(_STATIC_TABLE):
            return _STATIC_TABLE[index - 1]
        dynamic = index - len(_STATIC_TABLE) - 1
        if 0 <= dynamic < len(self._table):
            return self._table[dynamic]
        raise HpackError(f"no header at index {index}, the table ends at {len(_STATIC_TABLE) + len(self._table)}")

    def _add(self, header):
        self._table.insert(0, header)
        self._table_size += _size(header)
        self._evict()

    def _resize(self, limit):
        if limit > TABLE_SIZE:
            raise HpackError(f"expected a table of at most {TABLE_SIZE} octets, found {limit}")
        self._table_limit = limit
        self._evict()

    def _evict(self):
        while self._table_size > self._table_limit:
            self._table_size -= _size(self._table.pop())


def _size(header):
    return len(header[0]) + len(header[1]) + _ENTRY_OVERHEAD


def _encode_string(octets):
    if len(octets) < 127:
        return bytes((len(octets),)) + octets
    rest, prefix = len(octets) - 127, bytearray((127,))
    while rest >= 128:
        prefix.append(rest & 0x7F | 0x80)
        rest >>= 7
    prefix.append(rest)
    return bytes(prefix) + octets


def _decode_integer(block, position, prefix_bits):
    """Return (value, next position) of section 5.1."""
    mask = (1 << prefix_bits) - 1
    value = block[position] & mask
    position += 1
    if value < mask:
        return value, position
    shift = 0
    while position < len(block):
        octet = block[position]
        position += 1
        value += (octet & 0x7F) << shift
        if value > _MAX_INTEGER or shift > 28:
            raise HpackError(f"expected an integer of at most {_MAX_INTEGER}, found a larger one")
        if not octet & 0x80:
            return value, position
        shift += 7
    raise HpackError("the header block ends inside an integer")


def _decode_string(block, position):
    """Return (octets, next position) of section 5.2."""
    if position >= len(block):
        raise HpackError("the header block ends before a string")
    coded = block[position] & 0x80
    length, position = _decode_integer(block, position, 7)
    octets = block[position : position + length]
    if len(octets) < length:
        raise HpackError(f"expected a string of {length} octets, the header block ends after {len(octets)}")
    return (_decode_huffman(octets) if coded else octets), position + length


def _decode_huffman(octets):
    output = bytearray()
    length, code = 0, 0
    for octet in octets:
        for bit in range(7, -1, -1):
            code = code << 1 | octet >> bit & 1
            length += 1
            symbol = _SYMBOLS.get((length, code))
            if symbol is not None:
                if symbol == _EOS:
                    raise HpackError("found the end-of-string code inside a string")
                output.append(symbol)
                length, code = 0, 0
    if length > 7 or code != (1 << length) - 1:
        raise HpackError("expected a string padded with fewer than 8 one-bits")
    return bytes(output)


def _canonical_code(lengths):
    """Return {(length, code): symbol} of a canonical Huffman code."""
    symbols, code, previous = {}, 0, 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(lengths)):
        code <<= length - previous
        symbols[length, code] = symbol
        code += 1
        previous = length
    return symbols


_SYMBOLS = _canonical_code(_CODE_LENGTHS)
