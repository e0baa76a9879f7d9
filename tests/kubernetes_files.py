"""Certificates and settings of the servers of a Kubernetes cluster for tests."""

import ipaddress
import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

# Static tokens of this throw-away cluster, which listens on the loopback interface.
TOKENS = {
    "admin-token": ("admin", "system:masters"),
    "kubelet-token": ("system:node:n1", "system:nodes"),
}


def write_certificates(folder: Path, addresses: list[str]) -> None:
    """Write ca, server, admin (a client of kubelets) and sa (a pair of keys) to a folder."""
    authority, authority_key = _certificate("slipway-test-ca", None, None, addresses)
    _save(folder / "ca", authority, authority_key)
    for name, organization in (("kube-apiserver", None), ("admin", "system:masters")):
        certificate, key = _certificate(
            name, organization, (authority, authority_key), ["127.0.0.1", "10.0.0.1", *addresses]
        )
        _save(folder / name, certificate, key)
    key = _key()
    (folder / "sa.key").write_bytes(_pem(key))
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / "sa.pub").write_bytes(public)


def _certificate(
    name: str,
    organization: str | None,
    issuer: tuple[x509.Certificate, rsa.RSAPrivateKey] | None,
    addresses: list[str],
) -> tuple[x509.Certificate, rsa.RSAPrivateKey]:
    key = _key()
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if organization:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    subject = x509.Name(attributes)
    now = datetime.now(UTC)
    names = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    return builder.sign(issuer[1] if issuer else key, hashes.SHA256()), key


def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _save(path: Path, certificate: x509.Certificate, key: rsa.RSAPrivateKey) -> None:
    path.with_suffix(".crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    path.with_suffix(".key").write_bytes(_pem(key))


def write_kubeconfig(file: Path, *, server: str, authority: Path, token: str) -> None:
    """Write a file with which clients reach the API as the owner of a token."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [
            {"name": "test", "cluster": {"server": server, "certificate-authority": str(authority)}}
        ],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    file.write_text(yaml.safe_dump(document), "utf-8")


def write_containerd(folder: Path, subnet: str) -> None:
    """Write the configuration of containerd, and of the network of its pods."""
    (folder / "cni").mkdir()
    # Machines without CAP_SYS_RESOURCE cannot lower the score of a sandbox.
    (folder / "containerd.toml").write_text(
        f"""version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-state"
[grpc]
  address = "{folder}/containerd.sock"
[ttrpc]
  address = "{folder}/containerd.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "slipway.test/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
""",
        "utf-8",
    )
    ipam = {
        "type": "host-local",
        "subnet": subnet,
        "dataDir": f"{folder}/ipam",
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    network = {
        "cniVersion": "0.4.0",
        "name": "slipway-test",
        "plugins": [{"type": "ptp", "ipMasq": False, "ipam": ipam}],
    }
    (folder / "cni" / "10.conflist").write_text(json.dumps(network), "utf-8")


def write_kubelet(
    folder: Path, *, address: str, ports: tuple[int, int], reserved_cpus: int
) -> None:
    """Write the configuration of the kubelet."""
    document: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{folder}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": "/",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "address": address,
        "port": ports[0],
        "healthzPort": ports[1],
        "healthzBindAddress": "127.0.0.1",
        "evictionHard": {"memory.available": "50Mi"},
        "resolvConf": "",
        "nodeStatusUpdateFrequency": "5s",
        "syncFrequency": "10s",
    }
    if reserved_cpus:
        document["systemReserved"] = {"cpu": str(reserved_cpus)}
    (folder / "kubelet.yaml").write_text(yaml.safe_dump(document), "utf-8")


def unmount_below(folder: Path) -> None:
    """Unmount whatever kubelet and containerd have left mounted in a folder."""
    lines = Path("/proc/self/mounts").read_text("utf-8").splitlines()
    points = [line.split()[1] for line in lines]
    for point in sorted((p for p in points if p.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)
