# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
import hashlib

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_task import (
    ConfigTask,
    check_arguments,
    node_arguments,
)

from tests.unit.plugins.plugin_utils.containerd_facts import MAIN, facts, file_facts, registry_facts

OLD = "io.containerd.grpc.v1.cri"
SET = f'version = 2\n[plugins."{OLD}".registry]\nconfig_path = "/etc/containerd/certs.d"\n'.encode()


def task(node=None, **arguments):
    return ConfigTask(arguments, node or facts(), "w1")


def test_prediction_of_a_change():
    """What check mode reports: the write, the restart, and what will be effective."""
    result = task(registry_config_path="/c").prediction()

    assert result["changed"] and result["restarted"] and result["cri_ready"]
    assert (result["config_file"], result["config_version"], result["owner"]) == (MAIN, 2, "administrator")
    assert result["effective_config_path"] == "/c"
    assert result["diff"][0]["before"] == "version = 2\n"
    assert 'config_path = "/c"' in result["diff"][0]["after"]
    assert (result["findings"], result["rolled_back"]) == ([], False)


def test_nothing_to_do_is_one_trip():
    """A file that is as wanted needs no second trip."""
    done = task(facts(SET, cri={"loaded_config_path": "/etc/containerd/certs.d"}))

    assert not done.needs_second_trip
    assert done.prediction()["changed"] is False
    assert "warnings" not in done.prediction()


def test_a_file_that_is_not_loaded_is_loaded():
    """The daemon runs with something else than its file says: the restart that is due is made, or warned of."""
    done = task(facts(SET))
    result = done.prediction()

    assert result["changed"] and result["restarted"] and "diff" not in result
    assert (done.node_plan()["writes"], done.node_plan()["note"]["restart"]) == ([], True)
    assert "restart it" in task(facts(SET), restart="never").prediction()["warnings"][0]


def test_a_change_that_was_never_proven_is_due():
    """The journal knows of a change without its restart; one that the unit forbids is a finding."""
    loaded = {"loaded_config_path": "/etc/containerd/certs.d"}
    node = facts(SET, cri=loaded, restart_due=True)

    assert task(node).will_restart
    assert not task(node, restart="never").needs_second_trip
    found = task(facts(SET, cri=loaded, restart_due=True, unit={"KillMode": "mixed"})).prediction()
    assert [item["id"] for item in found["findings"]] == ["containerd.kill_mode"]
    assert not found["changed"]


def test_what_may_restart_is_a_list_as_ansible_takes_it():
    """On the command line a list is one string with commas."""
    node = facts(unit={"KillMode": "mixed"}, dependents=["docker.service"])

    assert task(node, accept_restart_of="pods,docker.service").prediction()["changed"]
    assert "got 'Pods'" in check_arguments({"accept_restart_of": "Pods"})
    assert check_arguments({"accept_restart_of": "pods"}) == ""


def test_mirrors_beside_config_path_are_repaired():
    """#5306, #7844, #12612: CRI is dead because of the files, so the change is made if the daemon proves it."""
    mirrors = SET + f'[plugins."{OLD}".registry.mirrors.m]\nendpoint = ["https://m"]\n'.encode()
    node = facts(mirrors, cri={"serving": False, "error": "unknown service", "conditions": []})

    done = task(node)
    assert done.prediction()["changed"]
    assert done.node_plan()["note"]["repairs"] == "unknown service"
    for mode in ("parse", "none"):
        found = task(node, validate=mode).prediction()["findings"]
        assert [item["id"] for item in found] == ["containerd.cri_not_serving"]


def test_findings_fail_the_task_and_name_the_node():
    """A refusal lists every reason with what to do."""
    result = task(facts(unit={"KillMode": "mixed"})).prediction()

    assert result["failed"] and not result["changed"] and not result["restarted"]
    assert [item["node"] for item in result["findings"]] == ["w1"]
    assert "containerd.kill_mode: containerd.service has KillMode=mixed; expected KillMode=process" in result["msg"]
    assert "diff" not in result


def test_no_version_is_a_finding():
    """Without the daemon's version no table is guessed."""
    node = facts(version="")

    assert [item["id"] for item in task(node).prediction()["findings"]] == ["containerd.version_unknown"]


def test_no_credential_in_the_result():
    """Neither the diff, nor the message of the node, nor its log shows a credential."""
    content = f'version = 2\n[plugins."{OLD}".registry.configs.m.auth]\npassword = "hunter22"\n# token = "old1"\n'
    done = task(facts(content.encode()))
    predicted = done.prediction()

    failed = done.outcome(
        predicted, {"failed": True, "changed": False, "msg": "bad hunter22", "log": ["hunter22"], "cri_ready": True}
    )

    for text in (str(predicted), str(failed)):
        assert "hunter22" not in text
        assert "old1" not in text
    assert "password" in predicted["diff"][0]["after"]


