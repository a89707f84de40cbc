"""kube-proxy's flags in a file of a node: written with the journal, proven, put back.

k3s itself cannot run here: a stand-in service of its name reads its file, tells a mode, and makes a rule of that mode.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import wait_until
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_node_files import change_files

from tests.integration.fleet import run_ansible
from tests.lab import Lab

NODE, PATH = "h1", "/etc/rancher/k3s/config.yaml"
ORIGINAL = "# mine\ntoken: abc\nkube-proxy-arg:\n  - proxy-mode=iptables # for now\n"
PROOF = {"metrics_address": "127.0.0.1:10249", "address": "127.0.0.1", "port": 10249, "timeout_s": 3}
BEFORE = {"proxy_mode": "iptables", "answers": True}
STAND_IN = """
import http.server, re, subprocess, sys
mode = re.search("proxy-mode=([a-z]+)", open("/etc/rancher/k3s/config.yaml").read()).group(1)
if mode == "ipvs":
    sys.exit("no IPVS here")
rules = {
    "iptables": "iptables -t nat -N KUBE-SVC-NPX46M4PTMTKRN6Y; iptables -t nat -N KUBE-SERVICES;"
    "iptables -t nat -A KUBE-SERVICES -d 127.0.0.1 -j KUBE-SVC-NPX46M4PTMTKRN6Y;"
    "iptables -t nat -A OUTPUT -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES",
    "nftables": "nft add table ip kube-proxy; nft 'add map ip kube-proxy service-ips"
    " {type ipv4_addr . inet_proto . inet_service : verdict; elements={127.0.0.1 . tcp . 443 : accept};}'",
}
subprocess.run(rules[mode], shell=True)
class Mode(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(mode.encode())
http.server.ThreadingHTTPServer(("127.0.0.1", 10249), Mode).serve_forever()
"""
UNIT = "[Service]\nExecStart=/usr/bin/python3 /run/k3s-stand-in.py\n"
CLEAN = (
    "systemctl stop k3s; rm -rf /run/systemd/system/k3s.service /run/k3s-stand-in.py /etc/rancher /var/lib/portcullis;"
    "systemctl daemon-reload; systemctl reset-failed k3s; iptables -t nat -F KUBE-SERVICES;"
    "iptables -t nat -D OUTPUT -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES;"
    "iptables -t nat -X KUBE-SERVICES; iptables -t nat -X KUBE-SVC-NPX46M4PTMTKRN6Y;"
    "nft delete table ip kube-proxy; true"
)


@pytest.fixture
def ask(lab: Lab) -> Iterator[Callable[[dict], dict]]:
    """Runs kube_proxy_file on the node, where the stand-in of k3s is active."""
    for path, text in ((PATH, ORIGINAL), ("/run/k3s-stand-in.py", STAND_IN), ("/run/systemd/system/k3s.service", UNIT)):
        lab.ssh(NODE, ["sh", "-c", f"mkdir -p $(dirname {path}); cat > {path}"], stdin=text)
    lab.ssh(NODE, ["sh", "-c", "systemctl daemon-reload; systemctl start k3s"])

    def run(options: dict) -> dict:
        argv = ["ansible", "-i", str(lab.inventory_path), NODE, "-b", "-m", "portcullis.fleet.kube_proxy_file"]
        code, output = run_ansible([*argv, "-a", json.dumps(options)])
        return {"code": code, **json.loads(output[output.index(" => ") + 4 :])}

    yield run
    lab.ssh(NODE, ["sh", "-c", CLEAN])


def text(lab: Lab) -> str:
    return lab.ssh(NODE, ["cat", PATH]).stdout


def works(ask: Callable) -> Callable:
    """The same, for what must not fail."""

    def run(options: dict) -> dict:
        found = ask(options)
        assert found["code"] == 0, found["msg"]
        return found

    return run


def plan_of(mode: str, digest: str, timeout_s: int) -> dict:
    """What change_files() has written for this mode."""
    content = base64.b64encode(ORIGINAL.replace("iptables", mode).encode()).decode()
    before = {"mode": "iptables", "metrics_address": PROOF["metrics_address"]}
    proof = {**PROOF, "mode": mode, "before": before, "must_answer": True, "timeout_s": timeout_s}
    return {"writes": [{"path": PATH, "content": content, "expected_sha256": digest}], "proof": proof}


def test_the_mode_is_changed_proven_and_given_back(lab: Lab, ask: Callable):
    found = change_files(works(ask), PATH, {"mode": "nftables"}, BEFORE, PROOF, check_mode=False)
    assert text(lab) == ORIGINAL.replace("iptables", "nftables")
    assert found["changed"]
    assert found["removed"] == ["iptables-nft ip nat KUBE-SERVICES", "iptables-nft ip nat KUBE-SVC-* (1)"]

    again = change_files(ask, PATH, {"mode": "nftables"}, {**BEFORE, "proxy_mode": "nftables"}, PROOF, check_mode=False)
    assert again["changed"] is False

    assert ask({"step": "undo", "path": PATH, "timeout_s": 10})["changed"] is True
    assert text(lab) == ORIGINAL
    assert ask({"step": "undo", "path": PATH, "timeout_s": 10})["changed"] is False


def test_a_mode_that_does_not_come_is_put_back(lab: Lab, ask: Callable):
    plan = plan_of("ipvs", ask({"step": "read", "path": PATH})["files"][0]["sha256"], PROOF["timeout_s"])
    found = ask({"step": "write", "path": PATH, "plan": json.dumps(plan)})
    assert found["msg"].endswith("; the files were put back")
    assert text(lab) == ORIGINAL
    assert lab.ssh(NODE, ["systemctl", "is-active", "k3s"]).stdout.strip() == "active"


def test_a_run_that_is_killed_while_the_service_does_not_come_up_is_put_back_by_the_next(lab: Lab, ask: Callable):
    """The process is the one that the journal's lock names."""
    plan = plan_of("ipvs", ask({"step": "read", "path": PATH})["files"][0]["sha256"], timeout_s=10)
    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(ask, {"step": "write", "path": PATH, "plan": json.dumps(plan)})
        assert wait_until(lambda: lab.ssh(NODE, ["systemctl", "is-failed", "k3s"], check=False).returncode == 0, 30)
        pid = json.loads(lab.ssh(NODE, ["cat", "/var/lib/portcullis/journal/lock"]).stdout)["pid"]
        lab.ssh(NODE, ["kill", "-9", str(pid)])
        assert killed.exception(60) or killed.result()["code"]
    assert text(lab) == ORIGINAL.replace("iptables", "ipvs")

    found = ask({"step": "recover", "path": PATH})
    assert found["msg"].endswith("; the files were put back")
    assert text(lab) == ORIGINAL
    assert lab.ssh(NODE, ["systemctl", "is-active", "k3s"]).stdout.strip() == "active"
    assert ask({"step": "recover", "path": PATH})["changed"] is False
