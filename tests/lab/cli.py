"""The lab's commands."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.lab import containerd, topology
from tests.lab.errors import LabError
from tests.lab.lab import Lab


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m tests.lab", description="A real cluster on one machine.")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--name", default="default", help="which lab; several may exist at the same time")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, parents=[common], help=text, description=text)

    up = command("up", "bring the lab up, unless it is")
    up.add_argument("--topology", type=Path, metavar="FILE.yml", help="default: cp1, w1, w2 and the plain host h1")
    command("status", "say what runs; exit code 3 when the lab is not up and whole")
    ssh = command("ssh", "a shell or a command on a node")
    ssh.add_argument("node")
    ssh.add_argument("argv", nargs=argparse.REMAINDER, metavar="CMD")
    for name, text in {"kubectl": "kubectl as administrator", "run": "a command in the lab's network"}.items():
        command(name, text).add_argument("argv", nargs=argparse.REMAINDER, metavar="ARG")
    command("inventory", "print the Ansible inventory")
    command("registry", "start a registry with busybox inside the lab, unless it runs; say where it is")
    node = commands.add_parser("node", help="add or remove a node").add_subparsers(dest="verb", required=True)
    _add_node_arguments(node.add_parser("add", parents=[common], help="add a node and wait until it is ready"))
    node.add_parser("remove", parents=[common], help="remove a node").add_argument("node")
    command("down", "take everything of the lab away")
    return parser


def _add_node_arguments(add: argparse.ArgumentParser) -> None:
    add.add_argument("node")
    add.add_argument("--kind", choices=topology.KINDS, default="container")
    add.add_argument("--plain", action="store_true", help="a plain host, not in the cluster")
    add.add_argument("--containerd", choices=containerd.CHOICES, default="debian")
    add.add_argument("--config-toml", type=Path, metavar="FILE", help="containerd's configuration, used as it stands")
    add.add_argument("--label", action="append", default=[], metavar="KEY=VALUE", dest="labels")
    add.add_argument("--taint", action="append", default=[], metavar="KEY[=VALUE]:EFFECT", dest="taints")
    add.add_argument("--no-images", action="store_true", help="without busybox")


def _node(arguments: argparse.Namespace) -> topology.Node:
    try:
        config_toml = arguments.config_toml.read_text() if arguments.config_toml else None
    except OSError as error:
        raise LabError(f"{arguments.config_toml}: {error.strerror}") from error
    labels = [label.partition("=") for label in arguments.labels]
    return topology.Node(
        name=arguments.node,
        kind=arguments.kind,
        cluster=not arguments.plain,
        containerd=arguments.containerd,
        config_toml=config_toml,
        labels={key: value for key, _, value in labels},
        taints=tuple(arguments.taints),
        images=() if arguments.no_images else topology.OPTIONAL,
    )


def _up(lab: Lab, path: Path | None) -> None:
    wanted = topology.load(path) if path else None
    try:
        changed = lab.up(wanted)
    except LabError:
        if lab.exists:
            print(f"lab: left as it is; logs: {lab.directory / 'log'}; `down` takes it away", file=sys.stderr)
        raise
    figures = [f"{phase} {seconds:.1f} s" for phase, seconds in lab.timings_s.items()]
    figures.append(f"memory {lab.resident_mib():.0f} MiB")
    print(f"lab {lab.name} {'is up' if changed else 'was up already'}: {', '.join(figures)}")
    print(f"  kubeconfig {lab.kubeconfig}\n  inventory  {lab.inventory_path}")


def _status(lab: Lab) -> int:
    problems = lab.problems()
    for problem in problems:
        print(problem)
    if lab.exists:
        for name, node in lab.nodes.items():
            role = "cluster node" if node.cluster else "plain host"
            print(f"{name:12} {node.kind:9} {role:12} {lab.address(name).node:15} ssh port {lab.port[name]}")
    if not problems:
        print(f"lab {lab.name} is up, memory {lab.resident_mib():.0f} MiB")
    return 3 if problems else 0


def _become(argv: Sequence[str]) -> None:
    sys.stdout.flush()
    os.execvp(argv[0], list(argv))  # noqa: S606


def _words(words: Sequence[str]) -> list[str]:
    """What follows an optional `--`."""
    return list(words[1:] if words[:1] == ["--"] else words)


def _dispatch(arguments: argparse.Namespace) -> int:
    lab = Lab.open(arguments.name)
    match arguments.command:
        case "up":
            _up(lab, arguments.topology)
        case "status":
            return _status(lab)
        case "ssh":
            terminal = ["-t"] if sys.stdin.isatty() else []
            _become([*lab.ssh_command(arguments.node, *terminal), *_words(arguments.argv)])
        case "kubectl":
            _become(lab.kubectl_command(_words(arguments.argv)))
        case "run":
            if not _words(arguments.argv):
                raise LabError("run: expected a command after --")
            _become(lab.run_command(_words(arguments.argv)))
        case "inventory":
            if not lab.exists:
                raise LabError(f"lab {lab.name} does not exist: run `up`")
            print(lab.inventory_path.read_text(), end="")
        case "registry":
            found = lab.registry()
            print(f"http://{found.ADDRESS} (from the nodes), log {found.log()}")
            print(f"https://{found.TLS_ADDRESS}, https://{found.MTLS_ADDRESS} (with a client certificate)")
        case "node" if arguments.verb == "add":
            lab.node_add(_node(arguments))
        case "node":
            lab.node_remove(arguments.node)
        case "down":
            print(f"lab {lab.name} {'is gone' if lab.down() else 'did not exist'}")
    return 0


def main(argv: Sequence[str]) -> int:
    """Run one command; 0 when it went well."""
    try:
        return _dispatch(_parser().parse_args(argv))
    except (LabError, OSError) as error:
        print(f"lab: {error}", file=sys.stderr)
        for note in getattr(error, "__notes__", []):
            print(note, file=sys.stderr)
        return 1
