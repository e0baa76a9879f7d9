"""A real Kubernetes cluster on this machine, in a folder: the servers, and a node with containerd.

`scripts/build-kubernetes` makes the servers (1.20) and installs the rest, as root. Images come from
local files; pods get Python and this clone by volumes of the machine. The node has an address of
its own on the loopback device, where pods reach what forwards to a portal.
"""

import base64
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml
from kubernetes import client, utils
from kubernetes.client.exceptions import ApiException
from kubernetes.config import new_client_from_config

from portal.config.setup.lock import file_lock
from tests.kubernetes_files import (
    TOKENS,
    unmount_below,
    write_certificates,
    write_containerd,
    write_kubeconfig,
    write_kubelet,
)
from tests.oci_images import write_image
from tests.ports import free_ports
from tests.processes import ROOT, Program, wait_for

_CACHE = os.environ.get("TEST_KUBERNETES_CACHE", "/var/tmp/slipway-test-kubernetes")  # noqa: S108
BINARIES = Path(_CACHE) / "bin"
SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
NAMESPACE = "vision"
IMAGE = "slipway.test/agent:1"
NODE = "n1"
_SUBNET = "10.88.77.0/24"
_ADDRESS = "10.88.78.1"
# Notebooks need a host other than the portal's.
_NOTEBOOKS_ADDRESS = "10.88.78.2"
_STARTS_WITHIN_S = 120
# The identity of pods in the image.
USER_ID = 10002


def reason_without() -> str:
    """Return why no cluster can run here, "" if one can."""
    missing = [name for name in SERVERS if not (BINARIES / name).exists()]
    if missing:
        return f"{BINARIES} lacks {', '.join(missing)}: run scripts/build-kubernetes"
    path = os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/sbin"))
    lacking = [name for name in ("etcd", "containerd", "runc") if not shutil.which(name, path=path)]
    if lacking:
        return f"{', '.join(lacking)} is not installed: run scripts/build-kubernetes"
    return "" if os.getuid() == 0 else "containers need root"


