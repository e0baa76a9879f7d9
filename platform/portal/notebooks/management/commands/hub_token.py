"""`manage.py hub_token`: let a Hub ask about notebook servers, from this machine alone."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal.accounts.request_origin import Origin, acting_as
from portal.core.errors import SlipwayError
from portal.notebooks.services.hubs import admit_hub


class Command(BaseCommand):
    """Print the token of a Hub and nothing else; an earlier one of that name ends."""

    help = "Print a token that a Hub uses to sync notebook servers."

    def add_arguments(self, parser: CommandParser) -> None:
        """`--name` is how the Hub is known."""
        parser.add_argument("--name", default="hub", help="name of the Hub")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print the token."""
        try:
            with acting_as(Origin(label="manage.py hub_token")):
                made = admit_hub(name=options["name"])
        except SlipwayError as error:
            raise CommandError(f"{error.message} {error.next_step or ''}".strip()) from error
        self.stdout.write(made.secret)
