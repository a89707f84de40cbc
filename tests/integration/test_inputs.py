"""Bad input is refused in one line that names the host or variable and the remedy, before anything is connected to.

These runs need no lab: nothing of them reaches a node.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.fleet import Run, run_playbook

# A node that would not answer: reaching for it would be seen as UNREACHABLE in the output.
NODE = {"ansible_host": "127.0.0.1", "ansible_port": 9}


def inventory(folder: Path, groups: dict, **variables: object) -> Path:
    """An inventory with these hosts by group and these variables for all."""
    children = {group: {"hosts": dict.fromkeys(hosts, NODE)} for group, hosts in groups.items()}
    path = folder / "inventory.yml"
    path.write_text(yaml.safe_dump({"all": {"children": children, "vars": variables}}), encoding="utf-8")
    return path


def kubeconfig(folder: Path, server: str) -> Path:
    """A kubeconfig for a server, without a usable user."""
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def assert_refused(run: Run, words: str) -> None:
    """The run failed with these words on one line, connected to no node, and left no report."""
    assert run.code != 0
    assert any(words in line for line in run.output.splitlines()), run.output
    assert "UNREACHABLE" not in run.output
    assert run.report is None


@pytest.mark.parametrize("playbook", ["site.yml", "preflight.yml"])
def test_nodes_of_a_cluster_without_a_kubeconfig(tmp_path: Path, playbook: str):
    run = run_playbook(inventory(tmp_path, {"workers": ["w1"]}), tmp_path, playbook=playbook)

    assert_refused(run, "control_plane and workers have 1 host but portcullis_kubeconfig is not set")


def test_a_kubeconfig_that_is_not_there(tmp_path: Path):
    missing = tmp_path / "missing"
    run = run_playbook(inventory(tmp_path, {"workers": ["w1"]}, portcullis_kubeconfig=str(missing)), tmp_path)

    assert_refused(run, f"portcullis_kubeconfig: no file at {missing}")


@pytest.mark.parametrize("text", ["", "]", "just words", "{}"], ids=["empty", "no YAML", "text", "no context"])
def test_a_kubeconfig_that_is_none(tmp_path: Path, text: str):
    path = tmp_path / "kubeconfig"
    path.write_text(text, encoding="utf-8")
    run = run_playbook(inventory(tmp_path, {"workers": ["w1"]}, portcullis_kubeconfig=str(path)), tmp_path)

    assert_refused(run, f"portcullis_kubeconfig: {path} is not a usable kubeconfig")


def test_a_cluster_that_does_not_answer(tmp_path: Path):
    path = kubeconfig(tmp_path, "https://127.0.0.1:9")
    run = run_playbook(inventory(tmp_path, {"workers": ["w1"]}, portcullis_kubeconfig=str(path)), tmp_path)

    assert_refused(run, f"portcullis_kubeconfig: https://127.0.0.1:9 (from {path}) does not answer")


@contextlib.contextmanager
def server_of(answer: bytes) -> Iterator[int]:
    """A port that answers every connection with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(4096)
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_server_that_is_no_api_server(tmp_path: Path):
    with server_of(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello") as port:
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{port}")
        run = run_playbook(inventory(tmp_path, {"workers": ["w1"]}, portcullis_kubeconfig=str(path)), tmp_path)

    assert_refused(run, f"(from {path}) does not answer as an API server does")


def test_a_credential_plugin_that_is_not_there(tmp_path: Path):
    path = kubeconfig(tmp_path, "https://127.0.0.1:9")
    config = json.loads(path.read_text(encoding="utf-8"))
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin", "interactiveMode": "Never"}
    config["users"][0]["user"] = {"exec": plugin}
    path.write_text(json.dumps(config), encoding="utf-8")
    run = run_playbook(inventory(tmp_path, {"workers": ["w1"]}, portcullis_kubeconfig=str(path)), tmp_path)

    assert_refused(run, "the credential plugin 'no-such-plugin' gave no credentials")


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        (
            "portcullis_engine=natve",
            "portcullis_engine of h1: got 'natve': value of portcullis_engine",
        ),
        ("portcullis_acept=[a]", "h1: unknown variable portcullis_acept (did you mean portcullis_accept?)"),
        ("portcullis_images=busybox", "portcullis_images of h1:"),
        ("portcullis_containerd_health_timeout=soon", "portcullis_containerd_health_timeout of h1:"),
    ],
)
def test_a_variable_that_is_wrong(tmp_path: Path, argument: str, words: str):
    run = run_playbook(inventory(tmp_path, {"plain_hosts": ["h1"]}), tmp_path, "-e", argument)

    assert_refused(run, words)


def test_an_inventory_without_a_fleet(tmp_path: Path):
    run = run_playbook(inventory(tmp_path, {"kube_node": ["w1"]}), tmp_path)

    assert_refused(run, "no host in control_plane, workers, plain_hosts (groups of this inventory: kube_node)")


def test_plain_hosts_need_no_kubeconfig(tmp_path: Path):
    run = run_playbook(inventory(tmp_path, {"plain_hosts": ["h1"]}), tmp_path)

    assert run.findings == {("node.unreachable", "h1")}
