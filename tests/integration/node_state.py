"""What a look at a node could change without meaning to. Runs on the node, prints JSON; nothing here loads a module."""

import hashlib
import json
import os
import re
import subprocess

# Counters and the like, which change by themselves.
VOLATILE = re.compile(
    r"/proc/sys/(fs/(aio-nr|dentry-state|file-nr|inode-\w+)|kernel/(random/|ns_last_pid|pty/nr)"
    r"|net/netfilter/nf_conntrack_count)"
)
# A look at it mounts it.
AUTOMOUNT = "binfmt_misc"
# Ansible's own, when a module is killed.
ANSIBLE = re.compile(r"ansible_\S+_payload_")
PLACES = ("/dev/shm", "/root", "/run", "/run/netns", "/sys/fs/bpf", "/tmp", "/var/lib", "/var/tmp")  # noqa: S108


def read(path):
    """The text of a file, or the number of the error."""
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace")
    except OSError as error:
        return str(error.errno)


def walk(top):
    """The files below a directory."""
    for folder, folders, files in os.walk(top):
        if AUTOMOUNT in folders:
            folders.remove(AUTOMOUNT)
        yield from (os.path.join(folder, name) for name in files)


def etc():
    """Content, mode, owner and time of every file of /etc."""
    found = {}
    for path in walk("/etc"):
        status = os.lstat(path)
        content = os.readlink(path) if os.path.islink(path) else hashlib.sha256(read(path).encode()).hexdigest()
        found[path] = [content, status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns]
    return found


def output(*argv):
    """What a program says."""
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout.decode()


def modules():
    """The loaded modules."""
    return sorted(line.split()[0] for line in read("/proc/modules").splitlines())


def tables():
    """What is registered with the kernel's older packet filter."""
    kinds = [f"/proc/net/{family}_tables_{kind}" for family in ("ip", "ip6", "arp") for kind in ("names", "matches")]
    return {path: sorted(read(path).split()) for path in kinds}


def rules(loaded):
    """Routes and the rules of what is loaded; to ask for others would load them."""
    found = {"rules": output("ip", "rule"), "routes": output("ip", "route", "show", "table", "all")}
    if "nf_tables" in loaded:
        found["nft"] = output("nft", "--stateless", "list", "ruleset")
    if "ip_set" in loaded:
        found["sets"] = output("ipset", "save")
    return found


def pythons():
    """The processes that run Python, but this one."""
    others = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()]
    return sorted(pid for pid in others if read(f"/proc/{pid}/comm").startswith("python"))


def main():
    """Print it all."""
    loaded = modules()
    state = {
        "etc": etc(),
        "settings": {path: read(path) for path in walk("/proc/sys") if not VOLATILE.match(path)},
        "modules": loaded,
        "tables": tables(),
        "rules": rules(loaded),
        "interfaces": sorted(os.listdir("/sys/class/net")),
        "namespaces": sorted(output("lsns", "-n", "-o", "TYPE,NS").splitlines()),
        "mounts": sorted(read("/proc/self/mounts").splitlines()),
        "files": {
            place: sorted(name for name in os.listdir(place) if not ANSIBLE.match(name))
            for place in PLACES
            if os.path.isdir(place)
        },
        "pythons": pythons(),
    }
    print(json.dumps(state))


main()
