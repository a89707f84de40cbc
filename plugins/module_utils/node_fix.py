# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mend a node by a plan, with a journal entry before anything is changed, and take all of it back.

A run that was killed leaves its entry unfinished. The next one completes it, since every step can be taken twice; one
that takes changes back puts it back first. Where a step fails, what was done before it is put back.
"""

from __future__ import annotations

import contextlib

from .files import (
    ContentChanged,
    decoded,
    encoded,
    missing_directories,
    read_snapshot,
    remove_directories,
    replace,
    restore,
    sha256,
)
from .journal import BEGUN, COMMITTED, Journal, JournalError
from .node_fix_plan import as_text, make_plan
from .node_fix_rules import bring_back, expected_jumps, lost_pod_rules, read_pod_rules
from .node_fix_steps import BEFORE_FILES, StepError, can_be_untaken, describe, take, untake
from .places import complain_places

KIND = "node_fix"
LOCK_TIMEOUT_S = 30
LIVE = "the running system"


class FixError(Exception):
    """The node was not mended. C(result) holds what the module returns beside the message."""

    def __init__(self, message, **result):
        super().__init__(message)
        self.result = result


def new_result():
    """Return the result of a run that has done nothing."""
    return {
        "changed": False,
        "fixes": [],
        "refused": [],
        "left": [],
        "restarted": [],
        "recovered": "",
        "backup": "",
        "diff": [],
    }


def mend(wishes, check_mode, journal=None):
    """Do what the wishes ask for.

    :raises FixError: nothing is changed, or the node is back where it was, or rules of others did not come back; the
        message says which.
    """
    journal, result = journal or Journal(), new_result()
    if check_mode:
        journal.check()
        journal.wait(LOCK_TIMEOUT_S)
        if unfinished := journal.unfinished(KIND):
            result["recovered"] = f"the killed run {unfinished[0].name} would be completed first"
            result["changed"] = True
        plan_into(result, make_plan(wishes))
        return result
    with journal.lock(LOCK_TIMEOUT_S):
        for entry in journal.unfinished(KIND):
            carry_out(journal, entry, result)
            result["recovered"] = f"the change of the killed run {entry.name} was completed"
        plan = make_plan(wishes)
        plan_into(result, plan)
        if not plan.is_empty:
            carry_out(journal, begin(journal, plan), result)
    return result


def plan_into(result, plan):
    """Put what a plan does into the result.

    :raises FixError: a file of it cannot be written.
    """
    if reason := complain_places(plan.contents, ""):
        raise FixError(f"{reason}; nothing was changed", **result)
    befores = {path: read_snapshot(path).content for path in plan.contents}
    result.update(fixes=plan.fixes, refused=plan.refused, diff=diff_of(befores, plan.contents, plan.steps))
    result["changed"] = result["changed"] or not plan.is_empty


def diff_of(befores, afters, steps, *, back=False):
    """Return the diffs of files and of the running system, as Ansible shows them."""
    diffs = [
        {
            "before_header": path,
            "after_header": path,
            "before": as_text(befores[path] or b""),
            "after": as_text(afters[path] or b""),
        }
        for path in sorted(afters)
        if befores[path] != afters[path]
    ]
    states = dict.fromkeys(words[::-1] if back else words for words in map(describe, steps) if words)
    if states:
        before, after = ("".join(f"{words[side]}\n" for words in states) for side in (0, 1))
        diffs.append({"before_header": LIVE, "after_header": LIVE, "before": before, "after": after})
    return diffs


def begin(journal, plan):
    """Record a plan in the journal."""
    snapshots = [read_snapshot(path) for path in plan.contents]
    contents = {snapshot.path: content for snapshot, content in zip(snapshots, plan.contents.values())}
    note = {
        "steps": plan.steps,
        "contents": {path: encoded(content) for path, content in contents.items()},
        "directories": sorted({path for name in contents for path in missing_directories(name)}),
        "jumps": expected_jumps() if any(step["kind"] == "unit" for step in plan.steps) else {},
    }
    return journal.begin(KIND, snapshots, {path: sha256(content) for path, content in contents.items()}, note)


def carry_out(journal, entry, result):
    """Take the steps of an entry and write its files, or put everything back."""
    steps = entry.note["steps"]
    pods = pod_rules_before([entry])
    try:
        for step in steps:
            if step["kind"] in BEFORE_FILES:
                take(step)
        for snapshot in entry.files:
            if read_snapshot(snapshot.path).sha256 != entry.planned[snapshot.path]:
                replace(snapshot, decoded(entry.note["contents"][snapshot.path]))
        if entry.state == BEGUN:
            journal.applied(entry)
        for step in steps:
            if step["kind"] not in BEFORE_FILES:
                take(step)
    except (StepError, OSError, ContentChanged) as error:
        try:
            left = put_back(journal, entry)
            result.update(changed=False, rolled_back=True, left=left)
            words = said_of(left)
        except (JournalError, OSError) as trouble:
            result["changed"], words = True, f"and not all of it could be put back: {trouble}"
        result["backup"] = str(journal.directory / entry.name)
        reasons = settled([entry], pods, result)
        raise FixError("; ".join([str(error), words, *reasons]), **result) from error
    journal.commit(entry)
    result.update(changed=True, backup=str(journal.directory / entry.name))
    settle([entry], pods, result)


def pod_rules_before(entries):
    """Return the rules of pods, where a manager is to be switched that may flush them."""
    is_switched = any(step["kind"] == "unit" for entry in entries for step in entry.note["steps"])
    return read_pod_rules() if is_switched else set()


def settled(entries, pods, result):
    """Wait for the rules that a switched manager has flushed; return why some did not come back, one text for each."""
    before = {}
    for entry in entries:
        for name, items in entry.note["jumps"].items():
            before[name] = sorted({*before.get(name, ()), *items})
    restarted, reason = bring_back(before)
    result["restarted"] += restarted
    return [text for text in (reason, lost_pod_rules(pods)) if text]


def settle(entries, pods, result):
    """Wait for the rules that a switched manager has flushed.

    :raises FixError: they did not come back.
    """
    if reasons := settled(entries, pods, result):
        raise FixError(f"the change was made, but {'; '.join(reasons)}", **result)


def said_of(left):
    """Return how the node is after something was put back."""
    words = "; ".join(f"{item['what']} was left: {item['reason']}" for item in left)
    return f"everything else was put back, but {words}" if words else "everything was put back"


def put_back(journal, entry):
    """Undo an entry: its files, then its steps from the last to the first.

    :returns: C([{what, reason}]) of what stays.
    """
    for snapshot in reversed(entry.files):
        # One that cannot be put back keeps nothing else from it; the journal tries again below, and says why.
        with contextlib.suppress(OSError, ContentChanged):
            if read_snapshot(snapshot.path).sha256 == entry.planned[snapshot.path]:
                restore(snapshot)
    left = []
    for step in reversed(entry.note["steps"]):
        if reason := untake(step):
            left.append({"what": step["name"], "reason": reason})
    journal.roll_back(entry)
    remove_directories(entry.note["directories"])
    return left + [{"what": item["path"], "reason": item["reason"]} for item in entry.left]


def give_back(check_mode, journal=None):
    """Take back every change of this module on the node.

    :raises FixError: rules of others did not come back.
    """
    journal, result = journal or Journal(), new_result()
    if check_mode:
        journal.check()
        journal.wait(LOCK_TIMEOUT_S)
        predict_back(held(journal), result)
        return result
    with journal.lock(LOCK_TIMEOUT_S):
        entries = held(journal)
        predict_back(entries, result)
        pods = pod_rules_before(entries)
        for entry in entries:
            result["left"] += put_back(journal, entry)
            result["backup"] = str(journal.directory / entry.name)
        settle(entries, pods, result)
    return result


def held(journal):
    """Return the entries that are not taken back, newest first."""
    unfinished = journal.unfinished(KIND)
    return [*unfinished, *(entry for entry in journal.history(KIND) if entry.state == COMMITTED)]


def predict_back(entries, result):
    """Put into the result what taking back these entries changes."""
    befores, afters = {}, {}
    for entry in entries:
        for snapshot in entry.files:
            path = snapshot.path
            if path not in befores:
                befores[path] = afters[path] = read_snapshot(path).content
            current = "" if afters[path] is None else sha256(afters[path])
            if current == entry.planned[path]:
                afters[path] = snapshot.content
    try:
        steps = [step for entry in entries for step in reversed(entry.note["steps"]) if can_be_untaken(step)]
    except StepError as error:
        raise FixError(f"{error}; nothing was changed", **result) from error
    if reason := complain_places([path for path in afters if befores[path] != afters[path]], ""):
        raise FixError(f"{reason}; nothing was changed", **result)
    result["diff"] = diff_of(befores, afters, steps, back=True)
    result["changed"] = bool(result["diff"])
