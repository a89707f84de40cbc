# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of containerd, versions of the file, and what is in it: changed, proven by pods and pulls, and given back."""

from __future__ import annotations

import itertools
import json
import time
import tomllib

import pytest

from tests.integration.target import CONFIG, DIRECTORY, NODE
from tests.lab.containerd import LINES, default_config
from tests.lab.registry import Registry

MIRROR = f"http://{Registry.ADDRESS}"
DROP_IN = "/etc/containerd/conf.d/50-site.toml"
# What each line reads; 2.0 to 2.2 ignore the plugin tables of a file of version 1.
VERSIONS = {
    "debian": (1, 2),
    "1.7": (1, 2),
    "2.0": (1, 2, 3),
    "2.2": (1, 2, 3),
    "2.3": (1, 2, 3, 4),
    "2.4": (1, 2, 3, 4),
}
IGNORES_VERSION_1 = ("2.0", "2.2")
CONTENTS = ("fresh", "mirrors", "imports", "nri_off", "owned")
CASES = [case for line in ("debian", *LINES) for case in itertools.product([line], VERSIONS[line], CONTENTS)]
EVERY_TIME = ("debian", "2.2")


def pairwise(cases: list[tuple]) -> list[tuple]:
    """Cases that hold every pair of values that there is, each the one with the most pairs that are new."""
    chosen, missing = [], {pair for case in cases for pair in itertools.combinations(enumerate(case), 2)}
    while missing:
        best = max(cases, key=lambda case: len(missing.intersection(itertools.combinations(enumerate(case), 2))))
        missing -= set(itertools.combinations(enumerate(best), 2))
        chosen.append(best)
    return chosen


SAMPLE = pairwise([case for case in CASES if case[0] in EVERY_TIME])


def base(line: str, version: int) -> str:
    """The node's configuration in a version of the file."""
    text = default_config("2.0" if version >= 3 else "debian")
    text = text.replace(text.splitlines()[0] + "\n", "" if version == 1 else f"version = {version}\n", 1)
    if version == 1:
        text = text.replace('"io.containerd.grpc.v1.cri"', "cri").replace('"io.containerd.internal.v1.opt"', "opt")
    assert tomllib.loads(text).get("version", 1) == version
    return text


def table(version: int, kind: str) -> str:
    """The path of a plugin's table."""
    names = {
        "cri": "io.containerd.cri.v1.images" if version >= 3 else "io.containerd.grpc.v1.cri",
        "nri": "io.containerd.nri.v1.nri",
    }
    return f"plugins.{kind}" if version == 1 else f'plugins."{names[kind]}"'


def files_of(line: str, version: int, content: str) -> dict[str, str]:
    """The files of a case, by path."""
    text = base(line, version)
    if content == "mirrors":
        text += f'\n# ours\n[{table(version, "cri")}.registry.mirrors."docker.io"]\nendpoint = ["{MIRROR}"] # the lab\n'
    if content == "nri_off":
        text += f"\n[{table(version, 'nri')}]\n  disable = true # for now\n"
    if content == "owned":
        text = "# k0s_managed=true\n" + text
    if content == "imports":
        # The drop-in has the whole CRI table, so on every line it is the one that counts.
        head = "" if version == 1 else f"version = {version}\n"
        return {CONFIG: f'{head}imports = ["{DROP_IN.rpartition("/")[0]}/*.toml"]\n', DROP_IN: text}
    return {CONFIG: text}


