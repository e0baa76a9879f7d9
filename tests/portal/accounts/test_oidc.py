"""Slipway signs people in to its own services: OpenID Connect by code and PKCE, from outside."""

import base64
import hashlib
import json
import secrets
from typing import Any, cast
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from django.conf import settings
from django.http import HttpResponse
from django.test import Client
from jwcrypto.jwk import JWKSet
from jwcrypto.jwt import JWT
from oauth2_provider.models import Application, Grant

from tests.personas import Api, Personas
from tests.portal.accounts.browser import Browser

pytestmark = pytest.mark.django_db
REDIRECT = "http://127.0.0.1:8001/hub/oauth_callback"
SECRET = "the-secret-of-the-service"
VERIFIER = secrets.token_urlsafe(48)
CHALLENGE = (
    base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
)


class Service:
    """One of Slipway's own services, as its OpenID Connect client sees the portal."""

    def __init__(self) -> None:
        self.client = Client()
        configuration = self._json(self.client.get("/o/.well-known/openid-configuration"))
        self.places: dict[str, Any] = configuration
        Application.objects.create(
            client_id="notebooks",
            client_secret=SECRET,
            name="Notebooks",
            client_type=Application.CLIENT_CONFIDENTIAL,
            authorization_grant_type=Application.GRANT_AUTHORIZATION_CODE,
            redirect_uris=REDIRECT,
            skip_authorization=True,
            algorithm=Application.RS256_ALGORITHM,
        )

    @staticmethod
    def _json(answer: Any) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads(answer.content))

    def path(self, name: str) -> str:
        """Where the discovery document says something is, without the host."""
        return str(urlsplit(self.places[name]).path)

    def ask(self, **changes: str) -> str:
        """The address a person is sent to."""
        parameters = {
            "response_type": "code",
            "client_id": "notebooks",
            "redirect_uri": REDIRECT,
            "scope": "openid profile email",
            "state": "from-the-service",
            "nonce": "once",
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
        }
        kept = {name: value for name, value in (parameters | changes).items() if value}
        return f"{self.path('authorization_endpoint')}?{urlencode(kept)}"

    def token(self, **fields: str) -> HttpResponse:
        """Ask the token endpoint as the service."""
        answer: Any = self.client.post(
            self.path("token_endpoint"),
            {"client_id": "notebooks", "client_secret": SECRET, **fields},
        )
        return cast("HttpResponse", answer)

    def redeem(self, code: str, **changes: str) -> HttpResponse:
        """Swap a code for tokens."""
        fields = {"code": code, "redirect_uri": REDIRECT, "code_verifier": VERIFIER}
        return self.token(grant_type="authorization_code", **(fields | changes))

    def claims(self, id_token: str) -> dict[str, Any]:
        """Check the signature by the published keys and return what the token says."""
        keys = JWKSet.from_json(self.client.get(self.path("jwks_uri")).content.decode())
        return cast("dict[str, Any]", json.loads(JWT(jwt=id_token, key=keys).claims))

    def about(self, access_token: str) -> HttpResponse:
        """Ask who the access token stands for."""
        headers = {"Authorization": f"Bearer {access_token}"}
        answer: Any = self.client.get(self.path("userinfo_endpoint"), headers=headers)
        return cast("HttpResponse", answer)


@pytest.fixture
def service(people: Personas) -> Service:
    """A service of ours, known to the portal."""
    return Service()


def _signed_in(email: str) -> Browser:
    browser = Browser()
    browser.sign_in(email)
    return browser


def _code(answer: HttpResponse) -> str:
    assert answer.status_code == 302, answer.content
    assert answer.headers["Location"].startswith(f"{REDIRECT}?")
    query = parse_qs(urlsplit(answer.headers["Location"]).query)
    assert query["state"] == ["from-the-service"]
    return query["code"][0]


def _tokens(service: Service, email: str) -> dict[str, str]:
    answer = service.redeem(_code(_signed_in(email).get(service.ask())))
    assert answer.status_code == 200, answer.content
    return cast("dict[str, str]", json.loads(answer.content))


