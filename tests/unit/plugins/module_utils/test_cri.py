# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CRI client against a server that misbehaves in every way; the real daemon is in test_cri_containerd.py."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import tempfile
import time
from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils import cri
from ansible_collections.portcullis.fleet.plugins.module_utils._protobuf import encode_message
from ansible_collections.portcullis.fleet.plugins.module_utils.cri import CriClient, CriError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.http2_peer import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Peer,
    frame,
    grpc_message,
    headers_of,
    serving,
)

VERSION = {"runtime_name": "containerd", "runtime_version": "2.0.11", "runtime_api_version": "v1"}
OK = {":status": "200", "content-type": "application/grpc"}


def answer(method, values):
    return encode_message(values, cri._METHODS[method][2])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cri.sock"


@contextlib.contextmanager
def connected(path, script, timeout_s=5):
    with serving(path, script) as errors, CriClient(path, timeout_s=timeout_s) as client:
        yield client
    assert errors == []


def failure(path, script, timeout_s=5):
    """Return the CriError of a call to a server that runs a script."""
    with connected(path, script, timeout_s) as client, pytest.raises(CriError) as caught:
        client.version()
    return caught.value


def test_calls_carry_what_a_grpc_server_wants(path):
    """Method, metadata, deadline and message arrive; several calls share a connection."""
    requests = []

    def script(peer):
        peer.greet()
        for _ in range(2):
            stream, headers, message = peer.read_request()
            requests.append((stream, headers, message))
            peer.respond(stream, answer("ImageStatus", {"image": {"id": "sha256:1", "pinned": True}}))

    with connected(path, script, timeout_s=2.5) as client:
        image = client.image_status("busybox:1.33")
        client.image_status("busybox:1.34")

    assert image == {"id": "sha256:1", "repo_tags": [], "repo_digests": [], "size_bytes": 0, "pinned": True}
    assert [stream for stream, _, _ in requests] == [1, 3]
    assert requests[0][1] == {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/runtime.v1.ImageService/ImageStatus",
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
        "user-agent": "portcullis",
        "grpc-timeout": "2500m",
    }
    assert requests[0][2] == b"\x0a\x0e\x0a\x0cbusybox:1.33"


def test_absent_image_is_none(path):
    """A runtime answers with an empty message for an image that it does not have."""

    def script(peer):
        peer.greet()
        peer.respond(peer.read_request()[0], b"")

    with connected(path, script) as client:
        assert client.image_status("busybox:1.33") is None


def test_containers_have_state_name_and_image_as_text(path):
    """Nested messages become plain keys; an unknown state is CONTAINER_UNKNOWN."""
    container = {
        "id": "c1",
        "pod_sandbox_id": "p1",
        "metadata": {"name": "app"},
        "image": {"image": "busybox:1.33"},
        "image_ref": "sha256:1",
        "state": 1,
        "created_at_ns": 5,
        "labels": {"a": "b"},
    }

    def script(peer):
        peer.greet()
        stream = peer.read_request()[0]
        peer.respond(stream, answer("ListContainers", {"containers": [container, {"id": "c2", "state": 9}]}))

    with connected(path, script) as client:
        first, second = client.containers()

    assert first == {
        "id": "c1",
        "name": "app",
        "pod_sandbox_id": "p1",
        "image": "busybox:1.33",
        "image_ref": "sha256:1",
        "state": "CONTAINER_RUNNING",
        "labels": {"a": "b"},
        "annotations": {},
        "created_at_ns": 5,
    }
    assert (second["name"], second["image"], second["state"]) == ("", "", "CONTAINER_UNKNOWN")


def respond_in_pieces(peer, stream):
    """Padding, priority, CONTINUATION, and every frame that may come between."""
    block = headers_of(OK)
    peer.send(PING, 0, 0, b"12345678")
    peer.send(HEADERS, PADDED | PRIORITY, stream, b"\x03" + b"\0" * 5 + block[:4] + b"\0" * 3)
    peer.send(CONTINUATION, 0, stream, block[4:9])
    peer.send(CONTINUATION, END_HEADERS, stream, block[9:])
    peer.send(SETTINGS, 0, 0, struct.pack(">HI", 4, 100000))
    peer.send(0xBE, 0xFF, stream, b"an unknown frame type")
    body = grpc_message(answer("Version", VERSION))
    peer.send(DATA, PADDED, stream, b"\x02" + body[:7] + b"\0\0")
    peer.send(WINDOW_UPDATE, 0, 0, struct.pack(">I", 100))
    peer.send(WINDOW_UPDATE, 0, stream, struct.pack(">I", 100))
    peer.send(DATA, 0, stream, b"")
    peer.send(PING, ACK, 0, b"unasked!")
    peer.send(DATA, 0, stream, body[7:])
    peer.send(HEADERS, END_HEADERS | END_STREAM, stream, headers_of({"grpc-status": "0"}))


