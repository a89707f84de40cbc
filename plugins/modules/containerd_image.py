#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: containerd_image
short_description: Make sure that an image is on a node with containerd
version_added: 0.1.0
description:
  - Asks CRI for the image. Where it is missing, imports the archive if one is given, else pulls the image through CRI,
    with the registry configuration of the node.
  - An image that the node's processor cannot run is a failure, whether it was there before or not; what the module
    itself brought is taken away again. An image that was there before is never replaced or removed.
options:
  name:
    description:
      - Reference of the image, with a tag or a digest. A name without a registry is one of C(docker.io), a name without
        tag and digest has the tag C(latest).
      - Where it has both, the digest alone counts, as with CRI.
      - An image ID is refused, since neither a registry nor an archive could provide the image by it.
    type: str
    required: true
  archive:
    description:
      - Archive on the machine that runs Ansible that holds the image under this name, or with this digest. It is in the
        OCI layout or from C(docker save), plain or compressed with gzip, bzip2 or xz. One for several platforms must
        hold the node's.
      - It is copied to the node only where the image is missing, and removed after the import. Other images in it are
        not imported.
      - Without it the node pulls the image.
      - Archives of C(docker save) before Docker 25 hold no digests.
    type: path
  pinned:
    description:
      - Whether the image is pinned, so that kubelet never removes it to free disk space.
      - Without it a pin stays as it is.
      - V(false) takes the pins off all names of the image. containerd pins its own sandbox image again when it starts.
      - Needs containerd 1.7, or a late release of 1.6.
    type: bool
  timeout:
    description: Seconds for the pull or the import, from 1.
    type: int
    default: 600
  _copied_archive:
    description: Where the half of the module that runs on the controller put the archive. Not for use in a task.
    type: path
  _only_look:
    description: Set by the half of the module that runs on the controller. Not for use in a task.
    type: bool
    default: false
extends_documentation_fragment:
  - portcullis.fleet.attributes
attributes:
  check_mode:
    support: full
    details: Says whether the image is missing, and whether an archive can provide it; whether a pull would succeed is
      only known in a real run.
  diff_mode:
    support: none
    details: An image has no content that could be shown.
  idempotent:
    support: full
author:
  - The Portcullis developers (@portcullis)
"""

EXAMPLES = r"""
- name: Have busybox pulled
  portcullis.fleet.containerd_image:
    name: docker.io/library/busybox:1.33
  become: true

- name: Have exactly this image pulled, and kept when kubelet frees disk space
  portcullis.fleet.containerd_image:
    name: docker.io/library/busybox@sha256:62ffc2ed7554e4c6d360bce40bbcf196573dd27c4ce080641a2c59867e732dee
    pinned: true
  become: true

- name: Provide busybox where nodes reach no registry
  portcullis.fleet.containerd_image:
    name: docker.io/library/busybox:1.33
    archive: images/busybox-1.33.tar
  become: true
"""

RETURN = r"""
name:
  description: The full reference, by which CRI knows the image.
  returned: always
  type: str
  sample: docker.io/library/busybox:1.33
image_id:
  description: Digest of the image's configuration. Empty where the image is missing in check mode.
  returned: success
  type: str
  sample: sha256:3d2b2ba0a1bc0e5b7b8a9bd7d6e0ad0f4e6a1a8a5fca1b6d6a7a3c0f2d9f4e11
digest:
  description: Digest of the manifest, or of the index of an image for several platforms. Empty where the image is
    missing in check mode.
  returned: success
  type: str
  sample: sha256:62ffc2ed7554e4c6d360bce40bbcf196573dd27c4ce080641a2c59867e732dee
architecture:
  description: For what the image is. Empty where it is missing in check mode, or where containerd does not say.
  returned: success
  type: str
  sample: linux/amd64
node_architecture:
  description: What the node is.
  returned: success
  type: str
  sample: linux/amd64
pinned:
  description: Whether CRI reports the image as pinned. In check mode, whether it would.
  returned: success
  type: bool
  sample: true
