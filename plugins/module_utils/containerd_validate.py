# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the node's own containerd accepts files before they are live: it is started with them in a sandbox.

The files as they are (current) and as they would be (candidate) are both tried, at the same time, and the difference
is judged: a plugin that cannot load in a sandbox does not speak against the candidate. Files, arguments and environment
are the unit's own to the byte. That the daemon finds no plugin to launch, no content and no other service is done
around it, by mounts. The one exception is C([cgroup] path), which would be made in the machine's cgroups: it is emptied
in the sandbox's copy of the files before the daemon starts, after C(config dump) has read them as they are.
"""

from __future__ import annotations

import os
import re
import subprocess
import time

from ._grpc import Channel, GrpcError
from ._protobuf import INT64, STRING, Field, decode_message
from .containerd_apply import ApplyError
from .containerd_log import telling_lines
from .containerd_node import DEFAULT_CONFIG, DEFAULT_SOCKET, find_binary, find_daemon, loaded_config_path, read_files
from .containerd_toml import decode_string, scan, strings_in
from .cri import CriClient, CriError
from .files import decoded
from .host import SEARCH_PATH, flag_value
from .sandbox import SandboxError, cover, run_in_copies

TIMEOUT_S = 15
POLL_S = 0.02
ANSWER_S = 1  # of the time for the daemon, kept for the way back
UNKNOWN = "could not be validated by the daemon in a sandbox: "
LOG = "/run/portcullis-containerd.log"
_LOG_TIME = re.compile(r'\bt(?:ime)?="[^"]*"|"time":"[^"]*"')

# What systemd says to this one start of the unit (systemd.exec(5), sd_notify(3)).
START_VARIABLES = (
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "SYSTEMD_EXEC_PID",
)
# Keys whose directory holds content, or programs that the daemon launches or loads at start.
COVERED_KEYS = ("root_path", "plugin_path")
COVERED_PATHS = (("root",), ("state",), ("plugin_dir",))
ADDRESS_PATHS = (("grpc", "address"), ("plugins", "io.containerd.server.v1.grpc", "address"))
CGROUP_PATH = ("cgroup", "path")

# https://github.com/containerd/containerd/blob/v2.0.0/api/services/introspection/v1/introspection.proto
_STATUS = {1: Field("code", INT64), 2: Field("message", STRING)}
_PLUGINS = {
    1: Field(
        "plugins", {1: Field("type", STRING), 2: Field("id", STRING), 7: Field("init_err", _STATUS)}, repeated=True
    )
}
_PLUGINS_METHOD = "/containerd.services.introspection.v1.Introspection/Plugins"
_UNIMPLEMENTED = 12  # the code of a plugin that says itself that it does not fit this machine


def command_of(pid, binary):
    """Return the arguments and the environment that a restart of the daemon would start it with.

    :param pid: of the running daemon, 0 when there is none.
    :param binary: its path; the file that is there now counts, which an upgrade may have replaced since the start.
    """
    path = re.sub(r" \(deleted\)$", "", binary)
    if not pid:
        return [path], {"PATH": SEARCH_PATH}
    argv, variables = [], []
    for name, found in (("cmdline", argv), ("environ", variables)):
        with open(f"/proc/{pid}/{name}", "rb") as stream:
            found += [os.fsdecode(word) for word in stream.read().split(b"\0")]
    environment = dict(word.split("=", 1) for word in variables if "=" in word)
    for name in START_VARIABLES:
        environment.pop(name, None)
    return [path, *argv[1:-1]], environment


def validate_plan(plan, mode):
    """Try what a plan writes with the daemon of this node.

    :param plan: as for C(containerd_apply.apply); C(rendered), like writes, is only tried.
    :param mode: C(daemon), C(parse) or C(none).
    :returns: C(validated), the mode that was carried out, and C(not_validated), why it could not be. Empty where
        nothing is written or restarted.
    :raises ApplyError: the daemon refuses the files, or does not say that they are what the node needs.
    """
    if not plan["writes"] and not plan["note"]["restart"]:
        return {}
    if mode == "none":
        return {"validated": mode}
    note = plan["note"]
    pid = find_daemon()[2]
    argv, environment = command_of(pid, find_binary(pid))
    if config_file(argv) != note["config_file"]:
        argv = [argv[0], "--config", note["config_file"]]
    files = {item["path"]: decoded(item["content"]) for item in plan["writes"] + plan.get("rendered", [])}
    tried = validate(argv, environment, files, config_path=note["config_path"], boot=mode == "daemon")
    if reason := unproven(plan, tried):
        raise ApplyError(f"{reason}; nothing was changed", changed=False)
    if tried["ok"] is None:
        return {"validated": "none", "not_validated": tried["problems"][0]}
    if not tried["ok"]:
        problems = "; ".join(tried["problems"])
        raise ApplyError(
            f"containerd does not accept the new configuration: {problems}; it was tried in a sandbox, nothing was "
            "changed",
            log=tried["daemon_says"].splitlines(),
            changed=False,
        )
    return {"validated": mode}


def unproven(plan, tried):
    """Return why a trial is not enough for this plan, empty when it is: where a guess could make the node worse."""
    dead = plan["note"]["repairs"]
    if dead and tried["current"].get("cri", {}).get("serving"):
        return f"CRI does not serve ({dead}), though it does with the same files in a sandbox: restart containerd"
    if dead and not tried["ok"]:
        return f"CRI does not serve ({dead}), nor would it with the new configuration: {'; '.join(tried['problems'])}"
    if not plan["writes"] and tried["ok"] is None:
        return (
            f"{plan['note']['unit']} still has to be restarted for its files to take effect, and it is not known that "
            f"it would come up with them: {tried['problems'][0]}; restart it on a drained node, or give validate=none"
        )
    return ""


def validate(argv, environment, files, *, config_path=None, boot=True, timeout_s=TIMEOUT_S):
    """Try the files as they are and as they would be; nothing of the machine changes.

    :param argv: the daemon with its arguments, argv[0] the binary's path.
    :param files: {absolute path: bytes, or None for a file that goes away}.
    :param config_path: the registry directory that CRI must report with the candidate; None accepts any.
    :param boot: whether to start the daemon; otherwise it only parses.
    :param timeout_s: seconds for all of it.
    :returns: C(ok) (None when it could not be found out), C(problems) (text, for ok None the reason), C(daemon_says)
        (the daemon's own last words on the candidate), C(current) and C(candidate) as C(trial) returns them. None of
        it has credentials removed.
    """
    deadline = time.monotonic() + timeout_s - ANSWER_S
    # What the daemon reads now goes with the copy: a file may be in a place that a copy does not share.
    live = read_files(config_file(argv))["files"]
    present = {item["path"]: decoded(item["content"]) for item in live if item["sha256"]}
    trials = [
        lambda placed=placed: trial(argv, environment, placed, boot, deadline)
        for placed in (present, {**present, **files})
    ]
    current, candidate = run_in_copies(trials, timeout_s)
    reasons = [str(item) for item in (current, candidate) if isinstance(item, SandboxError)]
    if reasons:
        return {"ok": None, "problems": [UNKNOWN + reasons[-1]], "daemon_says": "", "current": {}, "candidate": {}}
    ok, problems = judge(current, candidate, config_path)
    says = "" if ok else candidate["dump_error"] or "\n".join(new_lines(current["log"], candidate["log"]))
    return {"ok": ok, "problems": problems, "daemon_says": says, "current": current, "candidate": candidate}


def judge(current, candidate, config_path=None):
    """Return C((ok, problems)) of two trials; see C(validate)."""
    if candidate["dump_error"]:
        return False, [f"containerd config dump: {candidate['dump_error']}"]
    problems = [f"the import {path} does not exist" for path in candidate["missing_imports"]]
    if problems or not candidate["booted"]:
        return not problems, problems
    problems = worse_plugins(current["plugins"], candidate["plugins"])
    cri = candidate["cri"]
    if cri["serving"]:
        if None not in (config_path, cri["config_path"]) and config_path != cri["config_path"]:
            problems.append(f"CRI would use the registry directory {cri['config_path']!r}, not {config_path!r}")
        return not problems, problems
    if not problems and not current["cri"]["serving"] and trouble(current) == trouble(candidate):
        return None, [f"{UNKNOWN}there CRI does not serve with the current files either: {trouble(candidate)}"]
    return False, problems or [trouble(candidate)]


def worse_plugins(current, candidate):
    """Return a problem for each plugin that fails with the candidate only, those that fail for another one left out.

    Without an answer about the current files, which may be what is to be repaired, only CRI is judged.
    """
    failed = {name: words for name, words in candidate.items() if current and words and not current.get(name)}
    causes = {
        name: words
        for name, words in failed.items()
        if not any(other != words and other in words for other in failed.values())
    }
    return [f"plugin {name} does not load: {words}" for name, words in sorted(causes.items())]


def trouble(tried):
    """Return why CRI does not serve."""
    failed = next((words for name, words in sorted(tried["plugins"].items()) if words and ".cri" in name), "")
    return failed or tried["dump_error"] or tried["cri"]["error"]


def trial(argv, environment, files, boot, deadline):
    """Inside a sandbox: put the files there, let the daemon parse them, start it, and ask it how it does.

    :param deadline: of time.monotonic.
    :returns: dump_error (empty when it parsed), missing_imports (literal ones), booted (whether a start was tried),
        exit (the daemon's exit code, None while it ran), plugins ({type.id: why it failed, else empty}), cri (serving,
        error, version, config_path), log (telling lines), duration_ms.
    """
    started = time.monotonic()
    found = {"dump_error": "", "missing_imports": [], "booted": False, "exit": None, "plugins": {}, "log": []}
    found["cri"] = {"serving": False, "error": "", "version": "", "config_path": None}
    for path, content in files.items():
        put(path, content)
    dumped = subprocess.run(
        [*argv, "config", "dump"],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=max(1.0, deadline - time.monotonic()),
        check=False,
    )
    if dumped.returncode:
        lines = dumped.stderr.decode("utf-8", "replace").strip().splitlines()
        found["dump_error"] = lines[-1] if lines else f"exit code {dumped.returncode} without a word"
    else:
        settings = read_settings(dumped.stdout.decode("utf-8", "replace"))
        found["missing_imports"] = missing_imports(settings)
        if boot:
            start_daemon(argv, environment, settings, deadline, found)
    found["duration_ms"] = int((time.monotonic() - started) * 1000)
    return found


def put(path, content):
    """Write or remove a file of the sandbox."""
    path = os.path.realpath(path)
    if content is None:
        os.unlink(path)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as stream:
        stream.write(content)


def read_settings(dump):
    """Return C({path of the key: value}) of the strings, and lists of strings, in a dump."""
    document = scan(dump)
    settings = {}
    for entry in document.entries:
        source = document.value(entry)
        settings[entry.path] = decode_string(source) if source[0] in "\"'" else strings_in(source)
    return settings


def missing_imports(settings):
    """Return the imports without a wildcard that are not there; containerd does not start without them."""
    return [path for path in settings.get(("imports",)) or [] if "*" not in path and not os.path.exists(path)]


def covered_directories(argv, settings):
    """Return the directories that must be empty in the sandbox."""
    found = {flag_value(argv, name, name) for name in ("root", "state")}
    found |= {settings.get(path) for path in COVERED_PATHS}
    found |= {value for path, value in settings.items() if path[0] == "plugins" and path[-1] in COVERED_KEYS}
    return sorted(os.path.normpath(path) for path in found if path and os.path.isabs(path) and path.strip("/"))


def config_file(argv):
    """Return the main file that the daemon reads."""
    return flag_value(argv, "config", "c") or DEFAULT_CONFIG


def empty_cgroup_path(path):
    """Empty C([cgroup] path) in the sandbox's copy of a main file and its imports."""
    for item in read_files(path)["files"]:
        text = (decoded(item["content"]) or b"").decode("utf-8")
        entry = scan(text).find(CGROUP_PATH)
        if entry:
            put(item["path"], (text[: entry.value_start] + '""' + text[entry.value_end :]).encode("utf-8"))


def start_daemon(argv, environment, settings, deadline, found):
    """Start the daemon, note in C(found) how it does, and leave it to the end of the sandbox."""
    for directory in covered_directories(argv, settings):
        cover(directory)
    if settings.get(CGROUP_PATH):
        empty_cgroup_path(config_file(argv))
    configured = next((settings[path] for path in ADDRESS_PATHS if settings.get(path)), DEFAULT_SOCKET)
    address = flag_value(argv, "address", "a") or configured
    found["booted"] = True
    with open(LOG, "wb") as log:
        daemon = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    while time.monotonic() < deadline and daemon.poll() is None and not is_settled(address, deadline, found):
        time.sleep(POLL_S)
    found["exit"] = daemon.poll()
    with open(LOG, encoding="utf-8", errors="replace") as stream:
        found["log"] = telling_lines(stream.read())
    if found["exit"] is not None:
        last = found["log"][-1] if found["log"] else "no word in its log"
        found["cri"].update(serving=False, error=f"the daemon ended with exit code {found['exit']}: {last}")


def is_settled(address, deadline, found):
    """Ask the daemon for its plugins and for CRI; return whether asking again could not change the answer."""
    timeout_s = max(0.1, deadline - time.monotonic())
    try:
        found["plugins"] = read_plugins(address, timeout_s)
        with CriClient(address, timeout_s) as client:
            found["cri"]["version"] = client.version()["runtime_version"]
            status = client.status(verbose=True)
    except (CriError, GrpcError) as error:
        found["cri"]["error"] = str(error)
        return error.code_name == "UNIMPLEMENTED"
    ready = next((item for item in status["conditions"] if item["type"] == "RuntimeReady"), None)
    found["cri"].update(serving=bool(ready and ready["status"]), config_path=loaded_config_path(status["info"]))
    found["cri"]["error"] = "" if found["cri"]["serving"] else f"RuntimeReady is not true: {ready}"
    return found["cri"]["serving"]


def read_plugins(address, timeout_s):
    """Return C({type.id: why the plugin failed}), empty for one that loaded or says that it does not fit here."""
    channel = Channel(address)
    try:
        plugins = decode_message(channel.unary(_PLUGINS_METHOD, b"", timeout_s), _PLUGINS)["plugins"]
    finally:
        channel.close()
    found = {}
    for plugin in plugins:
        error = plugin["init_err"]
        failed = error is not None and error["code"] != _UNIMPLEMENTED
        found[f"{plugin['type']}.{plugin['id']}"] = error["message"] if failed else ""
    return found


def new_lines(before, after):
    """Return the lines of a log that another log does not have, whatever their time; all when there are none."""
    known = {_LOG_TIME.sub("", line) for line in before}
    return [line for line in after if _LOG_TIME.sub("", line) not in known] or after
