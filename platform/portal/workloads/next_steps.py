"""The next step after an end, from its reason and from what its message says. No Django, no I/O."""

import re

from portal.workloads.retries import NEXT_STEPS
from slipway.requirement_files.conda_packages import CondaEnvironment
from slipway.schemas.workloads import ReasonCode

_MODULE = re.compile(r"No module named '([A-Za-z0-9_.]+)'")
_LINE = re.compile(r"\bLine (\d+) of (?!the Dockerfile)")
_PACKAGE = r"([A-Za-z0-9][A-Za-z0-9._-]{0,99})"
# Modules whose package has another name on PyPI.
_PACKAGES = {
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "PIL": "pillow",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}
# And on conda-forge.
_CONDA_PACKAGES = _PACKAGES | {"cv2": "opencv", "torch": "pytorch", "yaml": "pyyaml"}
# In this order: pip and uv name the cause first, and then what followed from it.
_BUILDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"has changed since it was built|Restart the agent"),
        "Submit again: the node builds the environment anew.",
    ),
    (
        re.compile(r"could not be pulled: the registry \S+ is the node itself"),
        "Name a registry that is not on the node, or ask an administrator to pull the image there.",
    ),
    (
        re.compile(r"base image (\S+) is not on the node"),
        "Check the name {}. If it is right, ask an administrator to run docker pull on the node.",
    ),
    (
        re.compile(r"(?:Line|line) (\d+) of the Dockerfile"),
        "Correct line {} of the Dockerfile, and submit again.",
    ),
    (
        re.compile(r"has no Python (3\.\d+)"),
        "Choose a version of Python that the node has.",
    ),
    (
        re.compile(r"took longer than|more than its limit of|No space left|Disk quota"),
        "Require fewer or smaller packages, or wheels instead of sources that have to be compiled.",
    ),
    (
        re.compile(
            r"name resolution|Connection refused|Connection reset|ConnectTimeout|ReadTimeout"
            r"|Failed to fetch|error sending request|Could not fetch URL|Network is unreachable",
            re.IGNORECASE,
        ),
        (
            "The node could not reach the package index. Submit again; if it happens again, ask an "
            "administrator to check the pip configuration of the node."
        ),
    ),
    (
        re.compile(rf"No matching distribution found for {_PACKAGE}"),
        "Correct the name or the version of {}: the index has no such release for this Python.",
    ),
    (
        re.compile(
            rf"Because {_PACKAGE} was not found|there (?:is|are) no versions? of {_PACKAGE}"
        ),
        "Correct the name or the version of {}: the index has no such release for this Python.",
    ),
    (
        re.compile(rf"No candidates were found for {_PACKAGE}"),
        (
            "Correct the name or the version of {}: the channels of the environment have no such "
            "package for this machine."
        ),
    ),
    (
        re.compile(
            r"ResolutionImpossible|conflicting dependencies|requirements are unsatisfiable"
            r"|incompatible"
        ),
        "Loosen the versions that conflict: the last lines of the build log name them.",
    ),
    (
        re.compile(r"THESE PACKAGES DO NOT MATCH THE HASHES|Hash mismatch", re.IGNORECASE),
        "Update the hashes: the index has other files than those that were hashed.",
    ),
    (
        re.compile(
            rf"Failed to build [`']?{_PACKAGE}|Failed building wheel for {_PACKAGE}"
            r"|subprocess-exited-with-error|build backend returned an error"
        ),
        "Require a version with a wheel for this Python, which needs no compiler: {} has none.",
    ),
)


def next_step_of(
    reason: ReasonCode, message: str = "", requirements: str = "", conda: str = ""
) -> str:
    """Return what to do after an end. It never says what `requirements` show to be done already.

    `requirements` are the lines of the environment it ran in, empty for the environment of the
    node, and `conda` its packages of conda in canonical form. Returns "" where there is nothing to
    do.
    """
    if reason == ReasonCode.ENVIRONMENT_FAILED:
        return _after_failed_build(message)
    if reason == ReasonCode.IMPORT_ERROR:
        return _after_import_error(message, requirements, conda)
    return NEXT_STEPS.get(reason, "")


def _after_failed_build(message: str) -> str:
    line = _LINE.search(message)
    if line is not None:
        return f"Correct line {line[1]} of the requirements and submit again."
    for pattern, step in _BUILDS:
        match = pattern.search(message)
        if match is not None:
            package = next(filter(None, match.groups()), "one of the packages")
            return step.format(package.rstrip("."))
    return NEXT_STEPS[ReasonCode.ENVIRONMENT_FAILED]


def _after_import_error(message: str, requirements: str, conda: str) -> str:
    environment = CondaEnvironment.from_text(conda) if conda else CondaEnvironment()
    file = "requirements.txt"
    if conda:
        file = "environment.yml, lock it" if environment.archives else "environment.yml"
    match = _MODULE.search(message)
    if match is None:
        return f"Add the package to {file} and submit again."
    module = match[1].partition(".")[0]
    package = (_CONDA_PACKAGES if conda else _PACKAGES).get(module, module)
    names = [name[0] for line in requirements.splitlines() if (name := re.match(_PACKAGE, line))]
    listed = {re.sub(r"[-_.]+", "-", name).lower() for name in (*names, *environment.names)}
    if re.sub(r"[-_.]+", "-", package).lower() not in listed:
        return f"Add {package} to {file} and submit again."
    if "." in match[1]:
        return (
            f"The environment has {package}, but not its module {match[1]}: require a version of "
            f"{package} that has it."
        )
    return (
        f"The environment has a package {package}, but it provides no module {module}: require the "
        "package that does."
    )
