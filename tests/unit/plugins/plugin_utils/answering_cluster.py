# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server of ours that answers as an API server does."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster import Cluster

FORBIDDEN = (403, {"kind": "Status", "message": 'daemonsets.apps is forbidden: User "x" cannot list'})


def groups(*names: str) -> dict:
    """The list of API groups."""
    version = {"groupVersion": "v1", "version": "v1"}
    items = [{"name": name, "versions": [version], "preferredVersion": version} for name in names]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": items}


@contextlib.contextmanager
def answering_cluster(folder: Path) -> Iterator[tuple[Cluster, dict, list[str]]]:
    """A connection, the answers that it gets by path, and the list of what was asked.

    An answer is an object, a pair of status and object, or a list of answers, one for each time that it is asked.
    """
    answers: dict = {}
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            path = urllib.parse.urlsplit(self.path).path.rstrip("/")
            answer = answers.get(path, (404, "404 page not found"))
            if isinstance(answer, list):
                answer = answer.pop(0)
            status, body = answer if isinstance(answer, tuple) else (200, answer)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body.encode() if isinstance(body, str) else json.dumps(body).encode())

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        where = folder / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        where.write_text(json.dumps(config), encoding="utf-8")
        try:
            yield Cluster(str(where)), answers, asked
        finally:
            server.shutdown()
            thread.join()
