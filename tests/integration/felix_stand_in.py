"""A stand-in of Felix 3.31, run on a node by the DaemonSet calico-node of the tests; it is no Felix.

It plays what was recorded of one: precedence of its configuration's places, where its chains go, allow actions, mark
bits, readiness, and that it ends with status 129 two seconds after a change in force. Its supervisor starts it again.
Tests have it misbehave by a file on the node.
"""

import http.client
import http.server
import json
import os
import re
import ssl
import subprocess
import sys
import threading
import time

KNOB = "/run/felix-stand-in.json"
FILE = "/etc/calico/felix.cfg"
HEALTH = ("127.0.0.1", 9099)
POLL_S, RESTART_S, RESTART_STATUS = 0.3, 2.0, 129
BUILT_IN = {
    "chainInsertMode": "Insert",
    "iptablesFilterAllowAction": "Accept",
    "iptablesMangleAllowAction": "Accept",
    "iptablesMarkMask": 0xFFFF0000,
    "iptablesRefreshInterval": "180s",
    "iptablesPostWriteCheckInterval": "5s",
}
ANNOTATION = "config.projectcalico.org/"
UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
NAMES = ("accept", "pass", "drop", "scratch0", "scratch1")


def number(value):
    """A mask as an object, a file or the environment has it."""
    return value if isinstance(value, int) else int(str(value), 0)


def seconds(value):
    """A duration of an object, or the plain seconds of a file or the environment."""
    found = re.findall(r"([0-9.]+)(ms|s|m|h)", str(value))
    return sum(float(count) * UNITS_S[unit] for count, unit in found) if found else float(value)


READ = {"iptablesMarkMask": number, "iptablesRefreshInterval": seconds, "iptablesPostWriteCheckInterval": seconds}


def selected(selector, labels):
    """Whether a selector matches; equality alone is played."""
    key, value = re.fullmatch(r"\s*(\S+)\s*==\s*'([^']*)'\s*", selector).groups()
    return labels.get(key) == value


def values_of(item):
    """What an object sets; an annotation overrides the field of its own object."""
    notes = {key.lower(): text for key, text in (item["metadata"].get("annotations") or {}).items()}
    found = {name: notes.get(f"{ANNOTATION}{name}".lower()) for name in BUILT_IN}
    return {**(item.get("spec") or {}), **{name: text for name, text in found.items() if text is not None}}


def effective(objects, node, labels, file_text, environment):
    """The configuration in force: default, one with a selector, node.NAME, the file, the environment."""
    by_name = {item["metadata"]["name"]: values_of(item) for item in objects}
    places = [by_name.get("default", {})]
    scoped = [item for item in objects if (item.get("spec") or {}).get("nodeSelector")]
    scoped = sorted(scoped, key=lambda item: item["metadata"]["creationTimestamp"])
    places += [values_of(item) for item in scoped if selected(item["spec"]["nodeSelector"], labels)][:1]
    places.append(by_name.get(f"node.{node}", {}))
    entries = dict(re.findall(r"^\s*(\w+)\s*=\s*(\S+)", file_text, re.MULTILINE))
    outside = [entries, {key[len("FELIX_") :]: text for key, text in environment.items() if key.startswith("FELIX_")}]
    found = {}
    for name, built_in in BUILT_IN.items():
        value = built_in
        for place in places:
            value = place.get(name) if place.get(name) is not None else value
        for place in outside:
            value = next((text for key, text in place.items() if key.lower() == name.lower()), value)
        found[name] = READ.get(name, lambda text: str(text).lower())(value)
    return found


class Server:
    """The API server, asked with the pod's account."""

    def __init__(self):
        self._context = ssl.create_default_context(cadata=os.environ["STAND_IN_CA"])
        self._place = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
        self._head = {"Authorization": f"Bearer {os.environ['STAND_IN_TOKEN']}"}

    def get(self, path):
        """An object or a list."""
        connection = http.client.HTTPSConnection(*self._place, timeout=5, context=self._context)
        connection.request("GET", path, headers=self._head)
        with connection.getresponse() as answer:
            return json.load(answer)

    def configuration(self):
        """What is in force on this node now."""
        node = os.environ["NODENAME"]
        objects = self.get("/apis/crd.projectcalico.org/v1/felixconfigurations")["items"]
        labels = self.get(f"/api/v1/nodes/{node}")["metadata"].get("labels") or {}
        text = read(FILE)
        found = effective(objects, node, labels, text, os.environ)
        for name in knob().get("ignore", []):
            found[name] = READ.get(name, lambda value: str(value).lower())(BUILT_IN[name])
        return found


def read(path):
    """The text of a file, empty where there is none."""
    if not os.path.exists(path):
        return ""
    with open(path) as stream:
        return stream.read()


