"""What a change of kube-proxy costs in a cluster of 500 nodes: requests to a real API server, and seconds.

    python -m tests.bench.kube_proxy_fleet [LAB]

The Nodes are objects only, in the lab that is named (default: bench) and is up; kube-proxy's DaemonSet makes a pod for
each, which nobody runs. So the planning, the start, what the end waits for, and the way back are measured. What one
node costs does not depend on the others: C(api_calls) in the module's result tells it.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT)]

from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import ClusterApi, wait_until  # noqa: E402
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import DAEMON_SETS, PODS  # noqa: E402
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_cluster import find_twin  # noqa: E402
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_finish import Finish  # noqa: E402
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_start import Start  # noqa: E402

from tests.bench.felix_fleet import LABEL, NODES, PODS_TIMEOUT_S, measured, node  # noqa: E402
from tests.integration.calico import listed  # noqa: E402
from tests.lab import Lab  # noqa: E402

CONFIG, NAMESPACE = {"mode": "nftables"}, "kube-system"
SELECTOR = {"namespace": NAMESPACE, "label_selector": "k8s-app=kube-proxy"}


def start(api: ClusterApi, state: str = "present", *, check_mode: bool = False) -> dict:
    """The first step."""
    return Start(api, check_mode=check_mode, timeout_s=30).run(state, CONFIG if state == "present" else {})


def main(argv: list[str]) -> int:
    """Measure."""
    lab = Lab.open(argv[0] if argv else "bench")
    api = ClusterApi(str(lab.kubeconfig))
    before = api.get(DAEMON_SETS, "kube-proxy", NAMESPACE)["spec"]
    label = ",".join(f"{key}={value}" for key, value in LABEL.items())
    try:
        nodes = [node(number) for number in range(NODES)]
        for item in nodes:
            item["metadata"]["labels"] = {**LABEL, "kubernetes.io/os": "linux"}
        lab.kubectl("create", "-f", "-", stdin=listed(*nodes), timeout_s=120)
        if not wait_until(lambda: len(api.list(PODS, **SELECTOR)) >= NODES, PODS_TIMEOUT_S):
            sys.exit("the DaemonSet has not made its pods")
        print(f"{NODES} nodes", flush=True)
        measured(api, "planning (check mode)", lambda: start(api, check_mode=True))
        measured(api, "start, with a pod that loads the candidate", lambda: start(api))
        measured(api, "what the end waits for", lambda: Finish(api, find_twin(api)).waits_for())
        measured(api, "a second start", lambda: start(api))
        measured(api, "the way back", lambda: [start(api, "absent"), start(api, "absent")])
        if find_twin(api) or api.get(DAEMON_SETS, "kube-proxy", NAMESPACE)["spec"] != before:
            sys.exit("something was left behind")
    finally:
        lab.kubectl("delete", "nodes", "-l", label, "--wait=false", timeout_s=120)
        gone = ("--field-selector=status.phase=Pending", "-l", "k8s-app=kube-proxy", "--grace-period=0", "--force")
        lab.kubectl("-n", NAMESPACE, "delete", "pods", *gone, timeout_s=300)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
