# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes manifests as text: documents read as kubectl reads them, and what of a Go template can be read.

kubectl reads YAML with sigs.k8s.io/yaml: y and n are booleans, and tabs are allowed where libyaml allows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

# libyaml accepts tabs before a comment, after a colon and at a line's end, as kubectl does; Python's scanner does not.
_Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Loader(_Base):
    """YAML 1.1 with y and n, and dates left as text, as in JSON."""

    def construct_yaml_bool(self, node: yaml.ScalarNode) -> bool:
        return self.construct_scalar(node).lower() in {"y", "yes", "true", "on"}

    def construct_text(self, node: yaml.ScalarNode) -> str:
        return self.construct_scalar(node)


Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^[yYnN]$"), list("yYnN"))
Loader.add_constructor("tag:yaml.org,2002:bool", Loader.construct_yaml_bool)
Loader.add_constructor("tag:yaml.org,2002:timestamp", Loader.construct_text)


@dataclass(frozen=True)
class Documents:
    """What a text holds. error: line and reason when YAML refuses it. is_template: it is one for Helm or Jinja."""

    items: tuple[Any, ...]
    error: str = ""
    is_template: bool = False


def parse_documents(text: str) -> Documents:
    """Read all YAML or JSON documents of a text; lists of objects are taken apart, empty documents left out."""
    is_template = re.search(r"\{\{[-\s.\w]|\{%", text) is not None
    try:
        loaded = [item for item in yaml.load_all(text.removeprefix("\ufeff"), Loader) if item is not None]
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark else ""
        return Documents((), f"{place}{getattr(error, 'problem', None) or error}", is_template)
    return Documents(tuple(item for each in loaded for item in _flatten(each)), "", is_template)


def _flatten(item: Any) -> list:
    if isinstance(item, dict) and str(item.get("kind", "")).endswith("List") and isinstance(item.get("items"), list):
        return item["items"]
    return [item]


def render_text(documents: list) -> str:
    """The documents as YAML text, to look for the marks that installers leave."""
    return yaml.dump_all(documents, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))


def mappings(value: Any) -> Iterator[dict]:
    """Every mapping in a document, the outer ones first."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from mappings(inner)


def as_mapping(value: Any) -> dict:
    """The value when it is a mapping, else an empty one: objects of unknown origin may hold anything anywhere."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list:
    """The value when it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def metadata(item: dict) -> dict:
    """An object's metadata."""
    return as_mapping(item.get("metadata"))


def name_of(item: dict) -> str:
    """An object's name, or that of anything with one at the top; "" without."""
    return str(metadata(item).get("name") or item.get("name") or "")


def pod_spec(item: dict) -> dict:
    """The spec of the pods of a workload or of a Pod itself; a bare fragment with containers counts as one."""
    if "containers" in item:
        return item
    spec = as_mapping(item.get("spec"))
    return spec if "containers" in spec else as_mapping(as_mapping(spec.get("template")).get("spec"))


_OPENS = re.compile(r"\{\{-?\s*(?:if|range|with|block|define)\b|\{%-?\s*(?:if|for)\b")
_CLOSES = re.compile(r"\{\{-?\s*end\b|\{%-?\s*end(?:if|for)\b")


def template_variables(text: str) -> dict[str, str | None]:
    """The environment variables of a text that is no YAML, by name; comments do not count.

    The value is what follows C(value:), still with its template expression; "" where there is none, None where only a
    condition sets it.
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    found: dict[str, str | None] = {}
    depth = 0
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        depth = max(0, depth + len(_OPENS.findall(line)) - len(_CLOSES.findall(line)))
        name = re.fullmatch(r"\s*-\s+name:\s*[\"']?([A-Za-z_][A-Za-z0-9_]*)[\"']?\s*", line)
        value = re.fullmatch(r"\s*value:\s*(.*?)\s*", following)
        if name and name[1].isupper():
            found[name[1]] = None if depth else value[1].strip("\"'") if value else ""
    return found


def is_expression(text: str) -> bool:
    """Whether a value is only known once a template is rendered."""
    return "{{" in text or "{%" in text
