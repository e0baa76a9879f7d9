"""Client of a vulnerability database with the API of OSV (https://google.github.io/osv.dev/api/).

One request asks about up to a thousand packages and returns ids. The details of each id are another
request. Answers are data from outside: every field is checked and bounded.
"""

import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import quote

import httpx
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from slipway.sanitize import visible

_TIMEOUT: Final = httpx.Timeout(10.0, connect=5.0)
_WITHIN_S: Final = 60.0
_MOST_QUERIES: Final = 1000
_MOST_PAGES: Final = 10
_MOST_REQUESTS: Final = 2000
_MOST_BYTES: Final = 16 << 20
_MOST_ADVISORIES: Final = 100
_MOST_VERSIONS: Final = 20
_MOST_SUMMARY: Final = 300
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
_PAGE: Final = "https://osv.dev/vulnerability/"
_ECOSYSTEM: Final = "PyPI"
Pin = tuple[str, str]


class VulnerabilitiesUnavailable(Exception):
    """The database did not answer. The message is the end of a sentence for people."""


@dataclass(frozen=True)
class Advisory:
    """A known vulnerability of one version of a package. `fixed` are later versions without it."""

    id: str
    aliases: list[str]
    summary: str
    fixed: list[str]
    link: str

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def query_advisories(url: str, pins: Iterable[Pin]) -> dict[Pin, list[Advisory]]:
    """Return the advisories of each version, those with several ids once.

    Withdrawn ones are left out. Raises VulnerabilitiesUnavailable.
    """
    with httpx.Client(timeout=_TIMEOUT, follow_redirects=False) as client:
        database = _Database(client, url.rstrip("/"), time.monotonic() + _WITHIN_S)
        ids = database.ids_of(list(pins))
        details = {id_: database.details(id_) for id_ in sorted(set().union(*ids.values()))}
    return {
        pin: _merged(
            [
                _advisory(details[id_], pin)
                for id_ in sorted(pin_ids)
                if not details[id_].get("withdrawn")
            ]
        )
        for pin, pin_ids in ids.items()
    }


class _Database:
    def __init__(self, client: httpx.Client, url: str, until_s: float) -> None:
        self._client = client
        self._url = url
        self._until_s = until_s
        self._requests = 0

    def ids_of(self, pins: list[Pin]) -> dict[Pin, set[str]]:
        ids: dict[Pin, set[str]] = {pin: set() for pin in pins}
        todo = [(pin, "") for pin in pins]
        for _ in range(_MOST_PAGES):
            batch, todo = todo[:_MOST_QUERIES], todo[_MOST_QUERIES:]
            if not batch:
                return ids
            answer = self._fetch("POST", "/v1/querybatch", {"queries": list(map(_query, batch))})
            results = answer.get("results")
            if not isinstance(results, list) or len(results) != len(batch):
                raise VulnerabilitiesUnavailable("its answer has an unknown format")
            for (pin, _token), result in zip(batch, results, strict=True):
                entry: Mapping[str, Any] = result if isinstance(result, dict) else {}
                for row in _list(entry.get("vulns")):
                    id_ = row.get("id") if isinstance(row, dict) else None
                    if isinstance(id_, str) and _ID.fullmatch(id_):
                        ids[pin].add(id_)
                token = entry.get("next_page_token")
                if isinstance(token, str) and token:
                    todo.append((pin, token))
        raise VulnerabilitiesUnavailable("its answer has too many pages")

    def details(self, id_: str) -> dict[str, Any]:
        """Return one advisory as the database has it."""
        return self._fetch("GET", f"/v1/vulns/{quote(id_, safe='')}")

    def _fetch(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        self._requests += 1
        if time.monotonic() > self._until_s or self._requests > _MOST_REQUESTS:
            raise VulnerabilitiesUnavailable("it takes too long to answer all questions")
        try:
            with self._client.stream(method, self._url + path, json=body) as answer:
                if not answer.is_success:
                    raise VulnerabilitiesUnavailable(
                        f"it responds with status {answer.status_code}"
                    )
                data = b""
                for chunk in answer.iter_bytes():
                    data += chunk
                    if len(data) > _MOST_BYTES or time.monotonic() > self._until_s:
                        raise VulnerabilitiesUnavailable("its answer is too large or too slow")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise VulnerabilitiesUnavailable(
                f"it does not respond ({type(error).__name__})"
            ) from None
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise VulnerabilitiesUnavailable("its answer has an unknown format")
        return document


def _query(question: tuple[Pin, str]) -> dict[str, Any]:
    (name, version), token = question
    query: dict[str, Any] = {"package": {"name": name, "ecosystem": _ECOSYSTEM}, "version": version}
    return query | ({"page_token": token} if token else {})


def _advisory(document: Mapping[str, Any], pin: Pin) -> Advisory:
    id_ = str(document.get("id"))
    if not _ID.fullmatch(id_):
        raise VulnerabilitiesUnavailable("its answer has an unknown format")
    summary = document.get("summary") or document.get("details") or ""
    text = visible(str(summary).strip().partition("\n")[0])
    return Advisory(
        id_, _aliases(document), text[:_MOST_SUMMARY], _fixed(document, pin), _PAGE + id_
    )


def _aliases(document: Mapping[str, Any]) -> list[str]:
    aliases = (alias for alias in _list(document.get("aliases")) if isinstance(alias, str))
    return sorted(filter(_ID.fullmatch, aliases))[:_MOST_VERSIONS]


def _fixed(document: Mapping[str, Any], pin: Pin) -> list[str]:
    """Return the versions that fix it, later than the one that is in use."""
    name, current = pin
    versions: set[Version] = set()
    for affected in _dicts(document.get("affected")):
        package = affected.get("package")
        if not isinstance(package, dict) or package.get("ecosystem") != _ECOSYSTEM:
            continue
        if canonicalize_name(str(package.get("name"))) != name:
            continue
        for range_ in _dicts(affected.get("ranges")):
            if range_.get("type") == "ECOSYSTEM":
                fixed = (event.get("fixed") for event in _dicts(range_.get("events")))
                versions.update(_versions(fixed))
    used = _versions([current])
    later = sorted(version for version in versions if not used or version > used[0])
    return [str(version) for version in later[:_MOST_VERSIONS]]


def _versions(texts: Iterable[object]) -> list[Version]:
    versions = []
    for text in texts:
        try:
            versions.append(Version(str(text)[:100]))
        except InvalidVersion:
            continue
    return versions


def _merged(advisories: list[Advisory]) -> list[Advisory]:
    """Join advisories that are aliases of each other. PYSEC ids come first, as in pip-audit."""
    groups: list[list[Advisory]] = []
    for advisory in advisories:
        names = {advisory.id, *advisory.aliases}
        same = [group for group in groups if any(names & {it.id, *it.aliases} for it in group)]
        groups = [group for group in groups if group not in same]
        groups.append([advisory, *(it for group in same for it in group)])
    return sorted(map(_joined, groups), key=lambda advisory: advisory.id)[:_MOST_ADVISORIES]


def _joined(group: list[Advisory]) -> Advisory:
    first = min(group, key=lambda advisory: (not advisory.id.startswith("PYSEC-"), advisory.id))
    names = {name for advisory in group for name in (advisory.id, *advisory.aliases)}
    fixed = {version for advisory in group for version in advisory.fixed}
    return Advisory(
        first.id,
        sorted(names - {first.id}),
        first.summary or next((it.summary for it in group if it.summary), ""),
        [str(version) for version in sorted(map(Version, fixed))],
        first.link,
    )


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in _list(value) if isinstance(item, dict)]
