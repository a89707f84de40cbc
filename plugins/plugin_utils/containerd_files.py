# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""containerd configuration files as text and as values, or the reason why a file is neither."""

from __future__ import annotations

import re
import reprlib
import tomllib
from dataclasses import dataclass

from ..module_utils.containerd_toml import ScanError, scan
from .containerd_edit import BOM, dotted, parse, value_at
from .containerd_effective import GRPC_CRI, IMAGES, V1_CRI, Daemon

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_TEMPLATE = re.compile(r"\{\{|\{%|<%")
_LONE_CR = re.compile(r"\r(?!\n)")

_CRI = (V1_CRI, GRPC_CRI, IMAGES)
# Of what is read here, in this order; containerd, or its CRI plugin, does not start where something has another type.
_TYPES = {
    ("version",): (int, "a whole number"),
    ("imports",): (list, "an array of strings"),
    ("disabled_plugins",): (list, "an array of strings"),
    ("plugins",): (dict, "a table"),
    **{("plugins", name): (dict, "a table") for name in _CRI},
    **{("plugins", name, "registry"): (dict, "a table") for name in _CRI},
}


class UnreadableError(Exception):
    """A file that cannot be edited. C(finding_id) names the kind, the text is file, line and reason."""

    def __init__(self, finding_id: str, reason: str, remedy: str):
        super().__init__(reason)
        self.finding_id = finding_id
        self.remedy = remedy


# Of a new file with credentials; containerd reads as root.
SECRET_MODE = 0o600


@dataclass(frozen=True)
class Write:
    """One file's bytes before and after; None where there is no file. mode: None keeps it, a new file gets 0644."""

    path: str
    before: bytes | None
    after: bytes | None
    mode: int | None = None


@dataclass(frozen=True)
class ConfigFile:
    """One file: its text as it stands, byte order mark included, and its values."""

    path: str
    text: str
    values: dict

    @property
    def has_statements(self) -> bool:
        return bool(self.values)

    def place(self, *key: str) -> str:
        """Return where a key or a table first stands, as C(PATH line N)."""
        document = scan(self.text)
        starts = [entry.key_start for entry in document.entries if entry.path[: len(key)] == key]
        starts += [header.start for header in document.headers if header.path[: len(key)] == key]
        return f"{self.path} line {_line_of(self.text, min(starts))}" if starts else self.path

    def find_template(self) -> str:
        """Return where a key or value holds a template expression that nobody rendered, "" when none does."""
        comments = scan(self.text).comments if _TEMPLATE.search(self.text) else []
        for match in _TEMPLATE.finditer(self.text):
            if not any(start <= match.start() < end for start, end in comments):
                return f"{self.path} line {_line_of(self.text, match.start())}: {match.group()}"
        return ""

    def is_one_line(self, key: str) -> bool:
        """Say whether the value of a key of the root stands on one line, so that writing it anew loses no comment."""
        document = scan(self.text)
        entry = document.find((key,))
        return entry is None or "\n" not in document.value(entry)


def read_config(path: str, content: bytes, daemon: Daemon) -> ConfigFile:
    """Return a file's text and values.

    :raises UnreadableError: the daemon would not take the file, or it is the template of one.
    """
    text = _decode(path, content)
    if text.startswith(BOM) and daemon.refuses_bom:
        raise UnreadableError(
            "containerd.byte_order_mark",
            f"{path} line 1: a byte order mark, which containerd 2.0 and later refuse",
            "save the file as UTF-8 without a byte order mark",
        )
    if match := _LONE_CR.search(text):
        raise UnreadableError(
            "containerd.config_invalid",
            f"{path} line {_line_of(text, match.start())}: a carriage return without a line feed",
            "end lines with LF or CR LF",
        )
    try:
        values = parse(text)
        scan(text)
    except (tomllib.TOMLDecodeError, ScanError) as error:
        raise _explain(path, text, error) from error
    except RecursionError as error:
        line, _source = max(enumerate(text.split("\n"), 1), key=lambda item: item[1].count("[") + item[1].count("{"))
        raise UnreadableError(
            "containerd.config_invalid",
            f"{path} line {line}: arrays or inline tables stand in each other deeper than can be read here",
            "write them less deep; no setting of containerd needs that",
        ) from error
    config = ConfigFile(path, text, values)
    for key, (kind, name) in _TYPES.items():
        value = value_at(values, key)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise UnreadableError(
                "containerd.config_invalid",
                f"{config.place(*key)}: {dotted(key)} is {reprlib.repr(value)}",
                f"make {dotted(key)} {name}; containerd or its CRI plugin does not start with this file",
            )
    return config


def _decode(path: str, content: bytes) -> str:
    if content.startswith(_UTF16_MARKS) or b"\0" in content:
        raise UnreadableError(
            "containerd.config_encoding",
            f"{path} line 1: expected UTF-8, found UTF-16 or a binary file (PowerShell's > writes UTF-16)",
            "convert the file to UTF-8 without a byte order mark, such as with iconv -f UTF-16 -t UTF-8",
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UnreadableError(
            "containerd.config_encoding",
            f"{path} line {line}: byte 0x{content[error.start]:02x} is not UTF-8",
            "save the file as UTF-8",
        ) from error


def _explain(path: str, text: str, error: tomllib.TOMLDecodeError | ScanError) -> UnreadableError:
    """Say line and reason; a template is named as such, since its cure is another one."""
    if isinstance(error, ScanError):
        line, reason = error.line, error.reason
    else:
        reason = str(error)
        match = re.search(r"\(at line (\d+), column (\d+)\)", reason)
        line, column = map(int, match.groups()) if match else (text.count("\n") + 1, 1)
        reason = _comma_or_break(text, line, column) or _second_place(text, line) or reason
    template = _TEMPLATE.search(text)
    # An expression below the error is not what the parser stumbled over: scripts and charts hold some too.
    if template and _line_of(text, template.start()) <= line:
        return UnreadableError(
            "containerd.config_template",
            f"{path} line {_line_of(text, template.start())}: {template.group()} begins a template expression, so this "
            f"is the source of a configuration, not one (line {line}: {reason})",
            "change the values that the template is rendered with",
        )
    return UnreadableError(
        "containerd.config_invalid",
        f"{path} line {line}: {reason}",
        "correct that line so that the file is TOML 1.0; a containerd that takes it for something else does not start",
    )


def _line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _comma_or_break(text: str, line: int, column: int) -> str:
    """Name what only TOML 1.1, and with it containerd 2.4, takes in an inline table; "" when it is something else."""
    source = text.removeprefix(BOM).split("\n")[line - 1]
    rest, before = source[column - 1 :], source[: column - 1].rstrip()
    if rest.startswith("}") and before.endswith(","):
        return "a comma after the last item of an inline table"
    return "a line break inside an inline table" if not rest.strip("\r") and before.endswith(("{", ",")) else ""


def _second_place(text: str, line: int) -> str:
    """Return, for a table or key that was there before, where; "" when the line holds no such thing."""
    try:
        document = scan(text)
    except ScanError:
        return ""
    items = [(header.start, header.path) for header in document.headers if not header.is_array]
    items = sorted(items + [(entry.key_start, entry.path) for entry in document.entries])
    for start, path in items:
        first = next((at for at, other in items if at < start and other[: len(path)] == path), None)
        if _line_of(text, start) == line and first is not None:
            return f"{dotted(path)} is there a second time, the first one is in line {_line_of(text, first)}"
    return ""
