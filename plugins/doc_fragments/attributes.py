# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """What every module says about check mode, diff mode and repetition; the module adds C(support)."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return the changed status prediction without modifying the target.
  diff_mode:
    description: Returns details on what has changed, or would be changed, when in diff mode.
  idempotent:
    description: When run twice in a row outside check mode with the same arguments, the second run changes nothing.
"""

    READ_ONLY = r"""
options: {}
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: Nothing is ever changed.
  idempotent:
    support: full
"""
