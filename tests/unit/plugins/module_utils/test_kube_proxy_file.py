"""A node whose kube-proxy is told by a file: killed anywhere, it is made definite by the next run.

k3s is played by a stand-in that reads its file when systemctl restarts it; systemctl and the kernel are the seam.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils import kube_proxy_file
from ansible_collections.portcullis.fleet.plugins.module_utils.files import read_snapshot
from ansible_collections.portcullis.fleet.plugins.module_utils.journal import Journal

UNIT = "k3s.service"
TEXT = "# mine\nkube-proxy-arg: proxy-mode={}\n"


class Killed(BaseException):
    """kill -9: nothing that the program would do afterwards is done."""


class Node:
    """The stand-in of k3s on a node, its file, and a kill before any of the steps that change something."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.path = folder, str(folder / "config.yaml")
        self.refused, self.restarts, self.clock = "ipvs-broken", 0, 0
        self.exec_start = "/usr/local/bin/k3s server"
        self.environment = ""
        self.answers = True
        self.kill_at = None
        self.steps = 0
        Path(self.path).write_text(TEXT.format("iptables"))
        self.mode, self.left_over = "iptables", set()
        monkeypatch.setitem(kube_proxy_file.UNITS, self.path, (UNIT,))
        monkeypatch.setitem(kube_proxy_file.VARIABLES, self.path, "K3S_CONFIG_FILE")
        monkeypatch.setattr(kube_proxy_file, "Journal", lambda: Journal(folder / "journal"))
        monkeypatch.setattr(kube_proxy_file, "POLL_S", 0)
        monkeypatch.setattr(kube_proxy_file, "run_command", self.systemctl)
        monkeypatch.setattr(kube_proxy_file.kube_proxy_live, "wait_for_mode", self.wait_for_mode)
        monkeypatch.setattr(kube_proxy_file.kube_proxy_leftovers, "clean", self.mortal(self.clean))
        monkeypatch.setattr(kube_proxy_file, "replace", self.mortal(kube_proxy_file.replace))
        for name in ("begin", "applied", "commit", "roll_back"):
            monkeypatch.setattr(Journal, name, self.mortal(getattr(Journal, name)))

    def mortal(self, function: Callable) -> Callable:
        def run(*arguments, **options):
            self.step()
            found = function(*arguments, **options)
            self.step()
            return found

        return run

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.kill_at:
            raise Killed

    def in_file(self) -> str:
        return re.search("proxy-mode=(.*)", Path(self.path).read_text())[1]

    def systemctl(self, argv: tuple) -> tuple:
        if argv[1] == "restart":
            self.step()
            self.restarts += 1
            self.clock += 1
            if self.in_file() != self.mode:
                self.left_over.add(self.mode)
            self.mode = self.in_file()
            self.step()
            return 0, "", ""
        text = f"Id={UNIT}\nActiveState=active\nMainPID=1\nActiveEnterTimestampMonotonic={self.clock}\n"
        argv = f"{{ path=/x ; argv[]={self.exec_start} ; ignore_errors=no ; pid=1 }}"
        return 0, f"{text}ExecStart={argv}\nEnvironment={self.environment}\nEnvironmentFiles=\n", ""

    def wait_for_mode(self, mode: str, *_rest) -> tuple:
        works = self.mode != self.refused
        return (self.mode if works else "", works and self.mode == mode, self.answers)

    def clean(self, mode: str, check_mode: bool) -> tuple:
        removed = sorted(self.left_over - {mode})
        self.left_over &= {mode}
        return removed, []

    def write(self, mode: str) -> dict:
        item = {
            "path": self.path,
            "content": base64.b64encode(TEXT.format(mode).encode()).decode(),
            "expected_sha256": read_snapshot(self.path).sha256,
        }
        proof = {"mode": mode, "metrics_address": "m", "address": "a", "port": 1, "timeout_s": 1, "must_answer": True}
        before = {"mode": self.mode, "metrics_address": "m"}
        return kube_proxy_file.write([item], UNIT, {**proof, "before": before})

    def definite(self) -> None:
        """One mode: of the file, of what runs, of the kernel; and nothing is left to be done."""
        assert self.in_file() == self.mode
        assert self.left_over - {self.mode} == set()
        assert Journal(self.folder / "journal").unfinished() == []


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_a_change_is_proven_cleaned_up_and_given_back(node: Node):
    assert node.write("nftables") == {"removed": ["iptables"], "left": []}
    node.definite()

    assert kube_proxy_file.undo(1, check_mode=False)["removed"] == ["nftables"]
    assert node.mode == "iptables"
    node.definite()
    assert kube_proxy_file.undo(1, check_mode=False)["changed"] is False


