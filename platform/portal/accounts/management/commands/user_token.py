"""`manage.py user_token`: create an API token on this machine, without a browser."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal.accounts.models import User
from portal.accounts.principal import Principal
from portal.accounts.request_origin import Origin, origin_context
from portal.accounts.services.tokens import create_token
from portal.core.errors import SlipwayError
from slipway.schemas.accounts import Scope


class Command(BaseCommand):
    """Prints only the token, for scripts of the operator."""

    help = "Print a new API token for a person (default: the first administrator)."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--user", default=None, help="e-mail address of the person")
        parser.add_argument("--name", default="made by manage.py", help="name of the token")
        parser.add_argument("--days", type=int, default=1, help="days until it expires")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print the token."""
        user = self._find_user(options["user"])
        scopes = [scope for scope in Scope if scope != Scope.ADMIN or user.is_administrator]
        try:
            with origin_context(Origin(label="manage.py user_token")):
                made = create_token(
                    by=Principal(user),
                    name=options["name"],
                    scopes=scopes,
                    expires_in_days=options["days"],
                )
        except SlipwayError as error:
            raise CommandError(f"{error.message} {error.next_step or ''}".strip()) from error
        self.stdout.write(made.secret)

    @staticmethod
    def _find_user(email: str | None) -> User:
        known = User.objects.people().filter(is_active=True)
        if email is None:
            user = known.filter(is_administrator=True).order_by("pk").first()
            missing = "There is no administrator yet. Start Slipway once: make up."
        else:
            user = known.filter(email=email.strip().lower()).first()
            missing = f"There is no active user with the address {email}."
        if user is None:
            raise CommandError(missing)
        return user
