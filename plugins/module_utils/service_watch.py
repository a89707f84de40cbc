# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a Service answers from this node all the time: connections are tried at a pace, however long each takes.

Each attempt has its own socket, so that one that hangs hides nothing of the next.
"""

from __future__ import annotations

import select
import socket
import time

from . import detached

PACE_S = 0.05
ATTEMPT_TIMEOUT_S = 0.5


class Tally:
    """What the attempts came to. Times are seconds of a monotonic clock; an attempt counts from when it began."""

    def __init__(self, began):
        """Count from this time on."""
        self.attempts = self.failures = 0
        self.longest_gap_s = 0.0
        self._began = self._last_success = began
        self._failed_since = False
        self.first_failure_s = self.last_failure_s = None

    def add(self, began, succeeded):
        """Count an attempt that has ended; attempts end in any order."""
        self.attempts += 1
        if succeeded:
            if self._failed_since and began > self._last_success:
                self.longest_gap_s = max(self.longest_gap_s, began - self._last_success)
                self._failed_since = False
            self._last_success = max(self._last_success, began)
            return
        self.failures += 1
        if began > self._last_success:
            self._failed_since = True
        after = began - self._began
        self.first_failure_s = after if self.first_failure_s is None else min(self.first_failure_s, after)
        self.last_failure_s = max(after, self.last_failure_s or 0.0)

    def answer(self, now):
        """Return C({attempts, failures, longest_gap_s, first_failure_s, last_failure_s}); a gap that is open counts."""
        open_gap = now - self._last_success if self._failed_since else 0.0
        return {
            "attempts": self.attempts,
            "failures": self.failures,
            "longest_gap_s": round(max(self.longest_gap_s, open_gap), 3),
            "first_failure_s": self.first_failure_s and round(self.first_failure_s, 3),
            "last_failure_s": self.last_failure_s and round(self.last_failure_s, 3),
        }


def start(address, port, duration_s):
    """Leave a watcher behind that tries the Service for at most so many seconds; one of an earlier run ends."""
    name = watcher_name(address, port)
    detached.collect(name)
    detached.start(name, lambda door: _watch(address, port, door, duration_s))


def collect(address, port):
    """End the watcher; what C(Tally.answer) tells, None where there is no watcher."""
    return detached.collect(watcher_name(address, port))


def watcher_name(address, port):
    """What tells the watcher of a Service from others."""
    return f"service-{address}-{port}"


def answers(address, port):
    """Whether the Service answers now, within the time of one attempt."""
    try:
        socket.create_connection((address, port), ATTEMPT_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _watch(address, port, door, duration_s):
    began = time.monotonic()
    tally, open_ones, due = Tally(began), {}, began
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    while True:
        now = time.monotonic()
        if now >= due:
            due = max(due + PACE_S, now)  # a machine that stood still does not catch up
            _begin(family, (address, port), now, open_ones, tally)
        for stream in [stream for stream, since in open_ones.items() if now - since > ATTEMPT_TIMEOUT_S]:
            tally.add(open_ones.pop(stream), succeeded=False)
            stream.close()
        ready, writable, _error = select.select([door], list(open_ones), [], max(0.0, due - time.monotonic()))
        for stream in writable:
            tally.add(open_ones.pop(stream), succeeded=stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0)
            stream.close()
        asked = bool(ready) and detached.hand_over(door, tally.answer(time.monotonic()))
        if asked or time.monotonic() - began > duration_s:
            return


def _begin(family, place, now, open_ones, tally):
    stream = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        stream.connect(place)
    except BlockingIOError:
        open_ones[stream] = now
        return
    except OSError:
        tally.add(now, succeeded=False)
    else:
        tally.add(now, succeeded=True)
    stream.close()
