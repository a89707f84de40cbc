# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A KubeProxyConfiguration as text, such as a key of a ConfigMap: fields change, every other byte stays."""

from __future__ import annotations

from difflib import SequenceMatcher

from .containerd_edit import EditError
from .yaml_edit import edit_yaml, is_same, load_documents

KIND = "KubeProxyConfiguration"
GROUP = "kubeproxy.config.k8s.io/"


def configuration_of(text: str) -> dict:
    """Return the fields of the configuration in a text.

    :raises EditError: it holds none that kube-proxy loads.
    """
    return load_documents(text)[_index(text)]


def edit_configuration(text: str, desired: dict) -> str:
    """Return the text with these fields.

    :param desired: as in the configuration; mappings are merged, lists replaced, None takes a field away.
    :raises EditError: the text holds no configuration, or cannot be edited without changing something else.
    """
    return edit_yaml(text, desired, document=_index(text))


def previous_fields(text: str, desired: dict) -> dict:
    """Return what stands in a text for each desired field, None for none: edit_configuration() with it undoes.

    :raises EditError: the text holds no configuration.
    """
    return _previous(configuration_of(text), desired)


def put_back(text: str, original: str, desired: dict) -> str:
    """Return the text with these fields written as in the original, and with what others have changed since.

    The bytes are the original's where nobody has changed anything.

    :raises EditError: somebody else has changed the very lines of these fields.
    """
    merged = _merged(edit_configuration(original, desired), original, text)
    expected = _restored(configuration_of(text), configuration_of(original), desired)
    try:
        fits = is_same(configuration_of(merged), expected)
    except EditError:
        fits = False
    if not fits:
        raise EditError(f"{', '.join(desired)} was changed by somebody else since: set what it has to be")
    return merged


def _restored(there: dict, original: dict, desired: dict) -> dict:
    """Return fields with the desired ones as in the original."""
    result = dict(there)
    for name, value in desired.items():
        result.pop(name, None)
        if isinstance(value, dict) and isinstance(original.get(name), dict) and isinstance(there.get(name), dict):
            result[name] = _restored(there[name], original[name], value)
        elif name in original:
            result[name] = original[name]
    return result


def _index(text: str) -> int:
    """The place of the configuration among the documents of a text.

    :raises EditError: there is none that kube-proxy loads.
    """
    for at, document in enumerate(load_documents(text)):
        if isinstance(document, dict) and document.get("kind") == KIND:
            if not str(document.get("apiVersion") or "").startswith(GROUP):
                raise EditError(f"its apiVersion is {document.get('apiVersion')!r}, not {GROUP}v1alpha1")
            return at
    raise EditError(f"it holds no document of kind {KIND}")


def _previous(there: object, desired: dict) -> dict:
    found = {}
    for name, value in desired.items():
        old = there.get(name) if isinstance(there, dict) else None
        found[name] = _previous(old, value) if isinstance(value, dict) and isinstance(old, dict) else old
    return found


def _merged(base: str, wanted: str, text: str) -> str:
    """Return a text with the changes of lines from base to wanted; "" where it has changed those lines itself."""
    lines, there = base.splitlines(keepends=True), text.splitlines(keepends=True)
    blocks = SequenceMatcher(None, lines, there, autojunk=False).get_matching_blocks()
    new = wanted.splitlines(keepends=True)
    for kind, start, end, from_, to in reversed(SequenceMatcher(None, lines, new, autojunk=False).get_opcodes()):
        if kind == "equal":
            continue
        block = next((item for item in blocks if item.a <= start and end <= item.a + item.size), None)
        if block is None:
            return ""
        shift = block.b - block.a
        there[start + shift : end + shift] = new[from_:to]
    return "".join(there)
