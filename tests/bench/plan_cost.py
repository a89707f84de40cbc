"""What computing the change of one containerd configuration costs on the controller.

    python -m tests.bench.plan_cost [FILE ...]

Without files: one with every table of a default configuration, mirrors and registry TLS, about 7 kB. Printed are the
median and the worst time of a plan with every option, nothing remembered from the one before, and its ratio to
parsing the same text once. The goal is a median below 30 ms.
"""

from __future__ import annotations

import statistics
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.portcullis.fleet.plugins.module_utils.containerd_toml import scan  # noqa: E402
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_edit import parse  # noqa: E402
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_effective import parse_version  # noqa: E402
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_plan import Options, plan_present  # noqa: E402
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_settings import Setting  # noqa: E402

GOAL_MS = 30
RUNS = 30
CRI = "io.containerd.grpc.v1.cri"
OPTIONS = Options(
    "/srv/certs.d",
    nri="enabled",
    settings=[Setting(("oom_score",), -998), Setting(("debug", "level"), "warn")],
)


def sample() -> str:
    """Return a configuration as large as a full default one, with mirrors, TLS and credentials."""
    lines = ["version = 2", "oom_score = 0", "", "[debug]", '  level = "info"', "", "[plugins]"]
    for number in range(40):
        lines += [
            f'  [plugins."io.containerd.sample.v1.p{number}"]',
            *(f"    key{key} = {key}" for key in range(4)),
            "",
        ]
    lines += [f'  [plugins."{CRI}"]', *(f'    key_{key} = "value {key}"  # why' for key in range(40))]
    for name in ("docker.io", "gcr.io", "ghcr.io", "quay.io", "r.example:5000"):
        table = f'[plugins."{CRI}".registry'
        lines += [
            f'    {table}.mirrors."{name}"]',
            f'      endpoint = ["https://m.example/{name}", "http://n.example"]',
        ]
        lines += [f'    {table}.configs."{name}".tls]', "      insecure_skip_verify = true"]
        lines += [f'    {table}.configs."{name}".auth]', '      username = "u"']
    return "\n".join(lines) + "\n"


def times_ms(work: Callable[[], object]) -> list[float]:
    """Return the processor time of each run in milliseconds, without what runs before it left in caches."""
    found = []
    for _run in range(RUNS):
        scan.cache_clear()
        parse.cache_clear()
        started = time.process_time()
        work()
        found.append((time.process_time() - started) * 1000)
    return found


def main(argv: list[str]) -> int:
    """Measure, print; 1 when a median misses the goal."""
    texts = {path: Path(path).read_text(encoding="utf-8") for path in argv} or {"sample": sample()}
    daemon = parse_version("1.7.35")
    worst = 0.0
    for name, text in texts.items():
        files = {"/etc/containerd/config.toml": text.encode()}
        plans = times_ms(lambda files=files: plan_present(files, daemon, OPTIONS))
        parses = times_ms(lambda text=text: tomllib.loads(text))
        median = statistics.median(plans)
        ratio = median / statistics.median(parses)
        print(f"{name} {len(text)} bytes: median {median:.1f} ms, max {max(plans):.1f} ms, {ratio:.1f} times a parse")
        worst = max(worst, median)
    return int(worst >= GOAL_MS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
