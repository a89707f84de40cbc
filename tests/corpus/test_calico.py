# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every Calico file of the corpus: the answer of its row, as the code gives it."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_install import read_install
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_pools import overlaps
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_effective import dataplane, effective
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_file import FelixFileError, parse_felix_file
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_object import known_schema, refusals, spellings
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import PARAMETERS, parse_version

from tests.corpus.files import CORPUS, index

ROWS = index("calico")
CRDS = sorted((CORPUS / "calico-crds").glob("*/crd.projectcalico.org_felixconfigurations.yaml"))
APPEND = {"metadata": {"name": "default"}, "spec": {"chainInsertMode": "Append", "iptablesRefreshInterval": "5s"}}

# What the row's answer means here. settings: (value, source) of the file alone. object: the same with APPEND added to
# the file, so that it shows whether the object decides. Absent keys are not looked at.
EXPECTED = {
    "001.yaml": {
        "install": {"method": "manifest", "version": (3, 13), "namespace": "kube-system", "distribution": "microk8s"},
        "settings": {"chainInsertMode": ("Insert", "built-in"), "iptablesRefreshInterval": (90, "built-in")},
        "object": {"chainInsertMode": ("Append", "default"), "iptablesRefreshInterval": (5, "default")},
        "refused": ({"chainInsertMode": "Bogus", "iptablesRefreshInterval": "90"}, set()),
    },
    "003.yaml": {
        "install": {"method": "manifest", "version": (3, 27), "variant": "calico"},
        "settings": {"chainInsertMode": ("Insert", "built-in"), "iptablesRefreshInterval": (180, "built-in")},
        "refused": ({"iptablesRefreshInterval": "soon", "routeRefreshInterval": "0s"}, {"iptablesRefreshInterval"}),
    },
    "005.yaml": {
        "install": {"variant": "canal", "version": (3, 27)},
        "settings": {"iptablesRefreshInterval": (60, "environment"), "chainInsertMode": ("Insert", "built-in")},
        "object": {"iptablesRefreshInterval": (60, "environment"), "chainInsertMode": ("Append", "default")},
        "overridden": {"iptablesRefreshInterval"},
        "notes": {"calico.host_local"},
        "pools": [],
    },
    "007.yaml": {
        "install": {"method": "manifest", "version": (3, 31)},
        "settings": {"chainInsertMode": ("Insert", "built-in"), "nftablesMode": ("Disabled", "built-in")},
        "object": {"chainInsertMode": ("Append", "default")},
    },
    "009.yaml": {
        "install": {"method": "operator", "namespace": "calico-system"},
        "notes": {"calico.operator"},
        "pools": [("192.168.0.0/16", "installation")],
    },
    "011.yaml": {
        "install": {"version": (3, 19), "distribution": "microk8s"},
        "notes": {"calico.pool_environment"},
        "pools": [("10.1.0.0/16", "environment")],
    },
    "013.yaml": {
        "install": {"version": (3, 29), "distribution": "microk8s"},
        "settings": {
            "featureDetectOverride": ("ChecksumOffloadBroken=true", "environment"),
            "chainInsertMode": ("Insert", "built-in"),
        },
        "object": {"chainInsertMode": ("Append", "default")},
        "unset": {"CALICO_IPV4POOL_IPIP"},
    },
    "015.yaml": {
        "install": {"distribution": "kops", "version": (3, 31)},
        "settings": {"chainInsertMode": ("Insert", "environment")},
        "object": {"chainInsertMode": ("Insert", "environment"), "iptablesRefreshInterval": (5, "default")},
        "overridden": {"chainInsertMode"},
        "lever": ("chainInsertMode", "spec.networking.calico.chainInsertMode"),
    },
    "017.yaml": {"install": {"method": "operator"}, "notes": {"calico.policy_only"}, "pools": []},
    "019.yaml": {
        "install": {"variant": "canal", "distribution": "rke2"},
        "notes": {"calico.template"},
        "settings": {
            "iptablesRefreshInterval": (None, "environment"),
            "iptablesBackend": (None, "environment"),
            "iptablesMarkMask": (None, "environment"),
        },
        "lever": ("iptablesMarkMask", "calico.felixIptablesMarkMask"),
    },
    "021.yaml": {
        "settings": {"iptablesBackend": ("Auto", "default"), "failsafeInboundHostPorts": (None, "built-in")},
        "fatal": {(3, 24): "iptablesBackend", (3, 25): "", (3, 31): ""},
    },
    "023.yaml": {
        "install": {"method": "operator", "distribution": "rke2"},
        "settings": {"nftablesMode": ("Enabled", "default")},
        "idle": ({"iptablesRefreshInterval": "5s", "nftablesRefreshInterval": "7s"}, {"iptablesRefreshInterval"}),
    },
    "025.yaml": {"settings": {"bpfEnabled": (True, "default"), "reportingInterval": (0, "default")}, "kind": "bpf"},
    "027.yaml": {"install": {"method": "objects"}, "settings": {"chainInsertMode": ("Append", "default")}},
    "029.yaml": {
        "settings": {"bpfEnabled": (True, "default"), "iptablesMarkMask": (0xFFFF0000, "built-in")},
        "spec_refused": {"iptablesMarkMask"},
    },
    "031.yaml": {
        "settings": {"chainInsertMode": ("Append", "default"), "reportingInterval": (0, "default")},
        "spec_refused": set(),
    },
    "033.yaml": {
        "install": {"method": "values", "distribution": "k0s"},
        "settings": {"iptablesMarkMask": (0xFF00FF00, "environment")},
    },
    "035.yaml": {"install": {"method": ""}},
    "037.yaml": {
        "settings": {
            "chainInsertMode": ("Append", "environment"),
            "iptablesMangleAllowAction": ("Return", "environment"),
            "iptablesBackend": ("NFT", "environment"),
        },
        "object": {"chainInsertMode": ("Append", "environment")},
        "overridden": {"chainInsertMode"},
    },
    "039.yaml": {"pools": [("172.17.1.0/29", "object")], "notes": {"calico.pool_one_block"}},
    "041.yaml": {"install": {"method": ""}, "notes": {"calico.old_api"}, "pools": []},
    "043.yaml": {
        "install": {"version": (3, 7), "distribution": "kubespray"},
        "settings": {"chainInsertMode": ("Insert", "built-in"), "iptablesRefreshInterval": (90, "built-in")},
        "object": {"chainInsertMode": ("Append", "default")},
    },
}


