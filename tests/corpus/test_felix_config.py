# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Both combinations of the requirement's text against every Calico file: edited, nothing else changed, or refused."""

from __future__ import annotations

import copy

import pytest
import yaml
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_install import CalicoInstall, read_install
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import Resource
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_cluster import FelixCluster
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_desired import Ground, desired_spec
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_object import known_schema, refusals
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import parse_version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_plan import make_plan
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_stage import RECORD, final_default, staged_object
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy import KubeProxy
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_known import Felix
from ansible_collections.portcullis.fleet.plugins.plugin_utils.rollout import RolloutError

from tests.corpus.files import CORPUS
from tests.corpus.test_calico import CRDS, ROWS, read, schema_of

API_VERSION = "crd.projectcalico.org/v1"
FELIX = Resource("crd.projectcalico.org", "v1", "felixconfigurations", "FelixConfiguration")
NODE, POD = {"metadata": {"name": "n1"}}, {"metadata": {"name": "calico-node-1"}, "spec": {"nodeName": "n1"}}
FILES = [row["file"] for row in ROWS if row["file"].endswith(".yaml")]
# By file and variant what keeps the change from its effect, and where that is changed.
REFUSED = {
    ("005.yaml", "append"): "daemonset/canal FELIX_IPTABLESREFRESHINTERVAL-",
    ("005.yaml", "return"): "daemonset/canal FELIX_IPTABLESREFRESHINTERVAL-",
    ("015.yaml", "append"): "spec.networking.calico.chainInsertMode with kops edit cluster",
    ("019.yaml", "append"): "calico.felixIptablesMarkMask in valuesContent of the HelmChartConfig rke2-canal",
    ("019.yaml", "return"): "calico.felixIptablesMarkMask in valuesContent of the HelmChartConfig rke2-canal",
    ("025.yaml", "append"): "set bpfEnabled: false first",
    ("025.yaml", "return"): "set bpfEnabled: false first",
    ("029.yaml", "append"): "set bpfEnabled: false first",
    ("029.yaml", "return"): "set bpfEnabled: false first",
    ("037.yaml", "return"): "daemonset/calico-node FELIX_CHAININSERTMODE-",
}
# Calico that takes bit 20 or 21 of its default mask, or whose version the file does not say.
PLANNED_MASK = {"iptablesMarkMask": 0x7FCF0000}
PROFILES = {
    "append": {"chainInsertMode": "Append", "iptablesRefreshInterval": "0s"},
    "return": {
        "chainInsertMode": "Insert",
        "iptablesFilterAllowAction": "Return",
        "iptablesMangleAllowAction": "Return",
        "iptablesRefreshInterval": "0s",
    },
}


def cluster_of(install: CalicoInstall, **kubernetes: tuple[int, int]) -> FelixCluster:
    """A cluster of one node with this installation."""
    schema = schema_of(install.version) if install.version else known_schema((3, 31))
    objects = [{"apiVersion": API_VERSION, "kind": "FelixConfiguration", **item} for item in install.objects]
    return FelixCluster(
        resource=FELIX,
        objects=objects,
        install=install,
        proxy=KubeProxy(),
        nodes={"n1": NODE},
        daemon_set={},
        pods=[POD],
        pods_of={},
        schema={"properties": {}, **schema},
        kubernetes=kubernetes.get("kubernetes", (1, 34)),
    )


@pytest.mark.parametrize("variant", ["append", "return"])
@pytest.mark.parametrize("file", FILES)
def test_every_object_is_judged(file, variant):
    """What may be edited gets the fields and keeps all others; what would have no effect is refused with its lever."""
    cluster = cluster_of(read_install(read(file)))
    asked = {"profile": "secure_workload", "variant": variant}
    before = copy.deepcopy(cluster.default)

    if (file, variant) in REFUSED:
        with pytest.raises(RolloutError, match="nothing was written") as error:
            make_plan(cluster, "present", asked)
        assert REFUSED[file, variant] in str(error.value)
        return
    change = make_plan(cluster, "present", asked).change
    families = {"nftables" if name.startswith("nftables") else "iptables" for name in change.spec}
    wanted = {
        name.replace("iptables", min(families - {"iptables"}, default="iptables")): value
        for name, value in (PROFILES[variant] | PLANNED_MASK).items()
    }
    assert {**wanted, **change.spec} == wanted
    after = final_default(change, API_VERSION, cluster.default)
    notes = after["metadata"]["annotations"]
    assert set(notes) - {RECORD} == set((before or {"metadata": {}})["metadata"].get("annotations") or {})
    assert {k: v for k, v in after["spec"].items() if k not in change.spec} == {
        k: v for k, v in (before or {"spec": {}})["spec"].items() if k not in change.spec
    }
    assert cluster.default == before


