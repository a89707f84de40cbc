# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_secrets import (
    MASK,
    find_secrets,
    mask,
    without_secrets,
)

REGISTRY = '[plugins."io.containerd.grpc.v1.cri".registry'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            f'{REGISTRY}.configs."r.example".auth]\nusername = "robot"\npassword = "hunter22"\n',
            {"robot", "hunter22"},
            id="configs-auth",
        ),
        pytest.param(
            f'{REGISTRY}.configs."r.example"]\nauth = {{ identitytoken = "tok-en", auth = "Zm9v" }}\n',
            {"tok-en", "Zm9v"},
            id="inline-auth",
        ),
        pytest.param(f'{REGISTRY}.auths."https://r.example"]\nauth = "Zm9vYmFy"\n', {"Zm9vYmFy"}, id="auths"),
        pytest.param(f'{REGISTRY}.headers]\nAuthorization = ["Basic abcd"]\n', {"Basic abcd"}, id="headers"),
        pytest.param(
            f'{REGISTRY}]\nconfig_path = "/etc/containerd/certs.d"\n{REGISTRY}.mirrors.a]\nendpoint = ["https://m"]\n',
            set(),
            id="nothing-secret",
        ),
        pytest.param("not toml {{", set(), id="unreadable"),
    ],
)
def test_find_secrets(text, expected):
    """Credentials are found wherever containerd keeps them, in any spelling of the table."""
    assert find_secrets(text.encode()) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("pull with hunter22 failed", f"pull with {MASK} failed", id="by-value"),
        pytest.param('#  password = "old"', f'#  password = "{MASK}"', id="in-a-comment"),
        pytest.param('auth = ""', 'auth = ""', id="empty-is-no-secret"),
        pytest.param("Authorization = ['Basic x']", f'Authorization = ["{MASK}"]', id="header"),
        pytest.param("https://u:p@proxy.example:3128/", f"https://{MASK}@proxy.example:3128/", id="url-with-user"),
        pytest.param("http://m.example/v2/a@sha256:ab", "http://m.example/v2/a@sha256:ab", id="digest-is-no-user"),
    ],
)
def test_mask(text, expected):
    """Nothing of a credential is left; everything else is."""
    assert mask(text, {"hunter22"}) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            '[host."https://m".header]\nA = "q7"\nB = ["x", "y z"]\n',
            f'[host."https://m".header]\nA = "{MASK}"\nB = ["{MASK}", "{MASK}"]\n',
            id="table",
        ),
        pytest.param(
            '[host."https://m"]\nheader = { A = "q7" }\n',
            f'[host."https://m"]\nheader = {{ A = "{MASK}" }}\n',
            id="inline",
        ),
        pytest.param(
            'header.A = "q7"\nserver = "https://a"\n', f'header.A = "{MASK}"\nserver = "https://a"\n', id="root"
        ),
        pytest.param('[header]\nA = """q7\nq8"""\n', f'[header]\nA = "{MASK}"\n', id="several-lines"),
        pytest.param("# X-Api = 'q7'\n# ca = 'x'\n", f"# X-Api = \"{MASK}\"\n# ca = 'x'\n", id="comment"),
        pytest.param("a = 1 # Basic abcd\n", f"a = 1 # Basic {MASK}\n", id="comment-with-a-scheme"),
        pytest.param(
            f'{REGISTRY}.configs.a.auth]\npassword = "q7"\n',
            f'{REGISTRY}.configs.a.auth]\npassword = "{MASK}"\n',
            id="configuration",
        ),
        pytest.param("[x\n", "[x\n", id="unreadable"),
    ],
)
def test_without_secrets(text, expected):
    """Where a value stands decides, so that even a short one is hidden, and nothing else is."""
    assert without_secrets(text) == expected


def test_long_words_cost_no_time():
    """A megabyte without a gap is masked at once, also where a key of several words ends in a known one."""
    assert mask(f'{"x" * 2**20}_token = "hunter22"', set()).endswith(f'_token = "{MASK}"')


def test_header_values_are_known_by_value_too():
    """A message of the daemon may hold one."""
    text = b'[host."https://m".header]\nA = "hunter22"\nB = """hunter\n33"""\n'

    assert find_secrets(text) == {"hunter22", "hunter\n33"}
    assert mask("https://u:p@ss@m.example", set()) == f"https://{MASK}@m.example"
