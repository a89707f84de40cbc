"""A small client of the Kubernetes API: requests with the administrator's certificate, JSON both ways."""

import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.lab.errors import LabError

_TIMEOUT_S = 20


class ApiError(LabError):
    """The server answered with an error; `status` is the HTTP code."""

    def __init__(self, status: int, text: str) -> None:
        """`text` says which request, and the server's message."""
        super().__init__(text)
        self.status = status


class Api:
    """The API server behind 127.0.0.1:`port`; `pki` holds ca.crt, admin.crt and admin.key."""

    def __init__(self, port: int, pki: Path) -> None:
        """Connects with each request."""
        self._port = port
        self._context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._context.load_cert_chain(pki / "admin.crt", pki / "admin.key")

    def raw(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> tuple[int, bytes]:
        """The status and the body of an answer; OSError when there is none."""
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S, context=self._context)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": content_type})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as error:
            raise ConnectionError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """The object in an answer; ApiError unless the server agreed."""
        status, data = self.raw(method, path, body, content_type)
        if status >= http.client.BAD_REQUEST:
            raise ApiError(status, f"{method} {path}: {status} {data.decode(errors='replace')[:2000]}")
        return json.loads(data)

    def apply(self, path: str, value: Mapping[str, Any]) -> Any:
        """Server-side apply of one object to its own path."""
        query = "?fieldManager=lab&force=true"
        return self.request("PATCH", path + query, value, "application/apply-patch+yaml")

    def ready(self) -> bool:
        """Whether the server calls itself ready."""
        try:
            return self.raw("GET", "/readyz")[0] == http.client.OK
        except OSError:
            return False
