"""Container images of environments, from a Dockerfile without any user input."""

import asyncio
import hashlib
import io
import logging
import re
import secrets
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from slipway.schemas.agent import EnvironmentSpec
from slipway.schemas.workloads import ReasonCode
from workers.node_agent.backends.base import BuildLog
from workers.node_agent.backends.engine import Engine, EngineError
from workers.node_agent.build_steps import build_variables
from workers.node_agent.errors import StartError
from workers.node_agent.folders import checked_digest
from workers.node_agent.package_archives import FetchArchive, fetch_all, no_archives
from workers.node_agent.requirement_lines import NodeRequirements, checked_requirements

log = logging.getLogger(__name__)
_IMAGE_NAME = re.compile(r"[a-z0-9]+(?:[._/:@-]+[A-Za-z0-9]+)*")
_PYTHON = re.compile(r"\d+\.\d+(?:\.\d+)?")
_BUILD_LABEL: Final = "slipway.build"
_PRUNES: Final = 100
_PRUNE_EVERY_S: Final = 0.2
_EVERYBODY: Final = "all"
INTERPRETER: Final = "/opt/environment/bin/python"
# Two stages: settings for reaching the package index remain in the first one, which is removed by
# its label. The layer cache is not used, because all projects would share it.
_DOCKERFILE: Final = """\
FROM {base} AS build
LABEL {label}={build}
COPY files/ /slipway-build/
RUN . /slipway-build/variables \\
 && python3 -m venv /opt/environment \\
 && /opt/environment/bin/python -m pip install --no-input --no-cache-dir \\
      --disable-pip-version-check --progress-bar off {only} -r /slipway-build/requirements.txt
FROM {base}
COPY --from=build /opt/environment /opt/environment
"""
_ARCHIVES: Final = Path("/slipway-build/archives")
_AUTHORITIES: Final = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PIP_FILES: Final = ("/etc/pip.conf",)


def dockerfile(base: str, build: str, *, only_wheels: bool) -> str:
    """The recipe for an environment on a base image named by the operator. Raises StartError."""
    if not _IMAGE_NAME.fullmatch(base):
        raise StartError(f"The base image {base[:100]!r} is not an image name.")
    only = "--only-binary :all:" if only_wheels else ""
    return _DOCKERFILE.format(base=base, label=_BUILD_LABEL, build=build, only=only)


def variables_script(variables: dict[str, str]) -> str:
    """Return a shell script that sets the variables, each value quoted."""
    quoted = (
        "export {}='{}'".format(name, value.replace("'", "'\\''"))
        for name, value in sorted(variables.items())
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and "\n" not in value
    )
    return "\n".join((*quoted, ""))


class ImageStore:
    """The images on one engine, named after project, environment and the base they were built from.

    What is installed may have been built from source by code that a project chose, so no image of a
    project is another's. That of tasks which name no environment holds wheels alone, for everybody.
    """

    def __init__(self, engine: Engine, base: str, extra_files: tuple[Path, ...] = ()) -> None:
        self._engine = engine
        self._base = base
        self._extra_files = extra_files

    async def ensure(
        self,
        spec: EnvironmentSpec,
        build_log: BuildLog,
        project: str | None = None,
        fetch: FetchArchive = no_archives,
    ) -> str:
        """The image of an environment, built now if it is not there. Raises StartError.

        Without a project it is everybody's, and made of wheels alone. `fetch` gets the archives
        that the requirements name by their digests.
        """
        requirements = checked_requirements(spec.requirements, spec.secrets)
        digest = checked_digest(spec.digest, "environment")
        if not _PYTHON.fullmatch(spec.python):
            raise _failed(f"{spec.python[:50]!r} is not a version of Python")
        base = hashlib.sha256(self._base.encode()).hexdigest()[:12]
        scope = hashlib.sha256(project.encode()).hexdigest()[:16] if project else _EVERYBODY
        tag = f"slipway-environment:{digest[:48]}-{base}-{scope}"
        build = secrets.token_hex(8)
        try:
            if await self._exists(tag):
                return tag
            with tempfile.TemporaryDirectory() as folder:
                await fetch_all(fetch, requirements, Path(folder))
                context = self._context(
                    requirements.with_archives_in(_ARCHIVES),
                    build,
                    only_wheels=project is None and not requirements.from_source,
                    archives=Path(folder),
                )
            try:
                await self._engine.build(context, tag, build_log.write)
            finally:
                await asyncio.shield(self._prune_stages(build))
        except EngineError as error:
            raise _failed(str(error)) from error
        return tag

    async def _exists(self, tag: str) -> bool:
        try:
            await self._engine.call(lambda docker: docker.inspect_image(tag))
        except EngineError as error:
            if error.status == 404:
                return False
            raise
        return True

    async def _prune_stages(self, build: str) -> None:
        """Remove the layers that held the way to the index, and the passwords in its address.

        The engine keeps them while a container has them. After a cancelled build it takes a moment
        to end that one.
        """
        label = f"{_BUILD_LABEL}={build}"
        containers, images = {"label": label}, {"dangling": True, "label": label}
        try:
            for _ in range(_PRUNES):
                running = await self._engine.call(
                    lambda docker: docker.containers(all=True, filters=containers)
                )
                await self._engine.call(lambda docker: docker.prune_images(images))
                if not running:
                    return
                await asyncio.sleep(_PRUNE_EVERY_S)
        except EngineError as error:
            log.warning("layers of the build %s could not be removed: %s", build, error)

    def _context(
        self, requirements: NodeRequirements, build: str, *, only_wheels: bool, archives: Path
    ) -> bytes:
        """The tar the engine builds from."""
        buffer = io.BytesIO()
        variables = build_variables()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            recipe = dockerfile(self._base, build, only_wheels=only_wheels)
            _add(tar, "Dockerfile", recipe.encode())
            file = requirements.file(has_indexes=True)
            _add(tar, "files/requirements.txt", file.encode())
            _add(tar, "files/constraints.txt", requirements.constraints.encode())
            for place in requirements.archive_places():
                _add(tar, f"files/archives/{place}", (archives / place).read_bytes())
            bundle = next(filter(Path.is_file, map(_path_in(variables), _AUTHORITIES)), None)
            if bundle is not None:
                _add(tar, "files/authorities.pem", bundle.read_bytes())
                # All of them, because some take precedence over pip's own option.
                variables.update(dict.fromkeys(_AUTHORITIES, "/slipway-build/authorities.pem"))
            for path in (*map(Path, _PIP_FILES), *self._extra_files):
                if path.is_file():
                    _add(tar, f"files/{path.name}", path.read_bytes())
                    variables.setdefault("PIP_CONFIG_FILE", f"/slipway-build/{path.name}")
            _add(tar, "files/variables", variables_script(variables).encode())
        return buffer.getvalue()


def _path_in(variables: dict[str, str]) -> Callable[[str], Path]:
    return lambda name: Path(variables.get(name, ""))


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = 0o644
    tar.addfile(entry, io.BytesIO(content))


def _failed(why: str) -> StartError:
    return StartError(f"The image could not be built: {why}.", ReasonCode.ENVIRONMENT_FAILED)
