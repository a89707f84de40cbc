# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change of Felix goes through a cluster wave by wave, and back."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_rollout import Rollout
from ansible_collections.portcullis.fleet.plugins.plugin_utils.rollout import RolloutError, WorseError

from tests.unit.plugins.plugin_utils.felix_samples import FakeApi, crd, reading

PROFILE = {"profile": "secure_workload", "variant": "append"}
APPENDED = {"chainInsertMode": "Append", "iptablesRefreshInterval": "0s", "iptablesMarkMask": 0x7FCF0000}
NODES = ["n1", "n2", "n3"]
OLD, NEW = reading("Insert"), reading("Append", bits=0x4B0000)


def rollout(api: FakeApi, state: str = "present", *, check_mode: bool = False, **asked: object) -> Rollout:
    return Rollout(api, state, asked or ({} if state == "absent" else PROFILE), check_mode=check_mode)


def through(api: FakeApi, waves: list[list[str]], state: str = "present", shown: dict = NEW, **asked: object) -> list:
    """Every wave in turn; the results of its start and its end."""
    results = []
    for wave in waves:
        results.append(rollout(api, state, **asked).start(wave))
        for node in wave:
            rollout(api, state, **asked).node(node, lambda _health: shown, 0)
        results.append(rollout(api, state, **asked).finish())
    return results


@pytest.mark.parametrize(
    ("version", "carriers"),
    [
        pytest.param((3, 31), {"node.n1": APPENDED}, id="an object for each node"),
        pytest.param((3, 32), {"portcullis": APPENDED}, id="one object with a selector"),
    ],
)
def test_waves(version, carriers):
    """Objects for nodes come first; default is written when all nodes have them, and they go."""
    api = FakeApi(NODES, version=version, logSeverityScreen="Info", nftablesMode="Disabled")

    through(api, [["n1"]])
    staged = {
        name: {key: value for key, value in spec.items() if key != "nodeSelector"}
        for name, spec in api.felix.items()
        if name != "default"
    }
    assert staged == carriers
    assert "chainInsertMode" not in api.felix["default"]
    results = through(api, [["n2", "n3"]])
    assert api.felix == {"default": {"logSeverityScreen": "Info", "nftablesMode": "Disabled", **APPENDED}}
    assert results[-1] == {"changed": True, "waits_for": [], "restarted": []}
    assert not any("portcullis.io" in str(node) for node in api.store["nodes"].values())
    before = copy.deepcopy(api.store)
    results = through(api, [NODES])
    assert (api.store, [item["changed"] for item in results]) == (before, [False, False])


@pytest.mark.parametrize("version", [(3, 31), (3, 32)])
def test_absent_gives_back_what_was_there(version):
    """After a whole change the way back goes through the nodes too, and nothing of ours is left."""
    api = FakeApi(NODES, version=version, chainInsertMode="Insert", nftablesMode="Disabled")
    before = api.felix
    through(api, [NODES])

    first = through(api, [["n1"]], "absent", OLD)
    assert first[-1]["waits_for"] == ["n2", "n3"]
    assert api.felix["default"]["chainInsertMode"] == "Append"
    through(api, [["n2", "n3"]], "absent", OLD)
    assert api.felix == before
    assert not api.store["felixconfigurations"]["default"]["metadata"]["annotations"]
    assert not any(item["changed"] for item in through(api, [NODES], "absent"))


def test_a_default_that_was_made_here_goes_again():
    """Where there was none there is none afterwards."""
    api = FakeApi(NODES)
    through(api, [NODES], settings={"chainInsertMode": "Append"})

    through(api, [NODES], "absent", OLD)
    assert api.felix == {}


@pytest.mark.parametrize("version", [(3, 31), (3, 32)])
def test_a_change_under_way_is_taken_back(version):
    """What was begun is undone on the nodes that have it."""
    api = FakeApi(NODES, version=version, chainInsertMode="Insert")
    before = api.felix
    through(api, [["n1"]])

    results = through(api, [["n1"]], "absent")
    assert results[0]["staged"] == ["n1"]
    assert {name for name in api.felix if name != "portcullis"} == {"default"}
    through(api, [["n2", "n3"]], "absent")
    assert api.felix == before