def test_two_changes_are_given_back_to_what_was_before_the_first(node: Node):
    node.write("nftables")
    node.write("ipvs")
    restarts = node.restarts

    assert kube_proxy_file.undo(1, check_mode=False)["changed"] is True
    assert (node.mode, node.restarts) == ("iptables", restarts + 1)
    node.definite()


def test_a_mode_that_does_not_come_is_put_back_and_its_leftovers_are_removed(node: Node):
    with pytest.raises(kube_proxy_file.FileError, match=r"live mode is not to be had.*; the files were put back$"):
        node.write("ipvs-broken")
    node.definite()


def test_a_service_that_does_not_answer_any_more_is_worse(node: Node):
    node.answers = False
    with pytest.raises(kube_proxy_file.FileError, match="does not answer any more"):
        node.write("nftables")
    assert node.in_file() == "iptables"


KILLS = range(1, 25)


@pytest.mark.parametrize("at", KILLS)
@pytest.mark.parametrize("mode", ["nftables", "ipvs-broken"])
def test_a_write_that_is_killed_anywhere_is_made_definite_by_the_next_run(node: Node, mode: str, at: int):
    node.kill_at = at
    with contextlib.suppress(Killed, kube_proxy_file.FileError):
        node.write(mode)
    node.kill_at = None
    try:
        kube_proxy_file.recover()
    except kube_proxy_file.FileError as error:
        assert mode == "ipvs-broken", error
    node.definite()
    node.write("nftables" if node.mode != "nftables" else "ipvs")
    node.definite()


@pytest.mark.parametrize("at", KILLS)
def test_an_undo_that_is_killed_anywhere_is_ended_by_the_next(node: Node, at: int):
    node.write("nftables")
    node.write("ipvs")
    node.kill_at = node.steps + at
    with contextlib.suppress(Killed):
        kube_proxy_file.undo(1, check_mode=False)
    node.kill_at = None
    kube_proxy_file.undo(1, check_mode=False)
    assert node.mode == "iptables"
    node.definite()


def test_check_mode_of_an_undo_writes_nothing_after_a_kill_either(node: Node):
    node.kill_at = 3
    with pytest.raises(Killed):
        node.write("nftables")
    before = sorted(path.name for path in (node.folder / "journal").iterdir())

    assert kube_proxy_file.undo(1, check_mode=True)["changed"] is True
    assert sorted(path.name for path in (node.folder / "journal").iterdir()) == before
    assert node.restarts == 0


def test_what_somebody_else_has_changed_since_keeps_an_undo_from_touching_anything(node: Node):
    node.write("nftables")
    Path(node.path).write_text(TEXT.format("ipvs"))
    with pytest.raises(kube_proxy_file.FileError, match="changed by somebody else"):
        kube_proxy_file.undo(1, check_mode=False)
    assert (node.in_file(), node.restarts) == ("ipvs", 1)


def test_flags_of_the_units_command_line_are_found(node: Node):
    """k3s hides its own command line from /proc: pkg/cli/server/server.go, SetProcTitle."""
    node.exec_start = "/usr/local/bin/k3s server --kube-proxy-arg=proxy-mode=ipvs --kube-proxy-arg v=2"
    assert kube_proxy_file.read(node.path)["command_line"] == ["proxy-mode=ipvs", "v=2"]


@pytest.mark.parametrize(
    ("exec_start", "environment", "file"),
    [
        ("/usr/local/bin/k3s server", "", ""),
        ("/usr/local/bin/k3s server --config /srv/k3s.yaml", "", "/srv/k3s.yaml"),
        ("/usr/local/bin/k3s server -c=/srv/k3s.yaml", "", "/srv/k3s.yaml"),
        ("/usr/local/bin/k3s server", "A=b K3S_CONFIG_FILE=/srv/k3s.yaml", "/srv/k3s.yaml"),
    ],
)
def test_a_service_that_reads_another_file_is_told(node: Node, exec_start: str, environment: str, file: str):
    node.exec_start, node.environment = exec_start, environment
    assert kube_proxy_file.read(node.path)["other_file"] == file


def test_drop_ins_are_those_that_k3s_reads_in_its_order(node: Node):
    """Hidden ones and any case too: dotDFiles of pkg/configfilearg/parser.go."""
    folder = Path(f"{node.path}.d")
    folder.mkdir()
    for name in ("20.yaml", "10.YML", ".b.yaml", "x.txt", "30.yaml.bak"):
        (folder / name).write_text("")
    found = [Path(item["path"]).name for item in kube_proxy_file.read(node.path)["files"]]
    assert found == ["config.yaml", ".b.yaml", "10.YML", "20.yaml"]