def test_understands_every_frame_that_may_come(path):
    """A response in many pieces is whole in the end; SETTINGS and PING are acknowledged."""
    received = []

    def script(peer):
        peer.greet()
        respond_in_pieces(peer, peer.read_request()[0])
        peer.read_until(PING)
        peer.read_until(SETTINGS)
        received.extend(peer.received)

    with connected(path, script) as client:
        assert client.version() == VERSION
    assert (PING, ACK, 0, b"12345678") in received
    assert received.count((SETTINGS, ACK, 0, b"")) == 2


def test_large_response_under_flow_control(path):
    """A server that keeps to the windows can send all of 5 MiB: the client reports what it has read."""
    images = [{"id": f"sha256:{number:064}", "repo_tags": ["t" * 200] * 20} for number in range(1200)]
    windows = {}

    def script(peer):
        peer.greet()
        _, _, _, client_settings = peer.read_until(SETTINGS)
        windows[1] = dict(struct.iter_unpack(">HI", client_settings))[4]
        windows[0] = 65535 + int.from_bytes(peer.read_until(WINDOW_UPDATE, 0)[3], "big")
        stream = peer.read_request()[0]
        peer.send(HEADERS, END_HEADERS, stream, headers_of(OK))
        body = grpc_message(answer("ListImages", {"images": images}))
        while body:
            size = min(16384, windows[0], windows[1], len(body))
            if not size:
                kind, _, number, payload = peer.read_frame()
                assert kind in (WINDOW_UPDATE, SETTINGS)
                windows[number] += int.from_bytes(payload, "big") if kind == WINDOW_UPDATE else 0
                continue
            peer.send(DATA, 0, stream, body[:size])
            windows[0] -= size
            windows[1] -= size
            body = body[size:]
        peer.send(HEADERS, END_HEADERS | END_STREAM, stream, headers_of({"grpc-status": "0"}))

    with connected(path, script, timeout_s=30) as client:
        assert [image["id"] for image in client.images()] == [image["id"] for image in images]


def test_request_waits_for_the_window_of_the_server(path):
    """A server may allow nothing at first."""

    def script(peer):
        peer.greet(struct.pack(">HI", 4, 0))
        stream = peer.read_until(HEADERS)[2]
        peer.connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            peer.read_until(DATA)
        peer.connection.settimeout(5)
        peer.send(WINDOW_UPDATE, 0, stream, struct.pack(">I", 10))
        peer.read_until(DATA)
        peer.respond(stream, answer("Version", VERSION))

    with connected(path, script) as client:
        assert client.version() == VERSION


def test_reconnects_when_the_connection_of_an_earlier_call_died(path):
    """A restart of the daemon between two calls is not an error of the second."""

    def script(peer):
        peer.greet()
        peer.respond(peer.read_request()[0], answer("Version", VERSION))

    with connected(path, script) as client:
        assert [client.version(), client.version(), client.version()] == [VERSION] * 3


def test_a_refusal_is_not_repeated(path):
    """Only a connection that died is replaced: an answer of the server, a reset too, is one."""
    connections = []

    def script(peer):
        connections.append(peer)
        peer.greet()
        peer.respond(peer.read_request()[0], answer("Version", VERSION))
        peer.send(RST_STREAM, 0, peer.read_request()[0], struct.pack(">I", 7))
        hang(peer)

    with connected(path, script) as client:
        client.version()
        with pytest.raises(CriError, match="REFUSED_STREAM"):
            client.version()
    assert len(connections) == 1


def test_goaway_lets_the_running_call_finish(path):
    """A graceful GOAWAY does not harm the call in flight; the next one opens a new connection."""

    def script(peer):
        peer.greet()
        stream = peer.read_request()[0]
        peer.send(GOAWAY, 0, 0, struct.pack(">II", 2**31 - 1, 0))
        peer.send(GOAWAY, 0, 0, struct.pack(">II", stream, 0))
        peer.respond(stream, answer("Version", VERSION))

    with connected(path, script) as client:
        assert [client.version(), client.version()] == [VERSION] * 2