def test_a_signed_in_person_reaches_a_service_without_being_asked(
    people: Personas, service: Service
) -> None:
    tokens = _tokens(service, people.alice.email)
    claims = service.claims(tokens["id_token"])
    assert claims["sub"] == people.alice.pk
    assert (
        claims["iss"] == settings.OAUTH2_PROVIDER["OIDC_ISS_ENDPOINT"] == service.places["issuer"]
    )
    assert claims["aud"] == "notebooks"
    assert claims["nonce"] == "once"
    assert claims["exp"] > claims["iat"]
    about = json.loads(service.about(tokens["access_token"]).content)
    assert about["sub"] == people.alice.pk
    assert about["email"] == people.alice.email
    assert about["name"] == "Alice"


def test_a_stranger_signs_in_first_and_comes_back(people: Personas, service: Service) -> None:
    browser = Browser()
    response = browser.get(service.ask())
    assert response.status_code == 302
    login = urlsplit(response.headers["Location"])
    assert login.path == "/account/login"
    back = parse_qs(login.query)["next"][0]
    came = browser.sign_in(people.bob.email, next=back)
    assert came.headers["Location"] == back
    tokens = json.loads(service.redeem(_code(browser.get(back))).content)
    assert service.claims(tokens["id_token"])["sub"] == people.bob.pk


def test_no_code_leaves_for_another_address(people: Personas, service: Service) -> None:
    answer = _signed_in(people.alice.email).get(
        service.ask(redirect_uri="http://evil.example/hub/oauth_callback")
    )
    assert answer.status_code == 400
    assert "Location" not in answer.headers


@pytest.mark.parametrize("without", ["code_challenge", "nothing known"])
def test_who_leaves_pkce_out_gets_no_code(people: Personas, service: Service, without: str) -> None:
    changes = {"code_challenge": "", "code_challenge_method": ""}
    if without == "nothing known":
        changes = {"client_id": "somebody"}
    answer = _signed_in(people.alice.email).get(service.ask(**changes))
    assert "code=" not in answer.headers.get("Location", "")


@pytest.mark.parametrize("method", ["plain", "", "s256", "none"])
def test_a_challenge_by_another_method_than_s256_gets_no_code(
    people: Personas, service: Service, method: str
) -> None:
    client = Client()
    client.force_login(people.alice, backend=settings.AUTHENTICATION_BACKENDS[0])
    address = service.ask(code_challenge=VERIFIER, code_challenge_method=method)
    answer: Any = client.get(address)
    assert "code=" not in answer.headers.get("Location", "")
    Application.objects.update(skip_authorization=False)
    # The person consents by a form, whose fields are those of the address.
    consent = {name: value[0] for name, value in parse_qs(urlsplit(address).query).items()}
    answer = client.post(address, {**consent, "allow": "true"})
    assert "code=" not in answer.headers.get("Location", "")
    assert not Grant.objects.exists()


def test_a_code_whose_challenge_is_plain_is_worth_nothing(
    people: Personas, service: Service
) -> None:
    code = _code(_signed_in(people.alice.email).get(service.ask()))
    Grant.objects.update(code_challenge=VERIFIER, code_challenge_method="plain")
    answer = service.redeem(code)
    assert answer.status_code == 400
    assert b"access_token" not in answer.content


def test_a_public_client_needs_pkce_too(people: Personas, service: Service) -> None:
    Application.objects.update(client_type=Application.CLIENT_PUBLIC)
    browser = _signed_in(people.alice.email)
    for changes in (
        {"code_challenge": "", "code_challenge_method": ""},
        {"code_challenge": VERIFIER, "code_challenge_method": "plain"},
    ):
        assert "code=" not in browser.get(service.ask(**changes)).headers.get("Location", "")
    code = _code(browser.get(service.ask()))
    without: Any = service.client.post(
        service.path("token_endpoint"),
        {
            "grant_type": "authorization_code",
            "client_id": "notebooks",
            "code": code,
            "redirect_uri": REDIRECT,
        },
    )
    assert without.status_code == 400
    assert b"access_token" not in without.content


@pytest.mark.parametrize(
    "response_type",
    ["token", "id_token", "id_token token", "code id_token", "code token", "code id_token token"],
)
def test_no_response_type_but_code_is_served(
    people: Personas, service: Service, response_type: str
) -> None:
    answer = _signed_in(people.alice.email).get(service.ask(response_type=response_type))
    location = answer.headers.get("Location", "")
    assert not any(f"{word}=" in location for word in ("code", "access_token", "id_token"))
    assert service.places["response_types_supported"] == ["code"]
    assert service.places["code_challenge_methods_supported"] == ["S256"]


