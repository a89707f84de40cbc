# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to change so that a refused pod is admitted, by who refused it."""

from __future__ import annotations

from ansible_collections.portcullis.fleet.plugins.plugin_utils.admission import Refusal

# {rule}: policy, constraint, quota or webhook; {last}: its last part; {namespace}: where the pod was refused.
_REMEDIES = {
    "kyverno": "exclude the namespace in that rule of policy {first}: exclude: {{any: [{{resources: {{namespaces: "
    "[{namespace}]}}}}]}}, or make a PolicyException for it",
    "gatekeeper": "add {namespace} to spec.match.excludedNamespaces of {rule} (kubectl get constraints)",
    "kubewarden": "leave out the namespace in spec.namespaceSelector of that policy (kubectl get "
    "clusteradmissionpolicies,admissionpolicies -A): kubernetes.io/metadata.name NotIn [{namespace}]",
    "opa": "kubectl label namespace {namespace} openpolicyagent.org/webhook=ignore",
    "validatingadmissionpolicy": "leave out the namespace in spec.matchResources.namespaceSelector of "
    "ValidatingAdmissionPolicyBinding {last}: kubernetes.io/metadata.name NotIn [{namespace}]",
    "scc": "oc adm policy add-scc-to-user privileged -n {namespace} -z NAME of the agent's service account: labels of "
    "the namespace alone do not do",
    "psp": "bind the service accounts of {namespace} to a PodSecurityPolicy with privileged: true (RoleBinding)",
    "quota": "raise or remove the quota: kubectl -n {namespace} describe resourcequota",
    "limitrange": "change or remove the limits: kubectl -n {namespace} describe limitrange",
    "apiserver": "start kube-apiserver with --allow-privileged=true",
    "rbac": "name a kubeconfig of an administrator in portcullis_kubeconfig",
    "webhook:unreachable": "let the webhook's service answer again, or leave out the namespace in its "
    "namespaceSelector (kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations)",
}
_WEBHOOK = (
    "leave out the namespace in namespaceSelector of webhook {rule} (kubectl get validatingwebhookconfigurations)"
)
_OTHER = "exclude the namespace in the policy or webhook that the message names, or mend what else it names"


def refused_by(refusal: Refusal) -> str:
    """Who refused, by which rule, because of which fields; "" when the message does not tell."""
    if refusal.who == Refusal.who:
        return ""
    fields = f", because of {', '.join(refusal.fields)}" if refusal.fields else ""
    return f"{refusal.who}{f' ({refusal.rule})' if refusal.rule else ''}{fields}"


def remedy_for(refusal: Refusal, namespace: str) -> str:
    """What to change there; the namespace's name is filled in."""
    text = _REMEDIES.get(refusal.who) or (_WEBHOOK if refusal.who.startswith("webhook:") else _OTHER)
    if refusal.who == "apiserver" and not refusal.rule:
        text = _OTHER
    first, last = refusal.rule.partition("/")[0], refusal.rule.rpartition(" / ")[2]
    return text.format(rule=refusal.rule or "that refuses", first=first, last=last, namespace=namespace)
