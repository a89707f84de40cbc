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
author:
  - The Portcullis developers (@portcullis)
options:
  name:
    description:
      - Reference of the image, with a tag or a digest. A name without a registry is one of C(docker.io), a name without
        tag and digest has the tag C(latest).
    type: str
    required: true
  archive:
    description:
      - Archive on the machine that runs Ansible, in the OCI layout or from C(docker save), that holds the image under
        this name. It is copied to the node only where the image is missing, and removed after the import.
      - Without it the node pulls the image.
    type: path
  timeout:
    description: Seconds for the pull or the import.
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
    details: Says whether the image is missing; whether a pull would succeed is only known in a real run.
  diff_mode:
    support: none
    details: An image has no content that could be shown.
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Have busybox pulled
  portcullis.fleet.containerd_image:
    name: docker.io/library/busybox:1.33
  become: true

- name: Provide busybox where nodes reach no registry
  portcullis.fleet.containerd_image:
    name: docker.io/library/busybox:1.33
    archive: images/busybox-1.33.tar
  become: true
"""

RETURN = r"""
name:
  description: The full reference.
  returned: always
  type: str
  sample: docker.io/library/busybox:1.33
image_id:
  description: Digest of the image's configuration. Empty where the image is missing in check mode.
  returned: success
  type: str
  sample: sha256:3d2b2ba0a1bc0e5b7b8a9bd7d6e0ad0f4e6a1a8a5fca1b6d6a7a3c0f2d9f4e11
source:
  description: Where the image came from.
  returned: success
  type: str
  choices: [node, registry, archive]
  sample: node
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.containerd_images import ImageError, import_archive, normalise, pull
from ..module_utils.containerd_node import daemon_socket
from ..module_utils.cri import CriClient, CriError

ARGUMENT_SPEC = {
    "name": {"type": "str", "required": True},
    "archive": {"type": "path"},
    "timeout": {"type": "int", "default": 600},
    # Given by the action plugin only: where it put the archive on the node, and whether one can be had at all.
    "_copied_archive": {"type": "path"},
    "_only_look": {"type": "bool", "default": False},
}


def main():
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    name = normalise(module.params["name"])
    socket = daemon_socket()
    copied = module.params["_copied_archive"]
    try:
        with CriClient(socket) as client:
            image = client.image_status(name)
        if image:
            module.exit_json(changed=False, name=name, image_id=image["id"], source="node")
        if module.check_mode or module.params["_only_look"]:
            source = "archive" if module.params["archive"] else "registry"
            module.exit_json(changed=True, name=name, image_id="", source=source)
        if copied:
            image = import_archive(socket, name, copied, module.params["timeout"])
        else:
            image = pull(socket, name, module.params["timeout"])
        module.exit_json(changed=True, name=name, image_id=image["id"], source="archive" if copied else "registry")
    except CriError as error:
        module.fail_json(msg=f"cannot look for {name}: {error}", name=name)
    except ImageError as error:
        module.fail_json(msg=str(error), name=name)
    finally:
        if copied and os.path.exists(copied):
            os.unlink(copied)


if __name__ == "__main__":
    main()
