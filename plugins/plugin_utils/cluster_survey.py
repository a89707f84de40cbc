# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a cluster is read beside its nodes, Calico and kube-proxy: for now where its API servers listen."""

from __future__ import annotations

from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api_server import NO_API_SERVER, read_api_server
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import Reader

EMPTY_SURVEY = {"api_server": NO_API_SERVER, "unseen": {}}


def read_survey(reader: Reader, namespace: str) -> dict:
    """The keys of EMPTY_SURVEY; what was refused in C(unseen), by what was asked.

    :param namespace: the agent's.
    """
    before = set(reader.unseen)
    found = {"api_server": read_api_server(reader)}
    return {**found, "unseen": {what: why for what, why in reader.unseen.items() if what not in before}}
