# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of images: what Docker and CRI make of them, and what is none."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.image_reference import (
    DIGEST_LENGTHS,
    parse_reference,
    without_credentials,
)
from hypothesis import given
from hypothesis import strategies as st

DIGEST = "sha256:" + "0123456789abcdef" * 4

# What ParseDockerRef of github.com/distribution/reference v0.6.0 makes of them; CRI uses it.
NAMES = {
    "busybox": "docker.io/library/busybox:latest",
    "busybox:1.33": "docker.io/library/busybox:1.33",
    "docker.io/busybox": "docker.io/library/busybox:latest",
    "index.docker.io/library/busybox:1": "docker.io/library/busybox:1",
    "team/app:1": "docker.io/team/app:1",
    "localhost/app": "localhost/app:latest",
    "localhost:5000/app": "localhost:5000/app:latest",
    "host/app:1": "docker.io/host/app:1",
    "Registry.Example:5000/a/b__c/d-e.f:V_1.0-x": "Registry.Example:5000/a/b__c/d-e.f:V_1.0-x",
    "[2001:db8::1]:5000/app:1": "[2001:db8::1]:5000/app:1",
    f"busybox@{DIGEST}": f"docker.io/library/busybox@{DIGEST}",
    f"busybox:1.33@{DIGEST}": f"docker.io/library/busybox@{DIGEST}",
    f"r.example:1/a:t@{DIGEST}": f"r.example:1/a@{DIGEST}",
}


@pytest.mark.parametrize(("text", "name"), NAMES.items(), ids=NAMES)
def test_the_name_that_cri_knows(text: str, name: str):
    """Defaults are filled in; beside a digest the tag does not count."""
    assert parse_reference(text).name == name
    assert parse_reference(name).name == name


REFUSED = {
    "": "got nothing",
    "busybox:": "the tag after : is empty",
    "Busybox:1": "a repository is in lower case: 'library/busybox'",
    "r.example/Team/app:1": "a repository is in lower case: 'team/app'",
    "a//b": "in every part of the repository, got nothing",
    "a/b/": "in every part of the repository, got nothing",
    "/a": "in every part of the repository, got nothing",
    "a b": "got 'a b'",
    "a..b": "got 'a..b'",
    "a:b:c": "got 'a:b'",
    "a:-x": "expected a tag of at most 128",
    "a:" + "x" * 129: "expected a tag of at most 128",
    "r.example/" + "x" * 256: "at most 255 characters, got 256",
    "-r.example/a": "expected the registry as host or host:port, got '-r.example'",
    "r.example:x/a": "expected the registry as host or host:port",
    "https://r.example/a": "a reference has no scheme",
    "a@": "expected a digest after @ that begins with sha256:",
    "a@md5:00": "expected a digest after @ that begins with sha256:",
    DIGEST.replace("sha256:", "a@sha256:")[:-1]: "expected 64 hexadecimal digits after sha256:, got 63",
    "a@" + DIGEST.upper().replace("SHA256", "sha256"): "expected hexadecimal digits 0-9 and a-f",
    f"a@{DIGEST}@{DIGEST}": "hexadecimal digits after sha256:",
    DIGEST: "an image ID cannot be pulled",
    "sha256:0123abcd": "an image ID cannot be pulled",
    DIGEST[7:]: "an image ID cannot be pulled",
}


@pytest.mark.parametrize(("text", "reason"), REFUSED.items(), ids=[repr(text)[:30] for text in REFUSED])
def test_what_is_no_reference(text: str, reason: str):
    """One line says what is wrong and what was expected."""
    with pytest.raises(ValueError, match=r"^image ") as caught:
        parse_reference(text)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["me:hunter2@r.example/app:1", "https://me:hunter2@r.example/app:1", f"me:hunter2@r.example/app@{DIGEST}"],
)
def test_credentials_in_a_name_are_not_repeated(text: str):
    """A user and password before a registry are no part of a reference, and of no message either."""
    with pytest.raises(ValueError, match=r"\*{8}") as caught:
        parse_reference(text)
    assert "hunter2" not in str(caught.value)
    assert "r.example/app" in without_credentials(text)


PARTS = st.from_regex(r"[a-z0-9]{1,9}((\.|_|__|-{1,3})[a-z0-9]{1,9}){0,2}", fullmatch=True)
DIGESTS = st.sampled_from(sorted(DIGEST_LENGTHS)).flatmap(
    lambda name: st.text("0123456789abcdef", min_size=DIGEST_LENGTHS[name], max_size=DIGEST_LENGTHS[name]).map(
        lambda digits: f"{name}:{digits}"
    )
)
TAGS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)


@given(st.lists(PARTS, min_size=1, max_size=3), TAGS, st.one_of(st.just(""), DIGESTS))
def test_a_full_name_is_its_own(parts: list[str], tag: str, digest: str):
    """Reading a name again gives the same reference, and the registry is the one that was written."""
    found = parse_reference(f"r.example:5000/{'/'.join(parts)}:{tag}" + (f"@{digest}" if digest else ""))

    assert (found.registry, found.path, found.tag, found.digest) == ("r.example:5000", "/".join(parts), tag, digest)
    assert parse_reference(found.name).name == found.name


@given(st.text())
def test_any_text_is_a_reference_or_refused(text: str):
    """No other error comes out."""
    try:
        parse_reference(text)
    except ValueError as error:
        assert str(error).startswith("image ")
