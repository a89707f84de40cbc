"""The inventory against the cluster, rights, and admission."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_requirements import (
    evaluate_cluster,
    match_nodes,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_survey import EMPTY_SURVEY

from .network_samples import calico_node, felix, network, openshift, pool, proxy

ALLOWED = [{"verb": "list", "group": "", "resource": "nodes", "allowed": True}]
NAMESPACE = {"name": "portcullis-system", "terminating": False}
ADMITTED = {"admitted": True, "message": ""}
PSA = 'pods "x" is forbidden: violates PodSecurity "baseline:latest": privileged (container "agent" must not set ...)'
KYVERNO = 'admission webhook "validate.kyverno.svc-fail" denied the request: policy disallow-privileged'


def node(name: str, *, addresses: tuple[str, ...] = (), machine_id: str = "") -> dict:
    """A node of the cluster."""
    labels = {"kubernetes.io/os": "linux", "name": name}
    return {"name": name, "labels": labels, "addresses": list(addresses), "machine_id": machine_id}


def host(**known: object) -> dict:
    """A host of the inventory."""
    return {
        "node_name": "",
        "address": "",
        "hostname": "",
        "machine_id": "",
        "read": True,
        "proxy_mode": "iptables",
        **known,
    }


def probe(**changes: object) -> dict:
    """A cluster with nothing to complain about."""
    base = {"access": ALLOWED, "admission": ADMITTED, "nodes": [node("w1")], "namespace": NAMESPACE}
    return {**base, "kubernetes": "v1.34.4", "network": network(), **changes}


@pytest.mark.parametrize(
    "known",
    [
        host(node_name="ip-10-0-0-7"),
        host(hostname="ip-10-0-0-7"),
        host(address="10.0.0.7"),
        host(machine_id="abc"),
    ],
    ids=["portcullis_node_name", "host name", "address", "machine id"],
)
def test_a_host_is_found_in_the_cluster_by_whatever_names_it(known):
    nodes = [node("other"), node("ip-10-0-0-7", addresses=("10.0.0.7",), machine_id="abc")]

    assert match_nodes({"w1": known}, nodes) == {"w1": "ip-10-0-0-7"}


def test_a_host_is_found_by_its_inventory_name():
    assert match_nodes({"w1": host()}, [node("w1")]) == {"w1": "w1"}


def test_portcullis_node_name_outranks_what_else_matches():
    assert match_nodes({"w1": host(node_name="w9")}, [node("w1")]) == {}


def test_a_machine_id_of_cloned_disks_identifies_nobody():
    hosts = {"a": host(machine_id="same"), "b": host(machine_id="same", hostname="localhost")}

    assert match_nodes(hosts, [node("w1", machine_id="same")]) == {}


def test_empty_names_match_nothing():
    assert match_nodes({"w1": host()}, [node("other")]) == {}


def test_a_fleet_that_is_the_cluster_has_no_finding():
    assert evaluate_cluster(probe(), {"w1": host()}) == []


def test_a_node_without_a_host_and_a_host_without_a_node_are_blockers():
    found = evaluate_cluster(probe(nodes=[node("w1"), node("forgotten")]), {"w1": host(), "gone": host()})

    assert [(item["id"], item["node"], item["severity"]) for item in found] == [
        ("inventory.node_missing", "forgotten", "blocker"),
        ("inventory.not_in_cluster", "gone", "blocker"),
    ]


def test_a_host_that_was_not_read_may_be_the_node_that_is_left():
    hosts = {"w1": host(), "node-b.example.com": host(read=False)}
    found = evaluate_cluster(probe(nodes=[node("w1"), node("w2")]), hosts)

    assert [(item["id"], item["severity"]) for item in found] == [("inventory.not_compared", "warning")]
    assert "node-b.example.com" in found[0]["observed"]
    assert "w2" in found[0]["observed"]


def test_more_nodes_than_unread_hosts_are_missing_all_the_same():
    hosts = {"w1": host(), "node-b.example.com": host(read=False)}
    found = evaluate_cluster(probe(nodes=[node("w1"), node("w2"), node("w3")]), hosts)

    assert [item["id"] for item in found] == ["inventory.node_missing", "inventory.node_missing"]


def test_a_virtual_node_that_no_host_is_stops_nobody():
    """Fargate's nodes come and go with each pod."""
    fargate = {**node("fargate-1"), "taints": [{"key": "eks.amazonaws.com/compute-type", "value": "fargate"}]}
    fargate["taints"][0]["effect"] = "NoSchedule"
    (found,) = evaluate_cluster(probe(nodes=[node("w1"), fargate]), {"w1": host()})
    assert (found["id"], found["severity"], found["node"]) == ("inventory.node_missing", "warning", "fargate-1")

    hosts = {"w1": host(), "node-b.example.com": host(read=False)}
    found = evaluate_cluster(probe(nodes=[node("w1"), node("w2"), fargate]), hosts)
    assert [item["id"] for item in found] == ["inventory.node_missing", "inventory.not_compared"]


