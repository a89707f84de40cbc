# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials in containerd configurations, and texts without them.

They stand in registry C(configs.*.auth), C(auths), C(headers), in URLs with a user, and in comments of the same form.
"""

from __future__ import annotations

import re

from ..module_utils.containerd_toml import Entry, ScanError, decode_string, scan

MASK = "********"
_SECRET_TABLES = frozenset(("auth", "auths", "header", "headers"))
_SECRET_KEY = re.compile(r"pass(word|wd)?|auth|token|identitytoken|registrytoken|secret|credential|api_?key", re.I)
_ASSIGNMENT = re.compile(
    r"""((?:pass(?:word|wd)?|auth|\w*token|\w*secret|credential|authorization|username)["']?\s*[=:]\s*\[?\s*)"""
    r"""("(?:\\.|[^"\\\r\n])*"|'[^'\r\n]*')""",
    re.IGNORECASE,
)
_URL_USER = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/@\"']+@", re.IGNORECASE)
_STRING = re.compile(r"""\"(?:\\.|[^"\\\r\n])*\"|'[^'\r\n]*'""")
_LITERALS = frozenset(("true", "false"))


def find_secrets(content: bytes | None) -> set[str]:
    """Return the secret values of a file that can be parsed; short ones are left out, they would hide other words."""
    text = (content or b"").decode("utf-8", "replace")
    try:
        document = scan(text)
    except ScanError:
        return set()
    sources = [document.value(entry) for entry in document.entries if _is_secret(entry)]
    strings = {decode_string(string) for source in sources for string in _STRING.findall(source)}
    return {string for string in strings if len(string) >= 4 and string not in _LITERALS}


def mask(text: str, secrets: set[str]) -> str:
    """Return a text without the secret values, without credentials in URLs, and without assignments of secret keys."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    text = _ASSIGNMENT.sub(
        lambda match: match.group(1) + (match.group(2) if len(match.group(2)) == 2 else f'"{MASK}"'), text
    )
    return _URL_USER.sub(rf"\1{MASK}@", text)


def _is_secret(entry: Entry) -> bool:
    """Say whether the value of an entry, at any depth below such a table, must not be shown."""
    return bool(_SECRET_KEY.fullmatch(entry.path[-1])) or bool(
        entry.path[:1] == ("plugins",) and _SECRET_TABLES.intersection(entry.path[2:-1])
    )