def test_node_plan():
    """The node gets what to write, against which hash, and what must hold afterwards."""
    node = facts()
    plan = task(node, registry_config_path="/c", health_timeout=7).node_plan()

    (write,) = plan["writes"]
    assert write["expected_sha256"] == node["files"][0]["sha256"]
    assert b'config_path = "/c"' in base64.b64decode(write["content"])
    assert plan["note"] == {
        "unit": "containerd.service",
        "socket": "/run/containerd/containerd.sock",
        "restart": True,
        "health_timeout": 7,
        "config_path": "/c",
        "conditions": ["NetworkReady", "RuntimeReady"],
        "undo": False,
        "config_file": MAIN,
        "remove_directories": [],
        "restart_needed": True,
        "dependents": [],
        "pods_may_end": False,
        "repairs": "",
    }


def test_restart_never():
    """The file is written, nothing is restarted, and the result says that it is unproven."""
    done = task(facts(unit={"KillMode": "mixed"}), restart="never")
    result = done.prediction()

    assert result["changed"] and not result["restarted"]
    assert "unproven" in result["warnings"][0]
    assert done.node_plan()["note"]["restart"] is False


def test_a_killed_run_needs_a_second_trip():
    """An unfinished journal entry is dealt with even where the file is as wanted."""
    done = task(facts(SET, unfinished=["0000000001-containerd_config-applied.json"]))

    assert done.needs_second_trip
    assert any("killed here before" in text for text in done.prediction()["warnings"])


def undo(current, content, matches=True):
    """Return the undo records of the main file."""
    texts = [None if data is None else base64.b64encode(data).decode() for data in (current, content)]
    return {
        "files": [{"path": MAIN, "current": texts[0], "content": texts[1], "matches": matches}],
        "directories": ["/etc/containerd/certs.d"],
    }


def test_absent_gives_the_recorded_bytes_back():
    """state=absent writes the undo record, and names the directories that may go."""
    done = task(facts(SET, undo=undo(SET, b"version = 2\n")), state="absent")
    plan = done.node_plan()

    assert base64.b64decode(plan["writes"][0]["content"]) == b"version = 2\n"
    assert (plan["note"]["undo"], plan["note"]["remove_directories"]) == (True, ["/etc/containerd/certs.d"])
    assert done.prediction()["effective_config_path"] == ""


def test_absent_without_a_change_of_ours():
    """What this module never changed, or gave back already, is left."""
    for record in (None, undo(SET, SET)):
        assert task(facts(SET, undo=record), state="absent").prediction()["changed"] is False


def test_absent_after_a_change_by_hand():
    """A file that somebody changed since is not overwritten."""
    result = task(facts(SET, undo=undo(SET, SET, matches=False)), state="absent").prediction()

    assert [item["id"] for item in result["findings"]] == ["containerd.changed_since"]
    assert MAIN in result["findings"][0]["observed"]


MIRRORS = f'version = 2\n[plugins."{OLD}".registry.mirrors."docker.io"]\nendpoint = ["https://m"]\n'.encode()


def test_conversion_is_reported():
    """What became of the mirrors is in the result, with a diff of each file, and no file outside of it is written."""
    done = task(facts(MIRRORS))
    result = done.prediction()
    hosts = "/etc/containerd/certs.d/docker.io/hosts.toml"

    assert result["converted"] == [{"registry": "docker.io", "keys": ['registry.mirrors."docker.io"'], "file": hosts}]
    assert [item["after_header"] for item in result["diff"]] == [hosts, MAIN]
    assert [(write["path"], write["expected_sha256"] == "") for write in done.node_plan()["writes"]] == [
        (hosts, True),
        (MAIN, False),
    ]


def test_conversion_heeds_what_is_there():
    """An existing hosts.toml that says something else is a finding."""
    there = {"/etc/containerd/certs.d": {"docker.io": registry_facts(b'server = "https://z"\n')}}

    assert [item["id"] for item in task(facts(MIRRORS, hosts=there)).prediction()["findings"]] == [
        "containerd.hosts_conflict"
    ]
    assert task(facts(MIRRORS), convert_mirrors="no").prediction()["findings"][0]["id"] == "containerd.mirrors_present"


