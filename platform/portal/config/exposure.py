"""Condition for opening the portal to other machines."""

from django.db import Error as DatabaseProblem

from portal.accounts.services.first_administrator import administrator_exists
from portal.config.env import Env
from portal.config.supervision.errors import StartError


def check_may_open(settings: Env) -> None:
    """Raise StartError when SLIPWAY_BIND opens the portal to others before it is meant to be."""
    if settings.is_loopback_only:
        return
    opens = f"SLIPWAY_BIND={settings.bind} opens Slipway to other machines"
    if not settings.allowed_hosts and not settings.public_url:
        raise StartError(
            f"{opens}, which needs its host names: set SLIPWAY_ALLOWED_HOSTS, for example "
            "SLIPWAY_ALLOWED_HOSTS=slipway.example.org."
        )
    try:
        somebody_administers = administrator_exists()
    except DatabaseProblem as error:
        raise StartError(
            f"{opens}, but Slipway cannot check the database for an administrator "
            f"({' '.join(str(error).split())[:200]}); run `.venv/bin/python manage.py prepare`."
        ) from None
    if not somebody_administers:
        raise StartError(
            f"{opens}, but there is no administrator yet; run `.venv/bin/python manage.py "
            "prepare` first to create one, then start again."
        )
