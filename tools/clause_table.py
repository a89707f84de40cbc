# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clauses of the three requirement texts: what checks each, or why nothing does.

The texts are not part of the collection; a clause is named by document and heading and quoted in a few words.
"""

from __future__ import annotations

from tools.clause import CALICO, NO_DEMAND, SECURE_WORKLOAD, WINDOWS_FILES, Clause
from tools.clause_remarks import REMARKS
from tools.clause_runtime_enforcer import RUNTIME_ENFORCER_CLAUSES

_NODE = "Node Requirements"
_NETWORK = "Network requirements"
_MODULES = "Node Requirements"
_PREREQUISITES = "Requirements and Prerequisites"
_ENFORCEMENT = "Requirements for Policy Enforcement"
_IMAGE = ("image.missing",)
_CONFIG_PATH = (
    "containerd.config_path",
    "containerd.config_invalid",
    "containerd.config_not_loaded",
    "containerd.cri_not_serving",
    "containerd.mirrors_present",
    "containerd.version",
)
_PORTS = ("network.port_unreachable", "network.port_taken", "network.ports_unseen")
_PORTS_ASKED = "tried by preflight.yml --tags ports only, where the mode of the network needs it"
_FLAT_ASKED = "tried by preflight.yml --tags flat_network only; kube-proxy's masqueradeAll is found every time"

CALICO_CLAUSES = (
    Clause(CALICO, _NODE, "x86-64, arm64, ppc64le, or s390x", ("node.architecture",)),
    Clause(CALICO, _NODE, "Calico must be able to manage cali* interfaces on the host", ("node.network_manager",)),
    Clause(
        CALICO,
        _NODE,
        "When IPIP is enabled (the default), Calico also needs to be able to manage tunl*",
        ("node.network_manager",),
    ),
    Clause(CALICO, _NODE, "needs to be able to manage the vxlan.calico interface", ("node.network_manager",)),
    Clause(CALICO, _NODE, "Linux kernel 3.10 or later with required dependencies", ("node.kernel",)),
    Clause(
        CALICO,
        _NODE,
        "The following distributions have the required kernel",
        (),
        NO_DEMAND + "examples that work; the kernel is checked, not its distribution",
    ),
    Clause(
        CALICO,
        _NODE,
        "comes with Firewalld installed or another iptables manager, it should be disabled",
        (
            "node.unseen",
            "packet_filter.incompatible_table",
            "packet_filter.other_manager",
            "packet_filter.policy_bypassed",
            "packet_filter.rules_unseen",
            "packet_filter.second_filter",
            "packet_filter.stale",
        ),
    ),
    Clause(
        CALICO,
        "key/value store",
        "requires an accessible key/value store for all Calico components",
        ("calico.datastore_etcd", "calico.not_ready"),
        "an etcd of Calico's own is not asked: that calico-node is ready shows that its node reaches it",
    ),
    Clause(
        CALICO,
        _NETWORK,
        "Ensure that your hosts and firewalls allow the necessary traffic",
        _PORTS,
        _PORTS_ASKED + "; of several firewalls on a way, which one drops is not told",
    ),
    Clause(CALICO, _NETWORK, "Calico Networks (BGP)", _PORTS, _PORTS_ASKED + "; peers that are no nodes are not tried"),
    Clause(CALICO, _NETWORK, "Calico Networks with IP on IP enabled (default)", _PORTS, _PORTS_ASKED),
    Clause(CALICO, _NETWORK, "Calico Networks with VXLAN enabled", _PORTS, _PORTS_ASKED),
    Clause(CALICO, _NETWORK, "Calico Networks with Typha enabled", _PORTS, _PORTS_ASKED),
    Clause(CALICO, _NETWORK, "Calico networks with Wireguard IPv4 enabled", _PORTS, _PORTS_ASKED),
    Clause(CALICO, _NETWORK, "Calico networks with Wireguard IPv6 enabled", _PORTS, _PORTS_ASKED),
    Clause(CALICO, _NETWORK, "flannel networking (VXLAN)", _PORTS, _PORTS_ASKED),
    Clause(CALICO, _NETWORK, "kube-apiserver host", _PORTS, _PORTS_ASKED),
    Clause(CALICO, _NETWORK, "etcd datastore", _PORTS, _PORTS_ASKED),
    Clause(
        CALICO,
        _NETWORK,
        "If you can't find this, check the targetPort value",
        ("network.port_unreachable",),
        "the addresses and ports of the EndpointSlices of the Service kubernetes are taken, never 443 or 6443",
    ),
    Clause(CALICO, "Privileges", "Calico has the privilege CAP_SYS_ADMIN", ("node.cap_sys_admin",)),
    Clause(
        CALICO,
        "Privileges",
        "requires that the kubelet be allowed to run privileged containers",
        ("kubelet.privileged_refused", "cluster.admission_refused"),
    ),
    Clause(
        CALICO,
        "Supported versions",
        "We tested Calico v3.25 with the following Kubernetes versions",
        ("calico.kubernetes_untested", "calico.version_unknown"),
    ),
    Clause(CALICO, "Supported versions", "v1.15 or earlier. v1.16-v1.18", ("calico.kubernetes_fails",)),
    Clause(
        CALICO,
        "Plug-in",
        "The kubelet must be configured to use CNI networks",
        ("kubelet.network_plugin", "cni.invalid", "cni.missing_binary"),
    ),
    Clause(
        CALICO,
        "Kubernetes Requirements",
        "The kubelet must be configured",
        ("kubelet.not_healthy", "kubelet.cgroup_driver", "kubelet.cgroup_version", "kubelet.network_plugin"),
    ),
    Clause(
        CALICO,
        "Other network providers",
        "Calico must be the only network provider in each cluster",
        ("cni.second_provider", "network.several_providers"),
    ),
    Clause(
        CALICO,
        "Supported kube-proxy modes",
        "Calico supports the following kube-proxy modes",
        (
            "kube_proxy.mode_unknown",
            "kube_proxy.mode_differs",
            "calico.nftables_version",
            "packet_filter.backends_differ",
            "packet_filter.stale",
        ),
    ),
    Clause(CALICO, "Supported kube-proxy modes", "Requires Kubernetes >=v1.9.3", ("kube_proxy.ipvs_version",)),
    Clause(
        CALICO,
        "IP address pool configuration",
        "cannot overlap with any other IP range on the network",
        ("calico.pool_overlaps", "calico.pool_routes"),
        "ranges of the network that neither the cluster nor the routes of its nodes name",
    ),
    Clause(
        CALICO,
        "Application layer policy requirements",
        "MutatingAdmissionWebhook enabled",
        ("cluster.mutating_webhooks_off",),
        "asked only where Felix has policySyncPathPrefix; the flags of an API server that is no pod are not seen",
    ),
    Clause(CALICO, "Application layer policy requirements", "for Istio v1.9 or v1.10", ("istio.version",)),
    Clause(
        CALICO,
        _MODULES,
        'The iptables modules ("legacy" and "nft" variants are supported)',
        ("kernel.iptables_backend", "kernel.ip6tables", "kernel.nftables", "kernel.unseen"),
    ),
    Clause(
        CALICO,
        _MODULES,
        "matching criteria: set,rpfilter, addrtype, comment,conntrack",
        ("kernel.iptables_match", "kernel.iptables_rare", "kernel.ip6tables", "kernel.rp_filter"),
    ),
    Clause(
        CALICO,
        _MODULES,
        "actions: REJECT, ACCEPT, DELETE, REGISTER",
        ("kernel.iptables_target", "kernel.iptables_rare", "kernel.ip6tables"),
    ),
    Clause(CALICO, _MODULES, "Support of IP sets", ("kernel.ipset",)),
    Clause(
        CALICO,
        _MODULES,
        "Support for Netfilter Conntrack compiled in",
        ("kernel.conntrack", "kernel.iptables_rare"),
    ),
    Clause(CALICO, _MODULES, "IPVS support if using kube-proxy in IPVS mode", ("kernel.ipvs",)),
    Clause(CALICO, _MODULES, "Support IPIP, VXLAN, Wireguard", ("kernel.ipip", "kernel.vxlan", "kernel.wireguard")),
    Clause(
        CALICO,
        _MODULES,
        "eBPF (including tc link support) and XDP",
        ("kernel.bpf", "kernel.btf", "kernel.lockdown", "kernel.tc", "kernel.xdp"),
    ),
)

SECURE_WORKLOAD_CLAUSES = (
    Clause(
        SECURE_WORKLOAD,
        _PREREQUISITES,
        "Operating system support information is available",
        ("node.operating_system",),
        "the vendor's matrix itself: ours is a dated list that users replace (portcullis_os_matrix)",
    ),
    Clause(
        SECURE_WORKLOAD,
        _PREREQUISITES,
        "requires Kubernetes or OpenShift administrator credentials",
        ("cluster.access_denied", "cluster.unseen"),
    ),
    Clause(
        SECURE_WORKLOAD,
        _PREREQUISITES,
        "entities are created in the tetration namespace",
        ("cluster.namespace_terminating",),
        "the namespace is made by the run itself, role cluster",
    ),
    Clause(
        SECURE_WORKLOAD,
        _PREREQUISITES,
        "security policies must permit privileged mode pods",
        (
            "cluster.admission_refused",
            "cluster.admission_unknown",
            "cluster.label_syncer",
            "webhook.could_block",
        ),
    ),
    Clause(SECURE_WORKLOAD, _PREREQUISITES, "busybox:1.33 images must either be preinstalled", _IMAGE),
    Clause(SECURE_WORKLOAD, _PREREQUISITES, "if the config_path is not set, modify your config.toml", _CONFIG_PATH),
    Clause(
        SECURE_WORKLOAD,
        _PREREQUISITES,
        "Restart the containerd daemon.",
        ("containerd.binary_replaced", "containerd.config_not_loaded", "containerd.missing"),
        "the restart is done by the run itself, role containerd",
    ),
    Clause(
        SECURE_WORKLOAD,
        _PREREQUISITES,
        "toleration flag can be used to pass in a toleration",
        ("coverage.node_not_reached",),
        "before the agent is there nothing is judged: whether nodes with taints shall have it is the user's choice",
    ),
    Clause(SECURE_WORKLOAD, _PREREQUISITES, "For Windows worker nodes", ("windows.not_covered",), WINDOWS_FILES),
    Clause(
        SECURE_WORKLOAD,
        _ENFORCEMENT,
        "IPVS-based kube-proxy mode is not supported for OpenShift",
        ("kube_proxy.openshift_ipvs",),
    ),
    Clause(
        SECURE_WORKLOAD,
        _ENFORCEMENT,
        "configured with the Preserve Rules option that is enabled",
        (),
        "cannot be checked on a node because the agent's profile is kept by the Secure Workload server",
    ),
    Clause(
        SECURE_WORKLOAD,
        _ENFORCEMENT,
        "Provide flat address space (IP network) between all nodes and pods",
        (
            "network.source_masqueraded",
            "network.pods_unreachable",
            "network.flat_unproven",
            "packet_filter.masquerade_all",
        ),
        _FLAT_ASKED,
    ),
    Clause(
        SECURE_WORKLOAD,
        _ENFORCEMENT,
        "Not interfere with Linux iptables rules or marks",
        ("packet_filter.displaced", "packet_filter.marks_collide"),
    ),
    Clause(
        SECURE_WORKLOAD,
        _ENFORCEMENT,
        "The following CNI plug-ins are tested",
        ("network.plugin_untested",),
        "the plugin is known by its DaemonSet; the version of Calico is not held to 3.13",
    ),
    Clause(
        SECURE_WORKLOAD,
        _ENFORCEMENT,
        "ChainInsertMode: Append",
        (
            "felix.chain_insert_mode",
            "felix.refresh_interval",
            "felix.fatal",
            "felix.overridden",
            "felix.without_effect",
            "packet_filter.displaced",
        ),
    ),
    Clause(SECURE_WORKLOAD, _ENFORCEMENT, "All other options use their default values", ("felix.not_default",)),
)

CLAUSES = CALICO_CLAUSES + SECURE_WORKLOAD_CLAUSES + RUNTIME_ENFORCER_CLAUSES + REMARKS

# Where a text is wrong: what it says, what is so.
CORRECTIONS = (
    (CALICO, "actions: REJECT, ACCEPT, DELETE, REGISTER", "mistranslated: REJECT, ACCEPT, DROP, LOG"),
    (
        CALICO,
        "flannel networking (VXLAN) UDP 4789",
        "8472 on Linux unless Backend.Port of net-conf.json says otherwise; 4789 is what flannel needs on Windows",
    ),
    (
        SECURE_WORKLOAD,
        "IptablesRefreshInterval: 0",
        'the string "0s" in a FelixConfiguration; the number 0 in the environment and in felix.cfg, where "0s" does '
        "not parse and the default is used",
    ),
    (
        CALICO,
        "passing the argument -network-plugin=cni",
        "a flag of kubelets up to 1.23; newer ones know CNI alone and do not start with it",
    ),
    (CALICO, "Specify -allow-privileged in the kubelet", "gone in 1.15: admission decides, by Pod Security"),
    (SECURE_WORKLOAD, "Preserve Rules", "Linux only: Windows pods need WFP with Preserve Rules off"),
    (
        SECURE_WORKLOAD,
        'config_path = "/etc/containerd/certs.d"',
        "on Windows a Windows path, such as C:\\ProgramData\\containerd\\certs.d",
    ),
)
