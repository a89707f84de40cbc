# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Candidates against real daemons: Debian's containerd, and the lines that the lab has built and cached."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils import sandbox
from ansible_collections.portcullis.fleet.plugins.module_utils.containerd_apply import ApplyError
from ansible_collections.portcullis.fleet.plugins.module_utils.containerd_validate import (
    command_of,
    judge,
    new_lines,
    trial,
    validate,
    validate_plan,
)
from ansible_collections.portcullis.fleet.plugins.module_utils.sandbox import run_in_copies

from tests.lab import containerd

BINARIES = {line: str(path) for line, path in sorted(containerd.built().items())}
if debian := shutil.which("containerd"):
    BINARIES["debian"] = debian
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
TIMEOUT_S = 30

needs_daemon = pytest.mark.skipif(not BINARIES or os.geteuid() != 0, reason="needs root and a containerd")
every_line = pytest.mark.parametrize(
    "line",
    # A quick run has the oldest and the newest.
    [
        pytest.param(
            line, marks=[] if line in ("debian", max(BINARIES.keys() - {"debian"}, default="")) else pytest.mark.full
        )
        for line in BINARIES
    ],
)
debian_only = pytest.mark.parametrize("line", ["debian"])

CRI = 'plugins."io.containerd.grpc.v1.cri"'
PLAIN = "version = 2\n"
MIRRORS = f'[{CRI}.registry.mirrors."docker.io"]\nendpoint = ["https://mirror.example"]\n'
DIRECTORY = f'[{CRI}.registry]\nconfig_path = "/etc/containerd/certs.d"\n'
BOTH = PLAIN + DIRECTORY + MIRRORS
REFUSAL = "`mirrors` cannot be set when `config_path` is provided"


class Node:
    """A configuration below a directory, and the daemon that reads it."""

    def __init__(self, directory: Path, line: str):
        self.directory = directory
        self.config = directory / "etc/config.toml"
        self.config.parent.mkdir()
        self.argv = [BINARIES[line], "--config", str(self.config)]

    def validate(self, current: str | None, candidate: str | None, files=(), **options):
        """Try a change of the main file, and of others given as {path: text}; nothing below the directory changes."""
        if current is not None:
            self.config.write_text(current)
        changes = {} if candidate is None else {str(self.config): candidate.encode()}
        changes |= {str(path): None if text is None else text.encode() for path, text in dict(files).items()}
        before = listing(self.directory)
        result = validate(self.argv, ENVIRONMENT, changes, timeout_s=TIMEOUT_S, **options)
        assert listing(self.directory) == before
        return result


@pytest.fixture
def node(tmp_path, line):
    return Node(tmp_path, line)


def listing(directory):
    """Return everything that tells of a change below a directory."""
    found = {}
    for path in [directory, *directory.rglob("*")]:
        status = path.lstat()
        found[str(path)] = (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return found


@needs_daemon
@every_line
def test_a_good_candidate(node):
    result = node.validate(PLAIN, PLAIN + DIRECTORY, config_path="/etc/containerd/certs.d")

    assert (result["ok"], result["problems"], result["daemon_says"]) == (True, [], "")
    assert result["current"]["cri"]["serving"] and result["candidate"]["cri"]["serving"]
    assert result["candidate"]["exit"] is None
    assert result["candidate"]["plugins"]


@needs_daemon
@every_line
def test_mirrors_beside_config_path_are_refused_in_the_daemons_words(node):
    """The daemon would stay up and CRI be dead; C(config dump) says nothing about it."""
    result = node.validate(PLAIN + DIRECTORY, BOTH)

    assert result["ok"] is False
    assert len(result["problems"]) == 1
    assert REFUSAL in result["problems"][0]
    assert REFUSAL in result["daemon_says"]


@needs_daemon
@every_line
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("version = 2\n[grpc\n", id="syntax"),
        pytest.param("version = 2\n[grpc]\nuid = 1\n[grpc]\ngid = 1\n", id="duplicate table"),
        pytest.param('version = 2\n[grpc]\nuid = "a"\n', id="type"),
        pytest.param('version = 2\ndisabled_plugins = ["cri"]\n', id="plugin id of version 1"),
    ],
)
def test_what_the_daemon_cannot_parse(node, text):
    result = node.validate(PLAIN, text)

    assert result["ok"] is False
    assert result["problems"]
    assert result["daemon_says"]
    assert result["candidate"]["cri"]["serving"] is False