def test_falls_back_to_v1alpha2_once(path):
    """containerd 1.5 knows only v1alpha2; the client remembers."""
    paths = []

    def script(peer):
        peer.greet()
        for _ in range(3):
            stream, headers, _ = peer.read_request()
            paths.append(headers[":path"])
            if "v1alpha2" in headers[":path"]:
                peer.respond(stream, answer("Version", VERSION))
            else:
                peer.refuse(stream, "12", "unknown service runtime.v1.RuntimeService")

    with connected(path, script) as client:
        assert [client.version(), client.version()] == [VERSION] * 2
    assert [item.split(".")[1] for item in paths] == ["v1", "v1alpha2", "v1alpha2"]


def test_daemon_without_cri_is_named(path):
    """A daemon that is up while its cri plugin is not: the state in which nothing else says so."""

    def script(peer):
        peer.greet()
        while True:
            stream, headers, _ = peer.read_request()
            peer.refuse(stream, "12", "unknown service " + headers[":path"].split("/")[1])

    error = failure(path, script)

    assert (error.code, error.code_name) == (12, "UNIMPLEMENTED")
    assert "serves no CRI (unknown service runtime.v1.RuntimeService)" in error.message
    assert "ctr plugins ls" in error.message


def responses(*frames):
    """Return a script that answers one request with frames of stream 1."""

    def script(peer: Peer) -> None:
        peer.greet()
        peer.read_request()
        for kind, flags, payload in frames:
            peer.send(kind, flags, 0 if kind in (SETTINGS, PING, GOAWAY) else 1, payload)
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                peer.read_frame()

    return script


WHOLE = END_HEADERS | END_STREAM
START = (HEADERS, END_HEADERS, headers_of(OK))
END = (HEADERS, WHOLE, headers_of({"grpc-status": "0"}))


@pytest.mark.parametrize(
    ("script", "code_name", "words"),
    [
        pytest.param(
            responses((HEADERS, WHOLE, headers_of({**OK, "grpc-status": "5", "grpc-message": "caf%C3%A9 %25 %zz"}))),
            "NOT_FOUND",
            "café % %zz",
            id="trailers-only-with-percent-encoding",
        ),
        pytest.param(
            responses(START, (HEADERS, WHOLE, headers_of({"grpc-status": "14", "grpc-message": "not initialized"}))),
            "UNAVAILABLE",
            "not initialized",
            id="error-after-headers",
        ),
        pytest.param(
            responses((HEADERS, WHOLE, headers_of({**OK, "grpc-status": "99"}))),
            "UNKNOWN",
            "gRPC status '99'",
            id="unknown-status",
        ),
        pytest.param(
            responses((HEADERS, WHOLE, headers_of({**OK, "grpc-status": "\u0661"}))),
            "UNKNOWN",
            "gRPC status",
            id="status-of-other-digits",
        ),
        pytest.param(responses(START, (DATA, END_STREAM, b"")), "UNKNOWN", "no message", id="no-trailers"),
        pytest.param(
            responses((HEADERS, WHOLE, headers_of({":status": "503"}))), "UNAVAILABLE", "status '503'", id="http-503"
        ),
        pytest.param(
            responses((HEADERS, WHOLE, headers_of({":status": "418"}))), "UNKNOWN", "status '418'", id="http-418"
        ),
        pytest.param(responses(START, END), "INTERNAL", "expected one message, found 0 octets", id="no-message"),
        pytest.param(
            responses(START, (DATA, 0, b"\x01\0\0\0\x02ab"), END), "INTERNAL", "compressed", id="compressed-message"
        ),
        pytest.param(
            responses(START, (DATA, 0, grpc_message(b"") * 2), END), "INTERNAL", "one message of 0", id="two-messages"
        ),
        pytest.param(
            responses(START, (DATA, 0, b"\0\0\0\0\x09ab"), END), "INTERNAL", "one message of 9", id="short-message"
        ),
        pytest.param(
            responses(START, (DATA, 0, grpc_message(b"\x12\x09ab")), END), "INTERNAL", "damaged", id="not-protobuf"
        ),
        pytest.param(
            responses((RST_STREAM, 0, struct.pack(">I", 7))), "UNAVAILABLE", "REFUSED_STREAM", id="refused-stream"
        ),
        pytest.param(
            responses(START, (RST_STREAM, 0, struct.pack(">I", 8))), "CANCELLED", "CANCEL", id="cancelled-stream"
        ),
        pytest.param(
            responses((RST_STREAM, 0, struct.pack(">I", 77))), "INTERNAL", "error 77", id="reset-with-unknown-code"
        ),
        pytest.param(
            responses((RST_STREAM, 0, b"\0")), "UNAVAILABLE", "RST_STREAM frame that is too", id="short-reset"
        ),
        pytest.param(
            responses((GOAWAY, 0, struct.pack(">II", 0, 11) + b"too_many_pings")),
            "UNAVAILABLE",
            "ENHANCE_YOUR_CALM 'too_many_pings'",
            id="goaway-before-this-call",
        ),
        pytest.param(responses((GOAWAY, 0, b"")), "UNAVAILABLE", "GOAWAY frame that is too short", id="short-goaway"),
        pytest.param(responses((PING, 0, b"1")), "UNAVAILABLE", "PING of 8 octets, found 1", id="short-ping"),
        pytest.param(responses((SETTINGS, 0, b"1")), "UNAVAILABLE", "damaged settings", id="short-settings"),
        pytest.param(responses((PUSH_PROMISE, 0, b"")), "UNAVAILABLE", "does not allow", id="push"),
        pytest.param(responses((CONTINUATION, 0, b"")), "UNAVAILABLE", "does not allow", id="stray-continuation"),
        pytest.param(
            responses((HEADERS, 0, b""), (DATA, 0, b"")), "UNAVAILABLE", "interrupted", id="interrupted-block"
        ),
        pytest.param(
            responses((HEADERS, 0, b""), *[(CONTINUATION, 0, b"\0" * 16000)] * 20),
            "UNAVAILABLE",
            "header block of at most",
            id="endless-headers",
        ),
        pytest.param(responses((HEADERS, WHOLE, b"\xff")), "UNAVAILABLE", "damaged header block", id="bad-hpack"),
        pytest.param(responses((DATA, 0, b"a")), "UNAVAILABLE", "before the response headers", id="data-first"),
        pytest.param(responses(START, (DATA, PADDED, b"\x05a")), "UNAVAILABLE", "more padding", id="bad-padding"),
        pytest.param(responses((0x77, 0, b"\0" * 20000)), "UNAVAILABLE", "at most 16384", id="frame-too-large"),
        pytest.param(
            responses(START, *[(DATA, 0, b"\0" * 16384)] * 1025), "RESOURCE_EXHAUSTED", "at most", id="body-too-large"
        ),
    ],
)
def test_failures_of_the_server(path, script, code_name, words):
    """Whatever the server says or breaks is a CriError with its code and reason."""
    error = failure(path, script)

    assert error.code_name == code_name
    assert words in error.message
    assert str(error) == f"{code_name}: {error.message}"


