"""Calico's objects in a lab, with a stand-in of Felix (felix_stand_in.py) on its nodes, and the playbook for them."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import ClusterApi, wait_until
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import PODS, Resource

from tests.integration.calico import GROUP, calico_node, custom, definition, listed
from tests.integration.fleet import run_ansible
from tests.lab import Lab

FELIX = Resource(GROUP, "v1", "felixconfigurations", "FelixConfiguration")
NAMESPACE = "kube-system"
SCRIPT = Path(__file__).with_name("felix_stand_in.py")
KNOB = "/run/felix-stand-in.json"
DURATION = {"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))*$"}
ACTION = {"type": "string", "pattern": "^(?i)(Accept|Return)?$"}
MASK = {"type": "integer", "format": "int32"}
# The rules of Calico's own CRD for what the tests set.
FIELDS = {
    "chainInsertMode": {"type": "string", "pattern": "^(?i)(Insert|Append)?$"},
    "iptablesRefreshInterval": DURATION,
    "iptablesPostWriteCheckInterval": DURATION,
    "iptablesFilterAllowAction": ACTION,
    "iptablesMangleAllowAction": ACTION,
    "iptablesMarkMask": MASK,
    "bpfEnabled": {"type": "boolean"},
    "nodeSelector": {"type": "string"},
    "logSeverityScreen": {"type": "string", "pattern": "^(?i)(Trace|Debug|Info|Warning|Error|Fatal)?$"},
}
# What a supervisor does: Felix is started again whenever it ends. argv[0] is what a real one has.
SUPERVISE = (
    "export STAND_IN_TOKEN=$(cat /var/run/secrets/kubernetes.io/serviceaccount/token) "
    'STAND_IN_CA="$(cat /var/run/secrets/kubernetes.io/serviceaccount/ca.crt)" '
    'SCRIPT="$(cat /stand-in/felix.py)";'
    "while true; do chroot /host bash -c 'exec -a calico-node python3 -c \"$SCRIPT\" -felix'; sleep 0.3; done"
)
CHAINS = "iptables-save | grep -v '^#' | grep -n -e '-A FORWARD' -e 'cali' || true"
CLEAN = (
    "for t in filter mangle; do iptables-save -t $t | grep -e '-j cali-' -e 'cali:' | grep -v '^-A cali-' |"
    " sed 's/^-A/-D/' | { echo \"*$t\"; cat; echo COMMIT; } | iptables-restore --noflush;"
    " for c in $(iptables-save -t $t | sed -n 's/^:\\(cali-[^ ]*\\) .*/\\1/p'); do"
    " iptables -t $t -F $c; iptables -t $t -X $c; done; done;"
    f" rm -f {KNOB} /etc/calico/felix.cfg"
)


def crd(fields: dict) -> dict:
    """The definition of FelixConfiguration with rules."""
    found = definition("felixconfigurations", "FelixConfiguration")
    spec = {"type": "object", "properties": fields}
    found["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return found


def account() -> list[dict]:
    """What the stand-in may read."""
    rules = [
        {"apiGroups": [GROUP], "resources": ["felixconfigurations"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
    ]
    subject = {"kind": "ServiceAccount", "name": "calico-node", "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "felix-stand-in"}
    rbac = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "calico-node", "namespace": NAMESPACE}},
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "felix-stand-in"}, "rules": rules},
        {
            "apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": "felix-stand-in"},
            "subjects": [subject], "roleRef": role,
        },
    ]  # fmt: skip


def stand_in(**environment: str) -> list[dict]:
    """The DaemonSet calico-node with the stand-in, and its script."""
    env = [{"name": "NODENAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    env += [{"name": name, "value": value} for name, value in {"FELIX_HEALTHENABLED": "true", **environment}.items()]
    daemon_set = calico_node(
        hostNetwork=True,
        serviceAccountName="calico-node",
        terminationGracePeriodSeconds=0,
        tolerations=[{"operator": "Exists"}],
        containers=[
            {
                "name": "calico-node",
                "image": "busybox:1.33",
                "command": ["sh", "-c", SUPERVISE],
                "env": env,
                "securityContext": {"privileged": True},
                "volumeMounts": [{"name": "host", "mountPath": "/host"}, {"name": "script", "mountPath": "/stand-in"}],
            }
        ],
        volumes=[
            {"name": "host", "hostPath": {"path": "/"}},
            {"name": "script", "configMap": {"name": "felix-stand-in"}},
        ],
    )
    script = {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "felix-stand-in", "namespace": NAMESPACE},
        "data": {"felix.py": SCRIPT.read_text(encoding="utf-8")},
    }  # fmt: skip
    return [script, daemon_set]


class Felix:
    """Felix of a lab: its objects, its rules on the nodes, and the playbook that changes them."""

    def __init__(self, lab: Lab, folder: Path, *, version: str, fields: dict, environment: dict) -> None:
        """Start the stand-in on every node and wait until it is ready."""
        self.lab, self.api = lab, ClusterApi(str(lab.kubeconfig))
        self._definitions = [crd(fields), definition("clusterinformations", "ClusterInformation")]
        self._objects = [*account(), *stand_in(**environment)]
        self.playbook = folder / "felix.yml"
        play = {"hosts": "control_plane:workers", "gather_facts": False, "serial": [1, 2], "any_errors_fatal": True}
        self.playbook.write_text(yaml.safe_dump([{**play, "roles": ["portcullis.fleet.calico"]}]), encoding="utf-8")
        lab.kubectl("apply", "-f", "-", stdin=listed(*self._definitions))
        names = [f"crd/{item['metadata']['name']}" for item in self._definitions]
        lab.kubectl("wait", "--for=condition=Established", *names, "--timeout=20s")
        information = custom("ClusterInformation", "default", calicoVersion=version)
        lab.kubectl("apply", "-f", "-", stdin=listed(information, *self._objects))
        assert wait_until(lambda: all(self.mode(node) for node in self.nodes), 30), "the stand-in does not start"

    def remove(self) -> None:
        """Take all of it away again."""
        own = [item for item in self._objects if item["kind"] != "FelixConfiguration"]
        self.lab.kubectl(
            "delete", "-f", "-", "--ignore-not-found", "--wait=true", stdin=listed(*own, *self._definitions)
        )
        gone = {"namespace": NAMESPACE, "label_selector": "k8s-app=calico-node"}
        assert wait_until(lambda: not self.api.list(PODS, **gone), 30)
        for node in self.nodes:
            self.shell(node, CLEAN)

    @property
    def nodes(self) -> list[str]:
        return ["cp1", "w1", "w2"]

    def shell(self, node: str, script: str) -> str:
        return self.lab.ssh(node, ["sh", "-c", script], check=False).stdout

    def rules(self, node: str) -> str:
        """Its rules, and all of FORWARD, in order."""
        return self.shell(node, CHAINS)

    def mode(self, node: str) -> str:
        """Insert or Append by where the rule into its chain is, empty while it is not ready."""
        lines = self.shell(node, "iptables-save -t filter | grep -e '-A INPUT'").splitlines()
        found = [number for number, line in enumerate(lines) if "-j cali-INPUT" in line]
        if not found:
            return ""
        return "Insert" if found[0] == 0 else "Append"

    def age_s(self, node: str) -> float:
        """For how many seconds the stand-in runs."""
        return float(self.shell(node, "ps -eo etimes,args | awk '/ -felix$/ && /calico-node/ {print $1; exit}'") or 0)

    def objects(self) -> dict[str, dict]:
        """The FelixConfigurations by name."""
        return {item["metadata"]["name"]: item for item in self.api.list(FELIX)}

    def run(self, *more: str, **variables: object) -> tuple[int, str]:
        """C((exit code, output)) of the playbook with these variables of the role."""
        given = json.dumps({f"portcullis_felix_{name}": value for name, value in {"timeout": 25, **variables}.items()})
        return run_ansible(
            ["ansible-playbook", "-i", str(self.lab.inventory_path), str(self.playbook), "-e", given, *more]
        )

    def pods(self, node: str) -> list[str]:
        """The names of the pods of calico-node on a node."""
        options = {"label_selector": "k8s-app=calico-node", "field_selector": f"spec.nodeName={node}"}
        return [item["metadata"]["name"] for item in self.api.list(PODS, namespace=NAMESPACE, **options)]

    def module(self, node: str, name: str = "felix_config", **arguments: object) -> tuple[int, str]:
        """Run a module alone, as a user does for one node."""
        given = json.dumps({"kubeconfig": str(self.lab.kubeconfig), **arguments})
        argv = ["ansible", "-i", str(self.lab.inventory_path), node, "-m", f"portcullis.fleet.{name}", "-a", given]
        return run_ansible(argv)
