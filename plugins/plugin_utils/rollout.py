# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a change that goes from node to node fails."""

from __future__ import annotations


class RolloutError(Exception):
    """The change cannot be made, or cannot go on: what was found, and what to do."""


class WorseError(Exception):
    """The node is worse off than before; the message says in what, and whether it was put back."""