@pytest.mark.parametrize(
    ("octets", "words"),
    [
        pytest.param(b"", "closed the connection", id="closes-at-once"),
        pytest.param(b"\0\0", "closed the connection", id="dies-in-the-first-frame"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak HTTP/2", id="http-1.1"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP/2", id="another-protocol"),
        pytest.param(frame(SETTINGS, ACK, 0, b""), "does not speak HTTP/2", id="acknowledgement-first"),
        pytest.param(frame(SETTINGS, 0, 0, b"") + b"\0\0", "closed the connection", id="dies-in-the-second-frame"),
    ],
)
def test_what_does_not_speak_http2(path, octets, words):
    """The first octets tell a wrong server from a dying one."""

    def script(peer):
        peer.connection.sendall(octets)
        peer.connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                peer.read(1)

    error = failure(path, script)

    assert error.code_name == "UNAVAILABLE"
    assert words in error.message
    assert f"listens on {path}" in error.message


def hang(peer):
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            peer.read_frame()


def hang_after_greeting(peer):
    peer.greet()
    hang(peer)


def trickle(peer):
    peer.greet()
    stream = peer.read_request()[0]
    octets = frame(HEADERS, END_HEADERS, stream, headers_of(OK)) * 100
    for position in range(len(octets)):
        peer.connection.sendall(octets[position : position + 1])
        time.sleep(0.01)


def ping_without_reading(peer):
    peer.greet()
    while True:
        peer.send(PING, 0, 0, b"12345678")


@pytest.mark.parametrize("script", [hang, hang_after_greeting, trickle, ping_without_reading])
def test_deadline_holds(path, script):
    """Silence, a trickle or a flood: the call ends at its deadline."""
    started = time.monotonic()

    error = failure(path, script, timeout_s=0.3)

    assert time.monotonic() - started < 2
    assert (error.code, error.code_name) == (4, "DEADLINE_EXCEEDED")
    assert "did not answer /runtime.v1.RuntimeService/Version within 0.3 s" in error.message


def test_pull_has_a_deadline_of_its_own(path):
    """A pull may take longer than other calls, and says so to the server."""
    timeouts = []

    def script(peer):
        peer.greet()
        stream, headers, _ = peer.read_request()
        timeouts.append(headers["grpc-timeout"])
        peer.respond(stream, answer("PullImage", {"image_ref": "sha256:1"}))

    with connected(path, script, timeout_s=1) as client:
        assert client.pull_image("busybox:1.33", timeout_s=60) == "sha256:1"
    assert timeouts == ["60000m"]