def knob():
    """How a test has it misbehave: C({ignore: [settings], ready: false})."""
    return json.loads(read(KNOB) or "{}")


def marks(mask):
    """The bits that it takes, from the lowest set one."""
    bits = [1 << bit for bit in range(32) if mask >> bit & 1]
    if len(bits) < len(NAMES):
        sys.exit("Not enough mark bits available")
    return dict(zip(NAMES, bits, strict=False))


def write_rules(config):
    """Its chains, and the rules that lead into them."""
    bits = marks(config["iptablesMarkMask"])
    accept = f"{bits['accept']:#x}/{bits['accept']:#x}"
    clear = bits["accept"] | bits["pass"] | bits["scratch0"] | bits["scratch1"]
    accepted = {table: config[f"iptables{table.capitalize()}AllowAction"].upper() for table in ("filter", "mangle")}
    lines = ["*mangle", ":cali-PREROUTING - [0:0]", ":cali-POSTROUTING - [0:0]"]
    lines.append(f"-A cali-PREROUTING {comment('KX7AGNd6rMcDUai6')} -m mark --mark {accept} -j {accepted['mangle']}")
    lines.append(f"-A cali-POSTROUTING {comment('qaBFqjrfvtSJDMkj')} -m mark --mark {accept} -j RETURN")
    lines.append(f"-A cali-POSTROUTING {comment('5sx1W7iTE-cu0I7v')} -j MARK --set-xmark 0x0/{clear:#x}")
    lines += ["COMMIT", "*filter", *(f":cali-{chain} - [0:0]" for chain in ("INPUT", "FORWARD", "OUTPUT"))]
    for chain in ("INPUT", "FORWARD", "OUTPUT"):
        lines.append(f"-A cali-{chain} {comment('hder3ARWznqqv8Va')} -m mark --mark {accept} -j {accepted['filter']}")
        lines.append(f"-A cali-{chain} {comment('eyx2leKMZ98ckPa-')} -j MARK --set-xmark 0x0/{clear:#x}")
    run("iptables-restore", "--noflush", "-w", "5", text="\n".join([*lines, "COMMIT", ""]))
    for table, chains in (("mangle", ("PREROUTING", "POSTROUTING")), ("filter", ("INPUT", "FORWARD", "OUTPUT"))):
        for chain in chains:
            jump(table, chain, config["chainInsertMode"])
    explicit = ["-m", "comment", "--comment", "cali:S93hcgKJrXEqnTfs", "-m", "comment", "--comment"]
    explicit += ["Policy explicitly accepted packet.", "-m", "mark", "--mark", accept, "-j", accepted["filter"]]
    for line in run("iptables-save", "-t", "filter").splitlines():
        if line.startswith("-A FORWARD") and ("S93hcgKJrXEqnTfs" in line or "mp77cMpurHhyjLrM" in line):
            run("iptables-restore", "--noflush", "-w", "5", text=f"*filter\n-D{line[2:]}\nCOMMIT\n")
    run("iptables", "-w", "5", "-A", "FORWARD", *explicit)
    mark = ["-m", "comment", "--comment", "cali:mp77cMpurHhyjLrM", "-j", "MARK", "--set-xmark", accept]
    run("iptables", "-w", "5", "-A", "FORWARD", *mark)


def comment(text):
    """How Felix marks its rules."""
    return f'-m comment --comment "cali:{text}"'


def jump(table, chain, mode):
    """The rule that leads into its chain, once, at the top or at the end."""
    rule = ["-m", "comment", "--comment", f"cali:to-{chain}", "-j", f"cali-{chain}"]
    while run("iptables", "-w", "5", "-t", table, "-D", chain, *rule, check=False) is not None:
        continue
    run("iptables", "-w", "5", "-t", table, "-I" if mode == "insert" else "-A", chain, *rule)


def run(*argv, text=None, check=True):
    """The output of a program of the node, None where it fails."""
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    if done.returncode and check:
        sys.exit(f"{argv}: {done.stderr}")
    return None if done.returncode else done.stdout


class Health(http.server.BaseHTTPRequestHandler):
    """Readiness in its own word."""

    def do_GET(self):
        self.send_response(503 if knob().get("ready") is False else 200)
        self.end_headers()

    def log_message(self, *_args):
        """Say nothing."""


def main():
    """Work until the configuration in force changes."""
    server = Server()
    config = server.configuration()
    write_rules(config)
    health = http.server.ThreadingHTTPServer(HEALTH, Health)
    threading.Thread(target=health.serve_forever, daemon=True).start()
    print(f"in force: {config}", flush=True)
    while True:
        time.sleep(POLL_S)
        if server.configuration() != config:
            print("configuration changed; ending", flush=True)
            time.sleep(RESTART_S)
            os._exit(RESTART_STATUS)


if __name__ == "__main__":
    main()
