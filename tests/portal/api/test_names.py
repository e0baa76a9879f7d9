"""A name that is taken comes back as it was given, on whichever database the suite runs."""

import unicodedata
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slipway.schemas.base import forbidden_character
from tests.personas import Api, Personas, json_of
from tests.security.problems import refusal
from tests.turns import thorough_after

_MANY = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
# Every character there is, lone surrogates too, and more of those that hurt.
_ANYTHING = st.text(
    st.characters() | st.sampled_from("\0\x1b\x85\u202e\u2066\u200b\ufeff\ud800\udfff'\"\\%_<&{}"),
    max_size=130,
)
_GOOD = _ANYTHING.filter(lambda text: _expected(text) is not None)


def _expected(text: str, *, longest: int = 100) -> str | None:
    """Return the name that is kept for what was typed; None when it must be refused."""
    cleaned = unicodedata.normalize("NFC", text).strip()
    good = forbidden_character(text) is None and 0 < len(cleaned) <= longest
    return cleaned if good else None


@pytest.fixture
def bob(people: Personas) -> Api:
    """A client of Bob's, who may make things of his own."""
    return Api.of(people.bob)


@_MANY
@given(name=_ANYTHING)
@example(name="a" * 100)
@example(name="a" * 101)
@example(name="e\u0301" * 100)
@example(name="\U0001f9ea\U0001f468\u200d\U0001f469\u200d\U0001f467")
@example(name="Ωμέγα ما 漢字 naïve \u200b")
@pytest.mark.parametrize("kind", thorough_after(1, ["projects", "teams"]))
def test_a_name_is_kept_as_typed_or_refused_in_words(bob: Api, kind: str, name: str) -> None:
    answer = bob.post(kind, _json_of_text(name))
    expected = _expected(name)
    if expected is None:
        assert refusal(answer).field == "name"
        return
    assert answer.status_code == 201
    made = json_of(answer)
    assert made["name"] == expected
    listed = json_of(bob.get(f"{kind}?limit=1"))["items"]
    assert [(item["id"], item["name"]) for item in listed] == [(made["id"], expected)]
    assert json_of(bob.get(f"{kind}/{made['slug']}"))["name"] == expected


@_MANY
@given(first=_GOOD, second=_GOOD)
@pytest.mark.parametrize("kind", thorough_after(1, ["projects", "teams"]))
def test_a_changed_name_is_found_by_searching_for_it(
    bob: Api, kind: str, first: str, second: str
) -> None:
    made = json_of(bob.post(kind, _json_of_text(first)))
    changed = bob.call("PATCH", f"{kind}/{made['slug']}", _json_of_text(second))
    assert json_of(changed)["name"] == _expected(second)
    items = json_of(bob.get(f"{kind}?limit=200&q={quote(second, safe='')}"))["items"]
    assert made["id"] in {item["id"] for item in items}


@_MANY
@given(name=_ANYTHING)
def test_the_name_of_a_token_is_kept_as_typed_or_refused_in_words(bob: Api, name: str) -> None:
    body = _json_of_text(name)[:-1] + b', "scopes": ["projects:read"]}'
    answer = bob.post("tokens", body)
    expected = _expected(name)
    if expected is None:
        assert refusal(answer).field == "name"
    else:
        assert json_of(answer)["name"] == expected
        assert json_of(bob.get("tokens?limit=1"))["items"][0]["name"] == expected


@_MANY
@given(text=st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=2_000))
def test_a_description_is_kept_as_typed(bob: Api, text: str) -> None:
    if forbidden_character(text, multiline=True) is not None:
        return
    body = {"name": "x", "description": text}
    kept = json_of(bob.post("projects", body))["description"]
    assert kept == unicodedata.normalize("NFC", text).strip()


def _json_of_text(name: str) -> bytes:
    """Write `{"name": …}` with escapes, so that lone surrogates can be sent at all."""
    escaped = "".join(f"\\u{unit:04x}" for unit in _utf16_units(name))
    return f'{{"name": "{escaped}"}}'.encode()


def _utf16_units(text: str) -> list[int]:
    raw = text.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(raw[at : at + 2], "big") for at in range(0, len(raw), 2)]
