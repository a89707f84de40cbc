# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file that an owner makes containerd's configuration of, edited instead of the file that it generates.

The change is planned on the generated files as if they could be edited. What differs by then, value by value, is said
in the source: in a drop-in, in the lines that a template appends, or in a template of the whole file. What a source
cannot say is a finding.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .containerd_edit import (
    BOM,
    EditError,
    apply_splices,
    dotted,
    is_same,
    literal,
    pruned,
    remove_path,
    set_value,
    value_at,
)
from .containerd_effective import Daemon, effective_registry
from .containerd_files import ConfigFile, UnreadableError, Write, read_config
from .containerd_migrate import HostsDirectory
from .containerd_nri import nri_state
from .containerd_plan import Options, Plan, plan_present
from .containerd_rancher import Registries, add_registries
from .containerd_tables import Path, effective_value

Files = Mapping[str, bytes | None]
Change = tuple[Path, Any]

DROP_IN, MERGED, APPENDIX, TEMPLATE = "drop-in", "merged", "appendix", "template"
DROP_IN_NAME = "portcullis.toml"
K0S_DIRECTORY = "/etc/k0s/containerd.d"
_COMMENT = "# Written by portcullis.fleet.containerd_config, which takes this file away again with state: absent.\n"
# https://docs.k3s.io/advanced#base-template
_BASE = '{{ template "base" . }}\n'
_BASE_LINE = re.compile(
    r"""\A(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*\{\{-?[ \t]*template[ \t]+"base"[ \t]+\.[ \t]*-?\}\}[ \t]*(?:\n|\Z)"""
)


@dataclass(frozen=True)
class Source:
    """One file of an owner.

    kind: C(drop-in), which containerd imports; C(merged), which the owner merges into what it generates; C(appendix),
    a template that ends with lines of its own; C(template), the whole file with variables. content: None where there
    is no file yet. variables: what the owner puts in, by name.

    registries_path: where k3s and RKE2 take registries from, with what is there; empty for others.
    """

    owner: str
    kind: str
    path: str
    content: bytes | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    registries_path: str = ""
    registries: bytes | None = None


def find_source(owner: str, files: Files, sources: Files) -> Source | None:
    """Return the source of the main file, None for an owner without one.

    k3s and RKE2 import C(config-v3.toml.d), for version 2 C(config.toml.d), since 2026 (k3s-io/k3s#13680). Before, they
    render C(config-v3.toml.tmpl), else C(config.toml.tmpl), which is of version 2 (https://docs.k3s.io/advanced). k0s
    imports C(/etc/k0s/containerd.d) from 1.36 on, and merges it into C(/run/k0s/containerd-cri.toml) before
    (k0sproject/k0s pkg/component/worker/containerd/configurer.go). MicroK8s makes the file of containerd-template.toml
    with sed (canonical/microk8s microk8s-resources/wrappers/run-containerd-with-args, 1.36).

    :param files: by path in load order, the main file first. :param sources: what the node has of possible sources.
    """
    main = next(iter(files))
    directory = posixpath.dirname(main)
    if owner == "microk8s":
        path = f"{directory}/containerd-template.toml"
        variables = {"SNAP_DATA": posixpath.dirname(directory), "SNAP_COMMON": "/var/snap/microk8s/common"}
        return Source(owner, TEMPLATE, path, sources[path], variables) if sources.get(path) is not None else None
    if owner not in ("k3s", "rke2", "k0s"):
        return None
    values = _values(files[main])
    registries = "" if owner == "k0s" else f"/etc/rancher/{owner}/registries.yaml"
    imported = _imported_directory(values)
    if imported or owner == "k0s":
        path, kind = f"{imported or K0S_DIRECTORY}/{DROP_IN_NAME}", DROP_IN if imported else MERGED
    else:
        path, kind = f"{directory}/{'config-v3' if values.get('version', 0) >= 3 else 'config'}.toml.tmpl", APPENDIX
    content = files.get(path, sources.get(path))
    return Source(owner, kind, path, content, registries_path=registries, registries=sources.get(registries))


def plan_source(
    source: Source,
    files: Files,
    daemon: Daemon,
    options: Options,
    hosts: Mapping[str, Mapping[str, HostsDirectory]] | None = None,
    *,
    present: frozenset[str] = frozenset(),
) -> Plan:
    """Return the plan with the source edited in the place of the generated files.

    C(rendered) holds the generated files as the owner will make them, where the daemon does not read the source itself.
    """
    plan, generated = Plan(), []
    try:
        virtual = _virtual(source, files, daemon)
        locked = {path: reason for path, reason in options.locked.items() if path in virtual}
        own_hosts = () if source.registries_path else options.hosts
        plan = plan_present(virtual, daemon, replace(options, locked=locked, hosts=own_hosts), hosts, present=present)
        main = next(iter(files))
        generated = [write for write in plan.writes if write.path == main]
        if generated:
            text = _said(source, generated[0], daemon)
            if source.kind == DROP_IN:
                _prove_drop_in(source, text, files, {**virtual, main: generated[0].after}, daemon)
            plan.writes = [write for write in plan.writes if write.path != main]
            plan.writes.append(Write(source.path, source.content, text.encode()))
            plan.rendered = _rendered(source, files, generated[0], text)
        if source.registries_path and not plan.findings:
            registries = Registries(source.owner, source.registries_path, source.registries)
            add_registries(plan, registries, options.hosts, present)
    except UnreadableError as error:
        return plan.refuse(error.finding_id, str(error), f"a file that {source.owner} can use", error.remedy)
    except EditError as error:
        return _cannot_say(plan, source, generated, str(error))
    return plan


