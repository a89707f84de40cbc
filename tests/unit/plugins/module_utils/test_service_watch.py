# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The longest time without an answer is counted from the last attempt that succeeded to the next that does."""

from __future__ import annotations

import socket
import time

from ansible_collections.portcullis.fleet.plugins.module_utils import service_watch
from ansible_collections.portcullis.fleet.plugins.module_utils.service_watch import Tally


def tally(*attempts: tuple[float, bool]) -> Tally:
    found = Tally(0.0)
    for began, succeeded in attempts:
        found.add(began, succeeded=succeeded)
    return found


def test_no_failure_no_gap():
    assert tally((0.0, True), (0.05, True)).answer(0.1) == {
        "attempts": 2, "failures": 0, "longest_gap_s": 0.0, "first_failure_s": None, "last_failure_s": None,
    }  # fmt: skip


def test_a_gap_is_from_success_to_success():
    found = tally((0.0, True), (0.05, False), (0.1, False), (0.15, True), (0.2, True)).answer(1)
    assert (found["longest_gap_s"], found["failures"]) == (0.15, 2)
    assert (found["first_failure_s"], found["last_failure_s"]) == (0.05, 0.1)


def test_the_longest_of_several_gaps_counts():
    found = tally((0, True), (1, False), (2, True), (3, True), (4, False), (5, False), (6, True)).answer(6)
    assert found["longest_gap_s"] == 3


def test_a_gap_that_is_open_counts_up_to_now():
    assert tally((0.0, True), (0.05, False)).answer(2.0)["longest_gap_s"] == 2.0


def test_attempts_that_hang_end_later_than_those_begun_after_them():
    """A time-out is told half a second later than the answer to the attempt behind it."""
    found = tally((0.0, True), (0.1, True), (0.05, False)).answer(1)
    assert (found["longest_gap_s"], found["failures"]) == (0.0, 1)


def test_a_server_that_goes_and_comes_back_is_seen():
    server = socket.create_server(("127.0.0.1", 0), backlog=100)
    port = server.getsockname()[1]
    service_watch.start("127.0.0.1", port, 20)
    try:
        time.sleep(0.3)
        server.close()
        time.sleep(0.5)
        server = socket.create_server(("127.0.0.1", port), backlog=100)
        time.sleep(0.3)
        found = service_watch.collect("127.0.0.1", port)
    finally:
        server.close()
    assert 0.4 <= found["longest_gap_s"] <= 1.2
    assert found["attempts"] >= 15
    assert service_watch.collect("127.0.0.1", port) is None


def test_a_watcher_of_an_earlier_run_makes_room():
    for _time in range(2):
        service_watch.start("127.0.0.1", 1, 20)
    assert service_watch.collect("127.0.0.1", 1)["failures"] >= 1


def test_one_question():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert service_watch.answers("127.0.0.1", port)
    assert not service_watch.answers("127.0.0.1", port)