@dataclass
class KubernetesCluster:
    """A cluster of one node. `api` speaks for its administrator."""

    folder: Path
    ports: list[int]
    programs: dict[str, Program] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """The address of this machine that pods reach."""
        return _ADDRESS

    @property
    def notebooks_address(self) -> str:
        """Another address of this machine that pods reach."""
        return _NOTEBOOKS_ADDRESS

    @property
    def kubeconfig(self) -> Path:
        """The file of Slipway's account, with the rights in deploy/kubernetes alone."""
        return self.folder / "slipway.kubeconfig"

    @property
    def admin(self) -> client.ApiClient:
        """A client of the administrator."""
        return new_client_from_config(str(self.folder / "admin.kubeconfig"), persist_config=False)

    @property
    def api(self) -> client.CoreV1Api:
        """Pods, nodes and events, as the administrator."""
        return client.CoreV1Api(self.admin)

    def settings(self, *, has_shared_folder: bool = False, **changes: Any) -> dict[str, Any]:
        """Return the settings of a pool here. Pods may share the folder of their agents."""
        prefix = Path(sys.prefix).resolve()
        volumes = ["usr:/usr:ro", f"clone:{ROOT}:ro", f"environment:{prefix}:ro"]
        if has_shared_folder:
            volumes.append("nodes:/var/lib/slipway")
        return {
            "kubeconfig": str(self.kubeconfig),
            **({} if "project_namespace" in changes else {"namespace": NAMESPACE}),
            "image": IMAGE,
            "python": sys.executable,
            "task_python": sys.executable,
            "volumes": ", ".join(volumes),
            **changes,
        }

    def pods(self, namespace: str = NAMESPACE) -> list[Any]:
        """Return the pods of a namespace."""
        items: list[Any] = self.api.list_namespaced_pod(namespace).items
        return items

    def api_of(self, user: str) -> client.CoreV1Api:
        """Pods and the like, with the rights of a user."""
        acting = self.admin
        acting.set_default_header("Impersonate-User", user)
        return client.CoreV1Api(acting)

    def api_of_slipway(self) -> client.CoreV1Api:
        """Pods and the like, with the rights of Slipway's account."""
        return client.CoreV1Api(new_client_from_config(str(self.kubeconfig), persist_config=False))

    def cordon(self, is_closed: bool) -> None:
        """Close the node for new pods, or open it."""
        self.api.patch_node(NODE, {"spec": {"unschedulable": is_closed}})

    def evict(self, pod: str) -> None:
        """Evict a pod as `kubectl drain` does."""
        body = {"metadata": {"name": pod, "namespace": NAMESPACE}}
        self.api.create_namespaced_pod_eviction(
            pod, NAMESPACE, body | {"kind": "Eviction", "apiVersion": "policy/v1beta1"}
        )

    def create_priority(self, name: str, value: int) -> None:
        """Create a class of priorities."""
        client.SchedulingV1Api(self.admin).create_priority_class(
            {"metadata": {"name": name}, "value": value}
        )

    def start(self, name: str) -> None:
        """Start a server, again after it was killed."""
        path = os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/sbin"))
        self.programs[name] = Program(
            self._argv(name),
            env=os.environ | {"PATH": path},
            output=self.folder / f"{name}.log",
        )

    def _argv(self, name: str) -> list[str]:
        folder = self.folder
        kubeconfig = f"--kubeconfig={folder}/admin.kubeconfig"
        binary = str(BINARIES / name)
        if name == "etcd":
            client_url = f"http://127.0.0.1:{self.ports[1]}"
            return [
                *("etcd", "--data-dir", f"{folder}/etcd", "--unsafe-no-fsync"),
                *("--listen-client-urls", client_url, "--advertise-client-urls", client_url),
                *("--listen-peer-urls", f"http://127.0.0.1:{self.ports[2]}"),
            ]
        if name == "containerd":
            return ["containerd", "--config", f"{folder}/containerd.toml"]
        if name == "kube-apiserver":
            return [
                *(binary, f"--etcd-servers=http://127.0.0.1:{self.ports[1]}"),
                *(f"--secure-port={self.ports[0]}", "--bind-address=127.0.0.1"),
                "--advertise-address=127.0.0.1",
                f"--tls-cert-file={folder}/kube-apiserver.crt",
                f"--tls-private-key-file={folder}/kube-apiserver.key",
                f"--client-ca-file={folder}/ca.crt",
                f"--token-auth-file={folder}/tokens.csv",
                f"--service-account-key-file={folder}/sa.pub",
                f"--service-account-signing-key-file={folder}/sa.key",
                "--service-account-issuer=https://kubernetes.default.svc",
                *("--service-cluster-ip-range=10.0.0.0/24", "--authorization-mode=Node,RBAC"),
                "--kubelet-preferred-address-types=InternalIP",
                f"--kubelet-client-certificate={folder}/admin.crt",
                f"--kubelet-client-key={folder}/admin.key",
            ]
        if name == "kube-controller-manager":
            return [
                *(binary, kubeconfig, "--leader-elect=false", "--port=0", "--secure-port=0"),
                f"--service-account-private-key-file={folder}/sa.key",
                *(f"--root-ca-file={folder}/ca.crt", "--use-service-account-credentials"),
            ]
        if name == "kube-scheduler":
            return [binary, kubeconfig, "--leader-elect=false", "--port=0", "--secure-port=0"]
        return [
            *(binary, f"--config={folder}/kubelet.yaml", f"--root-dir={folder}/kubelet"),
            *(f"--kubeconfig={folder}/kubelet.kubeconfig", f"--hostname-override={NODE}"),
            *("--container-runtime=remote", f"--cert-dir={folder}/kubelet-pki"),
            f"--container-runtime-endpoint=unix://{folder}/containerd.sock",
            *(f"--node-ip={_ADDRESS}", f"--volume-plugin-dir={folder}/plugins"),
        ]

    # Steps of the start and of the end

    def write(self, *, reserved_cpus: int) -> None:
        """Write certificates and settings."""
        folder = self.folder
        write_certificates(folder, [_ADDRESS])
        lines = [f"{token},{user},{user},{group}" for token, (user, group) in TOKENS.items()]
        (folder / "tokens.csv").write_text("\n".join(lines) + "\n", "ascii")
        for token in TOKENS:
            name = token.partition("-")[0]
            self._kubeconfig(folder / f"{name}.kubeconfig", token)
        write_containerd(folder, _SUBNET)
        write_kubelet(
            folder,
            address=_ADDRESS,
            ports=(self.ports[3], self.ports[4]),
            reserved_cpus=reserved_cpus,
        )

    def _kubeconfig(self, file: Path, token: str) -> None:
        server = f"https://127.0.0.1:{self.ports[0]}"
        write_kubeconfig(file, server=server, authority=self.folder / "ca.crt", token=token)

    def import_images(self) -> None:
        """Import the image of the sandbox, and the image of agents, which has no files itself."""
        busybox = {"bin/busybox": Path("/bin/busybox")}
        pause = ["/bin/busybox", "sleep", "100000000"]
        user = f"slipway:x:{USER_ID}:{USER_ID}::/:/bin/sh\n".encode()
        links = {name: f"usr/{name}" for name in ("lib", "lib64", "sbin")} | {"bin/sh": "busybox"}
        variables = {"PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        files: dict[str, Path | bytes] = {"etc/passwd": user, **busybox}
        for name, archive in (("slipway.test/pause:1", "pause.tar"), (IMAGE, "agent.tar")):
            write_image(
                self.folder / archive,
                name,
                files=files,
                links=links,
                entrypoint=pause,
                variables=variables,
            )
            self._ctr("images", "import", "--snapshotter", "native", str(self.folder / archive))

    def _ctr(self, *arguments: str) -> str:
        done = subprocess.run(
            ["ctr", "--address", f"{self.folder}/containerd.sock", "-n", "k8s.io", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"ctr {arguments}: {done.stderr}"
        return done.stdout

    def prepare(self) -> None:
        """Create the namespace, Slipway's account with its rights, and the volumes of pods."""
        self.api.create_namespace({"metadata": {"name": NAMESPACE}})
        for document in manifests_of(ROOT / "deploy" / "kubernetes" / "rbac.yaml"):
            self.apply(document)
        for document in manifests_of(ROOT / "deploy" / "kubernetes" / "nodes.yaml"):
            self.apply(document)
        self._mount_programs(NAMESPACE)
        shared = self.folder / "shared"
        shared.mkdir()
        os.chown(shared, USER_ID, USER_ID)
        self.create_volume("nodes", shared, "ReadWriteMany")
        wait_for(lambda: self._account_token("slipway"), "token of the account", within_s=60)
        self._kubeconfig(self.kubeconfig, self._account_token("slipway"))

    def apply(self, document: dict[str, Any]) -> None:
        """Create an object in its own namespace, else in that of the tests."""
        for subject in document.get("subjects", ()):
            if subject["kind"] == "ServiceAccount":
                subject["namespace"] = NAMESPACE
        utils.create_from_dict(self.admin, document, namespace=NAMESPACE)

    def create_project(self, project: str) -> str:
        """Create the namespace of a project, with volumes; answers its name."""
        namespace = f"slipway-{project}"
        for document in manifests_of(ROOT / "deploy" / "kubernetes" / "project.yaml", project):
            self.apply(document)
        self._mount_programs(namespace)
        return namespace

    def _mount_programs(self, namespace: str) -> None:
        prefix = Path(sys.prefix).resolve()
        for name, path in (("usr", Path("/usr")), ("clone", ROOT), ("environment", prefix)):
            self.create_volume(name, path, namespace=namespace)

    def create_volume(
        self, name: str, path: Path, mode: str = "ReadOnlyMany", *, namespace: str = NAMESPACE
    ) -> None:
        """Create a claim that a folder of this machine meets."""
        volume = f"{namespace}-{name}"
        spec = {"accessModes": [mode], "storageClassName": ""}
        self.api.create_persistent_volume(
            {
                "metadata": {"name": volume},
                "spec": spec
                | {
                    "capacity": {"storage": "1Gi"},
                    "hostPath": {"path": str(path)},
                    "claimRef": {"name": name, "namespace": namespace},
                },
            }
        )
        resources = {"requests": {"storage": "1Gi"}}
        self.api.create_namespaced_persistent_volume_claim(
            namespace,
            {
                "metadata": {"name": name},
                "spec": spec | {"resources": resources, "volumeName": volume},
            },
        )

    def _account_token(self, account: str) -> str:
        for secret in self.api.list_namespaced_secret(NAMESPACE).items:
            annotations = secret.metadata.annotations or {}
            if annotations.get("kubernetes.io/service-account.name") == account and secret.data:
                return base64.b64decode(secret.data["token"]).decode()
        return ""

    def is_ready(self) -> bool:
        """Return True if the node takes pods."""
        for node in self.api.list_node().items:
            conditions = {entry.type: entry.status for entry in node.status.conditions or ()}
            return conditions.get("Ready") == "True"
        return False

    def has_api(self) -> bool:
        """Return True if the API answers."""
        program = self.programs["kube-apiserver"]
        assert program.process.poll() is None, program.text()[-2000:]
        try:
            url = f"https://127.0.0.1:{self.ports[0]}/readyz"
            return httpx.get(url, verify=False, timeout=5).is_success  # noqa: S501
        except httpx.TransportError:
            return False

    def delete_pods(self) -> None:
        """Delete all pods at once and wait for the end of their sandboxes.

        A network that is left would take the packets of a pod of the next cluster.
        """
        for pod in self._pods_of_all():
            with suppress(ApiException):
                self.api.delete_namespaced_pod(
                    pod.metadata.name, pod.metadata.namespace, grace_period_seconds=1
                )
        with suppress(AssertionError):
            wait_for(lambda: not self._pods_of_all(), "end of all pods", within_s=60)

    def _pods_of_all(self) -> list[Any]:
        items: list[Any] = self.api.list_pod_for_all_namespaces().items
        return items

    def shims(self) -> list[int]:
        """Return the processes that containerd has started, which outlive it."""
        mark = f"{self.folder}/containerd".encode()
        pids = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                words = path.read_bytes()
                if b"containerd-shim" in words and mark in words:
                    pids.append(int(path.parent.name))
        return pids


def manifests_of(file: Path, project: str = "") -> list[dict[str, Any]]:
    """Return the documents of a file, for a project."""
    text = file.read_text("utf-8").replace("PROJECT", project).replace("NAMESPACE", NAMESPACE)
    return list(yaml.safe_load_all(text))


@contextmanager
def running_kubernetes(folder: Path, *, cpus: int = 2) -> Iterator[KubernetesCluster]:
    """Yield a cluster whose node has `cpus` for pods. Its folder must be new.

    There is one at a time, because all of them have the same addresses.
    """
    with file_lock(Path(_CACHE) / "lock"):
        yield from _running(folder, cpus)


def _running(folder: Path, cpus: int) -> Iterator[KubernetesCluster]:
    folder.mkdir(mode=0o755)
    cluster = KubernetesCluster(folder, free_ports(5))
    for address in (_ADDRESS, _NOTEBOOKS_ADDRESS):
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=False)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1", "ascii")
    try:
        cluster.write(reserved_cpus=max(0, (os.cpu_count() or 1) - cpus))
        cluster.start("etcd")
        cluster.start("containerd")
        cluster.start("kube-apiserver")
        wait_for((folder / "containerd.sock").exists, "containerd", within_s=_STARTS_WITHIN_S)
        cluster.import_images()
        wait_for(cluster.has_api, "API server", within_s=_STARTS_WITHIN_S)
        cluster.start("kube-controller-manager")
        cluster.start("kube-scheduler")
        cluster.start("kubelet")
        cluster.prepare()
        wait_for(cluster.is_ready, "node", within_s=_STARTS_WITHIN_S)
        yield cluster
    finally:
        with suppress(Exception):
            cluster.delete_pods()
        for program in reversed(cluster.programs.values()):
            program.end()
        for pid in cluster.shims():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # What is left mounted would lead whoever removes the folder out of it.
        unmount_below(folder)
        for address in (_ADDRESS, _NOTEBOOKS_ADDRESS):
            subprocess.run(["ip", "address", "del", f"{address}/32", "dev", "lo"], check=False)