def _virtual(source: Source, files: Files, daemon: Daemon) -> dict[str, bytes | None]:
    """Return the files as if the main one said itself what the source, and what the owner makes of it, says.

    :raises EditError: it cannot. :raises UnreadableError: the source cannot be read.
    """
    main = next(iter(files))
    merged = _merged_file(source, files)
    virtual = {path: content for path, content in files.items() if path not in (source.path, merged)}
    if merged:
        # The large file is the one to begin with.
        virtual[main] = _with_values(files[merged] or b"", _values(files[main]))
    if source.path in files:
        own = read_config(source.path, source.content or b"", daemon)
        virtual[main] = _with_values(virtual[main] or b"", own.values)
    return virtual


def _merged_file(source: Source, files: Files) -> str:
    """Return the file that k0s merges its drop-ins into, empty when there is none."""
    return next((path for path in files if path.startswith("/run/k0s/")), "") if source.kind == MERGED else ""


def _rendered(source: Source, files: Files, generated: Write, text: str) -> list[Write]:
    """Return the generated files as the owner will make them of the source's text, none where the daemon reads that.

    :raises EditError: a file of the owner cannot be edited so.
    """
    if source.kind == DROP_IN:
        return []
    if source.kind == APPENDIX:
        head, _tail, base = _appendix(source, generated)
        return [Write(generated.path, generated.before, (base + text[len(head) :]).encode())]
    merged = _merged_file(source, files)
    if not merged:
        return [generated]
    main = next(iter(files))
    there = _values(files[merged]).get("plugins", {})
    writes = []
    for path, is_in_it in ((main, False), (merged, True)):
        changes = [
            (at, value) for at, value in _changed(generated) if (at[0] == "plugins" and at[1] in there) == is_in_it
        ]
        text = _edited(path, (files[path] or b"").decode("utf-8"), changes)
        writes.append(Write(path, files[path], text.encode()))
    return [write for write in writes if write.before != write.after]


def _said(source: Source, generated: Write, daemon: Daemon) -> str:
    """Return the source's text with the changes of the generated file.

    :raises EditError: it cannot say them. :raises UnreadableError: it cannot be read.
    """
    if source.kind == APPENDIX:
        return _with_appendix(source, generated)
    text = read_config(source.path, source.content or b"", daemon).text
    if source.kind == TEMPLATE:
        _judge_template(source, text, generated)
    elif not _values(source.content):
        version = _values(generated.before).get("version")
        text += ("\n" if text and not text.endswith("\n") else "") + _COMMENT
        text += f"version = {version}\n" if version else ""
    return _edited(source.path, text, _changed(generated))


def _edited(name: str, text: str, changes: Iterable[Change]) -> str:
    """Return a text of TOML with the changes; a value of None goes.

    :raises EditError: a value that is to go is not there.
    """
    for path, value in changes:
        if value is not None:
            text = apply_splices(text, set_value(text, path[:-1], path[-1], value))
            continue
        if value_at(_values(text.encode()), path) is None:
            raise EditError(f"{dotted(path)} would have to go, and {name} can only add")
        text = apply_splices(text, remove_path(text, path))
    return text


def _with_appendix(source: Source, generated: Write) -> str:
    """Return a template of k3s or RKE2 with more lines at its end.

    :raises EditError: a table would be there twice, which containerd refuses (k3s-io/docs#566).
    """
    head, tail, base = _appendix(source, generated)
    tail = _edited(source.path, tail, _changed(generated))
    try:
        is_so = tomllib.loads(base + tail) == _values(generated.after)
    except tomllib.TOMLDecodeError as error:
        raise EditError(f"a table would be in {generated.path} twice: {error}") from error
    if not is_so:
        raise EditError(f"what is appended would mean something else in {generated.path}")
    return head + tail


def _appendix(source: Source, generated: Write) -> tuple[str, str, str]:
    """Return what a template has up to the base, what it appends, and what the base is rendered to.

    :raises EditError: it is another kind of template, or was not rendered yet.
    """
    try:
        template = _BASE if source.content is None else source.content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise EditError(f"{source.path} is not UTF-8") from error
    match = _BASE_LINE.match(template)
    tail = template[match.end() :] if match else ""
    if not match or "{{" in tail:
        raise EditError(f'{source.path} is more than {{{{ template "base" . }}}} and lines without expressions')
    rendered = (generated.before or b"").decode("utf-8")
    if not rendered.endswith(tail):
        raise EditError(f"{generated.path} does not end as {source.path} does: restart {source.owner} first")
    return match.group(), tail, rendered[: len(rendered) - len(tail)] + ("\n" if source.content is None else "")