def test_a_tool_that_writes_the_file_again_is_warned_of():
    """The edit is made, and the warning says where to make it last."""
    result = task(facts(b"# Ansible managed\nversion = 2\n")).prediction()

    assert result["changed"] and result["owner"] == "ansible managed"
    assert "make the same setting there" in result["warnings"][0]


def test_a_drop_in_of_another_program_is_not_edited():
    """The NVIDIA toolkit writes its copy of the CRI table again, so it is named instead."""
    nvidia = "/etc/containerd/conf.d/99-nvidia.toml"
    main = f'version = 2\nimports = ["{nvidia}"]\n'.encode()
    drop = f'version = 2\n[plugins."{OLD}"]\nsandbox_image = "p"\n'.encode()

    result = task(facts(main, imports={nvidia: drop})).prediction()

    assert "NVIDIA container toolkit" in result["findings"][0]["observed"]


def test_outcome_of_a_roll_back():
    """A change that was put back is no change, and the effective path is the one before."""
    done = task(registry_config_path="/c")
    written = {
        "failed": True,
        "changed": False,
        "restarted": True,
        "rolled_back": True,
        "cri_ready": True,
        "msg": "CRI did not serve; the previous configuration was put back",
        "backup": "/var/lib/portcullis/journal/0000000001-containerd_config-rolled_back.json",
        "recovered": "",
    }

    result = done.outcome(done.prediction(), written)

    assert (result["changed"], result["effective_config_path"], result["rolled_back"]) == (False, "", True)
    assert "diff" not in result and "recovered" not in result


def test_what_could_not_be_validated_is_warned_of():
    """The change goes on, and the reason shows no credential."""
    content = f'version = 2\n[plugins."{OLD}".registry.configs.m.auth]\npassword = "hunter22"\n'
    done = task(facts(content.encode()))
    written = {"changed": True, "validated": "none", "not_validated": "no namespaces: hunter22", "cri_ready": True}

    result = done.outcome(done.prediction(), written)

    assert "no namespaces" in result["warnings"][-1]
    assert "hunter22" not in str(result)
    assert "not_validated" not in result


def test_a_given_file_that_the_daemon_does_not_read_is_warned_of():
    """Editing another file than the daemon's is possible, but said."""
    result = task(facts(SET, daemon_config="/etc/other.toml")).prediction()

    assert any("reads /etc/other.toml, not the given" in text for text in result["warnings"])


NRI_ON = SET + b'[plugins."io.containerd.nri.v1.nri"]\ndisable = false\n'
SEVEN = facts(SET, version="1.7.24", cri={"loaded_config_path": "/etc/containerd/certs.d"})


def test_a_setting_restarts_the_daemon():
    """The registry directory stays as it is, but what the daemon uses is something else."""
    result = task(SEVEN, settings=[{"key": "oom_score", "value": -999}]).prediction()

    assert result["changed"] and result["restarted"] and result["effective_config_path"] == "/etc/containerd/certs.d"
    assert result["nri"] == {"state": "disabled", "default_validator": False}


def test_nri_is_switched_and_reported():
    """The prediction shows the state after the change; where the change is put back, the one before."""
    done = task(SEVEN, nri="enabled")
    predicted = done.prediction()
    failed = done.outcome(predicted, {"failed": True, "changed": False, "cri_ready": True})

    assert predicted["restarted"] and predicted["nri"]["state"] == "enabled"
    assert failed["nri"]["state"] == "disabled"
    there = facts(NRI_ON, version="1.7.24", cri={"loaded_config_path": "/etc/containerd/certs.d"})
    assert task(there, nri="enabled").prediction()["changed"] is False


def test_nri_stays_where_the_node_may_not_be_changed():
    """A finding of the gate leaves the state that is there."""
    result = task({**SEVEN, "unit": {**SEVEN["unit"], "KillMode": "mixed"}}, nri="enabled").prediction()

    assert result["failed"] and result["nri"]["state"] == "disabled"


def test_absent_restarts_for_nri_too():
    """Giving the bytes back changes what the daemon uses although the registry directory stays."""
    node = facts(NRI_ON, version="1.7.24", undo=undo(NRI_ON, SET))
    result = task(node, state="absent").prediction()

    assert result["changed"] and result["restarted"] and result["nri"]["state"] == "disabled"