def test_a_webhook_that_is_down_is_told_once():
    message = REFUSALS["webhook that is down"][0]
    dead = {
        "kind": "ValidatingWebhookConfiguration",
        "configuration": "guard",
        "name": "pods.guard.example",
        "resources": ["pods"],
        "conditions": False,
        "service": "guard/guard",
        "state": "missing",
    }

    def ids(**changes: object) -> list[str]:
        section = {**EMPTY_SURVEY, "webhooks": [{**dead, **changes}]}
        cluster = probe(admission={"admitted": False, "message": message}, **section)
        return [item["id"] for item in evaluate_cluster(cluster, {"w1": host()})]

    assert ids() == ["webhook.could_block"]
    assert ids(name="other") == ["cluster.admission_refused", "webhook.could_block"]
    assert ids(state="unknown") == ["cluster.admission_refused"]
    assert ids(conditions=True) == ["cluster.admission_refused", "webhook.could_block"]


def test_a_namespace_that_is_being_deleted_is_named_as_that():
    refused = {"admitted": False, "message": "forbidden: unable to create new content in namespace x"}
    found = evaluate_cluster(probe(admission=refused, namespace={**NAMESPACE, "terminating": True}), {"w1": host()})

    assert [item["id"] for item in found] == ["cluster.namespace_terminating"]


def test_missing_rights_are_one_finding_and_no_inventory_is_judged_without_the_list():
    denied = [
        {**ALLOWED[0], "allowed": False},
        {"verb": "patch", "group": "", "resource": "namespaces", "allowed": False},
    ]
    found = evaluate_cluster(probe(access=denied, nodes=[]), {"w1": host()})

    assert [item["id"] for item in found] == ["cluster.access_denied"]
    assert "list nodes, patch namespaces" in found[0]["observed"]


@pytest.mark.parametrize(
    ("message", "severity", "remedy"),
    [(PSA, "warning", "role cluster"), (KYVERNO, "blocker", "exclude the namespace")],
    ids=["Pod Security, which the run mends", "a webhook, which it does not"],
)
def test_a_refused_pod_is_judged_by_who_refused_it(message, severity, remedy):
    found = evaluate_cluster(probe(admission={"admitted": False, "message": message}), {"w1": host()})

    assert [(item["id"], item["severity"]) for item in found] == [("cluster.admission_refused", severity)]
    assert message in found[0]["observed"]
    assert remedy in found[0]["remedy"]


