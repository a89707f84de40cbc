# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which FelixConfigurations carry a change from node to node, how they are put back, and what remains at the end.

A change of C(default) restarts Felix on every node at once. So each node gets an object C(node.NAME) first, or, from
Calico 3.32 on, a label that one object with a nodeSelector asks for. Both outrank C(default), which is written when all
nodes carry it: the same value from another place restarts nothing.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping

from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_marks import INT32_BITS
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_object import ANNOTATION, spellings
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import MARK, PARAMETERS, Version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_mapping, metadata, name_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.rollout import RolloutError

# The record of a change, in an annotation of each object that it wrote.
RECORD = "portcullis.io/felix-config"
# Of the object node.NAME or, with a selector, of the Node: the revision that was proven to be in force there.
PROVEN = "portcullis.io/felix-proven"
# Of a Node: the revision that it shall have.
NODE_LABEL = "portcullis.io/felix"
MANAGED_BY = {"app.kubernetes.io/managed-by": "portcullis"}
DEFAULT, SCOPED = "default", "portcullis"
PRESENT, ABSENT = "present", "absent"


@dataclasses.dataclass(frozen=True)
class Change:
    """What is to become of C(default), and what nodes have until then.

    state: present, or absent for the way back. spec: fields of C(default), None for one that is taken away.
    staged: the same for nodes, where a built-in value stands for None. notes: annotations of these objects, for what
    the API server does not take as a field. proof: what shows that a node has it.
    """

    state: str
    spec: dict
    staged: dict
    notes: dict = dataclasses.field(default_factory=dict)
    proof: dict = dataclasses.field(default_factory=dict)

    @property
    def revision(self) -> str:
        """Names the change; a label's value."""
        return hashlib.sha256(json.dumps([self.state, self.spec], sort_keys=True).encode()).hexdigest()[:10]

    def record(self, **more: object) -> str:
        """The text of the annotation."""
        found = {"revision": self.revision, "state": self.state, "spec": self.spec, "proof": self.proof, **more}
        return json.dumps(found, sort_keys=True)


def staged_values(spec: Mapping[str, object], version: Version | None, *, fits_int32: bool) -> tuple[dict, dict]:
    """The fields and the annotations that nodes get: for a field that is taken away its built-in value, where known.

    :param fits_int32: the API server takes no field with bit 31, which the built-in mask has; an annotation it does not
        look at.
    """
    found, notes = {}, {}
    for name, value in spec.items():
        built_in = PARAMETERS[name].default(version)[0] if value is None and name in PARAMETERS else None
        if value is not None:
            found[name] = value
        elif built_in not in (None, ""):
            words = spellings(name, built_in)
            if PARAMETERS[name].kind == MARK and fits_int32 and built_in > INT32_BITS:
                notes[ANNOTATION + str(words["file_key"])] = words["plain"]
            else:
                found[name] = words["object"]
    return found, notes


def record_of(item: dict | None) -> dict:
    """The record in an object, empty where there is none.

    :raises RolloutError: it cannot be read.
    """
    text = as_mapping(metadata(item or {}).get("annotations")).get(RECORD)
    if text is None:
        return {}
    kind = ("set", "before") if name_of(item or {}) == DEFAULT else ("staged", "notes", "kept")
    try:
        found = dict(json.loads(text))
        if missing := {"revision", "state", "spec", "proof", *kind} - found.keys():
            raise ValueError(", ".join(sorted(missing)))
        return found
    except (TypeError, ValueError) as error:
        raise RolloutError(
            f"FelixConfiguration {name_of(item or {})}: its annotation {RECORD} is not what was written there: take it "
            "away when no change is under way"
        ) from error


@dataclasses.dataclass(frozen=True)
class UnderWay:
    """The change that objects and Nodes carry now. nodes: those that have it, with whether it was proven."""

    change: Change
    nodes: dict[str, bool]
    is_scoped: bool


def under_way(objects: Iterable[dict], nodes: Iterable[dict]) -> UnderWay | None:
    """What was begun and is not at its end.

    :param objects: FelixConfigurations as the API server has them. :param nodes: Node objects.
    :raises RolloutError: two changes are, or a record cannot be read.
    """
    found = {name_of(item): (item, record_of(item)) for item in objects if name_of(item) != DEFAULT}
    found = {name: (item, record) for name, (item, record) in found.items() if record}
    if not found:
        return None
    if len({record["revision"] for _item, record in found.values()}) > 1:
        names = ", ".join(f"{name} ({record['revision']})" for name, (_item, record) in sorted(found.items()))
        raise RolloutError(f"two changes of Felix are under way, in {names}: delete the objects of one of them")
    record = next(iter(found.values()))[1]
    change = Change(record["state"], record["spec"], record["staged"], record["notes"], record["proof"])
    carried = {
        name.removeprefix("node."): as_mapping(metadata(item).get("annotations")).get(PROVEN) == record["revision"]
        for name, (item, _record) in found.items()
        if name.startswith("node.")
    }
    if SCOPED in found:
        carried |= {
            name_of(node): as_mapping(metadata(node).get("annotations")).get(PROVEN) == record["revision"]
            for node in nodes
            if as_mapping(metadata(node).get("labels")).get(NODE_LABEL) == record["revision"]
        }
    return UnderWay(change, carried, SCOPED in found)


def without_ours(objects: Iterable[dict]) -> list[dict]:
    """The objects as they would be without a change under way."""
    found = (restored(item) if name_of(item) != DEFAULT and record_of(item) else item for item in objects)
    return [item for item in found if item is not None]


