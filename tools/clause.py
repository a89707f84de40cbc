# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A clause of a requirement text, and what those without a check have in common."""

from __future__ import annotations

import dataclasses

CALICO = "calico"
SECURE_WORKLOAD = "secure-workload"
RUNTIME_ENFORCER = "runtime-enforcer"

WINDOWS_FILES = "a Windows node's files are not read; what the API server says of the node is judged"
NO_DEMAND = "demands nothing of a node or cluster: "


@dataclasses.dataclass(frozen=True)
class Clause:
    """One demand of a text. Either C(checks) names what looks at it, or C(reason) says why nothing does.

    Both are set where a check sees a part of it; then C(reason) says what it does not see.
    """

    document: str
    heading: str
    quote: str
    checks: tuple[str, ...] = ()
    reason: str = ""
