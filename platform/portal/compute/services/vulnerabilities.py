"""Known vulnerabilities of the exact versions of named environments.

The control worker asks a database that the operator names, for every version of a package once a
day. Only names and versions of packages of the public index are sent: no environment that names an
index of its own, and no name that `SLIPWAY_VULNERABILITIES_EXCEPT` lists. Pages and the API read
the stored answers alone.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

from django.conf import settings
from django.db.models import Q
from packaging.utils import canonicalize_name

from portal.compute.adapters.osv import Pin, VulnerabilitiesUnavailable, query_advisories
from portal.compute.models import Environment, EnvironmentVersion, PackageCheck
from portal.compute.services.environments import options_of, package_lines
from portal.core import clock
from slipway.requirement_files.lines import INDEXES

log = logging.getLogger(__name__)
OFF: Final = "off"
_VALID_FOR: Final = timedelta(days=1)
_RETRY: Final = timedelta(minutes=5)
_LONGEST_RETRY: Final = timedelta(hours=6)
_FORGET: Final = timedelta(days=30)
# An old version of one package may have hundreds of advisories, each a request.
_AT_ONCE: Final = 100
_SLICE: Final = 500
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,199})==([A-Za-z0-9.!_+-]{1,100})")
_INDEX_OPTIONS: Final = tuple(kind.value for kind in INDEXES)


class AuditState(StrEnum):
    """State of what is known about the vulnerabilities of an environment."""

    CHECKED = "checked"
    PENDING = "pending"
    FAILED = "failed"
    NOT_CHECKED = "not_checked"


@dataclass(frozen=True)
class Vulnerability:
    """One known vulnerability of a package of an environment."""

    package: str
    version: str
    id: str
    aliases: list[str]
    summary: str
    fixed: list[str]
    link: str


@dataclass(frozen=True)
class EnvironmentAudit:
    """Vulnerabilities of an environment as far as they are known.

    `reason` says why they are not, or which packages are not asked about. `checked_at` is the time
    of the oldest answer, and `packages` the number of packages with one. `unchecked` is the number
    of packages of conda.
    """

    state: AuditState
    reason: str = ""
    checked_at: datetime | None = None
    packages: int = 0
    unchecked: int = 0
    vulnerabilities: list[Vulnerability] = field(default_factory=list)

    @property
    def fixable(self) -> int:
        """Number of vulnerabilities that a later version fixes."""
        return sum(bool(vulnerability.fixed) for vulnerability in self.vulnerabilities)


def audit_of(environment: Environment, *, is_built: bool) -> EnvironmentAudit:
    """Return what is known about the vulnerabilities of an environment. Asks nobody.

    `is_built` is true if a node has built it for the project.
    """
    pins = pins_of(environment.locked) if is_built else []
    unchecked = _archives_of(environment.locked) if is_built else 0
    public = [pin for pin in pins if not _is_excepted(pin[0])]
    why_not = _why_not(environment, is_built=is_built, count=len(public))
    if why_not:
        return EnvironmentAudit(AuditState.NOT_CHECKED, why_not, unchecked=unchecked)
    checks = [check for check in _checks_of(public) if (check.name, check.version) in set(public)]
    answered = [check for check in checks if check.checked_at is not None]
    vulnerabilities = sorted(
        (
            Vulnerability(check.name, check.version, **advisory)
            for check in answered
            for advisory in check.advisories
        ),
        key=lambda vulnerability: (vulnerability.package, vulnerability.id),
    )
    missing = len(public) - len(answered)
    problem = next((check.problem for check in checks if check.problem), "")
    oldest = min((check.checked_at for check in answered if check.checked_at), default=None)
    state, reason = AuditState.CHECKED, _excepted_text(len(pins) - len(public))
    if problem:
        state, reason = AuditState.FAILED, f"The vulnerability database was asked, but {problem}."
    elif missing:
        state = AuditState.PENDING
        reason = f"{missing} of {len(public)} packages have not been checked yet."
    if unchecked:
        reason = f"{reason} {_conda_text(unchecked)}".strip()
    return EnvironmentAudit(state, reason, oldest, len(answered), unchecked, vulnerabilities)


def pins_of(locked: str) -> list[Pin]:
    """Return the names and versions of exact versions, one a line."""
    matches = (_PIN.fullmatch(line.strip()) for line in locked.splitlines())
    return sorted({(canonicalize_name(match[1]), match[2]) for match in matches if match})


def check_packages() -> int:
    """Ask about packages of named environments that are due. Returns how many were answered.

    Idempotent. At most 100 at once; the next run asks about the rest. Answers about versions that
    are in use no longer are deleted after a month.
    """
    if settings.SLIPWAY_VULNERABILITIES_URL == OFF:
        return 0
    pins = _pins_to_check()
    _forget_unused(pins)
    known = {(check.name, check.version) for check in _checks_of(pins)}
    PackageCheck.objects.bulk_create(
        [PackageCheck(name=name, version=version) for name, version in sorted(pins - known)],
        ignore_conflicts=True,
    )
    due = [check for check in _checks_of(pins, _is_due()) if (check.name, check.version) in pins]
    due = due[:_AT_ONCE]
    # The next run does not ask the same while this one waits for answers.
    rows = PackageCheck.objects.filter(_is_due(), pk__in=[check.pk for check in due])
    if not due or not rows.update(retry_at=clock.now() + _RETRY):
        return 0
    try:
        answers = query_advisories(
            settings.SLIPWAY_VULNERABILITIES_URL, [(check.name, check.version) for check in due]
        )
    except VulnerabilitiesUnavailable as error:
        _postpone(due, str(error))
        return 0
    now = clock.now()
    for check in due:
        advisories = [it.document() for it in answers[check.name, check.version]]
        PackageCheck.objects.filter(pk=check.pk).update(
            advisories=advisories, checked_at=now, problem="", failures=0, retry_at=None
        )
    return len(due)


def _forget_unused(pins: set[Pin]) -> None:
    old = PackageCheck.objects.filter(checked_at__lte=clock.now() - _FORGET)
    unused = [check.pk for check in old if (check.name, check.version) not in pins]
    PackageCheck.objects.filter(pk__in=unused[:_SLICE]).delete()


def _is_due() -> Q:
    now = clock.now()
    old = Q(checked_at__isnull=True) | Q(checked_at__lte=now - _VALID_FOR)
    return old & (Q(retry_at__isnull=True) | Q(retry_at__lte=now))


def _postpone(checks: list[PackageCheck], problem: str) -> None:
    """Try again later: after five minutes, then twice as long each time, up to six hours."""
    failures = max(check.failures for check in checks) + 1
    wait = min(_RETRY * 2 ** min(failures - 1, 10), _LONGEST_RETRY)
    PackageCheck.objects.filter(pk__in=[check.pk for check in checks]).update(
        problem=problem[:300], failures=failures, retry_at=clock.now() + wait
    )
    log.warning("the vulnerability database could not be asked: %s; again in %s", problem, wait)


def _pins_to_check() -> set[Pin]:
    """Return the exact versions of the named environments in use, as far as they may be sent."""
    versions = EnvironmentVersion.objects.filter(named__archived_at__isnull=True)
    environments = Environment.objects.filter(pk__in=versions.values("environment")).exclude(
        locked=""
    )
    pins: set[Pin] = set()
    for environment in environments.iterator(chunk_size=50):
        if not _has_own_packages(environment.requirements):
            pins.update(pins_of(environment.locked))
    return {pin for pin in pins if not _is_excepted(pin[0])}


def _checks_of(pins: Iterable[Pin], condition: Q | None = None) -> Iterator[PackageCheck]:
    names = sorted({name for name, _ in pins})
    for start in range(0, len(names), _SLICE):
        checks = PackageCheck.objects.filter(name__in=names[start : start + _SLICE])
        yield from checks.filter(condition or Q()).order_by("name", "version")


def _has_own_packages(requirements: str) -> bool:
    """Return whether some packages may be from elsewhere than the index of the nodes."""
    return any(line.startswith(_INDEX_OPTIONS) for line in options_of(requirements)) or any(
        " @ " in line for line in package_lines(requirements)
    )


def _is_excepted(name: str) -> bool:
    patterns = settings.SLIPWAY_VULNERABILITIES_EXCEPT.lower().split()
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _archives_of(locked: str) -> int:
    return sum("://" in line for line in locked.splitlines())


def _conda_text(count: int) -> str:
    return (
        f"{count} package{' of conda is' if count == 1 else 's of conda are'} not checked: the "
        "database has advisories on packages of PyPI only."
    )


def _excepted_text(count: int) -> str:
    if not count:
        return ""
    return f"{count} packages with names that an administrator excepts are not asked about."


def _why_not(environment: Environment, *, is_built: bool, count: int) -> str:
    """Return why nobody is asked about an environment, "" if somebody is."""
    if settings.SLIPWAY_VULNERABILITIES_URL == OFF:
        return "An administrator has switched these checks off."
    if _has_own_packages(environment.requirements):
        return (
            "It names an index, an address or an archive of its own, so its package names may be "
            "private and are not sent."
        )
    if not is_built:
        return "Its exact versions are not known before it is built."
    if not environment.locked:
        return "Its build has no exact versions, because some packages are not wheels of an index."
    if not count and environment.conda and not pins_of(environment.locked):
        return _conda_text(_archives_of(environment.locked))
    if not count:
        return "All of its packages are excepted by an administrator."
    return ""


def as_document(audit: EnvironmentAudit) -> dict[str, Any]:
    """Return an audit as the API has it."""
    return {
        "state": audit.state.value,
        "reason": audit.reason,
        "checked_at": audit.checked_at,
        "packages": audit.packages,
        "unchecked": audit.unchecked,
        "vulnerabilities": [vars(it) for it in audit.vulnerabilities],
    }