source:
  description: Where the image came from.
  returned: success
  type: str
  choices: [node, registry, archive]
  sample: node
"""

import glob
import os
import time

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import containerd_images, image_presence
from ..module_utils.containerd_images import ImageError
from ..module_utils.containerd_node import daemon_socket
from ..module_utils.cri import CriClient, CriError
from ..module_utils.image_reference import parse_reference

# An archive that nobody has written to for so long is no longer being copied.
ABANDONED_S = 6 * 3600
ARGUMENT_SPEC = {
    "name": {"type": "str", "required": True},
    "archive": {"type": "path"},
    "pinned": {"type": "bool"},
    "timeout": {"type": "int", "default": 600},
    # Given by the action plugin only: where it put the archive on the node, and whether one can be had at all.
    "_copied_archive": {"type": "path"},
    "_only_look": {"type": "bool", "default": False},
}


def find(address, reference, pinned):
    """Return the Image that is there, None where it is missing.

    :raises ImageError: the node cannot run it, or its containerd cannot pin it.
    """
    try:
        with CriClient(address) as client:
            image = image_presence.find_image(client, reference.name)
            wants_pin = pinned and not (image and image.pinned)
            version = client.version()["runtime_version"] if wants_pin else ""
    except CriError as error:
        raise ImageError(f"cannot look for {reference.name}: {error}") from error
    problem = image and image_presence.complain_platform(image, image_presence.this_node())
    if problem:
        raise ImageError(
            f"{reference.name} is on the node, but {problem}. It was left as it is, something may use it: "
            f"remove it with `crictl rmi {reference.name}`, or name another image"
        )
    problem = containerd_images.complain_pins(version)
    if problem:
        raise ImageError(f"{reference.name} cannot be pinned: {problem}; nothing was changed")
    return image


def run(params, reference, check_mode):
    """Return the module's result.

    :raises ImageError: the image is not there as wanted.
    """
    address, name, pinned = daemon_socket(), reference.name, params["pinned"]
    result = {"name": name, "source": "node", "node_architecture": str(image_presence.this_node())}
    image = find(address, reference, pinned)
    changed = image is None
    if image is None:
        result["source"] = "archive" if params["archive"] else "registry"
        if check_mode or params["_only_look"]:
            nothing = {"image_id": "", "digest": "", "architecture": "", "pinned": bool(pinned)}
            return {**result, **nothing, "changed": True}
        image = containerd_images.provide(address, reference, params["_copied_archive"], params["timeout"])
    shown = image.pinned
    if pinned not in (None, image.pinned):
        changed, shown = True, pinned
        if not check_mode:
            image = containerd_images.set_pin(address, image, name, pinned)
    return {
        **result,
        "changed": changed,
        "image_id": image.id,
        "digest": containerd_images.read_digest(address, image, name),
        "architecture": str(image.platform or ""),
        "pinned": shown,
    }


def main():
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    copied = module.params["_copied_archive"]
    name = ""
    try:
        reference = parse_reference(module.params["name"])
        name = reference.name
        if module.params["timeout"] < 1:
            raise ValueError(f"timeout is {module.params['timeout']}: give seconds from 1")
        result = run(module.params, reference, module.check_mode)
    except (ImageError, ValueError) as error:
        module.fail_json(msg=str(error), name=name)
    finally:
        if copied:
            remove_archives(copied)
    module.exit_json(**result)


def remove_archives(copied):
    """Remove the archive, and those of runs whose connection was lost while they copied it."""
    parent = os.path.dirname(os.path.dirname(copied))
    others = glob.glob(os.path.join(glob.escape(parent), "*", glob.escape(os.path.basename(copied))))
    for path in {copied, *others}:
        try:
            if path == copied or os.stat(path).st_mtime < time.time() - ABANDONED_S:
                os.unlink(path)
        except FileNotFoundError:
            continue


if __name__ == "__main__":
    main()