@pytest.mark.parametrize("file", [file for file in FILES if (file, "append") not in REFUSED])
def test_what_is_written_is_accepted_and_in_force(file):
    """The CRD of that version takes both objects, and Felix runs with the values; afterwards nothing is to be done."""
    install = read_install(read(file))
    cluster = cluster_of(install)
    asked = {"profile": "secure_workload", "variant": "append"}
    change = make_plan(cluster, "present", asked).change

    staged = staged_object(change, "node.n1", API_VERSION)
    final = final_default(change, API_VERSION, cluster.default)
    for item in (staged, final):
        mine = {name: value for name, value in item["spec"].items() if name in change.spec}
        assert refusals(mine, cluster.schema, kubernetes=(1, 36)) == {}
    for objects in ([*cluster.objects, staged], [final]):
        config = cluster.effective(objects, "n1")
        assert config.value("chainInsertMode") == "Append"
        assert config.fatal == ()
    others = [item for item in cluster.objects if item["metadata"]["name"] != "default"]
    done = cluster_of(install)
    done.objects[:] = [*others, final]
    assert make_plan(done, "present", asked).change is None


@pytest.mark.parametrize("path", CRDS, ids=lambda path: path.parent.name)
def test_every_crd(path):
    """Both combinations pass each version's rules; a typo and a bad duration do not, whatever the CRD takes."""
    version = parse_version(path.parent.name)
    schema = schema_of(version)
    ground = Ground(
        version, (1, 36), schema, Felix(version=version, mark_mask=0xFFFF0000), others={"kube-proxy": 0x4000}
    )

    for variant in ("append", "return"):
        found = desired_spec(ground, profile="secure_workload", variant=variant, mark_mask=0x7FCF0000)
        assert found.refused == {}
        assert refusals(found.spec, schema, kubernetes=(1, 36)) == {}
    wrong = {"chainInsertMod": "Append", "iptablesRefreshInterval": "1.5s", "iptablesFilterAllowAction": "Retrun"}
    assert desired_spec(ground, settings=wrong).refused.keys() == wrong.keys()
    told = desired_spec(ground, settings=wrong).refused
    assert "spelt chainInsertMode" in told["chainInsertMod"]
    assert "write Return" in told["iptablesFilterAllowAction"]
    has_nftables = version >= (3, 29)
    assert (
        "nftablesMarkMask" in desired_spec(ground, settings={"nftablesMarkMask": 0x7FCF0000}).refused
    ) != has_nftables


def test_v3_has_the_same_rules():
    """The CRD of projectcalico.org/v3 is no looser."""
    path = CORPUS / "calico-crds" / "v3.32.1" / "projectcalico.org_felixconfigurations.yaml"
    version = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]["versions"][0]
    rules = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]

    assert version["name"] == "v3"
    assert {name: rule.get("pattern") for name, rule in rules.items()} == {
        name: rule.get("pattern") for name, rule in schema_of((3, 32))["properties"].items()
    }


# By field values that any version takes, and ones that do nothing or harm, whatever its CRD lets through.
VALUES = {
    "chainInsertMode": (["Insert", "Append"], ["append", "Top", "", 1, True]),
    "iptablesFilterAllowAction": (["Accept", "Return"], ["ACCEPT", "REGISTER", "Drop"]),
    "iptablesMangleAllowAction": (["Accept", "Return"], ["return", "DELETE"]),
    "iptablesRefreshInterval": (
        ["0s", "90s", "1m30s", "500ms", "1h"],
        ["0", 0, "90", 90, "1.5s", "100us", "-1s", "90 s"],
    ),
    "iptablesPostWriteCheckInterval": (["5s"], ["5", "1d", "soon"]),
    "iptablesMarkMask": ([0x7FCF0000, 0x7FC70000], ["0x7fcf0000", -3211264, 0, 0x30000, 0xFFFF, 0xFFCF0000, 1 << 32]),
    "iptablesBackend": (["Legacy", "NFT", "Auto"], ["nft", "iptables"]),
    "bpfEnabled": ([True, False], ["true", 1]),
    "wireguardEnabled": ([False], ["no"]),
    "logSeverityScreen": (["Info", "Debug"], ["info", "Verbose"]),
    "failsafeInboundHostPorts": ([[{"protocol": "tcp", "port": 22}], []], ["tcp:22", 22]),
    "iptablesRefreshIntervall": ([], ["90s"]),
    "FELIX_CHAININSERTMODE": ([], ["Append"]),
}
NFTABLES_VALUES = {
    "nftablesMode": (["Enabled", "Disabled"], ["enabled", True]),
    "nftablesMarkMask": ([0x7FCF0000], [0x30000]),
    "nftablesRefreshInterval": (["0s"], ["0", 90]),
    "nftablesFilterAllowAction": (["Return"], ["Drop"]),
}


@pytest.mark.parametrize("path", CRDS, ids=lambda path: path.parent.name)
def test_values_against_every_crd(path):
    """Good values pass our judgement and the CRD's, bad ones never pass ours; nftables fields only from 3.29 on."""
    version = parse_version(path.parent.name)
    schema = schema_of(version)
    ground = Ground(version, (1, 36), schema, Felix(version=version), others={"kube-proxy": 0x4000})

    def is_refused(field: str, value: object) -> bool:
        return field in desired_spec(ground, settings={field: value}).refused

    for field, (good, bad) in {**VALUES, **NFTABLES_VALUES}.items():
        is_known = field not in NFTABLES_VALUES or version >= (3, 29)
        for value in good:
            assert is_refused(field, value) != is_known, (field, value)
            assert (field in refusals({field: value}, schema, kubernetes=(1, 36))) != is_known, (field, value)
        for value in bad:
            assert is_refused(field, value), (field, value)
