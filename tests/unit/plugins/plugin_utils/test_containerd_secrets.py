# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_secrets import MASK, find_secrets, mask

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
