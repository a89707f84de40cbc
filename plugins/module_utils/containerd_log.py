# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of containerd's log is worth showing to a person: the lines that tell of trouble, and not too many."""

from __future__ import annotations

import re

LINES = 12
LINE_CHARACTERS = 500
# logrus' text and JSON formats, the daemon's last words, a panic of Go's runtime, and systemd's "Failed to start".
_TELLING = re.compile(
    r"level=(error|fatal|panic|warning)|\"level\":\"(error|fatal|panic|warning)|^containerd: |panic:|[Ff]ailed"
)


def telling_lines(text):
    """Return the last lines that tell of trouble, at most LINES; where none does, the last lines."""
    lines = [line.rstrip()[:LINE_CHARACTERS] for line in text.splitlines()]
    return ([line for line in lines if _TELLING.search(line)] or lines)[-LINES:]
