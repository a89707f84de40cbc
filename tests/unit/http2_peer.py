# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server on a Unix socket that speaks HTTP/2 as a test's script tells it to, or anything else."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from ansible_collections.portcullis.fleet.plugins.module_utils._hpack import Decoder, encode_headers

DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
PREFACE_OCTETS = 24
DEADLINE_S = 20


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def headers_of(fields: dict[str, str]) -> bytes:
    return encode_headers([(name.encode(), value.encode()) for name, value in fields.items()])


def grpc_message(octets: bytes) -> bytes:
    return struct.pack(">BI", 0, len(octets)) + octets


class Peer:
    """One accepted connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.decoder = Decoder()
        self.received: list[tuple[int, int, int, bytes]] = []

    def send(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        self.connection.sendall(frame(kind, flags, stream, payload))

    def read(self, count: int) -> bytes:
        """Return exactly so many octets; EOFError when the client closes before."""
        octets = b""
        while len(octets) < count:
            part = self.connection.recv(count - len(octets))
            if not part:
                raise EOFError("the client closed the connection")
            octets += part
        return octets

    def read_frame(self) -> tuple[int, int, int, bytes]:
        """Return (kind, flags, stream, payload) and keep it in `received`."""
        header = self.read(9)
        item = (
            header[3],
            header[4],
            int.from_bytes(header[5:], "big"),
            self.read(int.from_bytes(header[:3], "big")),
        )
        self.received.append(item)
        return item

    def read_until(self, kind: int, stream: int | None = None) -> tuple[int, int, int, bytes]:
        while True:
            item = self.read_frame()
            if item[0] == kind and stream in (None, item[2]):
                return item

    def greet(self, settings: bytes = b"") -> None:
        self.read(PREFACE_OCTETS)
        self.send(SETTINGS, 0, 0, settings)

    def read_request(self) -> tuple[int, dict[str, str], bytes]:
        """Return (stream, headers, message) of the next request."""
        _, _, stream, block = self.read_until(HEADERS)
        headers = {name.decode(): value.decode() for name, value in self.decoder.decode(block)}
        return stream, headers, self.read_until(DATA, stream)[3][5:]

    def respond(self, stream: int, message: bytes) -> None:
        """Send a whole successful gRPC response."""
        self.send(HEADERS, END_HEADERS, stream, headers_of({":status": "200", "content-type": "application/grpc"}))
        body = grpc_message(message)
        for start in range(0, len(body), 16384):
            self.send(DATA, 0, stream, body[start : start + 16384])
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, headers_of({"grpc-status": "0"}))

    def refuse(self, stream: int, status: str, message: str) -> None:
        """Send a trailers-only gRPC error."""
        fields = {
            ":status": "200",
            "content-type": "application/grpc",
            "grpc-status": status,
            "grpc-message": message,
        }
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, headers_of(fields))


@contextlib.contextmanager
def serving(path: Path, script: Callable[[Peer], None]) -> Iterator[list[BaseException]]:
    """Run a script for each connection to a socket, one after the other; yield the errors that scripts raised.

    A client that hangs up is no error of a script.
    """
    errors: list[BaseException] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=_accept, args=(listener, script, errors), daemon=True)
        thread.start()
        try:
            yield errors
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(DEADLINE_S)
            path.unlink()
    assert not thread.is_alive(), "the script of the test's server did not end"


def _accept(listener: socket.socket, script: Callable[[Peer], None], errors: list[BaseException]) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.settimeout(DEADLINE_S)
            try:
                script(Peer(connection))
            except (EOFError, ConnectionError):
                continue
            except Exception as error:
                errors.append(error)
