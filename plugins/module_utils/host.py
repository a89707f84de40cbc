# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a node is asked: commands with a deadline, small files, and what their texts say."""

from __future__ import annotations

import gzip
import http.client
import subprocess
import zlib

COMMAND_TIMEOUT_S = 10
HTTP_TIMEOUT_S = 2
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run_command(argv, executable=None):
    """Run a command with a fixed locale and no input.

    :param executable: the file to run where it is not the one that argv[0] names.
    :returns: C((rc, stdout, stderr)) as text; rc 127 with the reason when it cannot be started or takes too long.
    """
    environment = {"PATH": SEARCH_PATH, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            argv,
            executable=executable,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 127, "", f"no answer within {COMMAND_TIMEOUT_S} s"
    except OSError as error:
        return 127, "", str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def http_get(port, path, host="127.0.0.1"):
    """GET from a port of this node as C((status, body)); C((None, reason)) when nothing answers."""
    connection = http.client.HTTPConnection(host, port, timeout=HTTP_TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read(256).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return None, str(error)
    finally:
        connection.close()


def read_text(path):
    """The text of a small file, or None when it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return None


def read_zipped(path):
    """The text of a small file that gzip compressed, or None when it cannot be read."""
    try:
        with gzip.open(path) as stream:
            return stream.read().decode("utf-8", "replace")
    except (OSError, EOFError, zlib.error):
        return None


def parse_os_release(text):
    """C({id, version_id, variant_id, pretty_name}) of an os-release(5) text; empty strings for what it does not say."""
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {key: fields.get(key.upper(), "").strip("\"'") for key in ("id", "version_id", "variant_id", "pretty_name")}


def parse_units(text):
    """C({unit: {property: value}}) of C(systemctl show) for several units, whose blocks a blank line separates.

    A property that has several lines, such as ExecStartPre, keeps them.
    """
    units = {}
    for block in text.split("\n\n"):
        fields = {}
        for name, value in (line.split("=", 1) for line in block.splitlines() if "=" in line):
            fields[name] = f"{fields[name]}\n{value}" if name in fields else value
        if "Id" in fields:
            units[fields.pop("Id")] = fields
    return units


def flag_value(argv, long_name, short_name):
    """The value of a flag on a command line in any of its spellings, the last as Go's programs have it, else ""."""
    spellings = ("--" + long_name, "-" + long_name, "-" + short_name)
    found = ""
    for index, word in enumerate(argv):
        name, separator, value = word.partition("=")
        if name in spellings and (separator or index + 1 < len(argv)):
            found = value if separator else argv[index + 1]
    return found
