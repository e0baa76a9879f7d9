"""Services for project secrets: written and replaced, never shown again."""

import re

from cryptography.fernet import Fernet
from django.conf import settings
from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import Project, ProjectSecret, User
from portal.accounts.signals import send_accounts_changed
from portal.core import clock
from portal.core.errors import InvalidInput, NotFound, TooLarge

_NAME = re.compile(r"\A[A-Z][A-Z0-9_]{0,63}\Z")
MAX_VALUE_BYTES = 32_768


def _cipher() -> Fernet:
    return Fernet(settings.SLIPWAY_SECRETS_KEY)


def write_secret(*, project: Project, by: User, name: str, value: str) -> ProjectSecret:
    """Create or replace a secret. `name` becomes an environment variable of user code.

    Raises InvalidInput for a bad name or a value with NUL, TooLarge over 32 KiB.
    """
    if not _NAME.match(name):
        raise InvalidInput(
            "The name must be capital letters, digits and underscores, starting with a letter.",
            code="invalid_secret_name",
            field="name",
            next_step="For example: WAREHOUSE_PASSWORD.",
        )
    if name.startswith(("SLIPWAY_", "LD_", "PYTHON")) or name in ("PATH", "HOME"):
        raise InvalidInput(
            f"The name {name} is reserved.",
            code="reserved_name",
            field="name",
            next_step="Choose a name that does not start with SLIPWAY_, LD_ or PYTHON.",
        )
    if not value or "\0" in value:
        raise InvalidInput(
            "The value is empty or contains a NUL character.",
            field="value",
            next_step="Paste the value again.",
        )
    if len(value.encode("utf-8", "surrogatepass")) > MAX_VALUE_BYTES:
        raise TooLarge(
            "The value is larger than 32 KiB.",
            field="value",
            next_step="Store large values as a file.",
        )
    sealed = _cipher().encrypt(value.encode("utf-8", "surrogatepass"))
    with transaction.atomic():
        timestamp = clock.now()
        secret, created = ProjectSecret.objects.update_or_create(
            project=project,
            name=name,
            defaults={"ciphertext": sealed, "updated_at": timestamp, "updated_by": by},
        )
        audit.record(
            "secret.create" if created else "secret.replace",
            kind="secret",
            target=secret,
            label=name,
            project=project,
        )
        send_accounts_changed(project.pk, "secrets")
    return secret


def delete_secret(*, project: Project, name: str) -> None:
    """Delete a secret. Raise NotFound when there is none of that name."""
    with transaction.atomic():
        secret = ProjectSecret.objects.filter(project=project, name=name).first()
        if secret is None:
            raise NotFound
        audit.record("secret.delete", kind="secret", target=secret, label=name, project=project)
        secret.delete()
        send_accounts_changed(project.pk, "secrets")


def secrets_of(project: Project) -> dict[str, str]:
    """Return the decrypted secrets, for the environment of the project's workloads alone."""
    cipher = _cipher()
    return {
        secret.name: cipher.decrypt(bytes(secret.ciphertext)).decode("utf-8", "surrogatepass")
        for secret in ProjectSecret.objects.filter(project=project)
    }