def staged_object(change: Change, name: str, api_version: str, present: dict | None = None) -> dict:
    """The object C(node.NAME) that carries a change, made, or one of somebody else's with the fields added.

    :raises RolloutError: it carries another change.
    """
    old = record_of(present)
    if old and old["revision"] != change.revision:
        raise RolloutError(f"FelixConfiguration {name} carries another change, {old['revision']}: {_finish_first(old)}")
    if present is None:
        item = {"apiVersion": api_version, "kind": "FelixConfiguration", "metadata": {"name": name}, "spec": {}}
        item["metadata"]["labels"] = dict(MANAGED_BY)
        kept = None
    else:
        item = copy.deepcopy(present)
        spec = as_mapping(item.get("spec"))
        kept = old["kept"] if old else {field: spec.get(field) for field in change.staged}
    item["spec"] = {**as_mapping(item.get("spec")), **change.staged}
    notes = as_mapping(item["metadata"].get("annotations"))
    item["metadata"]["annotations"] = {
        **notes,
        **change.notes,
        RECORD: change.record(staged=change.staged, notes=change.notes, kept=kept),
    }
    return item


def _finish_first(record: dict) -> str:
    if record["state"] == ABSENT:
        return "go on with state absent until it is done"
    shown = json.dumps(record["spec"], sort_keys=True)
    return f"go on with {shown} until it is done, or take it back with state absent"


def check_same(found: UnderWay | None, change: Change) -> None:
    """Refuse to begin a change while another one is under way.

    :raises RolloutError: another one is.
    """
    if found and found.change.revision != change.revision:
        record = {"state": found.change.state, "spec": found.change.spec}
        raise RolloutError(
            f"another change of Felix ({found.change.revision}) is under way on {len(found.nodes)} nodes: "
            f"{_finish_first(record)}"
        )


def scoped_object(change: Change, api_version: str) -> dict:
    """The one object for all nodes that carry the label (Calico 3.32)."""
    item = staged_object(change, SCOPED, api_version)
    return {**item, "spec": {**item["spec"], "nodeSelector": f"{NODE_LABEL} == '{change.revision}'"}}


def restored(item: dict) -> dict | None:
    """An object without the change that it carries; None where it was made for it and nobody added anything.

    A field that somebody else has changed since keeps that value.
    """
    record = record_of(item)
    spec = dict(as_mapping(item.get("spec")))
    for field, value in record["staged"].items():
        if spec.get(field) == value:
            _put(spec, field, as_mapping(record["kept"]).get(field))
    spec.pop("nodeSelector", None)
    if record["kept"] is None and not spec:
        return None
    back = copy.deepcopy(item)
    back["spec"] = spec
    for note in (RECORD, PROVEN, *record["notes"]):
        back["metadata"]["annotations"].pop(note, None)
    return back


def _put(spec: dict, field: str, value: object) -> None:
    if value is None:
        spec.pop(field, None)
    else:
        spec[field] = value


def final_default(change: Change, api_version: str, present: dict | None) -> dict | None:
    """C(default) at the end of a change, None where it is to be deleted: made for an earlier one, and now empty.

    An annotation that outranks a field goes with it, and comes back with state absent. The record keeps what was there
    before the first change.
    """
    made = {"apiVersion": api_version, "kind": "FelixConfiguration", "metadata": {"name": DEFAULT}}
    item = copy.deepcopy(present) if present else made
    old, spec = record_of(present), dict(as_mapping(item.get("spec")))
    notes = dict(as_mapping(item["metadata"].get("annotations")))
    before, outranking = dict(old.get("before", {})), dict(old.get("annotations", {}))
    for field, value in change.spec.items():
        if field not in before or spec.get(field) != old["set"].get(field):
            before[field] = spec.get(field)
        for key in outranked_by(field, notes):
            outranking[key] = notes.pop(key)
        _put(spec, field, value)
    notes.pop(RECORD, None)
    if change.state == ABSENT:
        notes |= outranking
        if old.get("created") and not spec:
            return None
    else:
        given = {**old.get("set", {}), **change.spec}
        created = old.get("created", present is None)
        notes[RECORD] = change.record(set=given, before=before, annotations=outranking, created=created)
    item["spec"] = spec
    item["metadata"]["annotations"] = notes
    return item


def outranked_by(field: str, annotations: Mapping[str, str]) -> list[str]:
    """The annotations of an object that take a field's place."""
    config = PARAMETERS[field].config if field in PARAMETERS else field
    return [key for key in annotations if key.lower() == (ANNOTATION + config).lower()]


def way_back(default: dict | None) -> tuple[dict, list[str]]:
    """The fields of C(default) as they were before the first change, and what others have changed since."""
    record, spec = record_of(default), as_mapping((default or {}).get("spec"))
    fields, kept = {}, []
    for field, value in record.get("set", {}).items():
        if spec.get(field) == value:
            fields[field] = record["before"].get(field)
        else:
            kept.append(
                f"{field} is {spec.get(field)!r}, not {value!r} as it was set: somebody has changed it, it stays"
            )
    return fields, kept


def other_managers(default: dict | None, fields: Iterable[str], own: str) -> dict[str, str]:
    """By field of C(default) whoever else writes it, as the API server notes it.

    :param own: how the API server calls this program.
    """
    found = {}
    for entry in metadata(default or {}).get("managedFields") or []:
        held = as_mapping(as_mapping(as_mapping(entry).get("fieldsV1")).get("f:spec"))
        for field in fields:
            if f"f:{field}" in held and entry.get("manager") != own:
                found[field] = str(entry.get("manager"))
    return found