def unconnectable(path):
    with pytest.raises(CriError) as caught, CriClient(path, timeout_s=0.3) as client:
        client.version()
    return caught.value


def test_absent_socket(path):
    error = unconnectable(path)

    assert error.code_name == "UNAVAILABLE"
    assert "No such file or directory" in error.message


def test_left_over_socket(path):
    """A socket that nobody listens on: the daemon died without removing it."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))

    assert "Connection refused" in unconnectable(path).message


@pytest.mark.parametrize("kind", ["file", "directory", "datagram"])
def test_not_a_stream_socket(path, kind):
    """The path names something else."""
    if kind == "file":
        path.write_text("")
    elif kind == "directory":
        path.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        if kind == "datagram":
            other.bind(str(path))

        error = unconnectable(path)

    assert error.code_name == "UNAVAILABLE"
    assert ("wrong type for socket" if kind == "datagram" else "expected a socket at") in error.message


@pytest.mark.parametrize("name", ["/nonexistent/" + "x" * 300, "a\0b", "", "/dev/null/x", "\udcff"])
def test_impossible_paths(name):
    assert unconnectable(name).code_name == "UNAVAILABLE"


def test_path_too_long_for_a_socket(tmp_path, monkeypatch):
    """A socket can exist at a path that connect() does not take."""
    directory = tmp_path / ("d" * 100)
    directory.mkdir()
    monkeypatch.chdir(directory)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("cri.sock")
        listener.listen()

        assert "too long" in unconnectable(directory / "cri.sock").message


def test_server_that_accepts_nothing(path):
    """A daemon that hangs with a full queue ends at the deadline, too."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen(0)
        waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
        waiting.connect(str(path))

        error = unconnectable(path)

    assert error.code_name == "DEADLINE_EXCEEDED"
    assert "its queue is full" in error.message


@pytest.mark.parametrize("ref", ["x" * 20000, "bad\udcff"])
def test_request_that_cannot_be_sent(path, ref):
    """A reference that no registry could have is the caller's error."""
    with connected(path, hang_after_greeting) as client, pytest.raises(CriError) as caught:
        client.image_status(ref)

    assert (caught.value.code, caught.value.code_name) == (3, "INVALID_ARGUMENT")


FRAMES = st.builds(
    frame, st.integers(0, 10), st.integers(0, 255), st.sampled_from([0, 1, 2, 3]), st.binary(max_size=40)
)
HEADERS_OF_RESPONSES = st.dictionaries(
    st.sampled_from([":status", "content-type", "grpc-status", "grpc-message"]), st.text(max_size=5), max_size=4
)
RESPONSES = st.builds(
    lambda headers, body, trailers: (
        frame(HEADERS, END_HEADERS, 1, headers_of(headers))
        + frame(DATA, 0, 1, body)
        + frame(HEADERS, WHOLE, 1, headers_of(trailers))
    ),
    HEADERS_OF_RESPONSES,
    st.binary(max_size=40) | st.binary(max_size=40).map(grpc_message),
    HEADERS_OF_RESPONSES | st.just({"grpc-status": "0"}),
)
GREETING = frame(SETTINGS, 0, 0, b"")
ANSWERS = (
    st.binary(max_size=200)
    | st.binary(max_size=200).map(GREETING.__add__)
    | st.lists(FRAMES | RESPONSES, max_size=8).map(lambda items: GREETING + b"".join(items))
)


def test_any_octets_give_a_result_or_a_crierror():
    """No server, however broken, makes a call raise anything but CriError or last beyond its deadline."""
    octets = b""

    def script(peer):
        peer.connection.sendall(octets)
        peer.connection.shutdown(socket.SHUT_WR)
        hang(peer)

    @settings(max_examples=400, deadline=2000)
    @given(ANSWERS, st.sampled_from(["version", "status", "containers", "images"]))
    @example(b"", "version")
    def check(answer_octets, method):
        nonlocal octets
        octets = answer_octets
        with CriClient(path, timeout_s=1) as client:
            try:
                getattr(client, method)()
            except CriError as error:
                assert 0 < error.code <= 16
                assert error.message

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "cri.sock"
        with serving(path, script) as errors:
            check()
        assert errors == []


def test_nothing_stays_open(path):
    """A client closes its socket, also after a failure."""
    before = len(os.listdir("/proc/self/fd"))

    unconnectable(path)
    failure(path, responses((HEADERS, WHOLE, b"\xff")))

    assert len(os.listdir("/proc/self/fd")) == before
