# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images on a node with containerd: what is there, pulls through CRI, imports, and pins.

Measured on 1.6.20 and 2.2.9: a pull takes an image of another architecture where the name stands for a single manifest,
and says nothing; C(ctr images import) brings every image of an archive, whatever else is asked for on 1.6.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time

from .containerd_store import NAMESPACE, PINNED_LABEL, PINNED_VALUE, ImageStore, StoreError
from .cri import CriClient, CriError
from .host import SEARCH_PATH
from .image_archive import ArchiveError, copy_entry, read_archive, select_entry
from .image_presence import complain_platform, find_image, this_node
from .image_reference import MASK

# CRI follows containerd's own records by events.
FOLLOW_TIMEOUT_S = 10
_POLL_S = 0.05
# The first release that could know pins: https://github.com/containerd/containerd/pull/8720 for 1.6.
_FIRST_WITH_PINS = (1, 6, 22)
_NO_ROOM = "no space left on device"
_MAKE_ROOM = "make room on the node's disk, for example with `crictl rmi --prune`"
_URL_SECRETS = re.compile(r"(?<=://)[^\s/@\"']+(?=@)|(?<=[?&])(?!ns=)[^\s\"'&]+")


class ImageError(Exception):
    """The image could not be provided; the text says what was tried and what to do."""


def complain_pins(version):
    """Say that a containerd is too old to know pins; empty when it may know them."""
    numbers = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
    if not numbers or tuple(map(int, numbers.groups())) >= _FIRST_WITH_PINS:
        return ""
    return f"containerd {version} knows no pinned images: update it to 1.7, or leave pinned out"


def read_digest(address, image, name):
    """Return the digest of the manifest or index that a name, or any other of its image, stands for.

    :raises ImageError: containerd does not say.
    """
    try:
        with ImageStore(address) as store:
            records = store.records([name, *image.names])
    except StoreError as error:
        raise ImageError(str(error)) from error
    return records.get(name, next(iter(records.values()), ("", {})))[0]


def provide(address, reference, archive, timeout_s):
    """Import or pull an image, prove it, and return the Image; what a failure leaves behind is taken away.

    :param archive: a path, or None to pull.
    :raises ImageError: it is not there.
    """
    node = this_node()
    try:
        with ImageStore(address) as store:
            before = set(store.records())
            try:
                if archive:
                    _import(address, reference, archive, node, timeout_s)
                else:
                    _pull(address, reference, node, timeout_s)
                return _prove(address, reference, node)
            except ImageError as failure:
                try:
                    _take_away(address, store, reference, before)
                except (ImageError, StoreError) as error:
                    raise ImageError(f"{failure}; what the attempt left is still there: {error}") from failure
                raise
    except StoreError as error:
        raise ImageError(str(error)) from error


def _prove(address, reference, node):
    image = _wait(address, reference.name, lambda image: image is not None)
    if image is None:
        raise ImageError(f"{reference.name} was provided, but CRI does not have it: does another run remove images?")
    problem = complain_platform(image, node)
    if problem:
        raise ImageError(
            f"{reference.name} was provided, but {problem}; name an image for {node}, or one for several platforms"
        )
    return image


def _take_away(address, store, reference, before):
    """Remove the names that a failed attempt has brought."""
    image = _ask(address, reference.name)
    known = [reference.name, *(image.names if image else ())]
    for name in store.records(known):
        if name not in before:
            store.remove(name)
    if reference.name not in before:
        _wait(address, reference.name, lambda image: image is None)


def set_pin(address, image, name, pinned):
    """Pin an image by a name, or take the pins off all its names; CRI must report it, else all is as before.

    :raises ImageError: CRI does not follow.
    """
    names, value = ([name], PINNED_VALUE) if pinned else (image.names, "")
    try:
        with ImageStore(address) as store:
            old = {key: labels.get(PINNED_LABEL, "") for key, (_digest, labels) in store.records(names).items()}
            changed = {key: label for key, label in old.items() if label != value}
            for key in changed:
                store.set_label(key, PINNED_LABEL, value)
            found = _wait(address, name, lambda image: image is not None and image.pinned == pinned)
            if found is None or found.pinned != pinned:
                for key, label in changed.items():
                    store.set_label(key, PINNED_LABEL, label)
                raise ImageError(
                    f"{name}: the label {PINNED_LABEL} was {'set' if pinned else 'removed'}, but within "
                    f"{FOLLOW_TIMEOUT_S} s CRI did not report the image as {'' if pinned else 'not '}pinned, so the "
                    "label is as before: update containerd to 1.7, or leave pinned out"
                )
    except StoreError as error:
        raise ImageError(str(error)) from error
    return found