REFUSALS = {
    "kyverno": (
        'admission webhook "validate.kyverno.svc-fail" denied the request: \n\nresource Pod/x/y was blocked due to the '
        "following policies \n\ndisallow-privileged:\n  no-privileged: 'validation error: Privileged mode is refused. "
        "rule no-privileged failed at path /spec/containers/0/securityContext/privileged/'\n",
        "kyverno (disallow-privileged/no-privileged), because of privileged",
        "policy disallow-privileged: exclude: {any: [{resources: {namespaces: [portcullis-system]}}]}",
    ),
    "gatekeeper": (
        'admission webhook "validation.gatekeeper.sh" denied the request: [psp-host] Sharing the host namespace is not '
        "allowed: y",
        "gatekeeper (psp-host)",
        "add portcullis-system to spec.match.excludedNamespaces of psp-host",
    ),
    "kubewarden": (
        'admission webhook "clusterwide-no-privileged.kubewarden.admission" denied the request: Privileged container '
        "is not allowed",
        "kubewarden (clusterwide-no-privileged)",
        "spec.namespaceSelector",
    ),
    "validating policy": (
        "pods \"x\" is forbidden: ValidatingAdmissionPolicy 'no-root' with binding 'no-root-here' denied request: "
        "privileged is not allowed",
        "validatingadmissionpolicy (no-root / no-root-here), because of privileged",
        "ValidatingAdmissionPolicyBinding no-root-here",
    ),
    "SCC": (
        'pods "x" is forbidden: unable to validate against any security context constraint: [provider restricted-v2: '
        ".spec.securityContext.hostPID: Invalid value: true: Host PID is not allowed to be used]",
        "scc (restricted-v2), because of hostPID",
        "oc adm policy add-scc-to-user privileged -n portcullis-system",
    ),
    "webhook": (
        'admission webhook "pods.guard.example" denied the request: no',
        "webhook:other (pods.guard.example)",
        "namespaceSelector of webhook pods.guard.example",
    ),
    "webhook that is down": (
        'Internal error occurred: failed calling webhook "pods.guard.example": connection refused',
        "webhook:unreachable (pods.guard.example)",
        "let the webhook's service answer again",
    ),
    "quota": (
        "pods is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1",
        "quota (few)",
        "quota",
    ),
    "the API server's own rule": (
        'pods "x" is forbidden: disallowed by cluster policy',
        "apiserver (--allow-privileged)",
        "start kube-apiserver with --allow-privileged=true",
    ),
    "an object that is wrong": ('Pod "x" is invalid: spec.y: Required value', "apiserver: Pod", "mend what else"),
    "a text that nobody knows": ("no", "no", "that the message names"),
}


