"""Sources of the packages of a job: its request, or files in the folder of its code."""

import posixpath
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from portal.compute.models import Pool
from portal.compute.services.conda_environments import (
    CondaSource,
    conda_file,
    pip_text,
)
from portal.compute.services.default_environment import satisfies
from portal.compute.services.environments import (
    canonical,
    package_lines,
    refused_requirement,
)
from portal.core.errors import InvalidInput
from portal.training.archive_sources import (
    MAX_ARCHIVES,
    StoredArchive,
    TargetPython,
    archives_of,
    inside,
    stored_line,
)
from portal.training.conda_sources import (
    about_conda,
    is_conda,
    refused_in_container,
    unused_in_container,
)
from portal.training.image_sources import (
    ImageUse,
    about_image,
    image_source,
)
from portal.training.job_package_set import (
    OF_INSTALLATION,
    JobPackages,
    count_of_packages,
    without_packages,
)
from portal.training.lock_files import LockUnreadable, poetry_requirements, uv_requirements
from portal.training.project_folder import ProjectFolder
from portal.training.pyproject_files import (
    UNREADABLE,
    check_shape,
    dependencies_of,
    line_of,
    whole_line,
)
from portal.training.python_versions import JobPython
from slipway.requirement_files.conda import is_conda_text
from slipway.requirement_files.dockerfile import is_dockerfile
from slipway.requirement_files.lines import (
    LineKind,
    RequirementLine,
    RequirementRefused,
    parse_canonical,
    parse_lines,
)
from slipway.requirement_files.names import DOCKERFILE, SOURCES, folders_of
from slipway.schemas.backends import BACKENDS

_MAX_DEPTH = 8
_MAX_FILES = 50


def packages_of(
    *,
    requirements: str | None,
    file: str | None,
    script: str,
    folder: ProjectFolder | None,
    python: Callable[[], JobPython],
    backend: str,
    pool: Pool | None = None,
) -> JobPackages:
    """Return the packages of a job: those of the request, or of the files nearest to its script.

    `requirements` is a text, empty for none, None to use what the folder names. `file` is a path in
    the folder. Without a `folder` nothing is found. A Dockerfile counts where the back end or the
    `pool` runs images, and files of conda where the back end does not. `python` is not called
    where the packages bring their own. Raises InvalidInput for a line or a file that cannot be
    used.
    """
    collector = _Collector(folder, python, in_container=not BACKENDS[backend].uses_pythons)
    collector.images = ImageUse.of(backend, pool)
    packages = _packages_for(requirements, file, script, folder, collector)
    if packages.has_own_python:
        return packages
    own = python()
    explanation = packages.explanation
    if not own.is_usual and not packages.requirements:
        explanation = without_packages() + explanation.removeprefix(OF_INSTALLATION)
    return replace(
        packages,
        python=own.version,
        chooses_python=own.is_chosen,
        explanation=f"{explanation} {own.explanation}".strip(),
    )


def _packages_for(
    requirements: str | None,
    file: str | None,
    script: str,
    folder: ProjectFolder | None,
    collector: "_Collector",
) -> JobPackages:
    try:
        if file is not None:
            return _of_file(collector, folder, file)
        if requirements is not None:
            if is_conda_text(requirements):
                collector.add_conda(requirements, "the requirements", "")
            else:
                collector.add_text(requirements, "the requirements", "")
            return collector.packages("", "")
        if folder is None:
            return JobPackages()
        return _discovered(collector, folder, script)
    except RequirementRefused as error:
        raise refused_requirement(error) from error


def _of_file(collector: "_Collector", folder: ProjectFolder | None, file: str) -> JobPackages:
    path = posixpath.normpath(file)
    if folder is None:
        return JobPackages(file=path)
    if not folder.has(path):
        raise InvalidInput(
            f"The submitted folder has no file {path[:200]}.",
            code="bad_requirement",
            field="requirements_file",
            next_step="Name a requirements file by its path from the folder.",
        )
    if is_dockerfile(path):
        if not collector.images.is_possible:
            raise collector.images.refusal(path)
        return _image_of(folder, path, [])
    collector.add_source(path)
    return collector.packages(path, "")


def _image_of(
    folder: ProjectFolder, path: str, unused: list[str], unread: Sequence[str] = ()
) -> JobPackages:
    explanation = about_image(path, unused)
    return JobPackages(
        file=path,
        image=image_source(folder, path),
        explanation=explanation,
        unread=tuple(unread),
    )


