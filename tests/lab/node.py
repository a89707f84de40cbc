"""Container nodes: systemd-nspawn machines on an overlay of the shared root file system."""

from tests.lab import cgroups, images
from tests.lab.machine import Machine
from tests.lab.namespace import BRIDGE

# nspawn asks to be started again, with this exit code, when the machine inside reboots.
# The loop stays out of the node's cgroup, which nspawn divides: on cgroup v2 it must not have processes of its own.
_BOOT = """
cgroup=$1
shift
while :; do
    (
        for directory in /sys/fs/cgroup "/sys/fs/cgroup"/*; do
            [ ! -d "$directory/$cgroup" ] || sh -c 'echo "$PPID" >"$1"' sh "$directory/$cgroup/cgroup.procs"
        done
        exec systemd-nspawn "$@"
    )
    code=$?
    [ "$code" = 133 ] || exit "$code"
done
"""


class ContainerNode(Machine):
    """A systemd-nspawn machine."""

    shares_kernel = True

    def prepare(self) -> None:
        """Its overlay's upper layer, and plain directories for what must not lie on an overlay."""
        self._kubelet = self._directory / "kubelet"
        for name in ("upper", "work", "root", "containerd", "kubelet"):
            (self._directory / name).mkdir(parents=True, mode=0o755)
        self._write_own_files()
        if self._node.containerd != "none":
            source = images.template(self._parts.debian, self._parts.binaries, self._node.images)
            images.copy_template(source, self._directory / "containerd")

    def boot(self) -> None:
        """Mount the overlay inside the lab's mount namespace and start the machine."""
        name, directory = self._node.name, self._directory
        cgroups.make(self._namespace.cgroup(self._process))
        line = self._parts.lines.get(self._node.containerd)
        lower = [*([line] if line else []), self._parts.layer, self._parts.debian]
        layers = f"lowerdir={':'.join(map(str, lower))},upperdir={self._upper},workdir={directory / 'work'}"
        self._namespace.run(["mount", "-t", "overlay", "overlay", "-o", f"{layers},volatile", directory / "root"])
        self._route_pods()
        arguments = [
            *("--quiet", "--settings=no", "--keep-unit", "--register=no", "--boot", "--link-journal=no"),
            *("--resolv-conf=off", "--timezone=off", "--capability=all", "--system-call-filter=@known"),
            *(f"--directory={directory / 'root'}", f"--machine={name}", f"--network-bridge={BRIDGE}"),
            f"--bind-ro={self._parts.binaries}:/opt/k8s",
            f"--bind={directory / 'containerd'}:/var/lib/containerd",
            f"--bind={self._kubelet}:/var/lib/kubelet",
        ]
        self._namespace.start(self._process, ["sh", "-c", _BOOT, "sh", self._process, *arguments])

    def _detach(self) -> None:
        """Unmount its overlay."""
        root = self._directory / "root"
        self._namespace.run(["sh", "-c", 'mountpoint -q "$1" && umount "$1" || true', "sh", root])
