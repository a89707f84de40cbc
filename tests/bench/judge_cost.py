"""What judging saved probes costs on the controller.

    python -m tests.bench.judge_cost [PROBE.json ...]

Without files: clean nodes whose packet filters hold 50 Services. 200 probes are read from JSON and judged as
node_requirements does; printed is the processor time of all and of one.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT)]

from ansible_collections.portcullis.fleet.plugins.action.node_requirements import judge  # noqa: E402
from ansible_collections.portcullis.fleet.plugins.module_utils.packet_filters import packed  # noqa: E402

from tests.unit.plugins.action.test_node_requirements import arguments  # noqa: E402
from tests.unit.plugins.plugin_utils.probes import CLEAN_PROBE  # noqa: E402

NODES = 200
SERVICES = 200
GOAL_S = 2.0


def rules(node: int) -> str:
    """Return what iptables-save prints of kube-proxy on one node: Services of two endpoints, no two nodes alike."""
    chains, lines = [], []
    for number in range(SERVICES):
        service, address = f"KUBE-SVC-{number:016X}", f"10.96.{node}.{number + 1}"
        comment = f'-m comment --comment "ns/s{number}"'
        chains.append(f":{service} - [0:0]")
        lines.append(f"-A KUBE-SERVICES -d {address}/32 -p tcp {comment} -m tcp --dport 80 -j {service}")
        for endpoint in range(2):
            target = f"KUBE-SEP-{number * 2 + endpoint:016X}"
            chains.append(f":{target} - [0:0]")
            lines += [
                f"-A {service} {comment} -m statistic --mode random --probability 0.5 -j {target}",
                f"-A {target} -p tcp -m tcp -j DNAT --to-destination 10.244.{endpoint}.{number + 1}:8080",
            ]
    head = ["*nat", ":PREROUTING ACCEPT [0:0]", ":KUBE-SERVICES - [0:0]", *chains]
    return "\n".join([*head, "-A PREROUTING -j KUBE-SERVICES", *lines, "COMMIT", ""])


def sample(node: int) -> str:
    """Return the probe of a clean node."""
    filters = {**CLEAN_PROBE["packet_filter_rules"], "saves": [packed(rules(node))]}
    return json.dumps({**CLEAN_PROBE, "packet_filter_rules": filters})


def main(argv: list[str]) -> int:
    """Judge, print."""
    files = [Path(path).read_text(encoding="utf-8") for path in argv]
    texts = [files[node % len(files)] if files else sample(node) for node in range(NODES)]
    started = time.process_time()
    probes = {f"node{number}": json.loads(text) for number, text in enumerate(texts)}
    found, _changeable = judge(arguments(probes, cluster=None), {"workers": list(probes)}, {})
    spent = time.process_time() - started
    size, each = len(texts[0]) // 1024, spent / NODES * 1000
    print(f"{NODES} probes of {size} KiB: {spent:.2f} s, {each:.1f} ms each, goal {GOAL_S} s; {len(found)} findings")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
