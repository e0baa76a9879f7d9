"""Wheels and source archives in the folder of a job's code, checked before it is submitted.

An archive is hostile. What is read of it here is its metadata, in bounded memory; it is installed
and built on a node, in the sandbox of the project.
"""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from typing import BinaryIO, Final, cast

from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import (
    InvalidName,
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from portal.core.errors import SlipwayError
from portal.storage.archives.limits import GIB, ArchiveLimits
from portal.storage.archives.names import parts_of
from portal.storage.archives.tar import read_tar
from portal.storage.archives.zip import read_zip
from portal.training.project_folder import PackedFile, ProjectFolder
from slipway.requirement_files.lines import LineKind, RequirementLine, RequirementRefused
from slipway.requirement_files.local_archives import LocalArchive, parse_local

MAX_ARCHIVES: Final = 200
_LIMITS: Final = ArchiveLimits(members=50_000, total_bytes=4 * GIB, member_bytes=GIB)
_METADATA_BYTES: Final = 1024**2
_SYSTEMS: Final = ("any", "linux", "manylinux", "musllinux")
_REBUILD: Final = "Build it again (python -m build), and submit the new file."


@dataclass(frozen=True)
class StoredArchive:
    """An archive of a submission: its digest, its file name and where its bytes are."""

    sha256: str
    file_name: str
    packed: PackedFile


@dataclass(frozen=True)
class TargetPython:
    """The Python and the kind of place that an archive is installed in.

    `version` is a minor version, empty if it is not known before the build.
    """

    version: str

    def skips(self, marker: str) -> bool:
        """Return True if a marker excludes this Python, so that the line installs nothing."""
        if not marker or not self.version:
            return False
        environment = {
            "python_version": self.version,
            "python_full_version": f"{self.version}.99",
            "sys_platform": "linux",
            "platform_system": "Linux",
            "os_name": "posix",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
        }
        return not Marker(marker).evaluate(environment)

    def runs(self, tags: frozenset[Tag]) -> bool:
        """Return True if a wheel with one of these tags is for this Python."""
        if not self.version:
            return True
        major, minor = map(int, self.version.split(".")[:2])
        platforms = sorted({tag.platform for tag in tags})
        supported = {
            *cpython_tags((major, minor), platforms=platforms),
            *compatible_tags((major, minor), interpreter=f"cp{major}{minor}", platforms=platforms),
        }
        return not tags.isdisjoint(supported)


def archives_of(
    line: RequirementLine, folder: ProjectFolder, at: str, python: TargetPython
) -> Iterator[tuple[RequirementLine, StoredArchive]]:
    """Yield the archives that a line names, each with its line of canonical requirements.

    `at` is the folder that paths start at. Raises RequirementRefused.
    """
    archive = line.archive
    if archive is not None:
        path = inside(line, at, archive.path)
        packed = folder.archive(path)
        if packed is None:
            raise line.refused(
                f"the submitted folder has no file {path}",
                "Correct the path, or add the file. Files that git ignores are not submitted; "
                "--include submits one anyway.",
            )
        yield _checked(line, archive, packed, python)
        return
    path = inside(line, at, line.value.removeprefix("file:"))
    paths = sorted(folder.archives_in(path))
    if not paths:
        raise line.refused(
            f"the submitted folder has no wheels or source archives in {path or 'its top'}",
            "Correct the path, or add them. Files that git ignores are not submitted; "
            "--include submits them anyway.",
        )
    for path in paths:
        packed = folder.archive(path)
        archive = LocalArchive(path)
        # Other files beside the packages do no harm: pip looks only for names that it asks for.
        if packed is not None and archive.has_safe_name and _named(archive.file_name) is not None:
            yield _stored(line, archive, packed)


def inside(line: RequirementLine, at: str, path: str) -> str:
    """Return a path that a line names, from the top of the folder. Raises RequirementRefused."""
    result = posixpath.normpath(posixpath.join(at, path.strip()))
    if result.startswith(("/", "..")) or "~" in path[:1]:
        raise line.refused(
            "it is outside the submitted folder",
            "Submit the folder that has both: slipway train --code FOLDER.",
        )
    return "" if result == "." else result


def _checked(
    line: RequirementLine, archive: LocalArchive, packed: PackedFile, python: TargetPython
) -> tuple[RequirementLine, StoredArchive]:
    if not archive.has_safe_name:
        raise line.refused(
            "the name of its file has characters other than letters, digits and . _ + -",
            "Rename the file as it was built.",
        )
    if archive.file_name.lower().endswith(".whl"):
        name = _check_wheel(line, archive, packed, python)
    else:
        name = _check_source(line, archive, packed)
    if line.kind == LineKind.LOCAL_LINKS:
        return _stored(line, LocalArchive(archive.path), packed)
    checked = LocalArchive(
        archive.path, name, archive.extras, archive.marker, hashes=archive.hashes
    )
    return _stored(line, checked, packed)


def _stored(
    line: RequirementLine, archive: LocalArchive, packed: PackedFile
) -> tuple[RequirementLine, StoredArchive]:
    sha256 = packed.sha256()
    if any(not value.startswith("sha256:") for value in archive.hashes):
        raise line.refused("only sha256 hashes are supported", "Hash it with sha256.")
    if archive.hashes and f"sha256:{sha256}" not in archive.hashes:
        raise line.refused(
            f"the file in the folder has the sha256 {sha256}, which is none of the line's",
            "Correct the hash, or submit the file that it belongs to.",
        )
    text = archive.canonical(sha256)
    if archive.name:
        canonical = RequirementLine(line.file, line.number, LineKind.ARCHIVE, text)
    else:
        value = text.removeprefix("--find-links ")
        canonical = RequirementLine(line.file, line.number, LineKind.LOCAL_LINKS, value)
    return canonical, StoredArchive(sha256, archive.file_name, packed)


def _check_wheel(
    line: RequirementLine, archive: LocalArchive, packed: PackedFile, python: TargetPython
) -> str:
    """Return the canonical name of a wheel's package. Raises RequirementRefused."""
    try:
        name, version, _, tags = parse_wheel_filename(archive.file_name)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise line.refused(
            f"{archive.file_name} is not the name of a wheel",
            "Name it NAME-VERSION-PYTHON-ABI-PLATFORM.whl, as it was built.",
        ) from error
    _check_name(line, archive, name)
    if not python.skips(archive.marker):
        if not any(tag.platform.partition("_")[0].startswith(_SYSTEMS) for tag in tags):
            systems = ", ".join(sorted({tag.platform for tag in tags}))
            raise line.refused(
                f"it is a wheel for {systems}, and nodes run Linux",
                "Use the wheel for Linux, or build one there.",
            )
        if not python.runs(tags):
            pythons = ", ".join(sorted({f"{tag.interpreter}-{tag.abi}" for tag in tags}))
            raise line.refused(
                f"it is a wheel for {pythons}, and the job has Python {python.version}",
                "Use the wheel for that Python, or choose the Python of the job: --python.",
            )
    try:
        text = _metadata_of_wheel(packed)
    except SlipwayError as error:
        raise _unreadable(line, error) from error
    _check_metadata(line, text, name, version)
    return name


def _check_source(line: RequirementLine, archive: LocalArchive, packed: PackedFile) -> str:
    """Return the canonical name of a source archive's package. Raises RequirementRefused."""
    named = _named(archive.file_name)
    if named is None and not archive.name:
        raise line.refused(
            "the name of its file does not tell the package",
            f"Write the name in front: NAME @ file:{archive.path}",
        )
    name, version = named or (canonicalize_name(archive.name), None)
    _check_name(line, archive, name)
    try:
        text = _metadata_of_source(packed, archive.file_name)
    except SlipwayError as error:
        raise _unreadable(line, error) from error
    # A pack of a repository has none. Its build says the name then, and pip compares.
    if text:
        _check_metadata(line, text, name, version)
    return name


def _named(file_name: str) -> tuple[str, Version] | None:
    """Return the package and the version that the name of an archive states."""
    try:
        if file_name.endswith(".whl"):
            name, version, _, _ = parse_wheel_filename(file_name)
            return name, version
        return parse_sdist_filename(file_name)
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None


def _check_name(line: RequirementLine, archive: LocalArchive, name: str) -> None:
    if archive.name and canonicalize_name(archive.name) != name:
        raise line.refused(
            f"the line names the package {archive.name}, and the file is {name}",
            f"Write {name}, or name another file.",
        )


def _check_metadata(line: RequirementLine, text: str, name: str, version: Version | None) -> None:
    metadata = HeaderParser().parsestr(text)
    own, own_version = str(metadata["Name"] or ""), str(metadata["Version"] or "")
    try:
        is_same = canonicalize_name(own, validate=True) == name and (
            version is None or Version(own_version) == version
        )
    except (InvalidName, InvalidVersion):
        is_same = False
    if not is_same:
        expected = f"{name} {version}" if version is not None else name
        raise line.refused(
            f"its metadata say {own[:100] or 'no name'} {own_version[:50]}".rstrip()
            + f", and its file name {expected}",
            _REBUILD,
        )


def _metadata_of_wheel(packed: PackedFile) -> str:
    texts = []
    with packed.open() as file:
        for member in read_zip(cast("BinaryIO", file), _LIMITS):
            parts = parts_of(member.name, _LIMITS)
            if len(parts) == 2 and parts[0].endswith(".dist-info") and parts[1] == "METADATA":
                texts.append(_text(member.pieces))
    return texts[0] if len(texts) == 1 else ""


def _metadata_of_source(packed: PackedFile, file_name: str) -> str:
    with packed.open() as file:
        source = cast("BinaryIO", file)
        if file_name.lower().endswith(".zip"):
            members = read_zip(source, _LIMITS)
        elif file_name.lower().endswith((".tar.gz", ".tgz")):
            members = read_tar(source, _LIMITS, is_gzip=True)
        else:
            return ""
        for member in members:
            parts = parts_of(member.name, _LIMITS)
            if len(parts) == 2 and parts[1] == "PKG-INFO":
                return _text(member.pieces)
            for _ in member.pieces:
                pass
    return ""


def _text(pieces: Iterator[bytes]) -> str:
    content = bytearray()
    for piece in pieces:
        content += piece[: _METADATA_BYTES - len(content)]
    return content.decode("utf-8", "replace")


def _unreadable(line: RequirementLine, error: SlipwayError) -> RequirementRefused:
    reason = error.message.removesuffix("; nothing was unpacked.").removeprefix("The archive")
    return line.refused(f"the archive{reason}".rstrip("."), _REBUILD)


def stored_line(line: RequirementLine, folder: ProjectFolder, at: str) -> bool:
    """Return True for a line of canonical requirements whose file the folder does not have."""
    archive = parse_local(line.value) if line.sha256 else None
    return archive is not None and folder.archive(posixpath.join(at, archive.path)) is None
