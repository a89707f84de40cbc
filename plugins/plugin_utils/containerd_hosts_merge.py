# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring what is wanted of a registry into a hosts.toml of somebody else: text comes in, none goes out.

A key that is not there is added to its table, a host that is not there is put below the others. What the file says and
the option does not mention stays. What the file says otherwise is a contradiction, and then nothing is merged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .containerd_edit import EditError, apply_splices, dotted, literal, set_value
from .containerd_hosts import Host, HostsError, HostsFile, HostsText, comparable, default_target, read_hosts
from .containerd_secrets import MASK


class Difference(NamedTuple):
    """A contradiction: the line of the file, what it says there, and what is wanted."""

    line: int
    found: str
    wanted: str


class Addition(NamedTuple):
    """A key that is to be put into a table."""

    table: tuple[str, ...]
    key: str
    value: Any


class Merged(NamedTuple):
    """text: None with a contradiction. others: addresses of the file's hosts that are not wanted, but stay."""

    text: str | None
    differences: list[Difference]
    others: list[str]

    def told(self, where: str, who: str) -> str:
        """Return the contradictions in words. where: the file. who: what wants the hosts, in the plural."""
        return "; ".join(
            f"{where}{f' line {item.line}' if item.line else ''}: {item.found}, while {who} want {item.wanted}"
            for item in self.differences
        )


def merge(content: bytes, wanted: HostsFile, directory: str) -> Merged:
    """Return the file with what is wanted, the same text when it says it already.

    :param directory: where the file is; its relative paths start there.
    """
    try:
        found = read_hosts(content)
        matches = _match(found, wanted)
        differences, additions = _compare(found, wanted, matches, directory)
        if differences:
            return Merged(None, differences, [])
        text = _with(found.text, additions)
        again = read_hosts(text.encode())
        rest = _compare(again, wanted, _match(again, wanted), directory)
    except HostsError as error:
        return Merged(None, [Difference(error.line, str(error), "a file that containerd takes for what it says")], [])
    except EditError as error:
        return Merged(None, [Difference(0, str(error), 'keys below [host."..."] headers')], [])
    if any(rest):
        return Merged(None, [Difference(0, "hosts that lead to the same place", "each place once")], [])
    return Merged(text, [], [url for url in found.urls if url not in matches.values()])


def _match(found: HostsText, wanted: HostsFile) -> dict[Host, str]:
    """Return the file's host for each wanted one: that with the same target, else that with the same address."""
    targets = {found.target_of(url): url for url in reversed(found.urls)}
    matches = {host: targets[host.target] for host in wanted.hosts if host.target in targets}
    for host in wanted.hosts:
        if host not in matches and host.url in found.urls:
            matches[host] = host.url
    return matches


def _compare(
    found: HostsText, wanted: HostsFile, matches: dict[Host, str], directory: str
) -> tuple[list[Difference], list[Addition]]:
    """Return what contradicts, and what is missing, in the order in which it is to be written."""
    differences = [*_order(found, wanted, matches), *_server_differences(found, wanted)]
    additions = []
    if wanted.server and not found.server and _needs_server(wanted):
        additions.append(Addition((), "server", wanted.server.url))
    tables: list[tuple[Host, tuple[str, ...], bool]] = []
    if wanted.server:
        tables.append((wanted.server, (), False))
    tables += [(host, ("host", matches.get(host, host.url)), host in matches) for host in wanted.hosts]
    for host, table, is_there in tables:
        settings = found.settings(*table) if is_there or not table else {}
        has_target = is_there and found.target_of(table[1]) == host.target
        for key, value in _wanted_keys(host, has_target, is_server=not table):
            difference, addition = _compare_key(found, settings, table, (key, value), directory)
            differences += difference
            additions += addition
    return differences, additions


def _needs_server(wanted: HostsFile) -> bool:
    return bool(wanted.server.settings()) or wanted.server.target != default_target(wanted.namespace)


def _order(found: HostsText, wanted: HostsFile, matches: dict[Host, str]) -> Iterator[Difference]:
    """Hosts that are missing can only come after those that are there."""
    there = [matches[host] for host in wanted.hosts if host in matches]
    positions = [found.urls.index(url) for url in there]
    first_missing = next((at for at, host in enumerate(wanted.hosts) if host not in matches), len(wanted.hosts))
    if positions != sorted(positions) or first_missing < len(there):
        line = found.line("host", there[0])
        wanted_order = ", ".join(host.url for host in wanted.hosts)
        yield Difference(line, f"the hosts {', '.join(found.urls)} in this order", f"the order {wanted_order}")


def _server_differences(found: HostsText, wanted: HostsFile) -> Iterator[Difference]:
    expected = wanted.server.target if wanted.server else default_target(wanted.namespace)
    if found.server and found.server_target != expected:
        words = f"server = {literal(wanted.server.url)}" if wanted.server else "none, which is the registry itself"
        yield Difference(found.line("server"), f"server = {literal(found.server)}", words)


def _wanted_keys(host: Host, has_target: bool, *, is_server: bool) -> Iterator[tuple[str, Any]]:
    """Return the keys that must hold. Those with a default are wanted with it where the option leaves them out."""
    values = host.settings()
    if "capabilities" in values:
        yield "capabilities", values["capabilities"]
    if not is_server and not has_target:
        yield "override_path", host.override_path
    for key in ("ca", "client"):
        if key in values:
            yield key, values[key]
    if not is_server or host.skip_verify:
        yield "skip_verify", host.skip_verify
    yield from (("header", {name: value}) for name, value in host.header_values().items())


def _compare_key(
    found: HostsText, settings: dict[str, Any], table: tuple[str, ...], item: tuple[str, Any], directory: str
) -> tuple[list[Difference], list[Addition]]:
    """Return the contradiction or the addition of one key, or neither."""
    key, value = item
    if key == "header":
        return _compare_header(found, settings, table, value)
    if key not in settings:
        # What holds anyway is not written; for plain HTTP, skip_verify = false would even mean to try TLS first.
        return [], [Addition(table, key, value)] if value else []
    if comparable({key: settings[key]}, directory) == comparable({key: value}, directory):
        return [], []
    name = dotted((*table, key))
    return [Difference(found.line(*table, key), f"{name} = {literal(settings[key])}", f"{key} = {literal(value)}")], []


def _compare_header(
    found: HostsText, settings: dict[str, Any], table: tuple[str, ...], header: dict[str, Any]
) -> tuple[list[Difference], list[Addition]]:
    """As C(_compare_key), for one header; its values are never shown."""
    there = settings.get("header", {})
    ((name, value),) = header.items()
    spelt = next((other for other in there if other.lower() == name.lower()), None)
    if spelt is None:
        return [], [Addition((*table, "header"), name, value)]
    if comparable({"header": {spelt: there[spelt]}}, "/") == comparable({"header": header}, "/"):
        return [], []
    place = dotted((*table, "header", spelt))
    line = found.line(*table, "header", spelt)
    return [Difference(line, f"{place} = {MASK}", f"another value of {name}, which is not shown")], []


def _with(text: str, additions: list[Addition]) -> str:
    """Return the text with more keys.

    :raises EditError: it is written so that a key cannot be put in without rewriting what stands there.
    """
    for addition in additions:
        splices = set_value(text, addition.table, addition.key, addition.value)
        if any(splice.removed for splice in splices):
            raise EditError(f"{dotted(addition.table)} is spelt in a way that nothing can be added to")
        text = apply_splices(text, splices)
    return text
