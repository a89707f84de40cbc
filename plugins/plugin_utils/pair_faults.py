# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""At which end of failed pairs the fault is: what many pairs say together, one pair cannot."""

from __future__ import annotations

from collections.abc import Collection, Iterable

FROM, TO = "from", "to"


def blamed(
    tries: Iterable[tuple[str, str, bool]], outside: Collection[str] = ()
) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """By direction and end, the pairs (source, target) that failed because of it.

    A source is blamed when nothing that it tried arrived, and everything that it tried is reached by others. Else it is
    the target.

    :param tries: C([(source, target, failed)]).
    :param outside: targets that are not blamed while anyone reaches them.
    """
    known = list(tries)
    well = {target for _source, target, failed in known if not failed}
    others: dict[str, list[tuple[str, bool]]] = {}
    for source, target, failed in known:
        if source != target:
            others.setdefault(source, []).append((target, failed))
    silent = {source for source, own in others.items() if all(failed and target in well for target, failed in own)}
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for source, target, failed in known:
        if not failed:
            continue
        is_source = (source in silent and source != target) or (target in outside and target in well)
        found.setdefault((FROM, source) if is_source else (TO, target), []).append((source, target))
    return found