@pytest.mark.parametrize("version", [(3, 31), (3, 32)])
def test_a_node_that_does_not_have_it_in_force_is_put_back(version):
    """The message says what the rules show; the other nodes keep what they have, default is not written."""
    api = FakeApi(NODES, version=version, nftablesMode="Disabled")
    through(api, [["n1"]])
    rollout(api).start(["n2"])

    with pytest.raises(WorseError, match=r"chainInsertMode is Insert in the live rules.*put back"):
        rollout(api).node("n2", lambda _health: OLD, 0)
    assert rollout(api).finish()["waits_for"] == ["n2", "n3"]
    assert "node.n2" not in api.felix
    assert "portcullis.io/felix" not in api.store["nodes"]["n2"]["metadata"]["labels"]
    through(api, [["n2", "n3"]])
    assert api.felix["default"]["chainInsertMode"] == "Append"


def test_not_restarted_and_not_ready_are_told():
    """Settings that no rule shows are proven by the restart; felix.cfg is told at once."""
    api = FakeApi(NODES)
    settings = {"iptablesRefreshInterval": "7s"}
    rollout(api, settings=settings).start(["n1"])

    with pytest.raises(WorseError, match="has not restarted"):
        rollout(api, settings=settings).node("n1", lambda _health: reading(age_s=1000), 0)
    rollout(api, settings=settings).start(["n1"])
    dead = {**OLD, "readiness": {"status": 503, "error": ""}}
    with pytest.raises(WorseError, match="localhost:9099 says 503"):
        rollout(api, settings=settings).node("n1", lambda _health: dead, 0)
    rollout(api, settings=settings).start(["n1"])
    assert rollout(api, settings=settings).node("n1", lambda _health: OLD, 0)["changed"]


def test_an_object_of_a_node_is_kept():
    """Somebody's node.NAME gets the fields, and is afterwards as it was."""
    api = FakeApi(NODES, nftablesMode="Disabled")
    api.add("node.n1", logSeverityScreen="Debug")
    through(api, [["n1"]])

    assert api.felix["node.n1"] == {"logSeverityScreen": "Debug", **APPENDED}
    through(api, [["n2", "n3"]])
    assert api.felix["node.n1"] == {"logSeverityScreen": "Debug"}
    assert not api.store["felixconfigurations"]["node.n1"]["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("environment", "more", "told"),
    [
        pytest.param(
            {"FELIX_CHAININSERTMODE": "Insert"},
            {},
            "set env daemonset/calico-node FELIX_CHAININSERTMODE-",
            id="variable",
        ),
        pytest.param(
            {}, {"chainInsertMode": "Insert"}, "take it out of FelixConfiguration node.n2", id="node's object"
        ),
    ],
)
def test_what_has_the_last_word_is_named_before_anything_is_written(environment, more, told):
    """A change that would have no effect is not begun."""
    api = FakeApi(NODES, environment=environment)
    if more:
        api.add("node.n2", **more)

    with pytest.raises(RolloutError, match=told):
        rollout(api).start(["n1"])
    assert api.writes == []


def test_another_change_is_refused_and_the_same_is_joined():
    """Two runs do not fight."""
    api = FakeApi(NODES, nftablesMode="Disabled")
    rollout(api).start(["n1"])

    with pytest.raises(RolloutError, match=r"is under way on 1 nodes: go on with .*Append"):
        rollout(api, settings={"chainInsertMode": "Insert", "iptablesRefreshInterval": "9s"}).start(["n2"])
    assert rollout(api).start(["n1", "n2"])["staged"] == ["n2"]


