"""site.yml on a real cluster: it predicts, changes, proves, changes nothing twice, and stops before harm."""

from __future__ import annotations

import json

import pytest

from tests.integration.fleet import CONFIG, NAMESPACE, Fleet, run_ansible

DROP_INS = "/etc/systemd/system/containerd.service.d"
WANTED_LINE = 'config_path = "/etc/containerd/certs.d"'
# Tasks per node of a full run without a change, the hidden argument-spec tasks included (design: at most 8).
MOST_TASKS = 8


def own_tasks(output: str, host: str) -> int:
    """The tasks that ran on a host, from the recap."""
    line = next(line for line in output.splitlines() if line.startswith(f"{host} ") and ": ok=" in line)
    return int(line.split("ok=")[1].split()[0])


def diffs(report: dict) -> dict[str, list[str]]:
    """The diff of each change, by node."""
    found: dict[str, list[str]] = {}
    for change in report["changes"]:
        for node in change["nodes"]:
            found.setdefault(node, []).append(change["diff"])
    return found


def test_check_predicts_what_the_run_changes_and_a_second_run_changes_nothing(fleet: Fleet):
    before = fleet.fingerprints()
    predicted = fleet.site("--check", "--diff")

    assert predicted.code == 0, predicted.output
    assert fleet.fingerprints() == before
    assert set(predicted.states.values()) == {"would_change"}
    assert fleet.lab.kubectl("get", "namespace", NAMESPACE, check=False).returncode != 0

    done = fleet.site("--diff")

    assert done.code == 0, done.output
    assert diffs(done.report) == diffs(predicted.report)
    assert done.changed == predicted.changed
    assert set(done.states.values()) == {"changed"}
    for name in fleet.names:
        assert WANTED_LINE in fleet.shell(name, f"cat {CONFIG}")
    labels = json.loads(fleet.lab.kubectl("get", "namespace", NAMESPACE, "-o", "json").stdout)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"

    after = fleet.fingerprints()
    again = fleet.site("--diff")

    assert again.code == 0, again.output
    assert set(again.changed.values()) == {0}
    assert set(again.states.values()) == {"unchanged"}
    assert fleet.fingerprints() == after
    assert own_tasks(again.output, "h1") <= MOST_TASKS


def test_pods_keep_running_while_containerd_is_changed(fleet: Fleet):
    fields = "{.metadata.name} {.status.containerStatuses[*].containerID} {.status.containerStatuses[*].restartCount}"
    query = ["get", "pods", "-A", "-o", "jsonpath={range .items[*]}" + fields + '{"\\n"}{end}']
    before = fleet.lab.kubectl(*query).stdout

    assert fleet.site().code == 0
    assert fleet.lab.kubectl(*query).stdout == before


@pytest.fixture
def broken_node(fleet: Fleet):
    """w2 with its containerd stopped."""
    fleet.shell("w2", "systemctl stop containerd")
    yield "w2"
    fleet.shell("w2", "systemctl start containerd")


@pytest.fixture
def firewalled_node(fleet: Fleet):
    """w1 with a real firewalld at work, and its rules taken away afterwards."""
    fleet.shell("w1", "systemctl start firewalld")
    yield "w1"
    fleet.shell("w1", "systemctl stop firewalld")
    # firewalld flushed what kube-proxy had written: a new kube-proxy pod writes it again.
    fleet.lab.kubectl(
        "delete", "pod", "-n", "kube-system", "-l", "k8s-app=kube-proxy", "--field-selector", "spec.nodeName=w1"
    )
    fleet.lab.kubectl("rollout", "status", "-n", "kube-system", "daemonset/kube-proxy", "--timeout=60s", timeout_s=70)


def assert_stopped_before_any_change(fleet: Fleet, run, before: dict[str, str], expected: set[tuple[str, str]]) -> None:
    """The run failed in the preflight with these blockers, said so on the terminal, and touched no node."""
    blockers = {
        (problem["id"], node)
        for problem in run.report["findings"]
        if problem["severity"] == "blocker"
        for observed in problem["observed"]
        for node in observed["nodes"]
    }

    assert run.code != 0
    assert blockers == expected, run.output
    assert fleet.fingerprints() == before
    assert "nothing was changed" in run.output
    for finding_id, node in expected:
        assert any(
            line.startswith("BLOCKER") and finding_id in line and node in line for line in run.output.splitlines()
        )
    assert set(run.changed.values()) == {0}


def test_a_node_whose_containerd_is_stopped_is_found_and_nothing_is_changed(fleet: Fleet, broken_node: str):
    before = fleet.fingerprints()

    run = fleet.site()

    assert_stopped_before_any_change(fleet, run, before, {("containerd.cri_not_serving", broken_node)})


def test_a_node_with_firewalld_is_found_and_nothing_is_changed(fleet: Fleet, firewalled_node: str):
    before = fleet.fingerprints()

    run = fleet.site()

    assert_stopped_before_any_change(fleet, run, before, {("packet_filter.other_manager", firewalled_node)})