@needs_daemon
@every_line
def test_a_version_that_the_daemon_does_not_know(node):
    """1.6.20 accepts it, and uses nothing of these tables: what CRI reports is another directory."""
    newer = 'version = 99\n[plugins."io.containerd.cri.v1.images".registry]\nconfig_path = "/etc/containerd/certs.d"\n'

    result = node.validate(PLAIN + DIRECTORY, newer, config_path="/etc/containerd/certs.d")

    assert result["ok"] is False
    accepted = "CRI would use the registry directory '', not '/etc/containerd/certs.d'"
    assert result["problems"][0] == accepted or "99" in result["problems"][0]


@needs_daemon
@every_line
@pytest.mark.parametrize("boot", [True, False])
def test_a_literal_import_that_does_not_exist(node, boot):
    missing = node.directory / "missing.toml"

    result = node.validate(PLAIN, f'imports = ["{missing}"]\n{PLAIN}', boot=boot)

    assert result["ok"] is False
    assert str(missing) in result["problems"][0]


@needs_daemon
@every_line
def test_new_drop_ins_are_read(node):
    """Globs are resolved where the files will really be."""
    main = f'imports = ["{node.directory}/etc/conf.d/*.toml"]\n{PLAIN}'

    result = node.validate(main, None, {node.directory / "etc/conf.d/10-new.toml": BOTH})

    assert result["ok"] is False
    assert REFUSAL in result["problems"][0]


@needs_daemon
@every_line
def test_a_file_that_goes_away_mends_a_broken_configuration(node):
    drop_in = node.directory / "etc/conf.d/10-old.toml"
    drop_in.parent.mkdir()
    drop_in.write_text(BOTH)
    main = f'imports = ["{node.directory}/etc/conf.d/*.toml"]\n{PLAIN}'

    result = node.validate(main, None, {drop_in: None})

    assert (result["ok"], result["problems"]) == (True, [])
    assert result["current"]["cri"]["serving"] is False


@needs_daemon
@every_line
@pytest.mark.parametrize("broken", [BOTH, "version = 2\n[grpc\n"], ids=["cri", "syntax"])
def test_a_broken_configuration_may_get_better(node, broken):
    result = node.validate(broken, PLAIN + DIRECTORY)

    assert (result["ok"], result["problems"]) == (True, [])


@needs_daemon
@debian_only
def test_a_broken_configuration_that_stays_broken_is_not_called_good(node):
    result = node.validate(BOTH, BOTH + "# another comment\n")

    assert result["ok"] is None
    assert REFUSAL in result["problems"][0]


@needs_daemon
@debian_only
def test_a_broken_configuration_that_breaks_in_another_way(node):
    result = node.validate("version = 2\n[grpc\n", BOTH)

    assert result["ok"] is False
    assert REFUSAL in result["problems"][0]


@needs_daemon
@every_line
def test_a_proxy_plugin_whose_socket_is_not_in_the_sandbox(node):
    """The socket of the machine cannot be reached, with either file: nothing is held against the candidate."""
    path = node.directory / "snapshotter.sock"
    proxy = f'[proxy_plugins.remote]\ntype = "snapshot"\naddress = "{path}"\n'
    uses = f'[{CRI}.containerd]\nsnapshotter = "remote"\n'
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.setblocking(False)

        result = node.validate(PLAIN + proxy + uses, PLAIN + proxy + uses + DIRECTORY)

        assert (result["ok"], result["problems"]) == (True, [])
        with pytest.raises(BlockingIOError):
            server.accept()