def _discovered(collector: "_Collector", folder: ProjectFolder, script: str) -> JobPackages:
    unread: list[str] = []
    unused: list[str] = []
    dockerfiles: list[str] = []
    file = ""
    for at in folders_of(script):
        paths = [posixpath.join(at, name) for name in SOURCES]
        if collector.images.is_possible:
            paths.insert(0, posixpath.join(at, DOCKERFILE))
        present = [path for path in paths if folder.has(path)]
        usable = [path for path in present if collector.is_source(path)]
        if usable and not file:
            file, unused = usable[0], usable[1:]
        if collector.in_container:
            unread += filter(is_conda, present)
        if folder.has(path := posixpath.join(at, DOCKERFILE)):
            dockerfiles.append(path)
    if is_dockerfile(file):
        return _image_of(folder, file, unused, unread)
    if file:
        collector.add_source(file)
    others = []
    if not collector.images.is_possible:
        others = [collector.images.about_unused(path) for path in dockerfiles]
    others += map(unused_in_container, unread)
    explanation = " ".join([*others, _about_others(file, unused)]).strip()
    unread += dockerfiles
    return collector.packages(file, explanation, tuple(unread))


def _about_others(file: str, unused: Sequence[str]) -> str:
    # A lock and its project are one source.
    others = [
        path for path in unused if is_conda(file) or posixpath.basename(path) != "pyproject.toml"
    ]
    return f"Not used beside it: {', '.join(others)}." if others else ""