def test_no_credential_of_a_setting_in_the_result():
    """A password that a setting writes is masked like one that stood there."""
    table = ["plugins", OLD, "registry", "configs", "m", "auth"]
    result = task(SEVEN, settings=[{"table": table, "key": "password", "value": "hunter22"}]).prediction()

    assert result["changed"] and "hunter22" not in str(result)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param({}, "", id="nothing"),
        pytest.param({"registry_config_path": "/a:/b"}, "must be one directory", id="list"),
        pytest.param({"settings": [{"key": "version", "value": 2}]}, "settings, item 1: version decides", id="setting"),
        pytest.param({"nri_required_plugins": "yes"}, "needs nri: enabled", id="validator"),
        pytest.param({"nri_required_plugins": "x"}, "not a valid boolean", id="no-boolean"),
        pytest.param({"hosts": [{"registry": "a"}]}, "hosts, item 1: a needs endpoints", id="hosts"),
        pytest.param(
            {"images": [{"name": "busybox"}, {"name": "A:1"}]}, "image 'A:1': a repository is in", id="images"
        ),
        pytest.param({"images": [{"name": "busybox:1.33", "pinned": True}]}, "", id="good images"),
        pytest.param({"images": "left to the module's own check"}, "", id="images that are no list"),
        pytest.param({"registry_config_path": ["/a"]}, "must be an absolute path", id="directory that is a list"),
        pytest.param({"registry_config_path": "/"}, "must be an absolute path", id="the root directory"),
        pytest.param({"registry_config_path": ""}, "", id="directory left empty"),
        pytest.param({"config_file": "config.toml"}, "config_file must be an absolute path", id="relative file"),
        pytest.param({"config_file": True}, "got True", id="file that is no text"),
        pytest.param({"config_file": "/etc/a\nb"}, "config_file must be", id="file with a line break"),
        pytest.param({"health_timeout": 0}, "health_timeout must be seconds from 1, got 0", id="no time"),
        pytest.param({"health_timeout": "soon"}, "health_timeout: ", id="time that is no number"),
        pytest.param({"health_timeout": "60.0"}, "", id="time as Ansible takes it"),
        pytest.param({"accept_restart_of": [1]}, "accept_restart_of: got 1", id="unit that is no text"),
        pytest.param({"accept_restart_of": {"a": 1}}, "accept_restart_of: ", id="units that are no list"),
    ],
)
def test_check_arguments(arguments, words):
    """What can never work is refused before the node is asked."""
    assert words in check_arguments(arguments)
    assert bool(words) == bool(check_arguments(arguments))


K3S = "/var/lib/rancher/k3s/agent/etc/containerd"
K3S_TEXT = f'''version = 3
imports = ["{K3S}/config-v3.toml.d/*.toml"]
[plugins."io.containerd.cri.v1.images".registry]
config_path = "{K3S}/certs.d"
'''.encode()


def k3s(**changes):
    """What the node says of a k3s whose configuration imports a directory."""
    path = f"{K3S}/config.toml"
    files = [{**file_facts(MAIN, K3S_TEXT), "path": path, "real_path": path}]
    return facts(version="2.2.7", unit_name="k3s.service", config_file=path, daemon_config=path, files=files, **changes)


def test_an_owners_file_is_left_and_its_source_named():
    """Without the option nothing is touched, and the finding says that the option would do it."""
    result = task(k3s(), nri="disabled").prediction()

    assert [item["id"] for item in result["findings"]] == ["containerd.config_owned"]
    assert "with allow_owner_source this module edits that source itself" in result["findings"][0]["remedy"]
    assert "owner_source" not in result and not result["changed"]


def test_an_owners_source_is_edited_where_it_is_allowed():
    """The drop-in is written, the owner's unit restarted, and the warning says what makes the file."""
    done = task(k3s(), nri="disabled", allow_owner_source=True)
    result = done.prediction()
    plan = done.node_plan()

    assert result["owner"] == "k3s" and not result["findings"]
    assert result["owner_source"] == f"{K3S}/config-v3.toml.d/portcullis.toml"
    assert [item["path"] for item in plan["writes"]] == [result["owner_source"]]
    assert plan["writes"][0]["expected_sha256"] == "" and plan["rendered"] == []
    assert (plan["note"]["unit"], plan["note"]["restart"]) == ("k3s.service", True)
    assert "when k3s.service starts" in result["warnings"][0]


def test_the_undo_of_a_source_restarts_its_owner():
    """The generated file says the same until the owner makes it anew, so the files alone would not tell."""
    template = f"{K3S}/config-v3.toml.tmpl"
    node = k3s(
        sources=[{"path": template, "real_path": template, "content": None}],
        undo={"files": [{"path": template, "current": "YQ==", "content": None, "matches": True}], "directories": []},
    )
    done = task(node, state="absent", allow_owner_source=True)

    assert done.prediction()["restarted"]
    assert done.node_plan()["writes"] == [
        {"path": template, "expected_sha256": hashlib.sha256(b"a").hexdigest(), "content": None, "mode": None}
    ]


