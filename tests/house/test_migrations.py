"""The tables in the code and the tables the migrations make are the same."""

from io import StringIO

import pytest
from django.core.management import call_command


@pytest.mark.django_db
def test_every_change_of_the_tables_has_its_migration() -> None:
    out = StringIO()
    try:
        call_command("makemigrations", "--check", "--dry-run", stdout=out, stderr=out)
    except SystemExit:
        pytest.fail(f"run `manage.py makemigrations`:\n{out.getvalue()}")