@needs_daemon
@every_line
def test_cri_that_is_switched_off(node):
    result = node.validate(PLAIN, 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')

    assert result["ok"] is False
    assert "serves no CRI" in result["problems"][0]


@needs_daemon
@every_line
def test_an_nri_plugin_is_not_launched(node, line):
    if line == "debian":
        pytest.skip("containerd 1.6 has no NRI")
    plugins, ran = node.directory / "nri", node.directory / "ran"
    plugins.mkdir()
    (plugins / "10-test").write_text(f"#!/bin/sh\ntouch {ran}\nsleep 60\n")
    (plugins / "10-test").chmod(0o755)
    text = f'[plugins."io.containerd.nri.v1.nri"]\ndisable = false\nplugin_path = "{plugins}"\n'
    text += f'socket_path = "{node.directory}/nri.sock"\n'
    node.config.write_text(PLAIN + text)
    before = listing(node.directory)

    def attempt():
        deadline = time.monotonic() + TIMEOUT_S
        tried = trial(node.argv, ENVIRONMENT, {}, True, deadline)
        time.sleep(0.3)
        return tried, ran.exists(), (node.directory / "nri.sock").exists()

    tried, launched, has_socket = run_in_copies([attempt], TIMEOUT_S)[0]

    assert tried["cri"]["serving"] is True
    assert tried["plugins"]["io.containerd.nri.v1.nri"] == ""
    assert (launched, has_socket) == (False, True)
    assert listing(node.directory) == before


@needs_daemon
@every_line
def test_nothing_outside_is_touched(node):
    """Own directories of content, an own cgroup, sockets, ports in use and addresses of the node: all of it works in
    the sandbox, and nothing of it is seen outside."""
    for name in ("data", "state", "snapshots"):
        (node.directory / name).mkdir()
        (node.directory / name / "precious").write_text("x")
    cgroup = f"/portcullis-test-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = f"""version = 2
root = "{node.directory}/data"
state = "{node.directory}/state"
oom_score = 10
[cgroup]
path = "{cgroup}"
[grpc]
address = "{node.directory}/c.sock"
tcp_address = "127.0.0.1:{port}"
[metrics]
address = "203.0.113.7:1338"
[debug]
address = "{node.directory}/debug.sock"
[{CRI}]
stream_server_address = "203.0.113.7"
[plugins."io.containerd.snapshotter.v1.overlayfs"]
root_path = "{node.directory}/snapshots"
[plugins."io.containerd.internal.v1.opt"]
path = "{node.directory}/opt"
"""
        mounts = Path("/proc/self/mountinfo").read_text()

        result = node.validate(text, text + DIRECTORY)

    assert (result["ok"], result["problems"]) == (True, [])
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert list(Path("/sys/fs/cgroup").glob("*" + cgroup)) == []
    assert not Path("/sys/fs/cgroup" + cgroup).exists()
    assert processes_of(node) == []


@needs_daemon
@debian_only
def test_flags_of_the_unit_count(node):
    """What k3s does: every place is given on the command line."""
    for name in ("data", "state"):
        (node.directory / name).mkdir()
    node.argv += [
        "-a",
        f"{node.directory}/c.sock",
        f"--root={node.directory}/data",
        "--state",
        f"{node.directory}/state",
    ]

    assert node.validate(PLAIN, PLAIN + DIRECTORY)["ok"] is True
    assert node.validate(PLAIN, BOTH)["ok"] is False


@needs_daemon
@every_line
def test_without_a_configuration_file(node):
    """The daemon's defaults are what is current."""
    result = node.validate(None, PLAIN + DIRECTORY)

    assert result["ok"] is True, result["problems"]


@needs_daemon
@debian_only
def test_a_configuration_behind_a_link_to_a_place_that_is_not_shared(node, tmp_path):
    """/run is empty in the sandbox; what the daemon reads goes along."""
    target = Path(f"/run/portcullis-test-{os.getpid()}.toml")
    node.config.symlink_to(target)
    target.write_text(BOTH)
    try:
        result = node.validate(None, None, {target: PLAIN + DIRECTORY})
    finally:
        target.unlink()

    assert REFUSAL in result["current"]["plugins"]["io.containerd.grpc.v1.cri"]
    assert result["ok"] is True


@needs_daemon
@debian_only
def test_parsing_only(node):
    result = node.validate(PLAIN, BOTH, boot=False)

    assert (result["ok"], result["problems"]) == (True, [])
    assert result["candidate"]["booted"] is False


@needs_daemon
@debian_only
def test_a_binary_that_is_not_there(node):
    node.argv[0] = "/usr/bin/containerd-that-is-not-there"
    result = node.validate(PLAIN, PLAIN)

    assert result["ok"] is None
    assert "No such file or directory" in result["problems"][0]


@needs_daemon
@debian_only
def test_a_kernel_that_forbids_namespaces(node, monkeypatch):
    def refuse(name, *_arguments):
        raise PermissionError(1, f"{name}: Operation not permitted")

    monkeypatch.setattr(sandbox, "_call", refuse)
    result = node.validate(PLAIN, PLAIN)

    assert result["ok"] is None
    assert result["problems"][0].startswith("could not be validated by the daemon in a sandbox: ")
    assert "Operation not permitted" in result["problems"][0]


def script(tmp_path, text):
    path = tmp_path / "daemon"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return [str(path), "--config", str(tmp_path / "config.toml")]


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces and mounts")


@needs_root
def test_a_daemon_that_never_serves_ends_with_the_deadline(tmp_path):
    argv = script(tmp_path, 'case "$*" in *dump) exit 0;; esac; echo "level=error msg=stuck"; exec sleep 600\n')
    started = time.monotonic()

    result = validate(argv, ENVIRONMENT, {}, timeout_s=2)

    assert time.monotonic() - started < 4
    assert result["ok"] is None
    assert "cannot connect" in result["problems"][0]
    assert result["daemon_says"] == "level=error msg=stuck"


@needs_root
def test_a_daemon_that_hangs_while_it_parses_ends_with_the_deadline(tmp_path):
    argv = script(tmp_path, "exec sleep 600\n")
    started = time.monotonic()

    result = validate(argv, ENVIRONMENT, {}, timeout_s=2)

    assert time.monotonic() - started < 4
    assert result["ok"] is None
    assert "timed out" in result["problems"][0]


@needs_root
def test_a_daemon_that_ends_by_itself_is_quoted(tmp_path):
    argv = script(
        tmp_path, 'case "$*" in *dump) exit 0;; esac; grep -q bad "$2" || exit 3; echo "containerd: oh"; exit 4\n'
    )

    result = validate(argv, ENVIRONMENT, {argv[-1]: b"bad"}, timeout_s=5)

    assert result["ok"] is False
    assert result["problems"] == ["the daemon ended with exit code 4: containerd: oh"]


def processes_of(node):
    """Return the processes that have the node's configuration in their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(node.config).encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


@needs_daemon
@debian_only
def test_nothing_survives_a_killed_run(node):
    """kill -9 at moments from before the namespaces to after both daemons serve."""
    node.config.write_text(PLAIN)
    before = listing(node.directory)
    for number in range(24):
        pid = os.fork()
        if pid == 0:
            validate(node.argv, ENVIRONMENT, {str(node.config): (PLAIN + DIRECTORY).encode()})
            os._exit(0)
        time.sleep(number * 0.015)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    deadline = time.monotonic() + TIMEOUT_S
    while processes_of(node) and time.monotonic() < deadline:
        time.sleep(0.02)

    assert processes_of(node) == []
    assert listing(node.directory) == before


def plan_of(node, text, **changes):
    content = base64.b64encode(text.encode()).decode()
    note = {"config_file": str(node.config), "config_path": None, "repairs": "", "restart": True, "unit": "c.service"}
    note.update(changes)
    return {"writes": [{"path": str(node.config), "expected_sha256": "", "content": content}], "note": note}


@needs_daemon
@debian_only
@pytest.mark.parametrize("mode", ["daemon", "parse"])
def test_a_plan(node, mode):
    """The given file is tried, also where no unit runs that reads it."""
    node.config.write_text(PLAIN)

    assert validate_plan(plan_of(node, PLAIN + DIRECTORY), mode) == {"validated": mode}
    with pytest.raises(ApplyError, match="containerd does not accept the new configuration") as caught:
        validate_plan(plan_of(node, BOTH if mode == "daemon" else "[grpc"), mode)
    assert caught.value.result["changed"] is False
    assert caught.value.result["log"]


@needs_daemon
@debian_only
def test_a_plan_that_is_not_to_be_tried(node):
    assert validate_plan(plan_of(node, BOTH), "none") == {"validated": "none"}
    assert validate_plan({**plan_of(node, BOTH, restart=False), "writes": []}, "daemon") == {}


@needs_daemon
@debian_only
def test_a_repair_must_be_proven(node):
    """Where CRI does not serve, only a change that is seen to bring it back is made."""
    node.config.write_text(BOTH)

    assert validate_plan(plan_of(node, PLAIN + DIRECTORY, repairs="no CRI"), "daemon") == {"validated": "daemon"}
    with pytest.raises(ApplyError, match=r"CRI does not serve .no CRI., nor would it with the new configuration"):
        validate_plan(plan_of(node, BOTH + "# more\n", repairs="no CRI"), "daemon")
    node.config.write_text(PLAIN)
    with pytest.raises(ApplyError, match="it does with the same files in a sandbox: restart containerd"):
        validate_plan(plan_of(node, PLAIN + DIRECTORY, repairs="no CRI"), "daemon")


@needs_daemon
@debian_only
def test_a_restart_that_is_due_must_be_proven(node):
    """Nothing is written, so nothing could be put back."""
    node.config.write_text(PLAIN)
    assert validate_plan({**plan_of(node, ""), "writes": []}, "daemon") == {"validated": "daemon"}

    node.config.write_text(BOTH)
    with pytest.raises(ApplyError, match="it is not known that it would come up"):
        validate_plan({**plan_of(node, ""), "writes": []}, "daemon")


@needs_daemon
@debian_only
def test_a_plan_that_cannot_be_tried(node):
    """The module goes on, and says why."""
    node.config.write_text(BOTH)

    found = validate_plan(plan_of(node, BOTH + "# more\n"), "daemon")

    assert found["validated"] == "none"
    assert REFUSAL in found["not_validated"]


def test_command_of_a_running_daemon(monkeypatch):
    """Its own words, without what systemd said to that one start."""
    environment = {"PATH": "/bin", "HTTPS_PROXY": "http://proxy:3128", "NOTIFY_SOCKET": "/run/systemd/notify"}
    with subprocess.Popen(["sleep", "60", ""][:2], env=environment) as process:
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while command_of(process.pid, "/x")[0] != ["/x", "60"] and time.monotonic() < deadline:
                time.sleep(0.01)
            argv, found = command_of(process.pid, "/usr/bin/sleep (deleted)")
        finally:
            process.kill()

    assert argv == ["/usr/bin/sleep", "60"]
    assert found == {"PATH": "/bin", "HTTPS_PROXY": "http://proxy:3128"}


def test_command_of_a_daemon_that_does_not_run():
    argv, environment = command_of(0, "/usr/bin/containerd")

    assert argv == ["/usr/bin/containerd"]
    assert list(environment) == ["PATH"]


def tried(serving=True, **changes):
    cri = {"serving": serving, "error": "" if serving else "no CRI", "version": "v", "config_path": None}
    return {"dump_error": "", "missing_imports": [], "booted": True, "exit": None, "plugins": {"a": ""}, "log": []} | {
        "cri": cri,
        **changes,
    }


@pytest.mark.parametrize(
    ("current", "candidate", "expected"),
    [
        pytest.param(tried(), tried(), (True, []), id="same"),
        pytest.param(tried(plugins={"a": "x"}), tried(plugins={"a": "y"}), (True, []), id="failed before as well"),
        pytest.param(
            tried(plugins={"a": "", "b": ""}),
            tried(plugins={"a": "root", "b": "needs a: root"}),
            (False, ["plugin a does not load: root"]),
            id="the cause only",
        ),
        pytest.param(
            tried(),
            tried(plugins={"a": "", "new": "x"}),
            (False, ["plugin new does not load: x"]),
            id="a new one fails",
        ),
        pytest.param(tried(plugins={}, booted=False), tried(plugins={"a": "x"}), (True, []), id="nothing to compare"),
        pytest.param(tried(), tried(serving=False), (False, ["no CRI"]), id="CRI is lost"),
        pytest.param(
            tried(serving=False, plugins={"x.cri": "zfs"}),
            tried(serving=False, plugins={"x.cri": "mirrors"}),
            (False, ["mirrors"]),
            id="another trouble",
        ),
    ],
)
def test_judge(current, candidate, expected):
    assert judge(current, candidate) == expected


def test_only_new_lines_of_a_log_are_told():
    before = ['time="1" level=warning msg="no zfs"']

    assert new_lines(before, ['time="2" level=warning msg="no zfs"', 'time="3" level=error msg="bad"']) == [
        'time="3" level=error msg="bad"'
    ]
    assert new_lines(before, ['time="2" level=warning msg="no zfs"']) == ['time="2" level=warning msg="no zfs"']
