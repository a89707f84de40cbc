# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which rows of Calico's table of ports a cluster needs, from its mode: who has to reach whom, where, and why.

Source: Calico's node requirements, "Network requirements". What the mode does not use is not asked for.
"""

from __future__ import annotations

import dataclasses
import urllib.parse
from collections.abc import Iterator

from ansible_collections.portcullis.fleet.plugins.plugin_utils.network_requirements import Network

BIRD_PORT, VXLAN_PORT, WIREGUARD_PORT, WIREGUARD_PORT_V6 = 179, 4789, 51820, 51821
# The text says 4789, which is what flannel needs on Windows. Source: flannel, Documentation/backends.md.
FLANNEL_PORT = 8472
ETCD_PORT = 2379
# As /proc has them, cut off after 15 characters.
BIRD = ("bird", "bird6", "calico-node", "calico-bgp-daem", "gobgpd")
TYPHA = ("calico-typha", "typha")
# Programs that are WireGuard where the kernel is not.
WIREGUARD = ("wireguard-go", "boringtun", "boringtun-cli", "wiretap")
KERNEL: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Target:
    """Where a need is met. node: its name in the cluster, empty where it is no node."""

    node: str
    address: str


@dataclasses.dataclass(frozen=True)
class Need:
    """One row of the table, as this cluster needs it.

    targets: each source has to reach each but itself. owners: the programs that may hold the port, KERNEL for none,
    None where it does not matter. serves: something has to answer there, so that a refusal is a fault too.
    other_subnet: only between nodes whose networks differ. networks: these, by node. is_mesh: sources are targets.
    """

    name: str
    protocol: str
    port: int
    why: str
    sources: tuple[str, ...]
    targets: tuple[Target, ...]
    owners: tuple[str, ...] | None = None
    serves: bool = False
    other_subnet: bool = False
    networks: tuple[tuple[str, str], ...] = ()
    is_mesh: bool = True
    # The eBPF programs of Calico see a packet before a socket does.
    bypasses_sockets: bool = False

    @property
    def words(self) -> str:
        """What is tried, as people call it."""
        where = "protocol 4" if self.protocol == "ipip" else f"{self.protocol.upper()} {self.port}"
        return f"{where} ({self.name})"


def needs_of(network: Network, read: dict) -> list[Need]:
    """All rows that are needed.

    :param network: what a cluster probe says of Calico. :param read: what PortsCluster.read returns.
    """
    return [*_calico(network, read), *_flannel(read), *_servers(network, read)]


def _mesh(name: str, protocol: str, port: int, why: str, targets: list[Target], **options: object) -> Iterator[Need]:
    """A row among these nodes, if there is a pair of them."""
    if len(targets) > 1:
        yield Need(name, protocol, port, why, tuple(item.node for item in targets), tuple(targets), **options)


def _calico(network: Network, read: dict) -> Iterator[Need]:
    runs = [item for item in read["nodes"] if network.calico_on(item["name"])]
    backend = _variable(network, "CALICO_NETWORKING_BACKEND") or "bird"
    is_canal = network.install.variant == "canal"
    if not runs or backend == "none" or is_canal or "calico.policy_only" in network.install.notes:
        yield from _wireguard(network, runs)
        return
    if backend == "bird":
        yield from _bgp(read["bgp"], runs)
    yield from _encapsulated(network, read["pools"], runs)
    yield from _wireguard(network, runs)


def _variable(network: Network, name: str) -> str:
    entry = network.install.environment.get(name)
    return (entry.value if entry else None) or ""


def _targets(nodes: list[dict], version: str) -> list[Target]:
    """The nodes that have an address of this IP version: the one that Calico uses, else the InternalIP."""
    found = [(item["name"], item["calico"].get(version) or item["internal"].get(version)) for item in nodes]
    return [Target(name, address) for name, address in found if address]


def _bgp(configuration: dict, nodes: list[dict]) -> Iterator[Need]:
    """BGP among all nodes, or with the route reflectors where the mesh is off; other peers are not nodes."""
    port = _port(configuration.get("listenPort"), BIRD_PORT)
    has_mesh = configuration.get("nodeToNodeMeshEnabled") is not False
    reflectors = {item["name"] for item in nodes if item["reflector"]}
    for version in ("4", "6"):
        targets = _targets([item for item in nodes if version == "4" or item["calico"].get("6")], version)
        if has_mesh:
            yield from _mesh("BGP", "tcp", port, "Calico routes by BGP, each node with each", targets, owners=BIRD)
        elif reflectors and len(targets) > 1:
            yield Need(
                "BGP",
                "tcp",
                port,
                "Calico routes by BGP over route reflectors",
                tuple(item.node for item in targets),
                tuple(item for item in targets if item.node in reflectors),
                owners=BIRD,
                is_mesh=False,
            )


def _encapsulated(network: Network, pools: list[dict], nodes: list[dict]) -> Iterator[Need]:
    used = [item for item in pools if item.get("disabled") is not True]
    config = network.calico_on(nodes[0]["name"]).config
    is_bpf = config.value("bpfEnabled") is True
    for version in ("4", "6"):
        mine = [item for item in used if (":" in str(item.get("cidr", ""))) == (version == "6")]
        targets = _targets(nodes, version)
        networks = tuple((item["name"], item["networks"][version]) for item in nodes if version in item["networks"])
        for key, name, protocol, port, owners in (
            ("ipipMode", "IP-in-IP", "ipip", 0, None),
            ("vxlanMode", "VXLAN", "udp", _port(config.value("vxlanPort"), VXLAN_PORT), KERNEL),
        ):
            modes = {str(item.get(key)) for item in mine}
            if not modes & {"Always", "CrossSubnet"} or (protocol == "ipip" and version == "6"):
                continue
            cross = "Always" not in modes
            why = f"a pool has {key} {'CrossSubnet' if cross else 'Always'}"
            options = {"owners": owners, "other_subnet": cross, "networks": networks, "bypasses_sockets": is_bpf}
            yield from _mesh(name, protocol, port, why, targets, **options)


def _wireguard(network: Network, nodes: list[dict]) -> Iterator[Need]:
    for version, suffix, built_in in (("4", "", WIREGUARD_PORT), ("6", "V6", WIREGUARD_PORT_V6)):
        by_port: dict[int, list[dict]] = {}
        for item in nodes:
            config = network.calico_on(item["name"]).config
            if config.value(f"wireguardEnabled{suffix}") is True:
                port = _port(config.value(f"wireguardListeningPort{suffix}"), built_in)
                by_port.setdefault(port, []).append(item)
        for port, members in by_port.items():
            why = f"wireguardEnabled{suffix} is true"
            yield from _mesh("WireGuard", "udp", port, why, _targets(members, version), owners=WIREGUARD)


def _port(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and 0 < value < 65536 else otherwise


def _flannel(read: dict) -> Iterator[Need]:
    nodes = [item for item in read["nodes"] if item["flannel_backend"] == "vxlan"]
    found = [(item["name"], item["flannel"] or item["internal"].get("4")) for item in nodes]
    targets = [Target(name, address) for name, address in found if address]
    port = _port(read["flannel"]["port"], FLANNEL_PORT)
    yield from _mesh("flannel VXLAN", "udp", port, "flannel's backend is vxlan", targets, owners=KERNEL)


def _servers(network: Network, read: dict) -> Iterator[Need]:
    """What all nodes ask: the API server, Typha, etcd where Calico keeps its objects there."""
    by_address = {address: item["name"] for item in read["nodes"] for address in item["internal"].values()}
    everyone = tuple(item["name"] for item in read["nodes"])
    runs = tuple(name for name in everyone if network.calico_on(name))
    rows = [("API server", read["api"], everyone, "the endpoints of the Service kubernetes", None)]
    rows.append(("Typha", read["typha"], runs, "the endpoints of the Service calico-typha", TYPHA))
    if _variable(network, "DATASTORE_TYPE") == "etcdv3" or _variable(network, "ETCD_ENDPOINTS"):
        etcd = _etcd_endpoints(_variable(network, "ETCD_ENDPOINTS"))
        rows.append(("etcd", etcd, runs, "ETCD_ENDPOINTS of calico-node", None))
    for name, endpoints, sources, why, owners in rows:
        ports = sorted({item["port"] for item in endpoints})
        for port in ports if sources else ():
            addresses = [item["address"] for item in endpoints if item["port"] == port]
            targets = tuple(Target(by_address.get(address, ""), address) for address in addresses)
            yield Need(name, "tcp", port, why, sources, targets, owners, serves=True, is_mesh=False)


def _etcd_endpoints(text: str) -> list[dict]:
    """C([{address, port}]) of a list of URLs; what is none is left out."""
    found = []
    for word in text.split(","):
        try:
            url = urllib.parse.urlsplit(word.strip())
            if url.hostname:
                found.append({"address": url.hostname, "port": url.port or ETCD_PORT})
        except ValueError:
            continue
    return found
