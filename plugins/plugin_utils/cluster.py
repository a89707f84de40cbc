# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a cluster through its API server, changing nothing: nodes, rights, whether the agent would be admitted."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable

import yaml
from ansible_collections.portcullis.fleet.plugins.plugin_utils.agent_pod import agent_pod
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_objects import read_network
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import Reader, Resource
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_survey import EMPTY_SURVEY, read_survey
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_text import one_line
from ansible_collections.portcullis.fleet.plugins.plugin_utils.windows_requirements import is_windows, windows_summary

REQUEST_TIMEOUT_S = 15
PAGE = 500
# A webhook with side effects, which the API server does not call in a dry run.
NO_DRY_RUN = "does not support dry run"
# The core kinds that are asked for, in the client's words.
_CORE = {"configmaps": "config_map", "endpoints": "endpoints", "nodes": "node", "pods": "pod", "services": "service"}
# Verbs that take the name of an object.
_NAMED = ("get", "replace", "patch", "delete")
# Exactly what a run does: (verb, API group, resource, in the namespace).
ACCESS_NEEDED = (
    ("list", "", "nodes", False),
    ("get", "", "namespaces", False),
    ("create", "", "namespaces", False),
    ("patch", "", "namespaces", False),
    ("create", "", "pods", True),
)


class ClusterError(Exception):
    """The cluster cannot be asked; the message is one line with the remedy."""


def node_summary(node: dict) -> dict:
    """What the checks use of a Node object."""
    status, info = node["status"], node["status"].get("nodeInfo", {})
    conditions = {item["type"]: item["status"] for item in status.get("conditions", [])}
    summary = {
        "name": node["metadata"]["name"],
        "labels": node["metadata"].get("labels") or {},
        "addresses": sorted({item["address"] for item in status.get("addresses", [])}),
        "machine_id": info.get("machineID", ""),
        "ready": conditions.get("Ready") == "True",
        "kubelet": info.get("kubeletVersion", ""),
        "runtime": info.get("containerRuntimeVersion", ""),
        "taints": node["spec"].get("taints", []),
    }
    return {**summary, "windows": windows_summary(node)} if is_windows(summary) else summary


def current_user(path: str) -> dict:
    """The user of a kubeconfig's current context, as the file has it; empty when it names none."""
    with open(path, encoding="utf-8") as stream:
        config = yaml.safe_load(stream)
    context = next(item["context"] for item in config["contexts"] if item["name"] == config["current-context"])
    users = [item["user"] for item in config.get("users") or [] if item["name"] == context.get("user")]
    return (users[0] if users else None) or {}


