# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of the collection: every role's argument_specs together, and what is wrong with a user's values.

Ansible ignores a variable that nothing reads, so a misspelt C(portcullis_*) name would silently mean the default. A
value that can never work is refused here, since a role would find out only after other nodes were changed. Each
C(complain_*) function returns one line, or None.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..module_utils.image_reference import parse_reference
from .cluster_versions import read_matrix
from .containerd_gate import check_accepted
from .containerd_hosts_option import parse_hosts
from .containerd_plan import check_directory
from .containerd_settings import parse_settings
from .kube_proxy_schema import refusals
from .os_matrix import read_os_matrix

PREFIX = "portcullis_"
# What an argument_specs option and a module's argument have in common; the rest is documentation.
SPEC_KEYS = ("type", "elements", "choices", "options", "required")
# The only variable that is one host's own. Any other is read once for the run.
OWN_VARIABLES = frozenset({"portcullis_node_name"})
# May hold credentials, so their values are never shown.
SECRET_VARIABLES = frozenset({"portcullis_containerd_hosts", "portcullis_containerd_settings"})
DEFAULT_WAVES = (1, "25%", "100%")
# A namespace is an RFC 1123 label. Source: k8s.io/apimachinery, validation.IsDNS1123Label.
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_WAVE = re.compile(r"([1-9]\d*)|([1-9]\d?|100)%")


def load_argument_specs(roles: Path) -> dict[str, dict]:
    """Every C(portcullis_*) option of every role: C({name: specification}).

    :param roles: the collection's roles directory.
    """
    options: dict[str, dict] = {}
    for path in sorted(roles.glob("*/meta/argument_specs.yml")):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            options.update(entry.get("options") or {})
    return {name: spec for name, spec in options.items() if name.startswith(PREFIX)}


def is_meant_for_us(name: str) -> bool:
    """Whether a variable is one of ours, or was meant to be: C(portculis_accept), C(PORTCULLIS_ACCEPT)."""
    first = name.partition("_")[0]
    alike = difflib.SequenceMatcher(None, first.lower(), PREFIX[:-1]).ratio()
    return name.startswith(PREFIX) or alike > 0.85


def unknown_variables(names: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """The names that no role knows, each with the nearest known name (empty when none is near)."""
    known = sorted(known)
    unknown = sorted(name for name in names if is_meant_for_us(name) and name not in known)
    return {name: next(iter(difflib.get_close_matches(name.lower(), known, n=1)), "") for name in unknown}


def complain_unknown(names: Iterable[str], known: Iterable[str]) -> str | None:
    """Misspelt names, with what was probably meant."""
    unknown = unknown_variables(names, known)
    words = [f"{name} (did you mean {near}?)" if near else name for name, near in unknown.items()]
    return f"unknown variable {', '.join(words)}; the role READMEs list every variable" if words else None


def parse_waves(value: object) -> list[int | str]:
    """The sizes of the waves, as C(serial) takes them. C(-e portcullis_waves=[1,25%]) arrives as one string.

    :raises ValueError: with one line that says what is wrong.
    """
    words = value.strip("[] ").split(",") if isinstance(value, str) else value
    waves = [str(word).strip("'\" ") for word in (words if isinstance(words, list) else [words])]
    wrong = next((word for word in waves if not _WAVE.fullmatch(word)), None)
    if wrong is not None or not waves:
        raise ValueError(f"got {wrong or 'no wave'!r}: give numbers of nodes from 1, or percentages such as 25%")
    return [int(word) if word.isdigit() else word for word in waves]


def _complain_namespace(value: str) -> str | None:
    good = _LABEL.fullmatch(value)
    return None if good else f"got {value!r}: give a name of a-z, 0-9 and -, at most 63 characters"


def _complain_waves(value: object) -> str | None:
    try:
        parse_waves(value)
    except ValueError as error:
        return str(error)
    return None


def _complain_timeout(value: int) -> str | None:
    return None if value >= 1 else f"got {value}: give seconds from 1"


def _complain_images(images: list[Mapping]) -> str | None:
    names = set()
    for image in images:
        try:
            name = parse_reference(image["name"]).name
        except ValueError as error:
            return f"got the {error}"
        if name in names:
            return f"got the image {name} twice: give it once"
        names.add(name)
        archive = image.get("archive")
        if archive and not Path(archive).expanduser().is_file():
            return f"there is no archive {archive} on this machine: give the path of a file, best an absolute one"
    return None


def _complain_kube_proxy(config: dict) -> str | None:
    return "; ".join(f"{field}: {reason}" for field, reason in refusals(config).items()) or None


def _complaint(read: Callable, value: object) -> str | None:
    """What a reader that raises ValueError has against a value."""
    try:
        read(value)
    except ValueError as error:
        return str(error)
    return None


RULES: dict[str, Callable] = {
    "portcullis_calico_matrix": lambda path: _complaint(read_matrix, path),
    "portcullis_os_matrix": lambda path: _complaint(read_os_matrix, path),
    "portcullis_namespace": _complain_namespace,
    "portcullis_waves": _complain_waves,
    "portcullis_containerd_hosts": lambda items: _complaint(parse_hosts, items),
    "portcullis_containerd_health_timeout": _complain_timeout,
    "portcullis_containerd_accept_restart_of": lambda value: check_accepted(value) or None,
    "portcullis_containerd_settings": lambda items: _complaint(parse_settings, items),
    "portcullis_felix_timeout": _complain_timeout,
    "portcullis_images": _complain_images,
    "portcullis_kube_proxy_config": _complain_kube_proxy,
    "portcullis_kube_proxy_timeout": _complain_timeout,
    "portcullis_registry_config_path": lambda value: check_directory(value) or None,
}


def complain_value(name: str, value: object, option: Mapping) -> str | None:
    """A value that its role does not take, or with which no run could succeed."""
    if value is None:
        return "it is null: give a value, or leave the variable out"
    specification = {word: part for word, part in option.items() if word in SPEC_KEYS}
    if name != "portcullis_waves":  # parse_waves knows more spellings
        result = ArgumentSpecValidator({name: specification}).validate({name: value})
        if result.error_messages:
            got = "" if name in SECRET_VARIABLES else f"got {value!r}: "
            return got + result.error_messages[0]
        value = result.validated_parameters[name]
    return RULES[name](value) if name in RULES else None


def complain_differences(settings: Mapping[str, Mapping[str, object]]) -> str | None:
    """A variable that differs between hosts although the run reads it once.

    :param settings: C(portcullis_*) variables by host.
    """
    names = sorted({name for variables in settings.values() for name in variables} - OWN_VARIABLES)
    for name in names:
        first, *others = settings
        for host in others:
            pair = [settings[where].get(name, "not set") for where in (first, host)]
            if pair[0] != pair[1]:
                shown = [first, host] if name in SECRET_VARIABLES else [f"{first}: {pair[0]}", f"{host}: {pair[1]}"]
                return (
                    f"{name} differs between hosts ({'; '.join(shown)}), but is read once for the "
                    "run: set it for all hosts, or use an inventory for each"
                )
    return None
