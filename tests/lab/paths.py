"""Where the lab keeps things outside the checkout (XDG base directories)."""

import os
from pathlib import Path

SOURCE = Path(__file__).resolve().parent


def cache_home() -> Path:
    """What a second `up` reuses: binaries, root file systems, images."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "portcullis/lab"


def state_home() -> Path:
    """One directory for each lab that exists."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "portcullis/labs"