def read(name):
    return (CORPUS / "calico" / name).read_text(encoding="utf-8")


def places(config, names):
    return {name: (config.settings[name].value, config.settings[name].source) for name in names}


@pytest.mark.parametrize("row", [pytest.param(row, id=row["file"]) for row in ROWS if row["file"].endswith(".yaml")])
def test_answer(row):
    """The row's answer, and nothing fatal where the answer names nothing fatal."""
    wanted = EXPECTED[row["file"]]
    install = read_install(read(row["file"]))

    config = install.effective()
    assert {key: getattr(install, key) for key in wanted.get("install", {})} == wanted.get("install", {})
    assert places(config, wanted.get("settings", {})) == wanted.get("settings", {})
    assert config.fatal == ()
    assert set(install.notes) >= wanted.get("notes", set())
    if "pools" in wanted:
        assert [(pool.cidr, pool.source) for pool in install.pools] == wanted["pools"]
    assert not wanted.get("unset", set()) & set(install.environment)
    if "object" in wanted:
        check_with_object(install, wanted)
    if "lever" in wanted:
        assert wanted["lever"][1] in install.lever(wanted["lever"][0])
    if "kind" in wanted:
        assert dataplane(config).kind == wanted["kind"]
    check_values(install, wanted)


def check_with_object(install, wanted):
    """Whether an object's value reaches Felix, and that an overridden one is named."""
    config = effective(install.version, environment=install.environment, objects=[APPEND])
    assert places(config, wanted["object"]) == wanted["object"]
    assert {item.name for item in config.overrides()} == wanted.get("overridden", set())


