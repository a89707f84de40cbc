# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client side of HTTP/2 for one request at a time over a connected socket: https://www.rfc-editor.org/rfc/rfc9113"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass, field
from typing import NamedTuple

from ._hpack import Decoder, HpackError, encode_headers

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PUSH_PROMISE = 0x0, 0x1, 0x3, 0x4, 0x5
_PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = 0x6, 0x7, 0x8, 0x9
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
_ENABLE_PUSH, _INITIAL_WINDOW_SIZE, _MAX_HEADER_LIST_SIZE = 0x2, 0x4, 0x6

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_MAX_FRAME = 16384  # octets, the protocol's default, for both sides
_DEFAULT_WINDOW = 65535
_WINDOW = 1024 * 1024  # octets the peer may send before it hears from us
_MAX_WINDOW = 2**31 - 1
_MAX_HEADER_BLOCK = 256 * 1024
_RECEIVE_OCTETS = 65536

_ERROR_NAMES = (
    "NO_ERROR PROTOCOL_ERROR INTERNAL_ERROR FLOW_CONTROL_ERROR SETTINGS_TIMEOUT STREAM_CLOSED FRAME_SIZE_ERROR "
    "REFUSED_STREAM CANCEL COMPRESSION_ERROR CONNECT_ERROR ENHANCE_YOUR_CALM INADEQUATE_SECURITY HTTP_1_1_REQUIRED"
).split()


# Http2Error
#   Http2Timeout     the deadline passed
#   ResponseTooLarge the body exceeds the limit
#   StreamReset      the peer ended this request
class Http2Error(Exception):
    """The connection cannot be used any more; the text says what was seen."""


class Http2Timeout(Http2Error):  # noqa: N818 - the base has the suffix
    """The deadline passed before the response was complete."""


class ResponseTooLarge(Http2Error):  # noqa: N818 - the base has the suffix
    """The response body exceeds the limit."""


class StreamReset(Http2Error):  # noqa: N818 - the base has the suffix
    """The peer reset the stream; C(error_name) is the code's name of section 7."""

    def __init__(self, code):
        self.error_name = error_name(code)
        super().__init__(f"the peer reset the request with {self.error_name}")


class Response(NamedTuple):
    """headers and trailers: text by lower-case name; trailers are empty when the response has only one header block."""

    headers: dict
    body: bytes
    trailers: dict


@dataclass
class _Stream:
    """One request. window: octets that we may still send. unacknowledged: octets received, not yet reported."""

    number: int
    window: int
    headers: dict | None = None
    trailers: dict = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    unacknowledged: int = 0
    ended: bool = False


def error_name(code):
    """Return the name of an error code of section 7."""
    return _ERROR_NAMES[code] if code < len(_ERROR_NAMES) else f"error {code}"


