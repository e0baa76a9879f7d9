"""Project secrets: encrypted at rest with a key outside the database, written, never read back."""

import logging
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from django.conf import settings
from django.db import connection

from portal.accounts.models import AuditEvent, ProjectSecret
from portal.accounts.services.secrets import secrets_of
from portal.config.logs import mask_tokens
from tests.personas import Api, Personas, json_of
from tests.security.problems import refusal

pytestmark = pytest.mark.postgres

PATH = "projects/vision/secrets"
VALUE = "correct horse battery staple"


def test_a_secret_is_stored_encrypted_and_reaches_workloads_as_written(people: Personas) -> None:
    assert Api.of(people.mia).put(f"{PATH}/DB_PASSWORD", {"value": VALUE}).status_code == 200
    with connection.cursor() as cursor:
        cursor.execute("SELECT ciphertext FROM accounts_projectsecret")
        [[stored]] = cursor.fetchall()
    assert VALUE.encode() not in bytes(stored)
    assert Fernet(settings.SLIPWAY_SECRETS_KEY).decrypt(bytes(stored)) == VALUE.encode()
    assert secrets_of(people.vision) == {"DB_PASSWORD": VALUE}
    assert secrets_of(people.other) == {}


def test_the_same_value_is_never_stored_alike(people: Personas) -> None:
    for name in ("A", "B"):
        Api.of(people.alice).put(f"{PATH}/{name}", {"value": VALUE})
    assert len({bytes(row.ciphertext) for row in ProjectSecret.objects.all()}) == 2


def test_the_keys_lie_outside_the_database_readable_by_their_owner_alone() -> None:
    folder = Path(settings.KEYS_DIR)
    assert folder.stat().st_mode & 0o777 == 0o700
    for name in ("secrets.key", "session.key", "oidc.pem"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600, name


@pytest.mark.parametrize("reader", ["alice", "mia", "bob"])
def test_nobody_reads_a_value_back(people: Personas, reader: str) -> None:
    written = Api.of(people.alice).put(f"{PATH}/DB_PASSWORD", {"value": VALUE})
    listed = Api.of(getattr(people, reader)).get(PATH)
    assert VALUE not in written.content.decode() + listed.content.decode()
    [item] = json_of(listed)["items"]
    assert set(item) == {"name", "created_at", "updated_at", "updated_by"}


def test_no_value_stands_in_the_audit_log_or_in_the_log(
    people: Personas, caplog: pytest.LogCaptureFixture
) -> None:
    alice = Api.of(people.alice)
    with caplog.at_level(logging.DEBUG):
        alice.put(f"{PATH}/DB_PASSWORD", {"value": VALUE})
        alice.put(f"{PATH}/DB_PASSWORD", {"value": VALUE + "2"})
        alice.put(f"{PATH}/bad name", {"value": VALUE})
        alice.put(f"{PATH}/DB", {"value": VALUE, "unknown": 1})
        alice.delete(f"{PATH}/DB_PASSWORD")
    written = AuditEvent.objects.filter(verb__startswith="secret.").order_by("pk")
    assert [event.verb for event in written] == ["secret.create", "secret.replace", "secret.delete"]
    assert VALUE not in "".join(str(vars(event)) for event in written)
    assert VALUE not in caplog.text
    refused = alice.put(f"{PATH}/DB", {"value": VALUE + "\0"})
    assert VALUE not in refused.content.decode()


@pytest.mark.parametrize(
    "name",
    ["a", "1A", "A-B", "A" * 65, "PATH", "HOME", "SLIPWAY_TOKEN", "LD_PRELOAD", "PYTHONPATH"],
)
def test_a_name_that_is_no_variable_of_user_code_is_refused(people: Personas, name: str) -> None:
    answer = Api.of(people.alice).put(f"{PATH}/{name}", {"value": VALUE})
    assert refusal(answer).field == "name"


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("x", 200),
        ("ünïcode\n\ttext\u202e", 200),
        ("x" * 32_768, 200),
        ("x" * 32_769, 422),
        ("ü" * 32_768, 413),
        ("", 422),
        ("a\0b", 422),
    ],
)
def test_a_value_is_any_text_up_to_32_kib(people: Personas, value: str, status: int) -> None:
    answer = Api.of(people.alice).put(f"{PATH}/KEY", {"value": value})
    assert answer.status_code == status
    if status == 200:
        assert secrets_of(people.vision) == {"KEY": value}
    else:
        assert refusal(answer).field == "value"


def test_a_token_in_a_log_line_is_masked() -> None:
    line = "called with slp_abcdefgh12345678ABCDEFGHijklmnop1234567890 and slp_short"
    assert mask_tokens(line) == "called with slp_*** and slp_short"
