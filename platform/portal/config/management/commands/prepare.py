"""`manage.py prepare`: create tables, static files and the first administrator."""

import getpass
import secrets
import sys
import time
from argparse import ArgumentParser
from io import StringIO
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db import DatabaseError

from portal.accounts.oidc import register_service
from portal.accounts.services.first_administrator import (
    administrator_exists,
    check_email,
    check_password,
    create_first_administrator,
)
from portal.accounts.tokens import hash_of
from portal.compute.models import Node
from portal.config import gateway, local_node, notebooks
from portal.config.env import env
from portal.config.exposure import check_may_open
from portal.config.new_database import check_database_files
from portal.config.setup import steps
from portal.config.setup.client_wheel import WheelError, build_client_wheel
from portal.config.setup.state import note_prepared
from portal.config.supervision.errors import StartError, start_error_from
from portal.config.tracking_schema import prepare_tracking
from portal.core.errors import InvalidInput
from portal.endpoints.models import Gateway
from portal.notebooks.models import Hub

_DEFAULT_EMAIL = "admin@localhost"


def _database_error(error: DatabaseError) -> StartError:
    words = " ".join(str(error).split())
    if "full" in words or "No space left" in words:
        return StartError(
            "the disk that holds the database is full; free some space and start again "
            f"({words[:200]})."
        )
    return StartError(
        f"the database cannot be used ({words[:300]}); check DATABASE_URL, or without it that "
        f"the file in {env().data_dir} is intact and belongs to you."
    )


def _free_name(name: str) -> str:
    """Return an unused node name. Another installation may share this database and machine."""
    if not Node.objects.present().filter(name=name).exists():
        return name
    return f"{name}-{secrets.token_hex(3)}"


def _free_gateway_name(name: str) -> str:
    """Return an unused gateway name. A token for a used name would end the other gateway's."""
    if not Gateway.objects.filter(name=name).exists():
        return name
    return f"{name}-{secrets.token_hex(3)}"


def _free_hub_name(name: str) -> str:
    """Return an unused Hub name. A token for a used name would end the other Hub's."""
    if not Hub.objects.filter(name=name).exists():
        return name
    return f"{name}-{secrets.token_hex(3)}"