@pytest.mark.parametrize("grant_type", ["password", "client_credentials", "implicit"])
def test_no_grant_but_the_code_is_served(
    people: Personas, service: Service, grant_type: str
) -> None:
    answer = service.token(
        grant_type=grant_type, username=people.alice.email, password="correct-horse-battery"
    )
    assert answer.status_code in (400, 401)
    assert b"access_token" not in answer.content


@pytest.mark.parametrize(
    "address",
    [
        REDIRECT + "/",
        REDIRECT + "?more=1",
        REDIRECT + "#part",
        REDIRECT.replace("8001", "8002"),
        REDIRECT.replace("127.0.0.1", "localhost"),
        REDIRECT.replace("http:", "https:"),
        REDIRECT.replace("hub/", "hub/../hub/"),
        REDIRECT.replace("127.0.0.1", "127.0.0.1@evil.example"),
        REDIRECT.upper(),
        "",
    ],
)
def test_an_address_that_is_not_exactly_the_registered_one_gets_no_code(
    people: Personas, service: Service, address: str
) -> None:
    answer = _signed_in(people.alice.email).get(service.ask(redirect_uri=address))
    if not address:  # then it is the registered one
        assert _code(answer)
        return
    assert answer.status_code == 400
    assert "Location" not in answer.headers


def test_an_access_token_in_an_address_is_not_accepted(people: Personas, service: Service) -> None:
    token = _tokens(service, people.alice.email)["access_token"]
    place = service.path("userinfo_endpoint")
    assert service.client.get(place, {"access_token": token}).status_code == 401
    assert service.client.post(place, {"access_token": token}).status_code == 401
    assert service.about(token).status_code == 200


def test_a_refresh_token_that_is_used_twice_ends_the_ones_that_followed(
    people: Personas, service: Service
) -> None:
    first = _tokens(service, people.alice.email)["refresh_token"]
    second = json.loads(service.token(grant_type="refresh_token", refresh_token=first).content)
    stolen = service.token(grant_type="refresh_token", refresh_token=first)
    assert stolen.status_code == 400
    assert service.about(second["access_token"]).status_code == 401
    again = service.token(grant_type="refresh_token", refresh_token=second["refresh_token"])
    assert again.status_code == 400


@pytest.mark.parametrize(
    "changes",
    [
        {"code_verifier": "x" * 64},
        {"client_secret": "wrong"},
        {"redirect_uri": "http://127.0.0.1:8001/other"},
    ],
)
def test_a_stolen_code_is_worth_nothing(
    people: Personas, service: Service, changes: dict[str, str]
) -> None:
    code = _code(_signed_in(people.alice.email).get(service.ask()))
    if "client_secret" in changes:
        answer = service.token(
            grant_type="authorization_code",
            code=code,
            redirect_uri=REDIRECT,
            code_verifier=VERIFIER,
            **changes,
        )
    else:
        answer = service.redeem(code, **changes)
    assert answer.status_code in (400, 401)
    assert b"access_token" not in answer.content


def test_a_code_works_once(people: Personas, service: Service) -> None:
    code = _code(_signed_in(people.alice.email).get(service.ask()))
    assert service.redeem(code).status_code == 200
    assert service.redeem(code).status_code == 400


def test_a_refreshed_token_replaces_the_one_before(people: Personas, service: Service) -> None:
    tokens = _tokens(service, people.alice.email)
    again = service.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    fresh = json.loads(again.content)
    assert service.about(fresh["access_token"]).status_code == 200
    assert service.about(tokens["access_token"]).status_code == 401
    stale = service.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    assert stale.status_code == 400


def test_a_suspended_person_is_out_of_every_service(people: Personas, service: Service) -> None:
    tokens = _tokens(service, people.bob.email)
    Api.of(people.root).patch(f"users/{people.bob.pk}", {"is_active": False})
    assert service.about(tokens["access_token"]).status_code == 401
    again = service.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    assert again.status_code == 400


def test_the_private_key_stays_at_home(service: Service) -> None:
    published = json.loads(service.client.get(service.path("jwks_uri")).content)
    assert published["keys"]
    assert all(set(key) <= {"alg", "use", "kid", "kty", "n", "e"} for key in published["keys"])
