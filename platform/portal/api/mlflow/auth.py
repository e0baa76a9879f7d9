"""Authentication at `/mlflow`, and selection of the project.

A client can express both without being changed: the token as MLFLOW_TRACKING_TOKEN (or as the
password of MLFLOW_TRACKING_USERNAME), the project in the address, `…/mlflow/<project>`, or as that
user name. A token that belongs to one project alone needs neither.
"""

import base64
import binascii
import time
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from portal.accounts.gates import ProjectRole
from portal.accounts.models.tenancy import role_in
from portal.accounts.principal import Principal, principal_of_bearer
from portal.api.mlflow.answers import Refusal, missing
from portal.core.errors import Unauthenticated
from slipway.schemas.accounts import Role

# A revoked token, a removed member and an ended job are refused after this long at the latest.
KNOWN_FOR_S = 3.0
_MOST_KNOWN = 10_000


@dataclass(frozen=True)
class Caller:
    """A person (or their job) in one project."""

    principal: Principal
    project_id: str
    project: str
    role: Role

    def may(self, policy: ProjectRole) -> bool:
        """Return whether the policy admits the caller."""
        return self.role.at_least(policy.role) and self.principal.allows(policy.scope)

    def check(self, policy: ProjectRole) -> None:
        """Raise Refusal unless the policy admits the caller."""
        if not self.role.at_least(policy.role):
            raise Refusal(
                403,
                "PERMISSION_DENIED",
                f"This needs the role {policy.role.value}; you are {self.role.value} of the "
                f"project {self.project}. Ask an owner of it for that role.",
            )
        if not self.principal.allows(policy.scope):
            raise Refusal(
                403,
                "PERMISSION_DENIED",
                f"This token does not carry the scope {policy.scope.value}. Create one that does "
                "under Settings → API tokens.",
            )


class CallerCache:
    """Authenticates callers, and caches them for a few seconds. Thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], tuple[float, Caller]] = OrderedDict()
        self._lock = Lock()

    def cached(self, authorization: str, project: str) -> Caller | None:
        """Return a caller from the cache, without a query."""
        items = self._known.get((authorization, project))
        return items[1] if items is not None and items[0] > time.monotonic() else None

    def authenticate(self, authorization: str, project: str) -> Caller:
        """Authenticate a header, in the project of the URL ("" for none).

        Raises Refusal: 401 for an invalid token, 404 for a project that is not theirs, 400 when
        they have several and named none.
        """
        caller = _recognised(authorization, project)
        with self._lock:
            self._known[(authorization, project)] = (time.monotonic() + KNOWN_FOR_S, caller)
            while len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
        return caller

    def forget(self) -> None:
        """Clear the cache."""
        with self._lock:
            self._known.clear()


def _credentials(authorization: str) -> tuple[str, str]:
    """Return the token as a header of its own, and the user name sent with it."""
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() != "basic":
        return authorization, ""
    try:
        name, _, secret = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return f"Bearer {secret}", name


def _recognised(authorization: str, project: str) -> Caller:
    header, name = _credentials(authorization)
    try:
        principal = principal_of_bearer(header)
    except Unauthenticated as error:
        raise Refusal(
            401,
            "UNAUTHENTICATED",
            "The token is unknown, expired or revoked. Set MLFLOW_TRACKING_TOKEN to one created "
            "under Settings → API tokens.",
            ((b"www-authenticate", b"Bearer"),),
        ) from error
    projects = principal.projects().filter(archived_at__isnull=True)
    requested = project or name
    listed = list(
        projects.filter(slug=requested)[:1] if requested else projects.order_by("slug")[:2]
    )
    if requested and not listed:
        raise missing(f"There is no project {requested} that this token can use.")
    if not listed:
        raise missing(
            "This token has access to no project. Create a project, or ask to be added to one."
        )
    if len(listed) > 1:
        raise Refusal(
            400,
            "INVALID_PARAMETER_VALUE",
            "You have several projects: name one at the end of MLFLOW_TRACKING_URI, for example "
            f"…/mlflow/{listed[0].slug}.",
        )
    role = role_in(principal.user, listed[0])
    if role is None:
        raise missing(f"There is no project {requested} that this token can use.")
    return Caller(principal, listed[0].pk, listed[0].slug, role)