def _ask(address, name):
    try:
        with CriClient(address) as client:
            return find_image(client, name)
    except CriError as error:
        raise ImageError(f"CRI does not answer: {without_secrets(str(error))}") from error


def _wait(address, name, is_good):
    """Return the Image as soon as it is as it should be, or as it is after FOLLOW_TIMEOUT_S."""
    deadline = time.monotonic() + FOLLOW_TIMEOUT_S
    while True:
        image = _ask(address, name)
        if is_good(image) or time.monotonic() >= deadline:
            return image
        time.sleep(_POLL_S)


def _pull(address, reference, node, timeout_s):
    try:
        with CriClient(address) as client:
            client.pull_image(reference.name, timeout_s=timeout_s)
    except CriError as error:
        if "no match for platform" in error.message:
            raise ImageError(
                f"the registry's {reference.name} has no image for {node}, which this node needs: name another, or "
                "give an archive"
            ) from error
        advice = "let the node reach the registry, write a mirror below the registry directory, or give an archive"
        if _NO_ROOM in error.message:
            advice = _MAKE_ROOM
        # The daemon learns of the deadline too, and may be the one who cancels.
        if error.code_name in ("DEADLINE_EXCEEDED", "CANCELLED"):
            reason = f"was not pulled within {timeout_s} s: raise timeout for a large image"
        else:
            reason = f"cannot be pulled: {without_secrets(str(error))}"
        raise ImageError(f"{reference.name} is not on the node and {reason}; {advice}") from error


def without_secrets(text):
    """Return an error's text without users and queries in URLs: some registries' redirects are signed by them."""
    return _URL_SECRETS.sub(MASK, text)


def _import(address, reference, archive, node, timeout_s):
    """Have C(ctr) import a copy of the archive that holds this image only, under this name only."""
    try:
        entry = select_entry(read_archive(archive), reference, node)
    except ArchiveError as error:
        raise ImageError(f"the archive of {reference.name}: {error}") from error
    argv = ["ctr", "--address", address, "--namespace", NAMESPACE, "images", "import", "-"]
    read_end, write_end = os.pipe()
    try:
        process = subprocess.Popen(
            argv,
            env={"PATH": SEARCH_PATH, "LC_ALL": "C"},
            stdin=read_end,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        os.close(write_end)
        raise ImageError("ctr is not on the node; it comes with containerd, install it to import images") from error
    finally:
        os.close(read_end)
    writer = _Writer(archive, write_end, entry, reference.name)
    try:
        output = process.communicate(timeout=timeout_s)[0].decode("utf-8", "replace").strip()
    except subprocess.TimeoutExpired as error:
        raise ImageError(f"ctr did not import the archive of {reference.name} within {timeout_s} s") from error
    finally:
        # Without ctr the pipe has no reader, which ends the writer.
        process.kill()
        process.communicate()
        writer.join()
    if writer.problem or process.returncode:
        reason = writer.problem or without_secrets(complaint_of_ctr(output))
        advice = _MAKE_ROOM if _NO_ROOM in reason else "save the image again"
        raise ImageError(f"ctr could not import the archive of {reference.name}: {reason}; {advice}")


def complaint_of_ctr(output):
    """Return what C(ctr) says of its own failure, without progress and the daemon's warnings, or all it said."""
    lines = [line for line in output.splitlines() if line.startswith("ctr: ")]
    return " ".join(lines) or output


class _Writer(threading.Thread):
    """Writes the copy into a pipe while C(ctr) reads it."""

    def __init__(self, archive, descriptor, entry, name):
        super().__init__()
        self._arguments = (archive, descriptor, entry, name)
        self.problem = ""
        self.start()

    def run(self):
        archive, descriptor, entry, name = self._arguments
        try:
            with open(descriptor, "wb") as output:
                copy_entry(archive, output, entry, name)
        except BrokenPipeError:
            return  # ctr has ended before: it says why
        except ArchiveError as error:
            self.problem = str(error)