@pytest.mark.parametrize(("message", "who", "remedy"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_names_who_refused_and_what_to_change_there(message, who, remedy):
    (found,) = evaluate_cluster(probe(admission={"admitted": False, "message": message}), {"w1": host()})

    assert (found["id"], found["severity"]) == ("cluster.admission_refused", "blocker")
    assert who in found["observed"]
    assert remedy in found["remedy"]
    assert "{rule}" not in found["remedy"]


def test_admission_that_was_not_asked_is_no_finding():
    assert evaluate_cluster(probe(admission=None), {"w1": host()}) == []


RETURNS = {"iptablesFilterAllowAction": "Return", "iptablesMangleAllowAction": "Return"}
WANTED = felix(chainInsertMode="Append", iptablesRefreshInterval="0s")
PATCH = "kubectl patch felixconfigurations.crd.projectcalico.org"
# What of Calico and kube-proxy, judged for Secure Workload, is which finding, with which words in it and its remedy.
NETWORKS = {
    "insert mode built in": (
        network(calico_node(), felix(iptablesRefreshInterval="0s")),
        ("felix.chain_insert_mode", "blocker", "chainInsertMode Insert (built-in); iptablesFilterAllowAction Accept"),
        PATCH + """ default --type merge -p '{"spec": {"chainInsertMode": "Append"}}'""",
    ),
    "no object at all": (
        network(calico_node(FELIX_CHAININSERTMODE="Append")),
        ("felix.refresh_interval", "blocker", "iptablesRefreshInterval 180 (built-in)"),
        '"metadata": {"name": "default"}, "spec": {"iptablesRefreshInterval": "0s"}}\' | kubectl apply -f -',
    ),
    "refresh interval in an annotation": (
        network(
            calico_node(),
            felix(
                annotations={"config.projectcalico.org/IptablesRefreshInterval": "60"},
                chainInsertMode="Append",
                iptablesRefreshInterval="0s",
            ),
        ),
        ("felix.refresh_interval", "blocker", "iptablesRefreshInterval 60 (default: FelixConfiguration default)"),
        "default config.projectcalico.org/IptablesRefreshInterval-; then kubectl patch",
    ),
    "a mask of one's own": (
        network(calico_node(), felix(**WANTED["spec"], iptablesMarkMask=2144272384)),
        ("felix.not_default", "warning", "iptablesMarkMask 2144272384 (default: FelixConfiguration default)"),
        "waive it",
    ),
    "WireGuard": (
        network(calico_node(), felix(**WANTED["spec"], wireguardEnabled=True)),
        ("felix.not_default", "warning", "wireguardEnabled true"),
        '"wireguardEnabled": false',
    ),
    "a value that stops Felix": (
        network(calico_node(FELIX_IPTABLESMARKMASK="0x1"), WANTED),
        ("felix.fatal", "blocker", "iptablesMarkMask from DaemonSet calico-node: '0x1' has fewer than 2 bits set"),
        "kubectl -n kube-system set env daemonset/calico-node FELIX_IPTABLESMARKMASK-",
    ),
    "a fatal value in an object": (
        network(calico_node(), felix(**WANTED["spec"], failsafeInboundHostPorts="ssh")),
        ("felix.fatal", "blocker", "failsafeInboundHostPorts from FelixConfiguration default"),
        "take the value out",
    ),
    "an object that nobody reads": (
        network(calico_node(), WANTED, felix("everywhere", logPrefix="x")),
        ("felix.without_effect", "warning", "FelixConfiguration everywhere: nodeSelector: its name is neither"),
        "take it out",
    ),
    "an nftables setting of iptables": (
        network(calico_node("v3.31.0"), felix(**WANTED["spec"], nftablesMode="Disabled", nftablesMarkMask=0xFF0000)),
        ("felix.without_effect", "warning", "nftablesMarkMask=16711680: the dataplane is iptables"),
        "take it out",
    ),
    "a pool in the service range": (
        network(calico_node(), WANTED, pool("p", "10.96.128.0/17")),
        ("calico.pool_overlaps", "blocker", "pool p 10.96.128.0/17 has addresses of services: 10.96.0.0/16"),
        "kubectl patch ippools.crd.projectcalico.org p --type merge",
    ),
    "a pool with the nodes": (
        network(calico_node(), WANTED, pool("p", "192.0.2.0/24")),
        ("calico.pool_overlaps", "blocker", "pool p 192.0.2.0/24 has addresses of nodes: 192.0.2.7"),
        "make a pool elsewhere",
    ),
    "two pools": (
        network(calico_node(), WANTED, pool("p", "10.1.0.0/16"), pool("q", "10.1.2.0/24")),
        ("calico.pool_overlaps", "blocker", "pool p 10.1.0.0/16 has pool q: 10.1.2.0/24"),
        "make a pool elsewhere",
    ),
    "kube-proxy in nftables mode, Calico too old": (
        network(calico_node("v3.28.1"), WANTED, kube_proxy=proxy("nftables")),
        ("calico.nftables_version", "blocker", "needs Calico 3.29 or later, found 3.28"),
        "upgrade Calico",
    ),
    "Felix in nftables mode, kube-proxy not": (
        network(calico_node("v3.31.0", FELIX_NFTABLESMODE="Disabled"), WANTED, kube_proxy=proxy("nftables")),
        ("calico.nftables_mode", "warning", "kube-proxy uses nftables, Felix iptables"),
        "set nftablesMode to Enabled",
    ),
    "what these credentials may not read": (
        network(unseen={"daemonsets": "forbidden"}),
        ("cluster.unseen", "warning", "daemonsets: forbidden"),
        "administrator",
    ),
}


@pytest.mark.parametrize(("section", "expected", "remedy"), NETWORKS.values(), ids=NETWORKS)
def test_each_fault_of_the_network_is_one_finding_with_its_remedy(section, expected, remedy):
    read = probe(network=section, nodes=[node("w1", addresses=("192.0.2.7", "w1"))])
    found = evaluate_cluster(read, {"w1": host(proxy_mode="")}, "secure_workload")

    assert [(item["id"], item["severity"], item["node"]) for item in found] == [(*expected[:2], "")]
    assert expected[2] in found[0]["observed"]
    assert remedy in found[0]["remedy"]


def test_a_variable_that_beats_the_object_is_named_with_whom_it_beats():
    section = network(calico_node(FELIX_CHAININSERTMODE="insert"), WANTED)
    found = {item["id"]: item for item in evaluate_cluster(probe(network=section), {"w1": host()}, "secure_workload")}

    over = "chainInsertMode insert (environment: DaemonSet calico-node, over Append of FelixConfiguration default)"
    assert set(found) == {"felix.chain_insert_mode", "felix.overridden"}
    assert over in found["felix.overridden"]["observed"]
    assert found["felix.chain_insert_mode"]["remedy"].startswith(
        "kubectl -n kube-system set env daemonset/calico-node FELIX_CHAININSERTMODE-; then kubectl patch"
    )


@pytest.mark.parametrize(
    "section",
    [
        network(calico_node(), WANTED),
        network(calico_node(), felix(chainInsertMode="Insert", iptablesRefreshInterval="0s", **RETURNS)),
        network(calico_node(FELIX_IPTABLESREFRESHINTERVAL="0", FELIX_CHAININSERTMODE="append", FELIX_LOGPREFIX="")),
        network(calico_node(FELIX_CHAININSERTMODE="APPEND"), WANTED),
        network(calico_node(), WANTED, pool("p", "10.244.0.0/16")),
        network(calico_node(), WANTED, pool("p", "10.96.0.0/16", disabled=True)),
        network(felix(chainInsertMode="Insert"), pool("p", "10.96.0.0/16")),
        network(calico_node("v3.32.0"), felix(nftablesRefreshInterval="0s"), kube_proxy=proxy("nftables")),
        network(),
    ],
    ids=[
        "append",
        "return",
        "variables",
        "the same twice",
        "pool",
        "pool switched off",
        "leftovers of Calico",
        "nftables",
        "no Calico",
    ],
)
def test_a_network_as_secure_workload_wants_it_has_no_finding(section):
    assert evaluate_cluster(probe(network=section), {"w1": host(proxy_mode="")}, "secure_workload") == []


def test_what_secure_workload_wants_of_felix_is_asked_for_its_engine_only():
    assert (
        evaluate_cluster(probe(network=network(calico_node(), felix(iptablesMarkMask=2144272384))), {"w1": host()})
        == []
    )


def test_what_differs_between_nodes_is_found_on_each():
    """node.w2 is right, w1 and w3 have the default; what is wrong on all is the cluster's."""
    section = network(calico_node(), felix(iptablesRefreshInterval="90s"), felix("node.w2", chainInsertMode="Append"))
    hosts = {"one": host(node_name="w1"), "w2": host(), "w3": host()}
    read = probe(network=section, nodes=[node("w1"), node("w2"), node("w3")])
    found = evaluate_cluster(read, hosts, "secure_workload")

    assert [(item["id"], item["node"]) for item in found] == [
        ("felix.refresh_interval", ""),
        ("felix.chain_insert_mode", "one"),
        ("felix.chain_insert_mode", "w3"),
    ]


def test_objects_with_a_selector_count_where_they_match():
    chosen = felix("some", nodeSelector="name == 'w2'", iptablesRefreshInterval="0s")
    section = network(calico_node("v3.32.0"), felix(chainInsertMode="Append"), chosen)
    read = probe(network=section, nodes=[node("w1"), node("w2")])
    found = evaluate_cluster(read, {"w1": host(), "w2": host()}, "secure_workload")

    assert [(item["id"], item["node"]) for item in found] == [("felix.refresh_interval", "w1")]


def test_a_node_whose_live_mode_is_another_than_the_configured_one():
    read = probe(network=network(kube_proxy=proxy("ipvs")), nodes=[node("w1"), node("w2")])
    found = evaluate_cluster(read, {"w1": host(proxy_mode="ipvs"), "two": host(node_name="w2")})

    assert [(item["id"], item["severity"], item["node"]) for item in found] == [
        ("kube_proxy.mode_differs", "warning", "two")
    ]
    assert "live mode is iptables, ConfigMap kube-system/kube-proxy key config.conf says ipvs" in found[0]["observed"]
    assert "To keep iptables: edit key config.conf" in found[0]["remedy"]


def test_ebpf_and_kube_proxy_together():
    section = network(calico_node(FELIX_BPFENABLED="true"))

    assert [item["id"] for item in evaluate_cluster(probe(network=section), {"w1": host()})] == [
        "calico.bpf_kube_proxy"
    ]


@pytest.mark.parametrize(("engine", "severity"), [("secure_workload", "blocker"), ("native", "warning")])
def test_ipvs_on_openshift_is_refused(engine, severity):
    read = probe(network=network(kube_proxy=[openshift("ipvs")]), nodes=[node("w1"), node("w2")])
    found = evaluate_cluster(read, {"w1": host(proxy_mode="ipvs"), "w2": host(proxy_mode="")}, engine)

    assert [(item["id"], item["severity"], item["node"]) for item in found] == [
        ("kube_proxy.openshift_ipvs", severity, ""),
        ("kube_proxy.openshift_ipvs", severity, "w1"),
    ]
    assert "oc patch networks.operator.openshift.io cluster" in found[0]["remedy"]


def test_a_probe_of_before_the_network_was_read_is_judged_without_it():
    read = probe()
    del read["network"], read["kubernetes"], read["nodes"][0]["labels"]

    assert evaluate_cluster(read, {"w1": host()}, "secure_workload") == []
