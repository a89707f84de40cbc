#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: containerd_config
short_description: Change containerd's configuration without breaking the node
version_added: 0.1.0
description:
  - Writes what registries are pulled from into C(hosts.toml) files, merged into those that are there.
  - Switches NRI, and sets any other single setting.
  - Converts C(registry.mirrors) and registry TLS into C(hosts.toml) files.
  - Sets the registry C(config_path) in the table that the daemon of this node reads, for configuration versions 1 to 4
    and containerd 1.6 to 2.4. Every byte that the change does not concern stays as it is.
  - Judges the effective configuration, after imports and migrations, with the rules of the running daemon.
  - Restarts the daemon only when what it uses changes, proves CRI over its socket and that running containers kept
    their processes, and puts the previous bytes back when CRI does not serve.
  - Every change has an entry in the journal on the node (C(/var/lib/portcullis/journal), readable for root only). A run
    that was killed is completed or undone by the next one.
  - Refuses, with a finding and before anything is touched, a file that cannot be edited safely, a file that another
    program writes, mirrors that C(hosts.toml) cannot say, and a unit whose restart would kill pods.
  - Where CRI does not serve already, as with C(mirrors) beside C(config_path), a change is made only if the daemon
    proves in the sandbox (O(validate=daemon)) that it serves with the new files and not with the present ones.
  - Credentials in the configuration and in headers are never part of the result, nor of the diff.
author:
  - The Portcullis developers (@portcullis)