def test_a_node_that_does_not_answer_is_found_and_nothing_is_changed(fleet: Fleet):
    before = fleet.fingerprints()
    inventory = fleet.inventory(w2={"ansible_port": 9})

    run = fleet.site(inventory=inventory)

    assert_stopped_before_any_change(fleet, run, before, {("node.unreachable", "w2")})


def test_a_node_without_python_is_found_and_nothing_is_changed(fleet: Fleet):
    before = fleet.fingerprints()
    inventory = fleet.inventory(w2={"ansible_python_interpreter": "/usr/bin/python3.99"})

    run = fleet.site(inventory=inventory)

    assert_stopped_before_any_change(fleet, run, before, {("node.no_python", "w2")})
    assert "ansible_python_interpreter" in run.output


def test_a_node_that_is_not_in_the_inventory_is_found_and_nothing_is_changed(fleet: Fleet):
    before = fleet.fingerprints()

    run = fleet.site(inventory=fleet.inventory(without="w2"))

    assert_stopped_before_any_change(fleet, run, before, {("inventory.node_missing", "w2")})


def test_a_host_that_is_not_in_the_cluster_is_found_and_nothing_is_changed(fleet: Fleet):
    before = fleet.fingerprints()
    inventory = fleet.inventory(w2={"portcullis_node_name": "w9"})

    run = fleet.site(inventory=inventory)

    expected = {("inventory.not_in_cluster", "w2"), ("inventory.node_missing", "w2")}
    assert_stopped_before_any_change(fleet, run, before, expected)


def test_a_waived_node_is_left_out_and_the_report_says_so(fleet: Fleet):
    inventory = fleet.inventory(w2={"ansible_port": 9})

    run = fleet.site("-e", "portcullis_accept=[node.unreachable@w2]", inventory=inventory)

    assert run.code == 0, run.output
    assert run.states == {"cp1": "changed", "w1": "changed", "h1": "changed", "w2": "unreachable"}
    assert [(problem["id"], problem["observed"][0]["nodes"]) for problem in run.report["waived"]] == [
        ("node.unreachable", ["w2"])
    ]
    assert WANTED_LINE not in fleet.shell("w2", f"cat {CONFIG}")


def test_a_run_can_be_limited_to_one_node(fleet: Fleet):
    run = fleet.site("--limit", "w1")

    assert run.code == 0, run.output
    assert run.states == {"cp1": "not_reached", "w1": "changed", "w2": "not_reached", "h1": "not_reached"}
    assert WANTED_LINE not in fleet.shell("w2", f"cat {CONFIG}")


@pytest.fixture
def node_that_loses_cri(fleet: Fleet):
    """w1 with a containerd that comes up without CRI as soon as a registry directory is configured."""
    fleet.shell(
        "w1",
        f"mkdir -p {DROP_INS} && cat > {DROP_INS}/50-test.conf <<'END'\n[Service]\nExecStart=\n"
        "ExecStart=/bin/sh -c 'if grep -q certs.d /etc/containerd/config.toml; then"
        " exec /usr/bin/containerd --config /etc/containerd-without-cri.toml; else exec /usr/bin/containerd; fi'\nEND\n"
        "{ echo 'disabled_plugins = [\"io.containerd.grpc.v1.cri\"]'; cat /etc/containerd/config.toml; }"
        " > /etc/containerd-without-cri.toml; systemctl daemon-reload",
    )
    yield "w1"
    fleet.shell(
        "w1",
        f"rm -f {DROP_INS}/50-test.conf /etc/containerd-without-cri.toml;"
        " systemctl daemon-reload; systemctl reset-failed containerd; systemctl restart containerd",
    )


def test_an_edit_that_makes_cri_fail_is_put_back_and_no_further_wave_starts(fleet: Fleet, node_that_loses_cri: str):
    config = fleet.shell(node_that_loses_cri, f"cat {CONFIG}")

    run = fleet.site("-e", "portcullis_containerd_health_timeout=8")

    assert run.code != 0
    assert run.states == {"cp1": "changed", "w1": "rolled_back", "w2": "not_reached", "h1": "not_reached"}, run.output
    assert fleet.shell(node_that_loses_cri, f"cat {CONFIG}") == config
    assert "no further node is touched" in run.output
    assert WANTED_LINE not in fleet.shell("w2", f"cat {CONFIG}")
    assert fleet.site(playbook="preflight.yml").code == 0


@pytest.fixture
def node_that_goes_away(fleet: Fleet):
    """w1, which ends all its SSH connections when its containerd restarts, and answers again half a minute later."""
    fleet.shell(
        "w1",
        f"mkdir -p {DROP_INS} && cat > {DROP_INS}/50-test.conf <<'END'\n[Service]\n"
        # A timer may be a minute late otherwise (systemd.timer(5), AccuracySec).
        "ExecStartPost=/usr/bin/systemd-run --on-active=25 --timer-property=AccuracySec=1s /bin/systemctl start ssh\n"
        "ExecStartPost=/bin/systemctl kill --kill-who=all --signal=KILL ssh\n"
        "ExecStartPost=/bin/systemctl stop ssh\nEND\nsystemctl daemon-reload",
    )
    yield "w1"
    wait_for_ssh(fleet, "w1")
    fleet.shell("w1", f"rm {DROP_INS}/50-test.conf; systemctl daemon-reload")


