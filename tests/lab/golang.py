"""Kubernetes and etcd, built from the Go modules in golang/."""

import re
from pathlib import Path

from tests.lab import cache
from tests.lab.errors import LabError
from tests.lab.paths import SOURCE
from tests.lab.run import build, run

MODULE = SOURCE / "golang"
_COMMANDS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
_BUILD = ("go", "build", "-trimpath")
_BUILD_TIMEOUT_S = 3600


def kubernetes_version() -> str:
    """The version that go.mod requires, as `v1.34.4`."""
    match = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise LabError(f"{MODULE / 'go.mod'}: no line requires k8s.io/kubernetes")
    return match.group(1)


def _ldflags(version: str) -> str:
    major, minor = version.removeprefix("v").split(".")[:2]
    variable = "k8s.io/component-base/version."
    return f"-s -w -X {variable}gitVersion={version} -X {variable}gitMajor={major} -X {variable}gitMinor={minor}"


def binaries() -> Path:
    """The directory with the seven programs."""
    version = kubernetes_version()
    packages = [f"k8s.io/kubernetes/cmd/{command}" for command in _COMMANDS]
    env = {"CGO_ENABLED": "0"}

    def make(directory: Path) -> None:
        kubernetes = [*_BUILD, "-o", f"{directory}/", "-ldflags", _ldflags(version), *packages]
        build(kubernetes, timeout_s=_BUILD_TIMEOUT_S, cwd=MODULE, env=env)
        etcd = [*_BUILD, "-o", directory / "etcd", "-ldflags", "-s -w", "go.etcd.io/etcd/server/v3"]
        build(etcd, timeout_s=_BUILD_TIMEOUT_S, cwd=MODULE, env=env)

    go_version = run(["go", "env", "GOVERSION"], timeout_s=60, cwd=MODULE).stdout
    sums = [(MODULE / name).read_bytes() for name in ("go.mod", "go.sum")]
    return cache.ensure("binaries", cache.digest([*sums, go_version, *_BUILD, _ldflags(version), *packages]), make)
