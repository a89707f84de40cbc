"""What a run of the containerd role costs where nothing is to change, against a playbook with a single slurp.

    python -m tests.bench.role_cost INVENTORY [RUNS]

Both run in turn on the same nodes; printed are the ratios of wall time and of the controller's CPU time, run by run.
The nodes must be as wanted already (run site.yml once).
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLAY = "- hosts: control_plane:workers\n  gather_facts: false\n  become: true\n"
SLURP = PLAY + "  tasks:\n    - ansible.builtin.slurp: {src: /etc/containerd/config.toml}\n"
ROLE = PLAY + "  roles:\n    - portcullis.fleet.containerd\n"


def cost(playbook: Path, inventory: str) -> tuple[float, float]:
    """(wall seconds, CPU seconds of the controller) of one playbook run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    command = [Path(sys.executable).parent / "ansible-playbook", "-i", inventory, playbook]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=os.environ)
    wall = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = done.stdout.decode()
    if done.returncode or "changed=0" not in output or "changed=1" in output:
        sys.exit(f"the nodes are not as wanted, run site.yml first:\n{output}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(argv: list[str]) -> int:
    """Compare, print."""
    inventory, runs = argv[0], int(argv[1]) if len(argv) > 1 else 7
    with tempfile.TemporaryDirectory() as folder:
        slurp, role = Path(folder, "slurp.yml"), Path(folder, "role.yml")
        slurp.write_text(SLURP, encoding="utf-8")
        role.write_text(ROLE, encoding="utf-8")
        cost(slurp, inventory)
        cost(role, inventory)
        pairs = [(cost(role, inventory), cost(slurp, inventory)) for _ in range(runs)]
    for index, name in enumerate(("wall", "cpu")):
        ratios = [ours[index] / theirs[index] for ours, theirs in pairs]
        median = statistics.median(ratios)
        print(f"{name:<5} role/slurp: median {median:.2f}, min {min(ratios):.2f}, max {max(ratios):.2f}, {runs} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
