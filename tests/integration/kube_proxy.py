"""kube-proxy of a lab: what the cluster and the nodes have of it, and the playbook that changes it."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path

import yaml
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import ClusterApi, wait_until
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import (
    CONFIG_MAPS,
    DAEMON_SETS,
    NODES,
    PODS,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_twin import LABEL, MANAGED_LABEL

from tests.integration.fleet import BIN, ROOT, run_ansible
from tests.integration.pods import busybox, pod_ip
from tests.lab import Lab

NAMESPACE, NAME = "kube-system", "kube-proxy"
WAVES = [1, 2]
# Rules of others, in both packet filters; kube-proxy's are told from them by name alone.
FOREIGN = (
    "iptables -t nat -N KUBE-ROUTER-MINE; iptables -t nat -A OUTPUT -d 192.0.2.1 -j KUBE-ROUTER-MINE;"
    "iptables -A INPUT -s 192.0.2.2 -j DROP; nft add table ip kube-proxy-of-mine"
)
FOREIGN_RULES = "iptables-save | grep -e 192.0.2 -e ROUTER-MINE; nft list tables | grep of-mine"
NO_FOREIGN = (
    "iptables -t nat -D OUTPUT -d 192.0.2.1 -j KUBE-ROUTER-MINE; iptables -t nat -X KUBE-ROUTER-MINE;"
    "iptables -D INPUT -s 192.0.2.2 -j DROP; nft delete table ip kube-proxy-of-mine"
)
# One line for each answer: seconds since the boot.
CLIENT = "exec 2>/dev/null; while true; do timeout 1 wget -q -O /dev/null http://{} && cut -d' ' -f1 /proc/uptime; done"


class Proxy:
    """kube-proxy of a lab."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        """Remember what is there, so that it can be compared with what is left."""
        self.lab, self.api = lab, ClusterApi(str(lab.kubeconfig))
        play = {"hosts": "control_plane:workers", "gather_facts": False, "serial": WAVES, "any_errors_fatal": True}
        role = {"name": "portcullis.fleet.kube_proxy", "tasks_from": "finish"}
        plays = [
            {**play, "roles": ["portcullis.fleet.kube_proxy"]},
            {**play, "tasks": [{"name": "Finish", "ansible.builtin.include_role": role}]},
        ]
        self.playbook = folder / "kube-proxy.yml"
        self.playbook.write_text(yaml.safe_dump(plays), encoding="utf-8")
        self.before = self.state()

    def state(self) -> tuple:
        """What a change must leave as it was: the DaemonSet's spec, the ConfigMap's data, and that nothing is ours."""
        ours = [item["metadata"]["name"] for item in self.api.list(DAEMON_SETS, label_selector=MANAGED_LABEL)]
        ours += [item["metadata"]["name"] for item in self.api.list(CONFIG_MAPS, label_selector=MANAGED_LABEL)]
        ours += [item["metadata"]["name"] for item in self.api.list(NODES, label_selector=LABEL)]
        return self.api.get(DAEMON_SETS, NAME, NAMESPACE)["spec"], self.config_map()["data"], ours

    def config_map(self) -> dict:
        return self.api.get(CONFIG_MAPS, NAME, NAMESPACE)

    # Seconds for each wait on a node.
    timeout = 20

    def argv(self, state: str = "present", *more: str, **config: object) -> list[str]:
        """The command line of a run."""
        variables = {
            "portcullis_kube_proxy_config": config,
            "portcullis_kube_proxy_state": state,
            "portcullis_kube_proxy_timeout": self.timeout,
        }
        inventory = str(self.lab.inventory_path)
        return ["ansible-playbook", "-i", inventory, str(self.playbook), "-e", json.dumps(variables), *more]

    def run(self, state: str = "present", *more: str, **config: object) -> tuple[int, str]:
        """C((exit code, output)) of a run."""
        return run_ansible(self.argv(state, *more, **config))

    def begin(self, **config: object) -> subprocess.Popen:
        """A run that can be killed, in a process group of its own."""
        argv = self.argv(**config)
        return subprocess.Popen(
            [str(BIN / argv[0]), *argv[1:]], cwd=ROOT, start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def restore(self) -> None:
        """Take everything back that a test has changed."""
        if self.state() != self.before:
            code, output = self.run("absent")
            assert code == 0, output
        assert self.state() == self.before

    def mode(self, node: str) -> str:
        """The live mode in kube-proxy's own word."""
        script = (
            "import urllib.request as u;"
            "print(u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:10249/proxyMode',timeout=2).read().decode())"
        )
        return self.lab.ssh(node, ["python3", "-c", script], check=False).stdout.strip()

    def modes(self) -> dict[str, str]:
        return {node: self.mode(node) for node in self.nodes}

    @property
    def nodes(self) -> list[str]:
        return sorted(item["metadata"]["name"] for item in self.api.list(NODES))

    def label(self, node: str) -> str:
        return (self.api.get(NODES, node)["metadata"].get("labels") or {}).get(LABEL, "")

    def delete_pod(self, node: str) -> None:
        """Delete the pod of kube-proxy on a node, and wait for the next one."""
        options = {"label_selector": "k8s-app=kube-proxy", "field_selector": f"spec.nodeName={node}"}
        (old,) = self.api.list(PODS, namespace=NAMESPACE, **options)
        self.api.delete(PODS, old["metadata"]["name"], NAMESPACE)

        def is_new() -> bool:
            found = self.api.list(PODS, namespace=NAMESPACE, **options)
            return len(found) == 1 and found[0]["metadata"]["uid"] != old["metadata"]["uid"] and bool(self.mode(node))

        assert wait_until(is_new, 30)


class Client:
    """A pod that calls a Service without a pause, and the pod that answers on another node."""

    def __init__(self, lab: Lab, client_node: str, server_node: str) -> None:
        """Start both."""
        self._lab = lab
        lab.kubectl("apply", "-f", "-", stdin=busybox("answers", server_node, "httpd", "-f", "-p", "80", "-h", "/bin"))
        pod_ip(lab, "answers")
        lab.kubectl("expose", "pod", "answers", "--port=80")
        address = lab.kubectl("get", "service", "answers", "-o", "jsonpath={.spec.clusterIP}").stdout
        script = CLIENT.format(f"{address}/busybox")
        lab.kubectl("apply", "-f", "-", stdin=busybox("calls", client_node, "sh", "-c", script))
        pod_ip(lab, "calls")

    def longest_gap_s(self) -> float:
        """The longest time between two answers."""
        times = [float(line) for line in self._lab.kubectl("logs", "calls").stdout.split()]
        assert len(times) > 50, "the client was hardly ever answered"
        return max(after - before for before, after in itertools.pairwise(times))

    def remove(self) -> None:
        """Take all of it away."""
        self._lab.kubectl("delete", "service", "answers", "--ignore-not-found")
        self._lab.kubectl("delete", "pod", "answers", "calls", "--ignore-not-found", "--wait=false")