def wait_for_ssh(fleet: Fleet, node: str) -> None:
    """Wait until a node answers again; the test fails when it does not within a minute."""
    for _ in range(30):
        if fleet.lab.ssh(node, ["true"], check=False, timeout_s=15).returncode == 0:
            return
        fleet.lab.run("sleep", "2")
    pytest.fail(f"{node} did not come back")


def test_a_node_that_goes_away_in_its_wave_stops_the_next_wave(fleet: Fleet, node_that_goes_away: str):
    run = fleet.site("-e", "ansible_ssh_timeout=5")

    assert run.code != 0
    assert run.states["cp1"] == "changed", run.output
    assert run.states[node_that_goes_away] in ("unreachable", "failed")
    assert (run.states["w2"], run.states["h1"]) == ("not_reached", "not_reached")
    assert WANTED_LINE not in fleet.shell("w2", f"cat {CONFIG}")


def test_a_namespace_that_refuses_the_agent_is_labelled_by_the_run(fleet: Fleet):
    fleet.lab.kubectl("create", "namespace", NAMESPACE)
    fleet.lab.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    fleet.lab.kubectl("wait", "--for=create", "-n", NAMESPACE, "serviceaccount/default", "--timeout=20s")

    run = fleet.site("--check")

    assert ("cluster.admission_refused", "") in run.findings
    assert run.code == 0, run.output
    assert fleet.site().code == 0


REFUSING_POLICY = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: test-no-host-pid}
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations:
    - expression: "!has(object.spec.hostPID) || !object.spec.hostPID"
      message: no host PID here
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: test-no-host-pid}
spec: {policyName: test-no-host-pid, validationActions: [Deny]}
"""


@pytest.fixture
def refusing_policy(fleet: Fleet):
    """A policy of the cluster that refuses what the agent needs."""
    fleet.lab.kubectl("apply", "-f", "-", stdin=REFUSING_POLICY)
    yield
    fleet.lab.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=REFUSING_POLICY)


def test_a_policy_that_refuses_the_agent_stops_the_run_and_the_report_says_where(fleet: Fleet, refusing_policy: None):
    run = fleet.site()

    assert run.code != 0
    assert "no host PID here" in run.output
    assert (run.report["outcome"]["status"], run.report["outcome"]["phase"]) == ("stopped", "cluster")
    assert "no host PID here" in run.report["outcome"]["reason"]
    assert set(run.states.values()) == {"changed"}

    # The namespace is there now, so the next run finds it before anything is changed.
    again = fleet.site()

    assert ("cluster.admission_refused", "") in again.findings
    assert "nothing was changed" in again.output


def test_verify_alone_proves_what_a_run_has_done_and_names_what_it_has_not(fleet: Fleet):
    unproven = fleet.site(playbook="verify.yml")

    assert unproven.code != 0
    assert "not proven: containerd.config_path" in unproven.output
    assert fleet.site().code == 0

    proven = fleet.site(playbook="verify.yml")

    assert proven.code == 0, proven.output
    assert proven.findings == set()


def test_credentials_without_rights_are_named_with_what_they_lack(fleet: Fleet):
    token = fleet.lab.kubectl("create", "token", "-n", "kube-system", "kube-proxy").stdout.strip()
    weak = json.loads(fleet.lab.kubectl("config", "view", "--raw", "-o", "json").stdout)
    weak["users"] = [{"name": weak["users"][0]["name"], "user": {"token": token}}]
    path = fleet.folder / "weak.json"
    path.write_text(json.dumps(weak), encoding="utf-8")

    run = fleet.site("-e", f"portcullis_kubeconfig={path}")

    assert run.code != 0
    assert ("cluster.access_denied", "") in run.findings
    assert "patch namespaces" in run.output
    assert token not in run.output


def test_expired_credentials_are_refused_in_one_line(fleet: Fleet):
    weak = json.loads(fleet.lab.kubectl("config", "view", "--raw", "-o", "json").stdout)
    weak["users"] = [{"name": weak["users"][0]["name"], "user": {"token": "not-a-token"}}]
    path = fleet.folder / "expired.json"
    path.write_text(json.dumps(weak), encoding="utf-8")

    run = fleet.site("-e", f"portcullis_kubeconfig={path}")

    assert run.code != 0
    assert "refuses these credentials (401)" in run.output
    assert run.report is None


@pytest.mark.parametrize("module", ["node_probe", "containerd_config"])
def test_a_module_is_of_use_ad_hoc_on_one_node(fleet: Fleet, module: str):
    code, output = run_ad_hoc(fleet, "w1", module)

    assert code == 0, output
    assert ("CHANGED" in output) is (module == "containerd_config")


def run_ad_hoc(fleet: Fleet, node: str, module: str) -> tuple[int, str]:
    """Run one module on one node."""
    inventory = str(fleet.lab.inventory_path)
    return run_ansible(["ansible", node, "-i", inventory, "-b", "-m", f"portcullis.fleet.{module}"])
