"""Requests to slurmrestd: the version of its API, tokens, errors.

slurmrestd answers errors of Slurm with any status and a list `errors`. It says "Unspecified error"
both where slurmctld is away and where it refuses a token, so the message names both.

Specification: GET /openapi of slurmrestd, https://slurm.schedmd.com/rest_api.html
"""

import re
from typing import Any, Final

import httpx

from portal.compute.adapters.engines.slurm.tokens import SlurmKeys
from portal.compute.engines import EngineAway

# slurmrestd itself waits about 20 s for a slurmctld that is away.
_PATIENCE_S: Final = 30.0
# Slurm 22.05 to 23.11. Tried with 22.05.
VERSION: Final = "v0.0.38"
_PATH_OF_JOBS: Final = re.compile(r"/slurm/(v[0-9.]+)/jobs/?")
_NOTHING_FOUND: Final = 9003
UNKNOWN_JOB: Final = 2017
_REFUSED_TOKEN: Final = 1007
_UNCLEAR: Final = frozenset({-1, 5005})


class RestProblem(Exception):
    """An error of Slurm, with its number and its text, in an answer that may say more."""

    def __init__(self, number: int, text: str, content: dict[str, Any]) -> None:
        super().__init__(text)
        self.number = number
        self.content = content


class SlurmRestApi:
    """A slurmrestd, asked with tokens of this installation. Threads may share it."""

    def __init__(self, url: str, keys: SlurmKeys) -> None:
        self._url = url.rstrip("/")
        self._keys = keys
        self._client = httpx.Client(
            timeout=_PATIENCE_S,
            trust_env=False,
            # Of the environment it uses the site's authorities, and no proxy.
            verify=httpx.create_ssl_context(),
            follow_redirects=False,
        )
        self._is_checked = False

    def call(
        self,
        method: str,
        path: str,
        *,
        account: str,
        body: dict[str, Any] | None = None,
        query: dict[str, str] | None = None,
        part: str = "slurm",
    ) -> dict[str, Any]:
        """Return what slurmrestd answers to a request of an account.

        Raises RestProblem for an error of Slurm, EngineAway where there is no answer of Slurm.
        """
        self._check_version(account)
        content = self._send(method, f"/{part}/{VERSION}/{path}", account, body=body, query=query)
        for error in content.get("errors") or ():
            number = int(error.get("error_number", error.get("error_code", 0)) or 0)
            if number != _NOTHING_FOUND:
                raise self._problem(number, error, account, content)
        return content

    def _check_version(self, account: str) -> None:
        if self._is_checked:
            return
        paths = self._send("GET", "/openapi", account).get("paths") or {}
        matches = (_PATH_OF_JOBS.fullmatch(path) for path in paths)
        versions = sorted({match[1] for match in matches if match is not None})
        if VERSION not in versions:
            raise EngineAway(
                f"slurmrestd speaks {', '.join(versions) or 'no version'}, and Slipway {VERSION} "
                "(Slurm 22.05 to 23.11); leave out rest_url to use the commands of Slurm"
            )
        self._is_checked = True

    def _send(
        self,
        method: str,
        path: str,
        account: str,
        *,
        body: dict[str, Any] | None = None,
        query: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        try:
            token = self._keys.token(account)
        except (OSError, ValueError) as error:
            raise EngineAway(f"Slipway signs no token: {error}") from error
        headers = {"X-SLURM-USER-NAME": account, "X-SLURM-USER-TOKEN": token}
        try:
            answer = self._client.request(
                method, f"{self._url}{path}", headers=headers, json=body, params=query
            )
            content = answer.json()
        except httpx.TimeoutException as error:
            raise EngineAway(f"slurmrestd did not answer within {_PATIENCE_S:g} s") from error
        except httpx.HTTPError as error:
            raise EngineAway(f"slurmrestd at {self._url} does not answer: {error}") from error
        except ValueError as error:
            raise EngineAway(
                f"{self._url} answers {answer.status_code} without JSON, so it is no slurmrestd"
            ) from error
        if not isinstance(content, dict):
            raise EngineAway(f"{self._url} answers {answer.status_code}, and is no slurmrestd")
        return content

    def _problem(
        self, number: int, error: dict[str, Any], account: str, content: dict[str, Any]
    ) -> Exception:
        text = str(error.get("error") or error.get("description") or "an error without a text")
        kid = self._keys.signing()
        if number == _REFUSED_TOKEN:
            return EngineAway(
                f"Slurm does not accept Slipway's token for {account} ({text}): install the "
                f"present keys, with {kid}, and compare the clocks of both machines"
            )
        if number in _UNCLEAR:
            return EngineAway(
                f"slurmrestd gets no answer from slurmctld ({text}): either slurmctld is away, or "
                f"it does not accept Slipway's token for {account}; then install the present keys, "
                f"with {kid}, and compare the clocks of both machines"
            )
        return RestProblem(number, text, content)
