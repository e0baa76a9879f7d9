"""The portal's API as a workload reaches it, with the standard library and its own token alone."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

_LONGEST_PAUSE_S = 20.0
_REQUEST_TIMEOUT_S = 60.0
# 409 too: a concurrent change or removal of the same object.
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class ApiResponse:
    """Response of the portal.

    `error` is empty if the request succeeded. `may_pass` is true if a later attempt might succeed.
    """

    content: bytes = b""
    error: str = ""
    may_pass: bool = False


@dataclass(frozen=True)
class ApiAddress:
    """API address and credentials of a workload for its project."""

    url: str
    token: str
    project: str
    workload: str

    def call(
        self, method: str, where: str, body: bytes | None = None, *, kind: str = ""
    ) -> ApiResponse:
        """Send one request to a path below the project's. Never raises."""
        request = urllib.request.Request(  # noqa: S310 - the portal's URL
            f"{self.url}/api/v1/projects/{quote(self.project, safe='')}/{where}",
            data=body,
            method=method,
            headers={"Authorization": f"Bearer {self.token}"}
            | ({"Content-Type": kind} if kind else {}),
        )
        try:
            with urllib.request.urlopen(request, timeout=_REQUEST_TIMEOUT_S) as answer:  # noqa: S310
                return ApiResponse(answer.read())
        except urllib.error.HTTPError as error:
            message = error.read(4000).decode("utf-8", "replace")
            return ApiResponse(
                error=f"{error.code} {_problem_detail(message)}".strip(),
                may_pass=error.code in _AGAIN,
            )
        except (OSError, ValueError) as error:
            return ApiResponse(error=str(error) or type(error).__name__, may_pass=True)

    def send(
        self, method: str, where: str, body: bytes | None, *, kind: str, tried_for_s: float
    ) -> ApiResponse:
        """Send something, trying again for so long while that may help."""
        until, pause = time.monotonic() + tried_for_s, 0.5
        while True:
            answer = self.call(method, where, body, kind=kind)
            if not answer.may_pass or time.monotonic() + pause > until:
                return answer
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, pause * 2)


def _problem_detail(problem: str) -> str:
    try:
        return str(json.loads(problem).get("detail", ""))
    except (ValueError, AttributeError):
        return problem[:200]


def api_address_from(environment: Mapping[str, str]) -> ApiAddress | None:
    """Return the API address of this process's workload, or None outside of Slipway."""
    names = ("SLIPWAY_URL", "SLIPWAY_TOKEN", "SLIPWAY_PROJECT", "SLIPWAY_WORKLOAD")
    environments = [environment.get(name, "") for name in names]
    return ApiAddress(environments[0].rstrip("/"), *environments[1:]) if all(environments) else None