@dataclass
class _Collector:
    """Collects the lines of a file and of those that it names."""

    folder: ProjectFolder | None
    python: Callable[[], JobPython]
    in_container: bool = False
    images: ImageUse = field(default_factory=ImageUse)
    lines: list[RequirementLine] = field(default_factory=list)
    python_path: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    conda: CondaSource | None = None
    archives: dict[str, StoredArchive] = field(default_factory=dict)

    def packages(self, file: str, others: str, unread: tuple[str, ...] = ()) -> JobPackages:
        """Return what was collected."""
        requirements = canonical(self.lines)
        count = len(package_lines(requirements))
        packages = count_of_packages(count)
        if self.conda is not None:
            conda = replace(self.conda, requirements=requirements)
            return JobPackages(
                requirements=requirements,
                file=file,
                explanation=f"{about_conda(conda, file, count)} {others}".strip(),
                python_path=tuple(dict.fromkeys(self.python_path)),
                unread=unread,
                conda=conda,
                archives=tuple(self.archives.values()),
            )
        # Text of a request is built as it stands: nobody asked for what is installed.
        is_usual = self.python().is_usual
        is_installed = is_usual and bool(file and requirements) and satisfies(requirements)
        if not requirements:
            sentence = OF_INSTALLATION
        elif is_installed:
            sentence = f"The environment of the installation, which has the {packages} of {file}."
        elif file:
            sentence = f"{packages} from {file}."
        else:
            sentence = f"{packages} of the request."
        return JobPackages(
            requirements=requirements,
            file=file if requirements or self.python_path else "",
            is_installed=is_installed,
            explanation=f"{sentence} {others}".strip(),
            python_path=tuple(dict.fromkeys(self.python_path)),
            unread=unread,
            archives=tuple(self.archives.values()),
        )

    def is_source(self, path: str) -> bool:
        """Return whether a file names packages. A pyproject.toml may only configure tools."""
        if is_conda(path):
            return not self.in_container
        if posixpath.basename(path) != "pyproject.toml":
            return True
        document = self._toml(path)
        return "project" in document or "poetry" in document.get("tool", {})

    def add_source(self, path: str) -> None:
        """Add a requirements file, a lock or a project."""
        name = posixpath.basename(path)
        if name in ("uv.lock", "poetry.lock"):
            self._add_lock(path, name)
        elif name == "pyproject.toml":
            self._add_project(whole_line(path), posixpath.dirname(path), ())
        else:
            assert self.folder is not None  # noqa: S101  (its file was found)
            text = self.folder.read(path) or ""
            add = self.add_conda if is_conda(path) or is_conda_text(text) else self.add_text
            add(text, path, posixpath.dirname(path))

    def add_conda(self, text: str, file: str, at: str) -> None:
        """Add a file of conda, with the lines that it has for pip."""
        if self.in_container:
            raise refused_in_container(file)
        content = conda_file(text, file)
        self.conda = CondaSource(content.environment)
        self.add_text(pip_text(content), file, at)

    def add_text(self, text: str, file: str, at: str, *, depth: int = 0) -> None:
        """Add the lines of a requirements file. Paths in it start at the folder `at`."""
        if self.folder is None:
            self.lines += parse_canonical(text, has_archives=True)
            return
        for line in parse_lines(text, file=file):
            if line.kind in (LineKind.FILE, LineKind.CONSTRAINTS):
                self._add_file(line, at, depth)
            elif line.kind == LineKind.PROJECT:
                path, _, extras = line.value.partition("[")
                names = tuple(filter(None, extras.rstrip("] ").replace(" ", "").split(",")))
                self._add_project(line, inside(line, at, path), names)
            else:
                self._add_line(line, at)

    def _add_line(self, line: RequirementLine, at: str) -> None:
        """Add a line that names no text file: an archive of the folder, or anything else."""
        is_local = line.kind in (LineKind.ARCHIVE, LineKind.LOCAL_LINKS)
        if self.folder is None or not is_local or stored_line(line, self.folder, at):
            self.lines.append(line)
            return
        # Containers and packages of conda bring a Python that is not known yet.
        is_known = self.conda is None and not self.in_container
        target = TargetPython(self.python().version if is_known else "")
        for canonical_line, archive in archives_of(line, self.folder, at, target):
            self.lines.append(canonical_line)
            self.archives[archive.sha256] = archive
        if len(self.archives) > MAX_ARCHIVES:
            raise line.refused(
                f"there are more than {MAX_ARCHIVES} wheels and source archives",
                "Leave out those that are not needed.",
            )

    def _add_file(self, line: RequirementLine, at: str, depth: int) -> None:
        assert self.folder is not None  # noqa: S101  (the caller checked it)
        path = inside(line, at, line.value)
        text = self.folder.read(path)
        if text is None:
            raise line.refused(
                f"the submitted folder has no file {path}",
                "Correct the path, or add the file. Files that git ignores are not submitted; "
                "--include submits one anyway.",
            )
        key = f"{line.kind} {path}"
        if key in self.files:
            return
        self.files.append(key)
        if depth >= _MAX_DEPTH or len(self.files) > _MAX_FILES:
            raise line.refused("too many files name each other", "Write them as one file.")
        if line.kind == LineKind.FILE:
            self.add_text(text, path, posixpath.dirname(path), depth=depth + 1)
            return
        for pin in parse_lines(text, file=path):
            if pin.kind == LineKind.CONSTRAINTS:
                self._add_file(pin, posixpath.dirname(path), depth + 1)
            elif pin.kind != LineKind.PACKAGE:
                raise pin.refused(
                    "a file of constraints has names with versions only",
                    "Move it to the requirements.",
                )
            elif any(mark in pin.value for mark in "=<>~"):
                constraint = RequirementLine(path, pin.number, LineKind.CONSTRAINT, pin.value)
                self.lines.append(constraint)

    def _add_project(self, line: RequirementLine, at: str, extras: tuple[str, ...]) -> None:
        """Add the dependencies of a project in the folder, which has its own code already."""
        assert self.folder is not None  # noqa: S101  (the caller checked it)
        path = posixpath.join(at, "pyproject.toml")
        if not self.folder.has(path):
            raise line.refused(
                f"the submitted folder has no {path}; a setup.py is not run",
                "Write the dependencies into [project] of a pyproject.toml.",
            )
        document = self._toml(path)
        project = document.get("project", {})
        if "dependencies" in project.get("dynamic", ()):
            raise line.refused(
                f"the dependencies in {path} are dynamic: only its build would tell them",
                "List them in dependencies of [project].",
            )
        text = self.folder.read(path) or ""
        for value in dependencies_of(line, path, document, extras):
            for dependency in parse_lines(value, file=path, number=line_of(text, value)):
                self._add_line(dependency, at)
        self._add_code(self.folder, at)

    def _add_lock(self, path: str, name: str) -> None:
        assert self.folder is not None  # noqa: S101  (its file was found)
        at = posixpath.dirname(path)
        project = posixpath.join(at, "pyproject.toml")
        try:
            lock = tomllib.loads(self.folder.read(path) or "")
            if name == "uv.lock":
                lines = uv_requirements(lock, self.python().version)
            else:
                lines = poetry_requirements(lock, self._toml(project), self.python().version)
        except (*UNREADABLE, LockUnreadable) as error:
            reason = str(error) if isinstance(error, ValueError) else "it has an unknown form"
            raise whole_line(path).refused(
                f"it cannot be read: {reason}",
                "Lock again (uv lock, poetry lock), or export it to requirements.txt.",
            ) from error
        for line in parse_lines("\n".join(lines), file=path):
            self._add_line(line, at)
        self._add_code(self.folder, at)

    def _add_code(self, folder: ProjectFolder, at: str) -> None:
        """Let scripts import the code of the project at `at`."""
        source = posixpath.join(at, "src")
        self.python_path.append(source if folder.has_folder(source) else at or ".")

    def _toml(self, path: str) -> dict[str, Any]:
        if self.folder is None or not self.folder.has(path):
            return {}
        try:
            document = tomllib.loads(self.folder.read(path) or "")
            check_shape(document)
            return document
        except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
            raise InvalidInput(
                f"The file {path} cannot be read: {error}.",
                code="bad_requirement",
                field="requirements_file",
                next_step="Correct it, or submit with --requirements or --no-requirements.",
            ) from error
