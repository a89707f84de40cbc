# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""containerd's own records of images, which CRI does not show: what a name stands for, and its labels.

https://github.com/containerd/containerd/blob/api/v1.8.0/api/services/images/v1/images.proto
"""

from __future__ import annotations

from ._grpc import Channel, GrpcError
from ._protobuf import BOOL, INT64, STRING, STRING_MAP, Field, ProtobufError, decode_message, encode_message

# Where CRI keeps its images.
NAMESPACE = "k8s.io"
# CRI reports an image as pinned, and kubelet never collects it, when a name of it has this label with this value.
PINNED_LABEL, PINNED_VALUE = "io.cri-containerd.pinned", "pinned"

_SERVICE = "/containerd.services.images.v1.Images/"
_DESCRIPTOR = {1: Field("media_type", STRING), 2: Field("digest", STRING), 3: Field("size", INT64)}
_RECORD = {1: Field("name", STRING), 2: Field("labels", STRING_MAP), 3: Field("target", _DESCRIPTOR)}
_FIELD_MASK = {1: Field("paths", STRING, repeated=True)}
_LIST_REQUEST = {1: Field("filters", STRING, repeated=True)}
_LIST_RESPONSE = {1: Field("images", _RECORD, repeated=True)}
_UPDATE_REQUEST = {1: Field("image", _RECORD), 2: Field("update_mask", _FIELD_MASK)}
_DELETE_REQUEST = {1: Field("name", STRING), 2: Field("sync", BOOL)}


class StoreError(Exception):
    """A call failed; the text says why."""


class ImageStore:
    """The records in the namespace of Kubernetes; each call raises StoreError and nothing else."""

    def __init__(self, socket_path, timeout_s=10):
        """:param timeout_s: deadline of each call."""
        self._channel = Channel(socket_path)
        self._timeout_s = timeout_s

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self._channel.close()

    def records(self, names=None):
        """Return C({name: (digest, labels)}) of the names that there are, or of those among C(names)."""
        filters = [f'name=="{name}"' for name in names or ()]
        found = self._call("List", {"filters": filters}, _LIST_REQUEST, _LIST_RESPONSE)["images"]
        return {record["name"]: ((record["target"] or {"digest": ""})["digest"], record["labels"]) for record in found}

    def set_label(self, name, label, value):
        """Set one label of a name; an empty value takes it away."""
        # The mask keeps the target as it is; but 1.7 to 2.4 end with a panic when a request has none (imageFromProto).
        image = {"name": name, "labels": {label: value}, "target": {}}
        self._call("Update", {"image": image, "update_mask": {"paths": [f"labels.{label}"]}}, _UPDATE_REQUEST, {})

    def remove(self, name):
        """Remove a name, and what only it has kept, before the call returns."""
        self._call("Delete", {"name": name, "sync": True}, _DELETE_REQUEST, {})

    def _call(self, method, values, request, response):
        metadata = {"containerd-namespace": NAMESPACE}
        try:
            message = encode_message(values, request)
            return decode_message(self._channel.unary(_SERVICE + method, message, self._timeout_s, metadata), response)
        except (GrpcError, ProtobufError) as error:
            raise StoreError(f"containerd's images cannot be read or changed ({method}): {error}") from error
