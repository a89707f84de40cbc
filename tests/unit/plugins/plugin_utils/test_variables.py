"""A misspelt variable is refused with the name that was meant, and every role's options agree with each other."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.portcullis.fleet.plugins.plugin_utils.variables import (
    complain_differences,
    complain_unknown,
    complain_value,
    load_argument_specs,
    parse_waves,
    unknown_variables,
)

ROLES = Path(__file__).resolve().parents[4] / "roles"
ROLE_NAMES = sorted(path.name for path in ROLES.iterdir())
KNOWN = {"portcullis_accept", "portcullis_engine", "portcullis_kubeconfig"}


def options_of(role: str) -> dict:
    """The options of a role's main entry point."""
    text = (ROLES / role / "meta/argument_specs.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text)["argument_specs"]["main"]["options"]


def defaults_of(role: str) -> dict:
    """The defaults of a role."""
    return yaml.safe_load((ROLES / role / "defaults/main.yml").read_text(encoding="utf-8"))


def test_a_misspelt_variable_is_named_with_the_nearest_known_one():
    unknown = unknown_variables({"portcullis_acept", "portcullis_engine", "ansible_host", "port"}, KNOWN)

    assert unknown == {"portcullis_acept": "portcullis_accept"}


def test_a_variable_like_no_other_is_named_without_a_guess():
    assert unknown_variables({"portcullis_zzzzzzzzzzzzzz"}, KNOWN) == {"portcullis_zzzzzzzzzzzzzz": ""}
    assert complain_unknown({"portcullis_zzzzzzzzzzzzzz"}, KNOWN).startswith(
        "unknown variable portcullis_zzzzzzzzzzzzzz;"
    )


@pytest.mark.parametrize(
    ("given", "waves"),
    [
        ([1, "25%", "100%"], [1, "25%", "100%"]),
        ("[1,25%]", [1, "25%"]),
        ("3", [3]),
        (2, [2]),
        (["2", "50%"], [2, "50%"]),
    ],
)
def test_waves_are_read_as_the_command_line_passes_them(given, waves):
    assert parse_waves(given) == waves


def test_the_options_of_all_roles_are_known():
    assert load_argument_specs(ROLES).keys() >= KNOWN


@pytest.mark.parametrize("role", ROLE_NAMES)
def test_every_default_of_a_role_is_an_option_of_it_with_the_same_value(role):
    options = options_of(role)

    for name, value in defaults_of(role).items():
        documented = options[name].get("default")
        assert "{{" in str(value) or documented == value, name


def test_options_of_one_name_are_the_same_in_every_role():
    seen: dict[str, dict] = {}
    for role in ROLE_NAMES:
        for name, option in options_of(role).items():
            assert seen.setdefault(name, option) == option, f"{name} in {role}"


def test_a_value_that_may_hold_a_credential_is_never_shown():
    """Whatever is wrong with it."""
    name = "portcullis_containerd_hosts"
    option = load_argument_specs(ROLES)[name]
    endpoint = {"url": "https://m", "header": {"Authorization": "hunter22"}}
    good = [{"registry": "docker.io", "endpoints": [endpoint]}]

    assert complain_value(name, good, option) is None
    for wrong in (
        [{"registry": "docker.io", "endpoints": [{**endpoint, "typo": 1}]}],
        [{"registry": "docker.io", "endpoint": [endpoint]}],
        [{"registry": "docker.io", "endpoints": [{**endpoint, "header": "hunter22"}]}],
        [{"registry": "docker.io", "endpoints": [{**endpoint, "url": "https://u:hunter22@m"}]}],
        [*good, *good],
    ):
        complaint = complain_value(name, wrong, option)
        assert complaint and "hunter22" not in complaint
    difference = complain_differences({"a": {name: good}, "b": {name: []}})
    assert "differs between hosts (a; b)" in difference and "hunter22" not in difference
