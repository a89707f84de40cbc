# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pods that prove whether the network of pods is flat: on which nodes, what they run, what their answers mean.

A server pod on each sampled node says from which address it was called (httpd of busybox, REMOTE_ADDR of a CGI
program). A client pod on each calls all of them and leaves what they said as its termination message, so that nothing
has to be read through a kubelet. Both kinds satisfy the Pod Security level C(restricted) but for the pods with a
hostPort, which no level under C(privileged) admits.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping

NAME = "portcullis-flat-network"
LABELS = {"app.kubernetes.io/managed-by": "portcullis", "app.kubernetes.io/component": "flat-network"}
PORT = 8080
# Below the range of NodePorts, above what is commonly listened on.
HOST_PORT = 28741
ALL_NODES_UP_TO = 8
# HostPort and NodePort are a property of the plugin and of kube-proxy: a few nodes show it.
PORTS_SHOWN_ON = 3
# After which kubelet ends a pod by itself, whatever became of the run.
POD_DEADLINE_S = 300
POLICIES = ("Cluster", "Local")
ZONE = "topology.kubernetes.io/zone"
CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")

SERVE = (
    "mkdir -p /work/cgi-bin && cd /work/cgi-bin && "
    'printf \'#!/bin/sh\\nprintf "Content-Type: text/plain\\\\r\\\\n\\\\r\\\\n%%s" "$REMOTE_ADDR"\\n\' >from && '
    f"chmod 755 from && exec httpd -f -p {PORT} -h /work"
)
# $1: lines of a key and a URL. 16 are called at the same time, once more where nothing answers.
CALL = """
call() {
    for again in 1 2; do
        answer=$(timeout 4 wget -q -O - "$2" 2>/dev/null) && [ -n "$answer" ] && break
        answer=
        sleep 1
    done
    echo "$1 $answer" >"/work/$1"
}
count=0
while read -r key url; do
    call "$key" "$url" &
    count=$((count + 1))
    [ $((count % 16)) != 0 ] || wait
done <<END
$1
END
wait
cat /work/* >/dev/termination-log
"""


def sample_nodes(nodes: Iterable[Mapping]) -> list[str]:
    """The nodes that take part: all of a few, of more so many as grows with the logarithm of their number.

    Control plane and zones take turns, so that none is left out while there is room; the choice and its order are the
    same each time.

    :param nodes: as cluster.node_summary gives them.
    """
    strata: dict[tuple, list[str]] = {}
    for node in nodes:
        labels = node["labels"]
        key = (not any(name in labels for name in CONTROL_PLANE), labels.get(ZONE, ""))
        strata.setdefault(key, []).append(node["name"])
    ranked = []
    for key, names in strata.items():
        mixed = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
        ranked += [(rank, key, name) for rank, name in enumerate(mixed)]
    count = len(ranked)
    wanted = count if count <= ALL_NODES_UP_TO else 2 + 2 * (count - 1).bit_length()
    return [name for _rank, _key, name in sorted(ranked)[:wanted]]


def can_take_part(node: Mapping) -> bool:
    """Whether pods of ours can run on a node: it is ready and runs Linux."""
    return node["ready"] and node["labels"].get("kubernetes.io/os", "linux") == "linux"


def _pod(name: str, role: str, node: str, image: str, command: list[str], **port: int) -> dict:
    container = {
        "name": role,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
    }
    if port:
        container["ports"] = [{**port, "protocol": "TCP"}]
    # A sidecar would answer in the pod's place.
    no_mesh = {"sidecar.istio.io/inject": "false", "linkerd.io/inject": "disabled"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {**LABELS, "app": role, "sidecar.istio.io/inject": "false"},
            "annotations": no_mesh,
        },
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": POD_DEADLINE_S,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65534,
                "runAsGroup": 65534,
                "fsGroup": 65534,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [{"name": "work", "emptyDir": {"sizeLimit": "8Mi"}}],
        },
    }


def server_pod(number: int, node: str, image: str) -> dict:
    """The pod that says who calls it."""
    return _pod(f"server-{number}", "server", node, image, ["sh", "-c", SERVE], containerPort=PORT)


def host_port_pod(number: int, node: str, image: str) -> dict:
    """The same with a port of its node."""
    command = ["sh", "-c", SERVE]
    return _pod(f"host-port-{number}", "host-port", node, image, command, containerPort=PORT, hostPort=HOST_PORT)


def client_pod(number: int, node: str, image: str, calls: Mapping[str, str]) -> dict:
    """The pod that calls addresses by key, C({key: URL}), and leaves the answers."""
    lines = "\n".join(f"{key} {url}" for key, url in calls.items())
    return _pod(f"client-{number}", "client", node, image, ["sh", "-c", CALL, "sh", lines])


def service(policy: str) -> dict:
    """A Service of the server pods with a port on each node."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"node-port-{policy.lower()}", "labels": LABELS},
        "spec": {
            "type": "NodePort",
            "externalTrafficPolicy": policy,
            "selector": {"app": "server"},
            "ports": [{"port": PORT, "targetPort": PORT, "protocol": "TCP"}],
        },
    }


def url_of(address: str, port: int = PORT) -> str:
    """Where a server answers."""
    return f"http://{f'[{address}]' if ':' in address else address}:{port}/cgi-bin/from"


def parse_answers(message: str) -> dict[str, str]:
    """The address that each call was seen from, by key; empty where nothing answered."""
    found = {}
    for line in message.splitlines():
        key, _blank, answer = line.partition(" ")
        found[key] = plain_address(answer.strip())
    return found


def plain_address(text: str) -> str:
    """An address in its usual form: httpd writes IPv4 callers as [::ffff:10.0.0.1]. What is no address is empty."""
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return ""
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def pod_addresses(pod: Mapping) -> list[str]:
    """All addresses of a pod."""
    status = pod.get("status") or {}
    listed = [item.get("ip") for item in status.get("podIPs") or []] or [status.get("podIP")]
    return [plain_address(text) for text in listed if text]


# What a container waits for that does not come by waiting.
_HOPELESS = ("ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "ErrImageNeverPull")


def pod_fault(pod: Mapping) -> str:
    """Why a pod does not run and will not, in the cluster's words; empty while it may."""
    status = pod.get("status") or {}
    states = [item.get("state") or {} for item in status.get("containerStatuses") or []]
    for waiting in (state.get("waiting") or {} for state in states):
        if waiting.get("reason") in _HOPELESS:
            return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    if status.get("phase") != "Failed":
        return ""
    ended = next((state["terminated"] for state in states if state.get("terminated")), {})
    words = (status.get("reason"), status.get("message"), ended.get("reason"), ended.get("message"))
    return ": ".join(dict.fromkeys(word for word in words if word)) or "it failed"


def termination_message(pod: Mapping) -> str | None:
    """What a pod left when it ended, None while it runs."""
    for item in (pod.get("status") or {}).get("containerStatuses") or []:
        ended = (item.get("state") or {}).get("terminated")
        if ended:
            return ended.get("message") or ""
    return None
