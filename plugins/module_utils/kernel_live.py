# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Features that are tried for real, in a network namespace that goes with the process that made it.

Only what makes the kernel load no module is tried: the kernel loads what is asked for and not there, whoever asks, and
for all of the machine.
"""

from __future__ import annotations

import errno
import subprocess
import time
from shutil import which
from typing import NamedTuple

from .host import SEARCH_PATH
from .kernel_evidence import ABSENT, UNKNOWN, WORKS, State, loads_none
from .kernel_netlink import try_clsact, try_ip_set, try_ipip, try_ipvs, try_link, try_tc_bpf, try_vxlan
from .kernel_table import FEATURES, IPV4_RULES, IPV6_RULES, NFT_RULES, SET_NAME
from .sandbox import SandboxError, run_in_network

TIMEOUT_S = 8
RESTORE_TIMEOUT_S = 4
# Its own modprobe would be asked for ip_tables, whatever the rules are.
RESTORE_OPTIONS = ("--noflush", "--modprobe=/bin/false")
# Feature: what tries it, and the modules that this asks for beside the feature's. A filter needs a queue before it.
TRIES = {
    "ipset.hash_ip": (lambda: try_ip_set(SET_NAME, "hash:ip"), ("nfnetlink", "ip_set")),
    "ipset.hash_net": (lambda: try_ip_set("net", "hash:net"), ("nfnetlink", "ip_set")),
    "ipset.hash_ipport": (lambda: try_ip_set("ipport", "hash:ip,port"), ("nfnetlink", "ip_set")),
    "ipip": (try_ipip, ()),
    "vxlan": (try_vxlan, ()),
    "wireguard": (lambda: try_link("wireguard"), ()),
    "dummy": (lambda: try_link("dummy"), ()),
    "ipvs.rr": (try_ipvs, ("ip_vs",)),
    "tc.clsact": (try_clsact, ()),
    "tc.bpf": (try_tc_bpf, ("sch_ingress",)),
}
MADE = "was made in a network namespace of its own"
NFT_MODULES = ("x_tables", "nfnetlink", "nf_tables", "nft_compat", "nft_counter", "nft_meta")


class Backend(NamedTuple):
    """What writes rules: programs, their rules, the modules that a rule of a table asks for, what it is proof of."""

    programs: tuple
    rules: tuple
    modules: tuple
    proves: tuple
    is_nft: bool = False


# Programs of before iptables 1.8 have one name, and write legacy rules.
BACKENDS = (
    Backend(
        ("iptables-legacy-restore", "iptables-restore"),
        IPV4_RULES,
        ("x_tables", "ip_tables", "iptable_{table}"),
        ("iptables_legacy.{table}",),
    ),
    Backend(
        ("ip6tables-legacy-restore", "ip6tables-restore"),
        IPV6_RULES,
        ("x_tables", "ip6_tables", "ip6table_{table}"),
        ("ip6tables_legacy.{table}",),
    ),
    Backend(("iptables-nft-restore",), IPV4_RULES, (*NFT_MODULES, "nf_tables_ipv4"), ("nft.tables", "nft.compat")),
    Backend(("ip6tables-nft-restore",), IPV6_RULES, (*NFT_MODULES, "nf_tables_ipv6"), ("nft.tables", "nft.compat")),
    Backend(("nft",), NFT_RULES, ("nfnetlink", "nf_tables", "nf_tables_ipv4", "nft_meta"), ("nft.tables",), True),
)
# The kernel has what it refuses to this process.
REFUSED = (errno.EPERM, errno.EACCES, errno.EBUSY, errno.EEXIST, errno.ENOMEM, errno.ETIMEDOUT)


def try_features(modules, evidence):
    """Try what can be tried: C(({feature: State}, reason)); the reason says why nothing could be.

    :param modules: of judge_modules, at the time of the call. :param evidence: what they were judged by.
    """
    tries = [name for name, (_try, also) in TRIES.items() if loads_none((*FEATURES[name], *also), modules, evidence)]
    # Without rules a program must not run: it would open its socket, and the kernel load what answers there.
    rules = [
        (program, backend, safe)
        for backend in BACKENDS
        for safe in [[rule for rule in backend.rules if _is_safe(rule, backend, modules, evidence)]]
        for program in [_find(backend.programs)]
        if safe and program
    ]
    answer = run_in_network(lambda: _try_all(tries, rules), TIMEOUT_S)
    if isinstance(answer, SandboxError):
        return {}, str(answer)
    return {name: State(*found) for name, found in answer.items()}, ""


def _is_safe(rule, backend, modules, evidence):
    """Whether a rule can be tried, and whether there is anything to try."""
    if all(modules[name].state == ABSENT for name in FEATURES[rule.feature]):
        return False
    common = [name.format(table=rule.table) for name in backend.modules]
    return loads_none((*FEATURES[rule.feature], *rule.also, *common), modules, evidence)


def _find(programs):
    """The first of the programs that there is, None when there is none.

    A plain name is legacy only where no other is installed: from 1.8 on it may be either.
    """
    is_either = which("xtables-nft-multi", path=SEARCH_PATH)
    for name in programs:
        if which(name, path=SEARCH_PATH):
            return None if name.endswith("tables-restore") and is_either else name
    return None


def _try_all(tries, rules):
    """What came of it: C({feature: (state, evidence)})."""
    found = {}
    for name in tries:
        what = name.partition(".")[2] or name
        try:
            TRIES[name][0]()
        except OSError as error:
            found[name] = State(UNKNOWN if error.errno in REFUSED else ABSENT, f"{what}: {error.strerror}")
        except (KeyError, ValueError) as error:
            found[name] = State(UNKNOWN, f"{what}: an answer that cannot be read: {error!r}")
        else:
            found[name] = State(WORKS, f"{what} {MADE}")
    if found.get("ipvs.rr", ("",))[0] == WORKS:
        found["ipvs"] = found["ipvs.rr"]
    if any(name.startswith("ipset.") and state == WORKS for name, (state, _evidence) in found.items()):
        found["ipset"] = State(WORKS, f"a set {MADE}")
    for program, backend, wanted in rules:
        for rule, state in try_rules(program, wanted, is_nft=backend.is_nft):
            proven = backend.proves if state.state == WORKS else ()
            names = (rule.feature, *(name.format(table=rule.table) for name in proven))
            for name in names:
                if found.get(name, ("",))[0] != WORKS:
                    found[name] = state
    return found


def try_rules(program, rules, is_nft=False):
    """Give the rules to a restore program or nft, at once if that works, else one by one.

    :returns: C([(rule, State)]). A refusal leaves the feature unknown: it may be the program that does not know it.
    """
    deadline = time.monotonic() + RESTORE_TIMEOUT_S
    argv, render = ([program, "-f", "-"], render_nft) if is_nft else ([program, *RESTORE_OPTIONS], render_restore)
    if not _run(argv, render(rules), deadline):
        return [(rule, _accepted(program, rule)) for rule in rules]
    found = []
    for rule in rules:
        refusal = _run(argv, render([rule]), deadline)
        found.append((rule, State(UNKNOWN, f"{program}: {refusal}") if refusal else _accepted(program, rule)))
    return found


def _accepted(program, rule):
    return State(WORKS, f"{program} took {rule.text}")


def render_restore(rules):
    """The rules as iptables-restore reads them."""
    tables = {}
    for rule in rules:
        tables.setdefault(rule.table, []).append(rule.text)
    return "".join(f"*{table}\n" + "\n".join(texts) + "\nCOMMIT\n" for table, texts in tables.items())


def render_nft(rules):
    """The rules as nft reads them, each in a chain of its own."""
    chains = (
        f"chain {rule.feature.replace('.', '_')} {{ type {rule.table} priority 0; {rule.text}; }}" for rule in rules
    )
    return "table ip portcullis {\n" + "\n".join(chains) + "\n}\n"


def _run(argv, text, deadline):
    """Run a program that adds rules. Returns why it did not, in words, and nothing when they are there."""
    try:
        done = subprocess.run(
            argv,
            env={"PATH": SEARCH_PATH, "LC_ALL": "C"},
            input=text.encode(),
            capture_output=True,
            timeout=max(0.0, deadline - time.monotonic()),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {RESTORE_TIMEOUT_S} s"
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return ""
    words = done.stderr.decode("utf-8", "replace").split("\n")[0].strip()
    return words or f"exit status {done.returncode}"
