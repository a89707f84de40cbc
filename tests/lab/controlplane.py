"""etcd, the API server, the controller manager and the scheduler, as programs inside the lab's namespaces."""

from pathlib import Path

from tests.lab import forward, pki
from tests.lab.api import Api
from tests.lab.namespace import GATEWAY, Namespace
from tests.lab.run import wait
from tests.lab.state import Store

API_PORT = 6443
SERVER = f"https://{GATEWAY}:{API_PORT}"
SERVICE_NETWORK = "10.96.0.0/16"
POD_NETWORK = "10.244.0.0/16"
_KUBERNETES_SERVICE = "10.96.0.1"
_ETCD = "http://127.0.0.1:2379"
_HOSTS = ("127.0.0.1", GATEWAY, _KUBERNETES_SERVICE, "localhost", "kubernetes", "kubernetes.default")
_HOSTS += ("kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
_READY_TIMEOUT_S = 90


def make_pki(directory: Path) -> None:
    """All certificates that do not belong to a node."""
    authority, proxy_authority = pki.Authority.create("kubernetes"), pki.Authority.create("front-proxy-ca")
    pki.write_pair(directory, "ca", authority.pair)
    pki.write_pair(directory, "front-proxy-ca", proxy_authority.pair)
    pki.write_pair(directory, "sa", pki.signing_key())
    masters = ["system:masters"]
    pki.write_pair(directory, "apiserver", authority.issue("kube-apiserver", hosts=_HOSTS))
    pki.write_pair(directory, "apiserver-kubelet-client", authority.issue("kubelet-client", groups=masters))
    pki.write_pair(directory, "front-proxy-client", proxy_authority.issue("front-proxy-client"))
    pki.write_pair(directory, "admin", authority.issue("kubernetes-admin", groups=masters))
    for program in ("kube-controller-manager", "kube-scheduler"):
        user = f"system:{program}"
        text = pki.kubeconfig(SERVER, authority.pair.certificate, authority.issue(user), user)
        pki.write(directory / f"{program}.conf", text)


def _etcd(data: Path) -> list[str]:
    peer = "http://127.0.0.1:2380"
    urls = [f"--listen-client-urls={_ETCD}", f"--advertise-client-urls={_ETCD}", f"--listen-peer-urls={peer}"]
    urls += [f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"]
    return [f"--data-dir={data}", "--unsafe-no-fsync", "--log-level=warn", *urls]


def _apiserver(files: Path) -> list[str]:
    return [
        f"--etcd-servers={_ETCD}",
        f"--bind-address={GATEWAY}",
        f"--advertise-address={GATEWAY}",
        f"--secure-port={API_PORT}",
        f"--client-ca-file={files}/ca.crt",
        f"--tls-cert-file={files}/apiserver.crt",
        f"--tls-private-key-file={files}/apiserver.key",
        f"--kubelet-client-certificate={files}/apiserver-kubelet-client.crt",
        f"--kubelet-client-key={files}/apiserver-kubelet-client.key",
        f"--kubelet-certificate-authority={files}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={files}/sa.crt",
        f"--service-account-signing-key-file={files}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--requestheader-client-ca-file={files}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={files}/front-proxy-client.crt",
        f"--proxy-client-key-file={files}/front-proxy-client.key",
        # No kube-proxy runs beside the API server: it reaches webhooks by their endpoints.
        "--enable-aggregator-routing=true",
    ]


def _with_kubeconfig(file: Path) -> list[str]:
    names = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    return [*(f"--{name}={file}" for name in names), "--bind-address=127.0.0.1", "--leader-elect=false"]


def _controller_manager(files: Path) -> list[str]:
    return [
        *_with_kubeconfig(files / "kube-controller-manager.conf"),
        f"--root-ca-file={files}/ca.crt",
        f"--service-account-private-key-file={files}/sa.key",
        f"--cluster-signing-cert-file={files}/ca.crt",
        f"--cluster-signing-key-file={files}/ca.key",
        f"--cluster-cidr={POD_NETWORK}",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        # The lab gives each node its pods' network itself, since the node's CNI configuration has to name it.
        "--allocate-node-cidrs=false",
        "--use-service-account-credentials=true",
        # At its own pace of 20 requests a second, the last controllers start 6 s late.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]


def start(namespace: Namespace, store: Store, binaries: Path) -> Api:
    """Start the four programs and the way in, and wait until the API server is ready; make_pki comes first."""
    files = store.directory / "pki"
    arguments = {
        "etcd": _etcd(store.directory / "etcd"),
        "kube-apiserver": _apiserver(files),
        "kube-controller-manager": _controller_manager(files),
        "kube-scheduler": _with_kubeconfig(files / "kube-scheduler.conf"),
    }
    port = forward.start(namespace, "forward-api", f"{GATEWAY}:{API_PORT}")
    with store.change() as state:
        state.api_port = port
    authority, admin = pki.read_pair(files, "ca"), pki.read_pair(files, "admin")
    text = pki.kubeconfig(f"https://127.0.0.1:{port}", authority.certificate, admin, "kubernetes-admin")
    pki.write(store.directory / "kubeconfig", text)
    api = Api(port, files)
    for program in ("etcd", "kube-apiserver"):
        namespace.start(program, [binaries / program, *arguments.pop(program)])

    def ready() -> bool:
        for program in ("etcd", "kube-apiserver"):
            namespace.check(program)
        return api.ready()

    try:
        wait("the API server is ready", ready, timeout_s=_READY_TIMEOUT_S)
    except Exception as error:
        error.add_note(f"the end of kube-apiserver's log:\n{namespace.log_tail('kube-apiserver')}")
        raise
    # Not before: the controller manager gives up when it finds no API server.
    for program, words in arguments.items():
        namespace.start(program, [binaries / program, *words])
    return api