def test_somebody_who_changes_default_meanwhile_is_told():
    """default is not overwritten over a value that was not there when the change began."""
    api = FakeApi(["n1"], chainInsertMode="Insert", nftablesMode="Disabled")
    rollout(api).start(["n1"])
    rollout(api).node("n1", lambda _health: NEW, 0)
    api.add("default", chainInsertMode="Insert", iptablesRefreshInterval="33s")

    with pytest.raises(RolloutError, match="'33s', which was None when the change began"):
        rollout(api).finish()


@pytest.mark.parametrize("version", [(3, 31), (3, 32)])
@pytest.mark.parametrize("kept", range(1, 30))
def test_a_run_that_is_killed_anywhere_is_resumed(version, kept):
    """After each write the run may end; the next one comes to the same end."""
    api = FakeApi(NODES, version=version, nftablesMode="Disabled")
    write, left = api._write, [kept]

    def dying(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return write(*arguments)

    api._write = dying
    try:
        through(api, [["n1"], ["n2", "n3"]])
    except KeyboardInterrupt:
        api._write = write
        through(api, [["n1"], ["n2", "n3"]])
    assert api.felix == {"default": {"nftablesMode": "Disabled", **APPENDED}}
    assert not any("portcullis.io" in str(node) for node in api.store["nodes"].values())


def test_check_mode_writes_nothing():
    """It says what would change."""
    api = FakeApi(NODES)
    found = rollout(api, check_mode=True).start(["n1"])

    assert (found["changed"], found["staged"]) == (True, ["n1"])
    assert '"chainInsertMode": "Append"' in found["after"]
    assert rollout(api, check_mode=True).node("n1", lambda _health: OLD, 0)["changed"] is False
    assert rollout(api, check_mode=True).finish()["waits_for"] == NODES
    assert api.writes == []


@pytest.mark.parametrize(("version", "per_node"), [((3, 31), 5), ((3, 32), 7)])
def test_requests(version, per_node):
    """Planning takes as many requests for 500 nodes as for three."""
    figures = {}
    for count in (3, 500):
        api = FakeApi([f"n{number}" for number in range(count)], version=version)
        rollout(api).start([])
        figures[count], api.calls = api.calls, 0
        through(api, [list(api.store["nodes"])])
        assert api.calls <= per_node * count + 2 * figures[count] + 4
    assert figures[3] == figures[500]
    assert figures[3] <= 12


def test_the_built_in_mask_is_given_back_by_an_annotation():
    """Kubernetes 1.36 does not take 0xffff0000 as a field."""
    api = FakeApi(NODES, nftablesMode="Disabled")
    api.kubernetes = "v1.36.0"
    through(api, [NODES])
    rollout(api, "absent").start(["n1"])

    item = api.store["felixconfigurations"]["node.n1"]
    assert item["spec"] == {"chainInsertMode": "Insert", "iptablesRefreshInterval": "180s"}
    assert item["metadata"]["annotations"]["config.projectcalico.org/IptablesMarkMask"] == "0xffff0000"
    rollout(api, "absent").node("n1", lambda _health: OLD, 0)
    through(api, [["n2", "n3"]], "absent", OLD)
    assert api.felix == {"default": {"nftablesMode": "Disabled"}}


class WithVariables:
    """A cluster whose calico-node sets the insert mode, with pods that follow their DaemonSet."""

    def __init__(self, **default: object) -> None:
        variables = {"FELIX_CHAININSERTMODE": "Insert"}
        self.api = FakeApi(NODES, environment=variables, nftablesMode="Disabled", **default)
        self.before = copy.deepcopy(self.daemon_set["spec"])
        for node in NODES:
            self.renew(node)

    @property
    def daemon_set(self) -> dict:
        return self.api.store["daemonsets"]["calico-node"]

    def renew(self, node: str) -> None:
        """A new pod by the present template, ready."""
        pod = self.api.store["pods"][f"calico-node-{node}"]
        pod["spec"] = {**copy.deepcopy(self.daemon_set["spec"]["template"]["spec"]), "nodeName": node}
        pod["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}

    def delete(self, resource, name: str, *_namespace: str) -> None:
        """A pod that is deleted comes back."""
        self.api.calls += 1
        self.api.writes.append(f"delete {name}")
        if resource.plural == "pods":
            self.renew(name.removeprefix("calico-node-"))
        else:
            self.api.store[resource.plural].pop(name, None)

    def variables(self) -> dict[str, bool]:
        """By node whether its pod has the variable."""
        pods = self.api.store["pods"].values()
        return {pod["spec"]["nodeName"]: "CHAININSERTMODE" in str(pod["spec"]) for pod in pods}

    def rollout(self, state: str = "present", **options: bool) -> Rollout:
        asked = {} if state == "absent" else {"settings": {"chainInsertMode": "Append"}}
        return Rollout(self.api, state, asked, manage_env=state == "present", **options)


@pytest.fixture
def managed(monkeypatch) -> WithVariables:
    found = WithVariables()
    monkeypatch.setattr(found.api, "delete", found.delete)
    return found


def test_variables_are_taken_out_node_by_node(managed):
    """default gets their value first, so that nothing takes effect early; pods go when it is their node's turn."""
    api = managed.api
    found = managed.rollout().start(["n1"])

    assert found["environment"] == ["FELIX_CHAININSERTMODE"]
    assert api.felix["default"]["chainInsertMode"] == "Insert"
    assert managed.variables() == dict.fromkeys(NODES, True)
    assert managed.daemon_set["spec"]["updateStrategy"] == {"type": "OnDelete"}
    managed.rollout().node("n1", lambda _health: NEW, 0)
    assert managed.variables() == {"n1": False, "n2": True, "n3": True}
    assert managed.rollout().finish()["waits_for"] == ["n2", "n3"]
    managed.rollout().start(["n2", "n3"])
    for node in ("n2", "n3"):
        managed.rollout().node(node, lambda _health: NEW, 0)
    assert managed.rollout().finish()["waits_for"] == []
    assert api.felix == {"default": {"chainInsertMode": "Append", "nftablesMode": "Disabled"}}
    assert managed.daemon_set["spec"].get("updateStrategy") == managed.before.get("updateStrategy")
    before = copy.deepcopy(api.store)
    assert not managed.rollout().start(NODES)["changed"]
    assert not managed.rollout().finish()["changed"]
    assert api.store == before


def test_variables_come_back(managed):
    """Absent goes through the nodes with the variable's value, then gives the DaemonSet back what it had."""
    api = managed.api
    for state, live in (("present", NEW), ("absent", OLD)):
        managed.rollout(state).start(NODES)
        for node in NODES:
            managed.rollout(state).node(node, lambda _health, live=live: live, 0)
        found = managed.rollout(state).finish(0)
    assert found["waits_for"] == NODES
    assert managed.daemon_set["spec"] == managed.before
    for node in NODES:
        managed.renew(node)
    assert managed.rollout("absent").finish(0)["waits_for"] == []
    assert api.felix == {"default": {"nftablesMode": "Disabled"}}
    assert managed.daemon_set["metadata"]["annotations"] == {}
    assert not managed.rollout("absent").finish(0)["changed"]


def test_variables_of_an_installer_that_writes_them_back_stay(managed):
    """Even where they may be taken out; and in check mode nothing is written."""
    assert managed.rollout(check_mode=True).start(["n1"])["staged"] == ["n1"]
    managed.daemon_set["metadata"]["labels"]["addonmanager.kubernetes.io/mode"] = "Reconcile"
    with pytest.raises(RolloutError, match="add-on manager"):
        managed.rollout().start(["n1"])
    assert managed.api.writes == []


@pytest.mark.parametrize("kept", range(1, 24))
def test_a_run_that_takes_variables_out_may_be_killed_anywhere(managed, kept):
    """No pod has other settings than its node's turn gave it, and the next run comes to the end."""
    api = managed.api
    write, left = api._write, [kept]

    def dying(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return write(*arguments)

    def whole_run() -> None:
        managed.rollout().start(NODES)
        for node in NODES:
            managed.rollout().node(node, lambda _health: NEW, 0)
        managed.rollout().finish()

    api._write = dying
    try:
        whole_run()
    except KeyboardInterrupt:
        api._write = write
        for node, has_variable in managed.variables().items():
            default = api.felix["default"].get("chainInsertMode", "Insert")
            own = api.felix.get(f"node.{node}", {}).get("chainInsertMode", default)
            assert has_variable or own == "Append", node
        whole_run()
    assert api.felix == {"default": {"chainInsertMode": "Append", "nftablesMode": "Disabled"}}
    assert managed.variables() == dict.fromkeys(NODES, False)
    assert managed.daemon_set["spec"].get("updateStrategy") == managed.before.get("updateStrategy")


def test_the_other_group_is_used_where_it_is_the_only_one():
    """projectcalico.org/v3, whose CRD Calico 3.32 may have alone."""
    api = FakeApi(NODES, version=(3, 32), nftablesMode="Disabled")
    api.groups = {"apps", "projectcalico.org"}
    v3 = crd((3, 32), group="projectcalico.org", api="v3")
    api.store["customresourcedefinitions"] = {v3["metadata"]["name"]: v3}

    rollout(api).start(NODES)
    assert api.store["felixconfigurations"]["portcullis"]["apiVersion"] == "projectcalico.org/v3"
    through(api, [NODES])
    assert api.felix == {"default": {"nftablesMode": "Disabled", **APPENDED}}


def test_an_annotation_of_default_that_outranks_a_field_goes_and_comes_back():
    """It would have the last word over the same object's field."""
    api = FakeApi(NODES, nftablesMode="Disabled")
    note = {"config.projectcalico.org/ChainInsertMode": "insert", "somebody.else/s": "note"}
    api.store["felixconfigurations"]["default"]["metadata"]["annotations"] = dict(note)

    through(api, [NODES])
    kept = api.store["felixconfigurations"]["default"]["metadata"]["annotations"]
    assert set(kept) == {"somebody.else/s", "portcullis.io/felix-config"}
    through(api, [NODES], "absent", OLD)
    assert api.store["felixconfigurations"]["default"]["metadata"]["annotations"] == note


@pytest.mark.parametrize("version", [(3, 31), (3, 32)])
def test_nodes_that_come_and_go_meanwhile(version):
    """A new node is waited for, one that is gone is not, neither forth nor back."""
    api = FakeApi(NODES, version=version, nftablesMode="Disabled")
    before = api.felix
    through(api, [["n1", "n2"]])
    for kind, name in (("nodes", "n2"), ("pods", "calico-node-n2")):
        api.store[kind].pop(name)
    assert rollout(api).finish()["waits_for"] == ["n3"]
    through(api, [["n1"], ["n3"]], "absent", OLD)
    assert api.felix == before
    through(api, [["n1", "n3"]])
    assert api.felix["default"]["chainInsertMode"] == "Append"


@pytest.mark.parametrize("text", ["{}", "[]", "x", "null", '{"revision": "1"}'])
@pytest.mark.parametrize("name", ["default", "node.n1"])
def test_a_record_that_somebody_has_changed_is_an_error_that_says_so(name, text):
    """It is not guessed at."""
    api = FakeApi(NODES, nftablesMode="Disabled")
    api.add(name)
    api.store["felixconfigurations"][name]["metadata"]["annotations"] = {"portcullis.io/felix-config": text}

    with pytest.raises(RolloutError, match=f"FelixConfiguration {name}: its annotation"):
        rollout(api).start(["n1"])
    assert api.writes == []


def test_who_else_writes_default_is_told():
    """As the API server notes it."""
    api = FakeApi(NODES, nftablesMode="Disabled")
    entry = {"manager": "argocd-controller", "fieldsV1": {"f:spec": {"f:chainInsertMode": {}}}}
    api.store["felixconfigurations"]["default"]["metadata"]["managedFields"] = [entry]

    assert rollout(api).start(["n1"])["warnings"] == [
        "chainInsertMode of FelixConfiguration default is written by argocd-controller too, which may write it back"
    ]
