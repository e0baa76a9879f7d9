"""A registry of images on this machine, with an account: the program of Debian, in a folder."""

import base64
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import yaml

from tests.ports import free_ports
from tests.processes import Program, wait_for

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import crypt

PROGRAM = os.environ.get("TEST_DOCKER_REGISTRY", "")
_USER, _PASSWORD = "slipway", "a-password-of-tests"


@dataclass(frozen=True)
class ImageRegistry:
    """A running registry. Both Docker and containerd speak HTTP with this machine."""

    host: str
    folder: Path

    @property
    def accounts(self) -> Path:
        """A file like Docker's `config.json`."""
        return self.folder / "config.json"

    def repositories(self) -> list[str]:
        """Return the names of what was pushed."""
        url = f"http://{self.host}/v2/_catalog"
        names: list[str] = httpx.get(url, auth=(_USER, _PASSWORD)).json()["repositories"]
        return names


@contextmanager
def running_registry(folder: Path, *, is_open: bool = False) -> Iterator[ImageRegistry]:
    """Yield an empty registry on the loopback device, which asks for an account unless open."""
    folder.mkdir()
    (port,) = free_ports(1)
    registry = ImageRegistry(f"127.0.0.1:{port}", folder)
    method = crypt.METHOD_BLOWFISH
    secret = crypt.crypt(_PASSWORD, crypt.mksalt(method, rounds=2**4))
    (folder / "htpasswd").write_text(f"{_USER}:{secret}\n", "ascii")
    account = base64.b64encode(f"{_USER}:{_PASSWORD}".encode()).decode()
    registry.accounts.write_text(json.dumps({"auths": {registry.host: {"auth": account}}}))
    settings = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(folder / "images")}},
        "http": {"addr": registry.host},
    }
    if not is_open:
        settings["auth"] = {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}
    (folder / "config.yml").write_text(yaml.safe_dump(settings))
    program = Program([PROGRAM, "serve", str(folder / "config.yml")], env={}, output=folder / "log")
    try:
        wait_for(lambda: _answers(registry), "registry", within_s=60)
        yield registry
    finally:
        program.end()


def _answers(registry: ImageRegistry) -> bool:
    try:
        status = httpx.get(f"http://{registry.host}/v2/").status_code
    except httpx.TransportError:
        return False
    return status in (httpx.codes.OK, httpx.codes.UNAUTHORIZED)
