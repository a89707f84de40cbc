"""`molecule test` works from the checkout; here on the shared lab, which it leaves up."""

from __future__ import annotations

import os
import subprocess

from tests.integration.fleet import BIN, ROOT, Fleet


def test_the_default_scenario_passes_and_leaves_a_lab_that_was_up(fleet: Fleet):
    environment = {**os.environ, "PORTCULLIS_LAB": fleet.lab.name, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        [str(BIN / "molecule"), "test"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stdout.decode()
    assert fleet.lab.problems() == []