@pytest.mark.parametrize("allowed", [False, True], ids=["not-allowed", "allowed"])
def test_an_owner_without_a_source(allowed):
    """The lever is named and nothing is touched, with and without the option."""
    node = facts(os={"id": "talos", "variant_id": ""})

    result = task(node, allow_owner_source=allowed).prediction()

    assert [item["id"] for item in result["findings"]] == ["containerd.config_owned"]
    assert "machine.registries" in result["findings"][0]["remedy"]


def test_a_registry_directory_of_spegel_is_left():
    """What it would clear is not written below it; another setting is."""
    mirror = f'version = 2\n[plugins."{OLD}".registry.mirrors."docker.io"]\nendpoint = ["https://m.example"]\n'.encode()
    node = facts(mirror, marks=["/etc/containerd/certs.d/_backup"])

    assert [item["id"] for item in task(node).prediction()["findings"]] == ["containerd.hosts_owned"]
    assert task(facts(marks=node["marks"])).prediction()["changed"]


def test_a_value_that_is_no_boolean():
    """It is refused before a node is asked."""
    assert "allow_owner_source" not in check_arguments({"allow_owner_source": "yes"})
    assert "allow_owner_source: " in check_arguments({"allow_owner_source": "perhaps"})


MIRROR = {
    "registry": "docker.io",
    "endpoints": [{"url": "https://m", "ca": "/ca", "header": {"A": "q7", "B": "hunter22"}}],
}
LOADED = {"loaded_config_path": "/etc/containerd/certs.d"}


def test_hosts_need_neither_restart_nor_proof():
    """A hosts.toml is no configuration of the daemon, so restart=never leaves nothing unproven either."""
    done = task(facts(SET, cri=LOADED, present=["/ca"]), hosts=[MIRROR], restart="never")
    result = done.prediction()

    assert (result["changed"], result["restarted"], done.validation) == (True, False, "none")
    assert [item["action"] for item in result["hosts"]] == ["written"]
    assert "warnings" not in result
    assert done.node_plan()["writes"][0]["mode"] == 0o600
    assert done.node_plan()["note"]["restart_needed"] is False
    assert task(facts(present=["/ca"]), hosts=[MIRROR]).validation == "daemon"


def test_hosts_show_no_secret():
    """Neither the wanted one nor what was there."""
    there = registry_facts(b'[host."https://o".header]\nC = "z9"\n', origin="ours")
    node = facts(SET, cri=LOADED, present=["/ca"], hosts={"/etc/containerd/certs.d": {"docker.io": there}})
    result = task(node, hosts=[MIRROR]).prediction()

    assert result["changed"]
    for text in ("q7", "hunter22", "z9"):
        assert text not in str(result)


def test_the_node_is_asked_without_secrets():
    """Neither half of the node's work needs the options that may hold them."""
    given = node_arguments({"hosts": [MIRROR], "settings": [{"key": "a", "value": "hunter22"}], "state": "present"})

    assert given == {
        "state": "present",
        "_registries": '[{"registry": "docker.io", "files": ["/ca"]}]',
    }


def test_taking_hosts_back_names_the_directories_that_may_go():
    """Those that the changes made."""
    made = ["/etc/containerd/certs.d/docker.io"]
    there = registry_facts(b"x", origin="ours", made=made)
    node = facts(SET, cri=LOADED, hosts={"/etc/containerd/certs.d": {"docker.io": there}})
    done = task(node, hosts=[{"registry": "docker.io", "state": "absent"}])

    assert done.prediction()["hosts"][0]["action"] == "removed"
    assert done.node_plan()["note"]["remove_directories"] == made


def test_hosts_below_a_directory_of_spegel():
    """It clears the directory whenever it starts."""
    node = facts(SET, cri=LOADED, present=["/ca"], marks=["/etc/containerd/certs.d/_backup"])
    result = task(node, hosts=[MIRROR]).prediction()

    assert [item["id"] for item in result["findings"]] == ["containerd.hosts_owned"]
    assert "hosts" not in result


def test_hosts_of_a_failed_write_are_not_reported():
    """Nothing was written."""
    done = task(facts(SET, cri=LOADED, present=["/ca"]), hosts=[MIRROR])
    result = done.outcome(done.prediction(), {"failed": True, "changed": False, "cri_ready": None, "msg": "disk full"})

    assert "hosts" not in result and "diff" not in result
