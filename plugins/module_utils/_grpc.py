# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unary gRPC calls over a Unix socket: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import time
from pathlib import Path
from urllib.parse import unquote_to_bytes

from ._http2 import Connection, Http2Error, Http2Timeout, ResponseTooLarge, StreamReset

# What kubelet accepts from a runtime (maxMsgSize of k8s.io/cri-client).
MAX_MESSAGE = 16 * 1024 * 1024
_PREFIX_OCTETS = 5
_CONNECT_POLL_S = 0.05
_MAX_TIMEOUT_MS = 99999999  # eight digits

# https://github.com/grpc/grpc/blob/master/doc/statuscodes.md, by number
CODE_NAMES = (
    "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED "
    "RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS "
    "UNAUTHENTICATED"
).split()

_CODE_OF_RESET = {
    "REFUSED_STREAM": "UNAVAILABLE",
    "CANCEL": "CANCELLED",
    "ENHANCE_YOUR_CALM": "RESOURCE_EXHAUSTED",
    "INADEQUATE_SECURITY": "PERMISSION_DENIED",
}
# https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md
_CODE_OF_HTTP_STATUS = {
    "400": "INTERNAL",
    "401": "UNAUTHENTICATED",
    "403": "PERMISSION_DENIED",
    "404": "UNIMPLEMENTED",
    "429": "UNAVAILABLE",
    "502": "UNAVAILABLE",
    "503": "UNAVAILABLE",
    "504": "UNAVAILABLE",
}


class GrpcError(Exception):
    """A call failed. C(code_name) is of CODE_NAMES, UNAVAILABLE also for a socket that cannot be used."""

    def __init__(self, code_name, message):
        super().__init__(f"{code_name}: {message}")
        self.code_name = code_name
        self.message = message


class Channel:
    """Calls to the server of one Unix socket, one at a time; connects when it has to."""

    def __init__(self, socket_path):
        self.socket_path = str(socket_path)
        self._connection = None

    def close(self):
        """Close the connection; the next call opens one again."""
        if self._connection:
            self._connection.close()
            self._connection = None

    def unary(self, method, message, timeout_s, metadata=None):
        """Return the response message of one call, in octets.

        :param method: C(/package.Service/Method).
        :param timeout_s: for all of it, connecting included; the server learns it as well.
        :param metadata: further headers.
        :raises GrpcError: anything that goes wrong.
        """
        deadline = time.monotonic() + timeout_s
        body = struct.pack(">BI", 0, len(message)) + message
        try:
            response = self._exchange(_request_headers(method, timeout_s, metadata or {}), body, deadline)
        except ValueError as error:
            raise GrpcError("INVALID_ARGUMENT", str(error)) from error
        except Http2Timeout as error:
            raise GrpcError(
                "DEADLINE_EXCEEDED", f"{self.socket_path} did not answer {method} within {timeout_s} s"
            ) from error
        except Http2Error as error:
            raise GrpcError(_code_of(error), f"{self.socket_path}: {error} ({method})") from error
        return _message_of(response)

    def _exchange(self, headers, body, deadline):
        """Send the request, on a new connection when the one of an earlier call has died meanwhile."""
        if self._connection:
            try:
                return self._exchange_once(headers, body, deadline)
            except Http2Error as error:
                if isinstance(error, (Http2Timeout, ResponseTooLarge, StreamReset)):
                    raise
        self._connection = Connection(_connect(self.socket_path, deadline), MAX_MESSAGE + _PREFIX_OCTETS)
        return self._exchange_once(headers, body, deadline)

    def _exchange_once(self, headers, body, deadline):
        try:
            return self._connection.request(headers, body, deadline)
        except BaseException:
            self.close()
            raise


def _request_headers(method, timeout_s, metadata):
    timeout_ms = max(1, min(int(timeout_s * 1000), _MAX_TIMEOUT_MS))
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
        "user-agent": "portcullis",
        "grpc-timeout": f"{timeout_ms}m",
        **metadata,
    }
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]


def _connect(path, deadline):
    """Return a connected socket.

    :raises GrpcError: UNAVAILABLE with the reason, DEADLINE_EXCEEDED when nobody accepts.
    """
    try:
        mode = Path(path).stat().st_mode
        if not stat.S_ISSOCK(mode):
            raise GrpcError("UNAVAILABLE", f"expected a socket at {path}, found a file of mode {stat.filemode(mode)}")
        return _connect_socket(path, deadline)
    except (OSError, ValueError) as error:
        raise GrpcError("UNAVAILABLE", f"cannot connect to {path}: {_reason(error)}") from error


def _connect_socket(path, deadline):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Not a blocking connect: its wait for a place in a full queue would not end with the deadline.
        connection.setblocking(False)
        code = connection.connect_ex(path)
        while code == errno.EAGAIN:
            if time.monotonic() >= deadline:
                raise GrpcError("DEADLINE_EXCEEDED", f"{path} accepts no connection, its queue is full")
            time.sleep(_CONNECT_POLL_S)
            code = connection.connect_ex(path)
        if code:
            raise OSError(code, os.strerror(code))
    except BaseException:
        connection.close()
        raise
    return connection


def _code_of(error):
    if isinstance(error, ResponseTooLarge):
        return "RESOURCE_EXHAUSTED"
    if isinstance(error, StreamReset):
        return _CODE_OF_RESET.get(error.error_name, "INTERNAL")
    return "UNAVAILABLE"


def _message_of(response):
    """Return the one message of a response.

    :raises GrpcError: what the server reports, or a response that is not gRPC.
    """
    status = response.headers.get(":status", "")
    trailers = response.trailers or response.headers
    if "grpc-status" not in trailers and status != "200":
        code_name = _CODE_OF_HTTP_STATUS.get(status, "UNKNOWN")
        raise GrpcError(code_name, f"expected HTTP status 200 and a gRPC status, found status {status!r}")
    _require_ok(trailers)
    body = response.body
    if len(body) < _PREFIX_OCTETS:
        raise GrpcError("INTERNAL", f"expected one message, found {len(body)} octets")
    compressed, length = struct.unpack(">BI", body[:_PREFIX_OCTETS])
    if compressed:
        raise GrpcError("INTERNAL", "expected a plain message, found a compressed one")
    if length != len(body) - _PREFIX_OCTETS:
        raise GrpcError("INTERNAL", f"expected one message of {length} octets, found {len(body) - _PREFIX_OCTETS}")
    return body[_PREFIX_OCTETS:]


def _require_ok(trailers):
    status = trailers.get("grpc-status", "")
    if status == "0":
        return
    known = status.isascii() and status.isdigit() and int(status) < len(CODE_NAMES)
    message = unquote_to_bytes(trailers.get("grpc-message", "")).decode("utf-8", "replace")
    raise GrpcError(CODE_NAMES[int(status)] if known else "UNKNOWN", message or f"gRPC status {status!r}, no message")


def _reason(error):
    """Return the system's words for an OSError; without the number, which helps nobody."""
    return getattr(error, "strerror", None) or str(error)
