"""Metrics need their token or an administrator, wherever the request comes from."""

import pytest
from django.conf import settings
from django.test import Client

from tests.personas import Personas, make_token

pytestmark = [pytest.mark.postgres, pytest.mark.django_db]


def test_a_scraper_with_the_token_reads_them() -> None:
    bearer = {"Authorization": f"Bearer {settings.SLIPWAY_METRICS_TOKEN}"}
    answer = Client(REMOTE_ADDR="127.0.0.1").get("/metrics", headers=bearer)
    assert answer.status_code == 200
    assert b"# TYPE slipway_" in answer.content


@pytest.mark.parametrize(
    "origin",
    [
        {"REMOTE_ADDR": "127.0.0.1"},
        {"REMOTE_ADDR": "198.51.100.7"},
        {"REMOTE_ADDR": "127.0.0.1", "HTTP_X_FORWARDED_FOR": "127.0.0.1"},
        {"REMOTE_ADDR": "127.0.0.1", "HTTP_FORWARDED": "for=127.0.0.1"},
    ],
)
def test_nobody_reads_them_without_it_but_an_administrator(
    people: Personas, origin: dict[str, str]
) -> None:
    client = Client(**origin)  # type: ignore[arg-type]
    assert client.get("/metrics").status_code in (302, 401)
    responses = {
        who: client.get("/metrics", headers={"Authorization": f"Bearer {make_token(user)}"})
        for who, user in (("alice", people.alice), ("root", people.root))
    }
    assert responses["alice"].status_code == 403
    assert responses["root"].status_code == 200
