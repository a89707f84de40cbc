"""Ways into the lab: a listening socket of the host on 127.0.0.1, served by a proxy inside the lab's namespaces.

The socket is made before the proxy starts and handed to it (systemd-socket-proxyd(8)): the host's network is not
changed, the kernel picks the port, and the port is free again when the lab ends.
"""

import socket

from tests.lab.namespace import Namespace

_PROXY = "/lib/systemd/systemd-socket-proxyd"


def listen() -> socket.socket:
    """A listening socket on a free port of 127.0.0.1."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    return listener


def start(namespace: Namespace, name: str, target: str) -> int:
    """Forward a port, which is returned, to `target` (address:port) inside."""
    with listen() as listener:
        namespace.start(name, [_PROXY, target], socket=listener.fileno())
        return listener.getsockname()[1]
