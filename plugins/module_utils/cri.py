# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The few calls of the container runtime interface (CRI) that the collection needs, straight to the runtime's socket.

Message types are those of runtime.v1: https://github.com/kubernetes/cri-api/blob/v0.34.4/pkg/apis/runtime/v1/api.proto
"""

from __future__ import annotations

from ._grpc import CODE_NAMES, Channel, GrpcError
from ._protobuf import BOOL, INT64, STRING, STRING_MAP, UINT64, Field, ProtobufError, decode_message, encode_message

SOCKET_PATH = "/run/containerd/containerd.sock"
PULL_TIMEOUT_S = 600

CONTAINER_STATES = ("CONTAINER_CREATED", "CONTAINER_RUNNING", "CONTAINER_EXITED", "CONTAINER_UNKNOWN")

# containerd 1.5 and older know only v1alpha2, whose messages have the same numbers.
_VERSIONS = ("v1", "v1alpha2")

_IMAGE_SPEC = {1: Field("image", STRING)}
_CONTAINER_METADATA = {1: Field("name", STRING)}
_RUNTIME_CONDITION = {
    1: Field("type", STRING),
    2: Field("status", BOOL),
    3: Field("reason", STRING),
    4: Field("message", STRING),
}
_RUNTIME_STATUS = {1: Field("conditions", _RUNTIME_CONDITION, repeated=True)}
_CONTAINER = {
    1: Field("id", STRING),
    2: Field("pod_sandbox_id", STRING),
    3: Field("metadata", _CONTAINER_METADATA),
    4: Field("image", _IMAGE_SPEC),
    5: Field("image_ref", STRING),
    6: Field("state", INT64),
    7: Field("created_at_ns", INT64),
    8: Field("labels", STRING_MAP),
    9: Field("annotations", STRING_MAP),
}
_CONTAINER_STATUS = {
    1: Field("id", STRING),
    2: Field("metadata", _CONTAINER_METADATA),
    3: Field("state", INT64),
    4: Field("created_at_ns", INT64),
    5: Field("started_at_ns", INT64),
    6: Field("finished_at_ns", INT64),
    7: Field("exit_code", INT64),
    8: Field("image", _IMAGE_SPEC),
    9: Field("image_ref", STRING),
    10: Field("reason", STRING),
    11: Field("message", STRING),
    12: Field("labels", STRING_MAP),
    13: Field("annotations", STRING_MAP),
}
_IMAGE = {
    1: Field("id", STRING),
    2: Field("repo_tags", STRING, repeated=True),
    3: Field("repo_digests", STRING, repeated=True),
    4: Field("size_bytes", UINT64),
    8: Field("pinned", BOOL),
}

# method: (service, request, response)
_METHODS = {
    "Version": (
        "RuntimeService",
        {1: Field("version", STRING)},
        {
            2: Field("runtime_name", STRING),
            3: Field("runtime_version", STRING),
            4: Field("runtime_api_version", STRING),
        },
    ),
    "Status": (
        "RuntimeService",
        {1: Field("verbose", BOOL)},
        {1: Field("status", _RUNTIME_STATUS), 2: Field("info", STRING_MAP)},
    ),
    "ListContainers": ("RuntimeService", {}, {1: Field("containers", _CONTAINER, repeated=True)}),
    "ContainerStatus": (
        "RuntimeService",
        {1: Field("container_id", STRING), 2: Field("verbose", BOOL)},
        {1: Field("status", _CONTAINER_STATUS), 2: Field("info", STRING_MAP)},
    ),
    "StopContainer": ("RuntimeService", {1: Field("container_id", STRING), 2: Field("timeout", INT64)}, {}),
    "ListImages": ("ImageService", {}, {1: Field("images", _IMAGE, repeated=True)}),
    "ImageStatus": (
        "ImageService",
        {1: Field("image", _IMAGE_SPEC), 2: Field("verbose", BOOL)},
        {1: Field("image", _IMAGE), 2: Field("info", STRING_MAP)},
    ),
    "PullImage": ("ImageService", {1: Field("image", _IMAGE_SPEC)}, {1: Field("image_ref", STRING)}),
}


class CriError(Exception):
    """A call failed.

    code, code_name: the gRPC status; UNAVAILABLE also when the socket or the connection fails, DEADLINE_EXCEEDED
    when there was no answer in time, UNIMPLEMENTED when the daemon runs without CRI. message: the reason in words.
    """

    def __init__(self, code_name, message):
        super().__init__(f"{code_name}: {message}")
        self.code = CODE_NAMES.index(code_name)
        self.code_name = code_name
        self.message = message


class CriClient:
    """Calls to one container runtime; each raises CriError and nothing else."""

    def __init__(self, socket_path=SOCKET_PATH, timeout_s=10):
        """:param timeout_s: deadline of each call."""
        self._channel = Channel(socket_path)
        self._timeout_s = timeout_s
        self._version = _VERSIONS[0]

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.close()

    def close(self):
        """Close the connection; a later call opens one again."""
        self._channel.close()

    def version(self):
        """Return {runtime_name, runtime_version, runtime_api_version}."""
        return self._call("Version", {})

    def status(self, verbose=False):
        """Return {conditions: [{type, status, reason, message}], info: {key: text}}; info is empty unless verbose."""
        response = self._call("Status", {"verbose": verbose})
        return {"conditions": (response["status"] or {"conditions": []})["conditions"], "info": response["info"]}

    def containers(self):
        """Return [{id, name, pod_sandbox_id, image, image_ref, state, labels, annotations, created_at_ns}].

        Containers in every state, sandboxes not among them. state: one of CONTAINER_STATES.
        """
        return [_flattened(container) for container in self._call("ListContainers", {})["containers"]]

    def container_status(self, container_id, verbose=False):
        """Return {id, name, image, image_ref, state, reason, message, exit_code, labels, annotations, created_at_ns,
        started_at_ns, finished_at_ns, info}; with verbose, the JSON text info["info"] of containerd holds "pid".

        :raises CriError: NOT_FOUND for an unknown container.
        """
        response = self._call("ContainerStatus", {"container_id": container_id, "verbose": verbose})
        if response["status"] is None:
            raise CriError("INTERNAL", f"the runtime answered without a status of container {container_id!r}")
        return dict(_flattened(response["status"]), info=response["info"])

    def stop_container(self, container_id, grace_s):
        """Have a container end, after C(grace_s) seconds by force. What kubelet shall keep running, it starts again."""
        values = {"container_id": container_id, "timeout": grace_s}
        self._call("StopContainer", values, self._timeout_s + grace_s)

    def images(self):
        """Return [{id, repo_tags, repo_digests, size_bytes, pinned}]."""
        return self._call("ListImages", {})["images"]

    def image_status(self, ref, verbose=False):
        """Return the image of a name, digest or id as in images(); None when the runtime does not have it.

        With verbose it has info as well; the JSON text info["info"] of containerd holds "imageSpec".
        """
        response = self._call("ImageStatus", {"image": {"image": ref}, "verbose": verbose})
        return response["image"] and dict(response["image"], **({"info": response["info"]} if verbose else {}))

    def pull_image(self, ref, timeout_s=PULL_TIMEOUT_S):
        """Pull an image with the runtime's own registry configuration; return the reference of what was pulled."""
        return self._call("PullImage", {"image": {"image": ref}}, timeout_s)["image_ref"]

    def _call(self, method, values, timeout_s=None):
        service, request, response = _METHODS[method]
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            octets = self._unary(service, method, encode_message(values, request), timeout_s)
            return decode_message(octets, response)
        except GrpcError as error:
            raise CriError(error.code_name, _with_advice(error, self._channel.socket_path)) from error
        except UnicodeEncodeError as error:
            raise CriError("INVALID_ARGUMENT", f"expected text for {method}, got {values!r}") from error
        except ProtobufError as error:
            raise CriError("INTERNAL", f"the runtime's answer to {method} is damaged: {error}") from error

    def _unary(self, service, method, request, timeout_s):
        """Call with the version in use, or the first that the runtime knows."""
        try:
            return self._channel.unary(f"/runtime.{self._version}.{service}/{method}", request, timeout_s)
        except GrpcError as error:
            if not _is_unknown_service(error) or self._version == _VERSIONS[-1]:
                raise
            unknown = error
        try:
            octets = self._channel.unary(f"/runtime.{_VERSIONS[-1]}.{service}/{method}", request, timeout_s)
        except GrpcError as error:
            if _is_unknown_service(error):
                raise unknown from error
            raise
        self._version = _VERSIONS[-1]
        return octets


def _is_unknown_service(error):
    return error.code_name == "UNIMPLEMENTED" and error.message.startswith("unknown service")


def _with_advice(error, socket_path):
    if _is_unknown_service(error):
        return (
            f"{socket_path} answers, but serves no CRI ({error.message}): the cri plugin is disabled or failed to "
            "load; see `ctr plugins ls` and the daemon's log"
        )
    if error.code_name in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
        return f"{error.message}; check that the container runtime runs and listens on {socket_path}"
    return error.message


def _flattened(container):
    """Return a container with its name and image as text and its state by name."""
    state = container["state"]
    return dict(
        {key: value for key, value in container.items() if key != "metadata"},
        name=(container["metadata"] or {"name": ""})["name"],
        image=(container["image"] or {"image": ""})["image"],
        state=CONTAINER_STATES[state] if 0 <= state < len(CONTAINER_STATES) else CONTAINER_STATES[-1],
    )
