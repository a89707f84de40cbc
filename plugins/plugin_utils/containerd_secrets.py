# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials in containerd configurations and hosts.toml files, and texts without them.

They stand in registry C(configs.*.auth), C(auths), C(headers), in the C(header) tables of hosts.toml, in URLs with a
user, and in comments of the same form.
"""

from __future__ import annotations

import re

from ..module_utils.containerd_toml import Entry, ScanError, decode_string, scan

MASK = "********"
_SECRET_TABLES = frozenset(("auth", "auths", "header", "headers"))
_SECRET_KEY = re.compile(r"pass(word|wd)?|auth|token|identitytoken|registrytoken|secret|credential|api_?key", re.I)
_ASSIGNMENT = re.compile(
    r"""((?:pass(?:word|wd)?|auth|token|secret|credential|authorization|username)["']?\s*[=:]\s*\[?\s*)"""
    r"""("(?:\\.|[^"\\\r\n])*"|'[^'\r\n]*')""",
    re.IGNORECASE,
)
_URL_USER = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/\"']+@", re.IGNORECASE)
_STRING = re.compile(r"""\"{3}(?:\\.|[^\\])*?\"{3,5}|'{3}.*?'{3,5}|\"(?:\\.|[^"\\\r\n])*\"|'[^'\r\n]*'""", re.DOTALL)
# A comment may be a setting that is switched off. What hosts.toml knows is shown, and what goes by another name is not.
_COMMENT = re.compile(r"""#\s*["']?([A-Za-z0-9_-]+)["']?\s*=.*""")
_SHOWN_KEYS = frozenset(
    ("server", "capabilities", "ca", "client", "skip_verify", "override_path", "dial_timeout", "config_path")
)
_SCHEME = re.compile(r"\b(basic|bearer)[ \t]+[\w+/=.~-]+", re.IGNORECASE)
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


def without_secrets(text: str) -> str:
    """Return a file with every secret value replaced where it stands, however short; C(mask) does not know places."""
    try:
        document = scan(text)
    except ScanError:
        return text
    parts, at = [], 0
    for entry in document.entries:
        if entry.value_start >= at and _is_secret(entry):
            value = _STRING.sub(f'"{MASK}"', document.value(entry))
            parts += [_comments_hidden(text[at : entry.value_start]), value]
            at = entry.value_end
    return "".join([*parts, _comments_hidden(text[at:])])


def _comments_hidden(text: str) -> str:
    return _COMMENT.sub(
        lambda match: match.group() if match.group(1) in _SHOWN_KEYS else _STRING.sub(f'"{MASK}"', match.group()),
        _SCHEME.sub(rf"\1 {MASK}", text),
    )


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
    above = {"plugins": entry.path[2:-1], "host": entry.path[2:-1], "header": entry.path[:-1]}.get(entry.path[0], ())
    return bool(_SECRET_KEY.fullmatch(entry.path[-1])) or bool(_SECRET_TABLES.intersection(above))
