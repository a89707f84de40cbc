"""The demo: a real cluster on this machine, the main job on it, and what to look at next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.lab import Lab, LabError

ROOT = Path(__file__).resolve().parent.parent
LAB = "demo"
NEXT = """
The report: {report}
The lab is still up. What to try next, from {root}:
  predict, change nothing:   .venv/bin/ansible-playbook -i {inventory} playbooks/site.yml --check --diff
  break a node and look:     .venv/bin/python -m tests.lab ssh --name {lab} w1 systemctl stop containerd
                             .venv/bin/ansible-playbook -i {inventory} playbooks/preflight.yml
  one module on one node:    .venv/bin/ansible w2 -i {inventory} -b -m portcullis.fleet.node_probe
  look into the cluster:     .venv/bin/python -m tests.lab kubectl --name {lab} get pods -A -o wide
  take it all away:          make lab-down
"""


def main() -> int:
    """Run the demo; the exit code is that of the playbook."""
    lab = Lab.open(LAB)
    print("demo: bringing the lab up (the first time builds Kubernetes, which takes some minutes)", flush=True)
    try:
        lab.up()
    except LabError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    command = [".venv/bin/ansible-playbook", "-i", str(lab.inventory_path), "playbooks/site.yml", "--diff"]
    print("demo: " + " ".join(command), flush=True)
    code = subprocess.run(command, cwd=ROOT, env=os.environ, stdin=subprocess.DEVNULL, check=False).returncode
    report = ROOT / "reports/portcullis-report.html"
    print(NEXT.format(report=report, root=ROOT, inventory=lab.inventory_path, lab=LAB))
    return code


if __name__ == "__main__":
    sys.exit(main())
