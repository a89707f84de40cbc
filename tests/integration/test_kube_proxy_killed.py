"""A run that is killed at any of its writes leaves every node with one configuration, and the next run finds it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import ClusterApi, wait_until
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import NODES, PODS
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_cluster import find_twin
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_finish import Finish
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_start import Start
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_twin import LABEL, is_ready

from tests.integration.kube_proxy import NAMESPACE, Proxy
from tests.lab import Lab

pytestmark = pytest.mark.full
NFTABLES = {"mode": "nftables"}


class KilledError(BaseException):
    """The process is gone."""


class MortalApi(ClusterApi):
    """A connection whose process dies at its nth write."""

    def __init__(self, kubeconfig: str, lives: int) -> None:
        super().__init__(kubeconfig)
        self.lives = lives

    def _call(self, method: Callable, *args, **options) -> tuple[int, dict]:
        name = getattr(method, "__name__", "") or repr(getattr(method, "func", method))
        if any(word in f"{name}{method!r}" for word in ("create", "replace", "patch", "delete")):
            self.lives -= 1
            if self.lives < 0:
                raise KilledError
        return super()._call(method, *args, **options)

    def _method(self, verb: str, *args: object) -> Callable:
        found = super()._method(verb, *args)

        def method(*inner: object, **options: object) -> object:
            return found(*inner, **options)

        method.__name__ = verb
        return method


def uids(proxy: Proxy) -> set[str]:
    pods = proxy.api.list(PODS, namespace=NAMESPACE, label_selector="k8s-app=kube-proxy")
    return {pod["metadata"]["uid"] for pod in pods if is_ready(pod)}


def start(api: ClusterApi, state: str = "present", config: dict | None = None) -> dict:
    return Start(api, check_mode=False, timeout_s=30).run(state, NFTABLES if config is None else config)


def mortal(lab: Lab, lives: int) -> MortalApi:
    return MortalApi(str(lab.kubeconfig), lives)


def label_all(proxy: Proxy, value: str | None) -> None:
    """Have all nodes change hands at once, and wait for their pods."""
    before = uids(proxy)
    for node in proxy.nodes:
        proxy.api.patch(NODES, node, {"metadata": {"labels": {LABEL: value}}})
    assert wait_until(lambda: len(uids(proxy) - before) == len(proxy.nodes), 60)


def test_the_start(lab: Lab, tmp_path: Path):
    proxy = Proxy(lab, tmp_path)
    before = uids(proxy)
    for lives in range(20):
        api = mortal(lab, lives)
        try:
            start(api)
        except KilledError:
            assert proxy.config_map()["data"] == proxy.before[1]
            assert start(proxy.api)["revision"]
        assert uids(proxy) == before, "a pod was restarted"
        start(proxy.api, "absent", {})
        assert wait_until(lambda: proxy.state() == proxy.before, 10)
        assert uids(proxy) == before
        if api.lives >= 0:
            return
    pytest.fail("the start does not end")


def test_the_end(lab: Lab, tmp_path: Path):
    proxy = Proxy(lab, tmp_path)
    start(proxy.api)
    label_all(proxy, find_twin(proxy.api).revision)
    try:
        for lives in range(3):
            try:
                Finish(mortal(lab, lives), find_twin(proxy.api)).write()
            except KilledError:
                assert not Finish(proxy.api, find_twin(proxy.api)).waits_for()
        label_all(proxy, None)
        after = uids(proxy)
        for lives in range(30):
            api = mortal(lab, lives)
            try:
                Finish(api, find_twin(proxy.api)).restore()
            except KilledError:
                continue
            break
        assert uids(proxy) == after, "a pod was restarted"
        spec, data, ours = proxy.state()
        assert (spec, ours) == (proxy.before[0], [])
        assert "mode: nftables" in data["config.conf"]
    finally:
        proxy.restore()
