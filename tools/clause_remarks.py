# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What two of the texts say besides: of a clause that clause_table.py has, or what only sounds like a demand."""

from __future__ import annotations

from tools.clause import CALICO, NO_DEMAND, SECURE_WORKLOAD, Clause

_EXAMPLE, _ADVICE = NO_DEMAND + "one of several ways", NO_DEMAND + "advice on what to install"
_LIST = NO_DEMAND + "it opens a list whose items are clauses of their own"
_MESH = "Application layer policy requirements"
_PREREQUISITES = "Requirements and Prerequisites"
_ENFORCEMENT = "Requirements for Policy Enforcement"

REMARKS = (
    *(
        Clause(CALICO, *row)
        for row in (
            ("key/value store", "directly access an etcdv3 cluster", ("calico.datastore_etcd", "calico.not_ready")),
            ("Privileges", "The easiest way to provide the necessary privilege", (), _EXAMPLE),
            (
                "Privileges",
                "Calico fulfills this requirement by running as a privileged container",
                ("node.cap_sys_admin",),
            ),
            ("Privileges", "Specify -allow-privileged in the kubelet (deprecated)", (), _EXAMPLE),
            ("Privileges", "Use a pod security policy", (), _EXAMPLE + ", gone since Kubernetes 1.25"),
            (
                "Supported versions",
                "we recommend upgrading to a version of Calico that is tested",
                ("calico.kubernetes_untested",),
            ),
            ("Supported versions", "may work, but are no longer tested", ("calico.kubernetes_untested",)),
            ("Plug-in", "Calico is installed as a CNI plug-in", ("calico.not_ready",)),
            (
                "Other network providers",
                "do not currently support migrating a cluster with another network provider",
                ("network.several_providers",),
            ),
            (_MESH, "Kubernetes version 1.16+ requires Istio version 1.2 or higher", ("istio.version",)),
            (_MESH, "Istio version 1.9 requires Kubernetes version 1.17-1.20", ("istio.version",)),
            (_MESH, "Istio version 1.10 supports Kubernetes version 1.18-1.21", ("istio.version",)),
            (
                "Node Requirements",
                "it is difficult to be precise about the names of the particular kernel modules",
                (),
                _LIST,
            ),
            ("Node Requirements", "However, in general, you will need", (), _LIST),
            ("Node Requirements", "including IPv6 versions if IPv6 is enabled", ("kernel.ip6tables",)),
        )
    ),
    *(
        Clause(SECURE_WORKLOAD, *row)
        for row in (
            (_PREREQUISITES, "Supported Windows worker node container runtime", ("windows.runtime",)),
            (_PREREQUISITES, "Remove configurations under registry.mirrors", ("containerd.mirrors_present",)),
            (
                _PREREQUISITES,
                "Restart the containerd daemon after the configuration changes",
                ("containerd.config_not_loaded",),
            ),
            (
                _PREREQUISITES,
                "The image mcr.microsoft.com/oss/kubernetes/windows-host-process-containers-base-image:v1.0.0",
                ("windows.image_missing",),
            ),
            (
                _PREREQUISITES,
                "the previous script does not uninstall the Windows DaemonSet agent",
                (),
                NO_DEMAND + "it concerns an agent that is taken away",
            ),
            (
                _PREREQUISITES,
                "Download the latest installer script",
                (),
                NO_DEMAND + "it concerns an agent that is taken away",
            ),
            (_PREREQUISITES, "Supported on:", (), _LIST),
            (_PREREQUISITES, "Microsoft Windows Server 2022", ("windows.build",)),
            (_PREREQUISITES, "Windows Server 2019", ("windows.build",)),
            (_PREREQUISITES, "Kubernetes 1.27 and later", ("windows.kubernetes",)),
            (_ENFORCEMENT, "any installed CNI plug-in must", (), _LIST),
            (
                _ENFORCEMENT,
                "Network plug-ins that masquerade the source pod IP for intracluster communication are not supported",
                ("packet_filter.masquerade_all",),
            ),
        )
    ),
)