class Connection:
    """One HTTP/2 connection. After any Http2Error the caller closes it."""

    def __init__(self, sock, max_body):
        """:param max_body: octets of a response body over which the request fails."""
        self._socket = sock
        self._max_body = max_body
        self._buffer = bytearray()
        self._decoder = Decoder()
        self._deadline = 0.0
        self._stream = _Stream(-1, _DEFAULT_WINDOW)  # the next request is stream 1
        self._window = _DEFAULT_WINDOW  # octets that we may still send on the connection
        self._peer_stream_window = _DEFAULT_WINDOW
        self._unacknowledged = 0
        self._peer_ready = False
        self._handlers = {
            _DATA: self._on_data,
            _HEADERS: self._on_headers,
            _RST_STREAM: self._on_reset,
            _SETTINGS: self._on_settings,
            _PUSH_PROMISE: self._on_unexpected,
            _PING: self._on_ping,
            _GOAWAY: self._on_goaway,
            _WINDOW_UPDATE: self._on_window_update,
            _CONTINUATION: self._on_unexpected,
        }

    def request(self, headers, body, deadline):
        """Send one request and return its Response.

        :param headers: (name, value) pairs of octets, pseudo-headers first, at most 16384 octets in all.
        :param body: at most 16384 octets.
        :param deadline: in time.monotonic() seconds.
        :raises ValueError: the request is too large for one frame.
        :raises Http2Error: everything else.
        """
        block = encode_headers(headers)
        if max(len(block), len(body)) > _MAX_FRAME:
            raise ValueError(f"expected a request of at most {_MAX_FRAME} octets, got {max(len(block), len(body))}")
        self._deadline = deadline
        stream = self._stream = _Stream(self._stream.number + 2, self._peer_stream_window)
        if stream.number == 1:
            self._greet()
        self._send(_HEADERS, _END_HEADERS, stream.number, block)
        while not stream.ended and min(self._window, stream.window) < len(body):
            self._handle_frame()
        if not stream.ended:
            self._send(_DATA, _END_STREAM, stream.number, body)
            self._window -= len(body)
        while not stream.ended:
            self._handle_frame()
        return Response(stream.headers, bytes(stream.body), stream.trailers)

    def close(self):
        """Close the socket."""
        self._socket.close()

    def _greet(self):
        settings = struct.pack(
            ">HIHIHI", _ENABLE_PUSH, 0, _INITIAL_WINDOW_SIZE, _WINDOW, _MAX_HEADER_LIST_SIZE, _MAX_HEADER_BLOCK
        )
        self._send_octets(_PREFACE + _frame(_SETTINGS, 0, 0, settings))
        self._send(_WINDOW_UPDATE, 0, 0, struct.pack(">I", _WINDOW - _DEFAULT_WINDOW))
        while not self._peer_ready:
            self._handle_frame()

    def _handle_frame(self):
        kind, flags, number, payload = self._receive_frame()
        handler = self._handlers.get(kind)
        if handler:
            handler(flags, number, payload)

    def _on_data(self, flags, number, payload):
        stream = self._stream
        self._unacknowledged += len(payload)
        if stream.number == number:
            if stream.headers is None:
                raise Http2Error("the peer sent data before the response headers")
            stream.body += _unpadded(flags, payload)
            if len(stream.body) > self._max_body:
                raise ResponseTooLarge(f"expected a response of at most {self._max_body} octets, found more")
            stream.ended = bool(flags & _END_STREAM)
            stream.unacknowledged += len(payload)
            if stream.unacknowledged > _WINDOW // 2 and not stream.ended:
                self._send(_WINDOW_UPDATE, 0, number, struct.pack(">I", stream.unacknowledged))
                stream.unacknowledged = 0
        if self._unacknowledged > _WINDOW // 2:
            self._send(_WINDOW_UPDATE, 0, 0, struct.pack(">I", self._unacknowledged))
            self._unacknowledged = 0

    def _on_headers(self, flags, number, payload):
        block = _unpadded(flags, payload)
        if flags & _PRIORITY:
            block = block[5:]
        parts_flags = flags
        while not parts_flags & _END_HEADERS:
            kind, parts_flags, part_number, part = self._receive_frame()
            if kind != _CONTINUATION or part_number != number:
                raise Http2Error("the peer interrupted a header block with another frame")
            block += part
            if len(block) > _MAX_HEADER_BLOCK:
                raise Http2Error(f"expected a header block of at most {_MAX_HEADER_BLOCK} octets, found more")
        try:
            # Blocks of earlier streams are decoded too: they change the table of the connection.
            headers = {_text(name): _text(value) for name, value in self._decoder.decode(block)}
        except HpackError as error:
            raise Http2Error(f"the peer sent a damaged header block: {error}") from error
        stream = self._stream
        if stream.number != number or headers.get(":status", "").startswith("1"):
            return
        if stream.headers is None:
            stream.headers = headers
        else:
            stream.trailers = headers
        stream.ended = bool(flags & _END_STREAM)

    def _on_reset(self, _flags, number, payload):
        if self._stream.number == number:
            raise StreamReset(_integer(payload, "RST_STREAM"))

    def _on_settings(self, flags, number, payload):
        if flags & _ACK:
            return
        if number or len(payload) % 6:
            raise Http2Error("the peer sent damaged settings")
        for identifier, value in struct.iter_unpack(">HI", payload):
            if identifier == _INITIAL_WINDOW_SIZE:
                self._stream.window += value - self._peer_stream_window
                self._peer_stream_window = value
        self._peer_ready = True
        self._send(_SETTINGS, _ACK, 0, b"")

    def _on_ping(self, flags, _number, payload):
        if len(payload) != 8:
            raise Http2Error(f"expected a PING of 8 octets, found {len(payload)}")
        if not flags & _ACK:
            self._send(_PING, _ACK, 0, payload)

    def _on_goaway(self, _flags, _number, payload):
        last, code = _integer(payload, "GOAWAY") & _MAX_WINDOW, _integer(payload[4:], "GOAWAY")
        if self._stream.number > last:
            words = payload[8:].decode("utf-8", "replace")
            raise Http2Error(f"the peer is going away with {error_name(code)} {words!r} and takes no request")

    def _on_window_update(self, _flags, number, payload):
        increment = _integer(payload, "WINDOW_UPDATE") & _MAX_WINDOW
        if number == 0:
            self._window += increment
        elif self._stream.number == number:
            self._stream.window += increment

    def _on_unexpected(self, _flags, _number, _payload):
        raise Http2Error("the peer sent a frame that HTTP/2 does not allow here")

    def _receive_frame(self):
        """Return (type, flags, stream number, payload)."""
        header = self._receive(9)
        length, kind, flags = int.from_bytes(header[:3], "big"), header[3], header[4]
        number = int.from_bytes(header[5:], "big") & _MAX_WINDOW
        first_is_settings = kind == _SETTINGS and number == 0 and not flags & _ACK
        if not self._peer_ready and not (first_is_settings and length <= _MAX_FRAME):
            raise Http2Error(f"the peer does not speak HTTP/2, its first octets are {bytes(header)!r}")
        if length > _MAX_FRAME:
            raise Http2Error(f"expected frames of at most {_MAX_FRAME} octets, found {length}")
        return kind, flags, number, self._receive(length)

    def _receive(self, count):
        while len(self._buffer) < count:
            self._arm_timeout()
            try:
                octets = self._socket.recv(_RECEIVE_OCTETS)
            # socket.timeout is TimeoutError only from Python 3.10 on.
            except socket.timeout as error:
                raise Http2Timeout("the deadline passed") from error
            except OSError as error:
                raise Http2Error(f"the connection broke: {error.strerror}") from error
            if not octets:
                raise Http2Error("the peer closed the connection before the response was complete")
            self._buffer += octets
        octets = bytes(self._buffer[:count])
        del self._buffer[:count]
        return octets

    def _send(self, kind, flags, number, payload):
        self._send_octets(_frame(kind, flags, number, payload))

    def _send_octets(self, octets):
        self._arm_timeout()
        try:
            self._socket.sendall(octets)
        except socket.timeout as error:
            raise Http2Timeout("the deadline passed") from error
        except OSError as error:
            raise Http2Error(f"the connection broke: {error.strerror}") from error

    def _arm_timeout(self):
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise Http2Timeout("the deadline passed")
        self._socket.settimeout(remaining)


def _frame(kind, flags, number, payload):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, number) + payload


def _unpadded(flags, payload):
    if not flags & _PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Http2Error("the peer sent a frame with more padding than content")
    return payload[1 : len(payload) - payload[0]]


def _integer(payload, frame_name):
    if len(payload) < 4:
        raise Http2Error(f"the peer sent a {frame_name} frame that is too short")
    return int.from_bytes(payload[:4], "big")


def _text(octets):
    return octets.decode("utf-8", "replace")