options:
  config_file:
    description:
      - The configuration file on the node.
      - The default is what the running daemon reads, from its command line, else V(/etc/containerd/config.toml).
    type: path
  registry_config_path:
    description:
      - The directory with a C(hosts.toml) for each registry. One absolute directory. A colon-separated list is refused,
        since containerd 2.1 and later take it as one name and ignore every C(hosts.toml).
      - If it is given, it becomes the effective value. If it is omitted, a path that a file already sets is kept, and
        V(/etc/containerd/certs.d) is written where none is set.
    type: path
  convert_mirrors:
    description:
      - Whether C(registry.mirrors) and C(registry.configs.*.tls) become C(hosts.toml) files below the registry
        directory. Images are then pulled from the same places, in the same order, with the same TLS settings.
      - CRI does not load with C(mirrors) beside C(config_path). If this is V(false), they are a finding.
      - A C(hosts.toml) that is there and says the same is left, one that lacks something gets it, and one that says
        otherwise is a finding. C(auth)
        and C(headers) stay in the configuration, where they keep working.
    type: bool
    default: true
  hosts:
    description:
      - Where images of a registry are pulled from, written as C(hosts.toml) below the registry directory that is
        effective then. It needs no restart. A registry that is not named here is left as it is.
      - A file that says this already is left byte for byte. One that this module wrote last is written anew. To one
        that somebody else wrote, missing keys and hosts are added, where nothing in it says otherwise. What says
        otherwise is a finding with file, line and both values, and so is a directory with certificates in Docker's
        layout, which a C(hosts.toml) would switch off, and one that Spegel rearranges.
      - Mirrors of the same registry that are converted in the same run must agree as well.
      - A directory of its own takes a registry out of C(_default). A warning then names the hosts of C(_default) that
        are not among its endpoints.
    type: list
    elements: dict
    default: []
    suboptions:
      registry:
        description: The host, with its port where images name one, or V(_default) for all registries without a
          directory of their own, which containerd reads from 1.6.17 on.
        type: str
        required: true
      server:
        description:
          - The address that is asked last. If it is omitted, that is the registry itself.
          - Without O(hosts[].endpoints) it is the only one.
        type: str
      endpoints:
        description: What is asked first, in this order. Required if O(hosts[].server) is not given.
        type: list
        elements: dict
        default: []
        suboptions:
          url:
            description:
              - An address such as V(https://mirror.example:5000).
              - A user in it is refused, since containerd ignores it. O(hosts[].endpoints[].header) can be one.
            type: str
            required: true
          capabilities:
            description: What the host is asked for. V(referrers) needs containerd 2.2, older ones refuse the file,
              which is a finding.
            type: list
            elements: str
            choices: [pull, resolve, push, referrers]
            default: [pull, resolve]
          ca:
            description:
              - Certificates of the authorities that the host's certificate is checked with, beside those of the node.
              - Paths on the node, absolute or from the directory of the C(hosts.toml). They must be there, since
                containerd fails every pull otherwise.
            type: list
            elements: str
            default: []
          client:
            description: Pairs of paths on the node, certificate and key, or one such pair. They must be there too.
            type: list
            elements: raw
            default: []
          skip_verify:
            description: Whether the host's certificate is not checked.
            type: bool
            default: false
          override_path:
            description: Whether the address holds the whole path of the API, so that C(/v2) is not appended.
            type: bool
            default: false
          header:
            description:
              - Headers of each request, as name and value, or name and list of values. Never shown.
              - A new file with headers is readable for root only.
            type: dict
      state:
        description:
          - V(present) makes the C(hosts.toml) of the registry say this.
          - V(absent) gives back what was there before this module first changed it, byte for byte, and removes what
            it made. A file that somebody else wrote or changed is a finding.
        type: str
        choices: [present, absent]
        default: present
  nri:
    description:
      - The Node Resource Interface (NRI), through which plugins of the node adjust containers.
      - V(enabled) and V(disabled) switch it in the table that this daemon reads, V(unchanged) leaves it. containerd 1.7
        has it off by default, 2.0 and later have it on, and 1.6 has none, which is a finding.
      - If NRI stands in C(disabled_plugins) of the main file, V(enabled) takes it out. In an imported file, or in an
        array of several lines, it is a finding.
    type: str
    choices: [enabled, disabled, unchanged]
    default: unchanged
  nri_required_plugins:
    description:
      - Whether NRI's default validator is switched on, so that pods can require plugins by annotation. Without it the
        annotation is ignored. Needs O(nri=enabled), and containerd 2.2 or later.
      - V(false) leaves the validator as it is.
    type: bool
    default: false
  images:
    description:
      - Images that shall be on the node. RV(images) says which of them need nothing, so that a
        M(portcullis.fleet.containerd_image) task can leave them out without asking the node again.
      - Nothing is done about them here.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Reference of the image.
        type: str
        required: true
      pinned:
        description: As the option of M(portcullis.fleet.containerd_image).
        type: bool
      archive:
        description: Not used here; one list can serve both modules.
        type: path
  settings:
    description:
      - Any other setting of the main file, in containerd's own spelling.
      - A table that this daemon does not read for this version of the file is a finding that names the right one. A
        setting that an imported file wins over is a finding as well.
      - What an option of this module manages, and C(version) and C(imports), are refused.
    type: list
    elements: dict
    default: []
    suboptions:
      table:
        description: The path of the table, name by name. Empty for a key of the root.
        type: list
        elements: str
        default: []
      key:
        description: The key.
        type: str
        required: true
      value:
        description:
          - A string, a whole number, V(true), V(false) or a list of strings.
          - Required if O(settings[].state=present).
        type: raw
      state:
        description:
          - V(present) gives the key the value.
          - V(absent) takes the key out, with everything below it where it is a table.
        type: str
        choices: [present, absent]
        default: present
  validate:
    description:
      - How the files are validated on the node before they are live, in check mode too.
      - V(daemon) starts the node's own containerd with them, in a throwaway copy of the node that has no network, no
        content and no service of the node in reach, and asks it for its plugins and for CRI. The same is done with the
        files as they are, and only what gets worse is a failure, in the daemon's own words. It takes less than a second
        and leaves nothing behind.
      - Where the node does not permit it (a copy needs namespaces and overlayfs), a warning says so, and the change
        goes on, since the restart proves it too.
      - V(parse) only lets containerd parse the files there.
      - V(none) leaves the proof to the restart.
    type: str
    choices: [daemon, parse, none]
    default: daemon
  restart:
    description:
      - V(auto) restarts the daemon when its effective configuration changes, and proves it. A restart that is due since
        an earlier change, with V(never) or by somebody else, is made up for.
      - V(never) only writes the file. The change takes effect, unproven, with the next start of the daemon.
    type: str
    choices: [auto, never]
    default: auto
  accept_restart_of:
    description:
      - What a restart of the daemon may take with it; without it the task refuses, and names what it would be.
      - V(pods) accepts a unit whose C(KillMode) ends every container with the daemon, as on a drained node.
      - Any other value is the name of a unit that systemd restarts together with the daemon, such as
        V(docker.service). It must be active again afterwards.
      - C(kubelet.service) is always accepted, since it takes its running pods over.
    type: list
    elements: str
    default: []
  allow_owner_source:
    description:
      - Whether the source is edited where a program writes the configuration anew whenever it starts.
      - Otherwise, and where a program has no source on the node, the task fails with the finding
        C(containerd.config_owned), which says what to do instead.
      - For k3s, RKE2 and k0s it is the file C(portcullis.toml) in the directory of drop-ins that their configuration
        imports (C(config-v3.toml.d), C(config.toml.d), C(/etc/k0s/containerd.d)); for older k3s and RKE2 the template
        C(config-v3.toml.tmpl) or C(config.toml.tmpl), as far as it extends the base template. For MicroK8s it is
        C(containerd-template.toml).
      - Of O(hosts), k3s and RKE2 make C(hosts.toml) files themselves, so C(/etc/rancher/k3s/registries.yaml) or
        C(/etc/rancher/rke2/registries.yaml) is edited.
      - The unit of that program is restarted then, with everything in it; on a server of k3s, the API server too.
      - What the source cannot say is a finding. containerd 1.x takes a table of a drop-in for the whole table of its
        plugin.
    type: bool
    default: false
  health_timeout:
    description: Seconds within which CRI must serve after the restart, otherwise the change is put back.
    type: int
    default: 60
  state:
    description:
      - V(present) makes the registry directory, hosts, NRI and the settings effective.
      - V(absent) gives the files back, byte for byte, as they were before this module first changed them, and removes
        those that it made. If somebody else changed one since, nothing is touched and a finding says so. Without a
        change of this module there is nothing to do.
    type: str
    choices: [present, absent]
    default: present
  _registries:
    description: What the node is asked about registries, from the half of the module that runs on the controller. Not
      for use in a task.
    type: str
extends_documentation_fragment:
  - portcullis.fleet.attributes
attributes:
  check_mode:
    support: full
    details: Predicts the write and the restart, and validates the files; nothing is written.
  diff_mode:
    support: full
    details: Credentials are masked.
  idempotent:
    support: full
notes:
  - A run without a change takes one trip to the node, a run with a change two; in check mode as well.
"""

EXAMPLES = r"""
- name: Use /etc/containerd/certs.d where no registry directory is set yet
  portcullis.fleet.containerd_config:
  become: true

- name: Use this directory on every node, and give the daemon two minutes
  portcullis.fleet.containerd_config:
    registry_config_path: /etc/containerd/certs.d
    health_timeout: 120
  become: true

- name: Set the directory only where there are no mirrors
  portcullis.fleet.containerd_config:
    convert_mirrors: false
  become: true

- name: Switch NRI on, and let pods require its plugins (containerd 2.2 or later)
  portcullis.fleet.containerd_config:
    nri: enabled
    nri_required_plugins: true
  become: true

- name: Have runc use systemd's cgroups (containerd 2.x with a file of version 3)
  portcullis.fleet.containerd_config:
    settings:
      - table: [plugins, io.containerd.cri.v1.runtime, containerd, runtimes, runc, options]
        key: SystemdCgroup
        value: true
  become: true

- name: Restart a containerd that ends its containers, on a drained node where docker uses it too
  portcullis.fleet.containerd_config:
    accept_restart_of: [pods, docker.service]
  become: true

- name: Switch NRI on where k3s makes the configuration
  portcullis.fleet.containerd_config:
    nri: enabled
    allow_owner_source: true
    health_timeout: 180
  become: true

- name: Pull Docker Hub's images from a mirror with an authority of its own, and from Docker Hub where it has none
  portcullis.fleet.containerd_config:
    hosts:
      - registry: docker.io
        server: https://registry-1.docker.io
        endpoints:
          - url: https://mirror.example:5000
            ca: /etc/ssl/mirror-ca.pem
            header:
              Authorization: "Bearer {{ mirror_token }}"
  become: true

- name: Take that back
  portcullis.fleet.containerd_config:
    hosts:
      - registry: docker.io
        state: absent
  become: true

- name: Give the original files back
  portcullis.fleet.containerd_config:
    state: absent
  become: true
"""

RETURN = r"""
config_file:
  description: The file that was judged and, where needed, edited.
  returned: when containerd is on the node
  type: str
  sample: /etc/containerd/config.toml
config_version:
  description: Configuration version that the daemon arrives at; 1 for a file without C(version).
  returned: when the file can be read
  type: int
  sample: 2
owner:
  description: The program that writes the file; V(administrator) when none was recognised.
  returned: when containerd is on the node
  type: str
  sample: administrator
owner_source:
  description: The file that the owner makes the configuration of, and that is edited instead.
  returned: when O(allow_owner_source=true) and the owner has one
  type: str
  sample: /etc/k0s/containerd.d/portcullis.toml
effective_config_path:
  description: Registry directory that the daemon uses, in check mode would use, after this task. Empty when none.
  returned: when the file can be read
  type: str
  sample: /etc/containerd/certs.d
nri:
  description: The Node Resource Interface after this task, in check mode as it would be.
  returned: when the file can be read
  type: dict
  contains:
    state:
      description: V(enabled), V(disabled), or V(unsupported) where the daemon has none.
      type: str
      sample: enabled
    default_validator:
      description: Whether the default validator is on. Without it, annotations that require plugins are ignored.
      type: bool
      sample: false
imports:
  description: The imported files that exist, in the order in which the daemon loads them.
  returned: when containerd is on the node
  type: list
  elements: str
  sample: [/etc/containerd/conf.d/99-nvidia.toml]
converted:
  description: What became of mirrors and registry TLS.
  returned: when there are any
  type: list
  elements: dict
  contains:
    registry:
      description: Registry host, V(_default) for the wildcard.
      type: str
      sample: docker.io
    keys:
      description: The old keys.
      type: list
      elements: str
      sample: ['registry.mirrors."docker.io"']
    file:
      description: The file that takes their place.
      type: str
      sample: /etc/containerd/certs.d/docker.io/hosts.toml
hosts:
  description: What became of O(hosts), in check mode would become.
  returned: when O(hosts) is given and nothing stands in the way
  type: list
  elements: dict
  contains:
    registry:
      description: The registry.
      type: str
      sample: docker.io
    file:
      description: Its file.
      type: str
      sample: /etc/containerd/certs.d/docker.io/hosts.toml
    action:
      description: V(written) as a whole, V(merged) into what somebody else wrote, V(left) as it was, V(restored) to
        what was there before this module, or V(removed).
      type: str
      sample: written
warnings:
  description: What works but deserves attention. Ansible prints them.
  returned: when there are any
  type: list
  elements: str
findings:
  description: Why nothing was changed, as findings with C(id), C(severity), C(requirement), C(node), C(observed),
    C(expected) and C(remedy).
  returned: when containerd is on the node
  type: list
  elements: dict
validated:
  description: How the files were validated before they were live; V(none) also where it was not possible, and where
    only C(hosts.toml) files are written, which are no configuration of the daemon.
  returned: when a file is written
  type: str
  sample: daemon
restarted:
  description: Whether the daemon was restarted, in check mode would be.
  returned: when containerd is on the node
  type: bool
cri_ready:
  description: Whether CRI served when it was last asked.
  returned: when containerd is on the node
  type: bool
images:
  description: Those of O(images), by their O(images[].name) as given, that CRI has, that the node can run, and that are
    pinned as wanted. Empty when CRI does not serve.
  returned: when containerd is on the node
  type: list
  elements: str
  sample: ["busybox:1.33"]
rolled_back:
  description: Whether the change was put back because CRI did not serve with it. The task then fails.
  returned: when containerd is on the node
  type: bool
backup:
  description: The journal entry on the node that holds the previous bytes.
  returned: when a file was written
  type: str
  sample: /var/lib/portcullis/journal/0000000001-containerd_config-committed.json
recovered:
  description: What was done about an earlier run that was killed.
  returned: when there was one
  type: str
log:
  description: The telling lines of the daemon's log, without credentials.
  returned: when the files were refused by the daemon, or the change was put back
  type: list
  elements: str
diff:
  description: Each file before and after, credentials masked.
  returned: when a file is written
  type: list
  elements: dict
"""

import json

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.containerd_changes import KIND, LOCK_TIMEOUT_S, undo_records, unproven_entries
from ..module_utils.containerd_node import observe
from ..module_utils.containerd_registries import read_registries
from ..module_utils.image_presence import find_as_wanted
from ..module_utils.journal import Journal, JournalError
from ..module_utils.registry_names import DEFAULT_DIRECTORY

ARGUMENT_SPEC = {
    "config_file": {"type": "path"},
    "registry_config_path": {"type": "path"},
    "convert_mirrors": {"type": "bool", "default": True},
    "hosts": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "registry": {"type": "str", "required": True},
            "server": {"type": "str"},
            "endpoints": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "url": {"type": "str", "required": True},
                    "capabilities": {
                        "type": "list",
                        "elements": "str",
                        "choices": ["pull", "resolve", "push", "referrers"],
                        "default": ["pull", "resolve"],
                    },
                    "ca": {"type": "list", "elements": "str", "default": []},
                    "client": {"type": "list", "elements": "raw", "default": []},
                    "skip_verify": {"type": "bool", "default": False},
                    "override_path": {"type": "bool", "default": False},
                    # The controller's half keeps the values: here they would hide every text that contains one.
                    "header": {"type": "dict", "no_log": True},
                },
            },
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
    },
    "nri": {"type": "str", "choices": ["enabled", "disabled", "unchanged"], "default": "unchanged"},
    "nri_required_plugins": {"type": "bool", "default": False},
    "images": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "pinned": {"type": "bool"},
            "archive": {"type": "path"},
        },
    },
    "settings": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "table": {"type": "list", "elements": "str", "default": []},
            "key": {"type": "str", "required": True, "no_log": False},
            "value": {"type": "raw"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
    },
    "validate": {"type": "str", "choices": ["daemon", "parse", "none"], "default": "daemon"},
    "restart": {"type": "str", "choices": ["auto", "never"], "default": "auto"},
    "accept_restart_of": {"type": "list", "elements": "str", "default": []},
    "allow_owner_source": {"type": "bool", "default": False},
    "health_timeout": {"type": "int", "default": 60},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    # Given by the action plugin only: JSON of the registries and files to look for.
    "_registries": {"type": "str"},
}


def read(params):
    """Return the facts of the first trip."""
    directory = params["registry_config_path"] or DEFAULT_DIRECTORY
    question = (params["config_file"] or "", directory)
    facts, journal = observe(*question), Journal()
    if not facts["cri"]["serving"]:
        # Another run of this module may just be restarting the daemon: it holds the lock while it does.
        journal.wait(LOCK_TIMEOUT_S)
        facts = observe(*question)
    facts["images"] = find_as_wanted(facts["socket"], params["images"]) if facts["cri"]["serving"] else []
    facts["restart_due"] = bool(unproven_entries(journal, facts["config_file"]))
    facts["unfinished"] = [entry.name for entry in journal.unfinished(KIND)]
    asked = json.loads(params["_registries"] or "[]")
    facts.update(read_registries(facts["files"], directory, asked, facts["config_file"], journal))
    if params["state"] == "absent":
        facts["undo"] = undo_records(facts["config_file"], journal)
    return facts


def main():
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        module.exit_json(changed=False, facts=read(module.params))
    except (JournalError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