def _judge_template(source: Source, text: str, generated: Write) -> None:
    """Make sure that a template says now what the rendered file does, as far as it will change.

    :raises EditError: it does not.
    """
    template, rendered = _values(text.encode()), _values(generated.before)
    for path, _value in _changed(generated):
        there = value_at(template, path)
        if isinstance(there, str):
            for name, value in source.variables.items():
                there = there.replace(f"${{{name}}}", value)
        if not is_same(there, value_at(rendered, path)):
            raise EditError(f"{dotted(path)} is not the same in {source.path} as in use: restart {source.owner} first")


def _prove_drop_in(source: Source, text: str, files: Files, wanted: Files, daemon: Daemon) -> None:
    """Hold what the daemon makes of the files with the drop-in against what was planned.

    :raises EditError: it is something else. On 1.x a table of a drop-in replaces the whole table of a plugin.
    """
    configs = [
        read_config(path, text.encode() if path == source.path else content or b"", daemon)
        for path, content in _with_drop_in(files, source.path).items()
    ]
    planned = [read_config(path, content or b"", daemon) for path, content in wanted.items()]
    own = next(config for config in configs if config.path == source.path).values
    others = [config for config in configs if config.path != source.path]
    if not daemon.merges_tables:
        for name in own.get("plugins", {}):
            twice = next((config.path for config in others if name in config.values.get("plugins", {})), "")
            if twice:
                version = ".".join(map(str, daemon.version))
                raise EditError(f"containerd {version} would take the whole table of {name} from it, not from {twice}")
    for path, value in _changes({}, own):
        found, place = effective_value(configs, daemon, path)
        if not is_same(found, value):
            raise EditError(f"{dotted(path)} would be {found!r}, since {place} says so too")
    if _summary(configs, daemon) != _summary(planned, daemon):
        raise EditError("more than what was asked for would change")


def _summary(configs: list[ConfigFile], daemon: Daemon) -> tuple:
    registry = effective_registry([(config.path, config.values) for config in configs], daemon)
    return registry.config_path, pruned(registry.other), registry.version, nri_state(configs, daemon)


def _cannot_say(plan: Plan, source: Source, generated: list[Write], reason: str) -> Plan:
    """Refuse, and name the lines that somebody would have to write."""
    changes = [item for write in generated for item in _changed(write)]
    lines = [
        f"without {dotted(path)}" if value is None else f"[{dotted(path[:-1])}] {path[-1]} = {literal(value)}"
        for path, value in changes
    ]
    return plan.refuse(
        "containerd.source_cannot_say",
        f"{source.path}, which {source.owner} makes its configuration of: {reason}",
        "a source that can say what was asked for",
        f"let {source.owner} render {'; '.join(lines) or 'it'}, by hand",
    )


def _imported_directory(values: dict) -> str:
    """Return the directory whose files the main file imports by a wildcard, empty when there is none."""
    patterns = [item for item in values.get("imports", []) if isinstance(item, str)]
    return next((item[: -len("/*.toml")] for item in patterns if re.fullmatch(r"/[^*?\[]+/\*\.toml", item)), "")


def _with_drop_in(files: Files, path: str) -> Files:
    """Return the files with one more in its place, as the wildcard finds it: after what sorts before it."""
    if path in files:
        return files
    main, directory = next(iter(files)), posixpath.dirname(path)
    patterns = [item for item in _values(files[main]).get("imports", []) if isinstance(item, str)]
    earlier = patterns[: patterns.index(f"{directory}/*.toml")]
    before = [
        item
        for item in files
        if item == main
        or (posixpath.dirname(item) == directory and item < path)
        or any(fnmatch.fnmatchcase(item, pattern) for pattern in earlier)
    ]
    ordered: dict[str, bytes | None] = {}
    for item, content in files.items():
        ordered[item] = content
        if item == before[-1]:
            ordered[path] = None
    return ordered


def _with_values(content: bytes, values: dict) -> bytes:
    """Return a file as if the values of a drop-in stood in it.

    :raises EditError: they cannot.
    """
    text = content.decode("utf-8")
    for path, value in _changes({}, values):
        if path != ("version",):
            text = apply_splices(text, set_value(text, path[:-1], path[-1], value))
    return text.encode()


def _changes(before: dict, after: dict, at: Path = ()) -> Iterator[Change]:
    """Yield what differs: each value that is new, and None for each key or table that is gone."""
    for key in sorted(before.keys() - after.keys()):
        yield (*at, key), None
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict):
            yield from _changes(old if isinstance(old, dict) else {}, value, (*at, key))
        elif not is_same(old, value):
            yield (*at, key), value


def _changed(write: Write) -> list[Change]:
    return list(_changes(_values(write.before), _values(write.after)))


def _values(content: bytes | None) -> dict:
    """Return a file's values, none where it cannot be read; the plan then says why."""
    try:
        return tomllib.loads((content or b"").decode("utf-8").removeprefix(BOM))
    except ValueError:
        return {}
