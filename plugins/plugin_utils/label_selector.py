# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes' own label selectors: C({matchLabels, matchExpressions}).

Source: kubernetes/kubernetes, staging/src/k8s.io/apimachinery/pkg/labels/selector.go.
"""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_list, as_mapping


def matches_labels(selector: object, labels: Mapping[str, str]) -> bool:
    """Whether a selector matches labels; one that is empty or not there matches all."""
    wanted = as_mapping(selector)
    return all(labels.get(key) == value for key, value in as_mapping(wanted.get("matchLabels")).items()) and all(
        _matches(as_mapping(item), labels) for item in as_list(wanted.get("matchExpressions"))
    )


def _matches(expression: dict, labels: Mapping[str, str]) -> bool:
    key, values = str(expression.get("key")), as_list(expression.get("values"))
    operator = expression.get("operator")
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    return (key in labels) == (operator == "Exists")
