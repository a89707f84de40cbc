# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of a cluster read and written by kind; every request is counted, every refusal is an error that says why."""

from __future__ import annotations

import time
from collections.abc import Callable

from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster import Cluster, ClusterError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import Resource
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_text import one_line

PAUSE_S = 0.5
ATTEMPTS = 8


class RefusedError(ClusterError):
    """The API server refuses a request. status: of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        """Take the line for the user and the status."""
        super().__init__(message)
        self.status = status


class ConflictError(RefusedError):
    """Somebody else changed the object, or made it first (409)."""


class ClusterApi(Cluster):
    """A connection that reads and writes. C(calls): how many requests were made."""

    def __init__(self, kubeconfig: str) -> None:
        """Load the kubeconfig, as Cluster does."""
        super().__init__(kubeconfig)
        self.calls = 0

    def _call(self, method: Callable, *args, **options) -> tuple[int, dict]:
        self.calls += 1
        return super()._call(method, *args, **options)

    def get(self, resource: Resource, name: str, namespace: str = "") -> dict | None:
        """An object, None where there is none.

        :raises RefusedError: these credentials may not read it.
        """
        status, answer = self._get(resource, name, namespace)
        return None if status == 404 else self._checked("get", f"{resource.plural} {name}", status, answer)

    def list(self, resource: Resource, **options: str) -> list[dict]:
        """All objects of a kind, read page by page.

        :param options: C(namespace), C(label_selector), C(field_selector).
        :raises RefusedError: as get(); 404 where the cluster does not have the kind.
        """
        status, answer = self._list(resource, **options)
        return answer if isinstance(answer, list) else self._checked("list", resource.plural, status, answer)

    def create(self, resource: Resource, body: dict, namespace: str = "", *, dry_run: bool = False) -> dict:
        """Create an object and return it.

        :param dry_run: have the API server check it, and store nothing.
        :raises ConflictError: there is one of that name. :raises RefusedError: the API server's own words.
        """
        return self._write("create", resource, (body,), body, namespace, dry_run=dry_run)

    def replace(self, resource: Resource, body: dict, *, dry_run: bool = False) -> dict:
        """Write an object that was read, unless somebody else has changed it since: its resourceVersion guards it.

        :raises ConflictError: it has changed. :raises RefusedError: the API server's own words.
        """
        metadata = body["metadata"]
        arguments = (metadata["name"], body)
        return self._write("replace", resource, arguments, body, metadata.get("namespace", ""), dry_run=dry_run)

    def patch(self, resource: Resource, name: str, body: dict, namespace: str = "") -> dict:
        """Change labels, annotations or plain fields of an object by a merge patch; None removes one.

        :raises RefusedError: the API server's own words.
        """
        return self._write("patch", resource, (name, body), {"metadata": {"name": name}}, namespace)

    def delete(self, resource: Resource, name: str, namespace: str = "", **options: object) -> None:
        """Delete an object; one that is gone is no error.

        :param options: of DeleteOptions, such as C(gracePeriodSeconds), C(preconditions) or C(propagationPolicy).
        :raises ConflictError: a precondition does not hold. :raises RefusedError: the API server's own words.
        """
        status, answer = self._call(self._method("delete", resource, namespace), name, body=options)
        if status != 404:
            self._checked("delete", f"{resource.plural} {name}", status, answer)

    def update(self, resource: Resource, name: str, namespace: str, change: Callable[[dict], dict | None]) -> dict:
        """Change an object that others write too: read, change, write, and once more after a conflict.

        :param change: gets the object, returns it changed, or None where nothing is to be written.
        :raises RefusedError: it is not there, or the API server refuses it, or others never stop writing it.
        """
        for _attempt in range(ATTEMPTS):
            found = self.get(resource, name, namespace)
            if found is None:
                raise RefusedError(f"{resource.kind} {namespace + '/' if namespace else ''}{name} is not there", 404)
            changed = change(found)
            if changed is None:
                return found
            try:
                return self.replace(resource, changed)
            except ConflictError:
                time.sleep(PAUSE_S)
        raise RefusedError(f"{resource.kind} {name} was changed by others {ATTEMPTS} times in a row: run again", 409)

    def _write(
        self, verb: str, resource: Resource, arguments: tuple, body: dict, namespace: str, *, dry_run: bool = False
    ) -> dict:
        options = {"dry_run": "All"} if dry_run else {}
        status, answer = self._call(self._method(verb, resource, namespace), *arguments, **options)
        name = f"{namespace + '/' if namespace else ''}{body['metadata'].get('name', '')}"
        return self._checked(verb, f"{resource.kind} {name}", status, answer)

    @staticmethod
    def _checked(verb: str, what: str, status: int, answer: dict) -> dict:
        if status in (200, 201, 202):
            return answer
        kind = ConflictError if status == 409 else RefusedError
        raise kind(f"the API server does not {verb} {what}: {one_line(answer.get('message') or status)}", status)


def wait_until(is_done: Callable[[], bool], timeout_s: float) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + timeout_s
    while not is_done():
        if time.monotonic() > deadline:
            return False
        time.sleep(PAUSE_S)
    return True
