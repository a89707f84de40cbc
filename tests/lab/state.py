"""What a lab must remember to be taken down whatever happened: written before each thing that needs undoing."""

import fcntl
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.lab.errors import LabError
from tests.lab.paths import state_home
from tests.lab.run import wait

VERSION = 1
LOCK_TIMEOUT_S = 120


@dataclass
class Process:
    """A process, told apart from a later one with the same number by its start time (clock ticks since boot)."""

    pid: int
    start: int


@dataclass
class NodeState:
    """A node that exists or is being made."""

    index: int
    """Gives the addresses."""
    spec: dict
    port: int = 0
    """Of its sshd on 127.0.0.1."""


@dataclass
class State:
    """The file state.json."""

    version: int = VERSION
    complete: bool = False
    """`up` reached its end."""
    init: Process | None = None
    """PID 1 of the lab's namespace, by its number on the host."""
    cgroups: list[str] = field(default_factory=list)
    controllers: list[str] = field(default_factory=list)
    """cgroup v2 controllers that were switched on for the lab at the host's root."""
    processes: dict[str, Process] = field(default_factory=dict)
    """By name; numbers as inside the namespace."""
    nodes: dict[str, NodeState] = field(default_factory=dict)
    api_port: int = 0
    registry_port: int = 0
    """Of the registry on 127.0.0.1; 0 when there is none."""
    proxy_mode: str = ""
    binaries: str = ""
    """The directory of kubectl and the others."""


def parse(text: str, path: Path) -> State:
    """The state from its JSON text."""
    value = json.loads(text)
    if value.get("version") != VERSION:
        raise LabError(f"{path}: version {value.get('version')!r}, expected {VERSION}: take it down with its own lab")
    value["init"] = Process(**value["init"]) if value["init"] else None
    value["processes"] = {name: Process(**entry) for name, entry in value["processes"].items()}
    value["nodes"] = {name: NodeState(**entry) for name, entry in value["nodes"].items()}
    return State(**value)


class Store:
    """The directory of one lab and the state in it."""

    def __init__(self, name: str) -> None:
        """`name` is the lab's; nothing is made yet."""
        self.directory = state_home() / name
        self.file = self.directory / "state.json"
        self._writing = threading.Lock()
        self.state = State()
        self.read()

    def exists(self) -> bool:
        """Whether there is such a lab, whole or not."""
        return self.directory.is_dir()

    def read(self) -> None:
        """Read what other programs may have changed."""
        try:
            self.state = parse(self.file.read_text(), self.file)
        except FileNotFoundError:
            self.state = State()

    @contextmanager
    def change(self) -> Iterator[State]:
        """Change the state; it is on disk when the block ends."""
        with self._writing:
            yield self.state
            temporary = self.file.with_suffix(".new")
            temporary.write_text(json.dumps(asdict(self.state), indent=1))
            temporary.rename(self.file)

    @contextmanager
    def locked(self, *, create: bool = False) -> Iterator[None]:
        """Keep other programs from changing this lab; LabError when it does not exist and `create` is not asked for."""
        descriptor = -1

        def locked() -> bool:
            nonlocal descriptor
            if create:
                self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                descriptor = os.open(self.directory, os.O_RDONLY)
            except FileNotFoundError as error:
                raise LabError(f"lab {self.directory.name} does not exist: run `up`") from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The holder before us may have removed the directory (`down`): then this lock guards nothing.
                if self.exists() and os.fstat(descriptor).st_ino == self.directory.stat().st_ino:
                    return True
            except BlockingIOError:
                pass
            os.close(descriptor)
            return False

        wait(f"lab {self.directory.name} is not in use by another program", locked, timeout_s=LOCK_TIMEOUT_S)
        try:
            self.read()
            yield
        finally:
            os.close(descriptor)
