"""What a change of Felix costs in a cluster of 500 nodes: requests to a real API server, and seconds.

    python -m tests.bench.felix_fleet [LAB]

The Nodes, and the pods of calico-node on them, are objects only, in the lab that is named (default: bench) and is up.
What a node would show is made up. Printed are the figures for both forms, an object for each node (Calico 3.31) and
one object with a selector (3.32).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT)]

from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import ClusterApi, wait_until  # noqa: E402
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import PODS  # noqa: E402
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_rollout import Rollout  # noqa: E402

from tests.integration.calico import calico_node, custom, definition, in_cluster, listed  # noqa: E402
from tests.integration.felix import FELIX, FIELDS, crd  # noqa: E402
from tests.lab import Lab  # noqa: E402
from tests.unit.plugins.plugin_utils.felix_samples import reading  # noqa: E402

NODES, WAVE = 500, 50
LABEL = {"portcullis.io/bench": "felix"}
CONTAINER = {"name": "calico-node", "image": "busybox:1.33", "command": ["sleep", "1"]}
PODS_TIMEOUT_S = 300
SHOWN = reading("Append")


def node(number: int) -> dict:
    """A Node that nobody runs."""
    room = {"pods": "110", "cpu": "4", "memory": "8Gi"}
    status = {"capacity": room, "allocatable": room}
    data = {"name": f"bench{number}", "labels": LABEL}
    return {"apiVersion": "v1", "kind": "Node", "metadata": data, "status": status}


@contextmanager
def fleet(lab: Lab, api: ClusterApi, version: str, fields: dict) -> Iterator[list[str]]:
    """Nodes with pods of calico-node, and Calico's objects; the names of the nodes."""
    nodes = [node(number) for number in range(NODES)]
    pods = {"nodeSelector": LABEL, "tolerations": [{"operator": "Exists"}], "containers": [CONTAINER]}
    objects = [
        calico_node(**pods),
        custom("FelixConfiguration", "default", logSeverityScreen="Info"),
        custom("ClusterInformation", "default", calicoVersion=version),
    ]
    with in_cluster(lab, [crd(fields), definition("clusterinformations", "ClusterInformation")], objects):
        try:
            lab.kubectl("create", "-f", "-", stdin=listed(*nodes), timeout_s=120)
            selector = {"namespace": "kube-system", "label_selector": "k8s-app=calico-node"}

            def bound() -> bool:
                return sum(bool(pod["spec"].get("nodeName")) for pod in api.list(PODS, **selector)) >= NODES

            if not wait_until(bound, PODS_TIMEOUT_S):
                sys.exit("the scheduler has not placed the pods")
            yield [item["metadata"]["name"] for item in nodes]
        finally:
            label = ",".join(f"{key}={value}" for key, value in LABEL.items())
            lab.kubectl("delete", "nodes", "-l", label, "--wait=false", timeout_s=120)
            gone = ("-n", "kube-system", "-l", "k8s-app=calico-node", "--grace-period=0", "--force")
            lab.kubectl("delete", "pods", *gone, timeout_s=300)


def measured(api: ClusterApi, what: str, work: Callable[[], object]) -> object:
    """Do it and print what it took."""
    calls, started = api.calls, time.monotonic()
    found = work()
    print(f"  {what}: {api.calls - calls} requests, {time.monotonic() - started:.1f} s", flush=True)
    return found


def change(api: ClusterApi, names: list[str]) -> None:
    """One change through all waves."""
    settings = {"settings": {"chainInsertMode": "Append"}}
    measured(api, "planning (check mode)", lambda: Rollout(api, "present", settings, check_mode=True).start(names))
    for number in range(0, NODES, WAVE):
        wave = names[number : number + WAVE]
        first = number == 0
        show = measured if first else lambda _api, _what, work: work()
        show(api, f"start of a wave of {WAVE}", lambda wave=wave: Rollout(api, "present", settings).start(wave))

        def prove(wave: list[str] = wave) -> None:
            for name in wave:
                Rollout(api, "present", settings).node(name, lambda _health: SHOWN, 0)

        show(api, f"proof of its {WAVE} nodes, one after the other", prove)
        if number + WAVE < NODES:
            show(api, "its end, while others wait", lambda: Rollout(api, "present", settings).finish())
    measured(api, "the end, default written", lambda: Rollout(api, "present", settings).finish())
    measured(api, "a second run's start", lambda: Rollout(api, "present", settings).start(names))
    if [item["metadata"]["name"] for item in api.list(FELIX)] != ["default"]:
        sys.exit("something was left behind")


def main(argv: list[str]) -> int:
    """Measure both forms."""
    lab = Lab.open(argv[0] if argv else "bench")
    for version, more in (("v3.31.0", {}), ("v3.32.1", {"nodeSelector": {"type": "string", "maxLength": 1024}})):
        api = ClusterApi(str(lab.kubeconfig))
        with fleet(lab, api, version, FIELDS | more) as names:
            print(f"{NODES} nodes, Calico {version}", flush=True)
            calls, started = api.calls, time.monotonic()
            change(api, names)
            print(f"  all: {api.calls - calls} requests, {time.monotonic() - started:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