class Cluster:
    """A connection to one API server. Every method reads or dry-runs."""

    def __init__(self, kubeconfig: str) -> None:
        """Load the kubeconfig; its current context is used.

        :raises ClusterError: when the client library or the file is missing, or the file is none.
        """
        try:
            import kubernetes  # noqa: PLC0415  # plain-host fleets need no client library
            import urllib3  # noqa: PLC0415
        except ImportError as error:
            raise ClusterError(
                f"the Python library kubernetes is missing on the controller ({error}): pip install kubernetes"
            ) from error
        path = os.path.expanduser(kubeconfig)
        if not os.path.isfile(path):
            raise ClusterError(f"portcullis_kubeconfig: no file at {path}: give the path of the cluster's kubeconfig")
        configuration = kubernetes.client.Configuration()
        try:
            kubernetes.config.load_kube_config(path, client_configuration=configuration, persist_config=False)
            user = current_user(path)
        except Exception as error:  # the client passes on whatever its readers of YAML, files and plugins raise
            reason = one_line(error)
            raise ClusterError(f"portcullis_kubeconfig: {path} is not a usable kubeconfig: {reason}") from error
        # The client goes on as an anonymous user when an exec plugin fails.
        if "exec" in user and not configuration.api_key and not configuration.cert_file:
            command = user["exec"].get("command", "")
            raise ClusterError(
                f"portcullis_kubeconfig: {path}: the credential plugin {command!r} gave no credentials: run it by hand"
            )
        configuration.retries = False
        self._has_answered = False
        self._where = f"{configuration.host} (from {path})"
        self._client, self._transport_error = kubernetes.client, urllib3.exceptions.HTTPError
        self._api = kubernetes.client.ApiClient(configuration)
        self._core = kubernetes.client.CoreV1Api(self._api)

    def _call(self, method: Callable, *args, **options) -> tuple[int, dict]:
        """One request as C((status, answer)).

        :raises ClusterError: no answer, none of an API server, or 401.
        """
        try:
            answer = self._api.sanitize_for_serialization(method(*args, _request_timeout=REQUEST_TIMEOUT_S, **options))
            self._has_answered = True
            return 200, answer
        except self._client.ApiException as error:
            failure = error
        except self._transport_error as error:
            raise self._no_answer(error) from error
        except Exception as error:  # the client raises its own readers' errors for an answer that is no object
            raise self._no_api_server() from error
        if not failure.status:
            raise self._no_answer(failure.reason)
        if failure.status == 401:
            raise ClusterError(
                f"portcullis_kubeconfig: {self._where} refuses these credentials (401): renew them (expired token or "
                "certificate?) or name another kubeconfig"
            )
        try:
            answer = json.loads(failure.body or "")
        except ValueError as error:
            # What an API server does not have it refuses in plain words: 404 page not found.
            if self._has_answered:
                return failure.status, {"message": one_line(failure.body or failure.reason)}
            raise self._no_api_server() from error
        self._has_answered = True
        return failure.status, answer

    def _no_answer(self, reason: object) -> ClusterError:
        text = one_line(reason)
        what = "check certificate-authority-data" if "certificate" in text.lower() else "check the address and network"
        return ClusterError(f"portcullis_kubeconfig: {self._where} does not answer: {text}; {what}")

    def _no_api_server(self) -> ClusterError:
        return ClusterError(
            f"portcullis_kubeconfig: {self._where} does not answer as an API server does: check the address"
        )

    def version(self) -> str:
        """The API server's version, such as C(v1.34.4); empty where these credentials may not ask."""
        answer = self._call(self._client.VersionApi(self._api).get_code)[1]
        return answer.get("gitVersion", "")

    def nodes(self) -> list[dict]:
        """All nodes as node_summary gives them, read page by page.

        :raises ClusterError: when the list is refused.
        """
        status, found = self._pages(self._core.list_node)
        if status != 200:
            raise ClusterError(f"{self._where} does not list nodes: {found.get('message', status)}")
        return [node_summary(item) for item in found]

    def _pages(self, method: Callable, *args, **options) -> tuple[int, dict | list]:
        """All items of a list, or the status and the answer that refuse a page of it."""
        found, token = [], None
        while True:
            more = {"_continue": token} if token else {}
            status, answer = self._call(method, *args, **{"limit": PAGE, **options, **more})
            if status != 200:
                return status, answer
            found += answer["items"]
            token = answer.get("metadata", {}).get("continue")
            if not token:
                return status, found

    def access(self, namespace: str) -> list[dict]:
        """Each of ACCESS_NEEDED with C(allowed), by SelfSubjectAccessReview."""
        create_review = self._client.AuthorizationV1Api(self._api).create_self_subject_access_review
        answers = []
        for verb, group, resource, namespaced in ACCESS_NEEDED:
            attributes = {"verb": verb, "group": group, "resource": resource}
            if namespaced:
                attributes["namespace"] = namespace
            status, answer = self._call(create_review, {"spec": {"resourceAttributes": attributes}})
            answers.append({**attributes, "allowed": status == 200 and answer["status"]["allowed"]})
        return answers

    def namespace(self, name: str) -> dict:
        """C({name, exists, terminating, labels}) of a namespace."""
        status, answer = self._call(self._core.read_namespace, name)
        return {
            "name": name,
            "exists": status == 200,
            "terminating": status == 200 and answer["status"].get("phase") == "Terminating",
            "labels": answer.get("metadata", {}).get("labels") or {},
        }

    def admission(self, namespace: str, engine: str) -> dict:
        """Whether the engine's agent would be admitted: C({admitted, tried, message}), by a server-side dry run.

        tried: false where a webhook takes no dry run, which says nothing of the pod.
        """
        create_pod = self._core.create_namespaced_pod
        status, answer = self._call(create_pod, namespace, agent_pod(namespace, engine), dry_run="All")
        message = "" if status == 200 else answer.get("message", str(status))
        return {"admitted": status == 200, "tried": NO_DRY_RUN not in message, "message": message}

    def reader(self) -> Reader:
        """What reads objects by kind; that the API groups cannot be read is noted as unseen."""
        reader = Reader(self._get, self._list)
        try:
            status, answer = self._call(self._client.ApisApi(self._api).get_api_versions)
        except ClusterError as error:
            status, answer = 0, {"message": str(error)}
        if status != 200:
            reader.unseen["API groups"] = answer.get("message", str(status))
        reader.groups |= {item["name"] for item in answer.get("groups") or []}
        return reader

    def network(self, reader: Reader) -> dict:
        """What decides Calico and kube-proxy, as cluster_objects.read_network tells it.

        Never an error: what the API server does not answer is in C(unseen).
        """
        empty = {"calico": [], "kube_proxy": [], "service_ranges": []}
        try:
            return read_network(reader) if reader.groups else {**empty, "unseen": reader.unseen}
        except ClusterError as error:
            return {**empty, "unseen": {"network": str(error)}}

    def survey(self, reader: Reader, namespace: dict, calico: list[dict]) -> dict:
        """What cluster_survey.read_survey tells; never an error.

        :param namespace: as namespace() returns it. :param calico: C(calico) of network().
        """
        try:
            return read_survey(reader, namespace, calico) if reader.groups else EMPTY_SURVEY
        except ClusterError as error:
            return {**EMPTY_SURVEY, "unseen": {"cluster": str(error)}}

    def _method(self, verb: str, resource: Resource, namespace: str) -> Callable:
        """The client's function for a verb (get, list, create, replace, patch, delete), bound to kind and namespace."""
        where = (namespace,) if namespace else ()
        if resource.group:
            scope = "namespaced" if where else "cluster"
            method = getattr(self._client.CustomObjectsApi(self._api), f"{verb}_{scope}_custom_object")
            return functools.partial(method, resource.group, resource.version, *where, resource.plural)
        name = f"{'read' if verb == 'get' else verb}_{'namespaced_' if where else ''}{_CORE[resource.plural]}"
        if verb == "list" and not where and resource.plural != "nodes":
            name += "_for_all_namespaces"
        method = getattr(self._core, name)
        # Core methods take the name before the namespace.
        is_named = verb in _NAMED
        return lambda *args, **options: method(*args[:is_named], *where, *args[is_named:], **options)

    def _get(self, resource: Resource, name: str, namespace: str) -> tuple[int, dict]:
        return self._call(self._method("get", resource, namespace), name)

    def _list(self, resource: Resource, **options) -> tuple[int, dict | list]:
        """All objects of a kind, of a namespace where C(namespace) names one; with C(limit) no more than one page."""
        method = self._method("list", resource, options.pop("namespace", ""))
        if "limit" in options:
            status, answer = self._call(method, **options)
            return status, answer["items"] if status == 200 else answer
        return self._pages(method, **options)

    def probe(self, namespace: str, engine: str = "native") -> dict:
        """Everything above in one dict; nodes and admission are left empty where the rights for them are missing."""
        version = self.version()
        access = self.access(namespace)
        allowed = {(item["verb"], item["resource"]) for item in access if item["allowed"]}
        reader = self.reader()
        found = {
            "kubernetes": version,
            "access": access,
            "nodes": self.nodes() if ("list", "nodes") in allowed else [],
            "namespace": {"name": namespace, "exists": False, "terminating": False, "labels": {}},
            "admission": None,
            "network": self.network(reader),
        }
        if ("get", "namespaces") in allowed:
            found["namespace"] = self.namespace(namespace)
        if found["namespace"]["exists"] and ("create", "pods") in allowed:
            found["admission"] = self.admission(namespace, engine)
        return {**found, **self.survey(reader, found["namespace"], found["network"]["calico"])}
