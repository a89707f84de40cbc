"""Of a daemon's log a person sees the lines that tell of trouble, and not too many."""

from __future__ import annotations

from ansible_collections.portcullis.fleet.plugins.module_utils.containerd_log import (
    LINE_CHARACTERS,
    LINES,
    telling_lines,
)

INFO = 'time="2026-11-30T20:00:00Z" level=info msg="starting containerd"'
ERROR = 'time="2026-11-30T20:00:01Z" level=error msg="failed to load plugin io.containerd.grpc.v1.cri"'


def test_lines_that_tell_of_trouble_are_shown_alone():
    assert telling_lines(f"{INFO}\n{ERROR}\n{INFO}\n") == [ERROR]


def test_without_trouble_the_last_lines_are_shown():
    assert telling_lines(f"{INFO}\n" * 3) == [INFO] * 3


def test_a_json_log_and_last_words_are_understood():
    lines = ['{"level":"fatal","msg":"x"}', "containerd: invalid configuration", "panic: nil map"]

    assert telling_lines("\n".join([INFO, *lines])) == lines


def test_many_and_long_lines_are_cut():
    found = telling_lines((ERROR + "x" * 1000 + "\n") * 50)

    assert len(found) == LINES
    assert {len(line) for line in found} == {LINE_CHARACTERS}


def test_no_log_is_no_line():
    assert telling_lines("") == []
