# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run has come to, in one sentence and a detail, for the report's head and the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_text import numbered, visible

# In the order of a reader's interest. The words are what the report calls each state.
STATES = {
    "failed": "failed",
    "rolled_back": "rolled back",
    "unreachable": "unreachable",
    "not_proven": "not proven",
    "not_reached": "not reached",
    "would_change": "would change",
    "changed": "changed",
    "unchanged": "already as wanted",
    "proven": "proven",
    "looked_at": "looked at",
}
BROKEN = ("failed", "rolled_back", "unreachable")
UNFINISHED = (*BROKEN, "not_proven", "not_reached")
FINISHED = tuple(state for state in STATES if state not in UNFINISHED)
STOPPING_PHASES = ("preflight", "fix", "change", "cluster", "verify")
PHASES = (*STOPPING_PHASES, "done")


def count_states(nodes: Mapping[str, Mapping]) -> dict[str, int]:
    """Return the number of nodes in each state, and in total."""
    found = Counter(node["state"] for node in nodes.values())
    return {"total": len(nodes), **{state: found[state] for state in STATES}}


def outcome_of(run: Mapping, problems: list[dict]) -> dict:
    """Return what a run has come to: status, phase, wave, and the words for it.

    :param run: the input of ``report.build``, checked.
    :param problems: its findings as C(group_findings) returns them.
    """
    stopped, counts = run["stopped"], count_states(run["nodes"])
    blockers = [problem for problem in problems if problem["severity"] == BLOCKER and not problem["waived"]]
    phase, wave, reason = "", None, ""
    if stopped is not None:
        status, phase, reason = "stopped", str(stopped["phase"]), visible(stopped.get("reason") or "").rstrip(".")
        if phase == "change" or (phase == "fix" and any(counts[state] for state in BROKEN)):
            wave, last_wave = _waves(run["nodes"])
            sentence = _change_sentence(counts, wave, last_wave)
        else:
            sentence = _stopped_sentence(phase, counts, blockers, reason, check_mode=run["check_mode"])
        detail = "" if phase == "preflight" else f"{reason}. {_tally(counts)}" if reason else _tally(counts)
    elif run["phase"] != "done":
        status, phase = "running", run["phase"]
        wave = _waves(run["nodes"])[0] if phase in ("fix", "change") else None
        sentence, detail = _running_words(phase, run["check_mode"], counts, wave)
    else:
        status = "completed_with_trouble" if any(counts[state] for state in UNFINISHED) else "completed"
        accepted = any(problem["severity"] == BLOCKER and problem["waived"] for problem in problems)
        sentence, detail = _completed_words(run["check_mode"], counts, len(blockers), accepted)
    return {
        "status": status,
        "phase": phase,
        "wave": wave,
        "reason": reason,
        "sentence": sentence,
        "detail": detail.rstrip(),
    }


def _waves(nodes):
    """Return the wave that the run has come to and the last one planned, None for what the nodes do not tell."""
    broken = [node.get("wave") or 0 for node in nodes.values() if node["state"] in BROKEN]
    reached = [node.get("wave") or 0 for node in nodes.values() if node["state"] != "not_reached"]
    ahead = [node.get("wave") for node in nodes.values() if node["state"] == "not_reached"]
    wave = max(broken, default=0) or max(reached, default=0) or None
    return wave, None if None in ahead else max([*reached, *ahead], default=0) or None


def _count_words(counts, states):
    return ", ".join(f"{counts[state]} {STATES[state]}" for state in states if counts[state])


def _tally(counts):
    return f"Of {numbered(counts['total'], 'node')}: {_count_words(counts, STATES)}." if counts["total"] else ""


def _running_words(phase, check_mode, counts, wave):
    """Return the sentence and the detail of a run that goes on, for whoever finds the file after it was killed."""
    total = numbered(counts["total"], "node")
    place = {
        "preflight": "the preflight had ended",
        "fix": f"wave {wave} of what can be mended had ended" if wave else "what can be mended had been tried",
        "change": f"wave {wave} of the change had ended" if wave else "a wave of the change had ended",
        "cluster": "the cluster's objects had been seen to",
        "verify": "the proof had ended",
    }[phase]
    if check_mode:
        done = f"{counts['would_change']} of {total} would change"
        advice = "it was cut short, and it changed nothing"
    else:
        done = f"{counts['changed']} of {total} changed"
        advice = "it was cut short and may have changed more since: run the playbook again"
    return (
        f"In progress when this was written: {done}, {place}.",
        f"{_tally(counts)} If this run is no longer at work, {advice}.".lstrip(),
    )


def _completed_words(check_mode, counts, blocker_count, accepted):
    """Return the sentence and the detail of a run that was not stopped."""
    total = numbered(counts["total"], "node")
    trouble = _count_words(counts, UNFINISHED)
    done = _count_words(counts, FINISHED) or "none was changed"
    if counts["looked_at"] and not blocker_count:
        sentence = f"Looked at {numbered(counts['looked_at'], 'node')}: nothing is in the way"
        return (
            f"{sentence} but what was accepted." if accepted else f"{sentence}.",
            f"Not every node could be looked at: {trouble}." if trouble else "",
        )
    if check_mode:
        detail = f"Not every node could be checked: {trouble}." if trouble else ""
        if blocker_count:
            because = numbered(blocker_count, "blocker")
            detail = f"A real run would stop before any change because of {because}. {detail}"
        return f"Checked {total} and changed nothing: {done}.", detail
    if trouble:
        return f"Completed, but not on every node: {trouble}.", f"Of {total}: {done}."
    return f"Completed on {total}: {done}.", ""


def _stopped_sentence(phase, counts, blockers, reason, *, check_mode):
    if phase == "preflight":
        return _preflight_sentence(blockers, reason)
    if phase == "fix":
        if check_mode:
            there = numbered(len(blockers), "blocker")
            return f"Changed nothing: {there} now, and only a real run shows which of them can be mended."
        left = f": {numbered(len(blockers), 'blocker')} left" if blockers else ""
        return f"Not everything could be mended{left}."
    if phase == "cluster":
        return "Stopped at the cluster's objects, after the nodes."
    if counts["changed"]:
        return "The changes were made, but they could not be proven."
    return "Nothing was changed, and not all is proven."


def _preflight_sentence(blockers, reason):
    if not blockers:
        return f"Stopped before any change: {reason}." if reason else "Stopped before any change."
    affected = {node for problem in blockers for variant in problem["observed"] for node in variant["nodes"]}
    places = [f"on {numbered(len(affected), 'node')}"] if affected else []
    if not all(problem["node_count"] for problem in blockers):
        places.append("in the cluster or fleet as a whole")
    return f"Stopped before any change by {numbered(len(blockers), 'blocker')}, {' and '.join(places)}."


def _change_sentence(counts, wave, last_wave):
    place = f"in wave {wave}" if wave else "during the changes"
    total = f" of {last_wave}" if wave and last_wave else ""
    trouble = _count_words(counts, BROKEN)
    return f"Stopped {place}{total}: {trouble}." if trouble else f"Stopped {place}{total}."