def check_values(install, wanted):
    if "refused" in wanted:
        spec, names = wanted["refused"]
        assert set(refusals(spec, schema_of(install.version))) == names
        assert set(refusals(spec, known_schema(install.version))) == names
    if "spec_refused" in wanted:
        spec = {**install.objects[0]["spec"]}
        rules = schema_of((3, 31))["properties"]
        assert {name for name in refusals(spec, schema_of((3, 31))) if name in rules} >= wanted["spec_refused"]
        assert set(refusals(spec, known_schema((3, 31)))) >= wanted["spec_refused"]
    for version, word in wanted.get("fatal", {}).items():
        found = " ".join(install.effective(version=version).fatal)
        assert word in found if word else not found
    if "idle" in wanted:
        spec, names = wanted["idle"]
        objects = [{"metadata": {"name": "default"}, "spec": {**spec, **install.implied}}]
        assert {item.name for item in dataplane(effective((3, 31), objects=objects)).idle} == names


def schema_of(version):
    """The schema of the CRD nearest below a version; none before the corpus begins, as in old Calico."""
    found = [path for path in CRDS if parse_version(path.parent.name) <= version]
    if not found:
        return {"properties": {}}
    document = yaml.safe_load(found[-1].read_text(encoding="utf-8"))
    return document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]


def test_the_vendors_table_is_translated():
    """035: names and numbers as a vendor's table writes them become what each place takes; the number is refused."""
    for option in yaml.safe_load(read("035.yaml")):
        for name, value in option.items():
            places = spellings(name, value)
            if isinstance(value, int):
                assert (places["object"], places["plain"]) == ("0s", "0")
                assert refusals({places["object_field"]: value}, schema_of((3, 31)))
            assert not refusals({places["object_field"]: places["object"]}, schema_of((3, 31)))
            config = effective((3, 13), file_text=f"{places['file_key']} = {places['plain']}")
            assert config.settings[places["object_field"]].problem == ""


def test_pool_039_overlaps_what_it_should():
    """039: inside 172.16.0.0/12, apart from the service range 10.96.0.0/12."""
    install = read_install(read("039.yaml"))

    found = overlaps(install.pools, {"service range": ["10.96.0.0/12"], "nodes": ["172.16.0.0/12"]})
    assert [name for _, name, _ in found] == ["nodes"]


def test_mask_033_leaves_tailscale_its_bits():
    """033: the mask keeps clear of Tailscale's 0xff0000."""
    assert read_install(read("033.yaml")).effective().value("iptablesMarkMask") & 0xFF0000 == 0


@pytest.mark.parametrize("row", [pytest.param(row, id=row["file"]) for row in ROWS if row["file"].endswith(".cfg")])
def test_felix_cfg(row):
    """A file with a broken header stops Felix; one of the image's kind switches logging to files off."""
    text = read(row["file"])
    if "does not start" in row["answer"]:
        with pytest.raises(FelixFileError, match=r"line \d+"):
            parse_felix_file(text)
        assert "does not start" in effective((3, 27), file_text=text).fatal[0]
        return
    config = effective((3, 27), file_text=text)
    assert config.fatal == ()
    assert places(config, ["logFilePath", "metadataAddr"]) == {
        "logFilePath": ("", "file"),
        "metadataAddr": ("", "file"),
    }


@pytest.mark.parametrize("path", [pytest.param(path, id=path.parent.name) for path in CRDS])
def test_the_table_agrees_with_the_crd(path):
    """Every parameter of a version is a field of its CRD and of the same type; both judge values alike."""
    version = parse_version(path.parent.name)
    real, ours = schema_of(version)["properties"], known_schema(version)["properties"]

    assert set(ours) <= set(real)
    for name, rule in ours.items():
        if rule:
            assert rule["type"] == real[name]["type"], name
        values = [*PARAMETERS[name].options, *map(str.lower, PARAMETERS[name].options), "bogus"]
        if PARAMETERS[name].kind == "seconds":
            values = ["0s", "90s", "1h30m", "0", "90", "1.5s", "100us", "-1s", ""]
        if PARAMETERS[name].kind in {"oneof", "seconds"}:
            for value in values:
                judged = [bool(refusals({name: value}, {"properties": rules})) for rules in (ours, real)]
                assert judged[0] == judged[1], (name, value)