@pytest.fixture
def configured(node, request):
    """The node with the files of the case, restarted; afterwards as it was."""
    original, etc, pids = node.config(), node.etc(), node.pod_pids()
    files = files_of(*request.param)
    node.sh(f"mkdir -p {DROP_IN.rpartition('/')[0]} {DIRECTORY}/docker.io")
    if request.param[2] != "mirrors":
        hosts = f'[host."{MIRROR}"]\n  capabilities = ["pull", "resolve"]\n'
        node.lab.ssh(NODE, ["tee", f"{DIRECTORY}/docker.io/hosts.toml"], stdin=hosts)
    for path, text in files.items():
        node.lab.ssh(NODE, ["tee", path], stdin=text)
    restart(node)
    try:
        yield files
    finally:
        node.sh(f"rm -rf {DROP_IN} {DIRECTORY}; rmdir {DROP_IN.rpartition('/')[0]}")
        node.lab.ssh(NODE, ["tee", CONFIG], stdin=original)
        restart(node)
    assert (node.etc(), node.pod_pids()) == (etc, pids)


def restart(node) -> None:
    """Restart the daemon and wait until its CRI answers."""
    node.sh("systemctl restart containerd")
    node.wait_for(
        "ctr plugins ls 2>/dev/null | grep -E 'grpc.v1 +cri .* ok' && ctr -n k8s.io containers ls -q | head -1"
    )


def pull(node, image: str) -> list[str]:
    """Run a pod whose image is at the mirror only; return who asked the mirror for it, and for which registry."""
    registry = node.lab.registry()
    registry.push(image)
    container = {"name": "c", "image": image, "imagePullPolicy": "Always", "command": ["sleep", "86398"]}
    spec = {"nodeName": NODE, "terminationGracePeriodSeconds": 1, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pulls"}, "spec": spec}
    try:
        node.lab.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
        node.lab.kubectl("wait", "--for=condition=Ready", "pod/pulls", "--timeout=60s", timeout_s=70)
    finally:
        node.lab.kubectl("delete", "pod", "pulls", "--ignore-not-found", timeout_s=60)
    name, _, tag = image.rpartition(":")
    target = f"/v2/{name}/manifests/{tag}"
    return [
        request.target
        for request in registry.requests()
        if request.target.startswith(target) and request.method == "HEAD"
    ]


def parameters() -> list:
    """Every case, grouped by node; those that are not of the sample only with `make test-full`."""
    return [
        pytest.param(
            line,
            (line, version, content),
            id=f"{line}-v{version}-{content}",
            marks=[] if (line, version, content) in SAMPLE else pytest.mark.full,
        )
        for line, version, content in CASES
    ]


@pytest.mark.parametrize(("node", "configured"), parameters(), indirect=True)
def test_matrix(node, configured, request):
    """The change is effective after one restart, pods live on, pulls go through the mirror, and the undo is exact."""
    line, version, content = request.node.callspec.params["configured"]
    pids, daemon = node.pod_pids(), node.daemon_pid()
    arguments = ["nri=enabled"] if content == "nri_off" else []

    changed = node.configure(*arguments)

    assert node.pod_pids() == pids, "the pod did not outlive the change"
    if content == "owned" or (content == "nri_off" and line == "debian"):
        expected = "containerd.config_owned" if content == "owned" else "containerd.nri_unsupported"
        assert [item["id"] for item in changed["findings"]] == [expected], changed
        assert {path: node.sh(f"cat {path}") for path in configured} == configured
        assert node.daemon_pid() == daemon
        return
    assert changed["changed"] and changed["restarted"] and changed["cri_ready"], changed
    # Without its tables a node starts no pod, before or after.
    reads_tables = version > 1 or line not in IGNORES_VERSION_1
    assert changed["effective_config_path"] == DIRECTORY
    assert bool(changed.get("converted")) == (content == "mirrors" and reads_tables)
    if content == "nri_off":
        assert node.sh("grep -c /run/nri/nri.sock /proc/net/unix || true").strip() == "1"
    if reads_tables:
        assert pull(node, f"team/matrix:{time.time_ns()}")
    assert not node.configure(*arguments)["changed"]
    undone = node.configure("state=absent")
    assert undone["changed"] and undone["cri_ready"], undone
    assert {path: node.sh(f"cat {path}") for path in configured} == configured
    assert node.pod_pids() == pids
