"""API tokens open the API and nothing else."""

from django.test import Client

from tests.personas import Api, Personas, make_token


def test_a_token_does_not_open_a_page(people: Personas) -> None:
    header = {"Authorization": f"Bearer {make_token(people.alice)}"}
    assert Api.of(people.alice).get("whoami").status_code == 200
    answer = Client().get("/", headers=header)
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/account/login")


def test_a_signed_in_page_ignores_an_authorization_header_of_a_proxy(people: Personas) -> None:
    client = Client()
    client.force_login(people.alice)
    assert client.get("/", headers={"Authorization": "Basic b3A6b3A="}).status_code == 200
