"""`manage.py hub_token`: create a token for a Hub."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal.accounts.request_origin import Origin, origin_context
from portal.core.errors import SlipwayError
from portal.notebooks.services.hubs import admit_hub


class Command(BaseCommand):
    """Prints only the token of a Hub. An earlier one of that name is revoked."""

    help = "Print a token for a Hub."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--name", default="hub", help="name of the Hub")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print the token."""
        try:
            with origin_context(Origin(label="manage.py hub_token")):
                made = admit_hub(name=options["name"])
        except SlipwayError as error:
            raise CommandError(f"{error.message} {error.next_step or ''}".strip()) from error
        self.stdout.write(made.secret)
