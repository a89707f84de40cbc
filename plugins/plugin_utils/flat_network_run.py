# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the pods of flat_network in a namespace of their own, which is deleted whatever happens.

When the controller is killed, kubelet ends the pods at their deadline, and the next run deletes the namespace.
"""

from __future__ import annotations

import datetime
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping

from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster import Cluster, ClusterError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import PAUSE_S, wait_until
from ansible_collections.portcullis.fleet.plugins.plugin_utils.flat_network import (
    HOST_PORT,
    LABELS,
    NAME,
    POD_DEADLINE_S,
    POLICIES,
    PORTS_SHOWN_ON,
    client_pod,
    host_port_pod,
    parse_answers,
    pod_addresses,
    pod_fault,
    server_pod,
    service,
    termination_message,
    url_of,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_text import one_line

START_TIMEOUT_S, EXTRA_TIMEOUT_S, CALL_TIMEOUT_S, ACCOUNT_TIMEOUT_S, DELETE_TIMEOUT_S = 90, 20, 60, 15, 30
REASON_LENGTH = 160
# A namespace of another run that is at work is younger.
STALE_AFTER_S = POD_DEADLINE_S + 120
SELECTOR = ",".join(f"{key}={value}" for key, value in LABELS.items())


class FlatNetwork(Cluster):
    """A cluster in which pods are started and taken away again."""

    def prove(self, sampled: Mapping[str, str], image: str) -> dict:
        """Have pods on each pair of nodes call each other.

        :param sampled: an address of each sampled node, by its name.
        :returns: C({pairs, host_ports, node_ports, unstarted, notes, left}). A pair is C({source, target, address,
            seen, own}) with the address that was called, the one that the caller was seen from (empty: no answer), and
            the caller's own ones. C(unstarted) has by node why its pods did not run, C(left) says what stays behind.
        :raises ClusterError: no namespace can be made, or the API server does not answer.
        """
        self._remove_stale()
        namespace = self._make_namespace()
        try:
            found = _Proof(self, namespace, dict(sampled), image).run()
        except BaseException:
            self._delete_namespace(namespace)
            raise
        return {**found, "left": self._delete_namespace(namespace)}

    def _make_namespace(self) -> str:
        # Its pods keep to the level restricted; those with a hostPort, which are tried apart, cannot.
        levels = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}
        body = {"metadata": {"generateName": f"{NAME}-", "labels": {**LABELS, **levels}}}
        status, answer = self._call(self._core.create_namespace, body)
        if status not in (200, 201):
            raise ClusterError(f"no namespace could be made for the pods: {one_line(answer.get('message') or status)}")
        return answer["metadata"]["name"]

    def _remove_stale(self) -> None:
        """Delete what a run that was killed has left."""
        status, answer = self._call(self._core.list_namespace, label_selector=SELECTOR)
        now = datetime.datetime.now(datetime.UTC)
        for item in answer["items"] if status == 200 else ():
            made = datetime.datetime.fromisoformat(item["metadata"]["creationTimestamp"])
            if (now - made).total_seconds() > STALE_AFTER_S:
                self._call(self._core.delete_namespace, item["metadata"]["name"])

    def _delete_namespace(self, name: str) -> str:
        """Delete a namespace and wait until it is gone; what is to be said when it stays."""
        # The namespace alone would take ten seconds longer: it comes back for its pods only when their time is over.
        self._call(self._core.delete_collection_namespaced_pod, name, grace_period_seconds=0)
        status, answer = self._call(self._core.delete_namespace, name)
        if status not in (200, 202, 404):
            return f"namespace {name} could not be deleted: {one_line(answer.get('message') or status)}"
        is_gone = wait_until(lambda: self._call(self._core.read_namespace, name)[0] == 404, DELETE_TIMEOUT_S)
        return "" if is_gone else f"namespace {name} is still being deleted"

    def create_pod(self, namespace: str, pod: dict) -> str:
        """Create a pod; the reason where it is refused, else empty.

        Its ServiceAccount comes a moment after its namespace.
        """
        deadline = time.monotonic() + ACCOUNT_TIMEOUT_S
        while True:
            status, answer = self._call(self._core.create_namespaced_pod, namespace, pod)
            reason = "" if status in (200, 201) else one_line(answer.get("message") or status)
            if "service account" not in reason.lower() or time.monotonic() > deadline:
                return reason
            time.sleep(PAUSE_S)

    def create_service(self, namespace: str, body: dict) -> tuple[int, str]:
        """C((port on each node, reason why there is none))."""
        status, answer = self._call(self._core.create_namespaced_service, namespace, body)
        if status not in (200, 201):
            return 0, one_line(answer.get("message") or status)
        return answer["spec"]["ports"][0]["nodePort"], ""

    def pods(self, namespace: str) -> dict[str, dict]:
        """The pods of a namespace by name."""
        status, answer = self._call(self._core.list_namespaced_pod, namespace)
        return {item["metadata"]["name"]: item for item in answer["items"]} if status == 200 else {}


class _Proof:
    """One proof in its namespace."""

    def __init__(self, cluster: FlatNetwork, namespace: str, sampled: dict[str, str], image: str) -> None:
        self._cluster, self._namespace, self._image = cluster, namespace, image
        self._addresses = sampled
        self._numbers = {node: number for number, node in enumerate(sampled)}
        self._unstarted: dict[str, str] = {}
        self._notes: dict[str, str] = {}

    def run(self) -> dict:
        """Servers first, since clients are told their addresses."""
        servers = self._start("server", server_pod, self._numbers)
        found = {"pairs": [], "host_ports": [], "node_ports": []}
        if not servers:
            return {**found, "unstarted": self._unstarted, "notes": self._notes}
        few = {node: self._numbers[node] for node in list(servers)[:PORTS_SHOWN_ON]}
        host_ports = self._start("host-port", host_port_pod, few, is_extra=True)
        node_ports = self._services()
        calls, meant = self._calls(servers, host_ports, node_ports, few)
        answers, own = self._call_all(servers, calls)
        for source, said in answers.items():
            for key, (kind, about) in meant.items():
                if key in said:
                    item = {"source": source, **about, "seen": said[key], "own": own[source]}
                    found[kind].append(item)
        return {**found, "unstarted": self._unstarted, "notes": self._notes}

    def _start(self, role: str, make: Callable[..., dict], nodes: Mapping[str, int], *, is_extra: bool = False) -> dict:
        """Start a pod on each node: C({node: addresses}) of those that run."""
        waiting = {}
        for node, number in nodes.items():
            reason = self._cluster.create_pod(self._namespace, make(number, node, self._image))
            if reason:
                self._fault(node, reason, role, is_extra=is_extra)
            else:
                waiting[f"{role}-{number}"] = node
        found: dict[str, list[str]] = {}

        def settled() -> bool:
            pods = self._cluster.pods(self._namespace)
            for name in [name for name in waiting if name in pods]:
                fault, addresses = pod_fault(pods[name]), pod_addresses(pods[name])
                if fault:
                    self._fault(waiting.pop(name), fault, role, is_extra=is_extra)
                elif addresses and pods[name]["status"].get("phase") == "Running":
                    found[waiting.pop(name)] = addresses
            return not waiting

        timeout_s = EXTRA_TIMEOUT_S if is_extra else START_TIMEOUT_S
        if not wait_until(settled, timeout_s):
            for node in waiting.values():
                self._fault(node, f"its pod did not start within {timeout_s} s", role, is_extra=is_extra)
        return found

    def _fault(self, node: str, reason: str, role: str, *, is_extra: bool) -> None:
        # Whole chains of errors come with addresses and ports that differ each time.
        short = textwrap.shorten(one_line(reason), REASON_LENGTH, placeholder="...")
        if is_extra:
            self._notes["hostPort"] = short
        else:
            self._unstarted.setdefault(node, short)

    def _services(self) -> dict[str, int]:
        """The port on each node by policy."""
        found = {}
        for policy in POLICIES:
            port, reason = self._cluster.create_service(self._namespace, service(policy))
            if reason:
                self._notes[f"NodePort {policy}"] = reason
            else:
                found[policy] = port
        return found

    def _calls(self, servers: dict, host_ports: dict, node_ports: dict, few: dict) -> tuple[dict, dict]:
        """C((URL by key, (kind, what it is) by key)); the same calls for each client."""
        urls, meant = {}, {}
        for node, addresses in servers.items():
            for family, address in enumerate(addresses):
                key = f"p{self._numbers[node]}.{family}"
                urls[key] = url_of(address)
                meant[key] = ("pairs", {"target": node, "address": address})
        for node in few:
            if node in host_ports:
                key = f"h{self._numbers[node]}"
                urls[key] = url_of(self._addresses[node], HOST_PORT)
                meant[key] = ("host_ports", {"target": node, "port": HOST_PORT})
            for policy, port in node_ports.items():
                key = f"n{self._numbers[node]}.{policy}"
                urls[key] = url_of(self._addresses[node], port)
                meant[key] = ("node_ports", {"target": node, "port": port, "policy": policy})
        return urls, meant

    def _call_all(
        self, nodes: Iterable[str], urls: dict[str, str]
    ) -> tuple[dict[str, dict[str, str]], dict[str, list[str]]]:
        """What the client on each of the nodes was told, and its own addresses."""
        waiting, answers, own = {}, {}, {}
        for node in nodes:
            number = self._numbers[node]
            reason = self._cluster.create_pod(self._namespace, client_pod(number, node, self._image, urls))
            if reason:
                self._fault(node, reason, "client", is_extra=False)
            else:
                waiting[f"client-{number}"] = node

        def settled() -> bool:
            pods = self._cluster.pods(self._namespace)
            for name in [name for name in waiting if name in pods]:
                # Its addresses go with the pod when it has ended.
                own[waiting[name]] = pod_addresses(pods[name]) or own.get(waiting[name], [])
                message, fault = termination_message(pods[name]), pod_fault(pods[name])
                if message:
                    answers[waiting.pop(name)] = parse_answers(message)
                elif fault or message is not None:
                    self._fault(waiting.pop(name), fault or "its pod left no answer", "client", is_extra=False)
            return not waiting

        if not wait_until(settled, START_TIMEOUT_S + CALL_TIMEOUT_S):
            for node in waiting.values():
                self._fault(node, "its pod did not end in time", "client", is_extra=False)
        return answers, own
