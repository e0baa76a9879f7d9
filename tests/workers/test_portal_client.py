"""The client of the portal for threads: it trusts the authority that the environment names."""

import ssl
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.kubernetes_files import write_certificates
from workers.portal_client.client import PortalClient, PortalUnreachable


class _Quiet(SimpleHTTPRequestHandler):
    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Print nothing."""


@pytest.fixture
def portal(tmp_path: Path) -> Iterator[str]:
    """A server with a certificate of an authority of its own, `ca.crt`."""
    write_certificates(tmp_path, ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "kube-apiserver.crt", tmp_path / "kube-apiserver.key")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(tmp_path)))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_it_trusts_the_authority_of_the_environment_and_uses_no_proxy(
    portal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    stranger = PortalClient()
    with pytest.raises(PortalUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
        stranger.request("GET", f"{portal}/ca.crt")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
    client = PortalClient()
    assert client.request("GET", f"{portal}/ca.crt").text.startswith("-----BEGIN CERTIFICATE-----")
    stranger.close()
    client.close()
