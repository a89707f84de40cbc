# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is below containerd's registry directories, and what of it this module has written. Reads only."""

from __future__ import annotations

import os

from .containerd_changes import undo_changes, undo_record
from .containerd_node import registry_keys
from .files import encoded, read_snapshot
from .registry_names import DEFAULT_NAMESPACE, FILE_NAME, directory_names

MAX_HOSTS = 2000


def read_registries(files, wanted, asked, config_file, journal):
    """Read what is below the registry directories that may matter: the wanted one, and those that the files name.

    :param files: as C(read_files) returns them.
    :param asked: the registries of the option C(hosts): [{registry, files (paths that its hosts.toml names)}].
    :returns: C(hosts), {directory: {name: as read_directory}}, and C(present), those of the named paths that are
        files. Without need for them nothing is read: the files have a registry directory and no mirrors, and no
        registry is asked for.
    """
    named, legacy = registry_keys(files)
    directories = sorted({wanted, *named} - {""})
    changes = undo_changes(config_file, journal) if asked else []
    hosts = {}
    if legacy or not named or asked:
        # The whole directory counts only where it may come into effect.
        names = {name for item in asked for name in directory_names(item["registry"])}
        only = names | {DEFAULT_NAMESPACE} if named and not legacy else None
        hosts = {path: read_registry_directory(path, only, changes) for path in directories if os.path.isdir(path)}
    present = {
        path
        for item in asked
        for file in item["files"]
        for path in candidates(file, item["registry"], directories)
        if os.path.isfile(path)
    }
    return {"hosts": hosts, "present": sorted(present)}


def candidates(file, registry, directories):
    """Return the absolute paths that a path in a registry's hosts.toml may mean."""
    if os.path.isabs(file):
        return [file]
    return [os.path.join(path, name, file) for path in directories for name in directory_names(registry)]


def read_registry_directory(path, only, changes):
    """Return C({name: {names, content (base64 or None), origin, former, made}}) of the directories below one.

    :param only: the names to read, None for all.
    :param changes: the journal's entries, newest first; see C(trace) for what they add.
    """
    found = {}
    for name in sorted(os.listdir(path))[:MAX_HOSTS]:
        directory = os.path.join(path, name)
        if (only is None or name in only) and os.path.isdir(directory):
            file = os.path.join(directory, FILE_NAME)
            names = sorted(os.listdir(directory))
            found[name] = {"names": names, "content": encoded(read_snapshot(file).content), **trace(file, changes)}
    return found


def trace(file, changes):
    """Return what the journal says about a file.

    :returns: C(origin): C(ours) when it is what this module wrote last, C(former) when it is what was there before a
        change of this module that was taken back, C(changed) when somebody changed what this module wrote, empty when
        this module has nothing to do with it. C(former): the bytes before the changes of this module. C(made): the
        directories that the changes made.
    """
    path = os.path.realpath(file)
    own = [entry for entry in changes if path in entry.planned]
    if not own:
        return {"origin": "", "former": None, "made": []}
    record = undo_record(path, own)
    if not record["matches"]:
        origin = "changed"
    elif record["content"] != record["current"]:
        origin = "ours"
    else:
        befores = {encoded(item.content) for entry in own for item in entry.files if item.path == path}
        origin = "former" if record["current"] in befores else ""
    made = sorted({directory for entry in own for directory in entry.note["directories"]})
    return {"origin": origin, "former": record["content"], "made": made}
