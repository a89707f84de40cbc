"""Kubernetes and etcd, built from Go modules; golang/ holds a go.mod for everything that the lab builds."""

import re
from pathlib import Path

from tests.lab import cache
from tests.lab.errors import LabError
from tests.lab.paths import SOURCE
from tests.lab.run import build, run

MODULES = SOURCE / "golang"
_MODULE = MODULES / "kubernetes"
_COMMANDS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
_BUILD = ("go", "build", "-trimpath")
_BUILD_TIMEOUT_S = 3600


def parse_required(text: str, module: str) -> str | None:
    """The version of `module` that the text of a go.mod requires, as `v1.34.4`; None when it does not."""
    match = re.search(rf"^(?:require)?\s*{re.escape(module)} (v\S+)(?: // indirect)?$", text, re.MULTILINE)
    return match.group(1) if match else None


def required_version(directory: Path, module: str) -> str:
    """The version of `module` that the go.mod in `directory` requires."""
    file = directory / "go.mod"
    found = parse_required(file.read_text(), module)
    if found is None:
        raise LabError(f"{file}: no line requires {module}")
    return found


def kubernetes_version() -> str:
    """The version of Kubernetes, as `v1.34.4`."""
    return required_version(_MODULE, "k8s.io/kubernetes")


def identity(directory: Path) -> list[bytes | str]:
    """What decides, beside the command line, what a build in `directory` results in."""
    sums = [(directory / name).read_bytes() for name in ("go.mod", "go.sum")]
    return [*sums, run(["go", "env", "GOVERSION"], timeout_s=60, cwd=directory).stdout]


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
        build(kubernetes, timeout_s=_BUILD_TIMEOUT_S, cwd=_MODULE, env=env)
        etcd = [*_BUILD, "-o", directory / "etcd", "-ldflags", "-s -w", "go.etcd.io/etcd/server/v3"]
        build(etcd, timeout_s=_BUILD_TIMEOUT_S, cwd=_MODULE, env=env)

    key = cache.digest([*identity(_MODULE), *_BUILD, _ldflags(version), *packages])
    return cache.ensure("binaries", key, make)