class Command(BaseCommand):
    """Prepares the installation. Safe to repeat, and beside a running Slipway."""

    help = "Update tables and static files, and create the first administrator."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--no-input", action="store_true", help="do not prompt")
        parser.add_argument(
            "--for-up",
            action="store_true",
            help="run the checks of `manage.py up`, because the processes start next",
        )

        parser.add_argument(
            "--new-database",
            action="store_true",
            help="create a new database although the one of this data folder is missing",
        )

    def handle(self, **options: Any) -> None:
        """Run all steps. Failures that a person can fix print one line and exit with 2."""
        try:
            steps.check_server(env().database_url)
            with steps.setup_lock(env().data_dir):
                self._run_steps(ask=not options["no_input"] and sys.stdin.isatty(), **options)
        except StartError as error:
            problem = error
        except DatabaseError as error:
            problem = _database_error(error)
        except OSError as error:
            problem = start_error_from(error, env().data_dir)
        except KeyboardInterrupt:
            self.stdout.write("")
            sys.exit(130)
        else:
            return
        self.stderr.write(f"slipway: {problem}", style_func=str)
        sys.exit(2)

    def _run_steps(self, *, ask: bool, for_up: bool, new_database: bool, **_: Any) -> None:
        check_database_files(env(), begin_anew=new_database)
        began = time.monotonic()
        migrations = steps.migrate()
        if migrations:
            self._print_step(f"database: {migrations} migrations applied", began)
        began = time.monotonic()
        if prepare_tracking(env().database_url, env().data_dir):
            self._print_step("MLflow's tables are up to date", began)
        if for_up:
            check_may_open(env())
        began = time.monotonic()
        if steps.collect_static():
            self._print_step("static files collected and compressed", began)
        began = time.monotonic()
        try:
            if build_client_wheel():
                self._print_step("wheel of the SDK and command line built", began)
        except WheelError as error:
            self._print_step(f"no wheel of the command line to download: {error}", began)
        if not administrator_exists():
            self._create_administrator(ask=ask)
        if for_up and env().embedded_node:
            self._invite_node()
        if for_up and env().embedded_gateway:
            self._admit_gateway()
        if for_up and env().runs_notebooks:
            self._admit_hub()
        note_prepared(env())

    def _invite_node(self) -> None:
        """Give this machine's node a name and, unless it is known, a join token."""
        settings = env()
        identity = local_node.identity_of(settings)
        known = Node.objects.present().filter(
            token_hash=hash_of(str(identity.get("node_token", "")))
        )
        node = known.first()
        if node is not None:
            local_node.write_identity(settings, name=node.name, identity=identity)
            return
        name = local_node.name_of(settings) or _free_name(local_node.suggested_name())
        token = StringIO()
        call_command("node_token", node=name, stdout=token)
        local_node.invite(settings, name=name, token=token.getvalue())

    def _admit_gateway(self) -> None:
        """Give this machine's gateway a token, unless it has a valid one."""
        settings = env()
        held = gateway.token_of(settings)
        if held and Gateway.objects.filter(token_hash=hash_of(held)).exists():
            return
        token = StringIO()
        name = _free_gateway_name(local_node.suggested_name())
        call_command("gateway_token", name=name, stdout=token)
        gateway.write_token(settings, token.getvalue())

    def _admit_hub(self) -> None:
        """Register this machine's Hub for sign-in and give it a token, unless it is known."""
        settings = env()
        held = notebooks.admission_of(settings)
        if held is not None and Hub.objects.filter(token_hash=hash_of(held.token)).exists():
            return
        token = StringIO()
        name = _free_hub_name(local_node.suggested_name())
        call_command("hub_token", name=name, stdout=token)
        made = notebooks.new_admission(settings, token=token.getvalue())
        register_service(
            client_id=notebooks.CLIENT_ID,
            secret=made.client_secret,
            name="Notebooks",
            redirect_uri=f"{made.url}/hub/oauth_callback",
        )
        notebooks.write_credentials(settings, made)

    def _print_step(self, what: str, began: float) -> None:
        self.stdout.write(f"slipway: {what} ({time.monotonic() - began:.1f} s)")

    def _create_administrator(self, *, ask: bool) -> None:
        if ask:
            self.stdout.write("slipway: create the first administrator.")
        email = self._prompt_email() if ask else _DEFAULT_EMAIL
        typed = self._prompt_password(email) if ask else ""
        password = typed or secrets.token_urlsafe(15)

        def hand_over() -> None:
            lines = [f"slipway: first administrator: {email}"]
            if not typed:
                lines.append(f"slipway: password:            {password}")
                lines.append("slipway: write it down now: it is shown only once and not stored.")
            self.stdout.write("\n".join(lines))
            self.stdout.flush()

        create_first_administrator(email=email, password=password, before_commit=hand_over)

    def _prompt_email(self) -> str:
        while True:
            email = self._input(f"  e-mail [{_DEFAULT_EMAIL}]: ").strip() or _DEFAULT_EMAIL
            try:
                check_email(email)
            except InvalidInput as error:
                self.stdout.write(f"  {error.message}")
            else:
                return email

    def _prompt_password(self, email: str) -> str:
        """Return the password typed twice, or "" to generate one."""
        while True:
            password = getpass.getpass("  password (Enter to generate one): ")
            if not password:
                return ""
            try:
                check_password(password, email=email)
            except InvalidInput as error:
                self.stdout.write(f"  {error.message}")
                continue
            if getpass.getpass("  repeat the password: ") == password:
                return password
            self.stdout.write("  The passwords do not match.")

    def _input(self, question: str) -> str:
        try:
            return input(question)
        except EOFError:
            self.stdout.write("")
            return ""
