"""The keys that checks need, out of dumps of every configuration version."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.containerd_dump import parse_dump
from ansible_collections.portcullis.fleet.plugins.module_utils.containerd_toml import scan

VERSION_2 = """\
disabled_plugins = []
version = 2

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins]

  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/etc/containerd/certs.d"

    [plugins."io.containerd.grpc.v1.cri".registry.mirrors]

      [plugins."io.containerd.grpc.v1.cri".registry.mirrors."docker.io"]
        endpoint = ["https://mirror.example"]

    [plugins."io.containerd.grpc.v1.cri".registry.configs]

      [plugins."io.containerd.grpc.v1.cri".registry.configs."r.example:5000".tls]
        ca_file = "/etc/ssl/r.pem"
"""
VERSION_3 = """\
version = 3

[grpc]
  address = '/run/containerd/containerd.sock'

[plugins]
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = '/etc/containerd/certs.d:/etc/docker/certs.d'

  [plugins.'io.containerd.grpc.v1.cri']
    stream_server_address = '127.0.0.1'
"""
NO_RUNTIME = {"cni": {}, "nri": {}, "systemd_cgroup": {}, "default_runtime": ""}
BOTH_TABLES = """\
version = 3

[plugins.'io.containerd.grpc.v1.cri'.registry]
  config_path = '/old'

[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = ''
"""


def test_a_dump_of_version_2_gives_path_mirrors_and_tls():
    assert parse_dump(VERSION_2) == {
        "version": 2,
        "address": "/run/containerd/containerd.sock",
        "config_path": "/etc/containerd/certs.d",
        "mirrors": ["docker.io"],
        "tls": ["r.example:5000"],
        **NO_RUNTIME,
    }


def test_a_dump_of_version_3_uses_literal_quotes_and_the_images_table():
    found = parse_dump(VERSION_3)

    assert (found["version"], found["config_path"]) == (3, "/etc/containerd/certs.d:/etc/docker/certs.d")
    assert (found["mirrors"], found["tls"]) == ([], [])


def test_the_table_that_the_daemon_reads_wins_also_when_it_is_empty():
    assert parse_dump(BOTH_TABLES)["config_path"] == ""


def test_an_empty_dump_says_nothing():
    empty = {"version": None, "address": "", "config_path": "", "mirrors": [], "tls": []}

    assert parse_dump("") == {**empty, **NO_RUNTIME}


@pytest.mark.parametrize(
    ("plugin", "programs"),
    [
        ("io.containerd.grpc.v1.cri", "bin_dir = '/usr/lib/cni'"),
        ("io.containerd.cri.v1.runtime", "bin_dirs = ['/usr/lib/cni']\n    bin_dir = ''"),
        ("io.containerd.cri.v1.runtime", "bin_dir = ''\n    bin_dirs = ['/usr/lib/cni']"),
    ],
    ids=["1.x", "2.1 and newer", "whatever the order"],
)
def test_what_a_dump_says_of_runtimes_cni_and_nri(plugin, programs):
    found = parse_dump(f"""\
[plugins]
  [plugins.'{plugin}'.containerd]
    default_runtime_name = 'runc'
    [plugins.'{plugin}'.containerd.runtimes.runc.options]
      SystemdCgroup = true
    [plugins.'{plugin}'.containerd.runtimes.kata.options]
      ConfigPath = '/kata'
  [plugins.'{plugin}'.cni]
    {programs}
    conf_dir = '/srv/net.d'
  [plugins.'io.containerd.nri.v1.nri']
    socket_path = '/srv/nri.sock'
""")

    assert found["cni"] == {"conf_dir": "/srv/net.d", "bin_dirs": ["/usr/lib/cni"]}
    assert (found["systemd_cgroup"], found["default_runtime"]) == ({"runc": True}, "runc")
    assert found["nri"] == {"socket_path": "/srv/nri.sock"}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('plugins."io.containerd.grpc.v1.cri".registry', ("plugins", "io.containerd.grpc.v1.cri", "registry")),
        ("plugins.'a.b'.c", ("plugins", "a.b", "c")),
        ("grpc", ("grpc",)),
    ],
)
def test_dotted_keys_are_split_outside_of_quotes(text, parts):
    assert scan(f"[{text}]").headers[0].path == parts


def test_lines_that_are_no_toml_are_passed_over():
    assert parse_dump(f"level=warning msg=x y\n[not a key!]\n{VERSION_2}") == parse_dump(VERSION_2)


@pytest.mark.parametrize(("text", "value"), [("'a\\b'", "a\\b"), ('"a\\"b"', 'a"b'), ("12", ""), ("[]", "")])
def test_strings_are_read_in_both_kinds_of_quotes(text, value):
    assert parse_dump(f"[grpc]\naddress = {text}")["address"] == value
